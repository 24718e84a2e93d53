"""Convolutions: how the kernels are emitted."""
