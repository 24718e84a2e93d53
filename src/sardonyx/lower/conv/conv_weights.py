"""Weights of convolutions in the order kernels read them.

Constants are packed by transforms (see `program.constants`): what they make is shared and can be kept on disk. Computed weights
are packed by copy steps of the program.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.lower.derived import numbers
from sardonyx.lower.lowering import LowerContext
from sardonyx.program.constants import Cut, transform
from sardonyx.program.steps import View
from sardonyx.records import dataclass

_GROUPED_RANK: Final = 6


@dataclass(frozen=True)
class Sets:
    """How the output channels of a group are divided: `count` sets of `width`, the last one of `last` (padded) channels."""

    count: int
    width: int
    last: int

    def ranges(self) -> list[tuple[int, int, int]]:
        """(first set, end, width): whole sets, then one that is not."""
        if self.last == self.width:
            return [(0, self.count, self.width)]
        whole = [(0, self.count - 1, self.width)] if self.count > 1 else []
        return [*whole, (self.count - 1, self.count, self.last)]


def _set_cuts(w: Array, outputs: int, sets: Sets, *block: int) -> tuple[Cut, ...]:
    """Sets of the only group, or whole groups."""
    return (Cut(0, 0, sets.width) if w.shape[0] <= outputs else Cut(0, 0, outputs, sets.count),)


def _of_part(w: Array, outputs: int, sets: Sets) -> tuple[int, Sets]:
    """The groups and sets of kernels [O, ...]: all of them, some whole sets of one group, or some whole groups."""
    groups, outputs = max(w.shape[0] // outputs, 1), min(w.shape[0], outputs)
    return groups, Sets(-(-outputs // sets.width), sets.width, sets.last if outputs % sets.width else sets.width)


@transform("pack_conv_direct", 2, _set_cuts, is_numbers=True)
def pack_direct(w: Array, outputs: int, sets: Sets, block: int) -> Array:
    """[O, I, planes, rows, columns] for blocked input; a group has so many `outputs`.

    One row for each group and set of output channels; in it [iteration][tap][input lane][output channel of the set]. A last block
    of input channels that is not full is a shorter iteration; output channels past the last are zero.
    """
    groups, sets = _of_part(w, outputs, sets)
    inputs, taps = w.shape[1], int(np.prod(w.shape[2:]))
    grouped = _grouped(w, groups, sets).reshape(groups, sets.count * sets.width, inputs, taps)
    packed = np.empty((groups, sets.count, taps * inputs * sets.width), np.float32)
    packed[:, -1, taps * inputs * sets.last :] = 0
    whole = inputs // block * block
    for first, end, width in sets.ranges():
        start, count = first * sets.width, end - first
        lanes = grouped[:, start : start + count * width].reshape(groups, count, width, inputs, taps)
        iterations = lanes[:, :, :, :whole].reshape(groups, count, width, inputs // block, block, taps)
        tail = lanes[:, :, :, whole:]
        edge, stop = taps * whole * width, taps * inputs * width
        packed[:, first:end, :edge] = iterations.transpose(0, 1, 3, 5, 4, 2).reshape(groups, count, edge)
        packed[:, first:end, edge:stop] = tail.transpose(0, 1, 4, 3, 2).reshape(groups, count, stop - edge)
    return packed.reshape(groups * sets.count, taps * inputs * sets.width)


@transform("pack_conv_plain", 2, _set_cuts, is_numbers=True)
def pack_plain(w: Array, outputs: int, sets: Sets) -> Array:
    """[O, I, planes, rows, columns] for plain input: in a set [input channel][plane][row][column][output channel of the set]."""
    groups, sets = _of_part(w, outputs, sets)
    inner = int(np.prod(w.shape[1:]))
    grouped = _grouped(w, groups, sets)
    packed = np.empty((groups, sets.count, inner * sets.width), np.float32)
    packed[:, -1, inner * sets.last :] = 0
    for first, end, width in sets.ranges():
        start, count = first * sets.width, end - first
        lanes = grouped[:, start : start + count * width].reshape(groups, count, width, inner)
        packed[:, first:end, : inner * width] = lanes.transpose(0, 1, 3, 2).reshape(groups, count, inner * width)
    return packed.reshape(groups * sets.count, inner * sets.width)


def _grouped(w: Array, groups: int, sets: Sets) -> Array:
    """The kernels by group and output channel, with zeros for channels that are not there."""
    outputs, inner = w.shape[0] // groups, int(np.prod(w.shape[1:]))
    if outputs == sets.count * sets.width:
        return w.reshape(groups, outputs, inner)
    grouped = np.zeros((groups, sets.count * sets.width, inner), np.float32)
    grouped[:, :outputs] = w.reshape(groups, outputs, inner)
    return grouped


def _lane_cuts(w: Array, block: int) -> tuple[Cut, ...]:
    return (Cut(0, 0, block),)


@transform("pack_conv_lanes", 1, _lane_cuts, is_numbers=True)
def pack_lanes(w: Array, block: int) -> Array:
    """[C, group, planes, rows, columns] of a depthwise or lane-grouped convolution as [block][tap][group lane][lane]."""
    channels, group = w.shape[:2]
    blocks = -(-channels // block)
    taps = int(np.prod(w.shape[2:]))
    padded = np.zeros((blocks * block, group, taps), np.float32)
    padded[:channels] = w.reshape(channels, group, taps)
    return np.ascontiguousarray(padded.reshape(blocks, block, group, taps).transpose(0, 3, 2, 1))


def _narrow_cuts(w: Array, block: int) -> tuple[Cut, ...]:
    return (Cut(1, 0, block),)


@transform("pack_conv_narrow", 1, _narrow_cuts, is_numbers=True)
def pack_narrow(w: Array, block: int) -> Array:
    """[O, I, planes, rows, columns] with input channels as lanes: [block][plane][row][column][output][lane]."""
    outputs, inputs = w.shape[:2]
    blocks = -(-inputs // block)
    padded = np.zeros((outputs, blocks * block, int(np.prod(w.shape[2:]))), np.float32)
    padded[:, :inputs] = w.reshape(outputs, inputs, -1)
    return np.ascontiguousarray(padded.reshape(outputs, blocks, block, -1).transpose(1, 3, 0, 2))


@transform("pack_conv_bias", 1, is_numbers=True)
def pack_bias(b: Array | None, groups: int, outputs: int, block: int) -> Array:
    """A bias for every lane: zero where there is no channel. `outputs` counts the channels of a group."""
    blocks = -(-outputs // block)
    packed = np.zeros((groups, blocks * block), np.float32)
    if b is not None:
        packed[:, :outputs] = b.reshape(groups, outputs)
    return packed.reshape(-1)


def _phase_cuts(w: Array, group_inputs: int, kept_taps: tuple[tuple[int, ...], ...]) -> tuple[Cut, ...]:
    """Inputs or outputs of the only group, or whole groups."""
    return (Cut(0, 1), Cut(1, 0)) if w.shape[0] <= group_inputs else (Cut(0, 0, group_inputs, w.shape[1]),)


@transform("conv_transpose_phase", 2, _phase_cuts, is_numbers=True)
def transposed_phase(w: Array, group_inputs: int, kept_taps: tuple[tuple[int, ...], ...]) -> Array:
    """The kernels [O, I, ...] of one phase of a transposed convolution with weights [I, O / groups, ...]: the given taps."""
    inputs, outputs = w.shape[:2]
    groups = max(inputs // group_inputs, 1)
    part = w
    for axis, chosen in enumerate(kept_taps, 2):
        part = part.take(np.array(chosen, np.int64), axis=axis)
    grouped = part.reshape(groups, inputs // groups, outputs, *part.shape[2:]).swapaxes(1, 2)
    return np.ascontiguousarray(grouped).reshape(groups * outputs, inputs // groups, *part.shape[2:])


def by_group(w: View, groups: int) -> View:
    """Kernels [O, I, planes, rows, columns] as [groups, O / groups, I, planes, rows, columns]; those that are so already stay."""
    if len(w.shape) == _GROUPED_RANK:
        return w
    outputs = int(str(w.shape[0])) // groups
    return View(w.buffer, (groups, outputs, *w.shape[1:]), (outputs * w.strides[0], *w.strides), w.offset)


def pack_computed(ctx: LowerContext, w: View, groups: int, sets: Sets, block: int, *, filled: bool = False) -> View:
    """What `pack_direct` (or, without a block, `pack_plain`) does, for weights that are computed; they may have any strides.

    Output channels past the last are not written, as they end in lanes nobody reads; those that are `filled` are zero.
    """
    w = by_group(w, groups)
    _, outputs, inputs, *kernel = numbers(w.shape)
    group, output, input_, *tap = w.strides
    planes, rows, columns = kernel
    taps = planes * rows * columns
    size = taps * inputs * sets.width
    packed = ctx.scratch(dtypes.FLOAT32, (groups * sets.count, size), "packed weights")
    whole = inputs // block * block if block else 0

    def copy(first: int, count: int, width: int, lanes: int) -> None:
        """Some sets, of which so many channels exist."""
        source, target = w.offset + first * sets.width * output, first * size
        apart = (sets.count * size, size)

        def inner(run: int) -> tuple[int, ...]:
            """Strides of planes, rows and columns of kernels whose runs are so long, of inputs and of lanes."""
            return (rows * columns * run * width, columns * run * width, run * width, width, 1)

        if whole:
            shape = (groups, count, inputs // block, *kernel, block, lanes)
            strides = (group, width * output, block * input_, *tap, input_, output)
            made = (*apart, taps * block * width, *inner(block))
            ctx.copy(View(w.buffer, shape, strides, source), View(packed.buffer, shape, made, target), "pack weights")
        if block and inputs > whole:
            left = inputs - whole
            shape = (groups, count, *kernel, left, lanes)
            given = View(w.buffer, shape, (group, width * output, *tap, input_, output), source + whole * input_)
            ctx.copy(given, View(packed.buffer, shape, (*apart, *inner(left)), target + taps * whole * width), "pack weights")
        if not block:
            shape = (groups, count, inputs, *kernel, lanes)
            given = View(w.buffer, shape, (group, width * output, input_, *tap, output), source)
            strides = (*apart, taps * width, rows * columns * width, columns * width, width, 1)
            ctx.copy(given, View(packed.buffer, shape, strides, target), "pack weights")

    for first, end, width in sets.ranges():
        left = outputs - first * sets.width
        full = min(end - first, left // width)
        if full:
            copy(first, full, width, width)
        if full < end - first:
            lanes = left - full * width
            copy(first + full, 1, width, lanes)
            if filled:
                missing = (groups, taps * inputs, width - lanes)
                at = (first + full) * size + lanes
                nothing = View(ctx.literal(np.zeros(1, np.float32)).buffer, missing, (0, 0, 0))
                ctx.copy(nothing, View(packed.buffer, missing, (sets.count * size, width, 1), at), "pack weights")
    return packed


def pack_computed_lanes(ctx: LowerContext, w: View, block: int) -> View:
    """What `pack_lanes` does for a depthwise convolution whose weights [C, 1, 1, planes, rows, columns] are computed."""
    channels, _, _, *kernel = numbers(w.shape)
    channel, _, _, *tap = w.strides
    planes, rows, columns = kernel
    taps = planes * rows * columns
    packed = ctx.scratch(dtypes.FLOAT32, (-(-channels // block), taps, 1, block), "packed weights")
    whole = channels // block
    inner = (rows * columns * block, columns * block, block, 1)
    for first, count, lanes in ((0, whole, block), (whole, 1, channels - whole * block)):
        if count and lanes:
            shape = (count, *kernel, lanes)
            given = View(w.buffer, shape, (block * channel, *tap, channel), w.offset + first * block * channel)
            made = View(packed.buffer, shape, (taps * block, *inner), first * taps * block)
            ctx.copy(given, made, "pack weights")
    return packed
