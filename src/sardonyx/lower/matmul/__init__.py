"""Matrix products: how the operators are lowered."""
