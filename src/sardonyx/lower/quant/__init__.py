"""Quantized arithmetic: how the operators are lowered."""
