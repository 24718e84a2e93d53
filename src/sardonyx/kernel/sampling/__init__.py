"""Resizing and sampling images and signals: what the kernels are."""
