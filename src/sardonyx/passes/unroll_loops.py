"""Loops of a few short iterations, whose number is known, are written out.

    y = Loop(2, true, x) <body (i, c, s) => (c, Mul(s, Gather(w, i)))>    =>    y = Mul(Mul(x, Gather(w, 0)), Gather(w, 1))

To begin a loop takes as long as some ten nodes do, and what lies on both sides of its border cannot be fused. Scan is the same,
with slices of its inputs. Refuses: many iterations or nodes, which would only be compiled several times; loops that may end
early; bodies with bodies of their own; sizes that change from one iteration to the next or that data decides about.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import DimExpr
from sardonyx.ir.graph import Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.passes.fold_sequences import at_axis
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.form_scan_outputs import is_always_true
from sardonyx.passes.protocol import PassResult, Reject, Rule
from sardonyx.passes.rewriter import Rewriter, shape_of
from sardonyx.records import dataclass

_MOST_TRIPS: Final = 16
_MOST_NODES: Final = 96  # of all iterations together


@dataclass(frozen=True)
class _Slices:
    """An input that iterations take in slices, or a result that they stack."""

    value: Value
    axis: int
    backwards: bool


@dataclass(frozen=True)
class _Iterations:
    """A loop and all that its iterations take and give."""

    body: Graph
    trips: int
    control: tuple[Value, ...]  # what a body is told: its number, and that it takes place
    carried: tuple[tuple[Value | None, Value, Value], ...]  # what the loop begins with, what an iteration takes and gives
    sliced: tuple[tuple[Value, _Slices], ...]  # what an iteration takes, and of what
    stacked: tuple[_Slices, ...]


@dataclass(frozen=True)
class UnrollLoops(Rule[_Iterations]):
    """Ensures: no Loop or Scan of known length has less to do than it takes to begin it."""

    name: ClassVar[str] = "UnrollLoops"
    roots: ClassVar[frozenset[str]] = frozenset(("Loop", "Scan"))

    def run(self, model: Model) -> PassResult:
        """Apply the rule wherever it matches; more is known of each iteration than of all of them."""
        result = super().run(model)
        if result.modified:
            infer_from_inputs(model)
        return result

    def match(self, g: Rewriter, node: Node) -> _Iterations | Reject | None:
        body = node.attr("body")
        if not isinstance(body, Graph) or len(node.outputs) != len(body.outputs) - (node.op_type == "Loop"):
            return None
        if len(body.inputs) != max(len(node.inputs), 2 * (node.op_type == "Loop")):
            return None  # whoever runs it says so
        found = _loop(g, node, body) if node.op_type == "Loop" else _scan(node, body)
        if found is None:
            return Reject("the number of iterations is not known, or the loop may end early")
        return found

    def check(self, g: Rewriter, found: _Iterations) -> Reject | None:
        """Whether it is short, and the same in every iteration."""
        body = found.body
        if not 1 <= found.trips <= _MOST_TRIPS or found.trips * len(body) > _MOST_NODES:
            return Reject(f"{found.trips} iterations of {len(body)} nodes")
        if any(each.subgraphs() for each in body.nodes):
            return Reject("its body has bodies of its own")
        inner = [value for each in body.nodes for value in each.outputs if value.name]
        if any(not _is_settled(value) for value in (*inner, *body.inputs)):
            return Reject("sizes in its body are not known")
        if any(not isinstance(value.constant, Tensor) for value in body.initializers.values()):
            return Reject("its body has constants that are no tensors")
        if any(start is None or not _same_type(start, taken) for start, taken, _ in found.carried):
            return Reject("a carried value changes its type or shape")
        return None

    def rewrite(self, g: Rewriter, found: _Iterations, facts: None) -> None:
        body = found.body
        shared: dict[Value, Value | None] = {}
        for held in body.initializers.values():
            assert isinstance(held.constant, Tensor)
            shared[held] = g.constant(held.constant, held.name)
        state: list[Value | None] = [start for start, _, _ in found.carried]
        stacks: list[list[Value]] = [[] for _ in found.stacked]
        for number in range(found.trips):
            values = {**shared, **dict(zip((taken for _, taken, _ in found.carried), state))}
            for value, content in zip(found.control, (number, True)):
                dtype = np.int64 if value is found.control[0] else np.bool_
                values[value] = g.constant(np.full([1] * len(shape_of(value) or ()), content, dtype), value.name)
            for taken, slices in found.sliced:
                at = found.trips - 1 - number if slices.backwards else number
                values[taken] = g.op("Gather", slices.value, g.constant(np.array(at, np.int64), "number"), axis=slices.axis)
            for each in body.nodes:
                made = g.clone(each, [None if value is None else values.get(value, value) for value in each.inputs])
                values.update(zip(each.outputs, made))
            state = [values.get(given, given) for _, _, given in found.carried]
            for stack, slices in zip(stacks, found.stacked):
                element = values.get(slices.value, slices.value)
                assert element is not None
                stack.append(at_axis(g, "Unsqueeze", element, slices.axis))
        results = [*state, *(_joined(g, stack, slices) for stack, slices in zip(stacks, found.stacked))]
        for old, new in zip(g.anchor.outputs, results):
            if new is not None and old.name:
                g.replace(old, new)


def _joined(g: Rewriter, stack: Sequence[Value], slices: _Slices) -> Value:
    ordered = stack[::-1] if slices.backwards else stack
    return g.op("Concat", *ordered, axis=slices.axis) if len(ordered) > 1 else ordered[0]


def _loop(g: Rewriter, node: Node, body: Graph) -> _Iterations | None:
    trips = g.number(node.inputs[0])
    if trips is None or not is_always_true(g, (*node.inputs, None)[1]):
        return None
    if not is_always_true(g, body.outputs[0], body.inputs[1]):
        return None
    starts = node.inputs[2:]
    carried = tuple(zip(starts, body.inputs[2:], body.outputs[1:]))
    stacked = tuple(_Slices(value, 0, False) for value in body.outputs[1 + len(starts) :])
    return _Iterations(body, int(trips), tuple(body.inputs[:2]), carried, (), stacked)


def _scan(node: Node, body: Graph) -> _Iterations | None:
    if node.version < 9:  # those before have an axis for batches
        return None
    attrs = attribute_values(node)
    count = int(attrs["num_scan_inputs"])
    states, scans = len(node.inputs) - count, len(body.outputs) - (len(node.inputs) - count)
    inputs = [value for value in node.inputs[states:] if value is not None]
    numbers = [
        tuple(attrs.get(name) or [0] * length)
        for name, length in (
            ("scan_input_axes", count),
            ("scan_input_directions", count),
            ("scan_output_axes", scans),
            ("scan_output_directions", scans),
        )
    ]
    shapes = [shape_of(value) for value in inputs]
    if len(inputs) != count or [len(each) for each in numbers] != [count, count, scans, scans]:
        return None
    if any(shape is None or not -len(shape) <= axis < len(shape) for shape, axis in zip(shapes, numbers[0])):
        return None
    lengths = {shape[axis] for shape, axis in zip(shapes, numbers[0]) if shape is not None}
    trips = lengths.pop() if len(lengths) == 1 else None
    if not isinstance(trips, int):
        return None
    carried = tuple(zip(node.inputs[:states], body.inputs, body.outputs))
    taken = tuple(_Slices(value, axis, bool(back)) for value, axis, back in zip(inputs, numbers[0], numbers[1]))
    stacked = tuple(_Slices(value, axis, bool(back)) for value, axis, back in zip(body.outputs[states:], numbers[2], numbers[3]))
    return _Iterations(body, trips, (), carried, tuple(zip(body.inputs[states:], taken)), stacked)


def _is_settled(value: Value) -> bool:
    """Whether a tensor has a shape that the sizes of the model's inputs decide."""
    shape = shape_of(value)
    return shape is not None and not any(isinstance(size, DimExpr) and size.is_anonymous for size in shape)


def _same_type(start: Value, taken: Value) -> bool:
    return start.type is not None and start.type == taken.type
