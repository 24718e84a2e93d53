"""Operators that move elements without computing. Most results are views: the input's memory under another shape.

Shape operands are not read at run time: the inferred shape says what they mean. Where the sizes of a run could contradict it,
the rule notes what must hold (`check_equal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim, dim_min, floordiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.expr import const, index, load, select
from sardonyx.lower.destinations import concat_parts
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import FAR_AWAY, IndexOperand, index_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template, view
from sardonyx.lower.views import expanded, reshaped, transposed, with_axes, without_axes
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View


def first_input(node: Node) -> Value:
    """The tensor a node works on."""
    value = node.inputs[0]
    assert value is not None
    return value


def root_of(group: Group) -> Node:
    """The node of a group with a template."""
    assert group.root is not None
    return group.root


def scalar_view(ctx: LowerContext, dtype: DType, number: float, shape: tuple[Dim, ...]) -> View:
    """One number seen as a tensor of any shape."""
    return expanded(ctx.literal(np.asarray(number, dtype.numpy)), shape)


@view("Reshape", "Flatten")
def reshape(ctx: LowerContext, node: Node) -> bool:
    value, output = first_input(node), node.outputs[0]
    shape = ctx.shape(output)
    ctx.check_equal(product(list(ctx.shape(value))), product(list(shape)))
    if node.op_type == "Reshape" and len(node.inputs) > 1 and not attribute_values(node).get("allowzero"):
        _check_copied_sizes(ctx, ctx.shape(value), ctx.elements(node.inputs[1]) or ())
    found = reshaped(ctx.view(value), shape) or reshaped(ctx.contiguous(value), shape)
    assert found is not None
    ctx.set_view(output, found)
    return True


def _check_copied_sizes(ctx: LowerContext, shape: Sequence[Dim], target: Sequence[Dim]) -> None:
    """A computed size that turns out to be 0 copies the one at its position, which the inferred shape does not know."""
    for axis, size in enumerate(target):
        if not isinstance(size, int):
            copied = shape[axis] if axis < len(shape) else 1
            ctx.check_equal(dim_min(size, 1), dim_min(size + copied, 1))  # both are zero, or the first is not


def _listed_axes(ctx: LowerContext, node: Node) -> tuple[int, ...] | None:
    """Axes that are an attribute before opset 13 and an input since; None if they are not given or not known."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return ctx.integers(node.inputs[1])
    axes = attribute_values(node).get("axes")
    return None if axes is None else tuple(axes)


@view("Squeeze")
def squeeze(ctx: LowerContext, node: Node) -> bool:
    source = ctx.view(first_input(node))
    rank, axes = len(source.shape), _listed_axes(ctx, node)
    if axes is None:
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return False
        chosen = [axis for axis, size in enumerate(source.shape) if size == 1]
    else:
        chosen = [normalize_axis(axis, rank) for axis in axes]
    for axis in chosen:
        ctx.check_equal(source.shape[axis], 1)
    ctx.set_view(node.outputs[0], without_axes(source, chosen))
    return True


@view("Unsqueeze")
def unsqueeze(ctx: LowerContext, node: Node) -> bool:
    source, axes = ctx.view(first_input(node)), _listed_axes(ctx, node)
    if axes is None:
        return False
    rank = len(source.shape) + len(axes)
    ctx.set_view(node.outputs[0], with_axes(source, [normalize_axis(axis, rank) for axis in axes]))
    return True


@view("Identity")
def identity(ctx: LowerContext, node: Node) -> bool:
    ctx.set_view(node.outputs[0], ctx.view(first_input(node)))
    return True


