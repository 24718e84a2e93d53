"""Pooling: what the kernels are."""
