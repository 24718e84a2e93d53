"""Resizing and sampling images and signals: how the kernels are emitted."""
