"""The modules in which ONNX Runtime keeps its classes and exceptions, under the same names."""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state", "onnxruntime_validation")


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
