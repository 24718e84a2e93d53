"""ConvInteger and QLinearConv: convolutions of 8-bit integers, channels last; they mean what `ops/quant/quant.py` says.

Every window is a row of a matrix of bytes, read where it lies: a row of the window, with its channels, is a segment of the depth
(`kernel.matmul.int8`), so that nothing is copied but images with a border, which is filled with the zero point. Depthwise
convolutions are loops over the taps of the window.

An image with its channels in front is put in order first, and so is the result: `passes.assign_channels_last` keeps whole nets in
the order of channels last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, const, load, replace
from sardonyx.kernel.matmul.int8 import element_depth, offset_of_a, quad_strip_vectors, takes_pairs
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.lower.conv.conv_geometry import SPATIAL, Geometry, window_geometry
from sardonyx.lower.derived import is_fixed, numbers
from sardonyx.lower.epilogue import GroupEpilogue, OperandNumber, group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.product import Columns
from sardonyx.lower.quant.conv_weights import depthwise_distances, pack_kernel_quads, sums_of_kernels
from sardonyx.lower.quant.integer_product import (
    Int8Product,
    Quantized,
    RowLayout,
    Terms,
    element_type,
    packed_at_run_time,
    widen_into,
    widened,
)
from sardonyx.lower.quant.quant import saturated
from sardonyx.lower.quant.quant_matmul import BYTES, factor, zero_point
from sardonyx.lower.quant.windows import fits_quads, quad_window_step
from sardonyx.lower.registry import template
from sardonyx.lower.views import transposed
from sardonyx.program.steps import View, element_count

_MOST_TAPS: Final = 49  # of a depthwise window that becomes one loop
Rule: TypeAlias = Callable[[OperandNumber, Expr], dict[Value, Expr]]


def _is_single(value: Value | None) -> bool:
    return value is None or set(value.shape or ()) <= {1}


def _accepts(
    node: Node, image: Value | None, kernels: Value | None, per_kernel: list[Value | None], single: list[Value | None]
) -> str:
    shapes = [(value.shape if value is not None else None) or () for value in (image, kernels)]
    if not 3 <= len(shapes[0]) <= 2 + SPATIAL or len(shapes[1]) != len(shapes[0]):
        return "images and kernels do not fit, or more than 3 spatial axes"
    if not all(isinstance(size, int) and size > 0 for size in shapes[1]):
        return "the size of the kernels is not known"
    if not all(_is_single(value) or (value is not None and value.shape == shapes[1][:1]) for value in per_kernel):
        return "scales or zero points of another form"
    groups = attribute_values(node).get("group") or 1
    if shapes[1][0] % groups:
        return f"{shapes[1][0]} kernels in {groups} groups"
    return "" if all(_is_single(value) for value in single) else "several scales or zero points for the image"


def _accepts_integers(node: Node) -> str:
    image, kernels, image_zero, kernel_zero = [*node.inputs, None, None][:4]
    return _accepts(node, image, kernels, [kernel_zero], [image_zero])


def _accepts_quantized(node: Node) -> str:
    image, x_scale, x_zero, kernels, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    reason = _accepts(node, image, kernels, [w_scale, w_zero], [x_scale, x_zero, y_scale, y_zero])
    bias = node.inputs[8] if len(node.inputs) > 8 else None
    if reason or bias is None or kernels is None:
        return reason
    own, outputs = bias.shape or (), (kernels.shape or ())[:1]
    if len(own) != 1 or (isinstance(own[0], int) and own != outputs):
        return "the bias does not have one value for each kernel"
    return ""


@template("ConvInteger", types={"T1": BYTES, "T2": BYTES}, accepts=_accepts_integers)
def conv_integer(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    image_zero, kernel_zero = [*node.inputs[2:], None, None][:2]
    conv = _Convolution(ctx, group, given(node, 0), image_zero, given(node, 1), kernel_zero, None)
    conv.lower(lambda operand, total: {node.outputs[0]: total})


def _quantized_conv(ctx: LowerContext, group: Group) -> None:
    """The sums with a bias, a factor and the output's zero point."""
    node = root_of(group)
    output = node.outputs[0]
    bias = node.inputs[8] if len(node.inputs) > 8 else None
    conv = _Convolution(ctx, group, given(node, 0), node.inputs[2], given(node, 3), node.inputs[5], bias)

    def rule(operand: OperandNumber, total: Expr) -> dict[Value, Expr]:
        value = total.cast("f32") * factor(ctx, operand, given(node, 1), given(node, 4), given(node, 6))
        return {output: saturated(value, zero_point(ctx, operand, given(node, 7)), ctx.dtype(output).name)}

    conv.lower(rule)