@view("Dropout")
def dropout(ctx: LowerContext, node: Node) -> bool:
    """In inference the input, and a mask that keeps everything; before version 12 one that says nothing, all zero."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    if node.version < 7 or (training is not None and ctx.integers(training) != (0,)):
        return False
    identity(ctx, node)
    for mask in node.outputs[1:]:
        if mask.name:
            ctx.set_view(mask, scalar_view(ctx, ctx.dtype(mask), node.version >= 12, ctx.shape(mask)))
    return True


@view("Transpose")
def transpose(ctx: LowerContext, node: Node) -> bool:
    source = ctx.view(first_input(node))
    rank = len(source.shape)
    perm = attribute_values(node).get("perm")
    order = list(range(rank))[::-1] if perm is None else [normalize_axis(axis, rank) for axis in perm]
    ctx.set_view(node.outputs[0], transposed(source, order))
    return True


@view("Expand")
def expand(ctx: LowerContext, node: Node) -> bool:
    """A target that is not known leaves the work to the host, even if it can change nothing: it may not fit."""
    value, shape = first_input(node), ctx.shape(node.outputs[0])
    target = ctx.elements(node.inputs[1])
    if target is None:
        return False
    ctx.check_broadcast(ctx.shape(value), shape)
    ctx.check_broadcast(target, shape)
    ctx.set_view(node.outputs[0], expanded(ctx.view(value), shape))
    return True


@view("Split")
def split(ctx: LowerContext, node: Node) -> bool:
    source = ctx.view(first_input(node))
    attrs = attribute_values(node)
    axis = normalize_axis(attrs.get("axis") or 0, len(source.shape))
    start: Dim = 0
    for output in node.outputs:
        size = ctx.shape(output)[axis]
        ctx.set_view(output, ctx.part(source, axis, start, size))
        start = start + size
    ctx.check_equal(start, source.shape[axis])
    return True


@template("Concat", writes_anywhere=True, reads_batches=True)
def concat(ctx: LowerContext, group: Group) -> None:
    """Parts that were not written into the result right away are copied there."""
    node = root_of(group)
    target = ctx.output(node.outputs[0])
    for value, part in zip(node.inputs, concat_parts(ctx, node, target)):
        assert value is not None
        for axis, size in enumerate(ctx.shape(value)):
            ctx.check_equal(size, part.shape[axis])
        source = ctx.view(value)
        if not part.coincides(source):
            ctx.copy(source, part, group.label)


@template("Tile", since=6, writes_anywhere=True)  # before, it takes an axis
def tile(ctx: LowerContext, group: Group) -> None:
    """The result is the input with an axis of repeats before each axis."""
    node = root_of(group)
    source, target = ctx.view(first_input(node)), ctx.output(node.outputs[0])
    shape: list[Dim] = []
    reads: list[Dim] = []
    writes: list[Dim] = []
    for size, read, whole, write in zip(source.shape, source.strides, target.shape, target.strides):
        repeats = floordiv(whole, size) if size != 0 else 0
        shape += [repeats, size]
        reads += [0, read]
        writes += [write * size, write]
    ctx.copy(
        View(source.buffer, tuple(shape), tuple(reads), source.offset),
        View(target.buffer, tuple(shape), tuple(writes), target.offset),
        group.label,
    )


def _blocks_fit(node: Node) -> str:
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    return "" if shape is not None and len(shape) == 4 else "the input has not four dimensions"


# Axes of the input cut into blocks, in the order in which the result has them.
_TO_SPACE: Final = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_TO_DEPTH: Final = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}


@template("DepthToSpace", accepts=_blocks_fit, writes_anywhere=True)
def depth_to_space(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    attrs = attribute_values(node)
    b, mode = attrs["blocksize"], attrs.get("mode") or "DCR"
    n, c, h, w = ctx.shape(first_input(node))
    depth = floordiv(c, b * b)
    ctx.check_equal(depth * (b * b), c)
    cut = (n, b, b, depth, h, w) if mode == "DCR" else (n, depth, b, b, h, w)
    _rearrange(ctx, group, cut, _TO_SPACE[mode])


@template("SpaceToDepth", accepts=_blocks_fit, writes_anywhere=True)
def space_to_depth(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    attrs = attribute_values(node)
    b, mode = attrs["blocksize"], attrs.get("mode") or "DCR"
    n, c, h, w = ctx.shape(first_input(node))
    rows, columns = floordiv(h, b), floordiv(w, b)
    ctx.check_equal(rows * b, h)
    ctx.check_equal(columns * b, w)
    _rearrange(ctx, group, (n, c, rows, b, columns, b), _TO_DEPTH[mode])


def _rearrange(ctx: LowerContext, group: Group, cut: tuple[Dim, ...], order: tuple[int, ...]) -> None:
    """The input with its axes cut into blocks and put into another order, written out."""
    node = root_of(group)
    value, target = first_input(node), ctx.output(node.outputs[0])
    source = reshaped(ctx.untransposed(value), cut) or reshaped(ctx.contiguous(value), cut)
    assert source is not None
    moved = transposed(source, order)
    into = reshaped(target, moved.shape)
    if into is not None:
        ctx.copy(moved, into, group.label)
        return
    result = ctx.scratch(target.buffer.dtype, moved.shape, group.label)
    ctx.copy(moved, result, group.label)
    whole = reshaped(result, target.shape)
    assert whole is not None
    ctx.copy(whole, target, group.label)


def _time_and_batch_lead(node: Node) -> str:
    shape, attrs = node.inputs[0].shape if node.inputs[0] is not None else None, attribute_values(node)
    axes = {attrs.get("batch_axis"), attrs.get("time_axis")}
    return "" if shape is not None and len(shape) >= 2 and axes == {0, 1} else "batch and time are not the first two axes"


@template("ReverseSequence", accepts=_time_and_batch_lead, writes_anywhere=True)
def reverse_sequence(ctx: LowerContext, group: Group) -> None:
    """Every step of the result names the step of the input it comes from."""
    node = root_of(group)
    source, target = ctx.view(first_input(node)), ctx.output(node.outputs[0])
    lengths = node.inputs[1]
    assert lengths is not None
    if attribute_values(node)["batch_axis"] == 1:
        order = [1, 0, *range(2, len(source.shape))]
        source, target = transposed(source, order), transposed(target, order)
    batch, steps = source.shape[:2]
    ends = ctx.contiguous(lengths)
    ctx.check_not_empty(source.shape)  # where nothing is moved, no kernel looks at the lengths
    ctx.check_equal(product(list(ends.shape)), batch)
    ends = View(ends.buffer, (batch, 1), (1, 0), ends.offset)
    length = load(0, ends.buffer.dtype.name).cast("i64")
    wrong = (length < 0) | (length > load(1, "i64"))
    step = select(index(1) < length, length - 1 - index(1), index(1))
    step = select(wrong, const(FAR_AWAY, "i64"), step)
    positions = index_tensor(ctx, (batch, steps), [ends, ctx.sizes([steps], "steps")], step, "steps")
    rest = [0] * (len(source.shape) - 2)
    far = (source, (source.strides[0], 0, *source.strides[2:]))
    index_operand = IndexOperand(positions, (*positions.strides, *rest), steps, source.strides[1])
    fault = ctx.fault(node, "sequence_lens: expected numbers from 0 to {limit}")
    index_step(ctx, "gather", source.shape, (target, target.strides), far, [index_operand], fault, label=group.label)


@view("UnfoldTensor", domain="com.microsoft")
def unfold_tensor(ctx: LowerContext, node: Node) -> bool:
    """Windows overlap, as views may."""
    source, attrs = ctx.view(first_input(node)), attribute_values(node)
    axis = normalize_axis(attrs["dim"], len(source.shape))
    size, step = int(attrs["size"]), int(attrs["step"])
    if size < 1 or step < 1:
        return False
    ctx.check_at_most(size, source.shape[axis])
    strides = [*source.strides, source.strides[axis]]
    strides[axis] = strides[axis] * step
    ctx.set_view(node.outputs[0], View(source.buffer, ctx.shape(node.outputs[0]), tuple(strides), source.offset))
    return True
