"""Operands of attention whose axes before time are grouped otherwise than [batch, heads]: in one axis, or in more than two.

    [batch * heads, time, size]              scores may change between these forms on their way to the softmax,
    [batch, heads, time, size]               as products of matrices and masks want them
    [batch, windows, heads, time, size]
    [batch, key heads, group, time, size]    K and V have one head for each group of queries'

All of them lie in the same order, so a Reshape brings one into another. Masks broadcast: their axes follow those of the scores
they are added to. Heads of K and V that were repeated for their groups (Unsqueeze, Expand, Reshape) are taken before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Value
from sardonyx.ir.types import Shape, TensorType
from sardonyx.passes.protocol import is_standard
from sardonyx.passes.rewriter import Rewriter, dtype_of

_COUNTS_ZERO = 14  # the opset version since which a Reshape takes a size of 0 as it is, if asked to


def before_regrouping(value: Value) -> Value | None:
    """What a Reshape that leaves the last two axes alone was made of."""
    node = value.producer
    if node is None or node.op_type != "Reshape" or not is_standard(node) or node.inputs[0] is None:
        return None
    before, after = node.inputs[0].shape, value.shape
    if before is None or after is None or len(before) < 3 or len(after) < 3 or before[-2:] != after[-2:]:
        return None
    return node.inputs[0]


def outer_axes(shapes: Sequence[Shape]) -> tuple[Dim, Dim] | None:
    """Batch and heads of scores that go through these shapes, or None where all have one axis before time."""
    by_heads = next((shape for shape in shapes if len(shape) == 4), None)
    if by_heads is not None:
        return by_heads[0], by_heads[1]
    longest = max(shapes, key=len)
    return None if len(longest) < 4 else (product(list(longest[:-3])), longest[-3])


def can_regroup(shape: Shape, outer: Sequence[Dim]) -> bool:
    """Whether the sizes of other axes before the last two can be told from a value's own."""
    if product(list(shape[:-2])) != product(list(outer)):
        return False
    return sum(not isinstance(size, int) for size in outer) <= 1 or all(
        isinstance(size, int) or size in shape[:-2] for size in outer
    )


def regrouped(g: Rewriter, value: Value, outer: Sequence[Dim]) -> Value:
    """A value with these axes before its last two, for which `can_regroup`."""
    shape = value.shape
    assert shape is not None
    if tuple(shape[:-2]) == tuple(outer):
        return value
    before = before_regrouping(value)
    if before is not None and tuple((before.shape or ())[:-2]) == tuple(outer):
        return before
    wanted: list[Dim] = [*outer, *shape[-2:]]
    attrs: dict[str, Any] = {"allowzero": 1} if g.version >= _COUNTS_ZERO else {}
    numbers = [size for size in wanted if isinstance(size, int)]
    if len(numbers) == len(wanted):
        return g.op("Reshape", value, g.constant(np.array(numbers, np.int64), "sizes"), **attrs)
    sizes = g.op("Shape", value)

    def size_at(axis: int) -> Value:
        return g.op("Gather", sizes, g.constant(np.array([axis], np.int64), "axis"))

    made = []
    open_sizes = sum(not isinstance(size, int) for size in outer)
    for number, size in enumerate(wanted):
        if isinstance(size, int):
            made.append(g.constant(np.array([size], np.int64), "size"))
        elif number >= len(outer):
            made.append(size_at(len(shape) - 2 + number - len(outer)))
        elif size in shape[:-2]:
            made.append(size_at(shape.index(size)))
        else:
            assert open_sizes == 1
            whole = size_at(0)
            for axis in range(1, len(shape) - 2):
                whole = g.op("Mul", whole, size_at(axis))
            known = int(np.prod([each for each in outer if isinstance(each, int)], dtype=np.int64))
            made.append(whole if known == 1 else g.op("Div", whole, g.constant(np.array([known], np.int64), "heads")))
    result = g.op("Reshape", value, g.op("Concat", *made, axis=0), **attrs)
    dtype = dtype_of(value)
    result.type = None if dtype is None else TensorType(dtype, tuple(wanted))
    return result


def mask_axes(mask: Shape, scores: Shape, outer: tuple[Dim, Dim]) -> tuple[Dim, ...] | None:
    """The axes before the last two of a mask for scores of `outer` axes, if it can have them; it is added to other ones.

    Nothing stands for a mask that has none, or that is the same for all of them.
    """
    own = (1,) * (len(scores) - len(mask)) + tuple(mask[:-2])
    own, sizes = own[: len(scores) - 2], scores[:-2]
    if all(size == 1 for size in own):
        return ()
    found: list[Dim] = []
    first = 0
    position = 0
    while position < len(outer):
        last, end = first + 1, position + 1
        while product(list(sizes[first:last])) != product(list(outer[position:end])):  # axes that hold the same elements
            if last < len(sizes) and end == len(outer):
                last += 1
            elif end < len(outer) and last == len(sizes):
                end += 1
            elif last < len(sizes):
                last += 1
            else:
                return None
        part, whole = own[first:last], sizes[first:last]
        if all(size == 1 for size in part):
            found += [1] * (end - position)
        elif part == whole:
            found += outer[position:end]
        else:
            return None
        first, position = last, end
    return tuple(found) if product(list(sizes[first:])) == 1 else None


def before_repeating(value: Value) -> Value | None:
    """Heads [batch, key heads, time, size] that are repeated, each a number of times in a row, before they are a value's axes."""
    shape, node = value.shape, value.producer
    if shape is None or node is None or node.op_type != "Reshape" or not is_standard(node):
        return None
    many = node.inputs[0]
    repeat = None if many is None else many.producer
    if many is None or repeat is None or repeat.op_type not in ("Expand", "Tile") or not is_standard(repeat):
        return None
    one = repeat.inputs[0]
    sizes, repeated = (None if each is None else each.shape for each in (one, many))
    if one is None or sizes is None or repeated is None or len(sizes) != 5 or len(repeated) != 5 or sizes[2] != 1:
        return None
    if (*sizes[:2], *sizes[3:]) != (*repeated[:2], *repeated[3:]):
        return None
    if shape[-2:] != sizes[3:] or shape[:-2] not in ((sizes[0], repeated[1] * repeated[2]), (product(list(repeated[:3])),)):
        return None
    apart = one.producer
    if apart is None or apart.op_type != "Unsqueeze" or not is_standard(apart) or apart.inputs[0] is None:
        return None
    return apart.inputs[0] if apart.inputs[0].shape == (*sizes[:2], *sizes[3:]) else None


def before_swapping(value: Value) -> Value | None:
    """What the last two axes of a value were swapped of, batch and heads being in one axis meanwhile."""
    before = before_regrouping(value)
    node = None if before is None else before.producer
    if node is None or node.op_type != "Transpose" or not is_standard(node):
        return None
    return node.inputs[0] if list(node.attr("perm", ())) == [0, 2, 1] else None
