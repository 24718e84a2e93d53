"""Resizing and sampling images and signals: how the operators are lowered."""
