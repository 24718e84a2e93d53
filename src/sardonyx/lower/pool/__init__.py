"""Pooling: how the operators are lowered."""
