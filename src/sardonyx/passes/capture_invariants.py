"""Let the body of a Loop or Scan read what never changes from outside.

    y, w2 = Loop(n, c, x, w) <body (i, c, s, v) => (c, MatMul(s, v), v)>    =>    the same with MatMul(s, w)

A carried value that every iteration hands on as it got it is the initial one in every iteration. Converters carry weights like
that: read from outside they are constants, and can be packed once. The carried value itself stays, and costs nothing. A copy that
an iteration hands on (Identity, a Reshape to the same shape) is the value itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.remove_no_ops import RemoveIdentity, RemoveNoOps
from sardonyx.passes.rewriter import Rewriter, all_graphs
from sardonyx.records import dataclass


@dataclass(frozen=True)
class CaptureInvariants:
    """Carried values that do not change are read where they come from."""

    name: ClassVar[str] = "CaptureInvariants"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("Loop", "Scan"))

    def run(self, model: Model) -> PassResult:
        """One walk over all loops."""
        changes = 0
        g = Rewriter(model)
        for graph in all_graphs(model):
            for node in graph.nodes:
                for inner, outer in _invariants(g, node):
                    for user, position in list(inner.uses):
                        user.set_input(position, outer)
                        changes += 1
        return PassResult(changes > 0, (), changes)


def _invariants(g: Rewriter, node: Node) -> Iterator[tuple[Value, Value]]:
    """The values a loop's body takes that are the same in every iteration, with where they come from."""
    body = node.attr("body")
    if node.domain != ONNX_DOMAIN or not isinstance(body, Graph):
        return
    if node.op_type == "Loop":
        first, skipped, count = 2, 1, len(node.inputs) - 2
    elif node.op_type == "Scan" and node.version >= 9:  # those before have an axis for batches
        first, skipped, count = 0, 0, len(node.inputs) - (node.attr("num_scan_inputs") or 0)
    else:
        return
    taken = body.inputs[first : first + count]
    for position, (inner, outer) in enumerate(zip(taken, node.inputs[first:]), skipped):
        if outer is not None and position < len(body.outputs) and _is_handed_on(g, inner, body.outputs[position]):
            body.outputs[position] = inner
            yield inner, outer


def _is_handed_on(g: Rewriter, taken: Value, given: Value) -> bool:
    """Whether an iteration gives what it takes, or a copy of it."""
    while given is not taken and given.producer is not None:
        node = given.producer
        rule = RemoveIdentity() if node.op_type == "Identity" else RemoveNoOps()
        if node.domain != ONNX_DOMAIN or node.op_type not in rule.roots:
            return False
        found = rule.match(g.at(node), node)
        if not isinstance(found, Value):
            return False
        given = found
    return given is taken
