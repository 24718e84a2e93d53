"""Along rows: reductions, norms, sorting: what the kernels are."""
