"""Pooling: what the operators mean."""
