"""Weights of Winograd's convolution lie as they should, in parts of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import axis_taps, matrices, tap_groups
from sardonyx.lower.conv import winograd_weights
from sardonyx.lower.conv.winograd_weights import pack_winograd, pack_winograd_rows

TILES = st.sampled_from((2, 4))


def by_sets(elements: Array, exist: Array, width: int, last: int) -> Array:
    """[O, I, group, element] by sets, one number after the other; without elements that a group has not."""
    outputs, inputs, groups, count = elements.shape
    packed = np.zeros((-(-outputs // width), int(exist.sum()) * inputs * width), np.float32)
    order = [(element, group) for element in range(count) for group in range(groups) if exist[element, group]]
    for output in range(outputs):
        row, lane = divmod(output, width)
        own = width if (row + 1) * width <= outputs else last
        for number, (element, group) in enumerate(order):
            for channel in range(inputs):
                packed[row, (number * inputs + channel) * own + lane] = elements[output, channel, group, element]
    return packed


@pytest.mark.parametrize("at_once", [1, 1 << 12, 1 << 18])
@given(
    st.integers(1, 9),
    st.integers(1, 5),
    st.tuples(st.integers(1, 2), st.integers(3, 8), st.integers(3, 7)),
    st.sampled_from(((1, 1), (2, 2), (1, 2))),
    TILES,
    st.integers(0, 2**32 - 1),
)
def test_kernels_are_taken_apart(
    at_once: int,
    outputs: int,
    inputs: int,
    kernel: tuple[int, int, int],
    strides: tuple[int, int],
    tile: int,
    seed: int,
) -> None:
    w = np.random.default_rng(seed).standard_normal((outputs, inputs, *kernel)).astype(np.float32)
    groups = tap_groups(kernel, strides, tile)
    found, exist = [], []
    for plane in range(kernel[0]):
        for high, wide in np.ndindex(*(len(axis.firsts) for axis in groups.axes)):
            left, is_there = w[:, :, plane].astype(np.float64), []
            for at, axis, size, stride, number in zip((2, 3), groups.axes, groups.sizes, strides, (high, wide)):
                own = axis.own - (number >= len(axis.full))
                first = axis.firsts[number]
                taps = left.take(range(first, min(first + own * stride, left.shape[at]), stride), axis=at)
                matrix = np.array(matrices(tile, axis.own).weights)[:, : taps.shape[at]]
                left = np.moveaxis(np.tensordot(matrix, taps, (1, at)), 0, at)
                is_there.append(np.arange(size) < size - (number >= len(axis.full)))
            found.append(left.reshape(outputs, inputs, -1))
            exist.append(np.outer(*is_there).ravel())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_weights, "_IN_ONE_THREAD", at_once)
        packed = pack_winograd(w, tile, 4, outputs % 4 or 4, strides)
    expected = by_sets(np.stack(found, 2), np.stack(exist, 1), 4, outputs % 4 or 4)
    np.testing.assert_allclose(packed, expected, rtol=1e-6, atol=1e-6)


@given(st.integers(2, 25), st.integers(1, 3), TILES)
def test_every_tap_is_in_one_group(taps: int, stride: int, tile: int) -> None:
    if taps <= stride:
        return
    axis = axis_taps(taps, stride, tile)
    lengths = [*(axis.own for _ in axis.full), *(axis.own - 1 for _ in axis.short)]
    found = [first + tap * stride for first, own in zip(axis.firsts, lengths) for tap in range(own)]
    assert sorted(tap for tap in found if tap < taps) == list(range(taps))
    assert len(set(found)) == len(found)
    assert axis.full


@pytest.mark.parametrize("at_once", [1, 1 << 18])
@given(
    st.integers(1, 9), st.integers(1, 5), st.integers(1, 9), st.sampled_from(((2, 3), (4, 3), (4, 4))), st.integers(0, 2**32 - 1)
)
def test_rows(at_once: int, outputs: int, inputs: int, taps: int, tile_and_own: tuple[int, int], seed: int) -> None:
    tile, own = tile_and_own
    w = np.random.default_rng(seed).standard_normal((outputs, inputs, 1, 1, taps)).astype(np.float32)
    filled = np.zeros((outputs, inputs, -(-taps // own) * own))
    filled[..., :taps] = w[:, :, 0, 0]
    expected = filled.reshape(outputs, inputs, -1, own) @ np.array(matrices(tile, own).weights).T
    exist = np.ones((tile + own - 1, expected.shape[2]), bool)
    exist[-1, -1] = taps % own == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_weights, "_IN_ONE_THREAD", at_once)
        found = pack_winograd_rows(w, tile, 4, 4, own)
    np.testing.assert_allclose(found, by_sets(expected, exist, 4, 4), rtol=1e-6, atol=1e-6)
