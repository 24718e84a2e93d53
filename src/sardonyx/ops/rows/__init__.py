"""Along rows: reductions, norms, sorting: what the operators mean."""
