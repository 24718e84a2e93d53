"""The first iteration of a Loop is written out if a carried value has another rank from then on.

    y = Loop(n, c, x: f32[]) <body (i, c, s) => (c2, s2: f32[1])>
    =>   y = If(c and n > 0) <then (s1, c1 = body(0, true, x); Loop(n - 1, c1, s1: f32[1]) <body (i + 1, c, s) => ..>), else (x)>

Converters begin with a flag or a counter that has no axes and go on with what a Reduce or a sum with `[1]` gives. One body serves
both, so it has no ranks and nothing in it can be compiled; behind the first iteration they are all known. Where the condition and
the number of iterations are literal, there is no If. Two iterations at most are written out, one in each round of the passes.
Runs after FoldConstants (literal conditions) and CaptureInvariants (what never changes is not carried). Refuses: ranks that go on
changing or are still not known then; large bodies, which would be compiled twice; random numbers, whose order would change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from sardonyx.analysis.loop_body import LoopBody, loop_body_of
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir import tensor
from sardonyx.ir.builder import make_attr
from sardonyx.ir.clone import Cloner, clone_graph
from sardonyx.ir.graph import Graph, Model, Node, Value, walk
from sardonyx.ir.types import TensorType, Type
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.fold_constants import inline_branch
from sardonyx.passes.fold_shape_values import FoldShapeValues
from sardonyx.passes.protocol import PassResult, Reject, Rule
from sardonyx.passes.rewriter import Rewriter, shape_of
from sardonyx.passes.sink_into_branches import sink_tails, without_shape
from sardonyx.records import dataclass

_MOST_PEELED: Final = 2
_MOST_NODES: Final = 4000
_COMPARES_WHOLE_NUMBERS: Final = 9  # the opset version since which Greater does
_AXES_AS_INPUT: Final = 13  # of Unsqueeze


@dataclass(frozen=True)
class _Beginning:
    """What is known of the first iteration."""

    body: Graph  # the loop's, with ranks as far as they can be known
    given: tuple[Type | None, ...]  # what the first iteration gives
    is_needed: bool  # whether ranks are others from then on
    is_certain: bool  # whether it takes place in any case


@dataclass(frozen=True)
class PeelLoops(Rule[LoopBody]):
    """Ensures: ranks are known in bodies of loops whose carried values have the same ones from the second iteration on."""

    name: ClassVar[str] = "PeelLoops"
    roots: ClassVar[frozenset[str]] = frozenset(("Loop",))

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches; what is known of shapes is used at once, in the bodies too."""
        result = super().run(model)
        if result.modified:
            FoldShapeValues().run(model)
        return result

    def match(self, g: Rewriter, node: Node) -> LoopBody | Reject | None:
        loop = loop_body_of(node)
        if loop is None or all(_has_rank(each.taken.type) for each in loop.carried):
            return None
        return loop

    def check(self, g: Rewriter, found: LoopBody) -> Reject | _Beginning:
        """Whether ranks are known behind the first iterations."""
        node = g.anchor
        limit, going = (*node.inputs, None, None)[:2]
        trips, start = g.number(limit), g.number(going)
        if (trips is not None and trips < 1) or start == 0:
            return Reject("it has no iteration")
        if node.version < _COMPARES_WHOLE_NUMBERS:
            return Reject(f"opset {node.version} does not compare whole numbers")
        inner = list(walk(found.body))
        if len(inner) > _MOST_NODES:
            return Reject(f"{len(inner)} nodes would be compiled twice")
        if any(Trait.RANDOM in traits(each) for each in inner):
            return Reject("its body draws random numbers, whose order would change")
        is_certain = (limit is None or trips is not None) and (going is None or start is not None)
        beginning = _beginning(g, found, is_certain)
        return Reject("carried values have no ranks that stay") if beginning is None else beginning

    def rewrite(self, g: Rewriter, found: LoopBody, facts: _Beginning) -> None:
        node = g.anchor
        results = [value for value in node.outputs if value.name]
        if not facts.is_needed:
            outputs = g.node("Loop", node.inputs, len(node.outputs), body=facts.body)
            outputs = [new for new, old in zip(outputs, node.outputs) if old.name]
        else:
            then, otherwise = _begun(g, found, facts), _not_begun(g, found)
            condition = g.constant(np.array(True), "begins") if facts.is_certain else _begins(g, node)
            outputs = g.node("If", [condition], len(results), then_branch=then, else_branch=otherwise)
        for old, new in zip(results, outputs):
            new.type = old.type
            g.replace(old, new)
        g.refresh()
        made = outputs[0].producer
        assert made is not None
        if facts.is_needed and facts.is_certain:
            inline_branch(g.at(made), made)
            g.at(node)


