"""Attention of com.microsoft in float16 and bfloat16: no host steps, results as the NumPy meaning rounds them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from native_support import assert_native_agrees

Array = np.ndarray[Any, Any]
TYPES = {"float16": (np.float16, TensorProto.FLOAT16, 4e-3), "bfloat16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16, 4e-2)}


def check(op: str, kind: str, feeds: dict[str, Array | None], outputs: list[str], **attrs: Any) -> None:
    dtype, code, tolerance = TYPES[kind]
    given = {
        name: array if array.dtype.kind in "iu" else array.astype(dtype) for name, array in feeds.items() if array is not None
    }
    names = [name if array is not None else "" for name, array in feeds.items()]
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attrs)
    inputs = [
        helper.make_tensor_value_info(
            name, code if array.dtype.kind not in "iu" else helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
        )
        for name, array in given.items()
    ]
    fixed = [onnx.numpy_helper.from_array(given.pop("total"), "total")] if "total" in given else []  # decides a size
    inputs = [value for value in inputs if value.name in given]
    results = [helper.make_tensor_value_info(name, code, None) for name in outputs]
    graph = helper.make_graph([node], "narrow", inputs, results, fixed)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    assert_native_agrees(model, given, rtol=tolerance, atol=tolerance)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("new", [1, 7])
def test_grouped_queries_with_a_narrow_cache(kind: str, new: int) -> None:
    angles = np.arange(16)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    feeds = {
        "q": numbers(2, new, 32), "k": numbers(2, new, 16), "v": numbers(2, new, 16),
        "past_key": numbers(2, 2, 12, 8), "past_value": numbers(2, 2, 12, 8),
        "seqlens_k": np.array([new + 2, new + 4], np.int32), "total": np.array([new + 5], np.int32),
        "cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32),
    }  # fmt: skip
    outputs = ["y", "present_key", "present_value"]
    check("GroupQueryAttention", kind, dict(feeds), outputs, num_heads=4, kv_num_heads=2, do_rotary=1)


@pytest.mark.parametrize("kind", TYPES)
def test_heads_with_bias_mask_and_past(kind: str) -> None:
    feeds: dict[str, Array | None] = {
        "q": numbers(2, 3, 16), "k": numbers(2, 3, 16), "v": numbers(2, 3, 16), "bias": numbers(48), "mask": None,
        "added": numbers(2, 1, 3, 7), "past_key": numbers(2, 2, 4, 8), "past_value": numbers(2, 2, 4, 8),
    }  # fmt: skip
    check("MultiHeadAttention", kind, feeds, ["y", "present_key", "present_value"], num_heads=2)


@pytest.mark.parametrize("kind", TYPES)
def test_packed_weights(kind: str) -> None:
    feeds: dict[str, Array | None] = {
        "x": numbers(2, 6, 16), "w": numbers(16, 48) / 4, "b": numbers(48), "mask": np.array([6, 4], np.int32),
    }  # fmt: skip
    check("Attention", kind, feeds, ["y"], num_heads=2)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("new", "past"), [(1, 9), (7, 4), (6, 0)])
def test_packed_weights_with_a_past(kind: str, new: int, past: int) -> None:
    feeds: dict[str, Array | None] = {
        "x": numbers(2, new, 16), "w": numbers(16, 48) / 4, "b": numbers(48), "mask": None,
    }  # fmt: skip
    if past:
        feeds["past"] = numbers(2, 2, 2, past, 8)
    check("Attention", kind, feeds, ["y", "present"], num_heads=2, unidirectional=1)
    if past:
        check("Attention", kind, feeds, ["y"], num_heads=2, unidirectional=1)
