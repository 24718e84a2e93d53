"""ONNX Runtime's `onnxruntime.training.ortmodule._fallback`: policies and exceptions by its names."""

from sardonyx.training.fallback import (
    FallbackManager as _FallbackManager,
)
from sardonyx.training.fallback import (
    FallbackPolicy as _FallbackPolicy,
)
from sardonyx.training.fallback import (
    ORTModuleDeviceException,
    ORTModuleFallbackException,
    ORTModuleInitException,
    ORTModuleIOError,
    ORTModuleONNXModelException,
    ORTModuleTorchModelException,
)

__all__ = [
    "ORTModuleDeviceException",
    "ORTModuleFallbackException",
    "ORTModuleIOError",
    "ORTModuleInitException",
    "ORTModuleONNXModelException",
    "ORTModuleTorchModelException",
    "_FallbackManager",
    "_FallbackPolicy",
]
