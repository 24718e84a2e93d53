"""Divides a graph that computes outputs and gradients into a forward and a backward graph.

    x, w ──> h ──> y                          forward:   x, w ──> y, kept values
    dy, h, w ──> dx, dw           =>          backward:  dy, kept values, x, w ──> dx, dw

What is kept between them is a minimum cut. All that does not depend on the gradients of the outputs may be computed in the
forward pass, and what is cheap (elementwise operators, views, casts: they cost little more than reading their results
would) in the backward pass again. Each value has a price, its size; inputs of the graph cost nothing, for the caller has them
anyway. The cheapest set of values that separates what must be computed forward from the backward pass is kept.

Only the shape of a value that is measured (Shape, Size) is needed in the backward pass: it gets an array of that shape with one
more axis of size 0, which takes no memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.liveness import used_values
from sardonyx.ir.clone import Cloner
from sardonyx.ir.dims import Dim, evaluate, product, symbols_of
from sardonyx.ir.graph import Attr, AttrKind, Graph, Node, Value, needed_nodes
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.registry import Trait, traits
from sardonyx.records import dataclass

_USUAL_SIZE: Final = 32  # what an open dimension counts as when values are compared
_SHAPE_VERSION: Final = 15  # since which Shape can leave axes out
_ENDLESS: Final = 1 << 62
_MOST_SIZES: Final = 64  # elements of a vector of sizes

# Cheap to compute again, but not elementwise or views.
_REARRANGES: Final = frozenset(
    (
        "Cast", "Concat", "ConstantOfShape", "Expand", "Flatten", "FromBlocked", "Identity", "Pad", "RandomMask", "Range",
        "Reshape", "Slice", "Split", "Squeeze", "Tile", "ToBlocked", "Transpose", "Trilu", "Unsqueeze", "Where",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """What the forward pass leaves for the backward pass."""

    values: tuple[Value, ...]  # of the joint graph: outputs of the forward graph
    inputs: tuple[Value, ...]  # inputs of the joint graph that the backward pass reads
    shapes: tuple[Shape, ...]  # of values that it only measures, and sizes it must know


@dataclass(frozen=True)
class Halves:
    """The two graphs. The backward one has as inputs the kept values, inputs, shapes and then the gradients of the outputs."""

    forward: Graph
    backward: Graph
    kept: Kept


def divide(
    graph: Graph,
    outputs: Sequence[Value],
    seeds: Sequence[Value],
    gradients: Sequence[Value],
    recomputed: Callable[[Node], bool] | None = None,
) -> Halves:
    """Divide a joint graph, whose types are inferred: forward computes `outputs`, backward `gradients` from `seeds`.

    `recomputed` says of nodes that are not cheap that they are to be computed again all the same.
    """
    division = _Division(graph, outputs, seeds, gradients, recomputed or (lambda node: False))
    return division.halves()


def is_cheap(node: Node) -> bool:
    """Whether computing a node again costs little more than reading its result from memory."""
    found = traits(node)
    if Trait.RANDOM in found or node.subgraphs():
        return False
    return bool(found & (Trait.ELEMENTWISE | Trait.VIEW | Trait.MEASURES)) or node.op_type in _REARRANGES or _is_size_value(node)


def _is_size_value(node: Node) -> bool:
    """Whether a node makes a few integers of a few integers, as arithmetic of shapes does."""
    values = [*node.outputs, *(value for value in node.inputs if value is not None)]
    return Trait.DATA_SIZED not in traits(node) and all(_is_small_integer(value) for value in values)


def _is_small_integer(value: Value) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None or len(type_.shape) > 1 or not type_.dtype.is_integer:
        return False
    return all(isinstance(size, int) and size <= _MOST_SIZES for size in type_.shape)


def price(value: Value, sizes: Mapping[str, int]) -> int:
    """How many bytes a value takes, for sizes of the open dimensions that are usual."""
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return _ENDLESS
    count = product(list(value.type.shape))
    names = symbols_of(count) if not isinstance(count, int) else ()
    try:
        number = evaluate(count, {name: sizes.get(name, _USUAL_SIZE) for name in names})
    except ValueError:  # usual sizes may contradict the model's own, as a number of positions
        number = math.prod(dim if isinstance(dim, int) else _USUAL_SIZE for dim in value.type.shape)
    return max(number * max(value.type.dtype.bits // 8, 1), 1)


class _Division:
    def __init__(
        self,
        graph: Graph,
        outputs: Sequence[Value],
        seeds: Sequence[Value],
        gradients: Sequence[Value],
        recomputed: Callable[[Node], bool],
    ) -> None:
        self.graph = graph
        self.outputs, self.seeds, self.gradients = outputs, seeds, gradients
        self.nodes = list(graph.nodes)
        self.recomputed = recomputed
        self.inputs = set(graph.inputs) - set(seeds)
        late: set[Value] = set(seeds)
        for node in self.nodes:
            if any(value in late for value in _read(node)):
                late.update(node.outputs)
        self.late = late  # what depends on the gradients of the outputs
        needed = needed_nodes(self.nodes, gradients)
        self.behind = [node for node in needed if any(value in late for value in node.outputs)]

    def halves(self) -> Halves:
        wanted = self._wanted_early()
        kept = self._cut(wanted)
        forward_nodes = needed_nodes(self.nodes, [*self.outputs, *kept])
        again = self._again(wanted, set(kept))
        measured: dict[Value, None] = {}
        read: dict[Value, None] = {}
        for node in (*again, *self.behind):
            found = measured if _measures(node) else read
            found.update(dict.fromkeys(_read(node) if not _measures(node) else [node.inputs[0]]))  # type: ignore[list-item]
        for value in self.gradients:
            read[value] = None
        held = [value for value in read if value in self.inputs]
        made = {value for node in (*again, *self.behind) for value in node.outputs}
        known = {*made, *kept, *held, *self.seeds, *self.graph.initializers.values()}
        shapes = [value for value in measured if value not in known]
        forward = self._graph("forward", forward_nodes, list(self.graph.inputs), [*self.outputs, *kept], {})
        forward.inputs = [value for value in forward.inputs if value.name not in {seed.name for seed in self.seeds}]
        carriers = {value: _carrier(value) for value in shapes}
        lost = self._unbound([*kept, *held, *shapes, *self.seeds])
        extra = _carrier_of("sizes", lost) if lost else None
        backward = self._graph("backward", [*again, *self.behind], [*kept, *held, *self.seeds], list(self.gradients), carriers)
        front = len(kept) + len(held)
        added = [*carriers.values(), *([extra] if extra is not None else [])]
        backward.inputs[front:front] = added
        all_shapes = [value.shape or () for value in shapes] + ([lost] if lost else [])
        return Halves(forward, backward, Kept(tuple(kept), tuple(held), tuple(all_shapes)))

    def _wanted_early(self) -> list[Value]:
        """What the backward pass reads of values that do not depend on the gradients of the outputs."""
        wanted: dict[Value, None] = {}
        for node in self.behind:
            if not _measures(node):
                wanted.update((value, None) for value in _read(node) if value not in self.late)
        wanted.update((value, None) for value in self.gradients if value not in self.late)
        return [value for value in wanted if value.producer is not None]

    def _again(self, wanted: Sequence[Value], kept: set[Value]) -> list[Node]:
        """The nodes that the backward pass computes again."""
        chosen: set[Node] = set()
        pending = [value for value in wanted if value not in kept]
        for node in self.behind:
            if _measures(node):
                continue
            pending.extend(value for value in _read(node) if value not in self.late and value not in kept)
        while pending:
            producer = pending.pop().producer
            if producer is None or producer in chosen:
                continue
            chosen.add(producer)
            if not _measures(producer):
                pending.extend(value for value in _read(producer) if value not in kept)
        return [node for node in self.nodes if node in chosen]

    def _cut(self, wanted: Sequence[Value]) -> list[Value]:
        """The cheapest values that separate what must be computed forward from what is wanted."""
        flow = _Flow()
        seen: set[Value] = set()
        pending = list(wanted)
        for value in wanted:
            flow.edge((value, 1), "sink", _ENDLESS)
        sizes: dict[str, int] = {}
        while pending:
            value = pending.pop()
            if value in seen or value.producer is None:
                continue
            seen.add(value)
            node = value.producer
            if _measures(node):
                continue  # the shape is known, whatever was measured
            flow.edge((value, 0), (value, 1), price(value, sizes) if isinstance(value.type, TensorType) else _ENDLESS)
            if not is_cheap(node) and not self.recomputed(node):
                flow.edge("source", (value, 0), _ENDLESS)
                continue
            for operand in _read(node):
                if operand.producer is not None:
                    flow.edge((operand, 1), (value, 0), _ENDLESS)
                    pending.append(operand)
        reached = flow.reached_from_source()
        order = {value: number for number, value in enumerate(value for node in self.nodes for value in node.outputs)}
        found = [value for value in seen if (value, 0) in reached and (value, 1) not in reached]
        return sorted(found, key=order.__getitem__)

    def _unbound(self, inputs: Sequence[Value]) -> Shape:
        """The symbols of the backward graph's types that no input has as a size of its own."""
        bound: set[str] = set()
        used: dict[str, Dim] = {}
        values = [*inputs, *(value for node in self.behind for value in node.outputs)]
        values += [value for node in self.nodes for value in node.outputs if value not in self.late]
        named: dict[str, Dim] = {}
        for value in self.graph.inputs:
            for dim in value.shape or ():
                if not isinstance(dim, int) and dim.is_symbol:
                    named[str(dim)] = dim
        for value in inputs:
            for dim in value.shape or ():
                if not isinstance(dim, int) and dim.is_symbol:
                    bound.add(str(dim))
        for value in values:
            for dim in value.shape or ():
                if not isinstance(dim, int):
                    used.update((name, named[name]) for name in symbols_of(dim) if name in named)
        return tuple(dim for name, dim in used.items() if name not in bound)

    def _graph(
        self, name: str, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value], carriers: Mapping[Value, Value]
    ) -> Graph:
        """A copy of some nodes as a graph of its own."""
        cloner = Cloner()
        made = Graph(f"{self.graph.name}_{name}")
        made.size_checks = self.graph.size_checks if name == "forward" else ()
        for value in inputs:
            copy = Value(value.name, value.type, value.constant if value in self.graph.initializers.values() else None)
            cloner.values[value] = copy
            made.inputs.append(copy)
        used = {value for node in nodes for value in _read(node)} | set(outputs)
        for value in self.graph.initializers.values():
            if value in used and value not in cloner.values:
                copy = cloner.value(value)
                made.initializers[copy.name] = copy
        for node in nodes:
            measured = node.inputs[0] if _measures(node) else None
            if measured is not None and measured in carriers:
                _measure_carrier(made, cloner, node, carriers[measured])
            else:
                made.append(cloner.node(node))
        for value in outputs:
            given = cloner.values.get(value)
            assert given is not None, f"{value.name} is not computed in the {name} graph"
            made.outputs.append(given)
        return made


