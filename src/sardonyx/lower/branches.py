"""Ifs whose two sides become part of the program around them.

The nodes of both sides stand in the list of nodes, those of the first side before those of the second, then the If itself, which
only collects results. Every step knows the side it is on (its region); a switch step before them lets the steps of one
side run and gives those of the other nothing to do. So an If costs no more than a step, and a Loop around it stays native.

Only small Ifs are taken apart: both sides are compiled and keep their constants, whichever is taken. An If one of whose
sides needs Python, or holds only for some sizes, stays whole: its sides are programs of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import field
from typing import Final, TypeAlias

from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType
from sardonyx.lower.groups import Region, is_native
from sardonyx.records import dataclass

Order: TypeAlias = Callable[[Graph], Sequence[Node]]

_MOST_NODES: Final = 100  # of both sides
_MOST_BYTES: Final = 1 << 20  # of constants in both


@dataclass(frozen=True)
class Flattened:
    """The nodes of a graph in order, with the nodes of small Ifs' branches among them."""

    nodes: list[Node] = field(default_factory=list)
    regions: dict[Node, Region] = field(default_factory=dict)  # of nodes on a side
    merges: set[Node] = field(default_factory=set)  # the Ifs whose sides are in the list


def sides(node: Node) -> tuple[tuple[bool, Graph], tuple[bool, Graph]]:
    """The graphs of an If, with the condition each is for."""
    first, second = (node.attr(name) for name in ("then_branch", "else_branch"))
    assert isinstance(first, Graph)
    assert isinstance(second, Graph)
    return (True, first), (False, second)


def flatten(nodes: Sequence[Node], order: Order, whole: Set[Node]) -> Flattened:
    """The nodes, with those of small Ifs' sides; those in `whole` are left as they are."""
    made = Flattened()
    _flatten(made, nodes, (), order, whole)
    return made


def _flatten(made: Flattened, nodes: Sequence[Node], region: Region, order: Order, whole: Set[Node]) -> None:
    for node in nodes:
        if node not in whole and _is_small_if(node):
            for holds, graph in sides(node):
                _flatten(made, order(graph), (*region, (node, holds)), order, whole)
            made.merges.add(node)
        made.nodes.append(node)
        if region:
            made.regions[node] = region


def _is_small_if(node: Node) -> bool:
    """Whether an If is small, and its results have the same types whichever side is taken."""
    if node.op_type != "If" or node.domain:
        return False
    condition = node.inputs[0] if node.inputs else None
    if condition is None or not is_native(condition) or condition.constant is not None:
        return False
    assert isinstance(condition.type, TensorType)
    if condition.type.dtype.name != "bool" or any(size != 1 for size in condition.shape or ()):
        return False
    graphs = [graph for _, graph in sides(node)]
    if any(graph.inputs or graph.size_checks or len(graph.outputs) != len(node.outputs) for graph in graphs):
        return False
    for results in zip(node.outputs, *(graph.outputs for graph in graphs)):
        if not all(is_native(value) for value in results) or len({_kind(value) for value in results}) != 1:
            return False
    return _size(graphs) <= _MOST_NODES and sum(map(_constant_bytes, graphs)) <= _MOST_BYTES


def _kind(value: Value) -> tuple[str, object]:
    assert isinstance(value.type, TensorType)
    return value.type.dtype.name, value.type.shape


def _size(graphs: Sequence[Graph]) -> int:
    """How many nodes some graphs have, with all inside them."""
    return sum(len(graph) + sum(_size(node.subgraphs()) for node in graph.nodes) for graph in graphs)


def _constant_bytes(graph: Graph) -> int:
    constants = (value.constant for value in graph.initializers.values())
    own = sum(constant.size * constant.dtype.bits // 8 for constant in constants if isinstance(constant, Tensor))
    return own + sum(_constant_bytes(inner) for node in graph.nodes for inner in node.subgraphs())
