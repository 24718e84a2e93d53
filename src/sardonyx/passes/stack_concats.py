"""A tensor that a loop makes longer in every iteration becomes a result that the loop stacks.

    y = Loop(n, go, x) <body (i, c, v) => (c, Concat(v, e) {axis = 0})>

    =>   y = Concat(x, Reshape(Loop(n, go) <body (i, c) => (c, e)>))

Scripted decoders keep what they have found like that: paths of Viterbi, tokens, frames. Every iteration copied all that was
there, and sizes that grow keep a loop from running as one native program. Runs after UnrollLoops; a loop may end early. Refuses:
tensors that the body reads elsewhere, elements whose sizes are not known to fit in every iteration.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.passes.form_scan_outputs import GIVEN, Appended, stack_elements
from sardonyx.passes.protocol import Reject, is_standard
from sardonyx.passes.rewriter import Rewriter
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

_VERSION: Final = 14  # from here on Reshape can be told that a size is 0


@dataclass(frozen=True, slots=True)
class _Growing:
    appended: Appended
    start: Value
    axis: int
    step: int  # elements along the axis that an iteration adds


@dataclass(frozen=True)
class StackConcats(ShapingRule[_Growing]):
    """Ensures: no loop carries a tensor only to append something to it in every iteration."""

    name: ClassVar[str] = "StackConcats"
    roots: ClassVar[frozenset[str]] = frozenset(("Loop",))
    needs: ClassVar[frozenset[str]] = frozenset(("Concat",))
    rounds: ClassVar[int] = 4  # one of the carried values at a time

    def match(self, g: Rewriter, node: Node) -> _Growing | Reject | None:
        body = node.attr("body")
        if not isinstance(body, Graph) or len(node.outputs) != len(body.outputs) - 1 or node.version < _VERSION:
            return None
        reasons = []
        for position in range(len(node.inputs) - GIVEN):
            found = _growing(g, node, body, position)
            if isinstance(found, _Growing):
                return found
            if found is not None:
                reasons.append(found)
        return reasons[0] if reasons else None

    def rewrite(self, g: Rewriter, found: _Growing, facts: Any) -> None:
        loop, axis = found.appended.loop, found.axis
        old = loop.outputs[found.appended.position]
        stacked = stack_elements(g, found.appended)
        behind = Node("Identity", [stacked], [Value(g.fresh_name("behind"))], version=loop.version)
        g.graph.insert_after(loop, behind)
        g.at(behind)
        assert found.start.shape is not None
        rank = len(found.start.shape)

        def numbers(*values: int) -> Value:
            return g.constant(np.array(values, np.int64), "numbers")

        def sizes(of: Value, first: int, end: int) -> list[Value]:
            return [g.op("Slice", g.op("Shape", of), numbers(first), numbers(end), numbers(0))] if first < end else []

        (count,) = sizes(stacked, 0, 1)
        shape = [*sizes(found.start, 0, axis), g.op("Mul", count, numbers(found.step)), *sizes(found.start, axis + 1, rank)]
        if axis:
            stacked = g.op("Transpose", stacked, perm=(*range(1, axis + 1), 0, *range(axis + 1, rank + 1)))
        joined = g.op("Reshape", stacked, g.op("Concat", *shape, axis=0), allowzero=1)
        g.replace(old, g.op("Concat", found.start, joined, axis=axis))
        g.discard(behind)


def _growing(g: Rewriter, loop: Node, body: Graph, position: int) -> _Growing | Reject | None:
    """What is appended to the carried value of a position."""
    start, carried, handed_on = loop.inputs[GIVEN + position], body.inputs[GIVEN + position], body.outputs[1 + position]
    concat = handed_on.producer
    if start is None or concat is None or concat.graph is not body or concat.op_type != "Concat" or not is_standard(concat):
        return None
    if len(concat.inputs) != 2 or concat.inputs[0] is not carried or concat.inputs[1] in (None, carried):
        return None
    element = concat.inputs[1]
    assert element is not None
    if not g.is_private(carried) or handed_on.uses or body.outputs.count(handed_on) != 1:
        return Reject("the tensor that grows is read elsewhere, too")
    if start.shape is None or not isinstance(element.type, TensorType) or element.shape is None:
        return Reject("the rank of what is appended is not known")
    rank = len(element.shape)
    axis = concat.attr("axis", 0)
    if len(start.shape) != rank or not -rank <= axis < rank:
        return Reject("what is appended does not fit")
    axis %= rank
    step = element.shape[axis]
    others = zip(
        (*start.shape[:axis], *start.shape[axis + 1 :]), (*element.shape[:axis], *element.shape[axis + 1 :]), strict=True
    )
    if not isinstance(step, int) or any(size != own for size, own in others):
        return Reject("what is appended may not fit in every iteration")
    return _Growing(Appended(loop, body, position, concat, element), start, axis, step)
