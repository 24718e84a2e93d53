"""Convolutions: what the operators mean."""
