"""The Gather and Scatter operators against loops in plain Python, onnxruntime and the reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, close, f32, i64, known_shape, random_array, run, seeds, shapes, text

from sardonyx.ir.dims import symbol

quick = settings(max_examples=30, deadline=None)
filled = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
any_type = st.sampled_from((np.float32, np.int64, np.bool_, object, ml_dtypes.bfloat16))
N, M = symbol("N"), symbol("M")


def some_indices(seed: int, shape: tuple[int, ...], size: int, dtype: Any = np.int64) -> Array:
    return np.asarray(np.random.default_rng(seed).integers(-size, size, shape)).astype(dtype)


@quick
@given(shape=filled, wanted=shapes, seed=seeds, dtype=any_type, kind=st.sampled_from((np.int32, np.int64)))
def test_gather_takes_whole_slices(shape: tuple[int, ...], wanted: tuple[int, ...], seed: int, dtype: Any, kind: Any) -> None:
    x, axis = random_array(seed, shape, dtype, special=False), seed % len(shape)
    indices = some_indices(seed, wanted, shape[axis], kind)
    result = run("Gather", x, indices, axis=axis - len(shape))
    expected = [x[(slice(None),) * axis + (int(index),)] for index in indices.flat]
    if expected:
        moved = np.stack(expected, axis=axis).reshape(shape[:axis] + wanted + shape[axis + 1 :])
        np.testing.assert_array_equal(result, moved)
    assert result.shape == shape[:axis] + wanted + shape[axis + 1 :]


@pytest.mark.parametrize("bad", [3, -4])
def test_an_index_out_of_range_names_axis_and_size(bad: int) -> None:
    message = f"index {bad} is out of range for axis 1 of size 3: expected -3 to 2"
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(IndexError, match=message):
        run("Gather", x, i64(0, bad), axis=1)
    with pytest.raises(IndexError, match=message):
        run("GatherElements", x, np.array([[0], [bad]]), axis=1)
    with pytest.raises(IndexError, match=message):
        run("GatherND", x, np.array([[0, bad]]))
    with pytest.raises(IndexError, match=message):
        run("ScatterElements", x, np.array([[bad]]), np.zeros((1, 1), np.float32), axis=1)
    with pytest.raises(IndexError, match=message):
        run("ScatterND", x, np.array([[0, bad]]), np.zeros(1, np.float32))


def test_gathered_shapes_are_symbolic() -> None:
    assert known_shape("Gather", [f32("N", 5), f32("M", 2)]) == (M, 2, 5)
    assert known_shape("Gather", [f32("N", 5), f32()], axis=1) == (N,)
    assert known_shape("GatherND", [f32("N", 5, 6), f32("N", "M", 1)], batch_dims=1) == (N, M, 6)
    assert known_shape("GatherND", [f32("N", 5, 6), f32("M", "K")]) is None


@quick
@given(shape=filled, seed=seeds, dtype=any_type)
def test_gather_elements_reads_along_an_axis(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x, axis = random_array(seed, shape, dtype, special=False), seed % len(shape)
    wanted = tuple(size if place == axis else max(size - seed % 2, 1) for place, size in enumerate(shape))
    indices = some_indices(seed, wanted, shape[axis])
    result = run("GatherElements", x, indices, axis=axis)
    for place in np.ndindex(*wanted):
        source = (*place[:axis], int(indices[place]), *place[axis + 1 :])
        assert result[place] == x[source]


def test_gather_elements_wants_indices_that_fit() -> None:
    with pytest.raises(ValueError, match="data has rank 2 but indices have rank 1: the ranks must agree"):
        run("GatherElements", np.zeros((2, 2)), i64(0))
    with pytest.raises(ValueError, match=r"indices are \(1, 3\), larger than data \(2, 2\) on axis 1"):
        run("GatherElements", np.zeros((2, 2)), np.zeros((1, 3), np.int64))


@quick
@given(shape=filled, seed=seeds, count=st.lists(st.integers(1, 3), max_size=2).map(tuple), dtype=any_type)
def test_gather_nd_reads_at_coordinates(shape: tuple[int, ...], seed: int, count: tuple[int, ...], dtype: Any) -> None:
    x = random_array(seed, shape, dtype, special=False)
    batch = seed % len(shape)
    depth = 1 + seed // 5 % (len(shape) - batch)
    columns = [some_indices(seed + i, shape[:batch] + count, shape[batch + i]) for i in range(depth)]
    if batch and not count:
        columns = [column.reshape(shape[:batch]) for column in columns]
    indices = np.stack(columns, axis=-1)
    if indices.ndim <= batch:
        return
    result = run("GatherND", x, indices, batch_dims=batch)
    assert result.shape == indices.shape[:-1] + shape[batch + depth :]
    for place in np.ndindex(*indices.shape[:-1]):
        np.testing.assert_array_equal(result[place], x[place[:batch] + tuple(int(i) for i in indices[place])])


def test_gather_nd_checks_its_shapes() -> None:
    with pytest.raises(ValueError, match=r"data \(2, 3\) and indices \(3, 1\) do not agree on 1 batch dimensions"):
        run("GatherND", np.zeros((2, 3)), np.zeros((3, 1), np.int64), batch_dims=1)
    with pytest.raises(
        ValueError, match=r"indices have shape \(1, 3\): expected a last dimension of at most 2 for data \(2, 3\)"
    ):
        run("GatherND", np.zeros((2, 3)), np.zeros((1, 3), np.int64))


COMBINE: dict[str, Any] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("reduction", COMBINE)
@quick
@given(shape=filled, seed=seeds, dtype=st.sampled_from((np.float32, np.int64, np.int32, np.float64)))
def test_scatter_elements_writes_along_an_axis(reduction: str, shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x, axis = random_array(seed, shape, dtype, special=False), seed % len(shape)
    wanted = tuple(size if place == axis else max(size - seed % 2, 1) for place, size in enumerate(shape))
    indices = some_indices(seed, wanted, shape[axis])
    if reduction == "none":
        indices = np.sort(np.argsort(random_array(seed, wanted, np.float32, special=False), axis=axis), axis=axis)
    updates = random_array(seed + 1, wanted, dtype, special=False)
    expected = x.copy()
    for place in np.ndindex(*wanted):
        target = (*place[:axis], int(indices[place]), *place[axis + 1 :])
        expected[target] = COMBINE[reduction](expected[target], updates[place])
    close(run("ScatterElements", x, indices, updates, axis=axis, reduction=reduction), expected)
    if reduction == "none":
        close(run("Scatter", x, indices, updates, axis=axis, version=9), expected)


@pytest.mark.parametrize("reduction", COMBINE)
@quick
@given(shape=filled, seed=seeds, count=st.integers(1, 5))
def test_scatter_nd_writes_slices(reduction: str, shape: tuple[int, ...], seed: int, count: int) -> None:
    x = random_array(seed, shape, np.float32, special=False)
    depth = 1 + seed % len(shape)
    indices = np.stack([some_indices(seed + i, (count,), shape[i]) for i in range(depth)], axis=-1)
    if reduction == "none":
        indices = np.unique(indices % np.array(shape[:depth]), axis=0)
    updates = random_array(seed + 1, indices.shape[:-1] + shape[depth:], np.float32, special=False)
    expected = by_onnxruntime("ScatterND", x, indices, updates, like=[x], version=18, reduction=reduction)[0]
    close(run("ScatterND", x, indices, updates, reduction=reduction), expected)


def test_scatter_adds_halves_in_float32() -> None:
    result = run(
        "ScatterElements", np.array([2048], np.float16), np.zeros(8, np.int64), np.full(8, 0.5, np.float16), reduction="add"
    )
    assert result.tolist() == [2052]


def test_scatter_writes_text_and_bools() -> None:
    assert run("ScatterElements", text("a", "b"), i64(1), text("c")).tolist() == ["a", "c"]
    assert run("ScatterND", np.array([True, True]), np.array([[0]]), np.array([False]), reduction="mul").tolist() == [False, True]


def test_scatter_nd_without_coordinates_addresses_the_whole() -> None:
    x, updates = np.ones((2,), np.float32), np.array([[1, 2], [3, 4]], np.float32)
    assert run("ScatterND", x, np.zeros((2, 0), np.int64), updates, reduction="add").tolist() == [5, 7]
    assert run("ScatterND", x, np.zeros((2, 0), np.int64), updates).tolist() == [3, 4]
    assert run("GatherND", x, np.zeros((2, 0), np.int64)).tolist() == [[1, 1], [1, 1]]


def test_scatter_checks_its_shapes_and_its_reduction() -> None:
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match=r"indices are \(1, 2\) but updates are \(1, 1\): the shapes must agree"):
        run("ScatterElements", x, np.zeros((1, 2), np.int64), x[:1, :1])
    with pytest.raises(ValueError, match=r"updates are \(1, 1\): expected \(1, 2\) for indices \(1, 1\) into data \(2, 2\)"):
        run("ScatterND", x, np.zeros((1, 1), np.int64), x[:1, :1])
    with pytest.raises(ValueError, match="reduction is 'sub': expected 'none', 'add', 'mul', 'min' or 'max'"):
        run("ScatterND", x, np.zeros((1, 1), np.int64), x[:1], reduction="sub")


@quick
@given(shape=shapes, seed=seeds, depth=st.integers(1, 5))
def test_one_hot_marks_the_index(shape: tuple[int, ...], seed: int, depth: int) -> None:
    indices = np.asarray(np.random.default_rng(seed).integers(-7, 8, shape))
    axis = seed % (len(shape) + 1)
    values = np.array([-1.5, 2.5], np.float32)
    result = run("OneHot", indices, i64(depth), values, axis=axis)
    lists = np.atleast_1d(indices)  # onnxruntime takes no scalar
    expected = by_onnxruntime("OneHot", lists, i64(depth), values, like=[values], axis=axis)[0].reshape(result.shape)
    close(result, expected)
    close(run("OneHot", indices.astype(np.float32), np.array(depth, np.float32), values, axis=axis - len(shape) - 1), expected)


def test_one_hot_of_text_and_symbols() -> None:
    assert run("OneHot", i64(1), i64(2), text("off", "on")).tolist() == [["off", "on"]]
    assert known_shape("OneHot", [f32("N"), (M,), f32(2)], axis=0) == (M, N)
    with pytest.raises(ValueError, match=r"depth is \[2, 2\]: expected one number that is not negative"):
        run("OneHot", i64(1), i64(2, 2), text("off", "on"))


@quick
@given(batch=st.integers(1, 3), size=st.integers(1, 5), seed=seeds, mode=st.sampled_from(["linear", "circular"]))
def test_tensor_scatter_updates_a_cache(batch: int, size: int, seed: int, mode: str) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, size + 1))
    starts = rng.integers(0, size - count + 1 if mode == "linear" else size, batch)
    cache, update = random_array(seed, (batch, 2, size, 3), np.float32), random_array(seed + 1, (batch, 2, count, 3), np.float32)
    expected = cache.copy()
    for entry in range(batch):
        for step in range(count):
            expected[entry, :, (starts[entry] + step) % size] = update[entry, :, step]
    close(run("TensorScatter", cache, update, starts, mode=mode), expected)


def test_tensor_scatter_without_indices_starts_at_zero() -> None:
    assert run("TensorScatter", np.zeros((1, 3), np.float32), np.ones((1, 2), np.float32), axis=1).tolist() == [[1, 1, 0]]


def test_tensor_scatter_checks_what_it_is_given() -> None:
    cache, update = np.zeros((2, 3, 1), np.float32), np.zeros((2, 2, 1), np.float32)
    for inputs, attrs, message in (
        ((cache, update), {"axis": 0}, "axis is 0, the batch axis: expected another one"),
        ((cache, update), {"mode": "ring"}, "mode is 'ring': expected 'linear' or 'circular'"),
        ((cache, update[:1]), {}, r"update is \(1, 2, 1\) but the cache is \(2, 3, 1\): they may differ only on axis 1"),
        ((update, cache), {}, "update has 3 steps, more than the 2 of the cache"),
        ((cache, update, i64(0)), {}, r"write_indices are \(1,\): expected 2 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            run("TensorScatter", *inputs, **attrs)
    with pytest.raises(IndexError, match=r"write_indices \[0, 2\] plus 2 steps leave axis 1 of size 3"):
        run("TensorScatter", cache, update, i64(0, 2))
