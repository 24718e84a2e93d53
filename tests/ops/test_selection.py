"""TopK, NonZero, Compress and Unique against onnxruntime and plain Python."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, f32, i64, known_shape, random_array, run, seeds, shapes, text

from sardonyx.ir.dims import symbol

quick = settings(max_examples=30, deadline=None)
filled = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@quick
@given(
    shape=filled, seed=seeds, largest=st.integers(0, 1),
    dtype=st.sampled_from((np.float32, np.float64, np.int64, np.int32, np.int8, np.uint8, ml_dtypes.bfloat16)),
)  # fmt: skip
def test_top_k_is_stable(shape: tuple[int, ...], seed: int, largest: int, dtype: Any) -> None:
    x = (random_array(seed, shape, np.int32) // 20 + 3).astype(dtype)
    axis = seed % len(shape)
    count = seed // 7 % (shape[axis] + 1)
    values, indices = run("TopK", x, i64(count), axis=axis, largest=largest, outputs=2)
    lines = np.moveaxis(x, axis, -1).reshape(-1, shape[axis]).tolist()
    sign = -1 if largest else 1
    expected = [sorted(range(len(line)), key=lambda place, line=line: (sign * line[place], place))[:count] for line in lines]  # type: ignore[misc]
    assert np.moveaxis(indices, axis, -1).reshape(len(lines), count).tolist() == expected
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, axis=axis))


def test_nan_counts_as_the_greatest() -> None:
    x = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    assert run("TopK", x, i64(2), outputs=2)[1].tolist() == [1, 2]
    assert run("TopK", x, i64(4), largest=0, outputs=2)[1].tolist() == [3, 0, 2, 1]


def test_the_lowest_integers_sort_without_overflow() -> None:
    x = np.array([-128, 127, 0], np.int8)
    assert run("TopK", x, i64(3), outputs=2)[0].tolist() == [127, 0, -128]


def test_top_k_in_opset_one_has_k_in_an_attribute() -> None:
    assert run("TopK", np.array([[1, 3, 2]], np.float32), version=1, k=2, outputs=2)[0].tolist() == [[3, 2]]


def test_top_k_refuses_more_than_there_is() -> None:
    with pytest.raises(ValueError, match=r"k is 4, but axis 0 of shape \(3,\) has 3 elements"):
        run("TopK", np.zeros(3, np.float32), i64(4), outputs=2)
    with pytest.raises(ValueError, match=r"K has shape \(2,\): expected one number"):
        run("TopK", np.zeros(3, np.float32), i64(1, 2), outputs=2)


def test_the_count_of_top_k_may_be_symbolic() -> None:
    k = symbol("K")
    assert known_shape("TopK", [f32("N", 9), (k,)], outputs=2) == [[symbol("N"), k]] * 2


@quick
@given(shape=st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple), seed=seeds)
def test_non_zero_lists_coordinates(shape: tuple[int, ...], seed: int) -> None:
    x = random_array(seed, shape, np.int32) // 25
    expected = by_onnxruntime("NonZero", x, like=[i64()])[0]
    np.testing.assert_array_equal(run("NonZero", x), expected)
    np.testing.assert_array_equal(run("NonZero", x.astype(np.bool_)), expected)


def test_a_scalar_has_no_coordinates() -> None:
    assert run("NonZero", np.array(3.0, np.float32)).shape == (0, 1)
    assert run("NonZero", np.array(0.0, np.float32)).shape == (0, 0)


@quick
@given(shape=filled, seed=seeds, flat=st.booleans(), dtype=st.sampled_from((np.float32, object, np.int64)))
def test_compress_keeps_what_is_true(shape: tuple[int, ...], seed: int, flat: bool, dtype: Any) -> None:
    x = random_array(seed, shape, dtype, special=False)
    axis = seed % len(shape)
    size = x.size if flat else shape[axis]
    condition = random_array(seed + 1, (max(size - seed % 2, 0),), np.bool_)
    expected = np.compress(condition, x, axis=None if flat else axis)
    np.testing.assert_array_equal(run("Compress", x, condition, **({} if flat else {"axis": axis})), expected)


def test_compress_refuses_a_condition_past_the_end() -> None:
    with pytest.raises(IndexError, match="condition selects element 2, but there are 2"):
        run("Compress", np.zeros(2, np.float32), np.array([False, False, True]))


@quick
@given(shape=shapes, seed=seeds, ordered=st.integers(0, 1), dtype=st.sampled_from((np.float32, np.int64, object, np.int8)))
def test_unique_elements(shape: tuple[int, ...], seed: int, ordered: int, dtype: Any) -> None:
    x = random_array(seed, shape, dtype, special=False)
    x = x if dtype is object else np.asarray(np.round(x / 20)).astype(dtype)
    flat = x.reshape(-1).tolist()
    distinct = sorted(set(flat)) if ordered else list(dict.fromkeys(flat))
    values, first, inverse, counts = run("Unique", x, sorted=ordered, outputs=4)
    assert values.tolist() == distinct
    assert first.tolist() == [flat.index(value) for value in distinct]
    assert inverse.tolist() == [distinct.index(value) for value in flat]
    assert counts.tolist() == [flat.count(value) for value in distinct]


@quick
@given(shape=filled, seed=seeds, ordered=st.integers(0, 1), dtype=st.sampled_from((np.int64, np.float32, object)))
def test_unique_slices(shape: tuple[int, ...], seed: int, ordered: int, dtype: Any) -> None:
    x: Array = random_array(seed, shape, dtype, special=False)
    x = x if dtype is object else np.asarray(np.sign(x)).astype(dtype)
    axis = seed % len(shape)
    rows = [tuple(row) for row in np.moveaxis(x, axis, 0).reshape(shape[axis], -1).tolist()]
    distinct = sorted(set(rows)) if ordered else list(dict.fromkeys(rows))
    values, first, inverse, counts = run("Unique", x, sorted=ordered, axis=axis, outputs=4)
    assert [tuple(row) for row in np.moveaxis(values, axis, 0).reshape(len(distinct), -1).tolist()] == distinct
    assert first.tolist() == [rows.index(row) for row in distinct]
    assert inverse.tolist() == [distinct.index(row) for row in rows]
    assert counts.tolist() == [rows.count(row) for row in distinct]


def test_unique_finds_one_nan() -> None:
    values, *_ = run("Unique", np.array([np.nan, 1, np.nan], np.float32), outputs=4)
    np.testing.assert_array_equal(values, np.array([1, np.nan], np.float32))


def test_unique_of_empty_slices_is_one_slice() -> None:
    values, _, inverse, counts = run("Unique", np.zeros((3, 0), np.float32), axis=0, outputs=4)
    assert (values.shape, inverse.tolist(), counts.tolist()) == ((1, 0), [0, 0, 0], [3])


def test_unique_words_are_sorted() -> None:
    assert run("Unique", text("b", "a", "b"), outputs=4)[0].tolist() == ["a", "b"]
