"""What is written to a range of an axis becomes a choice between old and new elements.

    i = Tile(Reshape(Range(s, e, 1), [1, -1, 1]), [N, 1, 4])
    u = Expand(v: f32[N,1,4], Shape(Slice(x, s, e, 1)))
    y = ScatterElements(x: f32[N,9,4], i, u) {axis = 1}        =>   y = Where(s <= [[0], [1], .., [8]] < e, v, x)

Converters write `x[:, s:e] = v` like that, in decoders whose iterations fill one place each. How many places there are is a
matter of the data, so sizes would have to be found out on the way; of the choice all sizes are known, and it takes no longer than
the copy that a ScatterElements begins with. Numbers below 0 count from the end, as those of Slice and of indices do. Where a
Range has not as many numbers as the Slice has elements (from -1 to 0, or past the end), a ScatterElements refuses them; so does a
Gather from one element, by whether they differ. Refuses: axes of a size that is not known; a number of elements that is; indices
and values of which it cannot be seen that they cover all of the other axes.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from sardonyx.dtypes import INT32, INT64
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.ops.registry import Trait, traits
from sardonyx.passes.protocol import Reject, Rule
from sardonyx.passes.rewriter import Rewriter, dtype_of, shape_of
from sardonyx.records import dataclass


@dataclass(frozen=True)
class _RangeWrite:
    """`x` with `value` at positions `first` to `end` of an axis."""

    x: Value
    value: Value
    axis: int
    first: Value
    end: Value


@dataclass(frozen=True)
class FormRangeWrites(Rule[_RangeWrite]):
    """Ensures: no ScatterElements writes one value along a range that the data decide about."""

    name: ClassVar[str] = "FormRangeWrites"
    roots: ClassVar[frozenset[str]] = frozenset(("ScatterElements",))
    needs: ClassVar[frozenset[str]] = frozenset(("Range",))
    expands: ClassVar[bool] = True

    def match(self, g: Rewriter, node: Node) -> _RangeWrite | Reject | None:
        x, indices, updates = node.inputs[:3]
        shape = shape_of(x)
        if x is None or shape is None or node.attr("reduction", "none") not in ("none", b"none"):
            return None
        axis = int(node.attr("axis", 0))
        axis += len(shape) if axis < 0 else 0
        ramp, broadcast = _ramp(g, indices, axis), _made_by(updates, "Expand")
        if ramp is None or broadcast is None or not 0 <= axis < len(shape):
            return None
        value, length = broadcast.inputs[0], _made_by(broadcast.inputs[1], "Shape")
        part = _made_by(length.inputs[0], "Slice") if length is not None else None
        if value is None or part is None or not _is_range_of_axis(g, part, ramp, axis):
            return Reject("the number of values is not that of the indices")
        for given, along in ((indices, None), (updates, None), (value, 1)):
            sizes = shape_of(given)
            if sizes is None or not _covers(sizes, shape, axis, along):
                return Reject("it cannot be seen that other axes are covered")
        first, end = ramp.inputs[:2]
        assert first is not None
        assert end is not None
        return _RangeWrite(x, value, axis, first, end)

    def check(self, g: Rewriter, found: _RangeWrite) -> Reject | int:
        """The size of the axis."""
        size = (shape_of(found.x) or ())[found.axis]
        indices = g.anchor.inputs[1]
        if not isinstance(size, int):
            return Reject("the size of the axis is not known")
        if isinstance((shape_of(indices) or ())[found.axis], int):
            return Reject("the number of elements is known")
        if dtype_of(found.first) not in (INT32, INT64):
            return Reject("the range is not of whole numbers")
        return size

    def rewrite(self, g: Rewriter, found: _RangeWrite, facts: int) -> None:
        dtype = dtype_of(found.first)
        assert dtype is not None
        rank = len(shape_of(found.x) or ())
        column = np.arange(facts, dtype=dtype.numpy).reshape(-1, *[1] * (rank - 1 - found.axis))
        position = g.constant(column, "positions")
        zero, size = (g.constant(np.array(number, dtype.numpy), "number") for number in (0, facts))

        def position_of(number: Value) -> Value:
            """Where a number leads that may count from the end."""
            counted = g.op("Where", g.op("Less", number, zero), g.op("Add", number, size), number)
            return g.op("Min", g.op("Max", counted, zero), size)

        first, end = position_of(found.first), position_of(found.end)
        values = g.op("Max", g.op("Sub", end, first), zero)
        indices = g.op("Max", g.op("Sub", found.end, found.first), zero)
        differ = g.op("Cast", g.op("Not", g.op("Equal", values, indices)), to=INT64.onnx)
        first = g.op("Add", first, g.op("Gather", g.constant(np.zeros(1, dtype.numpy), "refusal"), differ))
        inside = g.op("And", g.op("Not", g.op("Less", position, first)), g.op("Less", position, end))
        g.replace(g.anchor.outputs[0], g.op("Where", inside, found.value, found.x))


def _made_by(value: Value | None, op_type: str) -> Node | None:
    """The node of an operator that makes a value."""
    node = None if value is None else value.producer
    return node if node is not None and node.op_type == op_type and node.domain == ONNX_DOMAIN else None


def _ramp(g: Rewriter, indices: Value | None, axis: int) -> Node | None:
    """The Range that indices count along an axis, the same at all other places."""
    shape = shape_of(indices)
    copies = _made_by(indices, "Tile") or _made_by(indices, "Expand")
    column = indices if copies is None else copies.inputs[0]
    before = shape_of(column)
    if shape is None or before is None or len(before) != len(shape) or before[axis] != shape[axis]:
        return None
    if any(size != 1 for number, size in enumerate(before) if number != axis):
        return None
    while column is not None and column.producer is not None and Trait.VIEW in traits(column.producer):
        column = column.producer.inputs[0]
    ramp = _made_by(column, "Range")
    return ramp if ramp is not None and g.number(ramp.inputs[2]) == 1 else None


def _is_range_of_axis(g: Rewriter, part: Node, ramp: Node, axis: int) -> bool:
    """Whether a Slice takes the elements of one axis whose numbers a Range counts."""
    if part.version < 10 or len(part.inputs) < 4:
        return False
    axes, steps = g.ints(part.inputs[3]), g.ints(part.inputs[4]) if len(part.inputs) > 4 else (1,)
    rank = len(shape_of(part.inputs[0]) or ())
    if axes is None or len(axes) != 1 or axes[0] % max(rank, 1) != axis or steps != (1,):
        return False
    return all(_bare(one) is _bare(other) for one, other in zip(part.inputs[1:3], ramp.inputs[:2]))


def _bare(number: Value | None) -> Value | None:
    """A number, whatever its axes are called."""
    while number is not None and number.producer is not None and Trait.VIEW in traits(number.producer):
        number = number.producer.inputs[0]
    return number


def _covers(sizes: tuple[Dim, ...], shape: tuple[Dim, ...], axis: int, along: int | None) -> bool:
    """Whether sizes are those of a whole tensor but for one axis, which has the size `along` if that matters."""
    if len(sizes) != len(shape) or (along is not None and sizes[axis] != along):
        return False
    return all(one == other for number, (one, other) in enumerate(zip(sizes, shape)) if number != axis)
