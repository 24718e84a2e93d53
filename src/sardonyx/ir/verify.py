"""Is a graph consistent? Reports every violation at once; tests run it after every pass.

It looks at the structure only: links between nodes, values and uses, scopes, names, kinds of attributes. Whether operators,
types and shapes make sense is the matter of `analysis.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Node, SparseConstant, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType
from sardonyx.records import dataclass

_TYPES: Final = (TensorType, SparseTensorType, SequenceType, OptionalType, MapType)
_HOLDS: Final[dict[AttrKind, tuple[type, ...]]] = {
    AttrKind.OPAQUE: (object,),
    AttrKind.FLOAT: (float,),
    AttrKind.INT: (int,),
    AttrKind.STRING: (str,),
    AttrKind.TENSOR: (Tensor,),
    AttrKind.GRAPH: (Graph,),
    AttrKind.FLOATS: (float,),
    AttrKind.INTS: (int,),
    AttrKind.STRINGS: (str,),
    AttrKind.TENSORS: (Tensor,),
    AttrKind.GRAPHS: (Graph,),
    AttrKind.SPARSE_TENSOR: (SparseConstant,),
    AttrKind.SPARSE_TENSORS: (SparseConstant,),
    AttrKind.TYPE_PROTO: _TYPES,
    AttrKind.TYPE_PROTOS: _TYPES,
}


def verify(root: Graph | Model) -> list[str]:
    """All violations in a graph with its subgraphs, or in a model with its functions; empty if there are none.

    A graph that is itself a subgraph may read the values of the graphs around it.
    """
    if isinstance(root, Graph):
        return _Verifier().run(root)
    problems = _Verifier().run(root.graph)
    for key, function in root.functions.items():
        if key != (function.domain, function.name, function.overload):
            problems.append(f"function {function.domain}::{function.name} is listed as {key}")
        problems.extend(f"function {function.domain}::{function.name}: {text}" for text in _Verifier().run(function.graph))
    return problems


@dataclass
class _Verifier:
    problems: list[str] = field(default_factory=list)
    visible: set[Value] = field(default_factory=set)
    reached: set[Node] = field(default_factory=set)
    values: dict[Value, None] = field(default_factory=dict)
    graphs: set[Graph] = field(default_factory=set)

    def run(self, root: Graph) -> list[str]:
        outer = root.parent_node.graph if root.parent_node is not None else None
        while outer is not None:
            self.visible.update(outer.inputs, outer.initializers.values())
            self.visible.update(value for node in _linked(outer) for value in node.outputs)
            outer = outer.parent_node.graph if outer.parent_node is not None else None
        stack = [self._graph(root)]
        while stack:
            inner = next(stack[-1], None)
            if inner is None:
                stack.pop()
            elif inner in self.graphs:
                self.problems.append(f"graph {inner.name!r} hangs on more than one attribute")
            else:
                stack.append(self._graph(inner))
        self._check_uses()
        return self.problems

    def _graph(self, graph: Graph) -> Iterator[Graph]:
        """Check one graph; gives out each subgraph to be checked before the walk goes on."""
        self.graphs.add(graph)

        def report(text: str) -> None:
            self.problems.append(f"graph {graph.name!r}: {text}")

        defined: list[Value] = []
        names: dict[str, Value] = {}

        def define(value: Value) -> None:
            if value.name and names.setdefault(value.name, value) is not value:
                report(f"two values are called {value.name!r}")
            defined.append(value)
            self.visible.add(value)
            self.values[value] = None

        self._check_inputs(graph, define, report)
        self._check_links(graph, report)
        for node in _linked(graph):
            if node in self.reached:
                report(f"{node.label} stands in the list more than once")
            self.reached.add(node)
            self._check_node(node, graph, report)
            yield from node.subgraphs()
            for index, value in enumerate(node.outputs):
                if value.producer is not node or value.index != index:
                    report(f"{node.label}: output {index} {value.name!r} names another producer or position")
                if value in self.visible:
                    report(f"{node.label}: output {index} {value.name!r} is defined already")
                define(value)
        for value in graph.outputs:
            if value not in self.visible:
                report(f"output {value.name!r} is not defined")
        self.visible.difference_update(defined)

    @staticmethod
    def _check_inputs(graph: Graph, define: Callable[[Value], None], report: Callable[[str], None]) -> None:
        for value in graph.inputs:
            if value.producer is not None:
                report(f"input {value.name!r} is produced by {value.producer.label}")
            define(value)
        if len(set(graph.inputs)) != len(graph.inputs):
            report("an input is listed twice")
        for name, value in graph.initializers.items():
            if name != value.name:
                report(f"initializer {value.name!r} is listed as {name!r}")
            if value.producer is not None:
                report(f"initializer {value.name!r} is produced by {value.producer.label}")
            if value.constant is None:
                report(f"initializer {value.name!r} has no data")
            elif value.type is not None and not _type_fits(value):
                report(f"initializer {value.name!r} is {value.type}, but its data is {_constant_text(value.constant)}")
            if value not in graph.inputs:
                define(value)

    @staticmethod
    def _check_links(graph: Graph, report: Callable[[str], None]) -> None:
        previous: Node | None = None
        count = 0
        for node in _linked(graph):
            count += 1
            if node.graph is not graph:
                report(f"{node.label} stands in the list, but names another graph as its own")
            if node._prev is not previous:
                report(f"{node.label} does not link back to the node before it")
            previous = node
        if graph._last is not previous:
            report("the last node of the list is not where the list ends")
        if count != len(graph):
            report(f"the list has {count} nodes, but counts {len(graph)}")

    def _check_node(self, node: Node, graph: Graph, report: Callable[[str], None]) -> None:
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            self.values[value] = None
            if (node, index) not in value.uses:
                report(f"{node.label}: input {index} {value.name!r} does not list this use")
            if value not in self.visible:
                report(f"{node.label}: input {index} {value.name!r} is not defined before it")
        for name, attr in node.attrs.items():
            if name != attr.name:
                report(f"{node.label}: attribute {attr.name!r} is listed as {name!r}")
            problem = _attr_problem(attr)
            if problem:
                report(f"{node.label}: attribute {attr.name!r} {problem}")
        for inner in node.subgraphs():
            if inner.parent_node is not node:
                report(f"{node.label}: subgraph {inner.name!r} names another node as its parent")

    def _check_uses(self) -> None:
        for value in self.values:
            for node, index in value.uses:
                if index >= len(node.inputs) or node.inputs[index] is not value:
                    self.problems.append(f"value {value.name!r} lists input {index} of {node.label} as a use; it reads another")
                elif node not in self.reached and value not in self.visible:
                    self.problems.append(f"value {value.name!r} is used by {node.label}, which stands in no graph here")


def _linked(graph: Graph) -> Iterator[Node]:
    """The nodes as linked, whatever graph they name; ends if the links run in a circle."""
    node, seen = graph._first, 0
    while node is not None and seen <= len(graph):
        yield node
        node, seen = node._next, seen + 1


def _attr_problem(attr: Attr) -> str:
    if attr.ref:
        return f"refers to {attr.ref!r} and has a value too" if attr.value is not None else ""
    is_list = attr.kind.name.endswith("S")
    if is_list and not isinstance(attr.value, tuple):
        return f"is of kind {attr.kind.name}, but holds {_kind_text(attr.value)}"
    for item in attr.value if is_list else (attr.value,):
        if not isinstance(item, _HOLDS[attr.kind]) or isinstance(item, bool):
            return f"is of kind {attr.kind.name}, but holds {_kind_text(item)}"
    return ""


def _kind_text(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__


def _type_fits(value: Value) -> bool:
    constant, type_ = value.constant, value.type
    if isinstance(constant, SparseConstant):
        known = isinstance(type_, (SparseTensorType, TensorType)) and type_.dtype is constant.values.dtype
    else:
        known = isinstance(type_, TensorType) and constant is not None and type_.dtype is constant.dtype
    if not known or constant is None or not isinstance(type_, (TensorType, SparseTensorType)):
        return False
    if type_.shape is None:
        return True
    return len(type_.shape) == len(constant.shape) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(type_.shape, constant.shape, strict=True)
    )


def _constant_text(constant: Tensor | SparseConstant) -> str:
    dtype = constant.values.dtype if isinstance(constant, SparseConstant) else constant.dtype
    return f"{dtype.name}[{','.join(map(str, constant.shape))}]"
