"""Classical machine learning: what the kernels are."""
