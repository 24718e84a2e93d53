"""Convolutions as steps.

In the blocked layout a convolution is one step whose epilogue holds the elementwise nodes that follow; the algorithm is chosen
by `choose_algorithm`. A plain Conv (one the layout pass left alone) is brought into blocks and back around the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, is_nonnegative
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array, Tensor
from sardonyx.ir.types import TensorType
from sardonyx.kernel.epilogue import accumulator
from sardonyx.lower.conv_geometry import SPATIAL, Geometry, blocked_moves, geometry
from sardonyx.lower.conv_task import Algorithm, Task, Weights, ceildiv_int, whole_view
from sardonyx.lower.epilogue import GroupEpilogue, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.layout import layout_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.layout import DOMAIN


def constant_tensor(value: Value | None) -> Tensor | None:
    """The data of a constant."""
    return value.constant if value is not None and isinstance(value.constant, Tensor) else None


def _kind(value: Value | None) -> str:
    return value.type.dtype.name if value is not None and isinstance(value.type, TensorType) else ""


def accepts_conv(node: Node) -> str:
    """Why a convolution has no kernel, or ""."""
    weights = node.inputs[1]
    if any(_kind(value) != "f32" for value in node.inputs if value is not None):
        return f"no kernel for convolutions of {_kind(node.inputs[0])}"
    if weights is None or weights.shape is None or any(not isinstance(dim, int) for dim in weights.shape):
        return "the size of the kernels is not known"
    if len(weights.shape) > 5:
        return f"{len(weights.shape) - 2} spatial axes: there are kernels for up to 3"
    if 0 in weights.shape:
        return "the kernels are empty"
    if constant_tensor(weights) is None:
        return "the weights are no constant"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and constant_tensor(bias) is None:
        return "the bias is no constant"
    return ""


def _weights(node: Node, attrs: dict[str, Any]) -> tuple[Weights, tuple[int, ...]]:
    """The weights of a Conv, and the shape of its kernels."""
    value = node.inputs[1]
    tensor = constant_tensor(value)
    assert value is not None
    assert tensor is not None
    bias = constant_tensor(node.inputs[2]) if len(node.inputs) > 2 else None
    groups = int(attrs.get("group") or 1)
    name = f"{value.name}/{node.inputs[2].name if bias is not None and node.inputs[2] is not None else ''}"
    kernel = tensor.shape[2:]

    def array() -> Array:
        return tensor.numpy().reshape(*tensor.shape[:2], *(1,) * (SPATIAL - len(kernel)), *kernel)

    outputs = tensor.shape[0] // groups
    return Weights(name, array, None if bias is None else bias.numpy, groups, outputs, tensor.shape[1]), kernel


def choose_algorithm(weights: Weights, block: int, plain: bool) -> Algorithm:
    """How a convolution is computed."""
    if plain:
        return "plain"
    if weights.groups > 1 and weights.inputs == weights.outputs and block % weights.inputs == 0 and weights.inputs < block:
        return "lanes"
    return "direct"


@template("BlockedConv", domain=DOMAIN, accepts=accepts_conv, fuses=True)
def blocked_conv(ctx: LowerContext, group: Group) -> None:
    """A convolution whose result (and, unless `plain`, input) is blocked."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    weights, kernel = _weights(node, attrs)
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    x = ctx.view(source)
    plain = bool(attrs.get("plain"))
    spatial = x.shape[2:] if plain else x.shape[2:-1]
    place = geometry(spatial, kernel, attrs)
    assert group.shape is not None
    task = Task(
        ctx=ctx,
        group=group,
        place=place,
        block=int(attrs["block"]),
        epilogue=epilogue,
        moves=result_moves(epilogue, group.shape),
        weights=weights,
        x=x,
    )
    task.lower(choose_algorithm(weights, task.block, plain))


def root_of(group: Group) -> tuple[Node, Value]:
    """A template's node and its first input."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    return node, node.inputs[0]


def can_surround(place: Geometry) -> bool:
    """Whether an image can be surrounded by the padding: there is none to cut off."""
    return is_nonnegative(place.before[2])


def result_epilogue(ctx: LowerContext, group: Group) -> GroupEpilogue:
    """The elementwise nodes that follow; operands whose lanes do not lie together are brought together first."""
    node, _ = root_of(group)
    assert group.shape is not None
    found = group_epilogue(ctx, group, lambda operand: {node.outputs[0]: accumulator("f32")})
    views = list(found.views)
    for number, (view, strides) in enumerate(zip(found.views, found.strides(group.shape))):
        if strides and strides[-1] not in (0, 1):
            views[number] = ctx.copy(view, ctx.scratch(view.buffer.dtype, view.shape), "copy")
    return replace(found, views=tuple(views))


def result_moves(epilogue: GroupEpilogue, shape: Sequence[Dim]) -> list[tuple[Dim, ...]]:
    return [blocked_moves(strides) for strides in epilogue.strides(shape)]


@template("Conv", accepts=accepts_conv)
def conv(ctx: LowerContext, group: Group) -> None:
    """A convolution in plain order: every group of channels is brought into blocks of its own, and back."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    weights, kernel = _weights(node, attrs)
    x = ctx.view(source)
    if not x.is_contiguous:
        x = ctx.copy(x, ctx.scratch(x.buffer.dtype, x.shape), "copy")
    place_of_result = ctx.output(node.outputs[0])
    scattered = not place_of_result.is_contiguous
    out = ctx.scratch(dtypes.FLOAT32, place_of_result.shape) if scattered else place_of_result
    batch, spatial = x.shape[0], x.shape[2:]
    block, groups = ctx.lanes, weights.groups
    place = geometry(spatial, kernel, attrs)
    plain = weights.inputs < block // 2 and can_surround(place)
    blocks = ceildiv_int(weights.outputs, block)
    outer = out.shape[2:]
    y = ctx.scratch(dtypes.FLOAT32, (batch, groups * blocks, *outer, block), "blocked result")
    if not plain:
        inputs = ceildiv_int(weights.inputs, block)
        blocked = ctx.scratch(dtypes.FLOAT32, (batch * groups, inputs, *spatial, block), "blocked input")
        layout_step(ctx, whole_view(x, (batch * groups, weights.inputs, *spatial)), blocked, "to", group.label)
        x = whole_view(blocked, (batch, groups * inputs, *spatial, block))
    epilogue = GroupEpilogue((y,), ((0, accumulator("f32")),))
    task = Task(
        ctx=ctx,
        group=group,
        place=place,
        block=block,
        epilogue=epilogue,
        moves=result_moves(epilogue, y.shape),
        weights=weights,
        x=x,
    )
    task.lower("plain" if plain else "direct")
    result = whole_view(y, (batch * groups, blocks, *outer, block))
    layout_step(ctx, whole_view(out, (batch * groups, weights.outputs, *outer)), result, "from", group.label)
    if scattered:
        ctx.copy(out, place_of_result, "copy")
