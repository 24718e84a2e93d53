"""Attention: what the operators mean."""
