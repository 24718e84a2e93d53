"""Attention: how the kernels are emitted."""
