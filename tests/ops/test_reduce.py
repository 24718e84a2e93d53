"""Reductions, running sums and the softmax family against NumPy formulas and onnxruntime."""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, close, f32, i64, known_shape, random_array, run, seeds, shapes

from sardonyx.ir.dims import symbol

quick = settings(max_examples=20, deadline=None)

FORMULAS: dict[str, Any] = {
    "ReduceSum": lambda x, axes: np.sum(x, axis=axes, keepdims=True),
    "ReduceMean": lambda x, axes: np.mean(x, axis=axes, keepdims=True),
    "ReduceMax": lambda x, axes: np.max(x, axis=axes, keepdims=True, initial=-np.inf),
    "ReduceMin": lambda x, axes: np.min(x, axis=axes, keepdims=True, initial=np.inf),
    "ReduceProd": lambda x, axes: np.prod(x, axis=axes, keepdims=True),
    "ReduceL1": lambda x, axes: np.sum(np.abs(x), axis=axes, keepdims=True),
    "ReduceL2": lambda x, axes: np.sqrt(np.sum(x * x, axis=axes, keepdims=True)),
    "ReduceLogSum": lambda x, axes: np.log(np.sum(x, axis=axes, keepdims=True)),
    "ReduceLogSumExp": lambda x, axes: np.log(np.sum(np.exp(x), axis=axes, keepdims=True)),
    "ReduceSumSquare": lambda x, axes: np.sum(x * x, axis=axes, keepdims=True),
}


def some_axes(seed: int, rank: int) -> tuple[int, ...]:
    rng = np.random.default_rng(seed)
    chosen = [axis for axis in range(rank) if rng.random() < 0.6]
    return tuple(axis - rank if rng.random() < 0.3 else axis for axis in chosen)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("name", FORMULAS)
@quick
@given(
    shape=shapes, seed=seeds, dtype=st.sampled_from((np.float32, np.float64, np.float16, ml_dtypes.bfloat16)),
    keepdims=st.integers(0, 1), noop=st.integers(0, 1),
)  # fmt: skip
def test_reductions_follow_their_formulas(
    name: str, shape: tuple[int, ...], seed: int, dtype: Any, keepdims: int, noop: int
) -> None:
    x = random_array(seed, shape, dtype)
    axes = some_axes(seed, x.ndim)
    over = axes if axes else () if noop else tuple(range(x.ndim))
    with np.errstate(all="ignore"):
        expected = FORMULAS[name](x.astype(np.float64), over).astype(dtype)
    if not keepdims:
        expected = expected.reshape([size for axis, size in enumerate(shape) if axis not in {a % x.ndim for a in over}])
    result = run(name, x, i64(*axes), keepdims=keepdims, noop_with_empty_axes=noop)
    step = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.astype(np.float64), expected.astype(np.float64), rtol=64 * step, atol=64 * step)
    if not noop and dtype is not ml_dtypes.bfloat16:
        np.testing.assert_array_equal(run(name, x, version=12, axes=axes or None, keepdims=keepdims), result)


@pytest.mark.parametrize("name", FORMULAS)
def test_integers_reduce_to_integers(name: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    expected = {
        "ReduceSum": [6, 15], "ReduceMean": [2, 5], "ReduceMax": [3, 6], "ReduceMin": [1, 4], "ReduceProd": [6, 120],
        "ReduceL1": [6, 15], "ReduceL2": [3, 8], "ReduceLogSum": [1, 2], "ReduceLogSumExp": [3, 6], "ReduceSumSquare": [14, 77],
    }  # fmt: skip
    assert run(name, x, i64(1), keepdims=0, version=18).tolist() == expected[name]


def test_the_mean_of_integers_truncates_and_does_not_overflow() -> None:
    assert run("ReduceMean", np.array([-3, -4], np.int32), version=18, keepdims=0).tolist() == -3
    assert run("ReduceMean", np.array([2**31 - 1] * 2, np.int32), version=18, keepdims=0).tolist() == 2**31 - 1


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("ReduceSum", np.float32, 0), ("ReduceProd", np.float32, 1), ("ReduceMax", np.float32, -np.inf),
        ("ReduceMin", np.float32, np.inf),
        ("ReduceMax", np.int8, -128), ("ReduceMin", np.uint8, 255), ("ReduceMax", np.bool_, False), ("ReduceMin", np.bool_, True),
        ("ReduceL1", np.float32, 0), ("ReduceL2", np.float32, 0), ("ReduceLogSum", np.float32, -np.inf),
        ("ReduceLogSumExp", np.float32, -np.inf), ("ReduceSumSquare", np.float32, 0), ("ReduceMean", np.float32, np.nan),
    ],
)  # fmt: skip
def test_an_empty_set_reduces_to_the_neutral_element(name: str, dtype: Any, expected: Any) -> None:
    result = run(name, np.zeros((2, 0, 3), dtype), i64(1), keepdims=1)
    np.testing.assert_array_equal(result, np.full((2, 1, 3), expected, dtype))


def test_bools_reduce_by_order() -> None:
    x = np.array([[True, False], [True, True]])
    assert run("ReduceMin", x, i64(1), keepdims=0).tolist() == [False, True]
    assert run("ReduceMax", x, i64(1), keepdims=0).tolist() == [True, True]


def test_log_sum_exp_neither_overflows_nor_loses_infinities() -> None:
    x = np.array([[1000, 1000], [-1000, -1000], [np.inf, 0], [-np.inf, -np.inf], [np.nan, 0]], np.float32)
    result = run("ReduceLogSumExp", x, i64(1), keepdims=0)
    np.testing.assert_allclose(result, [1000 + np.log(2), -1000 + np.log(2), np.inf, -np.inf, np.nan], rtol=1e-6)


