"""Configurations for execution providers of ONNX Runtime."""
