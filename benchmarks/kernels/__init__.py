"""Single kernels against onnxruntime and against what the machine can do."""
