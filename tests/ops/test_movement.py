"""Reshaping, joining, splitting and repeating against NumPy and onnxruntime, and their symbolic shapes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import (
    Array,
    broadcast_partner,
    by_onnxruntime,
    by_reference,
    f32,
    i64,
    known_shape,
    random_array,
    run,
    seeds,
    shapes,
)

from sardonyx.ir.dims import evaluate, symbol

quick = settings(max_examples=30, deadline=None)
filled = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
any_type = st.sampled_from((np.float32, np.int64, np.bool_, object, ml_dtypes.bfloat16, ml_dtypes.int4, np.complex64))
N, M = symbol("N"), symbol("M")


def data(seed: int, shape: tuple[int, ...], dtype: Any) -> Array:
    if dtype is np.complex64:
        return random_array(seed, shape, np.float32, special=False).astype(np.complex64)
    if dtype is ml_dtypes.int4:
        return np.asarray(random_array(seed, shape, np.int8) % 8).astype(ml_dtypes.int4)
    return random_array(seed, shape, dtype, special=False)


@quick
@given(shape=filled, seed=seeds, dtype=any_type)
def test_reshape_to_any_factorization(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x = data(seed, shape, dtype)
    for target in ((-1,), (0, -1), (1, -1, shape[-1]), (x.size,), (*shape, 1)):
        expected = x.reshape([shape[axis] if size == 0 else size for axis, size in enumerate(target)])
        np.testing.assert_array_equal(run("Reshape", x, i64(*target)), expected)


def test_zero_in_a_target_copies_unless_allowed() -> None:
    x = np.zeros((0, 3), np.float32)
    assert run("Reshape", x, i64(3, 0), allowzero=1).shape == (3, 0)
    assert run("Reshape", x, i64(0, 3)).shape == (0, 3)
    assert run("Reshape", x, i64(0, -1)).shape == (0, 3)  # what holds for every other size
    assert run("Reshape", np.zeros((1, 1)), i64()).shape == ()


@pytest.mark.parametrize(
    ("target", "attrs", "message"),
    [
        ((-1, -1), {}, r"shape \[-1,-1\] has more than one -1"),
        ((4, -1), {}, r"\[2,3\] has 6 elements: \[4,-1\] needs a multiple of 4"),
        ((7,), {}, r"\[2,3\] has 6 elements but \[7\] has 7"),
        ((1, 2, 0), {}, r"shape \[1,2,0\] copies axis 2, which \[2,3\] does not have"),
        ((0, -1), {"allowzero": 1}, r"shape \[0,-1\] has both 0 and -1, and allowzero is 1"),
    ],
)
def test_an_impossible_target_is_refused(target: tuple[int, ...], attrs: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run("Reshape", np.zeros((2, 3), np.float32), i64(*target), **attrs)


def test_reshape_in_opset_one_has_its_target_in_an_attribute() -> None:
    assert run("Reshape", np.zeros((2, 3), np.float32), version=1, shape=(3, -1)).shape == (3, 2)


def test_reshape_divides_symbols() -> None:
    assert known_shape("Reshape", [f32("N", 4, "M"), (-1, M)]) == (4 * N, M)
    assert known_shape("Reshape", [f32("N", 4, "M"), (0, 2, -1)]) == (N, 2, 2 * M)
    assert known_shape("Reshape", [f32("N", 6), (N, 2, 3)]) == (N, 2, 3)
    assert len(known_shape("Reshape", [f32("N"), f32(3)])) == 3
    assert known_shape("Reshape", [None, (2, 3)]) == (2, 3)


@quick
@given(shape=shapes, seed=seeds, dtype=any_type)
def test_flatten_makes_matrices(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x = data(seed, shape, dtype)
    for axis in range(-x.ndim, x.ndim + 1):
        cut = axis % x.ndim if axis < 0 else axis
        assert run("Flatten", x, axis=axis).shape == (int(np.prod(shape[:cut])), int(np.prod(shape[cut:])))


@quick
@given(shape=shapes, seed=seeds, dtype=any_type)
def test_squeeze_undoes_unsqueeze(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x = data(seed, shape, dtype)
    axes = (0, -1)
    wide = run("Unsqueeze", x, i64(*axes))
    np.testing.assert_array_equal(wide, np.expand_dims(x, axes))
    np.testing.assert_array_equal(run("Squeeze", wide, i64(*axes)), x)
    np.testing.assert_array_equal(run("Squeeze", wide), x.squeeze())
    if dtype not in (ml_dtypes.bfloat16, ml_dtypes.int4):
        np.testing.assert_array_equal(run("Unsqueeze", x, version=11, axes=axes), wide)
        np.testing.assert_array_equal(run("Squeeze", wide, version=11, axes=axes), x)


def test_squeeze_and_unsqueeze_refuse_wrong_axes() -> None:
    with pytest.raises(ValueError, match=r"axis 1 of shape \(1, 2\) has size 2: only axes of size 1 can be squeezed"):
        run("Squeeze", np.zeros((1, 2)), i64(1))
    with pytest.raises(ValueError, match=r"axis 1 of \[1,2\] has size 2"):
        known_shape("Squeeze", [f32(1, 2), i64(1)])
    with pytest.raises(ValueError, match=r"axes \(0, -2\) name an axis twice"):
        run("Unsqueeze", np.zeros(()), i64(0, -2))


def test_squeeze_of_a_symbol_needs_its_axes() -> None:
    assert known_shape("Squeeze", [f32("N", 1), i64(1)]) == (N,)
    assert known_shape("Squeeze", [f32("N", 1)]) is None
    assert len(known_shape("Unsqueeze", [f32("N"), f32(2)])) == 3


@quick
@given(shape=shapes, seed=seeds, dtype=any_type)
def test_transpose_takes_any_order(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x = data(seed, shape, dtype)
    order = tuple(int(axis) for axis in np.random.default_rng(seed).permutation(x.ndim))
    np.testing.assert_array_equal(run("Transpose", x, perm=order), x.transpose(order))
    np.testing.assert_array_equal(run("Transpose", x), x.T)


def test_transpose_refuses_what_is_no_order() -> None:
    with pytest.raises(ValueError, match=r"perm \(0, 0\) is not an order of 2 axes"):
        run("Transpose", np.zeros((2, 2)), perm=(0, 0))


@quick
@given(shape=st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), seed=seeds, count=st.integers(1, 4), dtype=any_type)
def test_concat_and_split_are_inverse(shape: tuple[int, ...], seed: int, count: int, dtype: Any) -> None:
    axis = seed % len(shape)
    parts = [data(seed + i, (*shape[:axis], (seed >> i) % 4, *shape[axis + 1 :]), dtype) for i in range(count)]
    whole = run("Concat", *parts, axis=axis - len(shape)) if dtype is not ml_dtypes.int4 else np.concatenate(parts, axis=axis)
    np.testing.assert_array_equal(whole, np.concatenate(parts, axis=axis))
    if dtype is ml_dtypes.int4:
        return
    sizes = [part.shape[axis] for part in parts]
    pieces = run("Split", whole, i64(*sizes), axis=axis, outputs=count)
    for piece, part in zip([pieces] if count == 1 else pieces, parts, strict=True):
        np.testing.assert_array_equal(piece, part)


def test_concat_names_the_input_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"input 1 is \(2, 4\) but input 0 is \(2, 3\): they may differ only on axis 0"):
        run("Concat", np.zeros((2, 3)), np.zeros((2, 4)), axis=0)
    with pytest.raises(ValueError, match=r"input 1 is \[2,4\] but input 0 is \[2,3\]: dimension 3 contradicts dimension 4"):
        known_shape("Concat", [f32(2, 3), f32(2, 4)], axis=0)


def test_concat_adds_symbols() -> None:
    assert known_shape("Concat", [f32("N", "M"), f32(2, 3), f32("N", 3)], axis=0) == (2 * N + 2, 3)
    assert known_shape("Concat", [f32("N", 3), None], axis=0)[1] == 3


@pytest.mark.parametrize(
    ("size", "parts", "expected"), [(6, 3, [2, 2, 2]), (7, 4, [2, 2, 2, 1]), (7, 3, [3, 3, 1]), (1, 2, [1, 0])]
)
def test_split_into_a_number_of_parts(size: int, parts: int, expected: list[int]) -> None:
    pieces = run("Split", np.arange(size), num_outputs=parts, outputs=parts)
    assert [piece.size for piece in pieces] == expected


def test_split_before_opset_eighteen_needs_equal_parts() -> None:
    assert [piece.tolist() for piece in run("Split", np.arange(4), version=13, outputs=2)] == [[0, 1], [2, 3]]
    assert [piece.size for piece in run("Split", np.arange(4), version=2, split=(1, 3), outputs=2)] == [1, 3]
    with pytest.raises(ValueError, match=r"axis 0 of shape \(5,\) cannot be split into 2 equal parts"):
        run("Split", np.arange(5), version=11, outputs=2)
    with pytest.raises(ValueError, match=r"split \(1, 3\) does not add up to the 5 of axis 0 of shape \(5,\)"):
        run("Split", np.arange(5), i64(1, 3), outputs=2)


def test_split_of_a_symbol_into_equal_parts() -> None:
    assert known_shape("Split", [f32(2 * N, 3)], num_outputs=2, outputs=2) == [[N, 3], [N, 3]]
    assert known_shape("Split", [f32("N")], version=13, outputs=2) == [[N // 2], [N // 2]]
    for parts in (1, 2, 3, 5):
        found = known_shape("Split", [f32("N")], num_outputs=parts, outputs=parts)
        for size in range(12):
            pieces = run("Split", np.arange(size), num_outputs=parts, outputs=parts)
            expected = [piece.size for piece in (pieces if parts > 1 else [pieces])]
            assert [evaluate(shape[0], {"N": size}) for shape in found] == expected


def test_split_in_opset_one_takes_its_sizes_as_input_or_attribute() -> None:
    x = np.arange(4, dtype=np.float32)
    assert [piece.size for piece in run("Split", x, np.array([1, 3], np.float32), version=1, outputs=2)] == [1, 3]
    assert [piece.size for piece in run("Split", x, version=1, split=(3, 1), outputs=2)] == [3, 1]


@quick
@given(shape=shapes, seed=seeds, dtype=any_type)
def test_expand_broadcasts_both_ways(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    if dtype is ml_dtypes.int4:
        return
    x = data(seed, broadcast_partner(seed, shape), dtype)
    np.testing.assert_array_equal(run("Expand", x, i64(*shape)), np.broadcast_to(x, shape))
    small = broadcast_partner(seed + 1, x.shape)
    result = run("Expand", x, i64(*small))
    assert result.shape == x.shape
    assert result.flags.writeable


def test_expand_takes_symbols() -> None:
    assert known_shape("Expand", [f32(1, 3), (N, 1, 3)]) == (N, 1, 3)
    assert known_shape("Expand", [f32("N", 1), (1, 4)]) == (N, 4)


@quick
@given(shape=shapes, seed=seeds, dtype=any_type)
def test_tile_repeats(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    if dtype is ml_dtypes.int4:
        return
    x = data(seed, shape, dtype)
    counts = np.random.default_rng(seed).integers(0, 4, x.ndim)
    np.testing.assert_array_equal(run("Tile", x, counts.astype(np.int64)), np.tile(x, counts))


def test_tile_wants_a_count_for_each_axis() -> None:
    with pytest.raises(ValueError, match=r"repeats are \(2,\): expected 2 numbers, none negative, for shape \(1, 1\)"):
        run("Tile", np.zeros((1, 1)), i64(2))
    assert known_shape("Tile", [f32("N", 3), (2, M)]) == (2 * N, 3 * M)


def test_tile_in_opset_one_has_one_axis() -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert run("Tile", x, np.array(2, np.float32), np.array(1, np.float32), version=1).tolist() == [[0, 1, 0, 1], [2, 3, 2, 3]]


@pytest.mark.parametrize(("start", "end"), [(0, None), (1, None), (-1, None), (0, 2), (-2, -1), (5, None), (2, 1), (-9, 9)])
def test_shape_of_a_range_of_axes(start: int, end: int | None) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    bounds = {"start": start} | ({} if end is None else {"end": end})
    expected = by_onnxruntime("Shape", x, like=[i64()], **bounds)[0]
    np.testing.assert_array_equal(run("Shape", x, **bounds), expected)
    assert run("Shape", np.zeros(()), **bounds).shape == (0,)


def test_size_counts_elements() -> None:
    assert run("Size", np.zeros((2, 0, 3))).tolist() == 0
    assert run("Size", np.zeros(())).tolist() == 1


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_and_space_are_inverse(mode: str, block: int) -> None:
    x = np.arange(2 * block * block * 2 * 3 * 4, dtype=np.float32).reshape(2, 2 * block * block, 3, 4)
    space = run("DepthToSpace", x, blocksize=block, mode=mode)
    np.testing.assert_array_equal(space, by_reference("DepthToSpace", x, blocksize=block, mode=mode))
    np.testing.assert_array_equal(run("SpaceToDepth", space, blocksize=block, mode=mode), x)
    if mode == "DCR":
        np.testing.assert_array_equal(run("SpaceToDepth", space, blocksize=block, version=13), x)
        np.testing.assert_array_equal(run("DepthToSpace", x, blocksize=block, version=1), space)


def test_blocks_must_fit() -> None:
    x = np.zeros((1, 3, 3, 3), np.float32)
    with pytest.raises(ValueError, match="3 channels are not a multiple of blocksize squared, 4"):
        run("DepthToSpace", x, blocksize=2)
    with pytest.raises(ValueError, match="height 3 and width 3 are not multiples of the blocksize 2"):
        run("SpaceToDepth", x, blocksize=2)
    with pytest.raises(ValueError, match="mode is 'ABC': expected 'DCR' or 'CRD'"):
        run("DepthToSpace", x, blocksize=1, mode="ABC")
    with pytest.raises(ValueError, match=r"input has shape \(3,\): expected four dimensions, N C H W"):
        run("SpaceToDepth", x[0, 0, 0], blocksize=1)


@quick
@given(batch=st.integers(1, 4), time=st.integers(1, 4), rest=st.lists(st.integers(1, 3), max_size=2).map(tuple), seed=seeds)
def test_sequences_are_reversed_up_to_their_length(batch: int, time: int, rest: tuple[int, ...], seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, time + 1, batch)
    for batch_axis in (0, 1):
        shape = (batch, time) if batch_axis == 0 else (time, batch)
        x = random_array(seed, shape + rest, np.float32, special=False)
        axes = {"batch_axis": batch_axis, "time_axis": 1 - batch_axis}
        expected = by_onnxruntime("ReverseSequence", x, lengths, like=[x], **axes)[0]
        np.testing.assert_array_equal(run("ReverseSequence", x, lengths, **axes), expected)


def test_reverse_sequence_checks_its_lengths_and_axes() -> None:
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"sequence_lens \[4, 1\]: expected 2 numbers from 0 to 3"):
        run("ReverseSequence", x, i64(4, 1), batch_axis=0, time_axis=1)
    with pytest.raises(ValueError, match="batch_axis 1 and time_axis 1: expected one to be 0 and the other 1"):
        run("ReverseSequence", x, i64(1, 1), batch_axis=1, time_axis=1)
