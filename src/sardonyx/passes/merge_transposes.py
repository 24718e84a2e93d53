"""One Transpose for two in a row.

    y = Transpose(Transpose(x, p), q)     =>   y = Transpose(x, p[q]); if that moves nothing, readers of y read x

The first one may go on serving others: the second reads past it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sardonyx.ir.graph import Node
from sardonyx.passes.protocol import Reject, Rule, is_standard
from sardonyx.passes.rewriter import Rewriter, attr_ints
from sardonyx.records import dataclass


def permutation(node: Node) -> tuple[int, ...] | None:
    """The order of axes of a Transpose; None if the node is no Transpose, or a wrong one."""
    value = node.inputs[0] if node.inputs else None
    if node.op_type != "Transpose" or not is_standard(node) or value is None or value.shape is None:
        return None
    rank = len(value.shape)
    perm = attr_ints(node, "perm")
    perm = tuple(reversed(range(rank))) if perm is None else perm
    return perm if sorted(perm) == list(range(rank)) else None


def compose(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The permutation that does one Transpose after another."""
    return tuple(first[axis] for axis in second)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


@dataclass(frozen=True)
class MergeTransposes(Rule[Node]):
    """Two Transposes become one or none."""

    name: ClassVar[str] = "MergeTransposes"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Transpose",))

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        first = node.inputs[0].producer if node.inputs[0] is not None else None
        return first if first is not None and permutation(first) is not None and permutation(node) is not None else None

    def check(self, g: Rewriter, found: Node) -> Any:
        first, second = permutation(found), permutation(g.anchor)
        assert first is not None
        assert second is not None
        return compose(first, second)

    def rewrite(self, g: Rewriter, found: Node, perm: Any) -> None:
        source, output = found.inputs[0], g.anchor.outputs[0]
        assert source is not None
        if perm == tuple(range(len(perm))) and g.can_replace(output, source):
            g.replace(output, source)
        else:
            g.replace(output, g.op("Transpose", source, perm=perm))
