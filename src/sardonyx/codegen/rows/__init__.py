"""Along rows: reductions, norms, sorting: how the kernels are emitted."""
