"""Slice, Pad and CenterCropPad against Python's slices, numpy.pad and onnxruntime, and their symbolic sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import by_onnxruntime, by_reference, f32, i64, known_shape, random_array, run, seeds, shapes

from sardonyx.ir import dims
from sardonyx.ir.dims import symbol
from sardonyx.ops.indexing.slicing import sliced_size

quick = settings(max_examples=40, deadline=None)
N, M = symbol("N"), symbol("M")
FAR = 2**63 - 1
bounds = st.one_of(st.integers(-7, 7), st.sampled_from([FAR, -FAR - 1, 2**31 - 1, -(2**31)]))
steps = st.integers(-3, 3).filter(bool)
moving = st.tuples(st.integers(-7, 7), st.sampled_from([-2, -1, 1, 2]))  # a number, and how often a size is added


def as_python(start: int, end: int, step: int, size: int) -> slice:
    """Backwards, a start before the front is the front, and the largest integers mean all the way."""
    if step > 0:
        return slice(start, end, step)
    return slice(max(start, -size) if size else 0, None if end in (FAR, 2**31 - 1) else end, step)


@quick
@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), start=bounds, end=bounds, step=steps, seed=seeds)
def test_slices_are_those_of_python(shape: tuple[int, ...], start: int, end: int, step: int, seed: int) -> None:
    x = random_array(seed, shape, np.int32)
    axis = seed % len(shape)
    cut = [slice(None)] * len(shape)
    cut[axis] = as_python(start, end, step, shape[axis])
    result = run("Slice", x, i64(start), i64(end), i64(axis - len(shape)), i64(step))
    np.testing.assert_array_equal(result, x[tuple(cut)])
    np.testing.assert_array_equal(result, by_onnxruntime("Slice", x, i64(start), i64(end), i64(axis), i64(step), like=[x])[0])


def test_slices_without_axes_start_at_the_first() -> None:
    x = np.arange(12).reshape(3, 4)
    assert run("Slice", x, i64(1, 0), i64(3, -1)).tolist() == [[4, 5, 6], [8, 9, 10]]
    assert run("Slice", x.astype(np.float32), version=1, starts=(1,), ends=(FAR,), axes=(1,)).shape == (3, 3)


def test_slices_refuse_a_step_of_zero_and_uneven_lists() -> None:
    with pytest.raises(ValueError, match="the step on axis 0 is 0"):
        run("Slice", np.zeros(3), i64(0), i64(1), i64(0), i64(0))
    with pytest.raises(ValueError, match="starts, ends, axes and steps have 1, 2, 1 and 1 elements"):
        run("Slice", np.zeros(3), i64(0), i64(1, 1))


@settings(max_examples=300, deadline=None)
@given(size=st.integers(0, 9), start=bounds, end=bounds, step=steps)
def test_symbolic_sizes_are_exact(size: int, start: int, end: int, step: int) -> None:
    found = sliced_size(N, start, end, step)
    if found is not None:
        assert dims.evaluate(found, {"N": size}) == len(range(size)[as_python(start, end, step, size)])
    elif step > 0:
        pytest.fail(f"slice {start}:{end}:{step} should have a symbolic size")


@settings(max_examples=300, deadline=None)
@given(size=st.integers(0, 9), other=st.integers(0, 9), start=moving, end=moving, step=st.integers(1, 3))
def test_bounds_of_either_sign_have_exact_sizes_too(
    size: int, other: int, start: tuple[int, int], end: tuple[int, int], step: int
) -> None:
    (first, per_first), (last, per_last) = start, end
    found = sliced_size(N, first + per_first * M, last + per_last * M, step)
    assert found is not None
    cut = slice(first + per_first * other, last + per_last * other, step)
    assert dims.evaluate(found, {"N": size, "M": other}) == len(range(size)[cut])


def test_symbolic_slices_read_well() -> None:
    assert known_shape("Slice", [f32("N", 8), i64(0), i64(FAR), i64(0)]) == (N, 8)
    assert known_shape("Slice", [f32("N"), i64(1), i64(FAR), i64(0)]) == (dims.dim_max(N - 1, 0),)
    assert known_shape("Slice", [f32(N + 2), i64(0), i64(-2), i64(0)]) == (N,)
    assert known_shape("Slice", [f32("N"), i64(-1), i64(-FAR), i64(0), i64(-1)]) == (N,)
    assert known_shape("Slice", [f32(2 * N), (0,), (N,), i64(0)]) == (dims.dim_min(N, 2 * N),)
    assert known_shape("Slice", [f32(4, "N"), f32(1), f32(1), i64(0)])[1] == N
    assert len(known_shape("Slice", [f32(4, "N"), f32(1), f32(1), f32(1)])) == 2


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@quick
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), seed=seeds)
def test_padding_agrees_with_numpy(mode: str, shape: tuple[int, ...], seed: int) -> None:
    x = random_array(seed, shape, np.float32)
    numpy_mode: Any = mode
    rng = np.random.default_rng(seed)
    pads = rng.integers(0, 7, (len(shape), 2))
    result = run("Pad", x, pads.T.reshape(-1), mode=mode)
    np.testing.assert_array_equal(result, np.pad(x, pads, mode=numpy_mode))
    axis = seed % len(shape)
    only = [(0, 0)] * len(shape)
    only[axis] = tuple(pads[axis])
    result = run("Pad", x, pads[axis], None, i64(axis - len(shape)), mode=mode)
    np.testing.assert_array_equal(result, np.pad(x, only, mode=numpy_mode))


@quick
@given(seed=seeds, shape=st.lists(st.integers(3, 5), min_size=1, max_size=3).map(tuple))
def test_negative_pads_cut(seed: int, shape: tuple[int, ...]) -> None:
    x = random_array(seed, shape, np.float32, special=False)
    pads = np.random.default_rng(seed).integers(-1, 2, 2 * len(shape))
    for mode in ("constant", "edge"):
        np.testing.assert_array_equal(run("Pad", x, pads, mode=mode), by_onnxruntime("Pad", x, pads, like=[x], mode=mode)[0])


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, object, ml_dtypes.bfloat16, np.float64])
def test_padding_fills_with_a_value_of_the_type(dtype: Any) -> None:
    x = random_array(0, (2,), dtype, special=False)
    blank = run("Pad", x, i64(1, 0))
    assert blank.dtype == x.dtype
    assert blank.tolist()[0] == ("" if dtype is object else 0)
    value = np.array(["z"] if dtype is object else [1], dtype=object).astype(dtype)
    assert run("Pad", x, i64(1, 0), value.reshape(())).tolist() == [*value.tolist(), *x.tolist()]


def test_padding_before_opset_eleven_has_attributes() -> None:
    x = np.ones((1, 2), np.float32)
    assert run("Pad", x, version=2, pads=(0, 1, 0, 0), value=3.0).tolist() == [[3, 1, 1]]
    assert run("Pad", x, version=1, paddings=(0, 1, 0, 0)).tolist() == [[0, 1, 1]]


def test_padding_refuses_what_cannot_be() -> None:
    x = np.zeros(2, np.float32)
    for pads, mode, message in (
        ((1,), "constant", "pads has 1 elements: expected 2, a begin and an end for each axis"),
        ((-2, -1), "constant", "pads -2 and -1 cut more than the 2 elements of axis 0"),
        ((0, 1), "mirror", "mode is 'mirror': expected 'constant', 'reflect', 'edge' or 'wrap'"),
    ):
        with pytest.raises(ValueError, match=message):
            run("Pad", x, i64(*pads), mode=mode)
    with pytest.raises(ValueError, match="axis 0 is empty: mode 'edge' has nothing to pad it with"):
        run("Pad", x[:0], i64(1, 0), mode="edge")
    with pytest.raises(ValueError, match=r"constant_value has shape \(2,\): expected a scalar"):
        run("Pad", x, i64(1, 0), x)


def test_padding_adds_to_symbols() -> None:
    assert known_shape("Pad", [f32("N", 3), (1, 0, 2, N)]) == (N + 3, N + 3)
    assert known_shape("Pad", [f32("N", 3), (1, 2), None, i64(0)]) == (N + 3, 3)
    assert known_shape("Pad", [f32("N", 3), f32(2), None, i64(0)])[1] == 3


@quick
@given(shape=shapes, seed=seeds)
def test_center_crop_pad_keeps_the_middle(shape: tuple[int, ...], seed: int) -> None:
    x = random_array(seed, shape, np.float32, special=False)
    sizes = np.random.default_rng(seed).integers(0, 7, len(shape))
    result = run("CenterCropPad", x, sizes.astype(np.int64))
    assert result.shape == tuple(sizes)
    if x.size and len(shape):
        np.testing.assert_array_equal(result, by_reference("CenterCropPad", x, sizes.astype(np.int64)))


def test_center_crop_pad_on_some_axes() -> None:
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    assert run("CenterCropPad", x, i64(2), axes=(-1,)).tolist() == [[1, 2], [6, 7]]
    assert run("CenterCropPad", x[:, :2], i64(5), axes=(1,)).tolist() == [[0, 0, 1, 0, 0], [0, 5, 6, 0, 0]]
    assert known_shape("CenterCropPad", [f32("N", 3), (N,)], axes=(1,)) == (N, N)
    with pytest.raises(ValueError, match="shape has 1 elements: expected 2"):
        run("CenterCropPad", x, i64(2))
