"""What ONNX Runtime's `onnxruntime.transformers` offers: fused layers, float16, models as messages, bindings of torch tensors."""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = (
    "benchmark_helper", "float16", "fusion_options", "io_binding_helper", "onnx_model", "onnx_model_bert", "optimizer",
    "shape_infer_helper",
)  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
