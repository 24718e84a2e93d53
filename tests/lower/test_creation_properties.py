"""Triangles, diagonals, one-hot rows, ranges and constants of any shape and type, exactly, while all memory is guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from lowering_case import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, Array, model, onnx_type
from property_support import SEEDS, any_bits, assert_guarded_agrees, shapes

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TYPES = (*FLOATS, *INTEGERS, BOOL)
ONE_HOT = tuple(dtype for dtype in TYPES if dtype != BF16)  # the standard knows no others
I64 = np.dtype(np.int64)


@given(shapes(2), st.sampled_from(TYPES), st.integers(-40, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_triangles_of_any_matrices(shape: tuple[int, ...], dtype: np.dtype[Any], diagonal: int, data: st.DataObject) -> None:
    x = any_bits(dtype, shape, data.draw(SEEDS))
    k = np.array(data.draw(st.sampled_from((diagonal, diagonal // 10, 2**62, -(2**62)))))
    feeds, constants = {"x": x}, {"k": k}
    if data.draw(st.booleans()):
        feeds, constants = {**feeds, **constants}, {}
    node = helper.make_node("Trilu", ["x", "k"], ["y"], upper=data.draw(st.integers(0, 1)))
    made = model([node], feeds, {"y": dtype}, constants=constants, symbolic=data.draw(st.booleans()))
    assert_guarded_agrees(made, feeds, at_start=data.draw(st.booleans()))


@given(shapes(2, 2), st.sampled_from(TYPES), st.sampled_from(TYPES), st.integers(-40, 40), st.booleans())
@settings(max_examples=40, deadline=None)
def test_diagonals_of_any_matrix(
    shape: tuple[int, ...], source: np.dtype[Any], target: np.dtype[Any], diagonal: int, symbolic: bool
) -> None:
    x = any_bits(source, shape, 0)
    node = helper.make_node("EyeLike", ["x"], ["y"], k=diagonal, dtype=onnx_type(target))
    assert_guarded_agrees(model([node], {"x": x}, {"y": target}, symbolic=symbolic), {"x": x})


@given(shapes(0, 3), st.sampled_from((*INTEGERS, F32, F64, F16)), st.sampled_from(ONE_HOT), st.data())
@settings(max_examples=60, deadline=None)
def test_one_hot_rows_along_any_axis(
    shape: tuple[int, ...], indices: np.dtype[Any], dtype: np.dtype[Any], data: st.DataObject
) -> None:
    depth = data.draw(st.sampled_from((1, 2, 7, 16, 33)))
    low = 0 if indices.kind == "u" else -depth - 2
    x = np.random.default_rng(data.draw(SEEDS)).integers(low, depth + 3, shape).astype(indices)
    feeds = {"x": x, "v": any_bits(dtype, (2,), data.draw(SEEDS))}
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    node = helper.make_node("OneHot", ["x", "d", "v"], ["y"], axis=axis)
    constants = {"d": np.array(depth, np.int64)}
    assert_guarded_agrees(model([node], feeds, {"y": dtype}, constants=constants, symbolic=data.draw(st.booleans())), feeds)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Array, Array, Array]:
    """Start, limit and step of one type that give a few numbers."""
    dtype = draw(st.sampled_from((F32, F64, F16, BF16, *(np.dtype(name) for name in ("int16", "int32", "int64")))))
    if dtype.kind == "i":
        start, count = draw(st.integers(-1000, 1000)), draw(st.sampled_from((0, 1, 2, 7, 16, 33)))
        step = draw(st.integers(-20, 20).filter(bool))
        rest = draw(st.integers(0, abs(step) - 1))
        limit: float = start + count * step - (rest if step > 0 else -rest)
        return np.array(start, dtype), np.array(limit, dtype), np.array(step, dtype)
    numbers = st.floats(-50, 50, width=16)
    values = (draw(numbers), draw(numbers), draw(st.floats(0.25, 30, width=16)) * draw(st.sampled_from((-1, 1))))
    start_, limit_, step_ = (np.array(value).astype(dtype) for value in values)
    return start_, limit_, step_


@given(ranges())
@settings(max_examples=40, deadline=None)
def test_ranges_of_any_type(bounds: tuple[Array, Array, Array]) -> None:
    """The bounds are constants, which tell the length; the sum keeps the range in the program."""
    start, limit, step = bounds
    constants = {"l": limit, "d": step, "s": start}
    nodes = [helper.make_node("Range", ["s", "l", "d"], ["r"]), helper.make_node("Add", ["r", "x"], ["y"])]
    x = np.zeros((), start.dtype)
    made = model(nodes, {"x": x}, {"y": start.dtype, "r": start.dtype}, constants=constants, opset=27)
    tolerance = 1e-6 if start.dtype == F32 else 1e-15 if start.dtype == F64 else 0.0  # one rounding or two
    assert_guarded_agrees(made, {"x": x}, rtol=tolerance, atol=100 * tolerance)


@given(st.integers(2, 70), st.integers(-9, 9).filter(bool), st.integers(-5, 80))
@settings(max_examples=40, deadline=None)
def test_ranges_whose_length_comes_from_sizes(size: int, step: int, start: int) -> None:
    constants = {"z": np.array(0), "s": np.array(start), "d": np.array(step)}
    nodes = [
        helper.make_node("Shape", ["x"], ["h"]),
        helper.make_node("Gather", ["h", "z"], ["n"]),
        helper.make_node("Range", ["s", "n", "d"], ["y"]),
        helper.make_node("Range", ["n", "s", "d"], ["w"]),
    ]
    feeds = {"x": np.zeros((size, 2), np.float32)}
    assert_guarded_agrees(model(nodes, feeds, {"y": I64, "w": I64}, constants=constants, symbolic=True), feeds)


@given(shapes(1), st.sampled_from(TYPES), SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_constant_of_any_shape_and_type(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, symbolic: bool) -> None:
    feeds = {"x": np.zeros(shape, np.float32)}
    value = numpy_helper.from_array(any_bits(dtype, (1,), seed))
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("ConstantOfShape", ["s"], ["y"], value=value)]
    assert_guarded_agrees(model(nodes, feeds, {"y": dtype}, symbolic=symbolic), feeds)


@given(st.sampled_from((F32, F64, I64, np.dtype(np.int32))), st.data())
@settings(max_examples=60, deadline=None)
def test_ranges_whose_ends_are_fed(dtype: np.dtype[Any], data: st.DataObject) -> None:
    if dtype.kind == "f":
        numbers = st.floats(-30, 30, width=16, allow_nan=False)
        steps = st.floats(0.125, 3, width=16).flatmap(lambda step: st.sampled_from((step, -step)))
    else:
        numbers = st.integers(-60, 60)
        steps = st.integers(1, 9).flatmap(lambda step: st.sampled_from((step, -step)))
    feeds = {name: np.array(data.draw(drawn), dtype) for name, drawn in (("s", numbers), ("e", numbers), ("d", steps))}
    fed = {name: value for name, value in feeds.items() if name == "e" or data.draw(st.booleans())}
    constants = {name: value for name, value in feeds.items() if name not in fed}
    node = helper.make_node("Range", ["s", "e", "d"], ["y"])
    assert_guarded_agrees(model([node], fed, {"y": dtype}, constants=constants), fed)
