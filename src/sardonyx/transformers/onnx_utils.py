"""Weights apart from their model: `onnxruntime.transformers.onnx_utils`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sardonyx.runtime.values import OrtValue
from sardonyx.transformers.fusion_utils import NumpyHelper
from sardonyx.transformers.messages import package
from sardonyx.transformers.onnx_model import OnnxModel


def extract_raw_data_from_model(model: Any) -> Iterator[tuple[Any, ...]]:
    """Take the bytes of weights out of a ModelProto: their names, and their values.

    The model then says that they are in a file; a session finds them by `SessionOptions.add_external_initializers`.
    """
    helper = package().external_data_helper
    taken = []
    for graph in OnnxModel(model).graphs():
        for tensor in graph.initializer:
            if tensor.HasField("raw_data"):
                taken.append((tensor.name, OrtValue.ortvalue_from_numpy(NumpyHelper.to_array(tensor))))
                helper.set_external_data(tensor, location="weights.bin")  # a name is needed, and no such file
                tensor.ClearField("raw_data")
    return zip(*taken)


def has_external_data(model: Any) -> bool:
    """Whether weights of a ModelProto are in files still."""
    where = package().TensorProto.EXTERNAL
    return any(tensor.data_location == where for graph in OnnxModel(model).graphs() for tensor in graph.initializer)
