"""Moving and picking elements: how the kernels are emitted."""
