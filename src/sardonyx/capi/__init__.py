"""The modules in which ONNX Runtime keeps its classes and exceptions, under the same names."""
