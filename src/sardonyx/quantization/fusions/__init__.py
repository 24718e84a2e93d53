"""Fusions of a model in an `ONNXModel`: `FusionGelu(model).apply()`."""

from __future__ import annotations

from sardonyx.quantization.fusions.fusion import (
    Fusion,
    FusionGelu,
    FusionLayerNormalization,
    FusionLpNormalization,
    FusionSpaceToDepth,
    ReplaceUpsampleWithResize,
)

__all__ = [
    "Fusion",
    "FusionGelu",
    "FusionLayerNormalization",
    "FusionLpNormalization",
    "FusionSpaceToDepth",
    "ReplaceUpsampleWithResize",
]
