"""Unique of whole numbers becomes operators that have kernels: a sort, and a look at neighbours.

    y, first, inverse, count = Unique(x)

    =>   v, i = TopK(Reshape(x, [-1]), Size(x)) {largest = 0}       elements in order, of equal ones the first one first
         new = Concat(v[:1] == v[:1], v[1:] != v[:-1])
         p = NonZero(new)                                           how many there are, only the data tells
         y, first, count = v[p], i[p], Concat(p, n)[1:] - p
         inverse = ScatterElements(i, i, CumSum(new) - 1)

If the order is that of first appearance (`sorted` = 0), results are put in the order of `first`. Only what is read is computed.
Runs when the portable passes are done, and has all types inferred anew: the number of elements has another name then. Refuses
floats, whose NaN equal nothing or each other, and rows along an axis of several.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter, dtype_of, shape_of
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

_VERSION: Final = 13  # from here on Squeeze has its axes as an input, and everything below takes integers
_TYPES: Final = (dtypes.INT32, dtypes.INT64)


@dataclass(frozen=True)
class ExpandUnique(ShapingRule[Node]):
    """Ensures: distinct whole numbers are found in native code."""

    name: ClassVar[str] = "ExpandUnique"
    roots: ClassVar[frozenset[str]] = frozenset(("Unique",))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> Node | Reject | None:
        """A Unique of whole numbers, all of them or along their only axis."""
        shape = shape_of(node.inputs[0])
        if g.version < _VERSION or shape is None:
            return Reject("the rank is not known, or the opset is too old")
        if dtype_of(node.inputs[0]) not in _TYPES:
            return Reject(f"{node.inputs[0].type if node.inputs[0] is not None else None}: neither int32 nor int64")
        return Reject("rows along an axis") if node.attr("axis") is not None and len(shape) != 1 else node

    def rewrite(self, g: Rewriter, found: Node, facts: Any) -> None:
        """Put the parts in its place."""
        wanted = [bool(value.name) and (bool(value.uses) or g.is_output(value)) for value in found.outputs]
        made = _distinct(g, found, [*wanted, *[False] * 4][:4])
        for old, new in zip(found.outputs, made):
            if new is not None:
                new.type = old.type
                g.replace(old, new)
        g.discard(found)


def _distinct(g: Rewriter, node: Node, wanted: list[bool]) -> list[Value | None]:
    made: dict[int, Value] = {}

    def numbers(item: int) -> Value:
        if item not in made:
            made[item] = g.constant(np.array([item], np.int64), "number")
        return made[item]

    x = node.inputs[0]
    flat = x if len(shape_of(x) or ()) == 1 else g.op("Reshape", x, numbers(-1))
    total = g.op("Shape", flat)
    ordered, positions = g.node("TopK", [flat, total], 2, axis=0, largest=0)
    first, following, before = (
        g.op("Slice", ordered, numbers(start), numbers(end), numbers(0))
        for start, end in ((0, 1), (1, np.iinfo(np.int64).max), (0, -1))
    )
    differs = g.op("Not", g.op("Equal", following, before))
    new = g.op("Concat", g.op("Equal", first, first), differs, axis=0)
    begins = g.op("Squeeze", g.op("NonZero", new), numbers(0))
    values = g.op("Gather", ordered, begins)
    is_sorted = bool(node.attr("sorted", 1))
    firsts = g.op("Gather", positions, begins) if wanted[1] or not is_sorted else None
    counts = inverse = None
    if wanted[3]:
        bounds = g.op("Concat", begins, total, axis=0)
        ends = g.op("Slice", bounds, numbers(1), numbers(np.iinfo(np.int64).max), numbers(0))
        counts = g.op("Sub", ends, begins)
    if wanted[2]:
        ranks = g.op("Sub", g.op("CumSum", g.op("Cast", new, to=dtypes.INT64.onnx), numbers(0)), numbers(1))
        inverse = g.op("ScatterElements", positions, positions, ranks, axis=0)
    if not is_sorted:
        found = g.op("Shape", firsts)
        firsts, order = g.node("TopK", [firsts, found], 2, axis=0, largest=0)
        values = g.op("Gather", values, order)
        counts = None if counts is None else g.op("Gather", counts, order)
        if inverse is not None:
            number = g.op("Squeeze", found, numbers(0))
            zero, one = (g.constant(np.array(item, np.int64), "number") for item in (0, 1))
            ranks = g.op("ScatterElements", order, order, g.op("Range", zero, number, one), axis=0)
            inverse = g.op("Gather", ranks, inverse)
    return [values, firsts, inverse, counts]
