"""A region of a graph in the blocked layout, as the layout pass makes it: what is blocked, and how to get there and back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.builder import make_attr
from sardonyx.ir.graph import Graph, Node, Value, is_constant, walk
from sardonyx.ir.tensor import Array, Tensor, from_numpy
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.indexing.layout import DOMAIN, blocked_shape, to_blocked
from sardonyx.ops.registry import Trait, traits
from sardonyx.records import dataclass
from sardonyx.target.target import Target

STANDARD_VERSION: Final = 13  # of the standard operators made here


@dataclass(frozen=True)
class Blocked:
    """A value in the blocked layout. `made` there, not converted from a plain one that still exists."""

    value: Value
    channels: int
    made: bool


@dataclass
class Region:
    """The blocked values of a graph."""

    graph: Graph
    target: Target
    exact: Collection[Node] = ()  # convolutions that add up what their definition says
    known: dict[Value, Blocked] = field(default_factory=dict)  # plain value -> the same in blocks
    reasons: list[str] = field(default_factory=list)
    changes: int = 0  # nodes that were replaced
    _constants: dict[tuple[Value, int], Value] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._names.update(value.name for value in self.graph.inputs)
        self._names.update(self.graph.initializers)
        self._names.update(output.name for node in walk(self.graph) for output in node.outputs)

    @property
    def block(self) -> int:
        """Channels of a block: as many as a vector has lanes."""
        return self.target.lanes

    def free_name(self, name: str) -> str:
        """A name no value has, made of this one."""
        free, number = name, 0
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        self._names.add(free)
        return free

    def give_back(self) -> None:
        """Plain values that are still read are made from the blocked ones."""
        for value, blocked in self.known.items():
            if blocked.made and (value.uses or value in self.graph.outputs):
                producer = blocked.value.producer
                assert producer is not None
                self._give_back(value, blocked, producer)

    def _give_back(self, value: Value, blocked: Blocked, producer: Node) -> None:
        """Make a plain value from the blocked one; truth values by way of floats, which are what can be brought back."""
        attrs = [make_attr("channels", blocked.channels)]
        if is_float(value):
            node = Node("FromBlocked", [blocked.value], [value], attrs, domain=DOMAIN, version=1, name=value.name)
            self.graph.insert_after(producer, node)
            return
        inner, outer = blocked.value.shape, value.shape
        wide = Value(self.free_name(f"{value.name}:wide"), TensorType(dtypes.FLOAT32, inner))
        plain = Value(self.free_name(f"{value.name}:plain"), TensorType(dtypes.FLOAT32, outer))
        last = producer
        for op_type, source, made, domain, own in (
            ("Cast", blocked.value, wide, "", [make_attr("to", dtypes.FLOAT32.onnx)]),
            ("FromBlocked", wide, plain, DOMAIN, attrs),
            ("Cast", plain, value, "", [make_attr("to", dtypes.BOOL.onnx)]),
        ):
            version = 1 if domain else STANDARD_VERSION
            last = self.graph.insert_after(last, Node(op_type, [source], [made], own, domain=domain, version=version))

    # What rules use

    def refuse(self, node: Node, reason: str) -> None:
        """Leave a node plain and say why."""
        self.reasons.append(f"{node.label}: {reason}")

    def inside(self, value: Value | None) -> Blocked | None:
        """A value of the region; None if it is plain, even if somebody had it converted."""
        found = None if value is None else self.known.get(value)
        return found if found is not None and found.made else None

    def blocked(self, value: Value, before: Node) -> Blocked | None:
        """A value in blocks, converted if need be; None if it cannot be."""
        found = self.known.get(value)
        if found is None:
            shape = value.shape
            if not is_float(value) or shape is None or len(shape) < 3 or not isinstance(shape[1], int) or shape[1] == 0:
                return None
            made = self.add(before, "ToBlocked", [value], shape, domain=DOMAIN, block=self.block)
            found = self.known[value] = Blocked(made, shape[1], False)
        return found

    def add(
        self, before: Node, op_type: str, inputs: list[Value | None], shape: Shape, *, domain: str = "", **attrs: Any
    ) -> Value:
        """A new node with a blocked result, whose plain shape is given."""
        value = Value(
            self.free_name(f"{before.outputs[0].name}:{op_type}"), TensorType(dtypes.FLOAT32, blocked_shape(shape, self.block))
        )
        made = [make_attr(key, each) for key, each in attrs.items() if each is not None]
        version = 1 if domain == DOMAIN else STANDARD_VERSION
        self.graph.insert_before(before, Node(op_type, inputs, [value], made, domain=domain, version=version, name=before.name))
        return value

    def constant(self, name: str, data: Array) -> Value:
        """A new initializer."""
        return self.graph.add_initializer(self.free_name(name), from_numpy(data))

    def replace(self, node: Node, results: list[Value]) -> None:
        """The node's outputs are these blocked values from now on."""
        for output, result in zip(node.outputs, results):
            shape = output.shape
            assert shape is not None
            assert isinstance(shape[1], int)
            result.name = self.free_name(f"{output.name}:blocked")
            self.known[output] = Blocked(result, shape[1], True)
            output.producer = None
        self.discard(node)

    def put(self, node: Node, made: Node) -> None:
        """Another node computes the (plain) outputs of a node from now on."""
        self.graph.insert_before(node, made)
        self.discard(node)

    def flatten(self, node: Node, pooled: Value, shape: Shape, gone: Sequence[int] | None = None) -> None:
        """The node's output is a pooled value without its spatial axes, or without these."""
        plain = Value(self.free_name(f"{node.outputs[0].name}:pooled"), TensorType(dtypes.FLOAT32, shape))
        attrs = [make_attr("channels", shape[1])]
        self.graph.insert_before(node, Node("FromBlocked", [pooled], [plain], attrs, domain=DOMAIN, version=1, name=node.name))
        axes = self.constant(
            f"{node.outputs[0].name}:axes", np.array(gone if gone is not None else range(2, len(shape)), np.int64)
        )
        squeezed = Node("Squeeze", [plain, axes], [node.outputs[0]], version=STANDARD_VERSION, name=node.name)
        self.graph.insert_before(node, squeezed)
        self.discard(node)

    def discard(self, node: Node) -> None:
        """Take a node out of the graph whose outputs nobody reads, or that others compute."""
        self.graph.detach(node)
        for index in range(len(node.inputs)):
            node.set_input(index, None)
        self.changes += 1

    def operand(self, value: Value, channels: int, rank: int, before: Node) -> Value | None:
        """An input of an elementwise node of so many channels, in blocks or as something that broadcasts to them."""
        found = self.known.get(value)
        if found is not None and found.channels == channels and value.shape is not None and len(value.shape) == rank:
            return found.value
        shape = value.shape
        if not is_float(value) or shape is None or len(shape) > rank:
            return None
        if all(size == 1 for size in shape):
            return value if self.inside(value) is None else None
        data = constant_data(self.graph, value)
        if data is not None:
            return self._reordered(value, data, channels, rank)
        if len(shape) < rank:
            return None
        if shape[1] == channels:
            converted = self.blocked(value, before)
            return None if converted is None else converted.value
        if shape[1] == 1:  # one for all channels: one lane that is repeated
            axes = self.constant(f"{value.name}:axes", np.array([-1], np.int64))
            made = Value(self.free_name(f"{value.name}:lane"), TensorType(dtypes.FLOAT32, (*shape, 1)))
            self.graph.insert_before(before, Node("Unsqueeze", [value, axes], [made], version=STANDARD_VERSION))
            return made
        return None

    def _reordered(self, value: Value, data: Tensor, channels: int, rank: int) -> Value | None:
        """A constant that varies along channels or space, as it broadcasts to blocks."""
        found = self._constants.get((value, channels))
        if found is None:
            shape = (1,) * (rank - len(data.shape)) + data.shape
            array = data.numpy().reshape(shape)
            if shape[1] == channels:
                array = to_blocked(array, self.block)
            elif shape[1] == 1:
                array = array.reshape(*shape, 1)
            else:
                return None
            found = self._constants[value, channels] = self.constant(f"{value.name}:blocked", array)
        return found


