"""What follows an If whose sides have different ranks is computed on each side.

    y = If(c) <then (a), else (b)>                  =>   z = If(c) <then (Relu(a)), else (Relu(b))>
    z = Relu(y)

Behind such an If no rank is known and nothing can be compiled; on either side all ranks are. Exporters write them for code that
asks for the number of axes, or for cases that never come. Runs before the types are inferred that other passes rely on. Refuses:
sides whose ranks are the same or not known; a tail of many nodes, which would be there twice, or with bodies of its own: a row of
Ifs would double with each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value, captured_values
from sardonyx.passes.protocol import PassResult
from sardonyx.passes.rewriter import all_graphs
from sardonyx.records import dataclass

_MOST_NODES: Final = 100


@dataclass(frozen=True)
class SinkIntoBranches:
    """The nodes behind an If of several ranks move into its sides."""

    name: ClassVar[str] = "SinkIntoBranches"
    ort_names: ClassVar[tuple[str, ...]] = ()
    roots: ClassVar[frozenset[str]] = frozenset(("If",))

    def run(self, model: Model) -> PassResult:
        """One walk over all Ifs, inner ones first: what is behind one may be the side of another."""
        reasons: list[str] = []
        changes = 0
        for graph in reversed(all_graphs(model)):
            for node in list(graph.nodes):
                if node.graph is not graph or not _has_several_ranks(node):
                    continue
                tail = _tail(graph, node)
                if isinstance(tail, str):
                    reasons.append(f"{node.label}: {tail}")
                else:
                    _sink(graph, node, tail, _fresh_names(model))
                    changes += 1
        if changes:
            infer_shapes(model)
        return PassResult(changes > 0, tuple(reasons), changes)


def _sides(node: Node) -> list[Graph]:
    return [side for side in (node.attr(name) for name in ("then_branch", "else_branch")) if isinstance(side, Graph)]


def _has_several_ranks(node: Node) -> bool:
    if node.op_type != "If" or node.domain != ONNX_DOMAIN:
        return False
    for outputs in zip(*(side.outputs for side in _sides(node))):
        shapes = [value.shape for value in outputs]
        if None not in shapes and len({len(shape or ()) for shape in shapes}) > 1:
            return True
    return False


def _tail(graph: Graph, node: Node) -> list[Node] | str:
    """The nodes that need a result of an If, in order; or why they stay where they are."""
    needed: set[Value] = set(node.outputs)
    tail: list[Node] = []
    behind = False
    for other in graph.nodes:
        behind = behind or other is node
        if not behind or other is node:
            continue
        inside = {value for body in other.subgraphs() for value in captured_values(body)}
        if needed & inside:
            return f"{other.label}, which has a body, needs a result"
        if needed.intersection(value for value in other.inputs if value is not None):
            if inside or any(True for _ in other.subgraphs()):
                return f"{other.label} has a body of its own"
            tail.append(other)
            needed.update(other.outputs)
    if len(tail) > _MOST_NODES:
        return f"{len(tail)} nodes behind it would be there twice"
    return tail if tail else "nothing is behind it"


def _fresh_names(model: Model) -> Callable[[str], str]:
    taken = {value.name for graph in all_graphs(model) for value in (*graph.inputs, *graph.initializers.values())}
    taken.update(value.name for graph in all_graphs(model) for node in graph.nodes for value in node.outputs)

    def fresh(name: str) -> str:
        number = 1
        while f"{name}_{number}" in taken:
            number += 1
        taken.add(f"{name}_{number}")
        return f"{name}_{number}"

    return fresh


def _sink(graph: Graph, node: Node, tail: list[Node], fresh: Callable[[str], str]) -> None:
    made = {value for each in (node, *tail) for value in each.outputs}
    kept = list(dict.fromkeys(value for value in graph.outputs if value in made))
    for side in _sides(node):
        cloner = Cloner(dict(zip(node.outputs, side.outputs)), fresh, fresh)
        for each in tail:
            copy = side.append(cloner.node(each))
            for value in copy.outputs:
                value.type = None  # that of the old place, where less was known
        side.outputs[:] = [cloner.values[value] or value for value in kept]
    results = {value: Value(value.name, value.type) for value in kept}
    graph.outputs[:] = [results.get(value, value) for value in graph.outputs]
    for each in reversed(tail):
        graph.remove(each)
    graph.detach(node)  # nothing needs it any more, but it needs what its tail did
    graph.append(node)
    node.outputs[:] = results.values()
    for index, value in enumerate(node.outputs):
        value.producer, value.index = node, index
