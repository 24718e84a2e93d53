"""The graph: values produced by nodes, in a list that may change while it is walked.

Structure
    Model     a graph, its functions, opset imports and metadata
    Graph     inputs, outputs, initializers and an ordered list of nodes; a subgraph hangs on a node's attribute
    Node      one operator call; knows the opset version it was written against
    Value     the result of a node, an input, or an initializer; knows its producer and its uses
    Attr      a named constant of a node

A subgraph refers to values of the graphs around it directly: the inner node's input *is* the outer Value, and the
outer Value's uses list the inner node. Names are labels for people and files; identity is the object.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from sardonyx.ir.dims import Expectation
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.ir.types import Shape, TensorType, Type
from sardonyx.mapped_file import FileIdentity
from sardonyx.records import dataclass

if TYPE_CHECKING:
    from sardonyx.ir.saved_optimisation import SavedOptimisation

ONNX_DOMAIN = ""  # "ai.onnx" is the same domain; readers turn it into ""
UNKNOWN_VERSION = 1 << 30  # of an operator whose domain the model does not import: the newest, as far as anybody can tell


class AttrKind(enum.IntEnum):
    """What an attribute holds; the numbers are AttributeProto.AttributeType, but for OPAQUE, which no file can hold."""

    OPAQUE = -1  # an object of this process, as the program a provider has made of a region
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


@dataclass(frozen=True, slots=True)
class SparseConstant:
    """A sparse tensor in a model: the values, and where they stand in a dense tensor of shape `shape`.

    `indices` is int64, either [count] (positions in the flattened tensor) or [count, rank].
    """

    values: Tensor
    indices: Tensor
    shape: tuple[int, ...]

    def numpy(self) -> Array:
        """The dense tensor it stands for; where no value stands, there are zeros, or empty strings."""
        values, indices = self.values.numpy(), self.indices.numpy()
        result = np.full(self.shape, "", object) if values.dtype == object else np.zeros(self.shape, values.dtype)
        if indices.ndim == 1:
            result.reshape(-1)[indices] = values
        else:
            result[tuple(indices.T)] = values
        return result


@dataclass(frozen=True, slots=True)
class Attr:
    """A named constant of a node.

    `value` by kind: float, int, str, Tensor, Graph, SparseConstant, Type, or a tuple of those; any object if OPAQUE. Strings
    that are not UTF-8 keep their bytes as surrogate escapes. In a function body `ref` names the function's attribute that
    stands here (value is None).
    """

    name: str
    kind: AttrKind
    value: Any
    ref: str = ""
    doc: str = ""


class Value:
    """A value of the graph. Exactly one of these holds: a node produces it, it is a graph input, or it is a constant.

    (An initializer that is also listed as an input is both: `constant` is its default.)
    """

    __slots__ = ("constant", "device", "doc", "index", "metadata", "name", "producer", "type", "uses")

    def __init__(self, name: str, type: Type | None = None, constant: Tensor | SparseConstant | None = None) -> None:
        self.name = name
        self.type = type
        self.constant = constant
        self.producer: Node | None = None
        self.index = 0  # which output of the producer
        self.uses: dict[tuple[Node, int], None] = {}  # an ordered set of (node, input index)
        self.device = ""  # whose memory it lies in; "": the host's, which all nodes read but those of other devices
        self.doc = ""
        self.metadata: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"%{self.name}" + (f": {self.type}" if self.type is not None else "")

    @property
    def shape(self) -> Shape | None:
        """The shape, if this is a tensor whose rank is known."""
        return self.type.shape if isinstance(self.type, TensorType) else None

    @property
    def consumers(self) -> list[Node]:
        """The nodes that read it, each once, in the order they were connected."""
        return list(dict.fromkeys(node for node, _ in self.uses))


class Node:
    """One operator call. Change inputs through `set_input`, so that the uses stay true."""

    __slots__ = (
        "_given", "_inputs", "_next", "_prev", "attrs", "doc", "domain", "graph", "is_kept", "metadata", "name", "op_type",
        "outputs", "overload", "part_of", "position", "priority", "version",
    )  # fmt: skip

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        attrs: Iterable[Attr] = (),
        *,
        domain: str = ONNX_DOMAIN,
        version: int = 0,
        name: str = "",
        overload: str = "",
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.version = version  # opset version of `domain` this node was written against
        self.name = name
        self.overload = overload
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self.priority = 0
        self.position = -1  # where it stood in its graph before any pass; -1: a pass has made it
        self.part_of = ""  # the operator that the model has here, if a pass took it apart
        self.is_kept = False  # runs although nobody reads its data: it may refuse what it is given
        self.attrs = {attr.name: attr for attr in attrs}
        self.graph: Graph | None = None
        self._prev: Node | None = None
        self._next: Node | None = None
        self._inputs: list[Value | None] = []
        self._given: tuple[Value | None, ...] | None = None  # the same as a tuple, once somebody has asked
        self.outputs = list(outputs)
        for value in inputs:
            self.append_input(value)
        for index, value in enumerate(self.outputs):
            value.producer, value.index = self, index

    def __repr__(self) -> str:
        return f"<{self.label}>"

    @property
    def label(self) -> str:
        """How messages call this node: its operator and name, and the operator of the model that it is a part of."""
        name = self.name or next((f"-> {value.name}" for value in self.outputs if value.name), "")
        text = f"{self.operator} {name!r}" if name else self.operator
        return f"{text} (of {self.part_of})" if self.part_of else text

    @property
    def operator(self) -> str:
        """The operator, with its domain if that is not ONNX's own."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def inputs(self) -> tuple[Value | None, ...]:
        """The inputs; None stands for an optional input that was left out."""
        if self._given is None:
            self._given = tuple(self._inputs)
        return self._given

    def append_input(self, value: Value | None) -> None:
        """Add one more input at the end."""
        self._inputs.append(value)
        self._given = None
        if value is not None:
            value.uses[(self, len(self._inputs) - 1)] = None

    def set_input(self, index: int, value: Value | None) -> None:
        """Read `value` at this position from now on."""
        old = self._inputs[index]
        if old is not None:
            old.uses.pop((self, index), None)
        self._inputs[index] = value
        self._given = None
        if value is not None:
            value.uses[(self, index)] = None

    def replace_inputs(self, values: Sequence[Value | None]) -> None:
        """Read these values, and no others, from now on."""
        for index in range(len(self._inputs)):
            self.set_input(index, None)
        self._inputs.clear()
        for value in values:
            self.append_input(value)

    def subgraphs(self) -> list[Graph]:
        """All graphs in the attributes."""
        found: list[Graph] = []
        for attr in self.attrs.values():
            if attr.kind is AttrKind.GRAPH and attr.value is not None:
                found.append(attr.value)
            elif attr.kind is AttrKind.GRAPHS and attr.value is not None:
                found.extend(attr.value)
        return found

    def attr(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, or `default` if the node does not carry it."""
        found = self.attrs.get(name)
        return default if found is None else found.value


class Graph:
    """Inputs, outputs, initializers and nodes in an order in which they can be computed."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.doc = ""
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.initializers: dict[str, Value] = {}
        self.metadata: dict[str, str] = {}
        self.parent_node: Node | None = None  # the node this is a subgraph of
        self.stated_outputs: tuple[Type | None, ...] = ()  # see `output_types`
        self.size_checks: tuple[Expectation, ...] = ()  # of sizes of its inputs: what nodes expected that are gone
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {self._count} nodes>"

    @property
    def output_types(self) -> tuple[Type | None, ...]:
        """The types of the outputs as the model states them, whatever is known about them by now.

        A loop without iterations gives out what the model says of shapes: that must not depend on what a compiler found out.
        """
        return self.stated_outputs or tuple(value.type for value in self.outputs)

    def __len__(self) -> int:
        """Number of nodes, those of subgraphs not counted."""
        return self._count

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes in order. Nodes may be removed or inserted while this runs; removed ones are not visited any more."""
        node = self._first
        while node is not None:
            following = node._next
            yield node
            # The node just visited may be gone, and so may the one that followed it.
            if node.graph is self:
                node = node._next
            else:
                while following is not None and following.graph is not self:
                    following = following._next
                node = following

    def append(self, node: Node) -> Node:
        """Add a node at the end."""
        node.graph = self
        node._prev, node._next = self._last, None
        if self._last is None:
            self._first = node
        else:
            self._last._next = node
        self._last = node
        self._count += 1
        for graph in node.subgraphs():
            graph.parent_node = node
        return node

    def insert_before(self, anchor: Node, node: Node) -> Node:
        """Add a node right before another of this graph."""
        node.graph = self
        node._prev, node._next = anchor._prev, anchor
        if anchor._prev is None:
            self._first = node
        else:
            anchor._prev._next = node
        anchor._prev = node
        self._count += 1
        for graph in node.subgraphs():
            graph.parent_node = node
        return node

    def insert_after(self, anchor: Node, node: Node) -> Node:
        """Add a node right after another of this graph."""
        return self.append(node) if anchor._next is None else self.insert_before(anchor._next, node)

    def remove(self, node: Node) -> None:
        """Take a node out; its outputs must not be used any more. The node keeps its links, so that a walk can go on from it."""
        for output in node.outputs:
            if output.uses or output in self.outputs:
                raise ValueError(f"{node.label}: output {output.name!r} is still used")
        self.detach(node)
        for index in range(len(node.inputs)):
            node.set_input(index, None)
        for inner in node.subgraphs():
            for inner_node in walk(inner):
                for index in range(len(inner_node.inputs)):
                    inner_node.set_input(index, None)

    def detach(self, node: Node) -> None:
        """Take a node out of the order only: inputs, outputs and uses stay, so it can be inserted elsewhere."""
        if node._prev is None:
            self._first = node._next
        else:
            node._prev._next = node._next
        if node._next is None:
            self._last = node._prev
        else:
            node._next._prev = node._prev
        node.graph = None
        self._count -= 1

    def replace_uses(self, old: Value, new: Value) -> None:
        """Every reader of `old`, in this graph, its subgraphs and its outputs, reads `new` instead.

        A graph output keeps its name: `new` takes it over if a node of this graph makes it, otherwise an Identity does.
        """
        for node, index in list(old.uses):
            node.set_input(index, new)
        for position, output in enumerate(self.outputs):
            if output is not old:
                continue
            movable = new.producer is not None and new.producer.graph is self and new not in self.outputs
            if movable:
                new.name, old.name = old.name, new.name
                self.outputs[position] = new
            else:
                kept = Value(old.name, new.type)
                old.name += "_replaced"
                self.append(Node("Identity", [new], [kept], version=max_version(self)))
                self.outputs[position] = kept

    def add_initializer(self, name: str, tensor: Tensor) -> Value:
        """A new constant of this graph; the name must be free."""
        if name in self.initializers:
            raise ValueError(f"graph {self.name!r} has an initializer {name!r} already")
        value = Value(name, TensorType(tensor.dtype, tensor.shape), tensor)
        self.initializers[name] = value
        return value


def max_version(graph: Graph) -> int:
    """The newest ai.onnx version a node of this graph was written against; 13 for a graph without such nodes."""
    return max((node.version for node in graph.nodes if node.domain == ONNX_DOMAIN), default=13)


def walk(graph: Graph) -> Iterator[Node]:
    """All nodes of a graph and, after each node, those of its subgraphs. Iterative: depth costs no stack."""
    stack = [graph.nodes]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        stack.extend(subgraph.nodes for subgraph in reversed(node.subgraphs()))


def captured_values(graph: Graph) -> list[Value]:
    """The values of outer graphs that a subgraph (with all inside it) reads, each once, in order of first use."""
    inside: set[Value] = set()
    used: dict[Value, None] = {}
    graphs = [graph]
    for node in walk(graph):
        graphs.extend(node.subgraphs())
        inside.update(node.outputs)
        used.update((value, None) for value in node.inputs if value is not None)
    for each in graphs:
        inside.update(each.inputs)
        inside.update(each.initializers.values())
        used.update((value, None) for value in each.outputs)
    return [value for value in used if value not in inside]


def is_constant(value: Value, graph: Graph | None) -> bool:
    """Whether a value, read in a graph, is a constant that no feed of it or of the graphs around it can replace."""
    while graph is not None:
        if value in graph.inputs:
            return False
        graph = graph.parent_node.graph if graph.parent_node is not None else None
    return value.constant is not None


def needed_nodes(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """The nodes that some outputs depend on, and those that are kept whoever reads them, in the given order."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if node.is_kept or wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(value for value in node.inputs if value is not None)
            wanted.update(value for graph in node.subgraphs() for value in captured_values(graph))
    return kept[::-1]


@dataclass
class Function:
    """A model-local function: a graph whose nodes may refer to the function's attributes."""

    domain: str
    name: str
    overload: str
    graph: Graph
    attributes: tuple[str, ...] = ()  # required, no default
    attribute_defaults: tuple[Attr, ...] = ()
    opset_imports: dict[str, int] = field(default_factory=dict)
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


# By an operator's identifier, "domain:name:version", and a type constraint's name: (is it an input, position) of its arguments.
TypeArguments: TypeAlias = "Mapping[str, Mapping[str, tuple[tuple[bool, int], ...]]]"


@dataclass
class Model:
    """A whole model as read from a file."""

    graph: Graph
    ir_version: int = 10
    opset_imports: dict[str, int] = field(default_factory=dict)
    functions: dict[tuple[str, str, str], Function] = field(default_factory=dict)  # by (domain, name, overload)
    producer_name: str = ""
    producer_version: str = ""
    domain: str = ""
    model_version: int = 0
    doc: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    path: str = ""  # where it was read from, if it was a file
    looked_at: dict[str, FileIdentity | None] = field(default_factory=dict)  # where external data was looked for: what was there
    unread: bytes = b""  # fields of the file that have no place here (training info ...), to be written back as they are
    notes: tuple[str, ...] = ()  # what reading had to put right
    type_arguments: TypeArguments | None = None  # what the file itself says of its operators' types; None: it says nothing
    saved_optimisations: Sequence[SavedOptimisation] = ()  # rewritings that the file's writer has found, and left for others
