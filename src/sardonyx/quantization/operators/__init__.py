"""Operator by operator: what of it is quantized, and by what it is replaced."""
