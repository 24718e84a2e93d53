"""Sardonyx runs ONNX models."""
