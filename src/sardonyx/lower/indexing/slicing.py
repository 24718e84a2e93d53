"""Cutting and padding: a slice is a view; a pad is a copy of what is kept, and borders written around it."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, dim_min
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import Expr, const, index, load, maximum, minimum, select
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import take
from sardonyx.lower.indexing.movement import first_input, root_of, scalar_view
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template, view
from sardonyx.lower.views import expanded, reshaped
from sardonyx.ops.indexing.slicing import python_slice, slice_position
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View


def _operand(ctx: LowerContext, node: Node, position: int, name: str) -> tuple[bool, tuple[Dim, ...] | None]:
    """Numbers that are an input in newer versions and an attribute in older ones: whether they are given, and which."""
    if position < len(node.inputs) and node.inputs[position] is not None:
        return True, ctx.elements(node.inputs[position])
    found = attribute_values(node).get(name)
    return found is not None, None if found is None else tuple(found)


def _numbers(found: tuple[Dim, ...] | None) -> tuple[int, ...] | None:
    numbers = tuple(item for item in found or () if isinstance(item, int))
    return numbers if found is not None and len(numbers) == len(found) else None


@view("Slice")
def slice_(ctx: LowerContext, node: Node) -> bool:
    """A start that is not known leaves the work to the host: where the slice begins depends on data."""
    source = ctx.view(first_input(node))
    shape = ctx.shape(node.outputs[0])
    (_, starts), (_, ends) = _operand(ctx, node, 1, "starts"), _operand(ctx, node, 2, "ends")
    axes_given, listed = _operand(ctx, node, 3, "axes")
    steps_given, strides = _operand(ctx, node, 4, "steps")
    if starts is None or ends is None:
        return False
    axes = _numbers(listed) if axes_given else tuple(range(len(starts)))
    steps = _numbers(strides) if steps_given else (1,) * len(starts)
    if axes is None or steps is None or not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return False
    for start, end, axis, step in zip(starts, ends, axes, steps):
        dimension = normalize_axis(axis, len(source.shape))
        first = _first(source.shape[dimension], start, end, step)
        if first is None:
            return False
        source = ctx.part(source, dimension, first, shape[dimension], step)
    ctx.set_view(node.outputs[0], source)
    return True


def _first(size: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """The first element a slice takes; None if that is not known."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return python_slice(start, end, step, size).indices(size)[0]
    if step > 0:
        return slice_position(start, size)
    if isinstance(start, int) and (start == -1 or start >= (1 << 31) - 1):
        return size - 1
    return None


def _pads_known(node: Node) -> str:
    mode = attribute_values(node).get("mode") or "constant"
    return "" if mode in ("constant", "reflect", "edge", "wrap") else f"mode {mode!r} is not known"


@template("Pad", accepts=_pads_known, writes_anywhere=True)
def pad(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    rank = len(ctx.shape(first_input(node)))
    attrs = attribute_values(node)
    _, pads = _operand(ctx, node, 1, "pads" if node.version >= 2 else "paddings")
    axes = ctx.integers(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else tuple(range(rank))
    assert pads is not None, f"{node.label}: the result's shape is known, so the pads must be"
    assert axes is not None
    before: list[Dim] = [0] * rank
    after: list[Dim] = [0] * rank
    for number, axis in enumerate(axes):
        before[normalize_axis(axis, rank)] = pads[number]
        after[normalize_axis(axis, rank)] = pads[number + len(axes)]
    padded(ctx, group, before, after, attrs.get("mode") or "constant", _fill(ctx, node, attrs.get("value")))


def _fill(ctx: LowerContext, node: Node, number: float | None) -> View:
    """What constant borders are filled with, as a scalar."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return scalar_view(ctx, ctx.dtype(node.outputs[0]), number or 0, ())
    scalar = reshaped(ctx.contiguous(value), ())
    assert scalar is not None
    return scalar


@template("CenterCropPad")
def center_crop_pad(ctx: LowerContext, group: Group) -> None:
    """The middle of the input in the middle of the result."""
    node = root_of(group)
    value, output = first_input(node), node.outputs[0]
    before: list[Dim] = []
    after: list[Dim] = []
    for size, wanted in zip(ctx.shape(value), ctx.shape(output)):
        begin = dim_max(wanted - size, 0) // 2 - dim_max(size - wanted, 0) // 2
        before.append(begin)
        after.append(wanted - size - begin)
    padded(ctx, group, before, after, "constant", scalar_view(ctx, ctx.dtype(output), 0, ()))


def padded(ctx: LowerContext, group: Group, before: Sequence[Dim], after: Sequence[Dim], mode: str, fill: View) -> None:
    """Write the input into the result and the borders around it, axis by axis: later axes copy earlier borders along."""
    node = root_of(group)
    source, target = ctx.view(first_input(node)), ctx.output(node.outputs[0])
    inside = target
    widths: list[tuple[Dim, Dim, Dim]] = []
    for axis, (begin, end) in enumerate(zip(before, after)):
        if (begin, end) == (0, 0):
            widths.append((0, source.shape[axis], 0))
            continue
        cut, rest = dim_max(-begin, 0), dim_min(end, 0)
        kept = source.shape[axis] - cut + rest
        front, back = dim_max(begin, 0), dim_max(end, 0)
        source, inside = ctx.part(source, axis, cut, kept), ctx.part(inside, axis, front, kept)
        widths.append((front, kept, back))
        ctx.check_equal(dim_max(kept, 1 if mode != "constant" else 0), kept)
    ctx.copy(source, inside, group.label)
    done = inside
    for axis, (front, kept, back) in enumerate(widths):
        shape = (*done.shape[:axis], target.shape[axis], *done.shape[axis + 1 :])
        whole = View(target.buffer, shape, target.strides, done.offset - front * target.strides[axis])
        for start, width in ((0, front), (front + kept, back)):
            if width == 0:
                continue
            border = ctx.part(whole, axis, start, width)
            if mode == "constant":
                ctx.copy(expanded(fill, border.shape), border, group.label)
            else:
                positions = _sources(ctx, start, width, front, kept, mode)
                fault = ctx.fault(node, "a border takes element {found} of {limit}")
                take(ctx, done, axis, positions, border, fault, group.label, trusted=True)
        done = whole


def _sources(ctx: LowerContext, start: Dim, width: Dim, front: Dim, size: Dim, mode: str) -> View:
    """For each position of a border the position of the axis, counted from the first kept element, that it repeats."""
    numbers = ctx.sizes([start - front, size - 1], "border")
    position = index(0) + load(0, "i64")
    last = load(1, "i64")
    views = [View(numbers.buffer, (1,), (0,), 0), View(numbers.buffer, (1,), (0,), 1)]
    return index_tensor(ctx, (width,), views, _repeated(position, last, mode), "border")


def _repeated(position: Expr, last: Expr, mode: str) -> Expr:
    zero = const(0, "i64")
    if mode == "edge":
        return minimum(maximum(position, zero), last)
    period = last + 1 if mode == "wrap" else maximum(last * 2, 1)
    position = position % period
    position = select(position < 0, position + period, position)
    return position if mode == "wrap" else select(last.eq(0), zero, minimum(position, period - position))
