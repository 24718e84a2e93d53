"""Changes of layout as steps: ToBlocked and FromBlocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.conv.layout import LayoutKernel, ShiftKernel
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.indexing.layout import DOMAIN
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost


def layout_step(ctx: LowerContext, plain: View, blocked: View, direction: Literal["to", "from"], label: str) -> None:
    """Copy plain [N, C, ...] to blocked [N, blocks, ..., block] or back; both without gaps inside a channel or block."""
    batch, channels = plain.shape[:2]
    block = blocked.shape[-1]
    assert isinstance(channels, int)
    assert isinstance(block, int)
    pixels = product(list(plain.shape[2:]))
    chunk = 64 * block
    chunks = ceildiv(pixels, chunk)
    kernel = LayoutKernel(direction=direction, block=block, tail=channels % block or block)
    source, target = (plain, blocked) if direction == "to" else (blocked, plain)
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                plain=Address(plain.buffer, plain.offset * 4),
                blocked=Address(blocked.buffer, blocked.offset * 4),
                batch=batch,
                blocks=blocked.shape[1],
                pixels=pixels,
                chunk=chunk,
                chunks=chunks,
                plain_batch=plain.strides[0],
                plain_channel=plain.strides[1],
                blocked_batch=blocked.strides[0],
                blocked_block=blocked.strides[1],
            ),
            product([batch, blocked.shape[1], chunks]),
            cost.to_blocks(product([batch, blocked.shape[1], pixels]), block),
            (source.buffer,),
            (target.buffer,),
            label,
            (label,),
        )
    )


def misfit(value: Value | None, channels: int, block: int | None = None) -> str:
    """Why a value is no blocked tensor of just so many channels (in blocks of a size), or "": kernels rely on it.

    What the layout pass makes always is; a model that brings these operators with it may say anything.
    """
    shape = value.shape if value is not None else None
    if value is None or shape is None or len(shape) < 3:
        return "the input is not blocked"
    size = shape[-1]
    if not isinstance(size, int) or size < 1 or block not in (None, size) or shape[1] != ceildiv(channels, size):
        return f"{value.name!r} does not hold just {channels} channels in blocks{'' if block is None else f' of {block}'}"
    return ""


def _gapless(view: View, axes: slice) -> bool:
    """Whether the axes (of a part of the shape) are walked without jumps, one element at a time."""
    shape, strides = view.shape[axes], view.strides[axes]
    expected: Dim = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected = expected * size
    return True


def _source(ctx: LowerContext, group: Group) -> tuple[Node, View]:
    """The node and its input, without gaps inside a channel or block."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    x = ctx.view(node.inputs[0])
    if not _gapless(x, slice(2, None)):
        x = ctx.copy(x, ctx.scratch(x.buffer.dtype, x.shape), "copy")
    return node, x


def _accepts_layout(node: Node) -> str:
    value = node.inputs[0]
    if node.op_type == "FromBlocked":
        return misfit(value, node.attr("channels"))
    channels = (value.shape or (None, None))[1] if value is not None else 0
    return "" if isinstance(channels, int) else "the number of channels is not known"


def _write(ctx: LowerContext, value: Value, write: Callable[[View], None]) -> None:
    """Let `write` fill a value; if its destination has gaps inside a channel or block, by way of scratch memory."""
    target = ctx.output(value)
    if _gapless(target, slice(2, None)):
        write(target)
    else:
        scratch = ctx.scratch(target.buffer.dtype, target.shape)
        write(scratch)
        ctx.copy(scratch, target, "copy")


@template("ToBlocked", domain=DOMAIN, accepts=_accepts_layout)
def to_blocked(ctx: LowerContext, group: Group) -> None:
    """Plain to blocked."""
    node, x = _source(ctx, group)
    _write(ctx, node.outputs[0], lambda target: layout_step(ctx, x, target, "to", group.label))


@template("FromBlocked", domain=DOMAIN, accepts=_accepts_layout)
def from_blocked(ctx: LowerContext, group: Group) -> None:
    """Blocked to plain. One pixel with all its channels lies in memory as it should already."""
    node, x = _source(ctx, group)
    result = node.outputs[0]
    shape, block = ctx.shape(result), x.shape[-1]
    one_pixel = all(size == 1 for size in shape[2:]) and x.strides[1] == block
    if one_pixel and (shape[0] == 1 or x.strides[0] == shape[1]) and not ctx.has_view(result):
        ctx.set_view(result, View(x.buffer, shape, (shape[1], 1, *(1,) * (len(shape) - 2)), x.offset))
        return
    _write(ctx, node.outputs[0], lambda target: layout_step(ctx, target, x, "from", group.label))


def _accepts_concat(node: Node) -> str:
    channels, block = node.attr("channels"), (node.outputs[0].shape or (None,))[-1]
    if len(channels) != len(node.inputs) or not isinstance(block, int):
        return "the channels of the inputs are not known"
    first = node.outputs[0].shape or ()
    for value, count in zip(node.inputs, channels):
        reason = misfit(value, count, block)
        if reason:
            return reason
        own = (value.shape if value is not None else None) or ()
        sizes = [(a, b) for axis, (a, b) in enumerate(zip(own, first)) if axis != 1]
        if len(own) != len(first) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes):
            return "the inputs differ in more than their channels"
    return ""


@template("BlockedConcat", domain=DOMAIN, accepts=_accepts_concat)
def blocked_concat(ctx: LowerContext, group: Group) -> None:
    """Channels that fill no whole blocks, one input after the other."""
    node = group.root
    assert node is not None
    _write(ctx, node.outputs[0], lambda target: _join(ctx, node, target, group.label))


def _join(ctx: LowerContext, node: Node, target: View, label: str) -> None:
    block = target.shape[-1]
    assert isinstance(block, int)
    first = 0
    for value, channels in zip(node.inputs, node.attr("channels")):
        assert value is not None
        x = ctx.view(value)
        for size, other in zip((x.shape[0], *x.shape[2:]), (target.shape[0], *target.shape[2:])):
            ctx.check_equal(size, other)
        if not _gapless(x, slice(2, None)):
            x = ctx.copy(x, ctx.scratch(x.buffer.dtype, x.shape), "copy")
        pixels = product(list(x.shape[2:-1]))
        chunk = 64
        chunks = ceildiv(pixels, chunk)
        part = target.offset + (first // block) * target.strides[1]
        kernel = ShiftKernel(block=block, shift=first % block, tail=channels % block or block)
        ctx.step(
            KernelStep(
                kernel,
                kernel.arguments.entries(
                    x=Address(x.buffer, x.offset * 4),
                    y=Address(target.buffer, part * 4),
                    batch=x.shape[0],
                    blocks=x.shape[1],
                    pixels=pixels,
                    chunk=chunk,
                    chunks=chunks,
                    x_batch=x.strides[0],
                    x_block=x.strides[1],
                    y_batch=target.strides[0],
                    y_block=target.strides[1],
                ),
                product([x.shape[0], x.shape[1], chunks]),
                cost.shifted(product([x.shape[0], x.shape[1], pixels])),
                (x.buffer,),
                (target.buffer,),
                label,
                (node.label,),
            )
        )
        first += channels
