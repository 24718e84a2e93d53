"""Grouped convolutions whose groups fit no blocks are written so that they do.

    y = Conv(x: [n, c, ...], w: [2 c, 1, ...]) {group = c}     =>   r = Gather(x, [0, 0, 1, 1, ...]) {axis = 1}
                                                                    y = Conv(r, w) {group = 2 c}
    y = Conv(x: [n, 4 c, ...], w: [2 c, 4, ...]) {group = c}   =>   r = Conv(x, w with two zero outputs more a group)
                                                                    y = Gather(r, [0, 1, 4, 5, 8, ...]) {axis = 1}
                                                                    (with 3 inputs a group: of x with zero channels)
    y = Conv(x, w: [3 o, i, 1, 1]) {group = 3}                 =>   y = Reshape(MatMul(w as [3, o, i], x as [n, 3, i, h w]))
    y = ConvTranspose(x, w) {group = 3}                        =>   y = Concat(ConvTranspose(x0, w0), ...) {axis = 1}

Depthwise convolutions with a multiplier, and other small groups with more or fewer outputs than inputs, would have a block for
every group, most of whose lanes are empty. Groups with as many outputs as inputs stay in their lanes, so every output gets a
channel of its own, and outputs that are missing are computed and left out. Groups of 3 x 3 that nearly fill whole blocks (24
channels of 32) get zeros as well: Winograd's tiles save more than they cost. Groups of single pixels that fit neither way are
products of matrices, whose vectors are pixels; those of transposed convolutions are computed one by one: there is no kernel for
them. Runs right before AssignLayout. Refuses: other groups of a Conv that would fill more than half a block, unless they are
single pixels, and, of images of unknown size, those that would need channels of zeros.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, origin_of
from sardonyx.ops.indexing.layout import fits_blocks
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass
from sardonyx.target.levels import generic
from sardonyx.target.target import Target

_PAD_BY_INPUT: Final = 11  # version of Pad from which on pads are an input
_MOST_FILLED: Final = 1.5  # times the channels of a group that a kernel of whole blocks may have
_MOST_APART: Final = 64  # groups that are computed one by one: each is several steps


@dataclass(frozen=True)
class _Grouped:
    source: Value
    groups: int
    inputs: int  # of a group
    outputs: int
    lanes: int

    @property
    def times(self) -> int:
        """How often its inputs are repeated."""
        return self.outputs // self.inputs

    @property
    def filled(self) -> int:
        """A power of two that has room for its inputs, and for its outputs; of large groups whole blocks."""
        most = max(self.inputs, self.outputs)
        return 1 << (most - 1).bit_length() if most <= self.lanes // 2 else -(-most // self.lanes) * self.lanes

    @property
    def has_known_pixels(self) -> bool:
        """Whether the size of its image is known, and not nothing."""
        return self.source.shape is not None and all(isinstance(size, int) and size > 0 for size in self.source.shape[2:])


@dataclass(frozen=True)
class FitGroups(Rule[_Grouped]):
    """Groups get as many inputs as outputs, or are computed one by one."""

    target: Target = generic("x86-64-v3")  # the pipeline sets it to what code is made for
    name: ClassVar[str] = "FitGroups"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Conv", "ConvTranspose"))

    def match(self, g: Rewriter, node: Node) -> _Grouped | None:
        groups = int(node.attr("group", 1))
        x, weights = node.inputs[0], g.constant_of(node.inputs[1])
        if groups < 2 or x is None or weights is None or dtype_of(x) is not dtypes.FLOAT32 or len(weights.shape) < 3:
            return None
        first, second = weights.shape[0] // groups, weights.shape[1]
        is_conv = node.op_type == "Conv"
        lanes = self.target.lanes
        found = _Grouped(x, groups, second, first, lanes) if is_conv else _Grouped(x, groups, first, second, lanes)
        if 0 in weights.shape or weights.shape[0] % groups or fits_blocks(groups, found.inputs, found.outputs, self.target.lanes):
            return None
        return found

    def check(self, g: Rewriter, found: _Grouped) -> Any:
        lanes, bias = self.target.lanes, g.anchor.inputs[2] if len(g.anchor.inputs) > 2 else None
        if found.inputs < lanes and found.filled == found.inputs and found.outputs < found.inputs:
            write = _filled_up
        elif lanes % found.inputs == 0 and found.outputs % found.inputs == 0 and found.outputs <= lanes // 2:
            write = _repeated
        elif g.anchor.op_type == "Conv" and found.has_known_pixels and _is_pointwise(g.anchor):
            write = _product
        elif self._can_fill(g, found):
            write = _filled_up
        elif g.anchor.op_type == "Conv":
            return Reject(f"groups of {found.inputs} and {found.outputs} channels do not fit blocks of {lanes} either way")
        elif found.groups > _MOST_APART:
            return Reject(f"its {found.groups} groups of {found.inputs} and {found.outputs} channels would be a layer each")
        else:
            write = _apart
        data = g.array(g.anchor.inputs[1])
        if data is None or (bias is not None and g.constant_of(bias) is None):
            return Reject("its weights or its bias are not constant")
        return write, data

    def _can_fill(self, g: Rewriter, found: _Grouped) -> bool:
        """Whether channels of zeros can be put into the image, and are worth it."""
        if not found.has_known_pixels or g.version < _PAD_BY_INPUT:
            return False
        return found.filled <= self.target.lanes // 2 or _fills_blocks(g.anchor, found)

    def rewrite(self, g: Rewriter, found: _Grouped, facts: Any) -> None:
        write, data = facts
        g.replace(g.anchor.outputs[0], write(g, found, data))


def _repeated(g: Rewriter, found: _Grouped, data: Array) -> Value:
    """The convolution of groups with as many outputs as inputs."""
    node, groups, times = g.anchor, found.groups, found.times
    channels = np.arange(groups * found.inputs, dtype=np.int64).reshape(groups, 1, found.inputs)
    repeated = np.ascontiguousarray(np.broadcast_to(channels, (groups, times, found.inputs))).reshape(-1)
    x = g.op("Gather", found.source, g.constant(repeated, "channels"), axis=1)
    weights = node.inputs[1]
    if node.op_type == "ConvTranspose":  # [inputs, outputs of a group]: the outputs of each repetition are columns
        parts = data.reshape(groups, found.inputs, times, found.inputs, *data.shape[2:]).swapaxes(1, 2)
        origin = origin_of("repeat channels", [g.constant_of(weights)], (times,))
        weights = g.constant(np.ascontiguousarray(parts).reshape(-1, found.inputs, *data.shape[2:]), "weights", origin)
    return g.clone(node, [x, weights, *node.inputs[2:]], group=groups * times)[0]


def _filled_up(g: Rewriter, found: _Grouped, data: Array) -> Value:
    """The convolution of groups with as many outputs as inputs, a power of two: what is missing is zero, or left out."""
    node, groups, inputs, outputs, size = g.anchor, found.groups, found.inputs, found.outputs, found.filled
    weights, *bias = node.inputs[1:]
    own = (outputs, inputs) if node.op_type == "Conv" else (inputs, outputs)
    split = data.reshape(groups, *own, -1)
    filled = _with_zeros(_with_zeros(split, 1, size), 2, size).reshape(groups * size, size, *data.shape[2:])
    origin = origin_of("fill groups up", [g.constant_of(weights)], (groups,))
    x = found.source if size == inputs else _with_channels(g, found)
    operands: list[Value | None] = [x, g.constant(filled, "weights", origin)]
    if bias and bias[0] is not None:
        summands = g.array(bias[0])
        assert summands is not None
        operands.append(g.constant(_with_zeros(summands.reshape(groups, outputs), 1, size).reshape(-1), "bias"))
    (made,) = g.clone(node, operands)
    if size == outputs:
        return made
    wanted = np.arange(groups * size, dtype=np.int64).reshape(groups, size)[:, :outputs].reshape(-1)
    return g.op("Gather", made, g.constant(np.ascontiguousarray(wanted), "channels"), axis=1)


def _with_channels(g: Rewriter, found: _Grouped) -> Value:
    """The image with channels of zeros behind those of each group."""
    assert found.source.shape is not None
    sizes = [int(str(size)) for size in found.source.shape[2:]]
    groups, inputs, size = found.groups, found.inputs, found.filled
    split = g.op("Reshape", found.source, g.constant(np.array([0, groups, inputs, prod(sizes)], np.int64), "shape"))
    behind = g.constant(np.array([0, 0, 0, 0, 0, 0, size - inputs, 0], np.int64), "pads")
    return g.op("Reshape", g.op("Pad", split, behind), g.constant(np.array([0, groups * size, *sizes], np.int64), "shape"))


def _fills_blocks(node: Node, found: _Grouped) -> bool:
    """Whether zeros make whole blocks of groups, and kernels of 3 x 3 make up for multiplying them (Winograd)."""
    window = node.inputs[1].shape if node.inputs[1] is not None else None
    is_tiled = node.op_type == "Conv" and window is not None and window[2:] == (3, 3) and set(node.attr("strides") or (1,)) == {1}
    return is_tiled and found.inputs == found.outputs and found.filled <= _MOST_FILLED * found.inputs


def _is_pointwise(node: Node) -> bool:
    """Whether windows are single pixels, and every pixel has one."""
    window = node.inputs[1].shape if node.inputs[1] is not None else None
    if window is None or any(size != 1 for size in window[2:]):
        return False
    return not any(node.attr("pads") or ()) and all(step == 1 for step in node.attr("strides") or ())


def _product(g: Rewriter, found: _Grouped, data: Array) -> Value:
    """The product of each group's weights with its pixels."""
    node, groups, inputs, outputs = g.anchor, found.groups, found.inputs, found.outputs
    assert found.source.shape is not None
    sizes = [int(str(size)) for size in found.source.shape[2:]]
    origin = origin_of("reshape", [g.constant_of(node.inputs[1])], (groups, outputs, inputs))
    matrices = g.constant(data.reshape(groups, outputs, inputs), "matrices", origin)
    columns = g.op("Reshape", found.source, g.constant(np.array([0, groups, inputs, prod(sizes)], np.int64), "shape"))
    made = g.op("MatMul", matrices, columns)
    bias = g.array(node.inputs[2]) if len(node.inputs) > 2 else None
    if bias is not None:
        made = g.op("Add", made, g.constant(bias.reshape(groups, outputs, 1), "bias"))
    return g.op("Reshape", made, g.constant(np.array([0, groups * outputs, *sizes], np.int64), "shape"))


