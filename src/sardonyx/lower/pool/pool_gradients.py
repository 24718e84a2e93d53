"""Gradients of pools as steps, over blocked images; plain ones are brought into blocks and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node
from sardonyx.kernel.pool.pool_grad import PoolGradKernel
from sardonyx.lower.conv.blocks import ceildiv_int, dense_blocks, named
from sardonyx.lower.conv.conv import as_float, root_of
from sardonyx.lower.conv.conv_geometry import SPATIAL, window_geometry
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.layout import layout_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.indexing.layout import DOMAIN
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.target import cost

_FLOAT: Final = {"T": ("f32",)}
_Kind = Literal["max", "average"]


def _accepts(node: Node) -> str:
    rank = len(node.attr("kernel_shape") or ())
    if rank > SPATIAL - 1:
        return f"{rank} spatial axes: there are kernels for 1 and 2"
    dy = node.inputs[0]
    channels = None if dy is None or dy.shape is None or len(dy.shape) < 3 else dy.shape[1]
    return "" if isinstance(channels, int) and channels else "the number of channels is not known"


def _step(
    ctx: LowerContext, group: Group, kind: _Kind, views: Mapping[str, View], spatial: Sequence[Dim], attrs: Mapping[str, Any]
) -> None:
    """One step over blocked images with a row axis and a column axis at least: dy, dx and, of a maximum, x and y."""
    dx, dy = views["dx"], views["dy"]
    block = dx.shape[-1]
    assert isinstance(block, int)
    geometry = window_geometry(ctx, spatial, attrs["kernel_shape"], attrs)
    for size, wanted in zip(dy.shape[2:-1], geometry.out):
        ctx.check_equal(size, wanted)
    kernel = PoolGradKernel(kind=kind, block=block, padded=bool(attrs.get("count_include_pad")))
    vectors = product([dy.shape[0], dy.shape[1], *geometry.out])
    reads = tuple(view.buffer for name, view in views.items() if name != "dx")
    ctx.step(
        KernelStep(
            kernel,
            kernel.arguments.entries(
                **{
                    name: (Address(view.buffer, view.offset * 4), (view.strides[0], view.strides[1], view.strides[3]))
                    for name, view in views.items()
                },
                blocks=dx.shape[1],
                **named("rows columns", geometry.out[1:]),
                **named("height width", geometry.size[1:]),
                **named("top left", geometry.pads_begin[1:]),
                **named("bottom right", geometry.pads_end[1:]),
                **named("row_stride column_stride", geometry.stride[1:]),
                **named("row_dilation column_dilation", geometry.dilation[1:]),
                **named("kernel_rows kernel_columns", geometry.kernel[1:]),
            ),
            product([dx.shape[0], dx.shape[1]]),
            cost.window(vectors, geometry.taps * 2),
            reads,
            (dx.buffer,),
            group.label,
            tuple(node.label for node in group.nodes),
        )
    )


def _images(node: Node, kind: _Kind) -> list[tuple[str, int]]:
    return [("dy", 0), *([("x", 1), ("y", 2)] if kind == "max" else [])]


def _plain(ctx: LowerContext, group: Group, kind: _Kind) -> None:
    node, _ = root_of(group)
    block = ctx.target.lanes
    final = ctx.output(node.outputs[0])
    channels, spatial = int(str(final.shape[1])), final.shape[2:]
    views = {}
    for name, position in _images(node, kind):
        value = node.inputs[position]
        assert value is not None
        view = as_float(ctx, ctx.view(value))
        ctx.check_equal(view.shape[0], final.shape[0])
        ctx.check_equal(view.shape[1], channels)
        blocked = ctx.scratch(dtypes.FLOAT32, (view.shape[0], ceildiv_int(channels, block), *view.shape[2:], block), "blocked")
        layout_step(ctx, view, blocked, "to", group.label)
        views[name] = dense_blocks(ctx, blocked)
    made = ctx.scratch(dtypes.FLOAT32, (final.shape[0], ceildiv_int(channels, block), *spatial, block), "blocked result")
    _step(ctx, group, kind, {**views, "dx": dense_blocks(ctx, made)}, spatial, attribute_values(node))
    target = final if final.is_contiguous else ctx.scratch(dtypes.FLOAT32, final.shape)
    layout_step(ctx, target, made, "from", group.label)
    if target is not final:
        ctx.copy(target, final, "copy")


def _blocked(ctx: LowerContext, group: Group, kind: _Kind) -> None:
    node, _ = root_of(group)
    final = ctx.output(node.outputs[0])
    target = final if final.is_contiguous else ctx.scratch(dtypes.FLOAT32, final.shape)
    views = {}
    for name, position in _images(node, kind):
        value = node.inputs[position]
        assert value is not None
        views[name] = dense_blocks(ctx, ctx.view(value))
        for axis in (0, 1):
            ctx.check_equal(views[name].shape[axis], final.shape[axis])
    _step(ctx, group, kind, {**views, "dx": dense_blocks(ctx, target)}, final.shape[2:-1], attribute_values(node))
    if target is not final:
        ctx.copy(target, final, "copy")


@template("MaxPoolGrad", domain=DOMAIN, types=_FLOAT, accepts=_accepts)
def max_pool_grad(ctx: LowerContext, group: Group) -> None:
    _plain(ctx, group, "max")


@template("AveragePoolGrad", domain=DOMAIN, types=_FLOAT, accepts=_accepts)
def average_pool_grad(ctx: LowerContext, group: Group) -> None:
    _plain(ctx, group, "average")


@template("BlockedMaxPoolGrad", domain=DOMAIN, accepts=_accepts)
def blocked_max_pool_grad(ctx: LowerContext, group: Group) -> None:
    _blocked(ctx, group, "max")


@template("BlockedAveragePoolGrad", domain=DOMAIN, accepts=_accepts)
def blocked_average_pool_grad(ctx: LowerContext, group: Group) -> None:
    _blocked(ctx, group, "average")
