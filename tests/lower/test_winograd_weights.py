"""Weights of Winograd's convolution lie as they should, in parts of any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import matrices
from sardonyx.lower.conv import winograd_weights
from sardonyx.lower.conv.winograd_weights import pack_winograd, pack_winograd_rows

TILES = st.sampled_from((2, 4))


def by_sets(elements: Array, width: int, last: int) -> Array:
    """[O, I, group, element] by sets, one number after the other."""
    outputs, inputs, groups, count = elements.shape
    packed = np.zeros((-(-outputs // width), count * groups * inputs * width), np.float32)
    for output, channel, group, element in np.ndindex(*elements.shape):
        row, lane = divmod(output, width)
        own = width if (row + 1) * width <= outputs else last
        packed[row, ((element * groups + group) * inputs + channel) * own + lane] = elements[output, channel, group, element]
    return packed


@pytest.mark.parametrize("at_once", [1, 1 << 12, 1 << 18])
@given(st.integers(1, 9), st.integers(1, 5), TILES, st.integers(0, 2**32 - 1))
def test_kernels_of_three_by_three(at_once: int, outputs: int, inputs: int, tile: int, seed: int) -> None:
    w = np.random.default_rng(seed).standard_normal((outputs, inputs, 1, 3, 3)).astype(np.float32)
    along = np.array(matrices(tile).weights)
    expected = np.einsum("ar,bc,oirc->oiab", along, along, w[:, :, 0].astype(np.float64)).reshape(outputs, inputs, 1, -1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_weights, "_IN_ONE_THREAD", at_once)
        found = pack_winograd(w, tile, 4, outputs % 4 or 4, (1, 1))
    np.testing.assert_allclose(found, by_sets(expected, 4, outputs % 4 or 4), rtol=1e-6, atol=1e-6)


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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_weights, "_IN_ONE_THREAD", at_once)
        found = pack_winograd_rows(w, tile, 4, 4, own)
    np.testing.assert_allclose(found, by_sets(expected, 4, 4), rtol=1e-6, atol=1e-6)
