"""Benchmarks: `python -m benchmarks` compares models with onnxruntime, `-m benchmarks.kernels` kernels with the machine."""
