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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from sardonyx import dtypes
from sardonyx.analysis.liveness import used_values
from sardonyx.ir.clone import Cloner
from sardonyx.ir.dims import Dim, evaluate, product, symbols_of
from sardonyx.ir.graph import Attr, AttrKind, Graph, Node, Value, needed_nodes
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.registry import Trait, traits
from sardonyx.records import dataclass
from sardonyx.training.minimum_cut import Flow

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


MayRepeat = Callable[[Node], bool]


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


LOCAL_LOW: Final = 10  # the priority from which on nodes wait for others
RECOMPUTED: Final = "_recompute"  # ends the names of nodes and values of what is repeated


def is_cheap(node: Node) -> bool:
    """Whether computing a node again costs little more than reading its result from memory."""
    found = traits(node)
    if Trait.RANDOM in found or node.subgraphs():
        return False
    return bool(found & (Trait.ELEMENTWISE | Trait.VIEW | Trait.MEASURES)) or node.op_type in _REARRANGES or is_size_value(node)


def is_size_value(node: Node) -> bool:
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


class JointGraph:
    """A joint graph, whose types are inferred: forward computes `outputs`, backward `gradients` from `seeds`."""

    def __init__(self, graph: Graph, outputs: Sequence[Value], seeds: Sequence[Value], gradients: Sequence[Value]) -> None:
        self.graph = graph
        self.outputs, self.seeds, self.gradients = outputs, seeds, gradients
        self.nodes = list(graph.nodes)
        self.inputs = set(graph.inputs) - set(seeds)
        late: set[Value] = set(seeds)
        for node in self.nodes:
            if any(value in late for value in read_values(node)):
                late.update(node.outputs)
        self.late = late  # what depends on the gradients of the outputs
        needed = needed_nodes(self.nodes, gradients)
        self.behind = [node for node in needed if any(value in late for value in node.outputs)]
        wanted = self._wanted_early()
        self.plainly_kept = self._cut(wanted, is_cheap)  # what is kept if only cheap nodes are repeated
        self._plainly_again = self._again(wanted, set(self.plainly_kept))

    def kept(self, may_repeat: MayRepeat = is_cheap) -> list[Value]:
        """What the forward pass leaves to the backward pass, in the order in which it is made."""
        return self.plainly_kept if may_repeat is is_cheap else self._cut(self.plainly_kept, may_repeat)

    def halves(self, may_repeat: MayRepeat = is_cheap) -> Halves:
        """The graphs of both passes; `may_repeat` says of a node that the backward pass may compute it again.

        What the backward pass would read, were only cheap nodes repeated, is computed by nodes of their own, of low priority:
        all others are the same, and so are the bits of the gradients.
        """
        kept, plainly, again = self.kept(may_repeat), self.plainly_kept, self._plainly_again
        forward_nodes = needed_nodes(self.nodes, [*self.outputs, *kept])
        repeated = self._from(kept, [value for value in plainly if value not in set(kept)])
        late = _early_leaves_first([*again, *self.behind])
        read = [value for node in (*repeated, *late) if not _measures(node) for value in read_values(node)]
        held = [value for value in dict.fromkeys([*read, *self.gradients]) if value in self.inputs]
        given = {*held, *self.seeds, *self.graph.initializers.values()}
        shapes = list(dict.fromkeys([*_only_measured(repeated, {*given, *kept}), *_only_measured(late, {*given, *plainly})]))
        forward = self._graph("forward", forward_nodes, list(self.graph.inputs), [*self.outputs, *kept], {})
        forward.inputs = [value for value in forward.inputs if value.name not in {seed.name for seed in self.seeds}]
        carriers = {value: _carrier(value) for value in shapes}
        lost = self._unbound([*kept, *held, *shapes, *self.seeds])
        extra = _carrier_of("sizes", lost) if lost else None
        backward = self._graph("backward", late, [*kept, *held, *self.seeds], list(self.gradients), carriers, repeated)
        front = len(kept) + len(held)
        added = [*carriers.values(), *([extra] if extra is not None else [])]
        backward.inputs[front:front] = added
        all_shapes = [value.shape or () for value in shapes] + ([lost] if lost else [])
        return Halves(forward, backward, Kept(tuple(kept), tuple(held), tuple(all_shapes)))

    def executed(self, may_repeat: MayRepeat = is_cheap) -> Graph:
        """The joint graph with what is repeated in it twice, for looking at: gradients read the second copies."""
        kept = set(self.kept(may_repeat))
        fresh = [value for value in self.plainly_kept if value not in kept]
        repeated, behind = self._from(list(kept), fresh), set(self.behind)
        cloner = Cloner()
        made = Graph(self.graph.name)
        made.inputs = [cloner.value(value) for value in self.graph.inputs]
        for value in self.graph.initializers.values():
            made.initializers[value.name] = cloner.value(value)
        _append(made, cloner, [node for node in self.nodes if node not in behind], {})
        made.outputs.extend(cloner.value(value) for value in self.outputs)
        again = {value for node in repeated for value in node.outputs}
        apart = Cloner({value: copy for value, copy in cloner.values.items() if value not in again}, _repeated, _repeated)
        _append(made, apart, repeated, {})
        cloner.values.update((value, apart.values[value]) for value in fresh)
        _append(made, cloner, self.behind, {})
        made.outputs.extend(cloner.value(value) for value in self.gradients)
        return made

    def _from(self, kept: Sequence[Value], wanted: Sequence[Value]) -> list[Node]:
        """The nodes that compute values from those that are kept, and from the inputs."""
        held, found = set(kept), set[Node]()
        pending = [value.producer for value in wanted]
        while pending:
            node = pending.pop()
            if node is None or node in found:
                continue
            found.add(node)
            if not _measures(node):
                pending.extend(value.producer for value in read_values(node) if value not in held)
        return [node for node in self.nodes if node in found]

    def _priorities(self, repeated: Sequence[Node]) -> dict[Node, int]:
        """By which nodes that are repeated wait until a gradient needs them: those that are needed first have the lowest."""
        needed_by: dict[Value, int] = {}  # the first node of the backward pass that depends on a value
        for number, node in reversed(list(enumerate(self.behind))):
            needed_by.update(dict.fromkeys(read_values(node), number))
        again = {*self._plainly_again, *repeated}
        first_of: dict[Node, int] = {}
        for node in reversed(self.nodes):
            if node in again:
                first = min((needed_by[value] for value in node.outputs if value in needed_by), default=len(self.behind))
                first_of[node] = first
                for value in read_values(node):
                    needed_by[value] = min(first, needed_by.get(value, first))
        ranks = {number: rank for rank, number in enumerate(sorted({first_of[node] for node in repeated}))}
        return {node: LOCAL_LOW + ranks[first_of[node]] for node in repeated}

    def _wanted_early(self) -> list[Value]:
        """What the backward pass reads of values that do not depend on the gradients of the outputs."""
        wanted: dict[Value, None] = {}
        for node in self.behind:
            if not _measures(node):
                wanted.update((value, None) for value in read_values(node) if value not in self.late)
        wanted.update((value, None) for value in self.gradients if value not in self.late)
        return [value for value in wanted if value.producer is not None]

    def _again(self, wanted: Sequence[Value], kept: set[Value]) -> list[Node]:
        """The nodes that the backward pass computes again."""
        chosen: set[Node] = set()
        pending = [value for value in wanted if value not in kept]
        for node in self.behind:
            if _measures(node):
                continue
            pending.extend(value for value in read_values(node) if value not in self.late and value not in kept)
        while pending:
            producer = pending.pop().producer
            if producer is None or producer in chosen:
                continue
            chosen.add(producer)
            if not _measures(producer):
                pending.extend(value for value in read_values(producer) if value not in kept)
        return [node for node in self.nodes if node in chosen]

    def _cut(self, wanted: Sequence[Value], may_repeat: MayRepeat) -> list[Value]:
        """The cheapest values that separate what must be computed forward from what is wanted."""
        flow = Flow()
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
            if not may_repeat(node):
                flow.edge("source", (value, 0), _ENDLESS)
                continue
            for operand in read_values(node):
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
        self,
        name: str,
        nodes: Sequence[Node],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        carriers: Mapping[Value, Value],
        repeated: Sequence[Node] = (),
    ) -> Graph:
        """A copy of some nodes as a graph of its own; `repeated` ones come first, under names of their own."""
        cloner = Cloner()
        made = Graph(f"{self.graph.name}_{name}")
        made.size_checks = self.graph.size_checks if name == "forward" else ()
        for value in inputs:
            copy = Value(value.name, value.type, value.constant if value in self.graph.initializers.values() else None)
            cloner.values[value] = copy
            made.inputs.append(copy)
        used = {value for node in (*repeated, *nodes) for value in read_values(node)} | set(outputs)
        for value in self.graph.initializers.values():
            if value in used and value not in cloner.values:
                copy = cloner.value(value)
                made.initializers[copy.name] = copy
        if repeated:
            self._repeat(made, cloner, repeated, carriers)
        _append(made, cloner, nodes, carriers)
        for value in outputs:
            given = cloner.values.get(value)
            assert given is not None, f"{value.name} is not computed in the {name} graph"
            made.outputs.append(given)
        return made

    def _repeat(self, made: Graph, cloner: Cloner, repeated: Sequence[Node], carriers: Mapping[Value, Value]) -> None:
        """Put nodes that are repeated in front; the others read what they make."""
        apart = Cloner(dict(cloner.values), _repeated, _repeated)
        _append(made, apart, repeated, carriers)
        priorities = self._priorities(repeated)
        for node in repeated:
            for value in node.outputs:
                copy = apart.values[value]
                assert copy is not None
                assert copy.producer is not None
                copy.producer.priority = priorities[node]
                copy.producer.name = copy.producer.name or _repeated(node.op_type)
                cloner.values[value] = copy
        # What late nodes compute for themselves, they do not read from those.
        for node in self._plainly_again:
            for value in node.outputs:
                cloner.values.pop(value, None)


