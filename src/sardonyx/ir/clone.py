"""Copies of nodes and graphs, with subgraphs and all.

A copy has values and nodes of its own. What lies outside of the copied part, as the outer values a subgraph captures, is shared
unless `values` says what stands for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace

from sardonyx.ir.graph import Attr, AttrKind, Graph, Node, Value
from sardonyx.ir.types import Type
from sardonyx.records import dataclass


@dataclass
class Cloner:
    """Makes copies that belong together: a value met twice is copied once.

    `values` maps old values to new ones (None: the value does not exist any more, its readers omit the input). The functions say
    what becomes of the name of a value, the name of a node, an attribute (None drops it) and a type.
    """

    values: dict[Value, Value | None] = field(default_factory=dict)
    name_of: Callable[[str], str] = lambda name: name
    node_name_of: Callable[[str], str] = lambda name: name
    attr_of: Callable[[Attr], Attr | None] = lambda attr: attr
    type_of: Callable[[Type], Type] = lambda type_: type_

    def value(self, old: Value) -> Value:
        """The copy of a value that the copied part defines."""
        found = self.values.get(old)
        if found is None:
            name = self.name_of(old.name) if old.name else ""
            found = Value(name, None if old.type is None else self.type_of(old.type), old.constant)
            found.device = old.device
            found.doc = old.doc
            found.metadata = dict(old.metadata)
            self.values[old] = found
        return found

    def node(self, old: Node) -> Node:
        """A copy of a node that stands in no graph yet; the values it reads have been copied."""
        attrs = [self._attr(attr) for attr in old.attrs.values()]
        new = Node(
            old.op_type,
            [None if value is None else self.values.get(value, value) for value in old.inputs],
            [self.value(output) for output in old.outputs],
            [attr for attr in attrs if attr is not None],
            domain=old.domain,
            version=old.version,
            name=self.node_name_of(old.name) if old.name else "",
            overload=old.overload,
        )
        new.doc = old.doc
        new.metadata = dict(old.metadata)
        new.priority, new.part_of, new.position = old.priority, old.part_of, old.position
        new.is_kept = old.is_kept
        for graph in new.subgraphs():
            graph.parent_node = new
        return new

    def _attr(self, old: Attr) -> Attr | None:
        attr = self.attr_of(old)
        if attr is None or attr.value is None:
            return attr
        if attr.kind is AttrKind.GRAPH:
            return replace(attr, value=self.graph(attr.value))
        if attr.kind is AttrKind.GRAPHS:
            return replace(attr, value=tuple(self.graph(graph) for graph in attr.value))
        return attr

    def graph(self, old: Graph) -> Graph:
        """A copy of a graph. What is inside is forgotten afterwards: the same graph can be copied again."""
        new = Graph(old.name)
        new.doc = old.doc
        new.metadata = dict(old.metadata)
        new.stated_outputs, new.size_checks = old.stated_outputs, old.size_checks
        new.inputs = [self.value(value) for value in old.inputs]
        for value in old.initializers.values():
            copy = self.value(value)
            new.initializers[copy.name] = copy
        for node in old.nodes:
            new.append(self.node(node))
        for value in old.outputs:
            output = self.values.get(value, value)
            if output is None:
                raise ValueError(f"graph {old.name!r} gives out {value.name!r}, which does not exist here")
            new.outputs.append(output)
        for defined in (old.inputs, old.initializers.values(), *(node.outputs for node in old.nodes)):
            for value in defined:
                self.values.pop(value, None)
        return new


def clone_graph(graph: Graph) -> Graph:
    """A copy of a whole graph under the same names."""
    return Cloner().graph(graph)
