"""Lists that a loop appends to and that are joined behind it become results that the loop stacks.

    s = Loop(4, true, SequenceEmpty()) <body (i, c, q) => (c, SequenceInsert(q, y))>
    z = ConcatFromSequence(s) {axis = 1, new_axis = 1}

    =>   z = Transpose(Loop(4, true) <body (i, c) => (c, y)>) {perm = (1, 0, ..)}

Scripted modules write recurrent cells like that: a list, `append`, `stack` or `cat`. A loop that carries a sequence goes through
Python in every iteration. Refuses: numbers of iterations that are not known, or 0 (nothing cannot be joined), loops that may end
early, elements of a rank that is not known or, for `cat`, of sizes that are not known (they may differ).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Node, Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

GIVEN = 2  # inputs of a Loop and of its body before the carried values


@dataclass(frozen=True)
class Appended:
    """A sequence or a tensor that a loop carries, and what every iteration appends to it."""

    loop: Node
    body: Graph
    position: int  # among the carried values
    insert: Node
    element: Value


@dataclass(frozen=True)
class _Joined:
    """How the stacked elements are joined."""

    count: int  # of iterations
    element: TensorType
    shape: Shape  # of an element
    axis: int
    is_new: bool


@dataclass(frozen=True)
class FormScanOutputs(ShapingRule[Appended]):
    """Ensures: what a loop of known length appends to an empty sequence in every iteration is stacked by the loop itself."""

    name: ClassVar[str] = "FormScanOutputs"
    roots: ClassVar[frozenset[str]] = frozenset(("ConcatFromSequence",))

    def match(self, g: Rewriter, node: Node) -> Appended | Reject | None:
        value = node.inputs[0]
        loop = None if value is None else value.producer
        if value is None or loop is None or loop.domain != ONNX_DOMAIN or loop.op_type != "Loop":
            return None
        body, position = loop.attr("body"), value.index
        if not isinstance(body, Graph) or len(loop.outputs) != len(body.outputs) - 1 or position >= len(loop.inputs) - GIVEN:
            return None
        start, carried, handed_on = loop.inputs[GIVEN + position], body.inputs[GIVEN + position], body.outputs[1 + position]
        first, insert = None if start is None else start.producer, handed_on.producer
        if first is None or first.op_type != "SequenceEmpty" or insert is None or insert.op_type != "SequenceInsert":
            return None
        element = insert.inputs[1]
        if insert.graph is not body or insert.inputs[0] is not carried or element is None:
            return None
        if len(insert.inputs) > 2 and insert.inputs[2] is not None:
            return Reject("elements are put in at a place")
        if not g.is_private(value) or not g.is_private(carried) or handed_on.uses or body.outputs.count(handed_on) != 1:
            return Reject("the sequence is read elsewhere, too")
        return Appended(loop, body, position, insert, element)

    def check(self, g: Rewriter, found: Appended) -> Any:
        """How the elements are joined, or why it must stay."""
        loop, node = found.loop, g.anchor
        count = g.number(loop.inputs[0])
        if count is None or count < 1:
            return Reject("the number of iterations is not known")
        if not is_always_true(g, loop.inputs[1]) or not is_always_true(g, found.body.outputs[0], found.body.inputs[1]):
            return Reject("the loop may end early")
        element, is_new = found.element.type, bool(node.attr("new_axis", 0))
        if not isinstance(element, TensorType) or element.shape is None:
            return Reject("the rank of the elements is not known")
        rank = len(element.shape) + is_new
        axis = node.attr("axis", 0)
        if not -rank <= axis < rank:
            return Reject("there is no such axis")
        if not is_new and not all(isinstance(size, int) and size > 0 for size in element.shape):
            return Reject("the sizes of the elements are not known")
        return _Joined(int(count), element, element.shape, axis % rank, is_new)

    def rewrite(self, g: Rewriter, found: Appended, facts: _Joined) -> None:
        start = found.loop.inputs[GIVEN + found.position]
        stacked = stack_elements(g, found)
        if start is not None and start.producer is not None:
            g.discard(start.producer)
        stacked.type = TensorType(facts.element.dtype, (facts.count, *facts.shape))
        axis, rank = facts.axis, len(facts.shape)
        result = stacked
        if axis:
            result = g.op("Transpose", stacked, perm=(*range(1, axis + 1), 0, *range(axis + 1, rank + 1)))
        if not facts.is_new:
            sizes = [size for size in facts.shape if isinstance(size, int)]
            sizes[axis] *= facts.count
            result = g.op("Reshape", result, g.constant(np.array(sizes, np.int64), "shape"))
        g.replace(g.anchor.outputs[0], result)


def is_always_true(g: Rewriter, value: Value | None, given: Value | None = None) -> bool:
    """Whether a condition is always true; `given` is the one that an iteration is given, which has been true."""
    while value is not None and value is not given and value.producer is not None and value.producer.op_type == "Identity":
        value = value.producer.inputs[0]
    if value is None or value is given:
        return True
    held = g.array(value)
    return held is not None and held.size == 1 and bool(held.item())


def stack_elements(g: Rewriter, found: Appended) -> Value:
    """Have the loop stack the elements instead of carrying what they are appended to; the value of all."""
    loop, body, position, element = found.loop, found.body, found.position, found.element
    if element in body.outputs or element.producer is None or element.producer.graph is not body:
        element = Value(g.fresh_name("element"), element.type)
        body.insert_before(found.insert, Node("Identity", [found.element], [element], version=found.insert.version))
    handed_on = body.outputs[1 + position]
    if body.stated_outputs:
        stated = list(body.stated_outputs)
        del stated[1 + position]
        body.stated_outputs = (*stated, element.type)
    del body.inputs[GIVEN + position], body.outputs[1 + position]
    body.outputs.append(element)
    g.outputs.discard(handed_on)
    g.outputs.add(element)
    body.remove(found.insert)
    loop.replace_inputs([value for index, value in enumerate(loop.inputs) if index != GIVEN + position])
    stacked = Value(g.fresh_name("stacked"))
    loop.outputs[position].producer = None
    loop.outputs = [*(value for index, value in enumerate(loop.outputs) if index != position), stacked]
    for index, value in enumerate(loop.outputs):
        value.producer, value.index = loop, index
    return stacked
