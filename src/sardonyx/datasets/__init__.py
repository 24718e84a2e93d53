"""Two small models that examples use."""

from __future__ import annotations

import os


def get_example(name: str) -> str:
    """The path of an example: mul_1.onnx (Y = X * W, float[3,2]) or sigmoid.onnx (y = sigmoid(x), float[3,4,5])."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    if os.path.dirname(name) or not os.path.exists(path):
        raise FileNotFoundError(f"Unable to find example '{name}'")
    return path
