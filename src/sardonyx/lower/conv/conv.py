"""Convolutions as steps.

In the blocked layout a convolution is one step whose epilogue holds the elementwise nodes that follow; the algorithm is chosen
by `conv_choice`. A plain Conv (one the layout pass left alone) is brought into blocks and back around the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, dim_min, is_nonnegative
from sardonyx.ir.graph import Node, Value, is_constant
from sardonyx.ir.tensor import Tensor
from sardonyx.ir.types import TensorType
from sardonyx.kernel.conv.winograd import ROW_TILE
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import load
from sardonyx.lower.candidates import Alternative, write_fastest
from sardonyx.lower.conv.blocks import ceildiv_int, whole_view
from sardonyx.lower.conv.conv_choice import COMPUTED, TILES, candidates, fewest_tiles, is_lane_grouped, note_saving
from sardonyx.lower.conv.conv_geometry import SPATIAL, Geometry, blocked_strides, blocked_view, window_geometry
from sardonyx.lower.conv.conv_task import Algorithm, Task, Weights
from sardonyx.lower.conv.strided_pixels import with_neighbouring_pixels
from sardonyx.lower.conv.winograd import lower_winograd, lower_winograd_rows, tile_count
from sardonyx.lower.derived import as_float32, is_fixed, numbers
from sardonyx.lower.epilogue import GroupEpilogue, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.layout import layout_step, misfit
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.ops.indexing.layout import DOMAIN, fits_blocks
from sardonyx.program.steps import View

_KINDS: Final = ("f32", "f16", "bf16")  # half-precision floats are computed in float32


def constant_tensor(node: Node, position: int) -> Tensor | None:
    """The data of an input that is the same in every run."""
    value = node.inputs[position] if position < len(node.inputs) else None
    if value is None or not isinstance(value.constant, Tensor) or not is_constant(value, node.graph):
        return None
    return value.constant


def _kinds(node: Node) -> set[str]:
    return {value.type.dtype.name for value in node.inputs if value is not None and isinstance(value.type, TensorType)}


def _accepts_plain(node: Node) -> str:
    """Why a plain convolution has no kernel, or ""."""
    weights = node.inputs[1]
    if weights is None or weights.shape is None or any(not isinstance(dim, int) for dim in weights.shape):
        return "the size of the kernels is not known"
    if len(weights.shape) > 5:
        return f"{len(weights.shape) - 2} spatial axes: there are kernels for up to 3"
    if 0 in weights.shape:
        return "the kernels are empty"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is None:
        return ""
    outputs = weights.shape[0] if "Transpose" not in node.op_type else weights.shape[1] * (node.attr("group") or 1)
    if bias.shape is None or len(bias.shape) != 1 or (isinstance(bias.shape[0], int) and bias.shape[0] != outputs):
        return f"the bias does not have one value for each of {outputs} channels"
    return ""


def accepts_conv(node: Node) -> str:
    """Why a blocked convolution has no kernel, or ""."""
    kinds = _kinds(node)
    if not kinds <= set(_KINDS):
        return f"no kernel for convolutions of {', '.join(sorted(kinds - set(_KINDS)))}"
    return _accepts_plain(node)


def _weights(ctx: LowerContext, node: Node, attrs: dict[str, Any]) -> tuple[Weights, tuple[int, ...]]:
    """The weights of a Conv, and the shape of its kernels."""
    value, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    assert value is not None
    assert value.shape is not None
    shape = tuple(int(str(dim)) for dim in value.shape)
    kernel = shape[2:]
    wide = (*shape[:2], *(1,) * (SPATIAL - len(kernel)), *kernel)
    groups = int(attrs.get("group") or 1)
    kernels = whole_view(as_float(ctx, ctx.view(value)), wide)
    summands = None if bias is None else as_float(ctx, ctx.view(bias))
    if summands is not None:
        ctx.check_equal(summands.shape[0], shape[0])
    return Weights(kernels, summands, groups, shape[0] // groups, shape[1]), kernel


def as_float(ctx: LowerContext, view: View) -> View:
    """A view in float32 without gaps; a copy if it is not that already."""
    kind = view.buffer.dtype.name
    if kind == "f32" and view.is_contiguous:
        return view
    if is_fixed(view):
        return ctx.packed(as_float32, (view,), dtype=dtypes.FLOAT32, shape=numbers(view.shape))
    scratch = ctx.scratch(dtypes.FLOAT32, view.shape)
    convert(ctx, view, scratch)
    return scratch


def convert(ctx: LowerContext, source: View, target: View) -> None:
    """Copy between element types."""
    kinds = [view.buffer.dtype.name for view in (source, target)]
    stores = [(1, load(0, kinds[0]).cast(kinds[1]))]
    ctx.step(loop_step(target.shape, [source, target], kinds, stores, target=ctx.target, label="convert", nodes=("convert",)))


def _accepts_blocked(node: Node) -> str:
    """Why a BlockedConv has no kernel, or ""."""
    reason = accepts_conv(node)
    if reason:
        return reason
    attrs, weights = attribute_values(node), node.inputs[1]
    assert weights is not None
    outputs, inputs = (int(str(dim)) for dim in (weights.shape or ())[:2])
    groups, block = int(attrs.get("group") or 1), int(attrs["block"])
    if attrs.get("plain"):
        return "" if groups == 1 else "groups of a plain input"
    if not fits_blocks(groups, inputs, outputs // groups, block):
        return f"the groups do not lie in whole blocks of {block}"
    if groups > 1 and 1 < inputs < block and constant_tensor(node, 1) is None:
        return f"computed weights of groups of {inputs} channels"
    return misfit(node.inputs[0], inputs * groups, block)


@template("BlockedConv", domain=DOMAIN, accepts=_accepts_blocked, fuses=True, writes_anywhere=True, reads_batches=True)
def blocked_conv(ctx: LowerContext, group: Group) -> None:
    """A convolution whose result (and, unless `plain`, input) is blocked."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    weights, kernel = _weights(ctx, node, attrs)
    epilogue = result_epilogue(ctx, group)
    if not epilogue.stores:
        return
    x = ctx.view(source)
    plain = bool(attrs.get("plain"))
    if plain:
        ctx.check_equal(x.shape[1], weights.inputs)
    spatial = x.shape[2:] if plain else x.shape[2:-1]
    geometry = window_geometry(ctx, spatial, kernel, attrs)
    assert group.shape is not None
    task = Task(
        ctx=ctx,
        group=group,
        geometry=geometry,
        block=int(attrs["block"]),
        epilogue=epilogue,
        operand_strides=result_strides(epilogue, group.shape),
        weights=weights,
        x=x,
    )
    if not plain:
        task = _column_as_row(task)
    lower_fastest(task, plain=plain, exact=bool(attrs.get("exact")))


