"""What ONNX Runtime's `onnxruntime.transformers` offers: fused layers, float16, models as messages, bindings of torch tensors."""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = (
    "benchmark_helper", "dynamo_onnx_helper", "float16", "fusion_base", "fusion_options", "fusion_utils", "huggingface_models",
    "import_utils", "io_binding_helper", "model_kinds", "onnx_model", "onnx_model_bert", "onnx_utils", "optimizer",
    "profile_result_processor", "shape_infer_helper",
)  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