def test_long_half_sums_are_kept_in_float32() -> None:
    assert run("ReduceSum", np.ones(5000, np.float16), keepdims=0).tolist() == 5000


def test_an_axis_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="axis 2 is out of range for rank 2: expected -2 to 1"):
        run("ReduceSum", np.zeros((2, 2), np.float32), i64(2))


def test_reduced_shapes_are_symbolic() -> None:
    n = symbol("N")
    assert known_shape("ReduceSum", [f32("N", 2, 3), i64(-1)]) == (n, 2, 1)
    assert known_shape("ReduceSum", [f32("N", 2, 3), i64(1)], keepdims=0) == (n, 3)
    assert known_shape("ReduceSum", [f32("N", 2), None], noop_with_empty_axes=1) == (n, 2)
    assert known_shape("ReduceSum", [f32("N", 2)]) == (1, 1)
    assert len(known_shape("ReduceSum", [f32("N", 2, 3), f32(2)], keepdims=0)) == 1
    assert len(known_shape("ReduceSum", [f32("N", 2, 3), f32("K")])) == 3
    assert known_shape("ReduceSum", [f32("N", 2, 3), f32("K")], keepdims=0) is None


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@quick
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    seed=seeds,
    keepdims=st.integers(0, 1),
    last=st.integers(0, 1),
)
def test_extreme_places_prefer_the_first_or_the_last(
    name: str, shape: tuple[int, ...], seed: int, keepdims: int, last: int
) -> None:
    x = random_array(seed, shape, np.int32) // 25
    axis = seed % len(shape) - (len(shape) if seed % 2 else 0)
    expected = by_onnxruntime(name, x, like=[i64()], axis=axis, keepdims=keepdims, select_last_index=last)[0]
    close(run(name, x, axis=axis, keepdims=keepdims, select_last_index=last), expected)
    close(run(name, x.astype(ml_dtypes.bfloat16), axis=axis, keepdims=keepdims, select_last_index=last), expected)


def test_an_empty_axis_has_no_extreme_place() -> None:
    with pytest.raises(ValueError, match=r"axis 0 of shape \(0, 2\) is empty: it has no extremum"):
        run("ArgMax", np.zeros((0, 2), np.float32))


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@quick
@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple), seed=seeds,
    exclusive=st.integers(0, 1), reverse=st.integers(0, 1),
    dtype=st.sampled_from((np.float32, np.float64, np.int32, np.uint64, np.float16)),
)  # fmt: skip
def test_running_sums_and_products(
    name: str, shape: tuple[int, ...], seed: int, exclusive: int, reverse: int, dtype: Any
) -> None:
    x = random_array(seed, shape, dtype, special=False)
    axis = seed % len(shape)
    lines = np.moveaxis(x, axis, -1).reshape(prod(shape[:axis] + shape[axis + 1 :]), shape[axis])
    expected = np.zeros_like(lines)
    with np.errstate(all="ignore"):
        for row, line in enumerate(lines):
            values = line[::-1] if reverse else line
            total = values.dtype.type(0 if name == "CumSum" else 1) if dtype is not np.float16 else np.float32(name != "CumSum")
            outcome = []
            for value in values:
                after = total + value if name == "CumSum" else total * value
                outcome.append(total if exclusive else after)
                total = after
            expected[row] = outcome[::-1] if reverse else outcome
    moved = np.moveaxis(expected.reshape(np.moveaxis(x, axis, -1).shape), -1, axis)
    result = run(name, x, np.array(axis - len(shape), np.int32), exclusive=exclusive, reverse=reverse)
    np.testing.assert_allclose(
        result.astype(np.float64), moved.astype(np.float64), rtol=1e-3 if dtype is np.float16 else 1e-5, atol=1e-6
    )


SOFTMAX = ["Softmax", "LogSoftmax", "Hardmax"]


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("version", [9, 11, 13])
@quick
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple), seed=seeds)
def test_softmax_flattens_before_opset_thirteen(name: str, version: int, shape: tuple[int, ...], seed: int) -> None:
    x = random_array(seed, shape, np.float32, special=False)
    axis = seed % len(shape)
    expected = by_onnxruntime(name, x, like=[x], axis=axis, version=version)[0]
    np.testing.assert_allclose(run(name, x, axis=axis, version=version), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_softmax_takes_other_floats_and_strided_input(name: str, dtype: Any) -> None:
    x: Array = random_array(3, (3, 4, 5), dtype, special=False).transpose(2, 0, 1)
    wide = run(name, x.astype(np.float64), axis=1)
    close(run(name, x, axis=1), wide.astype(dtype), ulps=8)


@pytest.mark.parametrize("name", SOFTMAX)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 3)])
def test_softmax_of_a_scalar_or_of_nothing(name: str, shape: tuple[int, ...]) -> None:
    result = run(name, np.zeros(shape, np.float32))
    assert result.shape == shape
    assert result.tolist() == np.full(shape, 0 if name == "LogSoftmax" else 1).tolist()


def test_softmax_of_large_numbers_stays_finite() -> None:
    x = np.array([[1e4, 1e4 + 1]], np.float32)
    np.testing.assert_allclose(run("Softmax", x), [[0.26894143, 0.7310586]], rtol=1e-6)
    np.testing.assert_allclose(run("LogSoftmax", np.array([[0, -1000]], np.float32)), [[0, -1000]])
