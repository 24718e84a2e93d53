"""The default order, of kernels: depth first backwards over groups of nodes, as ONNX Runtime orders the nodes that it has fused.

    shortcut = Conv(x)                          nodes:    shortcut, a, b, c: of two inputs the one that stands later goes first
    a = Relu(Conv(x))   b = Relu(Conv(a))       kernels:  a, b, shortcut, c: x dies with the shortcut, which dies at once
    c = Add(Conv(b), shortcut)

ONNX Runtime orders a graph anew when its nodes were rewritten, and a node that was made of others is added at the end: it stands
behind all that are as the model has them, and new nodes stand as those did that they were made of. Where nothing is rewritten or
fused, the order of kernels is that of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.analysis.liveness import used_values
from sardonyx.ir.graph import Graph, Node
from sardonyx.lower.groups import Group, Grouping
from sardonyx.ops.registry import Trait, traits
from sardonyx.plan.order import has_yield, post_order


def kernel_order(graph: Graph, nodes: Sequence[Node], grouping: Grouping) -> list[Node]:
    """Nodes in the default order, given how they are grouped, so that their kernels stand in the default order, too."""
    if has_yield(graph) or any(node.priority for node in nodes):
        return list(nodes)
    groups = grouping.groups
    positions = {id(group): index for index, group in enumerate(groups)}
    producers = [_producers(group, grouping, positions) for group in groups]
    read = {index for found in producers for index in found}
    behind = max((node.position for node in nodes), default=0) + 1

    def number(index: int) -> int:
        first, *others = groups[index].nodes
        return first.position if first.position >= 0 and not others else behind + index

    leaves = sorted((index for index in range(len(groups)) if index not in read), key=number)
    measuring: dict[int, list[int]] = {}  # Shape and Size run right after what they measure
    for index, group in enumerate(groups):
        if len(group.nodes) == 1 and len(producers[index]) == 1 and Trait.MEASURES in traits(group.nodes[0]):
            measuring.setdefault(producers[index][0], []).append(index)
    order: dict[int, None] = {}
    for index in post_order(producers, leaves, number):
        if index not in order:
            order[index] = None
            order.update(dict.fromkeys(measuring.get(index, ())))
    return _with_others([node for index in order for node in groups[index].nodes], nodes)


def _with_others(kept: Sequence[Node], nodes: Sequence[Node]) -> list[Node]:
    """Some of the nodes in an order of their own, and each of the others right before the first that reads it, or at the end."""
    inside = set(nodes)
    order: dict[Node, None] = {}
    for node in (*kept, *nodes):
        stack = [node]
        while stack:
            last = stack[-1]
            needed = [value.producer for value in used_values(last)] if last not in order else []
            missing = [each for each in needed if each is not None and each in inside and each not in order]
            if missing:
                stack += missing
            else:
                order[stack.pop()] = None
    return list(order)


def _producers(group: Group, grouping: Grouping, positions: dict[int, int]) -> list[int]:
    """The groups that make what a group reads, each once."""
    found: dict[int, None] = {}
    for node in group.nodes:
        for value in used_values(node):
            producer = None if value.producer is None else grouping.group_of.get(value.producer)
            if producer is not None and producer is not group:
                found[positions[id(producer)]] = None
    return list(found)
