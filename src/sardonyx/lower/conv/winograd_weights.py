"""Weights of Winograd's convolution: transformed once, in float64; and how exact the result will be.

Winograd's sums are larger than the results they cancel to, so float32 loses more digits than it does in the plain sum: by a
factor of about 2 for tiles of 2 x 2, of 7 for tiles of 4 x 4. What that comes to depends on the weights. `relative_error` finds
out by computing a few tiles of made-up images both ways: of noise, which is what activations look like, and of a slope, of which
kernels that take differences leave little.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.kernel.conv.winograd import AxisTaps, axis_taps, matrices, row_taps
from sardonyx.program.constants import Cut, transform

# Multiplications of a product that BLAS (OpenBLAS, at least) computes in the thread that asks for it. The others that it has wait
# for more, busily, which takes longer than all the rest.
_IN_ONE_THREAD: Final = 1 << 18
_SAMPLED_CHANNELS: Final = 16  # of the output
_SAMPLED_TILES: Final = 4
_KEPT_SAMPLES: Final = 4  # of some MB each
_SLOPE: Final = 0.1  # from pixel to pixel, beside a brightness of 1


def _cuts(w: Array, tile: int, width: int, last: int, how: tuple[int, int] | int) -> tuple[Cut, ...]:
    return (Cut(0, 0, width),)


@transform("pack_conv_winograd", 5, _cuts, is_numbers=True)
def pack_winograd(w: Array, tile: int, width: int, last: int, strides: tuple[int, int]) -> Array:
    """[O, I, P, R, C] as [set of output channels][element][group of taps][input channel][output channel of the set].

    Sets have `width` channels; one that is not full has `last`, and lies at the start of its row.
    """
    axes = _axes(w, tile, strides)
    down, along = (_finite_or_full(axis, tile) for axis in axes)
    exist = down[:, None, :, None] & along[None, :, None, :]  # [elements down, along, groups down, along]
    exist = np.repeat(exist[:, :, None], w.shape[2], axis=2).reshape(len(down) * len(along), -1)
    return _packed(_taps(w, axes, strides), _square_matrix(tile, axes), exist, width, last)


@transform("pack_conv_winograd_rows", 5, _cuts, is_numbers=True)
def pack_winograd_rows(w: Array, tile: int, width: int, last: int, own: int) -> Array:
    """[O, I, 1, 1, K] as [set of output channels][element][`own` taps][input channel][output channel of the set]."""
    taps = _row_taps(w, own)
    exist = np.ones((tile + own - 1, taps.shape[2]), bool)
    exist[-1, -1] = w.shape[-1] % own == 0
    return _packed(taps, np.array(matrices(tile, own).weights), exist, width, last)


def _finite_or_full(axis: AxisTaps, tile: int) -> Array:
    """Which elements along an axis which groups of taps have."""
    exist = np.ones((tile + axis.own - 1, len(axis.firsts)), bool)
    exist[-1, len(axis.full) :] = False
    return exist


def _packed(taps: Array, matrix: Array, exist: Array, width: int, last: int) -> Array:
    """Taps [O, I, group, tap] by sets, transformed. Products make the elements as they are to lie, some at a time.

    `exist`: which elements a group has; others are left out.
    """
    outputs, inputs, groups, count = taps.shape
    elements = len(matrix)
    order = (np.cumsum(exist.ravel()) - 1).reshape(exist.shape)
    total, is_whole = int(exist.sum()), bool(exist.all())
    packed = np.zeros((-(-outputs // width), total * inputs * width), np.float32)
    some = max(_IN_ONE_THREAD // (matrix.size * width), 1)  # input channels
    lanes, made = np.zeros((count, some * width)), np.empty((elements, some * width))
    for number, row in enumerate(packed):
        part = taps[number * width : (number + 1) * width]
        own = width if len(part) == width else last
        if own != len(part):  # what others have left
            lanes[...] = 0
        by_group = row[: total * inputs * own].reshape(total, inputs * own)
        for group in range(groups):
            own_elements = exist[:, group]
            # A slice where groups have all elements: numbers in a list take 1.3 times as long.
            at = slice(group, None, groups) if is_whole else order[own_elements, group]
            for start in range(0, inputs, some):
                end = min(start + some, inputs)
                size = (end - start) * own
                lanes[:, :size].reshape(count, end - start, own)[..., : len(part)] = part[:, start:end, group].transpose(2, 1, 0)
                found = np.matmul(matrix, lanes[:, :size], out=made[:, :size])
                by_group[at, start * own : end * own] = found if is_whole else found[own_elements]
    return packed


def _row_taps(w: Array, own: int) -> Array:
    """[O, I, 1, 1, K] as [O, I, group, its own taps]."""
    taps = w.shape[-1]
    filled = np.zeros((*w.shape[:2], -(-taps // own) * own), w.dtype)
    filled[..., :taps] = w.reshape(*w.shape[:2], taps)
    return filled.reshape(*w.shape[:2], -1, own)


def _axes(w: Array, tile: int, strides: tuple[int, ...]) -> tuple[AxisTaps, AxisTaps]:
    """How the rows and columns of kernels are taken apart."""
    return axis_taps(w.shape[3], strides[0], tile), axis_taps(w.shape[4], strides[1], tile)


def _taps(w: Array, axes: tuple[AxisTaps, AxisTaps], strides: tuple[int, ...]) -> Array:
    """[O, I, P, R, C] as [O, I, group, taps of a group], with zeros for taps that do not exist."""
    outputs, inputs, planes = w.shape[:3]
    parts = w
    for number, (axis, stride) in enumerate(zip(axes, strides), 3):
        parts = _in_groups(parts, number, axis, stride)
    (down, along), (high, wide) = (axis.own for axis in axes), (len(axis.firsts) for axis in axes)
    found: Array = parts.reshape(outputs, inputs, planes * high, down, wide, along).swapaxes(-3, -2)
    return found.reshape(outputs, inputs, planes * high * wide, down * along)


def _in_groups(w: Array, number: int, axis: AxisTaps, stride: int) -> Array:
    """The taps of an axis, group by group."""
    taps = w.shape[number]
    wanted = [first + tap * stride if tap < own else taps for first, own in _groups(axis) for tap in range(axis.own)]
    if wanted == list(range(taps)):
        return w
    none = np.zeros((*w.shape[:number], 1, *w.shape[number + 1 :]), w.dtype)
    filled = np.concatenate([w, none], axis=number)
    found: Array = filled.take([min(tap, taps) for tap in wanted], axis=number)
    return found


def _groups(axis: AxisTaps) -> list[tuple[int, int]]:
    """The first tap of every group, and how many follow at most, with it."""
    return [*((first, axis.own) for first in axis.full), *((first, axis.own - 1) for first in axis.short)]


def _square_matrix(tile: int, axes: tuple[AxisTaps, AxisTaps]) -> Array:
    """What makes the elements of a square tile."""
    down, along = (np.array(matrices(tile, axis.own).weights) for axis in axes)
    return np.kron(down, along)


def _transformed(taps: Array, matrix: Array) -> Array:
    """[O, I, group, tap] as [O, I, group, element], in float64."""
    rows = taps.reshape(-1, taps.shape[-1]).astype(np.float64)
    found = np.empty((len(rows), len(matrix)))
    some = max(_IN_ONE_THREAD // matrix.size, 1)
    for start in range(0, len(rows), some):
        np.matmul(rows[start : start + some], matrix.T, out=found[start : start + some])
    return found.reshape(*taps.shape[:-1], -1)


def _product(a: Array, b: Array) -> Array:
    """A product of small matrices of great depth."""
    some = max(_IN_ONE_THREAD // (len(a) * b.shape[1]), 1)
    found = np.zeros((len(a), b.shape[1]))
    for start in range(0, len(b), some):
        found += a[:, start : start + some] @ b[start : start + some]
    return found


class _Sample(NamedTuple):
    """Tiles of a made-up image, as each way of computing reads them."""

    windows: Array  # [tile and pixel, inputs and taps], in float64
    transformed: Array  # [element, tile, inputs and taps]
    by_channel: bool  # errors are relative to the largest result of an output channel, not of all


@lru_cache(maxsize=_KEPT_SAMPLES)
def _samples(inputs: int, taps: tuple[int, ...], tile: int, strides: tuple[int, ...]) -> tuple[_Sample, ...]:
    """Noise and a slope. Layers of one model often have the same number of channels."""
    axes = axis_taps(taps[1], strides[0], tile), axis_taps(taps[2], strides[1], tile)
    reaches = [(tile + axis.own - 2) * stride + 1 for axis, stride in zip(axes, strides)]  # pixels of a tile
    rows, columns = (max(axis.firsts) + reach for axis, reach in zip(axes, reaches))
    left, right = (np.array(matrices(tile, axis.own).inputs, np.float32) for axis in axes)
    down, along = strides
    random = np.random.default_rng(0)
    noise = np.maximum(random.standard_normal((_SAMPLED_TILES, inputs, taps[0], rows, columns)), 0)
    slopes = random.uniform(-_SLOPE, _SLOPE, (2, 2, inputs, 1, 1, 1))
    ramp = 1 + slopes[0] * np.arange(columns) + slopes[1] * np.arange(rows)[:, None]
    found = []
    for images, by_channel in ((noise, True), (np.repeat(ramp, taps[0], axis=2), False)):
        x = images.astype(np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(x, taps, axis=(2, 3, 4))[:, :, 0, ::down, ::along][:, :, :tile, :tile]
        plain = windows.transpose(0, 2, 3, 1, 4, 5, 6).reshape(len(x) * tile * tile, -1).astype(np.float64)
        parts = [x[..., i : i + reaches[0] : down, j : j + reaches[1] : along] for i in axes[0].firsts for j in axes[1].firsts]
        v = left @ np.stack(parts, axis=3) @ right.T  # [tile, I, planes, groups down and along, elements down, along]
        found.append(_Sample(plain, v.reshape(len(x), -1, len(left) * len(right)).transpose(2, 0, 1), by_channel))
    return tuple(found)


def relative_error(w: Array, tile: int, strides: tuple[int, ...] = (1, 1)) -> float:
    """The largest error of results in tiles of so many a side, relative to the largest result: about, from samples.

    For noise the largest result is that of the same output channel, for a slope that of all. NaN if weights are not finite.
    """
    chosen = _sampled(w)
    if not np.isfinite(chosen).all():
        return float("nan")
    plain = chosen.reshape(len(chosen), -1).astype(np.float64).T
    axes = _axes(w, tile, strides)
    transformed = _transformed(_taps(chosen, axes, strides), _square_matrix(tile, axes)).astype(np.float32)
    tiled = transformed.reshape(len(chosen), -1, transformed.shape[-1]).transpose(2, 1, 0)
    error = 0.0
    for sample in _samples(w.shape[1], w.shape[2:], tile, strides):
        exact = _product(sample.windows, plain).reshape(-1, tile, tile, len(chosen)).transpose(0, 3, 1, 2)
        error = max(error, _largest_difference(_by_tiles(sample.transformed @ tiled, tile, axes), exact, sample.by_channel))
    return error


def relative_row_error(w: Array, tile: int) -> float:
    """The same for kernels of one row."""
    chosen = _sampled(w)
    if not np.isfinite(chosen).all():
        return float("nan")
    taps = w.shape[-1]
    own = row_taps(taps)
    made, groups = matrices(tile, own), -(-taps // own)
    length = tile + own * groups - 1
    random = np.random.default_rng(0)
    noise = np.maximum(random.standard_normal((_SAMPLED_TILES, w.shape[1], length)), 0)
    ramp = 1 + random.uniform(-_SLOPE, _SLOPE, (2, w.shape[1], 1)) * np.arange(length)
    u = _transformed(_row_taps(chosen, own), np.array(made.weights)).astype(np.float32)
    along, back = np.array(made.inputs, np.float32), np.array(made.outputs, np.float32)
    error = 0.0
    for lines, by_channel in ((noise, True), (ramp, False)):
        x = lines.astype(np.float32)
        v = np.stack([x[..., own * group :][..., : tile + own - 1] @ along.T for group in range(groups)], 2)
        rows, columns = v.transpose(3, 0, 2, 1), u.transpose(3, 2, 1, 0)  # [element, tile, taps, I] and [element, taps, I, O]
        sums = rows.reshape(len(along), len(x), -1) @ columns.reshape(len(along), -1, len(chosen))
        found = sums.transpose(1, 2, 0) @ back.T
        windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), taps, axis=2)[:, :, :tile]
        plain = windows.transpose(0, 2, 1, 3).reshape(len(x) * tile, -1)  # [tile and pixel, inputs and taps]
        exact = _product(plain, chosen.reshape(len(chosen), -1).astype(np.float64).T).reshape(len(x), tile, -1).transpose(0, 2, 1)
        error = max(error, _largest_difference(found, exact, by_channel))
    return error


def _sampled(w: Array) -> Array:
    """Some output channels."""
    found: Array = w[:: max(w.shape[0] // _SAMPLED_CHANNELS, 1)][:_SAMPLED_CHANNELS]
    return found


def _largest_difference(found: Array, exact: Array, by_channel: bool) -> float:
    """Relative to the largest result of a channel, or of all. Results are [tile, channel, ...]."""
    largest = np.abs(exact).max(axis=(0, *range(2, exact.ndim)), keepdims=True)
    scale = largest if by_channel else largest.max()
    difference = np.abs(found - exact)
    return float(np.divide(difference, scale, out=np.zeros_like(difference), where=scale > 0).max())


def _by_tiles(sums: Array, tile: int, axes: tuple[AxisTaps, AxisTaps]) -> Array:
    """Tiles of results [tile, O, m, m] of Winograd's sums [element, tile, O], in float32 as the kernels compute them."""
    down, along = (np.array(matrices(tile, axis.own).outputs, np.float32) for axis in axes)
    found: Array = down @ sums.transpose(1, 2, 0).reshape(*sums.shape[1:], down.shape[1], along.shape[1]) @ along.T
    return found
