"""What whole numbers a loop counts: its own number of the iteration, and those that an iteration hands on increased.

    Loop(n, true, ..) <body (i, ..)>                                                     0 <= i <= n - 1
    Loop(, 4 <= n, 0) <body (_, _, t) => (t + 2 + 4 <= n, t + 2)>                        0 <= t <= n - 4

A number that an iteration hands on begins with a constant and grows by one. Its end follows from the number of iterations, or
from a condition that both the first iteration and the next one wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from sardonyx.analysis.loop_body import loop_body_of
from sardonyx.analysis.shapes import ShapeReport
from sardonyx.ir.dims import Dim, is_nonnegative
from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.rewriter import Rewriter
from sardonyx.records import dataclass

_ORDERS: Final = {"Less": (False, 1), "LessOrEqual": (False, 0), "Greater": (True, 1), "GreaterOrEqual": (True, 0)}
_OPPOSITES: Final = {"Less": "GreaterOrEqual", "LessOrEqual": "Greater", "Greater": "LessOrEqual", "GreaterOrEqual": "Less"}


@dataclass(frozen=True)
class CountedNumber:
    """A number that a loop counts: where it begins, and by how much it grows."""

    loop: Node
    value: Value
    start: int
    step: int


def counted_numbers(g: Rewriter, node: Node) -> Iterator[CountedNumber]:
    """The numbers that a Loop counts."""
    loop = loop_body_of(node) if node.op_type == "Loop" else None
    if loop is None or loop.counter is None:
        return
    yield CountedNumber(node, loop.counter, 0, 1)
    for start, carried in zip(loop.starts, loop.carried):
        first = g.ints(start)
        base, factor, step = linear_form(g, carried.given)
        if first is not None and len(first) == 1 and base is carried.taken and factor == 1 and step > 0:
            yield CountedNumber(node, carried.taken, first[0], step)


def linear_form(g: Rewriter, value: Value | None) -> tuple[Value | None, int, int]:
    """A value, a factor and a constant: a number is the constant and so many times the value."""
    factor, offset = 1, 0
    while value is not None and value.producer is not None and value.producer.domain == ONNX_DOMAIN:
        node = value.producer
        if node.op_type in ("Add", "Mul", "Sub"):
            left, right = node.inputs
            constant, other = g.ints(right), left
            if constant is None and node.op_type != "Sub":
                constant, other = g.ints(left), right
            if constant is None or len(constant) != 1:
                break
            if node.op_type == "Mul":
                factor *= constant[0]
            else:
                offset += factor * (constant[0] if node.op_type == "Add" else -constant[0])
            value = other
        elif Trait.VIEW in traits(node):
            value = node.inputs[0]
        else:
            break
    return value, factor, offset


def upper_bounds(g: Rewriter, counted: CountedNumber, report: ShapeReport) -> Iterator[Dim]:
    """Sizes that a counted number never exceeds in any iteration."""
    limit, begins = (*counted.loop.inputs, None, None)[:2]
    trips = _size(g, limit, report)
    if trips is not None:
        yield counted.start + (trips - 1) * counted.step
    loop = loop_body_of(counted.loop)
    if loop is None or loop.condition is None:
        return
    for smaller, bound in _guards(g, loop.condition, report):
        base, factor, offset = linear_form(g, smaller)
        if base is counted.value and factor == 1:
            ahead = offset - counted.step  # of what the next iteration takes
            if is_nonnegative(bound - counted.start - ahead) or counted.start + ahead <= _most(g, begins, bound, report):
                yield bound - ahead


def _most(g: Rewriter, begins: Value | None, bound: Dim, report: ShapeReport) -> float:
    """A constant that a condition holds not to exceed a size."""
    numbers = [] if begins is None else [g.ints(each) for each, other in _guards(g, begins, report) if other == bound]
    return max((each[0] for each in numbers if each is not None and len(each) == 1), default=-inf)


def _guards(g: Rewriter, condition: Value, report: ShapeReport) -> Iterator[tuple[Value, Dim]]:
    """Numbers with sizes that they do not exceed if a condition holds."""
    node, negated = condition.producer, False
    while node is not None and (node.op_type in ("Not", "Identity") or Trait.VIEW in traits(node)):
        negated ^= node.op_type == "Not"
        given = node.inputs[0]
        node = None if given is None else given.producer
    if node is None or node.domain != ONNX_DOMAIN:
        return
    if node.op_type == "And" and not negated:
        for part in node.inputs:
            if part is not None:
                yield from _guards(g, part, report)
        return
    operator = _OPPOSITES.get(node.op_type) if negated else node.op_type
    if operator not in _ORDERS:
        return
    is_swapped, less = _ORDERS[operator]
    smaller, larger = node.inputs[::-1] if is_swapped else node.inputs
    bound = _size(g, larger, report)
    if smaller is not None and bound is not None:
        yield smaller, bound - less


def _size(g: Rewriter, value: Value | None, report: ShapeReport) -> Dim | None:
    """A number that is a constant or follows from sizes."""
    literal = g.ints(value)
    if literal is not None:
        return literal[0] if len(literal) == 1 else None
    known = None if value is None else report.values.known_of(value)
    return None if known is None or known.size != 1 else known.reshape(-1)[0]
