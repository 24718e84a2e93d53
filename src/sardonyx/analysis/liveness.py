"""When a value is used for the last time, so that its memory can be given back."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.graph import Graph, Node, Value, captured_values


def used_values(node: Node) -> list[Value]:
    """What a node reads: its inputs, then what its subgraphs capture from the graphs around them; each once."""
    used = dict.fromkeys(value for value in node.inputs if value is not None)
    for graph in node.subgraphs():
        used.update(dict.fromkeys(captured_values(graph)))
    return list(used)


def releases(graph: Graph, order: Sequence[Node]) -> list[tuple[Value, ...]]:
    """For each node of an order, the values nobody reads after it.

    They are inputs of the graph and results of its nodes. Outputs of the graph, initializers and values of outer graphs live on
    and are never listed; a result that nobody reads is released by the node that makes it, an unused input by none.
    """
    last = {output: position for position, node in enumerate(order) for output in node.outputs}
    own = {*last, *(value for value in graph.inputs if value.constant is None)}.difference(graph.outputs)
    for position, node in enumerate(order):
        for value in used_values(node):
            if value in own:
                last[value] = position
    result: list[list[Value]] = [[] for _ in order]
    for value, position in last.items():
        if value in own:
            result[position].append(value)
    return [tuple(values) for values in result]
