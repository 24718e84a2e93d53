"""Classical machine learning: how the kernels are emitted."""