def _has_rank(type_: Type | None) -> bool:
    """Whether nothing more can be known of the rank of a value: it is known, or there is none."""
    return type_ is not None and not (isinstance(type_, TensorType) and type_.shape is None)


# Types


def _beginning(g: Rewriter, loop: LoopBody, is_certain: bool) -> _Beginning | None:
    """What is known of the first iteration, if ranks stay what they are soon after it."""
    trial = clone_graph(loop.body)
    graphs = [trial, *(inner for node in walk(trial) for inner in node.subgraphs())]
    types: list[Type | None] = [None if start is None else start.type for start in loop.starts]
    first: tuple[Type | None, ...] | None = None
    for number in range(_MOST_PEELED + 1):
        given = _results(trial, types)
        if sink_tails(graphs, g.fresh_name, []):
            given = _results(trial, types)
        first = first or given
        carried = list(given[1 : 1 + len(loop.carried)])
        if all(map(_has_rank, carried)) and list(map(_rank, carried)) == list(map(_rank, types)):
            return _Beginning(trial, first, number > 0, is_certain)
        types = carried
    for node in walk(trial):
        node.replace_inputs([])  # values outside are read by it no more
    return None


def _results(body: Graph, carried: Sequence[Type | None]) -> tuple[Type | None, ...]:
    """The types that a body gives; those of all its values are set accordingly."""
    for value in _made_inside(body):
        value.type = without_shape(value.type)
    for value, type_ in zip(body.inputs[2:], carried):
        value.type = type_
    infer_shapes(body)
    return tuple(value.type for value in body.outputs)


def _made_inside(graph: Graph) -> Iterator[Value]:
    for node in walk(graph):
        yield from node.outputs
        for inner in node.subgraphs():
            yield from inner.inputs


def _rank(type_: Type | None) -> int | None:
    return len(type_.shape) if isinstance(type_, TensorType) and type_.shape is not None else None


# Graphs


@dataclass(frozen=True)
class _Side:
    """A side of an If under construction."""

    g: Rewriter
    graph: Graph
    version: int

    def op(self, op_type: str, inputs: Sequence[Value | None], hint: str = "", **attrs: Any) -> Value:
        """A node with one result."""
        return self.node(op_type, inputs, [hint or op_type], **attrs)[0]

    def node(
        self, op_type: str, inputs: Sequence[Value | None], names: Sequence[str], label: str = "", **attrs: Any
    ) -> list[Value]:
        """A node with results of these names, or like them."""
        results = [Value(self.g.fresh_name(name) if name else "") for name in names]
        made = [make_attr(key, value) for key, value in attrs.items()]
        self.graph.append(Node(op_type, inputs, results, made, version=self.version, name=label or self.g.fresh_name(op_type)))
        return results

    def constant(self, data: np.ndarray[Any, Any] | np.generic, hint: str) -> Value:
        return self.graph.add_initializer(self.g.fresh_name(hint), tensor.from_numpy(np.asarray(data)))


def _begins(g: Rewriter, node: Node) -> Value:
    """Whether a loop has an iteration, which is not known before a run."""
    limit, going = (None if g.constant_of(value) is not None else value for value in (*node.inputs, None, None)[:2])
    has_trips = None if limit is None else g.op("Greater", limit, g.constant(np.array(0, np.int64), "none"))
    if going is None or has_trips is None:
        found = going or has_trips
        assert found is not None  # else it begins for certain
        return found
    return g.op("And", going, has_trips)


def _begun(g: Rewriter, loop: LoopBody, facts: _Beginning) -> Graph:
    """The first iteration, and the loop that goes on from there."""
    node = g.anchor
    graph = Graph(g.fresh_name(f"{loop.body.name}_begun"))
    side = _Side(g, graph, node.version)
    body, count = facts.body, len(loop.carried)
    firsts: dict[Value, Value | None] = dict(zip(body.inputs[2:], loop.starts))
    for taken, content in zip(body.inputs, (np.int64(0), np.bool_(True))):
        firsts[taken] = side.constant(np.full([1] * len(shape_of(taken) or ()), content), taken.name)
    cloner = Cloner(firsts, g.fresh_name, g.fresh_name)
    for value in body.initializers.values():
        copy = cloner.value(value)
        graph.initializers[copy.name] = copy
    for each in body.nodes:
        graph.append(cloner.node(each))
    for value in _made_inside(graph):
        value.type = without_shape(value.type)
    made = [cloner.values.get(value, value) for value in body.outputs]
    stacked = [value for value, slices in zip(made[1 + count :], loop.stacked) if slices is not None and value is not None]
    elements = [type_ for type_, slices in zip(facts.given[1 + count :], loop.stacked) if slices is not None]
    limit = (*node.inputs, None)[0]
    fewer = None if limit is None else side.op("Sub", [limit, side.constant(np.int64(1), "one")])
    names = [value.name for value in node.outputs]
    rest = [fewer, made[0], *made[1 : 1 + count]]
    if all(map(_is_static, elements)):
        graph.outputs.extend(_rest(side, loop, body, rest, names, elements, stacked))
        return graph
    # Without another iteration a stacked result would not have the sizes of its elements.
    going_on = Graph(g.fresh_name(f"{loop.body.name}_rest"))
    going_on.outputs.extend(_rest(_Side(g, going_on, node.version), loop, body, rest, names, elements, stacked))
    over = Graph(g.fresh_name(f"{loop.body.name}_over"))
    end = _Side(g, over, node.version)
    over.outputs.extend(end.op("Identity", [value], name) for value, name in zip(made[1 : 1 + count], names) if name)
    over.outputs.extend(_as_stack(end, value) for value in stacked)
    more = made[0]
    if fewer is not None:
        more = side.op("And", [more, side.op("Greater", [fewer, side.constant(np.int64(0), "none")])])
    wanted = [name for name in names if name]
    graph.outputs.extend(side.node("If", [more], wanted, then_branch=going_on, else_branch=over))
    return graph


