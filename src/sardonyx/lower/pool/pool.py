"""Pools over images in their plain layout; they mean what `ops/pool/pool.py` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import FLOATS, Expr, const, load, sqrt, unary
from sardonyx.kernel.pool.pool import MOST_REACH, POOL_NUMBERS, MaxIndicesKernel, PoolKernel, PoolKind, row_reach, row_way
from sardonyx.lower.conv.conv_geometry import Geometry, window_geometry
from sardonyx.lower.elementwise.elementwise import pow_
from sardonyx.lower.epilogue import GroupEpilogue, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type, lower_loop
from sardonyx.lower.registry import template
from sardonyx.lower.rows.rows import Made, Rows, lower_rows
from sardonyx.ops.conv.windows import cuts_windows, per_axis
from sardonyx.program.steps import KernelStep, View
from sardonyx.target import cost

_MOST_ROWS: Final = 256  # of a window, over all its planes
_MOST_COLUMNS: Final = 256
_KINDS: Final[dict[str, PoolKind]] = {"MaxPool": "max", "AveragePool": "average", "LpPool": "sum"}


def _accepts(node: Node) -> str:
    source = node.inputs[0]
    shape = None if source is None else source.shape
    if shape is None:
        return "an input of unknown rank"
    if not 3 <= len(shape) <= 5:
        return f"{len(shape) - 2} spatial axes: there are kernels for 1 to 3"
    attrs = attribute_values(node)
    if len(attrs.get("kernel_shape") or ()) != len(shape) - 2 or any(pad < 0 for pad in attrs.get("pads") or ()):
        return "attributes that are not valid"
    if attrs.get("p") is not None and not attrs["p"] > 0:
        return f"p is {attrs['p']}"
    return "windows larger than the image" if cuts_windows(shape[2:], attrs) else too_large(attrs, len(shape) - 2)


def too_large(attrs: Mapping[str, Any], rank: int) -> str:
    """Why windows are too large for the kernels, which are unrolled over their taps and keep a row of them on the stack."""
    *outer, columns = attrs["kernel_shape"]
    stride, dilation = (per_axis(attrs.get(name), rank, name)[-1] for name in ("strides", "dilations"))
    most = _MOST_COLUMNS if stride <= 2 else _MOST_COLUMNS // 4  # far strides take a load for every lane
    if prod(outer) > _MOST_ROWS or (columns > most and row_way(columns, stride, dilation) == "taps"):
        return f"windows of {prod(outer)} rows and {columns} columns: the kernel has room for {_MOST_ROWS} and {most}"
    return "windows that reach too far" if row_reach(columns, stride, dilation) > MOST_REACH else ""


@template("MaxPool", "AveragePool", "LpPool", types={"T": (*FLOATS, "i8", "u8")}, accepts=_accepts, fuses=True)
def pool(ctx: LowerContext, group: Group) -> None:
    """The maximum, mean or norm of every window."""
    node = group.root
    assert node is not None
    source = node.inputs[0]
    assert source is not None
    assert group.shape is not None
    attrs = attribute_values(node)
    geometry = window_geometry(ctx, ctx.shape(source)[2:], attrs["kernel_shape"], attrs)
    for size, expected in zip(group.shape[2:], geometry.out[3 - len(group.shape[2:]) :]):
        ctx.check_equal(size, expected)
    if len(node.outputs) > 1 and node.outputs[1].name:
        _with_indices(ctx, group, node, geometry)
        return
    kind: PoolKind = _KINDS[node.op_type]
    type_ = compute_type(ctx.dtype(source).name)
    result = accumulator(type_)
    if kind == "sum":
        result = _root(result, attrs["p"])
    epilogue = group_epilogue(ctx, group, lambda operand: {node.outputs[0]: result})
    if not epilogue.stores:
        return
    x = _powers(ctx, group, source, attrs["p"]) if kind == "sum" else _consecutive(ctx, source)
    padded = kind == "average" and bool(attrs.get("count_include_pad"))
    whole = not attrs.get("ceil_mode") and (padded or all(pad == 0 for pad in (*geometry.pads_begin, *geometry.pads_end)))
    pool_step(ctx, group, kind, x, geometry, epilogue, group.shape, padded=padded, whole=whole)


def pool_step(
    ctx: LowerContext,
    group: Group,
    kind: PoolKind,
    x: View,
    geometry: Geometry,
    epilogue: GroupEpilogue,
    shape: Sequence[Dim],
    *,
    padded: bool = False,
    whole: bool = False,
) -> None:
    """The windows of an image whose columns are consecutive; `shape` is the result's. `padded` and `whole` are for means."""
    operand_strides = [_five(strides) for strides in epilogue.strides(shape)]
    kernel = PoolKernel(
        kind=kind,
        source=x.buffer.dtype.name,
        type=compute_type(x.buffer.dtype.name),
        kernel=_numbers(geometry.kernel),
        stride=_numbers(geometry.stride),
        dilation=_numbers(geometry.dilation),
        padded=padded,
        whole=whole,
        epilogue=epilogue.for_kernel([own[4] for own in operand_strides]),
    )
    arguments = kernel.arguments.entries(
        **_pool_numbers(x, geometry),
        x=(x.address, _five(x.strides)[:4]),
        operands=[(view.address, own) for view, own in zip(epilogue.views, operand_strides)],
    )
    rows = product([*x.shape[:2], *geometry.out[:2]])
    operations = (
        geometry.kernel[0] * geometry.kernel[1] * geometry.stride[2] + 2 * geometry.kernel[2] + kernel.epilogue.operations
    )
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            rows,
            cost.pool(rows * geometry.out[2], operations),
            (x.buffer, *epilogue.reads),
            epilogue.writes,
            group.label,
            tuple(one.label for one in group.nodes),
        )
    )