_TYPES: Final = {"T1": BYTES, "T2": BYTES, "T3": BYTES}


@template("QLinearConv", types=_TYPES, accepts=_accepts_quantized)
def qlinear_conv(ctx: LowerContext, group: Group) -> None:
    """Channels in front."""
    _quantized_conv(ctx, group)


def _accepts_channels_last(node: Node) -> str:
    return _accepts_quantized(node) if node.attr("channels_last", 0) else "channels in front: the operator of ONNX is for them"


@template("QLinearConv", domain="com.microsoft", types=_TYPES, accepts=_accepts_channels_last, fuses=True, writes_anywhere=True)
def channels_last_conv(ctx: LowerContext, group: Group) -> None:
    """Channels last: whatever is elementwise may follow."""
    _quantized_conv(ctx, group)


class _Convolution(Terms):
    """A convolution on its way to steps. Views of images are [N, planes, rows, columns, channels]."""

    def __init__(
        self,
        ctx: LowerContext,
        group: Group,
        image: Value,
        image_zero: Value | None,
        kernels: Value,
        kernel_zero: Value | None,
        bias: Value | None,
    ) -> None:
        node = root_of(group)
        attrs = attribute_values(node)
        self.is_last = bool(attrs.get("channels_last"))
        view = self._ordered(ctx.view(image))
        super().__init__(ctx, group, Quantized(view, image_zero), Quantized(ctx.view(kernels), kernel_zero), bias)
        self.kernels, self.kernel_zero = ctx.view(kernels), kernel_zero
        self.groups: int = attrs.get("group") or 1
        self.count, self.channels, *window = (size for size in self.kernels.shape if isinstance(size, int))
        missing = SPATIAL - len(window)
        self.geometry: Geometry = window_geometry(ctx, view.shape[1 + missing : -1], window, attrs)
        self.result = node.outputs[0]
        self.depth = self.channels * self.geometry.taps
        ctx.check_equal(view.shape[-1], self.groups * self.channels)
        fixed = is_fixed(self.kernels) and (kernel_zero is None or is_fixed(ctx.view(kernel_zero)))
        self.takes_distances = fixed and self._is_depthwise
        known = kernel_zero is None or ctx.constant_data(kernel_zero) is not None
        self.takes_quads = self.takes_distances and known and fits_quads(self.geometry, ctx.target)
        self.flips_a = self.takes_quads or not self.takes_distances
        self.each = element_depth(ctx.target)
        self.image, self.is_filled = (self._in_order(), False) if self.takes_quads else self._image()
        column_taps, width = self.geometry.kernel[2], view.shape[-1]
        # A row of the window is one segment if its pixels lie side by side.
        self.joined = self.groups == 1 and column_taps > 1 and self.geometry.dilation[2] == 1 and self.image.strides[3] == width
        self.segment = self.channels * (column_taps if self.joined else 1)
        taps = (*self.geometry.kernel[:2], 1 if self.joined else column_taps)
        steps = [own * apart for own, apart in zip(self.image.strides[1:4], self.geometry.dilation)]
        self.segments = tuple((size, step) for size, step in zip(taps, steps) if size > 1)
        self.columns: Columns | None = None  # kernels that are computed, packed
        if not is_fixed(self.kernels):
            self.columns = self._packed_kernels()
        if bias is not None:
            ctx.check_equal(ctx.shape(bias)[0], self.count)
        shape = ctx.shape(self.result)
        spatial = shape[1:-1] if self.is_last else shape[2:]
        for size, expected in zip(spatial, self.geometry.out[missing:]):
            ctx.check_equal(size, expected)

    def _ordered(self, view: View) -> View:
        """A view of an image with its channels last and three spatial axes."""
        rank = len(view.shape)
        if not self.is_last:
            view = transposed(view, [0, *range(2, rank), 1])
        missing = SPATIAL + 2 - rank
        shape = (view.shape[0], *(1,) * missing, *view.shape[1:])
        return View(view.buffer, shape, (view.strides[0], *(0,) * missing, *view.strides[1:]), view.offset)

    @property
    def _is_depthwise(self) -> bool:
        """Whether every channel has a window of its own."""
        return self.channels == 1 and self.groups > 1 and self.count == self.groups and self.geometry.taps <= _MOST_TAPS

    # What zero points need

    def constant_sums(self, zero_point: View | None) -> View | None:
        if not is_fixed(self.kernels) or (zero_point is not None and not is_fixed(zero_point)):
            return None
        return self.ctx.packed(sums_of_kernels, (self.kernels, zero_point), dtype=dtypes.INT32, shape=(self.count,))

    def computed_sums(self) -> View:
        return self.kernel_sums

    def row(self, view: View) -> View:
        raise AssertionError("an image has one zero point")

    def column(self, view: View) -> View:
        return view

    def row_sums(self) -> View:
        """What every window sees, added up: products with kernels of ones, as many as there are where channels form groups."""
        columns = 1 if self.groups == 1 else self.count
        ones = self.ctx.literal(np.ones((columns, self.channels, *self.geometry.kernel), np.int8))
        batch, out = self.left.view.shape[0], self.geometry.out
        sums = self.ctx.scratch(dtypes.INT32, (batch, *out, columns), "sums of windows")
        # The kernel adds up bytes as it multiplies them; what they are more or less than the image's is taken away again.
        offset = offset_of_a(self.left.type, self.ctx.target) * self.channels * self.geometry.taps
        epilogue = GroupEpilogue((sums,), ((0, accumulator("i32") - const(offset, "i32")),))
        self._product(self._columns_of(ones, columns), columns, epilogue, [sums.strides])
        missing = len(sums.shape) - len(self.ctx.shape(self.result))
        return View(sums.buffer, (sums.shape[0], *sums.shape[1 + missing :]), (sums.strides[0], *sums.strides[1 + missing :]))

    # Steps

    def lower(self, rule: Rule) -> None:
        """The convolution, and what becomes of its sums."""
        ctx, group = self.ctx, self.group
        if self.is_last:
            epilogue = group_epilogue(ctx, group, lambda operand: rule(operand, self.sum(operand)))
            if epilogue.stores:
                self._finish(epilogue)
            return
        views: list[View] = []

        def operand(value: Value | View) -> int:
            view = value if isinstance(value, View) else ctx.view(value)
            if view not in views:
                views.append(view)
            return views.index(view)

        made = rule(operand, self.sum(operand))[self.result]
        shape = ctx.shape(self.result)
        ordered = ctx.scratch(ctx.dtype(self.result), (shape[0], *shape[2:], shape[1]), "channels last")
        self._finish(GroupEpilogue((*views, ordered), ((len(views), made),)))
        ctx.copy(
            transposed(ordered, [0, len(shape) - 1, *range(1, len(shape) - 1)]), ctx.output(self.result), "channels in front"
        )

    def _finish(self, epilogue: GroupEpilogue) -> None:
        shape = self.ctx.shape(self.result)
        last = shape if self.is_last else (shape[0], *shape[2:], shape[1])
        missing = SPATIAL + 2 - len(last)
        strides = [(own[0], *(0,) * missing, *own[1:]) for own in epilogue.strides(last)]
        if self.takes_quads:
            zero_points = self.left.zero_point, self.kernel_zero
            quad_window_step(self.ctx, self.group, self.image, zero_points, self.kernels, self.geometry, epilogue, strides)
        elif self.takes_distances:
            self._depthwise(epilogue, (last[0], *(1,) * missing, *last[1:]), strides)
        else:
            self._product(self.columns or self._columns_of(self.kernels, self.count), self.count, epilogue, strides)

    def _columns_of(self, kernels: View, count: int) -> Columns:
        """Constant kernels, packed."""
        each, parts, elements = count // self.groups, self._parts, -(-self.segment // self.each)
        vectors = quad_strip_vectors(each, self.ctx.target, depth=self.segment * parts)
        strip = vectors * vector_lanes("i32", self.ctx.target)
        strips = -(-each // strip)
        shape = (self.groups, strips, parts, elements, strip, self.each)
        parameters = (each, self.joined, strip, self.each)
        packed = self.ctx.packed(pack_kernel_quads, (kernels,), *parameters, dtype=dtypes.INT8, shape=shape)
        of_groups = View(packed.buffer, (self.groups,), (strips * parts * elements * strip,))  # the kernel counts in elements
        return Columns("packed", of_groups, element_type(self.ctx), parts * elements * strip, vectors)

    @property
    def _parts(self) -> int:
        return self.channels * self.geometry.taps // self.segment

    def _packed_kernels(self) -> Columns:
        """Kernels that are computed: put in order with whole elements in every segment, then packed."""
        ctx, groups, kernels = self.ctx, self.groups, self.kernels
        each, parts, filled = self.count // groups, self._parts, -(-self.segment // self.each) * self.each
        matrices = ctx.scratch(kernels.buffer.dtype, (groups, parts * filled, each), "kernels in order")
        nodes = (self.group.label,)
        kind = kernels.buffer.dtype.name
        if filled != self.segment:
            value = const(0 if kind == "i8" else 128, kind)  # what is packed as 0
            label = f"kernels for {self.group.label}"
            ctx.step(loop_step(matrices.shape, [matrices], [kind], [(0, value)], target=ctx.target, label=label, nodes=nodes))
        window = kernels.shape[2:]
        rank = len(window)
        source = View(
            kernels.buffer,
            (groups, *window, self.channels, each),
            (kernels.strides[0] * each, *kernels.strides[2:], kernels.strides[1], kernels.strides[0]),
            kernels.offset,
        )
        inner = numbers(window)
        segments = inner[:-1] if self.joined else inner
        steps = [filled * each * int(np.prod(segments[axis + 1 :])) for axis in range(len(segments))]
        target_strides = [*steps, *([self.channels * each] if self.joined else [])]
        assert len(target_strides) == rank
        target = View(matrices.buffer, source.shape, (parts * filled * each, *target_strides, each, 1))
        ctx.copy(source, target, "kernels in order")
        vectors = quad_strip_vectors(each, ctx.target)
        packed, sums = packed_at_run_time(ctx, self.group, matrices, vectors)
        self.kernel_sums = View(sums.buffer, (self.count,), (1,))
        if groups > 1:
            flat = ctx.scratch(dtypes.INT32, (groups, each), "sums of kernels")
            self.kernel_sums = View(ctx.copy(sums, flat, "sums of kernels").buffer, (self.count,), (1,))
        of_groups = View(packed.buffer, (groups,), packed.strides[:1])
        return Columns("packed", of_groups, element_type(ctx), packed.strides[1], vectors)

    def _product(self, columns: Columns, count: int, epilogue: GroupEpilogue, strides: list[Any]) -> None:
        """A product of all windows with kernels; `strides` are the epilogue's over [N, planes, rows, columns, kernels]."""
        ctx, geometry, image = self.ctx, self.geometry, self.image
        batch, each, depth = image.shape[0], count // self.groups, self.segment
        moved = [own * stride for own, stride in zip(image.strides[1:4], geometry.stride)]
        out = geometry.out
        # Lines of pixels are rows of one matrix if everything but the image walks through them without a jump.
        flows = all(own[2] == own[3] * out[2] for own in strides)
        line = (out[2], moved[1]) if flows and out[1] != 1 and moved[1] != moved[2] * out[2] else None
        shape: list[Dim]
        if line is None:
            shape = [batch, out[0], out[1], self.groups, out[2], each]
            order = [[*own[:3], own[4] * each, own[3], own[4]] for own in strides]
            a_shape, a_strides = shape[:-1], [image.strides[0], moved[0], moved[1], self.channels, moved[2]]
        else:
            shape = [batch, out[0], self.groups, out[1] * out[2], each]
            order = [[*own[:2], own[4] * each, own[3], own[4]] for own in strides]
            a_shape, a_strides = shape[:-1], [image.strides[0], moved[0], self.channels, moved[2]]
        a = View(image.buffer, (*a_shape, depth), (*a_strides, 1), image.offset)
        b = View(columns.view.buffer, (depth, each), (each, 1))
        layout = RowLayout(self.segments, line, self.is_filled)
        Int8Product(ctx, self.group, a, b, epilogue, shape, order, layout).tiles(columns, 1)

    def _in_order(self) -> View:
        """The image with its channels side by side."""
        image = self.left.view
        if image.strides[-1] == 1 or image.shape[-1] == 1:
            return image
        return self.ctx.copy(image, self.ctx.scratch(image.buffer.dtype, image.shape, "in order"), "image in order")

    def _image(self) -> tuple[View, bool]:
        """The image with its border, and whether there are bytes to read behind it."""
        image, geometry = self.left.view, self.geometry
        begin, end = geometry.pads_begin, geometry.pads_end
        widens = takes_pairs(self.ctx.target) and not self.takes_distances
        in_order = image.strides[-1] == 1 or image.shape[-1] == 1
        if all(size == 0 for size in (*begin, *end)) and in_order:
            return (widened(self.ctx, image) if widens else image), False
        if widens:
            image = self._in_order()
        spatial = [size + first + last for size, first, last in zip(image.shape[1:4], begin, end)]
        shape = (image.shape[0], *spatial, image.shape[-1])
        ctx = self.ctx
        memory = ctx.scratch(dtypes.INT16 if widens else image.buffer.dtype, (element_count(shape) + self.each,), "bordered")
        whole = View(memory.buffer, shape, _row_major(shape))
        inner = whole
        for axis, (first, last, size) in enumerate(zip(begin, end, image.shape[1:4]), 1):
            for start, length in ((0, first), (first + size, last)):
                if length != 0:
                    self._fill(ctx.part(inner, axis, start, length))
            inner = ctx.part(inner, axis, first, size)
        if widens:
            widen_into(ctx, image, inner)
        else:
            ctx.copy(image, inner, "image in its border")
        return whole, True

    def _fill(self, part: View) -> None:
        """Write the zero point."""
        ctx, zero_point = self.ctx, self.left.zero_point
        kind = part.buffer.dtype.name
        views: list[View] = []
        value = const(0, kind)
        if isinstance(zero_point, Value):
            data = ctx.constant_data(zero_point)
            if data is not None:
                value = const(int(data.numpy().reshape(-1)[0]), kind)
            else:
                given_view = ctx.view(zero_point)
                views = [View(given_view.buffer, (), (), given_view.offset)]
                value = load(0, given_view.buffer.dtype.name).cast(kind)
        types = [view.buffer.dtype.name for view in (*views, part)]
        label, nodes = f"border for {self.group.label}", (self.group.label,)
        ctx.step(loop_step(part.shape, [*views, part], types, [(len(views), value)], target=ctx.target, label=label, nodes=nodes))

    def _depthwise(self, epilogue: GroupEpilogue, shape: tuple[Dim, ...], strides: list[Any]) -> None:
        """One loop: the sum over the taps of the window, and the epilogue."""
        ctx, geometry = self.ctx, self.geometry
        image, zero_point = self.image, self.right.zero_point
        source = ctx.view(zero_point) if isinstance(zero_point, Value) else None
        taps = geometry.taps
        weights = ctx.packed(depthwise_distances, (self.kernels, source), dtype=dtypes.INT16, shape=(taps, self.count))
        views = [View(view.buffer, shape, tuple(own), view.offset) for view, own in zip(epilogue.views, strides)]
        moved = [own * stride for own, stride in zip(image.strides[1:4], geometry.stride)]
        kind = image.buffer.dtype.name
        total = const(0, "i32")
        for tap, point in enumerate(np.ndindex(*geometry.kernel)):
            offset = image.offset
            for index, apart, own in zip(point, geometry.dilation, image.strides[1:4]):
                offset = offset + own * (index * apart)
            pixel, weight = len(views), len(views) + 1
            views.append(View(image.buffer, shape, (image.strides[0], *moved, image.strides[4]), offset))
            views.append(View(weights.buffer, shape, (0, 0, 0, 0, 1), tap * self.count))
            total = total + load(pixel, kind).cast("i32") * load(weight, "i16").cast("i32")
        stores = [(to, replace(value, {accumulator("i32"): total})) for to, value in epilogue.stores]
        types = [view.buffer.dtype.name for view in views]
        nodes = tuple(node.label for node in self.group.nodes)
        ctx.step(loop_step(shape, views, types, stores, target=ctx.target, label=self.group.label, nodes=nodes))


def _row_major(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple(product(list(shape[axis + 1 :])) for axis in range(len(shape)))
