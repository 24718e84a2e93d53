"""`FusionLpNormalization`, where ONNX Runtime has it."""

from __future__ import annotations

from sardonyx.quantization.fusions import FusionLpNormalization

__all__ = ["FusionLpNormalization"]
