"""Fused elementwise forms, squeezes, transposed products and reductions of any shape, while all memory is guarded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from lowering_case import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, TOLERANCE, Array, model, samples
from property_support import SEEDS, any_bits, assert_guarded_agrees, shapes, small_shapes

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

MICROSOFT = "com.microsoft"


@given(shapes(), st.sampled_from(FLOATS), st.sampled_from((0.0, 0.5, 1.0, -2.0, 1.702)), SEEDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_swiglu_of_any_shape(shape: tuple[int, ...], dtype: np.dtype[Any], alpha: float, seed: int, symbolic: bool) -> None:
    feeds = {"a": samples(dtype, shape, seed), "b": samples(dtype, shape, seed + 1)}
    node = helper.make_node("SwiGLU", ["a", "b"], ["y"], alpha=alpha)
    tolerance = TOLERANCE[dtype]
    made = model([node], feeds, {"y": dtype}, opset=28, symbolic=symbolic)
    assert_guarded_agrees(made, feeds, rtol=tolerance, atol=tolerance / 10)


@given(shapes(1), st.sampled_from((F32, F16, BF16)), SEEDS, st.data())
@settings(max_examples=40, deadline=None)
def test_a_gated_sum_rounds_its_product_first(
    shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, data: st.DataObject
) -> None:
    own = tuple(1 if data.draw(st.booleans()) else size for size in shape)
    feeds = {"x": samples(dtype, shape, seed), "y": samples(dtype, shape, seed + 1), "g": samples(dtype, own, seed + 2)}
    node = helper.make_node("GatedAdd", ["x", "y", "g"], ["z"], domain=MICROSOFT)
    tolerance = 0.0 if dtype in (F16, BF16) else TOLERANCE[dtype]  # a fused float32 product and sum may keep more digits
    made = model([node], feeds, {"z": dtype}, symbolic=data.draw(st.booleans()))
    assert_guarded_agrees(made, feeds, rtol=tolerance, atol=tolerance)


@given(shapes(1, 5), st.sampled_from((*FLOATS, *INTEGERS, BOOL)), SEEDS, st.data())
@settings(max_examples=60, deadline=None)
def test_axes_of_one_are_squeezed(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int, data: st.DataObject) -> None:
    """Of an input, of what a kernel wrote, and of a view; with an epilogue or without."""
    axes = sorted(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    sizes = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    x = any_bits(dtype, sizes, seed)
    before = data.draw(st.sampled_from(("input", "kernel", "view")))
    order = list(data.draw(st.permutations(range(len(shape)))))
    nodes = {
        "input": [],
        "kernel": [helper.make_node("Cast", ["x"], ["a"], to=1), helper.make_node("Cast", ["a"], ["b"], to=7)],
        "view": [helper.make_node("Transpose", ["x"], ["b"], perm=order)],
    }[before]
    if before == "kernel":
        x = (np.arange(x.size).reshape(x.shape) % 100).astype(dtype)
    kind = np.dtype(np.int64) if before == "kernel" else dtype
    source = "x" if before == "input" else "b"
    named = axes if before != "view" else [place for place, axis in enumerate(order) if axis in axes]
    negative = data.draw(st.booleans())
    listed = [axis - len(shape) if negative else axis for axis in named]
    symbolic = data.draw(st.booleans())
    constants: dict[str, Array] = {}
    if not symbolic and data.draw(st.booleans()):  # a name could stand for 1: nobody knew the rank
        opset, node = 24, helper.make_node("Squeeze", [source], ["y"])
    elif data.draw(st.booleans()) and axes:
        opset, node = 11, helper.make_node("Squeeze", [source], ["y"], axes=listed)
    else:
        opset, constants = 24, {"axes": np.array(listed, np.int64)}
        node = helper.make_node("Squeeze", [source, "axes"], ["y"])
    if opset == 11 and dtype == BF16:  # which that version does not know
        x, kind = x.astype(F32), F32 if kind == BF16 else kind
    feeds = {"x": x}
    made = model([*nodes, node], feeds, {"y": kind}, constants=constants, opset=opset, symbolic=symbolic)
    assert_guarded_agrees(made, feeds)


@given(SEEDS, st.sampled_from((F32, F64)), st.data())
@settings(max_examples=40, deadline=None)
def test_transposed_products_of_any_shape(seed: int, dtype: np.dtype[Any], data: st.DataObject) -> None:
    sizes = st.one_of(st.integers(0, 3), st.integers(7, 33), st.sampled_from((64, 130)))
    rows, depth, columns = (data.draw(sizes) for _ in range(3))
    batch = data.draw(small_shapes(0, 2))
    transposed = data.draw(st.tuples(st.booleans(), st.booleans()))
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((*batch, rows, depth)), random.standard_normal((*batch[1:], depth, columns))
    feeds = {
        "a": np.ascontiguousarray(a.swapaxes(-1, -2) if transposed[0] else a).astype(dtype),
        "b": np.ascontiguousarray(b.swapaxes(-1, -2) if transposed[1] else b).astype(dtype),
    }
    alpha = data.draw(st.sampled_from((1.0, 0.125, -3.5)))
    attrs = {"transA": int(transposed[0]), "transB": int(transposed[1]), "alpha": alpha}
    node = helper.make_node("TransposeMatMul", ["a", "b"], ["y"], domain=MICROSOFT, **attrs)
    tolerance = 10 * TOLERANCE[dtype]
    made = model([node], feeds, {"y": dtype}, symbolic=data.draw(st.booleans()))
    assert_guarded_agrees(made, feeds, rtol=tolerance, atol=tolerance)


def whole_numbers(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int) -> Array:
    """Small numbers, positive and exact in every type: sums of them are, too."""
    return np.asarray(np.random.default_rng(seed).integers(1, 4, shape)).astype(dtype)


@given(shapes(1), st.sampled_from(("Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare", "Min")), SEEDS, st.data())
@settings(max_examples=80, deadline=None)
def test_reductions_over_any_axes(shape: tuple[int, ...], name: str, seed: int, data: st.DataObject) -> None:
    exact = name in ("Prod", "L1", "SumSquare", "Min")
    integers = tuple(np.dtype(kind) for kind in ("int32", "int64", "uint32", "uint64"))
    dtypes = (F32, F64, F16, *integers) if exact else (F32, F64, F16)
    dtype: np.dtype[Any] = data.draw(st.sampled_from(dtypes))
    places = st.integers(-len(shape), len(shape) - 1)
    axes = list({axis % len(shape): axis for axis in data.draw(st.lists(places, min_size=1))}.values())
    x = whole_numbers(dtype, shape, seed)
    if dtype.kind == "f" and x.size and data.draw(st.booleans()):
        x.reshape(-1)[seed % x.size] = data.draw(st.sampled_from((np.nan, np.inf, 0.0)))
    node = helper.make_node(f"Reduce{name}", ["x", "axes"], ["y"], keepdims=data.draw(st.integers(0, 1)))
    constants = {"axes": np.array(axes, np.int64)}
    made = model([node], {"x": x}, {"y": dtype}, constants=constants, symbolic=data.draw(st.booleans()))
    tolerance = TOLERANCE.get(dtype, 0.0)
    assert_guarded_agrees(made, {"x": x}, rtol=tolerance, atol=tolerance, at_start=data.draw(st.booleans()))
