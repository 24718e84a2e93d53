"""Weights of convolutions in the order kernels read them. Pure functions of arrays: what they make can be kept on disk."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array


def pack_direct(w: Array, groups: int, block: int, vectors: int) -> Array:
    """[O, I, planes, rows, columns] for blocked input.

    One row for each group and set of `vectors` blocks of output channels; in it [turn][tap][input lane][output channel of the
    set]. A last block of input channels that is not full is a shorter turn; output channels past the last are zero.
    """
    outputs, inputs = w.shape[0] // groups, w.shape[1]
    taps = int(np.prod(w.shape[2:]))
    width = vectors * block
    blocks = -(-outputs // block)
    sets = -(-blocks // vectors)
    grouped = np.zeros((groups, sets * width, inputs, taps), np.float32)
    grouped[:, :outputs] = w.reshape(groups, outputs, inputs, taps)
    packed = np.zeros((groups, sets, taps * inputs * width), np.float32)
    for first, last, wide in _set_ranges(blocks, vectors):
        part = grouped[:, first * width : first * width + (last - first) * wide * block]
        lanes = part.reshape(groups, last - first, wide * block, inputs, taps)
        whole = inputs // block * block
        turns = lanes[:, :, :, :whole].reshape(groups, last - first, wide * block, inputs // block, block, taps)
        tail = lanes[:, :, :, whole:]
        edge, end = taps * whole * wide * block, taps * inputs * wide * block
        packed[:, first:last, :edge] = turns.transpose(0, 1, 3, 5, 4, 2).reshape(groups, last - first, edge)
        packed[:, first:last, edge:end] = tail.transpose(0, 1, 4, 3, 2).reshape(groups, last - first, end - edge)
    return packed.reshape(groups * sets, taps * inputs * width)


def pack_plain(w: Array, groups: int, block: int, vectors: int) -> Array:
    """[O, I, planes, rows, columns] for plain input: in a set [input channel][plane][row][column][output channel of the set]."""
    outputs = w.shape[0] // groups
    inner = int(np.prod(w.shape[1:]))
    width = vectors * block
    blocks = -(-outputs // block)
    sets = -(-blocks // vectors)
    grouped = np.zeros((groups, sets * width, inner), np.float32)
    grouped[:, :outputs] = w.reshape(groups, outputs, inner)
    packed = np.zeros((groups, sets, inner * width), np.float32)
    for first, last, wide in _set_ranges(blocks, vectors):
        part = grouped[:, first * width : first * width + (last - first) * wide * block]
        lanes = part.reshape(groups, last - first, wide * block, inner).transpose(0, 1, 3, 2)
        packed[:, first:last, : inner * wide * block] = lanes.reshape(groups, last - first, -1)
    return packed.reshape(groups * sets, -1)


def _set_ranges(blocks: int, vectors: int) -> list[tuple[int, int, int]]:
    """(first set, end, vectors in it): whole sets, then one that is not."""
    whole, rest = divmod(blocks, vectors)
    ranges = [(0, whole, vectors)] if whole else []
    return [*ranges, (whole, whole + 1, rest)] if rest else ranges


def pack_lanes(w: Array, block: int) -> Array:
    """[C, group, planes, rows, columns] of a depthwise or lane-grouped convolution as [block][tap][group lane][lane]."""
    channels, group = w.shape[:2]
    blocks = -(-channels // block)
    taps = int(np.prod(w.shape[2:]))
    padded = np.zeros((blocks * block, group, taps), np.float32)
    padded[:channels] = w.reshape(channels, group, taps)
    return np.ascontiguousarray(padded.reshape(blocks, block, group, taps).transpose(0, 3, 2, 1))


def pack_bias(b: Array | None, groups: int, outputs: int, block: int) -> Array:
    """A bias for every lane: zero where there is no channel. `outputs` counts the channels of a group."""
    blocks = -(-outputs // block)
    packed = np.zeros((groups, blocks * block), np.float32)
    if b is not None:
        packed[:, :outputs] = b.reshape(groups, outputs)
    return packed.reshape(-1)


def transposed_phase(w: Array, groups: int, places: tuple[tuple[int, ...], ...]) -> Array:
    """The kernels [O, I, ...] of one phase of a transposed convolution with weights [I, O / groups, ...]: the given places."""
    inputs, outputs = w.shape[:2]
    part = w
    for axis, chosen in enumerate(places, 2):
        part = part.take(np.array(chosen, np.int64), axis=axis)
    grouped = part.reshape(groups, inputs // groups, outputs, *part.shape[2:]).swapaxes(1, 2)
    return np.ascontiguousarray(grouped).reshape(groups * outputs, inputs // groups, *part.shape[2:])
