"""Quantized layers of com.microsoft that are no products: elementwise ones, pools, Concat; they mean what `ops/quant` says."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_max, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.expr import SIGNED, Expr, const, load, looked_up, maximum, reduced, select, size
from sardonyx.kernel.math import sigmoid
from sardonyx.lower.conv.conv_geometry import SPATIAL, geometry_of
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.quant.quant import distance, quantized
from sardonyx.lower.registry import elementwise, template
from sardonyx.ops.conv.windows import cuts_windows, extent
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View, row_major

MICROSOFT: Final = "com.microsoft"
_BYTES: Final = {"T": ("u8", "i8")}
_MOST_TAPS: Final = 81  # of a window that becomes one loop


def _are_single(*positions: int) -> Callable[[Node], bool]:
    def where(node: Node) -> bool:
        values = [node.inputs[position] for position in positions if position < len(node.inputs)]
        return all(value is None or value.shape in ((), (1,)) for value in values)

    return where


def _real(x: Expr, scale: Expr, zero_point: Expr | None) -> Expr:
    return distance(x, zero_point) * scale


def _combined(name: str, combine: Callable[[Expr, Expr], Expr]) -> None:
    @elementwise(name, domain=MICROSOFT, types=_BYTES, where=_are_single(1, 2, 4, 5, 6, 7))
    def rule(
        a: Expr,
        a_scale: Expr,
        a_zero: Expr | None,
        b: Expr,
        b_scale: Expr,
        b_zero: Expr | None,
        c_scale: Expr,
        c_zero: Expr | None = None,
        *,
        out: str,
        ordinary: tuple[bool, ...],
    ) -> Expr:
        value = combine(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
        return quantized(value, c_scale, c_zero, out, ordinary=ordinary[6])


_combined("QLinearAdd", operator.add)
_combined("QLinearMul", operator.mul)


@elementwise("QLinearSigmoid", domain=MICROSOFT, types=_BYTES, where=_are_single(1, 2, 3, 4))
def qlinear_sigmoid(x: Expr, x_scale: Expr, x_zero: Expr | None, y_scale: Expr, y_zero: Expr | None = None, *, out: str) -> Expr:
    return quantized(sigmoid(_real(x, x_scale, x_zero)), y_scale, y_zero, out)


@elementwise("QLinearLeakyRelu", domain=MICROSOFT, types=_BYTES, where=_are_single(1, 2, 3, 4))
def qlinear_leaky_relu(
    x: Expr, x_scale: Expr, x_zero: Expr | None, y_scale: Expr, y_zero: Expr | None = None, *, alpha: float, out: str
) -> Expr:
    value = _real(x, x_scale, x_zero)
    return quantized(select(value < 0.0, value * const(alpha, "f32"), value), y_scale, y_zero, out)


def _is_whole_table(node: Node) -> bool:
    table = attribute_values(node).get("table") or ()
    return len(table) == 256 and all(0 <= each < 256 for each in table)


@elementwise("ByteTable", domain="sardonyx", types=_BYTES, where=_is_whole_table)
def byte_table(x: Expr, *, table: Sequence[int], out: str) -> Expr:
    return looked_up(x, table, out)


def _single(ctx: LowerContext, value: Value) -> View:
    view = ctx.view(value)
    return View(view.buffer, (), (), view.offset)


# Pools


def _accepts_max_pool(node: Node) -> str:
    shape = (node.inputs[0].shape if node.inputs[0] is not None else None) or ()
    if not 3 <= len(shape) <= 2 + SPATIAL:
        return "more than 3 spatial axes"
    attrs = attribute_values(node)
    if cuts_windows(shape[1:-1], attrs):
        return "windows larger than the image"
    return "" if int(np.prod(attrs["kernel_shape"])) <= _MOST_TAPS else "a large window"


@template("NhwcMaxPool", domain=MICROSOFT, types=_BYTES, accepts=_accepts_max_pool, writes_anywhere=True)
def nhwc_max_pool(ctx: LowerContext, group: Group) -> None:
    """One loop over all taps of the window, on an image with a border of the least number."""
    node = root_of(group)
    attrs = attribute_values(node)
    image = ctx.view(given(node, 0))
    batch, *spatial, channels = image.shape
    rank = len(spatial)
    geometry = geometry_of(spatial, attrs["kernel_shape"], attrs)
    out, begin = (sizes[SPATIAL - rank :] for sizes in (geometry.out, geometry.pads_begin))
    kernel, stride, dilation = (sizes[SPATIAL - rank :] for sizes in (geometry.kernel, geometry.stride, geometry.dilation))
    # As much as the last window reaches beyond the image, which pads need not be and rounding up may make more.
    reached = [(size - 1) * step + extent(width, apart) for size, step, width, apart in zip(out, stride, kernel, dilation)]
    end = [dim_max(reach - first - own, 0) for reach, first, own in zip(reached, begin, spatial)]
    kind = image.buffer.dtype.name
    least = const(-128 if kind in SIGNED else 0, kind)
    nodes = tuple(each.label for each in group.nodes)
    if any(size != 0 for size in (*begin, *end)):
        shape = (batch, *(first + size + last for first, size, last in zip(begin, spatial, end)), channels)
        inner = whole = ctx.scratch(image.buffer.dtype, shape, "bordered")
        for axis, (first, size, last) in enumerate(zip(begin, spatial, end), 1):
            for start, length in ((0, first), (first + size, last)):
                if length != 0:
                    part = ctx.part(inner, axis, start, length)
                    label = f"border for {group.label}"
                    ctx.step(loop_step(part.shape, [part], [kind], [(0, least)], target=ctx.target, label=label, nodes=nodes))
            inner = ctx.part(inner, axis, first, size)
        ctx.copy(image, inner, "image in its border")
        image = whole
    elif image.strides[-1] != 1:  # a vector of channels would be read one by one, for each tap
        image = ctx.contiguous(given(node, 0))
    result = (batch, *out, channels)
    views: list[View] = []
    value: Expr | None = None
    for position in np.ndindex(*kernel):
        offset = image.offset
        for index, apart, own in zip(position, dilation, image.strides[1:-1]):
            offset = offset + own * (index * apart)
        moved = [own * step for own, step in zip(image.strides[1:-1], stride)]
        one = load(len(views), kind)
        views.append(View(image.buffer, result, (image.strides[0], *moved, image.strides[-1]), offset))
        value = one if value is None else maximum(value, one)
    assert value is not None
    target = ctx.output(node.outputs[0])
    types = [view.buffer.dtype.name for view in (*views, target)]
    stores = [(len(views), value)]
    ctx.step(loop_step(result, [*views, target], types, stores, target=ctx.target, label=group.label, nodes=nodes))


def _accepts_global(node: Node) -> str:
    if any(value is None or value.shape not in ((), (1,)) for value in node.inputs[1:5]):
        return "several scales or zero points"
    return "" if len((node.inputs[0].shape if node.inputs[0] is not None else None) or ()) >= 3 else "no image"


@template("QLinearGlobalAveragePool", domain=MICROSOFT, types=_BYTES, accepts=_accepts_global)
def qlinear_global_average_pool(ctx: LowerContext, group: Group) -> None:
    """The exact sum of all pixels, then the scales."""
    node = root_of(group)
    image = ctx.contiguous(given(node, 0))
    is_last = bool(attribute_values(node).get("channels_last"))
    pixels = product(list(image.shape[1:-1] if is_last else image.shape[2:]))
    channels = image.shape[-1 if is_last else 1]
    shape: tuple[Dim, ...] = (image.shape[0], pixels, channels) if is_last else (image.shape[0] * channels, pixels)
    target = ctx.output(node.outputs[0])
    made = target if target.is_contiguous else ctx.scratch(target.buffer.dtype, target.shape, "means")
    x = View(image.buffer, shape, row_major(shape), image.offset)
    y = View(made.buffer, shape, (channels, 0, 1) if is_last else (1, 0), made.offset)
    parameters = [_single(ctx, given(node, position)) for position in range(1, 5)]
    kind = image.buffer.dtype.name
    x_scale, x_zero, y_scale, y_zero = (load(position, view.buffer.dtype.name) for position, view in enumerate(parameters, 1))
    count = const(pixels, "i64") if isinstance(pixels, int) else size(-2 if is_last else -1)
    total = reduced("sum", load(0, kind).cast("i32"), 1) - count.cast("i32") * x_zero.cast("i32")
    mean = total.cast("f32") * (x_scale / count.cast("f32"))
    views = [x, *parameters, y]
    types = [view.buffer.dtype.name for view in views]
    ctx.step(
        loop_step(
            shape,
            views,
            types,
            (),
            target=ctx.target,
            label=group.label,
            nodes=tuple(each.label for each in group.nodes),
            results=[(5, quantized(mean, y_scale, y_zero, kind))],
            reduce="middle" if is_last else "inner",
        )
    )
    if made is not target:
        ctx.copy(made, target, "copy")


# Concat


def _accepts_concat(node: Node) -> str:
    if len(node.inputs) % 3 != 2 or any(value is None for value in node.inputs):
        return "inputs that are not tensor, scale and zero point each"
    parameters = [value for position, value in enumerate(node.inputs) if position < 2 or position % 3 != 2]
    return "" if all(value is not None and value.shape in ((), (1,)) for value in parameters) else "several scales or zero points"


@template("QLinearConcat", domain=MICROSOFT, accepts=_accepts_concat, writes_anywhere=True)
def qlinear_concat(ctx: LowerContext, group: Group) -> None:
    """Every input is quantized anew into its part of the result."""
    node = root_of(group)
    target = ctx.output(node.outputs[0])
    axis = normalize_axis(attribute_values(node)["axis"], len(target.shape))
    kind = target.buffer.dtype.name
    y_scale, y_zero = given(node, 0), given(node, 1)
    start: Dim = 0
    for position in range(2, len(node.inputs), 3):
        x, scale, zero_point = (given(node, position + offset) for offset in range(3))
        source = ctx.untransposed(x)
        part = ctx.part(target, axis, start, source.shape[axis])
        start = start + source.shape[axis]
        if _same(ctx, scale, y_scale) and _same(ctx, zero_point, y_zero):
            ctx.copy(source, part, "copy")
            continue
        views = [source, *(_single(ctx, value) for value in (scale, zero_point, y_scale, y_zero)), part]
        types = [view.buffer.dtype.name for view in views]
        value = quantized(_real(load(0, kind), load(1, "f32"), load(2, kind)), load(3, "f32"), load(4, kind), kind)
        nodes = tuple(each.label for each in group.nodes)
        ctx.step(loop_step(source.shape, views, types, [(5, value)], target=ctx.target, label=group.label, nodes=nodes))
    ctx.check_equal(start, target.shape[axis])


def _same(ctx: LowerContext, first: Value, second: Value) -> bool:
    known = [ctx.constant_data(value) for value in (first, second)]
    if known[0] is None or known[1] is None:
        return False
    return bool(known[0].numpy().reshape(()) == known[1].numpy().reshape(()))
