"""Moving and picking elements: what the kernels are."""
