"""ConvInteger and QLinearConv: convolutions of 8-bit integers as matrix products in 32 bits.

They mean what `ops/quant/quant.py` says.

The distances of the image to its zero point are written with a border of zeros; what every window sees of it becomes a column of
a matrix, which the kernels, as rows of another one, are multiplied by.
"""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import const, load
from sardonyx.lower.conv.conv_geometry import SPATIAL, window_geometry
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.matmul import product_into
from sardonyx.lower.quant.quant import saturated
from sardonyx.lower.quant.quant_matmul import centred
from sardonyx.lower.registry import template
from sardonyx.lower.views import reshaped, with_axes
from sardonyx.program.steps import View, element_count


def _is_single(value: Value | None) -> bool:
    return value is None or set(value.shape or ()) <= {1}


def _accepts(image: Value | None, kernels: Value | None, per_kernel: list[Value | None], single: list[Value | None]) -> str:
    shapes = [(value.shape if value is not None else None) or () for value in (image, kernels)]
    if not 3 <= len(shapes[0]) <= 2 + SPATIAL or len(shapes[1]) != len(shapes[0]):
        return "images and kernels do not fit, or more than 3 spatial axes"
    if not all(isinstance(size, int) and size > 0 for size in shapes[1]):
        return "the size of the kernels is not known"
    if not all(_is_single(value) or (value is not None and value.shape == shapes[1][:1]) for value in per_kernel):
        return "scales or zero points of another form"
    return "" if all(_is_single(value) for value in single) else "several scales or zero points for the image"


def _accepts_integers(node: Node) -> str:
    image, kernels, image_zero, kernel_zero = [*node.inputs, None, None][:4]
    return _accepts(image, kernels, [kernel_zero], [image_zero])


def _accepts_quantized(node: Node) -> str:
    image, x_scale, x_zero, kernels, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    reason = _accepts(image, kernels, [w_scale, w_zero], [x_scale, x_zero, y_scale, y_zero])
    bias = node.inputs[8] if len(node.inputs) > 8 else None
    if reason or bias is None or kernels is None:
        return reason
    own, outputs = bias.shape or (), (kernels.shape or ())[:1]
    if len(own) != 1 or (isinstance(own[0], int) and own != outputs):
        return "the bias does not have one value for each kernel"
    return ""


@template("ConvInteger", accepts=_accepts_integers)
def conv_integer(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    image_zero, kernel_zero = [*node.inputs[2:], None, None][:2]
    result = ctx.output(node.outputs[0])
    _convolve(ctx, group, (given(node, 0), image_zero), (given(node, 1), kernel_zero), result)


@template("QLinearConv", accepts=_accepts_quantized)
def qlinear_conv(ctx: LowerContext, group: Group) -> None:
    """The sums, then a bias, a factor and the output's zero point."""
    node = root_of(group)
    output = node.outputs[0]
    shape, out = ctx.shape(output), ctx.dtype(output).name
    sums = ctx.scratch(dtypes.INT32, shape, "sums")
    _convolve(ctx, group, (given(node, 0), node.inputs[2]), (given(node, 3), node.inputs[5]), sums)
    views = [sums]
    leaves = []
    others = [axis for axis in range(len(shape)) if axis != 1]
    for value in (given(node, 1), given(node, 4), given(node, 6), given(node, 7)):
        view = ctx.view(value)
        single = set(view.shape) <= {1}
        leaves.append(load(len(views), view.buffer.dtype.name).cast("f32"))
        views.append(View(view.buffer, (), (), view.offset) if single else with_axes(view, others))
    total = load(0, "i32")
    bias = node.inputs[8] if len(node.inputs) > 8 else None
    if bias is not None:
        total = total + load(len(views), "i32")
        summands = ctx.view(bias)
        ctx.check_equal(summands.shape[0], shape[1])
        views.append(with_axes(summands, others))
    scaled = total.cast("f32") * (leaves[0] * leaves[1] / leaves[2])
    target = ctx.output(output)
    types = [view.buffer.dtype.name for view in (*views, target)]
    stores = [(len(views), saturated(scaled, leaves[3], out))]
    step = loop_step(shape, [*views, target], types, stores, target=ctx.target, label=group.label, nodes=(group.label,))
    ctx.step(step)


def _convolve(
    ctx: LowerContext, group: Group, image: tuple[Value, Value | None], kernels: tuple[Value, Value | None], result: View
) -> None:
    node = root_of(group)
    attrs = attribute_values(node)
    weights = centred(ctx, group, *kernels, 0)
    count, depth, *window = (size for size in weights.shape if isinstance(size, int))
    groups = attrs.get("group") or 1
    batch, channels, *spatial = ctx.shape(image[0])
    rank = len(spatial)
    geometry = window_geometry(ctx, spatial, window, attrs)
    out, stride, dilation = (sizes[SPATIAL - rank :] for sizes in (geometry.out, geometry.stride, geometry.dilation))
    ctx.check_equal(channels, groups * depth)
    for size, expected in zip(result.shape[2:], out):
        ctx.check_equal(size, expected)
    x = _bordered(ctx, group, image, geometry.pads_begin[SPATIAL - rank :], geometry.pads_end[SPATIAL - rank :])
    pixel = x.strides[2:]
    # Every window as a column: [batch, groups, channels of a group, taps of the window, windows]
    seen = View(
        x.buffer,
        (batch, groups, depth, *window, *out),
        (
            x.strides[0],
            x.strides[1] * depth,
            x.strides[1],
            *(own * apart for own, apart in zip(pixel, dilation)),
            *(own * apart for own, apart in zip(pixel, stride)),
        ),
        x.offset,
    )
    size, windows = depth * element_count(window), element_count(out)
    shape: tuple[Dim, ...] = (batch, groups, size, windows)
    columns = reshaped(seen, shape)
    if columns is None:
        columns = reshaped(ctx.copy(seen, ctx.scratch(dtypes.INT32, seen.shape, "windows"), "windows"), shape)
    rows = reshaped(weights, (1, groups, count // groups, size))
    target = reshaped(result, (batch, groups, count // groups, windows))
    assert columns is not None
    assert rows is not None
    assert target is not None
    epilogue = GroupEpilogue((target,), ((0, accumulator("i32")),))
    product_into(ctx, group, rows, columns, epilogue, target.shape)


def _bordered(
    ctx: LowerContext, group: Group, image: tuple[Value, Value | None], begin: tuple[Dim, ...], end: tuple[Dim, ...]
) -> View:
    """The distances of an image to its zero point, with a border of zeros."""
    value, zero_point = image
    if all(size == 0 for size in (*begin, *end)):
        return centred(ctx, group, value, zero_point, 0)
    shape = ctx.shape(value)
    around = [size + first + last for size, first, last in zip(shape[2:], begin, end)]
    whole = ctx.scratch(dtypes.INT32, (*shape[:2], *around), "bordered")
    stores = [(0, const(0, "i32"))]
    ctx.step(loop_step(whole.shape, [whole], ["i32"], stores, target=ctx.target, label=group.label, nodes=(group.label,)))
    inner = whole
    for axis, (first, size) in enumerate(zip(begin, shape[2:])):
        inner = ctx.part(inner, 2 + axis, first, size)
    centred(ctx, group, value, zero_point, 0, inner)
    return whole