def _read(node: Node) -> list[Value]:
    """What a node reads, its subgraphs included."""
    return used_values(node) if node.subgraphs() else [value for value in node.inputs if value is not None]


def _measures(node: Node) -> bool:
    return Trait.MEASURES in traits(node)


def _carrier(value: Value) -> Value:
    """An input that has the shape of a value, and no elements."""
    return _carrier_of(f"{value.name}_shape", value.shape or ())


def _carrier_of(name: str, shape: Shape) -> Value:
    return Value(name, TensorType(dtypes.FLOAT32, (*shape, 0)))


def _measure_carrier(graph: Graph, cloner: Cloner, node: Node, carrier: Value) -> None:
    """Measure a carrier instead of the value it stands for."""
    rank = len(carrier.shape or ()) - 1
    version = max(node.version, _SHAPE_VERSION)
    if node.op_type == "Shape":
        copy = cloner.node(node)
        copy.version = version
        end = node.attr("end", rank)
        end = min(max(end + rank if end < 0 else end, 0), rank)
        copy.attrs["end"] = Attr("end", AttrKind.INT, end)
        start = node.attr("start", 0)
        copy.attrs["start"] = Attr("start", AttrKind.INT, max(start + rank, 0) if start < 0 else start)
        copy.set_input(0, carrier)
        graph.append(copy)
        return
    sizes = Value(f"{carrier.name}_sizes", TensorType(dtypes.INT64, (rank,)))
    graph.append(
        Node("Shape", [carrier], [sizes], [Attr("start", AttrKind.INT, 0), Attr("end", AttrKind.INT, rank)], version=version)
    )
    graph.append(Node("ReduceProd", [sizes], [cloner.value(node.outputs[0])], [Attr("keepdims", AttrKind.INT, 0)], version=13))


