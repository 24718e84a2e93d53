"""Edits graphs: new nodes with names and types, values that take the place of others, nodes nobody needs any more.

    g = Rewriter(model).at(node)                     new nodes go before this one
    y = g.op("Mul", x, g.constant(half, "half"))     typed at once by the operator's shape rule
    g.replace(node.outputs[0], y)                    y takes over the uses and the name
    g.discard(node)                                  and what only it used

One rewriter serves one run of one pass: it knows names, graph outputs and replaceable constants of the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.constraints import bind_types, output_types
from sardonyx.analysis.merge import merge_types
from sardonyx.dtypes import DType
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import ONNX_DOMAIN, AttrKind, Graph, Model, Node, Value, captured_values, max_version
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.ir.types import Shape, TensorType, Type
from sardonyx.ops import registry
from sardonyx.ops.infer import InferContext
from sardonyx.ops.signature import signature

MICROSOFT: Final = "com.microsoft"
_GRAPH_KINDS: Final = (AttrKind.GRAPH, AttrKind.GRAPHS)
_KNOWN_SIZE: Final = 64  # elements of an integer constant that shape rules may ask for


class Rewriter:
    """See the module. `at` sets where new nodes go."""

    def __init__(self, model: Model, graphs: list[Graph] | None = None) -> None:
        self.model = model
        self.refresh(graphs)
        self._names: set[str] | None = None
        self._numbers: dict[str, int] = {}
        self._numbers_of: dict[Tensor, float | None] = {}
        self._node_names: set[str] | None = None
        self._anchor: Node | None = None
        self._name_is_free = False
        self._part_of = ""
        self._fresh: set[Value] = set()  # made by this rewriter: they have no name anybody knows

    def refresh(self, graphs: list[Graph] | None = None) -> None:
        """Look at the graphs of the model anew, after nodes have moved from one to another."""
        model = self.model
        self._graphs = all_graphs(model) if graphs is None else graphs
        self.outputs: set[Value] = {value for graph in self._graphs for value in graph.outputs}
        self._captured_outputs: set[Value] = {  # outputs of a subgraph that a graph around it makes
            value for inner in self._graphs[1:] for value in inner.outputs if not _defined_in(value, inner)
        }
        # Initializers that are inputs too are defaults; files older than IR version 4 had to list all of them as inputs.
        replaceable = self._graphs if model.ir_version >= 4 else self._graphs[1:]
        self.variable: set[Value] = {value for graph in replaceable for value in graph.inputs if value.constant is not None}

    def graphs(self) -> Iterator[Graph]:
        """All graphs of the model that still are part of it, outer ones first."""
        for graph in list(self._graphs):
            if self._is_live(graph):
                yield graph

    def _is_live(self, graph: Graph) -> bool:
        while graph is not self.model.graph:
            outer = graph.parent_node.graph if graph.parent_node is not None else None
            if outer is None:
                return False
            graph = outer
        return True

    def at(self, node: Node, *, expands: bool = False) -> Rewriter:
        """Insert before this node from now on; the first new node takes its name, for it will take its place.

        With `expands` the new nodes are its parts, and messages about them say so.
        """
        self._anchor = node
        self._name_is_free = True
        self._part_of = node.part_of or (node.operator if expands else "")
        return self

    @property
    def anchor(self) -> Node:
        assert self._anchor is not None, "at() says where to insert"
        return self._anchor

    @property
    def graph(self) -> Graph:
        """The graph that is being edited."""
        graph = self.anchor.graph
        assert graph is not None, "the anchor stands in a graph"
        return graph

    @property
    def version(self) -> int:
        """The ai.onnx version of new nodes."""
        if self.anchor.domain == ONNX_DOMAIN:
            return self.anchor.version
        return self.model.opset_imports.get(ONNX_DOMAIN) or max_version(self.graph)

    def is_output(self, value: Value) -> bool:
        """Whether a graph gives the value out, so that it must go on existing."""
        return value in self.outputs

    def is_private(self, value: Value) -> bool:
        """Whether exactly one input reads the value and no graph gives it out."""
        return len(value.uses) == 1 and value not in self.outputs

    def constant_of(self, value: Value | None) -> Tensor | None:
        """The constant behind a value, if nothing can replace it at run time."""
        if value is None or not isinstance(value.constant, Tensor) or value in self.variable:
            return None
        return value.constant

    def array(self, value: Value | None) -> Array | None:
        """The data of a constant; None if the value is not one or its data cannot be had."""
        held = self.constant_of(value)
        return None if held is None else load(held)

    def ints(self, value: Value | None) -> tuple[int, ...] | None:
        """The elements of a small constant of whole numbers."""
        held = self.constant_of(value)
        if held is None or not held.dtype.is_integer or held.size > _KNOWN_SIZE:
            return None
        data = load(held)
        return None if data is None else tuple(int(item) for item in data.reshape(-1))

    def number(self, value: Value | None) -> float | None:
        """The only element of a constant of any rank."""
        held = self.constant_of(value)
        if held is None or held.size != 1 or held.dtype is dtypes.STRING:
            return None
        if held not in self._numbers_of:  # patterns ask for the same constants again and again
            data = load(held)
            self._numbers_of[held] = None if data is None or data.dtype.kind == "c" else float(data.reshape(())[()])
        return self._numbers_of[held]

    def _node_name(self) -> str:
        """A name for a new node: that of the anchor, or one made of it that no node has."""
        name = self.anchor.name
        if self._name_is_free or not name:
            self._name_is_free = False
            return name
        if self._node_names is None:
            self._node_names = {node.name for graph in self._graphs for node in graph.nodes}
        number = 1
        while f"{name}_{number}" in self._node_names:
            number += 1
        self._node_names.add(f"{name}_{number}")
        return f"{name}_{number}"

    def fresh_name(self, hint: str) -> str:
        """A name no value of the model has."""
        if self._names is None:
            self._names = {value.name for graph in self._graphs for value in (*graph.inputs, *graph.initializers.values())}
            self._names.update(value.name for graph in self._graphs for node in graph.nodes for value in node.outputs)
        name = hint
        while not name or name in self._names:
            number = self._numbers[hint] = self._numbers.get(hint, 0) + 1
            name = f"{hint}_{number}"
        self._names.add(name)
        return name

    def constant(self, data: Array | Tensor, hint: str = "constant", origin: str = "") -> Value:
        """A new initializer; `origin` tells what a large one was made of (see `tensor.origin_of`)."""
        held = data if isinstance(data, Tensor) else tensor.from_numpy(np.asarray(data), origin=origin)
        return self.graph.add_initializer(self.fresh_name(hint), held)

    def op(self, op_type: str, *inputs: Value | None, domain: str = "", **attrs: Any) -> Value:
        """A new node with one output; attributes that are None are left off."""
        return self.node(op_type, inputs, 1, domain=domain, **attrs)[0]

    def node(self, op_type: str, inputs: Sequence[Value | None], outputs: int, *, domain: str = "", **attrs: Any) -> list[Value]:
        """A new node with several outputs. It is of the opset version of its place, so that the model stays one of its opset."""
        version = self.version if domain == ONNX_DOMAIN else 1
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        made = [make_attr(key, value) for key, value in attrs.items() if value is not None]
        results = [Value(self.fresh_name(op_type)) for _ in range(outputs)]
        node = Node(op_type, inputs, results, made, domain=domain, version=version, name=self._node_name())
        node.part_of = self._part_of
        self.graph.insert_before(self.anchor, node)
        self._fresh.update(results)
        set_types(node, self)
        return results

    def clone(self, node: Node, inputs: Sequence[Value | None], **changes: Any) -> list[Value]:
        """A node like another one, with other inputs; attributes given as None are dropped. No subgraphs."""
        results = [Value(self.fresh_name(value.name or node.op_type) if value.name else "") for value in node.outputs]
        attrs = {**node.attrs, **{key: make_attr(key, value) for key, value in changes.items() if value is not None}}
        kept = [attr for key, attr in attrs.items() if key not in changes or changes[key] is not None]
        new = Node(
            node.op_type,
            inputs,
            results,
            kept,
            domain=node.domain,
            version=node.version,
            name=self._node_name(),
            overload=node.overload,
        )
        new.doc, new.metadata, new.priority, new.part_of = node.doc, dict(node.metadata), node.priority, node.part_of
        self.graph.insert_before(self.anchor, new)
        self._fresh.update(results)
        set_types(new, self)
        return results

    def can_replace(self, old: Value, new: Value) -> bool:
        """Whether `new` can stand for `old` everywhere without a node being added: no graph output would lose its maker."""
        if old in self._captured_outputs:
            return False
        if old not in self.outputs:
            return True
        home = old.producer.graph if old.producer is not None else None
        return new.producer is not None and new.producer.graph is home and new not in self.outputs

    def replace(self, old: Value, new: Value) -> None:
        """Every reader of `old` reads `new`; a new value takes over the name, and types are merged.

        A graph output that `new` cannot stand for is given out by an Identity. `discard` the producer of `old` afterwards.
        """
        if new.type is None:
            new.type = old.type
        elif old.type is not None:
            new.type = merged(new.type, old.type)
        home = old.producer.graph if old.producer is not None else self.graph
        assert home is not None
        if old in self.outputs:
            positions = [position for position, output in enumerate(home.outputs) if output is old]
            home.replace_uses(old, new)
            self.outputs.discard(old)
            self.outputs.update(home.outputs[position] for position in positions)
        else:
            home.replace_uses(old, new)
            if new in self._fresh and old.name:
                new.name, old.name = old.name, new.name
        for value in (old, new):
            self._fresh.discard(value)
        if old in self._captured_outputs:
            self._replace_captured(old, new)

    def _replace_captured(self, old: Value, new: Value) -> None:
        for graph in self._graphs:
            graph.outputs[:] = [new if output is old else output for output in graph.outputs]
        self._captured_outputs.discard(old)
        self._captured_outputs.add(new)
        self.outputs.discard(old)
        self.outputs.add(new)

    def discard(self, node: Node) -> None:
        """Remove a node whose outputs nobody reads, and then the nodes and constants that only it read."""
        pending = [node]
        while pending:
            gone = pending.pop()
            if gone.graph is None or gone.is_kept or any(value.uses or value in self.outputs for value in gone.outputs):
                continue
            read = {value: None for value in gone.inputs if value is not None}
            for inner in gone.subgraphs():
                read.update((value, None) for value in captured_values(inner))
                self.outputs.difference_update(value for value in inner.outputs if _defined_in(value, inner))
            gone.graph.remove(gone)
            for value in read:
                if not value.uses and value.producer is not None:
                    pending.append(value.producer)
                elif not value.uses:
                    self._drop_constant(value)

    def _drop_constant(self, value: Value) -> None:
        if value.constant is None or value in self.outputs or value in self.variable:
            return
        for graph in self._graphs:
            if graph.initializers.get(value.name) is value and value not in graph.inputs:
                del graph.initializers[value.name]
                return


def all_graphs(model: Model) -> list[Graph]:
    """The graph of a model and all subgraphs, outer ones first."""
    found = [model.graph]
    for graph in found:
        for node in graph.nodes:
            if not node.attrs:
                continue
            for attr in node.attrs.values():
                if attr.kind in _GRAPH_KINDS and attr.value is not None:
                    found.extend(attr.value if attr.kind is AttrKind.GRAPHS else (attr.value,))
    return found


def _defined_in(value: Value, graph: Graph) -> bool:
    if value.producer is not None:
        return value.producer.graph is graph
    return graph.initializers.get(value.name) is value or value in graph.inputs


def load(held: Tensor) -> Array | None:
    """The data of a constant; None if it cannot be had: a file that is gone, a text that left it out."""
    try:
        return held.numpy()
    except (ValueError, OSError):
        return None


def merged(first: Type, second: Type) -> Type:
    """What two types of one value say together; the first if they contradict each other."""
    try:
        return merge_types(first, second)
    except ValueError:
        return first


def shape_of(value: Value | None) -> Shape | None:
    """The shape of a tensor whose rank is known."""
    return None if value is None else value.shape


def dtype_of(value: Value | None) -> DType | None:
    """The element type of a tensor."""
    return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None


def set_types(node: Node, g: Rewriter) -> None:
    """Give the outputs of a node the types that follow from its inputs, as far as they do."""
    inputs = [None if value is None else value.type for value in node.inputs]
    sig = signature(node.domain, node.op_type, node.version)
    types: list[Type | None] = [None] * len(node.outputs)
    if sig is not None:
        types = list(output_types(sig, bind_types(sig, inputs)[0], len(node.outputs)))
    definition = registry.lookup(node.domain, node.op_type, node.version)
    if definition is not None and definition.infer is not None:

        def value_of(index: int) -> tuple[tuple[Dim, ...], Shape] | None:
            held = g.constant_of(node.inputs[index])
            known = g.ints(node.inputs[index])
            return None if known is None or held is None else (known, held.shape)

        try:
            context = InferContext(
                node, inputs, attribute_values(node), value_of, lambda i: g.array(node.inputs[i]), lambda *_: []
            )
            found: Any = definition.infer(context)
        except Exception:  # the operator's rule says what is wrong when the model is checked or run
            found = None
        for index, one in enumerate(found if isinstance(found, list) else [found]):
            if index >= len(types) or one is None:
                continue
            known = types[index]
            if not isinstance(one, tuple):
                types[index] = one
            elif isinstance(known, TensorType):
                types[index] = TensorType(known.dtype, one)
    for value, type_ in zip(node.outputs, types, strict=True):
        if value.type is None:
            value.type = type_


def attr_ints(node: Node, name: str) -> tuple[int, ...] | None:
    """A list of integers among the attributes; None if the node does not carry it."""
    attr = node.attrs.get(name)
    return tuple(attr.value) if attr is not None and attr.kind is AttrKind.INTS and attr.value is not None else None