def _power(x: Expr, p: float) -> Expr:
    return pow_(unary("abs", x) if p != 2 else x, const(float(p), x.type))


def _root(total: Expr, p: float) -> Expr:
    return sqrt(total) if p == 2 else pow_(total, const(1 / p, total.type))


def _powers(ctx: LowerContext, group: Group, source: Value, p: float) -> View:
    """|x| ** p, in the type it is added in."""
    x, kind = ctx.untransposed(source), ctx.dtype(source).name
    wide = compute_type(kind)
    target = ctx.scratch(dtypes.from_name(wide), x.shape, "powers")
    stores = [(1, _power(load(0, kind).cast(wide), p))]
    ctx.step(loop_step(x.shape, [x, target], [kind, wide], stores, target=ctx.target, label=group.label, nodes=(group.label,)))
    return target


def _with_indices(ctx: LowerContext, group: Group, node: Node, geometry: Geometry) -> None:
    """Maxima and where they are; what else is in the group is computed from both afterwards."""
    source = node.inputs[0]
    assert source is not None
    x, (values, indices) = ctx.view(source), (ctx.output(value) for value in node.outputs[:2])
    name = x.buffer.dtype.name
    kernel = MaxIndicesKernel(
        source=name,
        type=compute_type(name),
        kernel=_numbers(geometry.kernel),
        stride=_numbers(geometry.stride),
        dilation=_numbers(geometry.dilation),
    )
    depth, height, width = geometry.size
    numbering: tuple[Dim, ...] = (height * width, width, 1)
    if attribute_values(node).get("storage_order"):  # the first axis that is really there is numbered fastest
        numbering = (1, depth, depth * height)
    arguments = kernel.arguments.entries(
        **_pool_numbers(x, geometry),
        numbering=numbering,
        x=(x.address, _five(x.strides)),
        values=values.address,
        indices=indices.address,
    )
    rows = product([*x.shape[:2], *geometry.out[:2]])
    work = cost.max_indices(rows * geometry.out[2], geometry.taps)
    writes = (values.buffer, indices.buffer)
    ctx.step(KernelStep(kernel, arguments, rows, work, (x.buffer,), writes, group.label, (node.label,)))
    if group.after:
        lower_loop(ctx, replace(group, kind="loop", root=None, template=None, nodes=group.after))


def _pool_numbers(x: View, geometry: Geometry) -> dict[str, Dim]:
    """The arguments that all pools have."""
    return dict(
        zip(POOL_NUMBERS, (*x.shape[:2], *geometry.size, *geometry.out, *geometry.pads_begin, *_padded(geometry)), strict=True)
    )


def _numbers(values: tuple[int, ...]) -> tuple[int, int, int]:
    planes, rows, columns = values
    return planes, rows, columns


def _five(strides: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Strides over [N, C, spatial ...] with exactly three spatial axes."""
    return (*strides[:2], *(0,) * (5 - len(strides)), *strides[2:])


def _padded(geometry: Geometry) -> list[Dim]:
    return [begin + size + end for begin, size, end in zip(geometry.pads_begin, geometry.size, geometry.pads_end)]


def _consecutive(ctx: LowerContext, value: Value) -> View:
    """The image with columns that are consecutive."""
    view = ctx.view(value)
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else ctx.contiguous(value)


def _has_pixels(node: Node) -> str:
    source = node.inputs[0]
    shape = None if source is None else source.shape
    if shape is None or len(shape) < 3:
        return "an input without spatial axes"
    if 0 in shape[2:]:
        return "an image without pixels"
    p = attribute_values(node).get("p")
    return "" if p is None or p > 0 else f"p is {p}"


@template("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", accepts=_has_pixels, fuses=True, absorbs=True)
def global_pool(ctx: LowerContext, group: Group) -> None:
    """The maximum, mean or norm of every channel."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    rank = len(ctx.shape(node.inputs[0]))
    for size in ctx.shape(node.inputs[0])[2:]:
        ctx.check_equal(dim_max(size, 1), size)
    p = float(attribute_values(node).get("p") or 0)  # only norms have one

    def rule(rows: Rows) -> Made:
        if node.op_type == "GlobalLpPool":
            value = _root(rows.total("sum", _power(rows.x, p)), p)
        else:
            value = rows.mean(rows.x) if node.op_type == "GlobalAveragePool" else rows.total("max", rows.x)
        return Made(results={rows.output: value})

    lower_rows(ctx, group, rule, tuple(range(2, rank)))
