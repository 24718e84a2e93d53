"""Names for the values of a graph that is to be written.

In the IR a value is an object and its name a label; in a file the name is all there is. A value keeps its name unless it has
none or another value that can be seen from the same place took it before; then it gets a new one. The names of the main
graph's inputs and outputs are its interface and never change.
"""

from __future__ import annotations

from collections.abc import Iterable

from sardonyx.errors import InvalidArgument
from sardonyx.ir.graph import Graph, Value


def file_names(graph: Graph) -> dict[Value, str]:
    """The name of every value in a graph and its subgraphs; results nobody uses may have the empty name."""
    names: dict[Value, str] = {}
    taken: list[dict[str, Value]] = [{}]
    for role, values in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        for value in values:
            holder = taken[0].setdefault(value.name, value)
            if holder is not value or not value.name:
                what = f"two {role} are called {value.name!r}" if value.name else f"one of its {role} has no name"
                raise InvalidArgument(f"graph {graph.name!r} cannot be written: {what}")
            names[value] = value.name
    _name_graph(graph, names, taken)
    return names


def _name_graph(graph: Graph, names: dict[Value, str], taken: list[dict[str, Value]]) -> None:
    """Name the values of a graph, then those of its subgraphs; `taken` are the names in sight, of this graph last."""
    _name(graph.inputs, names, taken, required=True)
    _name(graph.initializers.values(), names, taken, required=True)
    outputs = set(graph.outputs)
    for node in graph.nodes:
        for value in node.outputs:
            _name((value,), names, taken, required=bool(value.uses) or value in outputs)
    for node in graph.nodes:
        for subgraph in node.subgraphs():
            _name_graph(subgraph, names, [*taken, {}])


def _name(values: Iterable[Value], names: dict[Value, str], taken: list[dict[str, Value]], *, required: bool) -> None:
    own = taken[-1]
    for value in values:
        if value in names:
            continue
        name = value.name
        if not name and not required:
            names[value] = ""
            continue
        if not name or any(name in scope for scope in taken):
            base, number = name or "value", len(names)
            while any((name := f"{base}_{number}") in scope for scope in taken):
                number += 1
        own[name] = value
        names[value] = name
