"""Models for ONNX Runtime's QNN execution provider: how they are prepared and quantized. They are not run here."""

from __future__ import annotations

from sardonyx.quantization.execution_providers.qnn.preprocess import qnn_preprocess_model
from sardonyx.quantization.execution_providers.qnn.quant_config import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]
