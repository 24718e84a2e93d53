"""Pools over blocked activations as steps."""

from __future__ import annotations

from typing import Literal

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node
from sardonyx.kernel.conv.window import GlobalPoolKernel, WindowKind
from sardonyx.lower.conv.blocks import Blocks, dense_blocks, operand_arguments, zeros
from sardonyx.lower.conv.conv import result_epilogue, result_strides, root_of
from sardonyx.lower.conv.conv_geometry import window_geometry
from sardonyx.lower.conv.windows import window_kernel, window_step
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.indexing.layout import DOMAIN, POOLS
from sardonyx.program.steps import Address, KernelStep
from sardonyx.target import cost


def _accepts_global_pool(node: Node) -> str:
    return "" if node.attr("kind") in POOLS else f"no pool of kind {node.attr('kind')!r}"


def _accepts_pool(node: Node) -> str:
    reason = _accepts_global_pool(node)
    if reason:
        return reason
    rank = len(node.attr("kernel_shape") or ())
    return "" if rank <= 3 else f"{rank} spatial axes: there are kernels for up to 3"


@template("BlockedPool", domain=DOMAIN, accepts=_accepts_pool, fuses=True)
def blocked_pool(ctx: LowerContext, group: Group) -> None:
    """The maximum or mean of every window."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    assert group.shape is not None
    x = ctx.view(source)
    geometry = window_geometry(ctx, x.shape[2:-1], attrs["kernel_shape"], attrs)
    block = x.shape[-1]
    assert isinstance(block, int)
    result = Blocks(
        ctx=ctx,
        group=group,
        geometry=geometry,
        block=block,
        epilogue=epilogue,
        operand_strides=result_strides(epilogue, group.shape),
    )
    kind: WindowKind = "max" if attrs["kind"] == "max" else "average"
    kernel = window_kernel(result, kind, 1, padded=bool(attrs.get("count_include_pad")))
    nothing = zeros(ctx, block)
    window_step(result, kernel, dense_blocks(ctx, x), nothing, nothing, x.shape[1])


@template("BlockedGlobalPool", domain=DOMAIN, accepts=_accepts_global_pool, fuses=True)
def blocked_global_pool(ctx: LowerContext, group: Group) -> None:
    """The maximum or mean of every channel."""
    node, source = root_of(group)
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    assert group.shape is not None
    x = ctx.view(source)
    area: Dim = product(list(x.shape[2:-1]))
    ctx.check_not_empty(x.shape[2:-1])
    if node.attr("kind") != "max" and source in ctx.row_sums:
        x = ctx.row_sums[source]
    elif not x.is_contiguous:
        x = ctx.copy(x, ctx.scratch(x.buffer.dtype, x.shape), "copy")
    operand_strides = result_strides(epilogue, group.shape)
    pixels: Dim = product(list(x.shape[2:-1]))
    block = x.shape[-1]
    assert isinstance(block, int)
    kind: Literal["max", "average"] = "max" if node.attr("kind") == "max" else "average"
    kernel = GlobalPoolKernel(kind=kind, block=block, epilogue=epilogue.for_kernel([own[-1] for own in operand_strides]))
    batch, blocks = x.shape[:2]
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                x=Address(x.buffer, x.offset * 4),
                batch=batch,
                blocks=blocks,
                pixels=pixels,
                area=area,
                x_batch=x.strides[0],
                x_block=x.strides[1],
                operands=operand_arguments(epilogue, operand_strides, [0] * len(operand_strides)),
            ),
            batch * blocks,
            cost.global_pool(product([batch, blocks, pixels])),
            (x.buffer, *epilogue.reads),
            epilogue.writes,
            group.label,
            tuple(each.label for each in group.nodes),
        )
    )
