"""Caches of keys and values: new rows behind the past, apart and in one buffer, and positions that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import sardonyx
from guarded import guarded
from native_support import assert_native_agrees
from sardonyx import errors

Array = np.ndarray[Any, Any]


def append_model(kind: int = TensorProto.FLOAT) -> bytes:
    """AppendToCache of new rows that lie transposed, [B, S, N, H]."""
    nodes = [
        helper.make_node("Transpose", ["new"], ["rows"], perm=[0, 2, 1, 3]),
        helper.make_node("AppendToCache", ["cache", "rows", "past"], ["present", "every"], domain="sardonyx"),
        helper.make_node("Abs", ["every"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("cache", kind, ["B", "N", "M", "H"]),
        helper.make_tensor_value_info("new", kind, ["B", "S", "N", "H"]),
        helper.make_tensor_value_info("past", TensorProto.BOOL, ["P"]),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in ("present", "y")]
    graph = helper.make_graph(nodes, "append", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("sardonyx", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_new_rows_stand_behind_those_of_the_past(data: st.DataObject) -> None:
    batch, heads, size = (data.draw(st.integers(1, 3)) for _ in range(3))
    held, added, free = (data.draw(st.integers(0, 4)) for _ in range(3))
    kind = data.draw(st.sampled_from([np.float32, np.float16]))
    random = np.random.default_rng(0)
    feeds = {
        "cache": guarded(random.standard_normal((batch, heads, held + added + free, size)).astype(kind)),
        "new": guarded(random.standard_normal((batch, added, heads, size)).astype(kind)),
        "past": np.zeros(held, bool),
    }
    assert_native_agrees(append_model(helper.np_dtype_to_tensor_dtype(np.dtype(kind))), feeds)


def test_too_many_rows_are_refused() -> None:
    session = sardonyx.InferenceSession(append_model())
    feeds = {"cache": np.ones((1, 2, 4, 3), np.float32), "new": np.ones((1, 2, 2, 3), np.float32), "past": np.zeros(3, bool)}
    with pytest.raises(errors.SardonyxError, match=r"AppendToCache.*room for 4 positions, 3 are filled and 2 more do not fit"):
        session.run(None, feeds)


def grouped_model() -> bytes:
    names = ["q", "k", "v", "past_key", "past_value", "seqlens_k", "total"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "present_key", "present_value"], domain="com.microsoft", num_heads=4, kv_num_heads=2
    )
    cache = ["B", 2, "M", 8]
    inputs = [
        helper.make_tensor_value_info("q", TensorProto.FLOAT, ["B", "S", 32]),
        helper.make_tensor_value_info("k", TensorProto.FLOAT, ["B", "S", 16]),
        helper.make_tensor_value_info("v", TensorProto.FLOAT, ["B", "S", 16]),
        helper.make_tensor_value_info("past_key", TensorProto.FLOAT, cache),
        helper.make_tensor_value_info("past_value", TensorProto.FLOAT, cache),
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["B"]),
        helper.make_tensor_value_info("mask", TensorProto.INT64, ["B", "T"]),
    ]
    nodes = [
        helper.make_node("Shape", ["mask"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["length"]),
        helper.make_node("Cast", ["length"], ["total"], to=TensorProto.INT32),
        node,
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    one = onnx.numpy_helper.from_array(np.array(1, np.int64), "one")
    graph = helper.make_graph(nodes, "grouped", inputs, outputs, [one])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


def _step(rng: np.random.Generator, rows: int, new: int, lengths: list[int], total: int) -> dict[str, Array]:
    return {
        "q": rng.standard_normal((rows, new, 32)).astype(np.float32),
        "k": rng.standard_normal((rows, new, 16)).astype(np.float32),
        "v": rng.standard_normal((rows, new, 16)).astype(np.float32),
        "seqlens_k": np.array(lengths, np.int32) - 1,
        "mask": np.ones((rows, total), np.int64),
    }


def test_a_bound_cache_that_is_past_and_present_is_written_in_place() -> None:
    session = sardonyx.InferenceSession(grouped_model())
    rng = np.random.default_rng(1)
    shared = [sardonyx.OrtValue.ortvalue_from_numpy(np.full((2, 2, 12, 8), np.nan, np.float32)) for _ in range(2)]
    apart = [np.zeros((2, 2, 12, 8), np.float32) for _ in range(2)]
    binding = session.io_binding()
    for new, lengths, total in ((5, [5, 3], 5), (1, [6, 4], 6), (1, [7, 5], 7)):
        feeds = _step(rng, 2, new, lengths, total)
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.clear_binding_outputs()
        binding.bind_output("y")
        for name, value in zip(("key", "value"), shared):
            binding.bind_ortvalue_input(f"past_{name}", value)
            binding.bind_ortvalue_output(f"present_{name}", value)
        session.run_with_iobinding(binding)
        y, *apart = session.run(None, {**feeds, "past_key": apart[0], "past_value": apart[1]})
        np.testing.assert_allclose(binding.get_outputs()[0].numpy()[0], y[0], atol=1e-6)
        np.testing.assert_allclose(binding.get_outputs()[0].numpy()[1, : lengths[1]], y[1, : lengths[1]], atol=1e-6)
        for value, wanted in zip(shared, apart):
            for row, length in enumerate(lengths):
                np.testing.assert_array_equal(value.numpy()[row, :, :length], wanted[row, :, :length])
    # What lies behind the rows was never written: the buffers were one.
    assert all(np.isnan(value.numpy()[:, :, 7:]).all() for value in shared)


def test_memory_that_is_shared_otherwise_is_not_written_while_it_is_read() -> None:
    session = sardonyx.InferenceSession(grouped_model())
    rng = np.random.default_rng(2)
    feeds = _step(rng, 1, 1, [3], 3)
    memory = rng.standard_normal((1, 2, 6, 8)).astype(np.float32)
    pasts = {"past_key": memory, "past_value": memory}
    _, key, value = session.run(None, {**feeds, **{name: array.copy() for name, array in pasts.items()}})
    binding = session.io_binding()
    for name, array in {**feeds, **pasts}.items():
        binding.bind_cpu_input(name, array)
    target = sardonyx.OrtValue.ortvalue_from_numpy(memory)
    other = sardonyx.OrtValue.ortvalue_from_numpy(np.zeros_like(memory))
    binding.bind_output("y")
    binding.bind_ortvalue_output("present_key", target)  # read as both pasts
    binding.bind_ortvalue_output("present_value", other)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), key)
    np.testing.assert_array_equal(other.numpy(), value)


def test_lengths_that_do_not_fit_write_nothing() -> None:
    session = sardonyx.InferenceSession(grouped_model())
    feeds = _step(np.random.default_rng(3), 1, 1, [9], 3)
    caches = {f"past_{name}": guarded(np.zeros((1, 2, 4, 8), np.float32)) for name in ("key", "value")}
    with pytest.raises(errors.SardonyxError, match=r"GroupQueryAttention.*seqlens_k"):
        session.run(None, {**feeds, **caches})


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    queries=st.integers(1, 6),
    before=st.integers(0, 20),
    size=st.sampled_from([4, 8, 17]),
    value_size=st.sampled_from([4, 16]),
    masks=st.sets(st.sampled_from(["mask", "bias"])),
    causal=st.booleans(),
    kind=st.sampled_from([np.float32, np.float16]),
)
def test_the_last_queries_see_all_keys(
    batch: int, heads: int, queries: int, before: int, size: int, value_size: int, masks: set[str], causal: bool, kind: Any
) -> None:
    """CachedAttention of keys and values that already have those of the queries."""
    random = np.random.default_rng(queries)
    total = before + queries
    shapes = {"q": (batch, queries, heads * size), "k": (batch, heads, total, size), "v": (batch, heads, total, value_size)}
    feeds = {name: random.standard_normal(shape).astype(kind) for name, shape in shapes.items()}
    if "mask" in masks:
        feeds["mask"] = (random.random((batch, total)) < 0.8).astype(np.int32)
        feeds["mask"][:, 0] = 1  # every query sees something
    if "bias" in masks:
        feeds["bias"] = random.standard_normal((1, heads, queries, total)).astype(kind)
    names = ["q", "k", "v", *(name if name in masks else "" for name in ("mask", "bias"))]
    attrs = {"num_heads": heads, "unidirectional": int(causal)}
    node = helper.make_node("CachedAttention", names, ["y"], domain="sardonyx", **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    output = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(kind)), None)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("sardonyx", 1)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, [output]), opset_imports=opsets, ir_version=10)
    tolerance = 1e-4 if kind is np.float32 else 4e-3
    assert_native_agrees(model, {name: guarded(array) for name, array in feeds.items()}, rtol=tolerance, atol=tolerance)
