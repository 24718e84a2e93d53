"""What follows an If whose sides have different ranks is computed on each side, until the ranks are the same again.

    y = If(c) <then (a: f32[]), else (b: f32[1])>   =>   z = If(c) <then (Add(a, [1])), else (Add(b, [1]))>
    z = Add(y, [1])                                      w = Relu(z)
    w = Relu(z)

Behind such an If no rank is known and nothing can be compiled; on either side all ranks are. Exporters write them for code that
asks for the number of axes, or for cases that never come. Runs before the types are inferred that other passes rely on. Refuses:
sides whose ranks are the same or not known; a tail of many nodes, which would be there twice, or with bodies of its own: a row of
Ifs would double with each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from sardonyx.analysis.shapes import infer_shapes, report_shapes
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import ONNX_DOMAIN, Graph, Model, Node, Value, captured_values
from sardonyx.ir.types import TensorType, Type
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
        graphs = all_graphs(model)
        changes = sink_tails(graphs, _fresh_names(graphs), reasons)
        if changes:
            infer_shapes(model)
        return PassResult(changes > 0, tuple(reasons), changes)


def sink_tails(graphs: Sequence[Graph], fresh: Callable[[str], str], reasons: list[str]) -> int:
    """Sink what is behind Ifs of some graphs, which are listed from the outside inwards; how many Ifs have changed.

    Types of values are those of the old places afterwards, or none. `fresh` makes names that are free.
    """
    changes = 0
    for graph in reversed(graphs):
        for node in list(graph.nodes):
            if node.graph is not graph or not _has_several_ranks(node):
                continue
            tail = _tail(graph, node)
            if isinstance(tail, str):
                reasons.append(f"{node.label}: {tail}")
            else:
                _sink(graph, node, tail, fresh)
                changes += 1
    return changes


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


@dataclass(frozen=True)
class _Tail:
    """The nodes that need a result of an If, in order, and which of them are computed on its sides."""

    dependents: list[Node]
    sunk: set[Node]


def _tail(graph: Graph, node: Node) -> _Tail | str:
    """The nodes behind an If that move into its sides; or why they stay where they are."""
    dependents = _dependents(graph, node)
    agreed = _agreed_values(node, dependents)
    several = {value for value in node.outputs if value not in agreed}
    sunk: set[Node] = set()
    for other, read in dependents.items():
        if not read.isdisjoint(several):
            if any(True for _ in other.subgraphs()):
                return f"{other.label}, which has a body, needs a result"
            sunk.add(other)
            several.update(value for value in other.outputs if value not in agreed)
    leading = {value for other in sunk for value in other.inputs}
    for other, read in reversed(dependents.items()):
        if other not in sunk and not leading.isdisjoint(other.outputs):  # it stands between the If and what moves
            if any(True for _ in other.subgraphs()):
                return f"{other.label} has a body of its own"
            sunk.add(other)
            leading.update(read)
    if len(sunk) > _MOST_NODES:
        return f"{len(sunk)} nodes behind it would be there twice"
    return _Tail(list(dependents), sunk) if sunk else "nothing is behind it"


def _dependents(graph: Graph, node: Node) -> dict[Node, set[Value | None]]:
    """The nodes that need a result of an If, in order, each with all that it and its bodies read."""
    needed: set[Value] = set(node.outputs)
    found: dict[Node, set[Value | None]] = {}
    behind = False
    for other in graph.nodes:
        if behind:
            read = {*other.inputs, *(value for body in other.subgraphs() for value in captured_values(body))}
            if not needed.isdisjoint(read):
                found[other] = read
                needed.update(other.outputs)
        behind = behind or other is node
    return found


def _agreed_values(node: Node, dependents: Iterable[Node]) -> set[Value]:
    """The results of an If, and what nodes without bodies make of them, that have one known rank on all sides."""
    ranks: dict[Value, set[int | None]] = {}
    for side in _sides(node):
        trial = Graph()
        trial.inputs = [Value(value.name, value.type) for value in side.outputs]
        cloner = Cloner(dict(zip(node.outputs, trial.inputs)))
        unknown: set[Value | None] = set()
        for each in dependents:
            if any(True for _ in each.subgraphs()) or not unknown.isdisjoint(each.inputs):
                unknown.update(each.outputs)
                continue
            for value in trial.append(cloner.node(each)).outputs:
                value.type = without_shape(value.type)
        types = report_shapes(trial).types
        for old, new in cloner.values.items():
            type_ = None if new is None else types.get(new)
            known = isinstance(type_, TensorType) and type_.shape is not None
            ranks.setdefault(old, set()).add(len(type_.shape or ()) if known and isinstance(type_, TensorType) else None)
        for each in trial.nodes:
            each.replace_inputs([])  # values outside are read by it no more
    return {value for value, found in ranks.items() if len(found) == 1 and None not in found}


def without_shape(type_: Type | None) -> Type | None:
    """A type of which no more is known than the elements."""
    return TensorType(type_.dtype, None) if isinstance(type_, TensorType) else type_


def _fresh_names(graphs: Sequence[Graph]) -> Callable[[str], str]:
    taken = {value.name for graph in graphs for value in (*graph.inputs, *graph.initializers.values())}
    taken.update(value.name for graph in graphs for node in graph.nodes for value in node.outputs)

    def fresh(name: str) -> str:
        number = 1
        while f"{name}_{number}" in taken:
            number += 1
        taken.add(f"{name}_{number}")
        return f"{name}_{number}"

    return fresh


def _sink(graph: Graph, node: Node, tail: _Tail, fresh: Callable[[str], str]) -> None:
    staying = [each for each in tail.dependents if each not in tail.sunk]
    sunk = [each for each in tail.dependents if each in tail.sunk]
    outside = {value for each in staying for body in each.subgraphs() for value in captured_values(body)}
    outside.update(value for each in staying for value in each.inputs if value is not None)
    outside.update(graph.outputs)
    kept = [value for each in (node, *sunk) for value in each.outputs if value in outside]
    for side in _sides(node):
        cloner = Cloner(dict(zip(node.outputs, side.outputs)), fresh, fresh)
        for each in sunk:
            copy = side.append(cloner.node(each))
            for value in copy.outputs:
                value.type = None  # that of the old place, where less was known
        side.outputs[:] = [cloner.values[value] or value for value in kept]
    for each in reversed(sunk):
        each.outputs.clear()  # those that are kept are results of the If now
        graph.remove(each)
    for each in (node, *staying):  # what the If needs now may stand in between
        graph.detach(each)
        graph.append(each)
    node.outputs[:] = kept
    for index, value in enumerate(node.outputs):
        value.producer, value.index = node, index
