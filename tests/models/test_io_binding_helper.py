"""The names of types in sardonyx.transformers.io_binding_helper are those of onnxruntime.transformers.io_binding_helper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx.transformers import io_binding_helper as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("onnxruntime.transformers.io_binding_helper")

pytestmark = pytest.mark.slow


def answer(helper: Any, function: str, value: Any) -> Any:
    try:
        return getattr(helper.TypeHelper, function)(value)
    except ValueError as error:
        return str(error).partition(" not found in map")[0]


@pytest.mark.parametrize("function", ["ort_type_to_numpy_type", "ort_type_to_torch_type", "ort_type_to_onnx_type"])
@pytest.mark.parametrize("name", [*(dtype.ort for dtype in dtypes.ALL), "nothing"])
def test_types_by_their_name(function: str, name: str) -> None:
    expected = answer(theirs, function, f"tensor({name})")
    actual = answer(ours, function, f"tensor({name})")
    if isinstance(expected, str) and not isinstance(actual, str):  # more types have a form here
        assert dtypes.from_ort(name).numpy.name in str(actual) or actual == dtypes.from_ort(name).onnx
    else:
        assert actual == expected


@pytest.mark.parametrize(
    "name", ["int64", "float32", "float16", "bool", "uint8", "int8", "float64", "int16", "uint16", "complex64"]
)
def test_types_between_numpy_and_torch(name: str) -> None:
    numpy_type = bool if name == "bool" else getattr(np, name)
    torch_type = getattr(torch, name)
    for helper in (ours, theirs):
        assert helper.TypeHelper.numpy_type_to_torch_type(numpy_type) is torch_type
        assert helper.TypeHelper.torch_type_to_numpy_type(torch_type) is numpy_type
