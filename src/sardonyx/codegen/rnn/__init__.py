"""Recurrent cells: how the kernels are emitted."""
