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

from sardonyx.analysis.loop_body import LoopBody, Slices, loop_body_of
from sardonyx.ir.dims import DimExpr
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Tensor
from sardonyx.passes.fold_sequences import at_axis
from sardonyx.passes.form_scan_outputs import is_always_true
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter, shape_of
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

_MOST_TRIPS: Final = 16
_MOST_NODES: Final = 96  # of all iterations together


@dataclass(frozen=True)
class _Iterations:
    """A loop, and how many iterations it has."""

    loop: LoopBody
    trips: int


@dataclass(frozen=True)
class UnrollLoops(ShapingRule[_Iterations]):
    """Ensures: no Loop or Scan of known length has less to do than it takes to begin it."""

    name: ClassVar[str] = "UnrollLoops"
    roots: ClassVar[frozenset[str]] = frozenset(("Loop", "Scan"))

    def match(self, g: Rewriter, node: Node) -> _Iterations | Reject | None:
        loop = loop_body_of(node)
        if loop is None:
            return None  # whoever runs it says so
        trips = _trips(g, node) if node.op_type == "Loop" else _slice_count(loop)
        if trips is None or not (loop.condition is None or is_always_true(g, loop.condition, loop.going)):
            return Reject("the number of iterations is not known, or the loop may end early")
        return _Iterations(loop, trips)

    def check(self, g: Rewriter, found: _Iterations) -> Reject | None:
        """Whether it is short, and the same in every iteration."""
        loop, body = found.loop, found.loop.body
        if not 1 <= found.trips <= _MOST_TRIPS or found.trips * len(body) > _MOST_NODES:
            return Reject(f"{found.trips} iterations of {len(body)} nodes")
        if any(each.subgraphs() for each in body.nodes):
            return Reject("its body has bodies of its own")
        inner = [value for each in body.nodes for value in each.outputs if value.name]
        if any(not _is_settled(value) for value in (*inner, *body.inputs)):
            return Reject("sizes in its body are not known")
        if any(not isinstance(value.constant, Tensor) for value in body.initializers.values()):
            return Reject("its body has constants that are no tensors")
        if any(start is None or not _same_type(start, each.taken) for start, each in zip(loop.starts, loop.carried)):
            return Reject("a carried value changes its type or shape")
        return None

    def rewrite(self, g: Rewriter, found: _Iterations, facts: None) -> None:
        loop = found.loop
        shared: dict[Value, Value | None] = {}
        for held in loop.body.initializers.values():
            assert isinstance(held.constant, Tensor)
            shared[held] = g.constant(held.constant, held.name)
        state: list[Value | None] = list(loop.starts)
        stacks: list[list[Value]] = [[] for _ in loop.stacked]
        for number in range(found.trips):
            values = {**shared, **dict(zip((each.taken for each in loop.carried), state))}
            for given, content in ((loop.counter, np.int64(number)), (loop.going, np.bool_(True))):
                if given is not None:
                    values[given] = g.constant(np.full([1] * len(shape_of(given) or ()), content), given.name)
            for whole, slices in zip(loop.series, loop.sliced):
                at = found.trips - 1 - number if slices.backwards else number
                values[slices.value] = g.op("Gather", whole, g.constant(np.array(at, np.int64), "number"), axis=slices.axis)
            for node in loop.body.nodes:
                made = g.clone(node, [None if value is None else values.get(value, value) for value in node.inputs])
                values.update(zip(node.outputs, made))
            state = [values.get(each.given, each.given) for each in loop.carried]
            for stack, wanted in zip(stacks, loop.stacked):
                element = None if wanted is None else values.get(wanted.value, wanted.value)
                if wanted is not None and element is not None:
                    stack.append(at_axis(g, "Unsqueeze", element, wanted.axis))
        results = [*state, *(_joined(g, stack, wanted) for stack, wanted in zip(stacks, loop.stacked))]
        for old, new in zip(g.anchor.outputs, results):
            if new is not None and old.name:
                g.replace(old, new)


def _joined(g: Rewriter, stack: Sequence[Value], slices: Slices | None) -> Value | None:
    if slices is None:
        return None
    ordered = stack[::-1] if slices.backwards else stack
    return g.op("Concat", *ordered, axis=slices.axis) if len(ordered) > 1 else ordered[0]


def _trips(g: Rewriter, node: Node) -> int | None:
    """How often a Loop runs unless its body ends it."""
    count, going = (*node.inputs, None, None)[:2]
    trips = g.number(count)
    return None if trips is None or not is_always_true(g, going) else int(trips)


def _slice_count(loop: LoopBody) -> int | None:
    """How many slices the inputs of a Scan have."""
    lengths = set()
    for whole, slices in zip(loop.series, loop.sliced):
        shape = None if whole is None else shape_of(whole)
        if shape is None or not -len(shape) <= slices.axis < len(shape):
            return None
        lengths.add(shape[slices.axis])
    trips = lengths.pop() if len(lengths) == 1 else None
    return trips if isinstance(trips, int) else None


def _is_settled(value: Value) -> bool:
    """Whether a tensor has a shape that the sizes of the model's inputs decide."""
    shape = shape_of(value)
    return shape is not None and not any(isinstance(size, DimExpr) and size.is_anonymous for size in shape)


def _same_type(start: Value, taken: Value) -> bool:
    return start.type is not None and start.type == taken.type
