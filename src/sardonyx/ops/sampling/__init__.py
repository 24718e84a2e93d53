"""Resizing and sampling images and signals: what the operators mean."""
