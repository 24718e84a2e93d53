"""Quantized arithmetic: what the operators mean."""
