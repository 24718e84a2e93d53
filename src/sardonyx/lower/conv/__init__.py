"""Convolutions: how the operators are lowered."""
