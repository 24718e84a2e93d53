"""What ONNX Runtime's `onnxruntime.transformers` offers to programs that run models: so far the helper for bindings."""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = ("io_binding_helper",)


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
