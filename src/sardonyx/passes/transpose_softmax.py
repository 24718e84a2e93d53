"""Softmax along an axis with few elements behind it is computed along the last axis.

    y = Softmax(x: f32[N,196,4]) {axis = 1}   =>   y = Transpose(Softmax(Transpose(x)) {axis = 2}), both with {perm = [0, 2, 1]}

Rows that lie apart are computed side by side, a lane for each: with four of them most lanes are empty (38,416 numbers in rows of
196, 4 side by side: 96 us; this way 23). Runs after PushTransposes. Refuses: as many rows side by side as fill a vector, short
rows, sizes that are not known.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Final

from sardonyx import dtypes
from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of
from sardonyx.records import dataclass
from sardonyx.target.levels import generic
from sardonyx.target.target import Target

_SHORT: Final = 16  # elements of a row that a Transpose would not pay for
_PLAIN_AXES: Final = 13  # before, all axes from the given one on were one


@dataclass(frozen=True)
class TransposeSoftmax(Rule[int]):
    """Ensures: no Softmax of many short columns that leave lanes empty."""

    target: Target = generic("x86-64-v3")  # the pipeline sets it to what code is made for
    name: ClassVar[str] = "TransposeSoftmax"
    roots: ClassVar[frozenset[str]] = frozenset(("LogSoftmax", "Softmax"))

    def match(self, g: Rewriter, node: Node) -> int | Reject | None:
        x = node.inputs[0]
        if x is None or not x.shape or node.version < _PLAIN_AXES or dtype_of(x) is not dtypes.FLOAT32:
            return None
        axis = node.attr("axis", -1) % len(x.shape)
        length = x.shape[axis]
        behind = [size for size in x.shape[axis + 1 :] if isinstance(size, int)]
        if len(behind) < len(x.shape) - axis - 1 or not 1 < prod(behind) < self.target.lanes:
            return None
        return None if isinstance(length, int) and length < _SHORT else axis

    def rewrite(self, g: Rewriter, found: int, facts: Any) -> None:
        node = g.anchor
        x = node.inputs[0]
        assert x is not None
        assert x.shape is not None
        rank = len(x.shape)
        there = (*range(found), *range(found + 1, rank), found)
        back = (*range(found), rank - 1, *range(found, rank - 1))
        transposed = g.clone(node, [g.op("Transpose", x, perm=there)], axis=rank - 1)[0]
        g.replace(node.outputs[0], g.op("Transpose", transposed, perm=back))
