"""Making tensors: what the operators mean."""
