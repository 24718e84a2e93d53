"""Sessions: from a model to an object with ONNX Runtime's methods."""
