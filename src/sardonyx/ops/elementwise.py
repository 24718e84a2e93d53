"""Elementwise operators: arithmetic, comparison, logic, activation."""
