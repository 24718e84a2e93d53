"""Benchmarks: `python -m benchmarks` compares models with onnxruntime, `python -m benchmarks.kernels` kernels with the machine."""
