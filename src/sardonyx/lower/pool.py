"""Pools over images in their plain layout; they mean what `ops/pool.py` says."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import BITS, FLOATS
from sardonyx.kernel.pool import PoolKernel, PoolKind, row_reach
from sardonyx.lower.conv_geometry import Geometry, window_geometry
from sardonyx.lower.epilogue import group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.lower.rows import Made, Rows, lower_rows
from sardonyx.lower.steps import Address, Argument, KernelStep, View
from sardonyx.ops.windows import per_axis

_MOST_ROWS: Final = 256  # of a window, over all its planes
_MOST_COLUMNS: Final = 256
_MOST_REACH: Final = 1 << 14  # elements of a row on the stack


def _accepts(node: Node) -> str:
    source = node.inputs[0]
    shape = None if source is None else source.shape
    if source is None or shape is None or not isinstance(source.type, TensorType):
        return "an input of unknown rank"
    if not 3 <= len(shape) <= 5:
        return f"{len(shape) - 2} spatial axes: there are kernels for 1 to 3"
    if len(node.outputs) > 1 and node.outputs[1].name:
        return "the indices are an output"
    if source.type.dtype.name not in (*FLOATS, "i8", "u8"):
        return f"no kernel for {source.type.dtype.name}"
    attrs = attribute_values(node)
    if len(attrs.get("kernel_shape") or ()) != len(shape) - 2 or any(pad < 0 for pad in attrs.get("pads") or ()):
        return "attributes that are not valid"
    return _too_large(attrs, len(shape) - 2)


def _too_large(attrs: Mapping[str, Any], rank: int) -> str:
    """Why windows are too large for the kernel, which is unrolled over their places and keeps a row of them on the stack."""
    *outer, columns = attrs["kernel_shape"]
    step, spread = (per_axis(attrs.get(name), rank, name)[-1] for name in ("strides", "dilations"))
    most = _MOST_COLUMNS if step <= 2 else _MOST_COLUMNS // 4  # far steps take a load for every lane
    if prod(outer) > _MOST_ROWS or columns > most:
        return f"windows of {prod(outer)} rows and {columns} columns: the kernel has room for {_MOST_ROWS} and {most}"
    return "windows that reach too far" if row_reach(columns, step, spread) > _MOST_REACH else ""


@template("MaxPool", "AveragePool", accepts=_accepts, fuses=True)
def pool(ctx: LowerContext, group: Group) -> None:
    """The maximum or mean of every window."""
    node = group.root
    assert node is not None
    source = node.inputs[0]
    assert source is not None
    assert group.shape is not None
    attrs = attribute_values(node)
    name = ctx.dtype(source).name
    type_ = compute_type(name)
    epilogue = group_epilogue(ctx, group, lambda operand: {node.outputs[0]: accumulator(type_)})
    if not epilogue.stores:
        return
    x = _consecutive(ctx, source)
    place = window_geometry(ctx, x.shape[2:], attrs["kernel_shape"], attrs)
    for size, expected in zip(group.shape[2:], place.out[3 - len(x.shape[2:]) :]):
        ctx.check_equal(size, expected)
    moves = [_five(strides) for strides in epilogue.strides(group.shape)]
    kind: PoolKind = "max" if node.op_type == "MaxPool" else "average"
    padded = kind == "average" and bool(attrs.get("count_include_pad"))
    kernel = PoolKernel(
        kind,
        name,
        type_,
        _numbers(place.kernel),
        _numbers(place.step),
        _numbers(place.spread),
        padded,
        not attrs.get("ceil_mode") and (padded or all(pad == 0 for pad in (*place.before, *place.after))),
        epilogue.for_kernel([move[4] for move in moves]),
    )
    arguments: list[Argument] = [*x.shape[:2], *place.size, *place.out, *place.before]
    arguments += [*_padded(place), _address(x), *_five(x.strides)[:4]]
    for view, move in zip(epilogue.views, moves):
        arguments += [_address(view), *move]
    rows = product([*x.shape[:2], *place.out[:2]])
    operations = place.kernel[0] * place.kernel[1] * place.step[2] + 2 * place.kernel[2] + kernel.epilogue.operations
    ctx.step(
        KernelStep(
            kernel,
            tuple(arguments),
            rows,
            rows * place.out[2] * operations * 60 // 1000,
            (x.buffer, *epilogue.reads),
            epilogue.writes,
            group.label,
            tuple(one.label for one in group.nodes),
        )
    )


def _numbers(values: tuple[int, ...]) -> tuple[int, int, int]:
    planes, rows, columns = values
    return planes, rows, columns


def _five(strides: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Strides over [N, C, spatial ...] with exactly three spatial axes."""
    return (*strides[:2], *(0,) * (5 - len(strides)), *strides[2:])


def _padded(place: Geometry) -> list[Dim]:
    return [before + size + after for before, size, after in zip(place.before, place.size, place.after)]


def _address(view: View) -> Address:
    return Address(view.buffer, view.offset * (BITS[view.buffer.dtype.name] // 8))


def _consecutive(ctx: LowerContext, value: Value) -> View:
    """The image with columns that are consecutive."""
    view = ctx.view(value)
    return view if view.strides[-1] == 1 or view.shape[-1] == 1 else ctx.contiguous(value)


def _has_pixels(node: Node) -> str:
    source = node.inputs[0]
    shape = None if source is None else source.shape
    if shape is None or len(shape) < 3:
        return "an input without spatial axes"
    return (
        "" if all(isinstance(size, int) and size > 0 for size in shape[2:]) else "an image that may be empty, which is an error"
    )


@template("GlobalAveragePool", "GlobalMaxPool", accepts=_has_pixels, fuses=True, absorbs=True)
def global_pool(ctx: LowerContext, group: Group) -> None:
    """The maximum or mean of every channel."""
    node = group.root
    assert node is not None
    assert node.inputs[0] is not None
    rank = len(ctx.shape(node.inputs[0]))

    def rule(rows: Rows) -> Made:
        value = rows.mean(rows.x) if node.op_type == "GlobalAveragePool" else rows.total("max", rows.x)
        return Made(results={rows.output: value})

    lower_rows(ctx, group, rule, tuple(range(2, rank)))