def _repeated(name: str) -> str:
    return f"{name}{RECOMPUTED}"


def _append(graph: Graph, cloner: Cloner, nodes: Sequence[Node], carriers: Mapping[Value, Value]) -> None:
    """Put copies of nodes behind the others of a graph."""
    for node in nodes:
        measured = node.inputs[0] if _measures(node) else None
        if measured is not None and measured not in cloner.values and measured in carriers:
            _measure_carrier(graph, cloner, node, carriers[measured])
        else:
            graph.append(cloner.node(node))


def _early_leaves_first(nodes: Sequence[Node]) -> list[Node]:
    """The same nodes with those that nobody reads last, the latest in front.

    The default order begins with the last of them: gradients of parameters are computed in the order in which the gradients come
    along that they need, which then can go.
    """
    read = {value for node in nodes for value in read_values(node)}
    leaves = [node for node in nodes if read.isdisjoint(node.outputs)]
    outer = set(leaves)
    return [*(node for node in nodes if node not in outer), *reversed(leaves)]


def _only_measured(nodes: Sequence[Node], given: Collection[Value]) -> list[Value]:
    """What nodes measure that none of them makes, and that is not given."""
    made = {value for node in nodes for value in node.outputs}
    measured = [node.inputs[0] for node in nodes if _measures(node)]
    return [value for value in measured if value is not None and value not in made and value not in given]


def read_values(node: Node) -> list[Value]:
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