def _rest(
    side: _Side,
    loop: LoopBody,
    body: Graph,
    inputs: Sequence[Value | None],
    names: Sequence[str],
    elements: Sequence[Type | None],
    firsts: Sequence[Value],
) -> list[Value]:
    """The loop from the second iteration on: its results that are wanted."""
    _count_from_one(side.g, body)
    results = side.node("Loop", inputs, names, side.g.anchor.name, body=body)
    count = len(loop.carried)
    stated = list(body.output_types[: 1 + count])
    types = iter(elements)
    stated += [None if slices is None else next(types) for slices in loop.stacked]
    body.stated_outputs = (*stated, *body.output_types[len(stated) :])
    carried = [value for value in results[:count] if value.name]
    stacks = [value for value in results[count:] if value.name]
    return carried + [side.op("Concat", [_as_stack(side, first), stack], axis=0) for first, stack in zip(firsts, stacks)]


def _as_stack(side: _Side, element: Value) -> Value:
    """A stacked result of one iteration."""
    if side.version < _AXES_AS_INPUT:
        return side.op("Unsqueeze", [element], axes=(0,))
    return side.op("Unsqueeze", [element, side.constant(np.zeros(1, np.int64), "axes")])


def _is_static(type_: Type | None) -> bool:
    return isinstance(type_, TensorType) and type_.shape is not None and all(isinstance(size, int) for size in type_.shape)


def _count_from_one(g: Rewriter, body: Graph) -> None:
    """The number that the iterations of a body read is one more."""
    counter = body.inputs[0]
    uses = list(counter.uses)
    giving = [
        graph for graph in (body, *(inner for node in walk(body) for inner in node.subgraphs())) if counter in graph.outputs
    ]
    if not uses and not giving:
        return
    one = body.add_initializer(g.fresh_name("one"), tensor.from_numpy(np.array(1, np.int64)))
    number = Value(g.fresh_name(counter.name), counter.type)
    version = body.parent_node.version if body.parent_node is not None else g.version
    add = Node("Add", [counter, one], [number], version=version, name=g.fresh_name("Add"))
    first = next(iter(body.nodes), None)
    if first is None:
        body.append(add)
    else:
        body.insert_before(first, add)
    for user, position in uses:
        user.set_input(position, number)
    for graph in giving:
        graph.outputs[:] = [number if value is counter else value for value in graph.outputs]


def _not_begun(g: Rewriter, loop: LoopBody) -> Graph:
    """What a loop without an iteration gives: what it was given, and nothing stacked."""
    node = g.anchor
    graph = Graph(g.fresh_name(f"{loop.body.name}_not_begun"))
    side = _Side(g, graph, node.version)
    count = len(loop.carried)
    for start, result in zip(loop.starts, node.outputs):
        if result.name:
            graph.outputs.append(side.op("Identity", [start], result.name))
    for slices, stated in zip(loop.stacked, loop.body.output_types[1 + count :]):
        if slices is not None:
            graph.outputs.append(side.op("Identity", [side.constant(_empty_stack(stated), "nothing")]))
    return graph


def _empty_stack(element: Type | None) -> np.ndarray[Any, Any]:
    """A stacked result of no iterations: sizes that the body does not state are 0, as the definition of Loop has it."""
    dtype = element.dtype.numpy if isinstance(element, TensorType) else np.dtype(np.float32)
    shape = (element.shape if isinstance(element, TensorType) else None) or ()
    return np.empty((0, *(size if isinstance(size, int) else 0 for size in shape)), dtype)