def is_float(value: Value | None) -> bool:
    """Whether a value is a float32 tensor."""
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype is dtypes.FLOAT32


def is_elementwise(node: Node) -> bool:
    """Whether a node computes in blocks what it computes in plain order, element by element."""
    if (node.domain == "" and node.version < 7) or len(node.outputs) != 1:
        return False
    if node.domain not in ("", "com.microsoft") or (node.domain and len(node.inputs) != 1):
        return False
    return Trait.ELEMENTWISE in traits(node)


def constant_data(graph: Graph, value: Value | None) -> Tensor | None:
    """The data of a constant that no feed can replace."""
    if value is None or not isinstance(value.constant, Tensor) or not is_constant(value, graph):
        return None
    return value.constant


def image_input(node: Node, position: int = 0) -> Value | None:
    """An input that is an image: float32 [N, C, ...] with a known number of channels."""
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None or not is_float(value) or value.shape is None or len(value.shape) < 3:
        return None
    return value if isinstance(value.shape[1], int) and value.shape[1] > 0 else None


def image_output(node: Node, rank: int, *, allow_bool: bool = False) -> Shape | None:
    """The shape of the output, if it is an image as well."""
    output = node.outputs[0]
    is_bool = isinstance(output.type, TensorType) and output.type.dtype is dtypes.BOOL
    if not (is_float(output) or (allow_bool and is_bool)) or output.shape is None or len(output.shape) != rank:
        return None
    return output.shape if isinstance(output.shape[1], int) and output.shape[1] > 0 else None


def carried_on(region: Region, node: Node) -> tuple[Blocked, Shape] | None:
    """The first input and the output shape of a node that continues a region."""
    x = image_input(node)
    found = region.inside(x)
    if x is None or x.shape is None or found is None:
        return None
    shape = image_output(node, len(x.shape))
    return None if shape is None else (found, shape)