def lower_fastest(task: Task, *, plain: bool, exact: bool) -> None:
    """Write the steps of a convolution by the algorithm that takes the least time."""
    if not plain and not exact and not is_lane_grouped(task.weights, task.block) and not is_fixed(task.weights.kernels):
        lower_computed(task)
        return
    found = candidates(task, plain=plain, exact=exact)
    note_saving(task, next(iter(found)))
    alternatives = [Alternative(algorithm, estimate, partial(_lower, task, algorithm)) for algorithm, estimate in found.items()]
    write_fastest(task.ctx, alternatives, task.usual)


def lower_computed(task: Task) -> None:
    """Write the steps of a dense convolution whose weights are computed: how it is computed may depend on sizes of the run."""
    fewest = fewest_tiles(task)
    tiles = tile_count(task.x.shape[0], task.geometry, TILES[COMPUTED])
    if fewest is None or (isinstance(tiles, int) and tiles < fewest):
        task.lower("direct")
    elif isinstance(tiles, int):
        _lower(task, COMPUTED)
    else:
        enough = dim_min(dim_max(tiles - (fewest - 1), 0), 1)
        with task.ctx.if_one(enough):
            _lower(task, COMPUTED)
        with task.ctx.if_one(1 - enough):
            task.lower("direct")


def _lower(task: Task, algorithm: Algorithm) -> None:
    """Write the steps of a convolution by an algorithm."""
    if algorithm in TILES:
        lower_winograd(task, TILES[algorithm])
    elif algorithm == "winograd_rows":
        lower_winograd_rows(task, ROW_TILE)
    elif algorithm == "direct":
        with_neighbouring_pixels(task).lower(algorithm)
    else:
        task.lower(algorithm)


def _column_as_row(task: Task) -> Task:
    """A convolution of a column of pixels as one of a row: kernels work on several pixels of a row at once."""
    geometry, kernels = task.geometry, task.weights.kernels
    column = (
        geometry.size[2] == geometry.out[2] == geometry.kernel[2] == 1 and geometry.pads_begin[2] == geometry.pads_end[2] == 0
    )
    if not column or geometry.size[1] == 1 or not is_fixed(kernels):
        return task

    return replace(task, x=blocked_view(task.x)).with_axes_exchanged()


def root_of(group: Group) -> tuple[Node, Value]:
    """A template's node and its first input."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    return node, node.inputs[0]


def can_surround(geometry: Geometry) -> bool:
    """Whether an image can be surrounded by the padding: there is none to cut off."""
    return is_nonnegative(geometry.pads_begin[2])


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


def result_strides(epilogue: GroupEpilogue, shape: Sequence[Dim]) -> list[tuple[Dim, ...]]:
    return [blocked_strides(strides) for strides in epilogue.strides(shape)]


@template("Conv", types={"T": _KINDS}, accepts=_accepts_plain)
def conv(ctx: LowerContext, group: Group) -> None:
    """A convolution in plain order: every group of channels is brought into blocks of its own, and back."""
    node, source = root_of(group)
    attrs = attribute_values(node)
    weights, kernel = _weights(ctx, node, attrs)
    x = as_float(ctx, ctx.view(source))
    final = ctx.output(node.outputs[0])
    direct = final.is_contiguous and final.buffer.dtype is dtypes.FLOAT32
    out = final if direct else ctx.scratch(dtypes.FLOAT32, final.shape)
    batch, spatial = x.shape[0], x.shape[2:]
    block, groups = ctx.target.lanes, weights.groups
    geometry = window_geometry(ctx, spatial, kernel, attrs)
    plain = weights.inputs < block // 2 and can_surround(geometry)
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
        geometry=geometry,
        block=block,
        epilogue=epilogue,
        operand_strides=result_strides(epilogue, y.shape),
        weights=weights,
        x=x,
    )
    task.lower("plain" if plain else "direct")
    result = whole_view(y, (batch * groups, blocks, *outer, block))
    layout_step(ctx, whole_view(out, (batch * groups, weights.outputs, *outer)), result, "from", group.label)
    if not direct:
        convert(ctx, out, final)
