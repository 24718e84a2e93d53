"""Recurrent cells: what the kernels are."""
