"""Making tensors: how the operators are lowered."""
