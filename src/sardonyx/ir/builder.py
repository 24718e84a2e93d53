"""Write graphs by hand: one call per node, arrays become constants, attribute kinds follow from Python's types.

g = GraphBuilder(Graph("main"), 22)
x = g.input("x", TensorType(FLOAT32, (symbol("N"), 4)))
y = g.Relu(g.op("Gemm", x, np.ones((4, 2), np.float32), transB=0))
g.output(y, "y")
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Union

import numpy as np

from sardonyx.ir import tensor
from sardonyx.ir.graph import Attr, AttrKind, Graph, Node, SparseConstant, Value, walk
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

Operand: TypeAlias = Union[Value, np.ndarray[Any, Any], np.generic, Tensor, None]

_TYPES = (TensorType, SparseTensorType, SequenceType, OptionalType, MapType)
_SCALARS: tuple[tuple[type | tuple[type, ...], AttrKind], ...] = (
    ((bool, int, np.integer), AttrKind.INT),
    ((float, np.floating), AttrKind.FLOAT),
    (str, AttrKind.STRING),
    ((Tensor, np.ndarray), AttrKind.TENSOR),
    (Graph, AttrKind.GRAPH),
    (SparseConstant, AttrKind.SPARSE_TENSOR),
    (_TYPES, AttrKind.TYPE_PROTO),
)
_LISTS = {
    AttrKind.INT: AttrKind.INTS,
    AttrKind.FLOAT: AttrKind.FLOATS,
    AttrKind.STRING: AttrKind.STRINGS,
    AttrKind.TENSOR: AttrKind.TENSORS,
    AttrKind.GRAPH: AttrKind.GRAPHS,
    AttrKind.SPARSE_TENSOR: AttrKind.SPARSE_TENSORS,
    AttrKind.TYPE_PROTO: AttrKind.TYPE_PROTOS,
}


def make_attr(name: str, value: Any) -> Attr:
    """An attribute whose kind follows from the value. An empty list is of integers; a list of ints and floats is of floats."""
    if isinstance(value, Attr):
        return value
    if not isinstance(value, (list, tuple)):
        kind = _scalar_kind(name, value)
        return Attr(name, kind, _plain(value, kind))
    kinds = {_scalar_kind(name, item) for item in value} or {AttrKind.INT}
    if kinds == {AttrKind.INT, AttrKind.FLOAT}:
        kinds = {AttrKind.FLOAT}
    if len(kinds) != 1:
        raise TypeError(
            f"attribute {name!r}: a list must hold values of one kind, not {', '.join(k.name for k in sorted(kinds))}"
        )
    kind = kinds.pop()
    return Attr(name, _LISTS[kind], tuple(_plain(item, kind) for item in value))


def _scalar_kind(name: str, value: Any) -> AttrKind:
    for types, kind in _SCALARS:
        if isinstance(value, types):
            return kind
    raise TypeError(f"attribute {name!r}: {type(value).__name__} is not a kind of attribute")


def _plain(value: Any, kind: AttrKind) -> Any:
    if kind is AttrKind.INT:
        return int(value)
    if kind is AttrKind.FLOAT:
        return float(value)
    if kind is AttrKind.TENSOR and isinstance(value, np.ndarray):
        return tensor.from_numpy(value)
    return value


class GraphBuilder:
    """Appends nodes to a graph, or inserts them before a node. `g.Relu(x)` is short for `g.op("Relu", x)`.

    `prefix` starts the names of new values; a name that is taken gets a number.
    """

    def __init__(self, graph: Graph, version: int, *, before: Node | None = None, prefix: str = "") -> None:
        self.graph = graph
        self.version = version
        self._before = before
        self._prefix = prefix
        self._names = {value.name for value in graph.inputs} | set(graph.initializers)
        self._names.update(output.name for node in walk(graph) for output in node.outputs)
        self._counts: dict[str, int] = {}

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attrs: self.op(op_type, *inputs, **attrs)

    def inserting_before(self, node: Node) -> GraphBuilder:
        """A builder of the same graph that puts nodes before this one; both give out different names."""
        other = copy.copy(self)
        other._before = node
        return other

    def fresh_name(self, hint: str) -> str:
        """A name no value of the graph has yet."""
        name = f"{self._prefix}{hint}"
        while name in self._names:
            self._counts[hint] = self._counts.get(hint, 0) + 1
            name = f"{self._prefix}{hint}_{self._counts[hint]}"
        self._names.add(name)
        return name

    def input(self, name: str, type: Type | None) -> Value:
        """One more input of the graph."""
        value = Value(name, type)
        self._names.add(name)
        self.graph.inputs.append(value)
        return value

    def output(self, value: Value, name: str = "") -> Value:
        """Make a value an output of the graph, renamed if a name is given."""
        if name:
            self._names.add(name)
            value.name = name
        self.graph.outputs.append(value)
        return value

    def constant(self, data: Any, name: str = "") -> Value:
        """An initializer that holds this array."""
        held = data if isinstance(data, Tensor) else tensor.from_numpy(np.asarray(data))
        return self.graph.add_initializer(self.fresh_name(name or "constant"), held)

    def op(
        self, op_type: str, *inputs: Operand, domain: str = "", name: str = "", version: int | None = None, **attrs: Any
    ) -> Value:
        """A node with one output. Arrays become initializers, None omits an input; an attribute that is None is left off."""
        return self.node(op_type, inputs, 1, domain=domain, name=name, version=version, attrs=attrs)[0]

    def node(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: int | Sequence[str],
        *,
        domain: str = "",
        name: str = "",
        version: int | None = None,
        attrs: dict[str, Any] | None = None,
    ) -> list[Value]:
        """A node with several outputs, counted or named."""
        operands = [each if each is None or isinstance(each, Value) else self.constant(each) for each in inputs]
        names = [op_type] * outputs if isinstance(outputs, int) else outputs
        results = [Value(self.fresh_name(each)) for each in names]
        made = [make_attr(key, value) for key, value in (attrs or {}).items() if value is not None]
        chosen = self.version if version is None else version
        node = Node(op_type, operands, results, made, domain=domain, version=chosen, name=name)
        if self._before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self._before, node)
        return results
