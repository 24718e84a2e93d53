"""Grouped convolutions whose groups fit no blocks are written so that they do.

    y = Conv(x: [n, c, ...], w: [2 c, 1, ...]) {group = c}     =>   r = Gather(x, [0, 0, 1, 1, ...]) {axis = 1}
                                                                    y = Conv(r, w) {group = 2 c}
    y = ConvTranspose(x, w) {group = 3}                        =>   y = Concat(ConvTranspose(x0, w0), ...) {axis = 1}

Depthwise convolutions with a multiplier, and other small groups with more outputs than inputs, would have a block for every
group, most of whose lanes are empty. Groups with as many outputs as inputs stay in their lanes, so every output gets a channel of
its own. Groups of transposed convolutions that fit neither way are computed one by one: there is no kernel for them. Runs right
before AssignLayout. Refuses: groups of a Conv whose outputs fill half a block, or are no multiple of their inputs.
"""

from __future__ import annotations

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

_MOST_APART: Final = 64  # groups that are computed one by one: each is several steps


@dataclass(frozen=True)
class _Grouped:
    source: Value
    groups: int
    inputs: int  # of a group
    outputs: int

    @property
    def times(self) -> int:
        """How often its inputs are repeated."""
        return self.outputs // self.inputs


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
        found = _Grouped(x, groups, second, first) if is_conv else _Grouped(x, groups, first, second)
        if 0 in weights.shape or weights.shape[0] % groups or fits_blocks(groups, found.inputs, found.outputs, self.target.lanes):
            return None
        return found if found.outputs > found.inputs or not is_conv else None

    def check(self, g: Rewriter, found: _Grouped) -> Any:
        lanes, bias = self.target.lanes, g.anchor.inputs[2] if len(g.anchor.inputs) > 2 else None
        is_repeated = found.outputs % found.inputs == 0 and lanes % found.inputs == 0 and found.outputs <= lanes // 2
        if g.anchor.op_type == "Conv" and not is_repeated:
            return Reject(f"groups of {found.inputs} and {found.outputs} channels do not fit blocks of {lanes} either way")
        if not is_repeated and found.groups > _MOST_APART:
            return Reject(f"its {found.groups} groups of {found.inputs} and {found.outputs} channels would be a layer each")
        data = g.array(g.anchor.inputs[1])
        if data is None or (bias is not None and g.constant_of(bias) is None):
            return Reject("its weights or its bias are not constant")
        return is_repeated, data

    def rewrite(self, g: Rewriter, found: _Grouped, facts: Any) -> None:
        is_repeated, data = facts
        g.replace(g.anchor.outputs[0], _repeated(g, found, data) if is_repeated else _apart(g, found, data))


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
