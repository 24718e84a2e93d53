"""Constant, ConstantOfShape, Range, EyeLike, Trilu and Det."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import FLOATS, by_onnxruntime, close, f32, i64, known_shape, random_array, run, seeds, text

from sardonyx import dtypes
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import SparseConstant
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import TensorType

quick = settings(max_examples=30, deadline=None)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"value": np.arange(3, dtype=np.int8)}, np.arange(3, dtype=np.int8)),
        ({"value_float": 1.5}, np.array(1.5, np.float32)),
        ({"value_floats": (1.0, 2.0)}, np.array([1, 2], np.float32)),
        ({"value_floats": ()}, np.zeros(0, np.float32)),
        ({"value_int": -7}, np.array(-7, np.int64)),
        ({"value_ints": (1, 2)}, i64(1, 2)),
        ({"value_string": "é"}, text("é").reshape(())),
        ({"value_strings": ("a", "bc")}, text("a", "bc")),
    ],
)
def test_a_constant_has_its_value_in_one_of_many_attributes(attrs: dict[str, Any], expected: Any) -> None:
    close(run("Constant", **attrs), expected)


def test_a_sparse_constant_becomes_dense() -> None:
    values = from_numpy(np.array([5, 6], np.float32))
    flat = SparseConstant(values, from_numpy(i64(1, 5)), (2, 3))
    pairs = SparseConstant(values, from_numpy(np.array([[0, 1], [1, 2]])), (2, 3))
    for sparse in (flat, pairs):
        assert run("Constant", sparse_value=sparse).tolist() == [[0, 5, 0], [0, 0, 6]]


def test_a_constant_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="Constant has no value: expected one of the attributes"):
        run("Constant")


def test_constant_of_shape_fills_any_type() -> None:
    close(run("ConstantOfShape", i64(2, 0)), np.zeros((2, 0), np.float32))
    close(run("ConstantOfShape", i64()), np.zeros((), np.float32))
    close(run("ConstantOfShape", i64(2), value=np.array([3], np.int8)), np.full(2, 3, np.int8))
    close(run("ConstantOfShape", i64(2), value=np.array([1], ml_dtypes.bfloat16)), np.ones(2, ml_dtypes.bfloat16))
    with pytest.raises(ValueError, match=r"shape \(-1,\) has a negative size"):
        run("ConstantOfShape", i64(-1))
    with pytest.raises(ValueError, match=r"value has shape \(2,\): expected one element"):
        run("ConstantOfShape", i64(1), value=np.zeros(2))


def test_constant_of_shape_takes_symbols() -> None:
    n = symbol("N")
    assert known_shape("ConstantOfShape", [(n, 4)]) == TensorType(dtypes.FLOAT32, (n, 4))
    assert known_shape("ConstantOfShape", [f32(3)]).rank == 3
    assert known_shape("ConstantOfShape", [f32("K")]).shape is None


@quick
@given(start=st.integers(-20, 20), limit=st.integers(-20, 20), delta=st.integers(-5, 5).filter(bool))
def test_ranges_of_integers(start: int, limit: int, delta: int) -> None:
    for dtype in (np.int16, np.int32, np.int64):
        result = run("Range", *(np.array(item, dtype) for item in (start, limit, delta)))
        assert result.tolist() == list(range(start, limit, delta))


@quick
@given(start=st.integers(-8, 8), limit=st.integers(-8, 8), delta=st.sampled_from([0.25, -0.25, 0.7, -1.5]))
def test_ranges_of_floats_agree_with_onnxruntime(start: int, limit: int, delta: float) -> None:
    for dtype in (np.float32, np.float64):
        bounds = [np.array(item, dtype) for item in (start, limit, delta)]
        np.testing.assert_allclose(
            run("Range", *bounds), by_onnxruntime("Range", *bounds, like=[bounds[0]])[0], rtol=1e-6, atol=1e-6
        )


def test_long_half_ranges_do_not_stall() -> None:
    result = run("Range", *(np.array(item, np.float16) for item in (0, 4096, 1)))
    assert result.size == 4096
    assert result[-1] == np.float16(4095)


def test_a_range_that_does_not_end_is_refused() -> None:
    with pytest.raises(ValueError, match="a range from 0 to 1 in steps of 0 does not end"):
        run("Range", i64(0)[0:1].reshape(()), np.array(1), np.array(0))
    with pytest.raises(ValueError, match=r"limit has shape \(2,\): expected a scalar"):
        run("Range", np.array(0), i64(1, 2), np.array(1))


def test_a_range_may_have_symbolic_ends() -> None:
    n = symbol("N")
    assert known_shape("Range", [(0,), (n,), (1,)]) == (n,)
    assert known_shape("Range", [(0,), (2 * n,), (2,)]) == (n,)
    assert known_shape("Range", [(n,), (0,), (-1,)]) == (n,)


@pytest.mark.parametrize("k", [-2, 0, 1, 5])
def test_eye_like(k: int) -> None:
    close(run("EyeLike", np.zeros((3, 4), np.int32), k=k), np.eye(3, 4, k=k, dtype=np.int32))
    close(run("EyeLike", np.zeros((3, 4), np.int32), k=k, dtype=1), np.eye(3, 4, k=k, dtype=np.float32))
    with pytest.raises(ValueError, match=r"input has shape \(3,\): expected a matrix"):
        run("EyeLike", np.zeros(3, np.int32))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -1, 0, 2, 10, -10])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (0, 3), (2, 1, 1)])
def test_trilu_keeps_a_triangle(upper: int, k: int | None, shape: tuple[int, ...]) -> None:
    for dtype in (np.float32, np.int64, np.bool_, ml_dtypes.bfloat16):
        x = random_array(7, shape, dtype, special=False)
        inputs = (x,) if k is None else (x, np.array(k, np.int64))
        expected = (np.triu if upper else np.tril)(x.astype(np.float64), k or 0).astype(dtype)
        close(run("Trilu", *inputs, upper=upper), expected)
    with pytest.raises(ValueError, match=r"input has shape \(3,\): expected at least two dimensions"):
        run("Trilu", np.zeros(3))


@quick
@given(
    size=st.integers(0, 4), batch=st.lists(st.integers(0, 3), max_size=2).map(tuple), seed=seeds, dtype=st.sampled_from(FLOATS)
)
def test_determinants_of_batches(size: int, batch: tuple[int, ...], seed: int, dtype: Any) -> None:
    x = random_array(seed, (*batch, size, size), dtype, special=False)
    result = run("Det", x)
    assert result.shape == batch
    expected = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(
        result.astype(np.float64), expected, rtol=1e-2 if np.dtype(dtype).itemsize == 2 else 1e-3, atol=1e-2
    )


def test_a_determinant_needs_square_matrices() -> None:
    with pytest.raises(ValueError, match=r"input has shape \(2, 3\): expected square matrices"):
        run("Det", np.zeros((2, 3), np.float32))
