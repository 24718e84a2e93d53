"""Strings: what the operators mean."""
