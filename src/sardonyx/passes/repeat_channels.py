"""Channels that several outputs of a grouped convolution read are repeated, so that every output has a channel of its own.

    y = Conv(x: [n, c, ...], w: [2 c, 1, ...]) {group = c}     =>   r = Gather(x, [0, 0, 1, 1, ...]) {axis = 1}
                                                                    y = Conv(r, w) {group = 2 c}

Depthwise convolutions with a multiplier, and other small groups with more outputs than inputs, fit no blocks: each group would
have a block to itself, most of whose lanes are empty. Groups with as many outputs as inputs stay in their lanes. Runs right
before AssignLayout. Refuses: groups whose outputs fill half a block, or are no multiple of their inputs.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass
from sardonyx.target.levels import generic
from sardonyx.target.target import Target


@dataclass(frozen=True)
class _Grouped:
    source: Value
    groups: int
    inputs: int  # of a group
    outputs: int


@dataclass(frozen=True)
class RepeatChannels(Rule[_Grouped]):
    """Small groups get as many inputs as they have outputs."""

    target: Target = generic("x86-64-v3")  # the pipeline sets it to what code is made for
    name: ClassVar[str] = "RepeatChannels"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Conv",))

    def match(self, g: Rewriter, node: Node) -> _Grouped | None:
        groups = int(node.attr("group", 1))
        x, weights = node.inputs[0], g.constant_of(node.inputs[1])
        if groups < 2 or x is None or weights is None or dtype_of(x) is not dtypes.FLOAT32 or len(weights.shape) < 3:
            return None
        inputs, outputs = weights.shape[1], weights.shape[0] // groups
        return _Grouped(x, groups, inputs, outputs) if outputs > inputs else None

    def check(self, g: Rewriter, found: _Grouped) -> Any:
        lanes = self.target.lanes
        if found.outputs > lanes // 2:
            return Reject(f"groups of {found.outputs} outputs fill their blocks")
        if found.outputs % found.inputs or lanes % found.inputs:
            return Reject(f"groups of {found.inputs} and {found.outputs} channels do not fit blocks of {lanes} either way")
        return found.outputs // found.inputs

    def rewrite(self, g: Rewriter, found: _Grouped, facts: Any) -> None:
        node, times = g.anchor, int(facts)
        channels = np.arange(found.groups * found.inputs, dtype=np.int64).reshape(found.groups, 1, found.inputs)
        repeated = np.ascontiguousarray(np.broadcast_to(channels, (found.groups, times, found.inputs))).reshape(-1)
        x = g.op("Gather", found.source, g.constant(repeated, "channels"), axis=1)
        g.replace(node.outputs[0], g.clone(node, [x, *node.inputs[1:]], group=found.groups * times)[0])
