"""Matrix products: what the operators mean."""
