"""Attention: what the kernels are."""
