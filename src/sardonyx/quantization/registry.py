"""The operators that can be quantized, by how; the values are the rules."""

from __future__ import annotations

from sardonyx.quantization.operators import dynamic, qdq, qlinear

IntegerOpsRegistry = dynamic.RULES
QLinearOpsRegistry = qlinear.RULES
QDQRegistry = qdq.RULES
CommonOpsRegistry = dynamic.COMMON
