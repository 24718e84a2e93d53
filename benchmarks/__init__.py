"""Benchmarks: `python -m benchmarks` compares models with onnxruntime, `python benchmarks/kernels` kernels with the machine."""
