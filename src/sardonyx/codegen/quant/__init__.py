"""Quantized numbers: how the kernels are emitted."""
