"""Pooling: how the kernels are emitted."""
