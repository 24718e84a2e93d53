"""The kinds of models, in the order of tables and charts, and how much faster than onnxruntime each should be."""

from __future__ import annotations

from typing import Final

DENSE: Final = "3x3-heavy CNN"
BOTTLENECK: Final = "bottleneck and concatenating CNN"
MOBILE: Final = "mobile CNN"
DETECTOR: Final = "detector, segmentation, OCR"
TRANSFORMER: Final = "transformer"
SMALL_TRANSFORMER: Final = "small transformer"
DECODER: Final = "decoder"
RECURRENT: Final = "recurrent"
AUDIO: Final = "audio"
OVERHEAD: Final = "overhead-bound"
ATTENTION: Final = "attention"
TREES: Final = "trees"
CLASSICAL: Final = "other classical ML"

KINDS: Final = {
    DENSE: 1.8,
    BOTTLENECK: 1.3,
    MOBILE: 1.4,
    DETECTOR: 1.3,
    TRANSFORMER: 1.15,
    SMALL_TRANSFORMER: 1.25,
    DECODER: 1.25,
    RECURRENT: 1.5,
    AUDIO: 1.4,
    OVERHEAD: 2.5,
    ATTENTION: 1.5,
    TREES: 1.2,
    CLASSICAL: 1.2,
}
