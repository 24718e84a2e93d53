"""ONNX Runtime's `onnxruntime.training.ortmodule._onnx_models`: where the graph of a stage is saved."""

from __future__ import annotations

from typing import Any

import torch


def _get_onnx_file_name(name_prefix: str, name: str, export_mode: Any) -> str:
    suffix = "training" if export_mode == torch.onnx.TrainingMode.TRAINING else "inference"
    return f"{name_prefix}_{name}_{suffix}.onnx"
