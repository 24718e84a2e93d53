"""Training: gradients of graphs, compiled forward and backward, for PyTorch modules and for ONNX models without PyTorch.

    model = sardonyx.training.TrainingModule(model)      # a torch.nn.Module; the rest of the training script stays as it is

Names are imported when they are first used: `artifacts`, `api` and `onnxblock` need no PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "module": ("TrainingModule",),
    "debug": ("DebugOptions", "LogLevel"),
    "step_memory": ("MemoryReport", "memory_report"),
    "recompute": ("RecomputeOptions",),
    "step_profile": ("StepProfile",),
    "step_program": ("GradientRequest", "InferenceProgram", "TrainingOptions", "TrainingProgram"),
    "model_info": ("PostExportProcessedModelInfo",),
    "transition": ("GraphTransitionManager",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = ("api", "artifacts", "onnxblock", "optim")
_ALIASES = {"ORTModule": "TrainingModule"}  # ONNX Runtime's name of the same class

__all__ = sorted([*_HOMES, *_SUBMODULES, *_ALIASES])  # noqa: PLE0605 - the tables above are the list


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    asked = _ALIASES.get(name, name)
    if asked not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[asked]}"), asked)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
