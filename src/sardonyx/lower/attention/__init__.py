"""Attention: how the operators are lowered."""