def _with_zeros(array: Array, axis: int, size: int) -> Array:
    """An array with zeros behind what it has on an axis."""
    more = [(0, 0)] * array.ndim
    more[axis] = (0, size - array.shape[axis])
    return np.pad(array, more)


def _apart(g: Rewriter, found: _Grouped, data: Array) -> Value:
    """A transposed convolution for every group."""
    node, groups = g.anchor, found.groups
    held = g.constant_of(node.inputs[1])
    bias = g.array(node.inputs[2]) if len(node.inputs) > 2 else None
    sizes = [found.inputs] * groups
    if g.version >= 13:
        parts = g.node("Split", [found.source, g.constant(np.array(sizes, np.int64), "sizes")], groups, axis=1)
    else:
        parts = g.node("Split", [found.source], groups, axis=1, split=sizes)
    results = []
    for number, part in enumerate(parts):
        rows = slice(number * found.inputs, (number + 1) * found.inputs)
        columns = slice(number * found.outputs, (number + 1) * found.outputs)
        own = origin_of("one group", [held], (number, groups))
        inputs: list[Value | None] = [part, g.constant(np.ascontiguousarray(data[rows]), "weights", own)]
        if bias is not None:
            inputs.append(g.constant(np.ascontiguousarray(bias[columns]), "bias"))
        results.append(g.clone(node, inputs, group=1)[0])
    return g.op("Concat", *results, axis=1)
