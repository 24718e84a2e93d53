"""Matrix products: what the kernels are."""
