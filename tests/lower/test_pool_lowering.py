"""Pools over images in their plain layout as native steps, against the NumPy meaning of the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import model_text
from guarded import guarded
from native_support import assert_native_agrees, compile_native, host_nodes, run_native
from sardonyx import InferenceSession
from sardonyx.kernel.pool.pool import CHUNK, MOST_REACH, chunk_of, row_reach, row_way
from sardonyx.runtime.native_core import SizeConflict

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2e-3}


def model(
    op: str, shape: tuple[int, ...], dtype: str, symbolic: bool, relu: bool = False, outputs: int = 1, **attrs: Any
) -> bytes:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    declared: list[Any] = list(shape)
    if symbolic:
        declared = ["n", shape[1], *(f"s{axis}" for axis in range(len(shape) - 2))]
    names = ["p" if relu else "y", "where"][:outputs]
    nodes = [helper.make_node(op, ["x"], names, **attrs)]
    if relu:
        nodes.append(helper.make_node("Relu", ["p"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "pool",
        [helper.make_tensor_value_info("x", code, declared)],
        [helper.make_tensor_value_info("y", code, None)] + [helper.make_tensor_value_info("where", 7, None)] * (outputs - 1),
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
    return content


def image(shape: tuple[int, ...], dtype: str = "float32", special: bool = False) -> Any:
    x = (np.random.default_rng(shape).standard_normal(shape) * 30).astype(dtype)
    if special:
        x.reshape(-1)[::7], x.reshape(-1)[::11] = np.nan, -np.inf
    return x


def check(
    op: str, shape: tuple[int, ...], *, dtype: str = "float32", symbolic: bool = False, special: bool = False, **how: Any
) -> None:
    tolerance = TOLERANCE.get(dtype, 0)
    content = model(op, shape, dtype, symbolic, **how)
    assert_native_agrees(content, {"x": guarded(image(shape, dtype, special))}, rtol=tolerance, atol=tolerance)


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """A shape and attributes that fit it."""
    rank = draw(st.integers(1, 3))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    pads = [draw(st.integers(0, size - 1)) for size in kernel * 2]
    spatial = [
        draw(st.integers((size - 1) * dilation + 1, 20 if axis + 1 < rank else 90))
        for axis, (size, dilation) in enumerate(zip(kernel, dilations))
    ]
    attrs = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    return (draw(st.integers(0, 2)), 2, *spatial), {**attrs, "ceil_mode": draw(st.integers(0, 1))}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@settings(max_examples=25, deadline=None)
@given(windows(), st.booleans())
def test_windows_of_any_form_agree(op: str, window: tuple[tuple[int, ...], dict[str, Any]], symbolic: bool) -> None:
    shape, attrs = window
    check(op, shape, symbolic=symbolic, **attrs)


@st.composite
def long_rows(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of an image and windows of many columns over it."""
    columns, rows = draw(st.integers(20, 300)), draw(st.integers(1, 2))
    stride, dilation = draw(st.sampled_from([(1, 1), (1, 3), (2, 1), (4, 1), (7, 1), (8, 1), (9, 1), (40, 1), (400, 1)]))
    reach = (columns - 1) * dilation + 1
    left, right = (draw(st.sampled_from((0, 1, reach // 2, reach - 1))) for _ in range(2))
    width = draw(st.integers(max(reach - left - right, 1), reach + 70 * stride))
    attrs = {"kernel_shape": [rows, columns], "strides": [1, stride], "dilations": [1, dilation], "pads": [0, left, 0, right]}
    return (1, 2, 3, width), {**attrs, "ceil_mode": draw(st.integers(0, 1))}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@settings(max_examples=25, deadline=None)
@given(long_rows(), st.booleans(), st.booleans())
def test_windows_of_many_columns_agree(
    op: str, dtype: str, window: tuple[tuple[int, ...], dict[str, Any]], symbolic: bool, special: bool
) -> None:
    shape, attrs = window
    if dtype == "int8" and op != "MaxPool":
        return
    check(op, shape, dtype=dtype, symbolic=symbolic, special=special and dtype != "int8", **attrs)


@pytest.mark.parametrize(
    ("columns", "stride", "dilation", "way"),
    [
        (3, 1, 1, "taps"),
        (100, 2, 3, "taps"),
        (24, 1, 1, "doubled"),
        (24, 1, 5, "doubled"),
        (75, 8, 1, "doubled"),
        (75, 9, 1, "across"),
    ],
)
def test_how_the_columns_of_windows_are_combined(columns: int, stride: int, dilation: int, way: str) -> None:
    assert row_way(columns, stride, dilation) == way


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 9))
def test_a_chunk_is_long_beside_its_windows_if_there_is_room(columns: int, stride: int, dilation: int) -> None:
    chunk, window = chunk_of(columns, stride, dilation), (columns - 1) * dilation + 1
    assert chunk == 16 or row_reach(columns, stride, dilation) <= MOST_REACH
    assert chunk * stride >= 4 * window or (2 * chunk - 1) * stride + window > MOST_REACH
    assert chunk >= CHUNK or row_reach(columns, stride, dilation) + chunk * stride > MOST_REACH


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_usual_pools_agree(op: str, symbolic: bool) -> None:
    check(op, (2, 3, 33, 150), symbolic=symbolic, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], relu=True)
    check(op, (2, 3, 16, 200), symbolic=symbolic, kernel_shape=[2, 2], strides=[2, 2], special=True)
    check(op, (2, 3, 16, 21), symbolic=symbolic, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER")
    check(op, (2, 3, 16, 21), symbolic=symbolic, kernel_shape=[3, 4], auto_pad="SAME_LOWER")


@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_padding_that_counts_agrees(ceil_mode: int) -> None:
    attrs: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": ceil_mode}
    check("AveragePool", (1, 2, 12, 31), count_include_pad=1, **attrs)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_other_float_types_agree(op: str, dtype: str) -> None:
    check(op, (1, 2, 9, 70), dtype=dtype, kernel_shape=[3, 3], strides=[1, 2], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bytes_have_a_maximum(dtype: str) -> None:
    check("MaxPool", (1, 2, 9, 70), dtype=dtype, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 5, 33), (2, 2, 3, 4, 5)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_global_pools_agree(op: str, shape: tuple[int, ...], symbolic: bool) -> None:
    check(op, shape, relu=True, symbolic=symbolic)
    check(op, shape, special=True, symbolic=symbolic)


def test_an_image_without_pixels_is_left_to_numpy() -> None:
    graph, compiled = compile_native(model("GlobalMaxPool", (1, 2, 3, 4), "float32", True))
    assert not host_nodes(compiled)
    with pytest.raises(SizeConflict):
        run_native(graph, compiled, {"x": np.zeros((1, 2, 0, 4), np.float32)})


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_norms_agree(p: int) -> None:
    check("LpPool", (1, 2, 9, 40), p=p, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 1, 0, 0])
    check("GlobalLpPool", (2, 3, 5, 6), p=p, special=True)


@settings(max_examples=40, deadline=None)
@given(
    windows(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 1),
    st.sampled_from(["float32", "float64", "float16", "int8", "uint8"]),
)
def test_places_of_maxima_agree(
    window: tuple[tuple[int, ...], dict[str, Any]], symbolic: bool, special: bool, storage_order: int, dtype: str
) -> None:
    shape, attrs = window
    special = special and dtype.startswith("float")
    check("MaxPool", shape, symbolic=symbolic, special=special, dtype=dtype, outputs=2, storage_order=storage_order, **attrs)


def test_what_follows_maxima_with_places_is_computed_from_both() -> None:
    check("MaxPool", (2, 3, 16, 20), kernel_shape=[3, 3], strides=[2, 2], outputs=2, relu=True)
    text = """(float[n,2,a,b] x) => (float[c] y, int64[d] z) {
        p, q = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) y = Neg(p) z = Add(q, q)
    }"""
    assert_native_agrees(model_text.model(text), {"x": guarded(image((2, 2, 9, 12)))})


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    content = model("AveragePool", (2, 8, 40, 40), "float32", False, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = image((2, 8, 40, 40))
    results = []
    for workers in (1, 2):
        graph, compiled = compile_native(content, workers)
        results.append(run_native(graph, compiled, {"x": x})[0])
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("pads", [[0, 0], [0, 1], [1, 0]])
@pytest.mark.parametrize(
    ("kernel", "stride", "ceil_mode"), [(6, 1, 0), (6, 2, 0), (6, 2, 1), (7, 2, 1), (7, 3, 0), (9, 4, 0), (12, 5, 1)]
)
def test_a_window_larger_than_the_image_is_cut_as_onnxruntime_cuts_it(
    op: str, symbolic: bool, pads: list[int], kernel: int, stride: int, ceil_mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    x = np.random.default_rng(kernel).normal(size=(2, 3, 5)).astype(np.float32)
    attrs: dict[str, Any] = {"kernel_shape": [kernel], "strides": [stride], "pads": pads, "ceil_mode": ceil_mode}
    content = model(op, x.shape, "float32", symbolic, **attrs)
    (expected,) = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    (actual,) = InferenceSession(content).run(None, {"x": x})
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert not caplog.records  # no kernel is tried that would have to be refused
