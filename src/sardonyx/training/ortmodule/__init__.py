"""ONNX Runtime's `onnxruntime.training.ortmodule`: the same class, options and constants by its names.

Programs may set constants before they wrap a module: ONNX_OPSET_VERSION, ORTMODULE_FALLBACK_POLICY, ORTMODULE_FALLBACK_RETRY.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import torch

from sardonyx.training.debug import DebugOptions, LogLevel
from sardonyx.training.fallback import DEFAULT_POLICY
from sardonyx.training.module import TrainingModule as ORTModule
from sardonyx.training.settings import DEFAULT_OPSET

ONNX_OPSET_VERSION = DEFAULT_OPSET
MINIMUM_RUNTIME_PYTORCH_VERSION_STR = "2.6.0"
ORTMODULE_TORCH_CPP_DIR = str(Path(__file__).parent)
ORTMODULE_FALLBACK_POLICY = DEFAULT_POLICY
ORTMODULE_FALLBACK_RETRY = False

__all__ = [
    "MINIMUM_RUNTIME_PYTORCH_VERSION_STR",
    "ONNX_OPSET_VERSION",
    "ORTMODULE_FALLBACK_POLICY",
    "ORTMODULE_FALLBACK_RETRY",
    "ORTMODULE_TORCH_CPP_DIR",
    "DebugOptions",
    "LogLevel",
    "ORTModule",
]


def _are_deterministic_algorithms_enabled() -> bool:
    return bool(torch.are_deterministic_algorithms_enabled())


def _defined_from_envvar(name: str, default_value: Any, warn: bool = True) -> Any:
    """What the environment says, in the type of the default; the default, with a warning, if that is not possible."""
    text = os.environ.get(name)
    if text is None:
        return default_value
    try:
        return type(default_value)(text)
    except (TypeError, ValueError) as error:
        if warn:
            warnings.warn(f"Unable to overwrite constant {name!r} by {text!r} of the environment: {error}", stacklevel=2)
        return default_value
