"""Along rows: reductions, norms, sorting: how the operators are lowered."""
