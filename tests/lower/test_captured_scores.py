"""Scores of attention as an output: stored on the way, of all keys, against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from guarded import guarded
from guarded_session import guarded_feeds, guarded_memory
from native_support import assert_native_agrees, compile_native, run_native, run_reference
from sardonyx.ir.tensor import Array

TOLERANCE = {"float32": 3e-5, "float64": 1e-11, "float16": 4e-3}


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def model(op: str, inputs: dict[str, Array | None], outputs: list[str], domain: str = "", **attrs: Any) -> tuple[bytes, Any]:
    feeds = {name: array for name, array in inputs.items() if array is not None}
    codes = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    held = {name: feeds.pop(name) for name in ("total",) if name in feeds}  # a size that is known
    names = [name if array is not None else "" for name, array in inputs.items()]
    while not names[-1]:
        names.pop()
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain=domain, **attrs)],
        "captured",
        [helper.make_tensor_value_info(name, codes[name], array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, next(iter(codes.values())), None) for name in outputs if name],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 25), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content, {name: guarded(array) for name, array in feeds.items()}


def check(op: str, inputs: dict[str, Array | None], outputs: list[str], domain: str = "", **attrs: Any) -> None:
    content, feeds = model(op, inputs, outputs, domain, **attrs)
    tolerance = TOLERANCE[next(iter(feeds.values())).dtype.name]
    assert_native_agrees(content, feeds, rtol=tolerance, atol=tolerance)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 300),
    st.integers(1, 40),
    st.integers(0, 3),
    st.sampled_from(["", "added", "bool", "short"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["float32", "float32", "float16", "float64"]),
)
def test_scores_of_every_mode_agree(
    queries: int, keys: int, size: int, mode: int, masked: str, causal: bool, capped: bool, dtype: str
) -> None:
    q = numbers(2, 4, queries, size, dtype=dtype)
    k, v = numbers(2, 2, keys, size, dtype=dtype), numbers(2, 2, keys, size + 1, dtype=dtype)
    mask: Array | None = None
    if masked:
        mask = numbers(1, 1, queries, keys - (masked == "short" and keys > 1), seed=1, dtype=dtype)
        mask = mask > -1 if masked == "bool" else np.where(mask < -1, mask.dtype.type(-np.inf), mask)
    if mode < 2 and masked == "short":
        mask = None
    attrs: dict[str, Any] = {"qk_matmul_output_mode": mode, "is_causal": int(causal and mode >= 2)}
    if capped:
        attrs["softcap"] = 2.0
    check("Attention", {"q": q, "k": k, "v": v, "mask": mask}, ["y", "", "", "s"], **attrs)


@pytest.mark.parametrize("mode", [2, 3])
def test_scores_of_windows_lengths_and_a_past_agree(mode: int) -> None:
    q, k, v = numbers(2, 2, 9, 8), numbers(2, 2, 300, 8), numbers(2, 2, 300, 8)
    inputs: dict[str, Array | None] = {"q": q, "k": k, "v": v}
    lengths = {"mask": None, "past_key": None, "past_value": None, "lengths": np.array([290, 17], np.int64)}
    check("Attention", {**inputs, **lengths}, ["y", "", "", "s"], is_causal=1, qk_matmul_output_mode=mode)
    past = {"mask": None, "past_key": numbers(2, 2, 30, 8, seed=2), "past_value": numbers(2, 2, 30, 8, seed=3)}
    check("Attention", {**inputs, **past}, ["y", "pk", "pv", "s"], is_causal=1, qk_matmul_output_mode=mode)


def test_rows_of_which_nothing_is_seen_are_zeros() -> None:
    mask = np.ones((7, 20), bool)
    mask[3] = False
    inputs: dict[str, Array | None] = {
        "q": numbers(1, 2, 7, 8),
        "k": numbers(1, 2, 20, 8),
        "v": numbers(1, 2, 20, 8),
        "mask": mask,
    }
    check("Attention", inputs, ["y", "", "", "s"], qk_matmul_output_mode=3)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 300),
    st.integers(0, 1),
    st.sampled_from(["", "lengths", "past"]),
    st.sampled_from([{"is_causal": 1}, {"left_window_size": 3}, {"is_causal": 1, "left_window_size": 2}, {"softcap": 2.0}]),
    st.sampled_from(["", "added", "bool"]),
    st.sampled_from(["float32", "float16", "float64"]),
)
def test_scores_before_masks_of_keys_that_are_not_seen_agree(
    queries: int, keys: int, mode: int, form: str, attrs: dict[str, Any], masked: str, dtype: str
) -> None:
    k, v = numbers(2, 2, keys, 9, dtype=dtype), numbers(2, 2, keys, 5, dtype=dtype)
    inputs: dict[str, Array | None] = {"q": numbers(2, 4, queries, 9, dtype=dtype), "k": k, "v": v, "mask": None}
    outputs, total = ["y", "", "", "s"], keys
    if form == "past":
        inputs |= {"past_key": numbers(2, 2, 7, 9, dtype=dtype), "past_value": numbers(2, 2, 7, 5, dtype=dtype)}
        outputs, total = ["y", "pk", "pv", "s"], keys + 7
    elif form == "lengths":
        inputs |= {"past_key": None, "past_value": None, "lengths": np.array([keys, keys // 2], np.int64)}
    if masked:
        mask = numbers(queries, total, seed=1, dtype=dtype)
        inputs["mask"] = mask > -1 if masked == "bool" else np.where(mask < -1, mask.dtype.type(-np.inf), mask)
    check("Attention", inputs, outputs, qk_matmul_output_mode=mode, **attrs)


def test_scores_alone_agree() -> None:
    inputs: dict[str, Array | None] = {"q": numbers(1, 2, 7, 8), "k": numbers(1, 2, 20, 8), "v": numbers(1, 2, 20, 8)}
    check("Attention", inputs, ["", "", "", "s"], qk_matmul_output_mode=3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scores_of_multi_head_attention_agree(dtype: str) -> None:
    q, k, v = (numbers(2, count, 24, dtype=dtype) for count in (9, 70, 70))
    mask = (np.arange(70) < np.array([[70], [33]])).astype(np.int32)
    bias = numbers(1, 3, 9, 70, seed=4, dtype=dtype)
    inputs: dict[str, Array | None] = {"q": q, "k": k, "v": v, "bias": None, "mask": mask, "added": bias}
    check("MultiHeadAttention", inputs, ["y", "", "", "s"], "com.microsoft", num_heads=3)
    same = {"q": q, "k": k[:, :9], "v": v[:, :9], "bias": None, "mask": mask[:, :9]}
    check("MultiHeadAttention", same, ["y", "", "", "s"], "com.microsoft", num_heads=3, unidirectional=1)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("queries", [1, 12])
@pytest.mark.parametrize("window", [-1, 20])
def test_scores_of_grouped_heads_agree(mode: int, queries: int, window: int) -> None:
    lengths = np.array([69, 40], np.int32)
    inputs: dict[str, Array | None] = {
        "q": numbers(2, queries, 32),
        "k": numbers(2, queries, 16),
        "v": numbers(2, queries, 16, seed=1),
        "past_key": numbers(2, 2, 90, 8, seed=2),
        "past_value": numbers(2, 2, 90, 8, seed=3),
        "lengths": lengths,
        "total": np.array([70], np.int32),
    }
    attrs = {"num_heads": 4, "kv_num_heads": 2, "qk_output": mode, "local_window_size": window}
    check("GroupQueryAttention", inputs, ["y", "pk", "pv", "s"], "com.microsoft", **attrs)
    check("GroupQueryAttention", inputs, ["y", "pk", "pv", "s"], "com.microsoft", softcap=1.5, **attrs)
    check("GroupQueryAttention", inputs, ["y", "pk", "pv", "s"], "com.microsoft", smooth_softmax=1, **attrs)


@pytest.mark.parametrize("mode", [0, 2, 3])
@pytest.mark.parametrize("at_start", [False, True])
def test_nothing_outside_of_the_scores_is_written(mode: int, at_start: bool) -> None:
    inputs: dict[str, Array | None] = {"q": numbers(1, 2, 27, 9), "k": numbers(1, 2, 83, 9), "v": numbers(1, 2, 83, 9)}
    content, feeds = model("Attention", inputs, ["y", "", "", "s"], is_causal=int(mode > 0), qk_matmul_output_mode=mode)
    graph, compiled = compile_native(content)
    with guarded_memory(at_start=at_start) as guard:
        results = run_native(graph, compiled, guarded_feeds(guard, feeds))
        for found, expected in zip(results, run_reference(content, feeds)):
            np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5)