class _Flow:
    """A network of edges with capacities, and the flow through it from "source" to "sink" (Dinic's algorithm)."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {"source": 0, "sink": 1}
        self._edges: list[list[int]] = [[], []]  # for each place the edges that leave it
        self._to: list[int] = []
        self._room: list[int] = []

    def _number(self, key: object) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._edges)
            self._edges.append([])
        return number

    def edge(self, start: object, end: object, capacity: int) -> None:
        """An edge from one place to another."""
        a, b = self._number(start), self._number(end)
        self._edges[a].append(len(self._to))
        self._to.append(b)
        self._room.append(capacity)
        self._edges[b].append(len(self._to))
        self._to.append(a)
        self._room.append(0)

    def reached_from_source(self) -> set[object]:
        """The places on the source's side of a minimum cut."""
        while True:
            levels = self._levels()
            if levels[1] < 0:
                return {key for key, number in self._numbers.items() if levels[number] >= 0}
            self._augment(levels)

    def _levels(self) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[0] = 0
        queue = deque([0])
        while queue:
            here = queue.popleft()
            for edge in self._edges[here]:
                there = self._to[edge]
                if self._room[edge] and levels[there] < 0:
                    levels[there] = levels[here] + 1
                    queue.append(there)
        return levels

    def _augment(self, levels: list[int]) -> None:
        """Send flow along shortest paths until none is left."""
        following = [0] * len(self._edges)
        path: list[int] = []
        here = 0
        while True:
            if here == 1:
                amount = min(self._room[edge] for edge in path)
                for edge in path:
                    self._room[edge] -= amount
                    self._room[edge ^ 1] += amount
                path, here = [], 0
                continue
            edges = self._edges[here]
            while following[here] < len(edges):
                edge = edges[following[here]]
                if self._room[edge] and levels[self._to[edge]] == levels[here] + 1:
                    path.append(edge)
                    here = self._to[edge]
                    break
                following[here] += 1
            else:
                if not path:
                    return
                edge = path.pop()
                here = self._to[edge ^ 1]
                following[here] += 1
