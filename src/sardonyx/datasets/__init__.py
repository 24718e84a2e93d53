"""Small models that examples use."""

from __future__ import annotations

import os


def get_example(name: str) -> str:
    """The path of an example: mul_1.onnx (Y = X * W, float[3,2]), sigmoid.onnx (y = sigmoid(x), float[3,4,5]) or
    logreg_iris.onnx (three species of iris by the length and width of their sepals, float[3,2]).
    """
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    if os.path.dirname(name) or not os.path.exists(path):
        raise FileNotFoundError(f"Unable to find example '{name}'")
    return path
