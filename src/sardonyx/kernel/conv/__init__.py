"""Convolutions: what the kernels are."""
