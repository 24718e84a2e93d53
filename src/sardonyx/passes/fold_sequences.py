"""Sequences whose parts are known one by one become those parts.

    SequenceAt(SplitToSequence(x: f32[4,N]) {axis = 0}, 2)    =>   Slice(x, 2, 3, 0)
    ConcatFromSequence(SequenceInsert(SequenceConstruct(a), b)) =>   Concat(a, b)
    SequenceLength(SequenceConstruct(a, b))                   =>   2
    SequenceAt(SplitToSequence(x) {keepdims = 0}, i)          =>   Gather(x, i)

Exports of scripted modules are full of them (`unbind`, `chunk`, lists that are appended to and stacked). Refuses: sequences that
are inputs, or results of control flow; splits of a size that is not known, or into very many parts, but for splits into single
elements; indices that are computed, but into single elements, or out of range, which the definition refuses.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx.ir.graph import ONNX_DOMAIN, Node, Value
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import Rewriter
from sardonyx.passes.shaping_rule import ShapingRule
from sardonyx.records import dataclass

_MOST_PARTS: Final = 64
_AXES_AS_INPUT: Final = 13  # of Squeeze and Unsqueeze


@dataclass(frozen=True)
class _Piece:
    """Elements `first` to `end` of an axis of a value; the axis is taken away if it is said to be."""

    value: Value
    axis: int
    first: int
    end: int
    squeezed: bool


@dataclass(frozen=True)
class _Elements:
    """All elements of an axis one by one, however many there are; the axis is taken away if it is said to be."""

    value: Value
    axis: int
    squeezed: bool


_Part: TypeAlias = "Value | _Piece"
_Found: TypeAlias = "list[_Part] | _Elements"


@dataclass(frozen=True)
class FoldSequences(ShapingRule[_Found]):
    """Ensures: nothing reads an element, the length or all elements together of a sequence that is put together in the graph."""

    name: ClassVar[str] = "FoldSequences"
    roots: ClassVar[frozenset[str]] = frozenset(("SequenceAt", "ConcatFromSequence", "SequenceLength"))

    def match(self, g: Rewriter, node: Node) -> _Found | Reject | None:
        parts = _parts(g, node.inputs[0])
        if parts is None or (node.op_type == "SequenceAt" and g.number(node.inputs[1]) is None):
            position = node.inputs[1] if node.op_type == "SequenceAt" else None
            if node.op_type == "ConcatFromSequence" or (position is not None and position.shape != ()):
                return None
            return _elements(g, node.inputs[0])
        if node.op_type == "SequenceAt":
            index = _index(g, node.inputs[1], len(parts))
            return None if index is None else [parts[index]]
        return parts if parts or node.op_type == "SequenceLength" else None

    def rewrite(self, g: Rewriter, found: _Found, facts: Any) -> None:
        node = g.anchor
        if isinstance(found, _Elements):
            g.replace(node.outputs[0], _of_elements(g, node, found))
            return
        if node.op_type == "SequenceLength":
            g.replace(node.outputs[0], g.constant(np.array(len(found), np.int64), "length"))
            return
        values = [_made(g, part) for part in found]
        if node.op_type == "SequenceAt":
            (result,) = values
        else:
            axis = node.attr("axis", 0)
            if node.attr("new_axis", 0):
                values = [at_axis(g, "Unsqueeze", value, axis) for value in values]
            result = g.op("Concat", *values, axis=axis)
        g.replace(node.outputs[0], result)


def _parts(g: Rewriter, value: Value | None) -> list[_Part] | None:
    """The elements of a sequence, if they are known one by one."""
    added: list[tuple[int | None, Value]] = []  # elements that are put in, the last ones first, and before which one
    while True:
        node = None if value is None else value.producer
        if node is None or node.domain != ONNX_DOMAIN:
            return None
        if node.op_type != "SequenceInsert":
            break
        position, given = node.inputs[2] if len(node.inputs) > 2 else None, node.inputs[1]
        number = g.number(position)
        if given is None or (position is not None and number is None) or len(added) > _MOST_PARTS:
            return None
        added.append((None if number is None else int(number), given))
        value = node.inputs[0]
    result: list[_Part] | None = None
    if node.op_type == "SequenceEmpty":
        result = []
    elif node.op_type == "SequenceConstruct":
        result = [each for each in node.inputs if each is not None]
    elif node.op_type == "SplitToSequence":
        result = _split(g, node)
    if result is None:
        return None
    for number, given in reversed(added):
        before = len(result) if number is None else number + len(result) * (number < 0)
        if not 0 <= before <= len(result):
            return None
        result.insert(before, given)
    return result if len(result) <= _MOST_PARTS else None


def _split(g: Rewriter, node: Node) -> list[_Part] | None:
    x, given = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or x.shape is None or not x.shape:
        return None
    rank = len(x.shape)
    axis = node.attr("axis", 0)
    axis += rank * (axis < 0)
    size = x.shape[axis] if 0 <= axis < rank else None
    if not isinstance(size, int) or not size:
        return None
    sizes: tuple[int, ...] = (1,) * size
    if given is not None:
        wanted, held = g.ints(given), g.constant_of(given)
        if wanted is None or held is None or not wanted or min(wanted) < 0:
            return None
        sizes = wanted
        if not held.shape:
            step = wanted[0]
            if not step:
                return None
            sizes = (step,) * (size // step) + ((size % step,) if size % step else ())
    if sum(sizes) != size or len(sizes) > _MOST_PARTS:
        return None
    ends = np.cumsum(sizes).tolist()
    squeezed = not node.attr("keepdims", 1) and _are_single(g, given)
    return [_Piece(x, axis, end - count, end, squeezed) for end, count in zip(ends, sizes)]


def _are_single(g: Rewriter, split: Value | None) -> bool:
    """Whether parts are known to be single elements."""
    held = g.constant_of(split)
    return split is None or (held is not None and not held.shape and g.number(split) == 1)


def _elements(g: Rewriter, value: Value | None) -> _Elements | None:
    """The axis whose single elements make a sequence."""
    node = None if value is None else value.producer
    if node is None or node.domain != ONNX_DOMAIN or node.op_type != "SplitToSequence":
        return None
    x, split = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or not x.shape or not _are_single(g, split):
        return None
    axis = node.attr("axis", 0)
    if not -len(x.shape) <= axis < len(x.shape):
        return None
    return _Elements(x, axis % len(x.shape), not node.attr("keepdims", 1))


def _of_elements(g: Rewriter, node: Node, found: _Elements) -> Value:
    """One of the elements, or their number."""
    if node.op_type == "SequenceLength":
        return g.op("Gather", g.op("Shape", found.value), g.constant(np.array(found.axis, np.int64), "axis"), axis=0)
    element = g.op("Gather", found.value, node.inputs[1], axis=found.axis)
    return element if found.squeezed else at_axis(g, "Unsqueeze", element, found.axis)


def _index(g: Rewriter, value: Value | None, count: int) -> int | None:
    number = g.number(value)
    if number is None or not -count <= number < count:
        return None
    return int(number) % count


def _made(g: Rewriter, part: _Part) -> Value:
    if not isinstance(part, _Piece):
        return part
    bounds = [g.constant(np.array([each], np.int64), "bound") for each in (part.first, part.end, part.axis)]
    piece = g.op("Slice", part.value, *bounds)
    return at_axis(g, "Squeeze", piece, part.axis) if part.squeezed else piece


def at_axis(g: Rewriter, operator: str, value: Value, axis: int) -> Value:
    """A Squeeze or Unsqueeze of one axis, in the form of the opset."""
    if g.version < _AXES_AS_INPUT:
        return g.op(operator, value, axes=(axis,))
    return g.op(operator, value, g.constant(np.array([axis], np.int64), "axes"))
