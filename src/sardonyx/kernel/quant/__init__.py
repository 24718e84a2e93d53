"""Quantized numbers: what the kernels are."""
