"""Matrix products: how the kernels are emitted."""
