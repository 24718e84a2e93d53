"""ONNX models to models in the ORT format, and the list of operators that a set of them needs.

    convert_models("models", output_dir="converted")

For each model and style of optimisation a file appears, and one configuration that names the operators of all:

    model.ort                          fixed: all optimisations are made
    model.with_runtime_opt.ort         runtime: basic ones are made, others written down for whoever loads the model
    required_operators.config          see required_operators.py

    simplify_model("model.onnx", "simpler.onnx")           the same model with fewer nodes
"""

from __future__ import annotations

from sardonyx.conversion.convert import Conversion, convert_models
from sardonyx.conversion.simplify import Simplification, simplify_model

__all__ = ["Conversion", "Simplification", "convert_models", "simplify_model"]
