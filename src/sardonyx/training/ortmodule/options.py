"""ONNX Runtime's `onnxruntime.training.ortmodule.options`, by its names."""

from sardonyx.training.debug import DebugOptions, LogLevel
from sardonyx.training.settings import RuntimeOptions as _RuntimeOptions
from sardonyx.training.settings import SkipCheck as _SkipCheck

__all__ = ["DebugOptions", "LogLevel", "_RuntimeOptions", "_SkipCheck"]
