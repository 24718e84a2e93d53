"""Resize and Upsample of plain tensors.

Enlarging by whole factors with the nearest element is a copy of a repeated view, for any size. Everything else goes by tables of
the elements each point is made of (`lower/sampling/resize_tables.py`), one axis after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim, DimExpr, dim_max, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.expr import clamp, load, select, unary
from sardonyx.kernel.sampling import resample
from sardonyx.kernel.sampling.resample import ResampleKernel
from sardonyx.lower.indexing.index_loops import indexed_loop
from sardonyx.lower.indexing.indexing import take
from sardonyx.lower.indexing.movement import first_input
from sardonyx.lower.loop_builder import merge_axes
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import view
from sardonyx.lower.sampling.nearest import is_row, take_points
from sardonyx.lower.sampling.resize_tables import MOST_MADE_AHEAD, Table, fits_open_sizes, is_made_ahead, known_table, open_table
from sardonyx.lower.views import expanded, reshaped, with_axes
from sardonyx.ops.infer import normalize_axis
from sardonyx.ops.sampling.resize import AxisPlan, Interpolation, nearest_index, resize_plans, source_coordinates
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost

_OLD_MODES: Final = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}
_SHIFTED: Final = "tf_half_pixel_for_nn"  # coordinates that are no whole numbers even if the size stays
_TRIED: Final = 64  # sizes for which a rule that must hold for all of them is tried


@dataclass(frozen=True)
class _Resize:
    """What a node asks for: the axes, their factors where they are given or known, and the rules.

    `plans` says what happens to the axes if they keep their proportions: all have one factor, which their sizes do not tell.
    """

    axes: tuple[int, ...]
    scales: Array | None
    how: Interpolation
    plans: dict[int, AxisPlan] | None = None
    data_scales: Value | None = None  # the factors, where only the run tells them


def _asked(ctx: LowerContext, node: Node, source: Sequence[Dim]) -> _Resize | None:
    """What a node asks for; None if it depends on data in a way that no kernel knows, or on a crop."""
    attrs, rank = attribute_values(node), len(source)
    if node.op_type == "Upsample" or node.version < 11:
        data_scales: Value | None = None
        if node.version >= 9:
            scales = ctx.known.array(node.inputs[1])
            data_scales = node.inputs[1] if scales is None else None
        elif node.version >= 7:
            scales = np.asarray(attrs["scales"], np.float32)
        else:
            return None
        mode = _OLD_MODES.get(attrs.get("mode") or "nearest")
        if mode is None:
            return None
        factors = None if scales is None else scales.reshape(-1)
        return _Resize(tuple(range(rank)), factors, Interpolation(mode, "asymmetric", "truncate"), data_scales=data_scales)
    coordinates = attrs.get("coordinate_transformation_mode", "half_pixel")
    if coordinates == "tf_crop_and_resize" or attrs.get("mode", "nearest") not in _OLD_MODES:
        return None
    scales, data_scales = None, None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        scales = ctx.known.array(node.inputs[2])
        data_scales = node.inputs[2] if scales is None else None
        scales = scales.reshape(-1) if scales is not None and scales.size else None
    how = Interpolation(
        attrs.get("mode", "nearest"),
        coordinates,
        attrs.get("nearest_mode") or "round_prefer_floor",
        attrs.get("cubic_coeff_a", -0.75),
        bool(attrs.get("exclude_outside")),
        bool(attrs.get("antialias")),
    )
    axes = tuple(normalize_axis(axis, rank) for axis in attrs.get("axes") or range(rank))
    if data_scales is not None:
        return _Resize(axes, None, how, data_scales=data_scales) if ctx.shape(data_scales) == (len(axes),) else None
    policy = attrs.get("keep_aspect_ratio_policy") or "stretch"
    if scales is not None or policy == "stretch":
        return _Resize(axes, scales, how)
    wanted = ctx.known.array(node.inputs[3]) if len(node.inputs) > 3 else None
    known = [size for size in source if isinstance(size, int) and size]
    if wanted is None or len(known) != rank:
        return None
    plans = resize_plans(known, axes, None, None, wanted, policy=policy)
    return _Resize(axes, np.array([plan.scale for plan in plans], np.float32), how, {plan.axis: plan for plan in plans})


@view("Resize", "Upsample", data_dependent_sizes=True)
def resize(ctx: LowerContext, node: Node) -> bool:
    value, output = first_input(node), node.outputs[0]
    source, shape = ctx.shape(value), ctx.shape(output)
    asked = _asked(ctx, node, source)
    if asked is None:
        return False
    factors = _factors(asked, source, shape)
    if factors is not None:
        _repeat(ctx, node, factors)
        return True
    if 0 in source or 0 in shape:
        return False
    plans = _plans(asked, source, shape)
    changed = [axis for axis in asked.axes if not _stays(asked, plans[axis], source[axis], shape[axis])]
    unknown = [axis for axis in changed if not _is_known(asked, source[axis], shape[axis])]
    in_runs = [axis for axis in changed if axis in unknown or not is_made_ahead(plans[axis], asked.how)]
    if in_runs and not fits_open_sizes(asked.how):
        return False
    blends_integers = asked.how.mode != "nearest" and not ctx.dtype(value).is_float
    if blends_integers and len(changed) > 1 and any(_ratio(asked, axis, source, shape) is None for axis in changed):
        return False  # results are cut off, so the axes must be taken in the order of their factors to the bit
    _bind_lengths(ctx, node, asked)
    for axis in unknown:
        ctx.check_equal(dim_max(source[axis], 1), source[axis])
    _by_tables(ctx, node, asked, plans, changed)
    return True


def _bind_lengths(ctx: LowerContext, node: Node, asked: _Resize) -> None:
    """Make sizes of the lengths that only data tells, or that no expression of sizes has: products with fractions."""
    source, shape = ctx.shape(first_input(node)), ctx.shape(node.outputs[0])
    if asked.scales is None and asked.data_scales is None:
        sizes = node.inputs[3]
        if sizes is not None and ctx.elements(sizes) is None:
            ctx.bind_sizes(ctx.view(sizes), [shape[axis] for axis in asked.axes], node)
        return
    if asked.data_scales is not None:
        scales, axes = ctx.contiguous(asked.data_scales), asked.axes
    else:
        assert asked.scales is not None
        axes = tuple(axis for axis in asked.axes if shape[axis] != source[axis] and _is_symbol(shape[axis]))
        scales = ctx.literal(np.array([_scale_of(asked, axis) for axis in axes], np.float32))
    if not axes:
        return
    before = ctx.sizes([source[axis] for axis in axes], node.op_type)
    length, scale = load(0, "i64").cast("f32"), load(1, "f32")
    scaled = clamp(unary("floor", length * scale), 0.0, 2.0**62).cast("i64")
    # -1, which is no size, makes the definition say what is wrong with a scale.
    found = select((scale > 0.0) & (scale < float("inf")), scaled, -1)
    counted = ctx.scratch(dtypes.INT64, (len(axes),), "lengths")
    indexed_loop(ctx, (len(axes),), [before, scales], counted, found, node.op_type)
    ctx.bind_sizes(counted, [shape[axis] for axis in axes], node)


def _is_known(asked: _Resize, size: Dim, out: Dim) -> bool:
    """Whether all is known of what happens to an axis."""
    return asked.data_scales is None and isinstance(size, int) and isinstance(out, int)


def _is_symbol(size: Dim) -> bool:
    return isinstance(size, DimExpr) and size.is_symbol


def _stays(asked: _Resize, plan: AxisPlan, size: Dim, out: Dim) -> bool:
    """Whether every point of an axis is the element at the same position."""
    if asked.data_scales is not None or size != out or _scale_of(asked, plan.axis) not in (None, 1.0):
        return False
    if isinstance(size, int):
        if size > MOST_MADE_AHEAD:
            return False  # it would have to be looked at point by point
        return np.array_equal(source_coordinates(plan, asked.how.coordinates), np.arange(size))
    return asked.how.coordinates != _SHIFTED


def _ratio(asked: _Resize, axis: int, source: Sequence[Dim], shape: Sequence[Dim]) -> float | None:
    """How much longer an axis becomes, if that is known exactly."""
    size, out, scale = source[axis], shape[axis], _scale_of(asked, axis)
    if isinstance(size, int) and isinstance(out, int):
        return out / size
    return scale if scale is not None and scale == int(scale) else None


def _scale_of(asked: _Resize, axis: int) -> float | None:
    return None if asked.scales is None else float(asked.scales[asked.axes.index(axis)])


def _factor(ctx: LowerContext, asked: _Resize, axis: int) -> float | View | None:
    """The factor of an axis, or where it stands; None if the sizes tell it."""
    if asked.data_scales is None:
        return _scale_of(asked, axis)
    scales = ctx.contiguous(asked.data_scales)
    return View(scales.buffer, (), (), scales.offset + asked.axes.index(axis))


def _factors(asked: _Resize, source: Sequence[Dim], shape: Sequence[Dim]) -> list[int] | None:
    """How often every element is repeated along each axis, if that is all that happens."""
    if asked.how.mode != "nearest" or asked.data_scales is not None:
        return None
    factors = [1] * len(source)
    for axis in asked.axes:
        size, out, scale = source[axis], shape[axis], _scale_of(asked, axis)
        if size == out and scale in (None, 1.0) and asked.how.coordinates != _SHIFTED:
            continue
        if isinstance(size, int) and isinstance(out, int) and size:
            factor = out // size
        elif scale is not None:
            factor = int(scale)
        else:
            return None
        if factor < 1 or out != size * factor or (scale is not None and scale != factor):
            return None
        if isinstance(out, int) and out > MOST_MADE_AHEAD:
            return None  # it would have to be looked at point by point
        if not all(_repeats(asked.how, tried, factor) for tried in ([size] if isinstance(size, int) else range(1, _TRIED))):
            return None
        factors[axis] = factor
    return factors


def _repeats(how: Interpolation, size: int, factor: int) -> bool:
    plan = AxisPlan(0, size, size * factor, np.float32(factor), np.float32(0), np.float32(1))
    index = nearest_index(source_coordinates(plan, how.coordinates), how.nearest, plan.scale)
    return np.array_equal(np.clip(index, 0, size - 1), np.arange(size * factor) // factor)


def _repeat(ctx: LowerContext, node: Node, factors: Sequence[int]) -> None:
    """Write the input with an axis of repeats after each axis."""
    source = ctx.view(first_input(node))
    if all(factor == 1 for factor in factors):
        ctx.set_view(node.outputs[0], source)
        return
    target = ctx.output(node.outputs[0])
    repeated = [axis for axis, factor in enumerate(factors) if factor > 1]
    wide = with_axes(source, [axis + 1 + number for number, axis in enumerate(repeated)])
    shape: list[Dim] = []
    for axis, size in enumerate(source.shape):
        shape += [size, factors[axis]] if factors[axis] > 1 else [size]
    into = reshaped(target, shape)
    assert into is not None  # an axis can always be cut
    ctx.copy(expanded(wide, shape), into, node.op_type)


def _plans(asked: _Resize, source: Sequence[Dim], shape: Sequence[Dim]) -> dict[int, AxisPlan]:
    """What happens to the axes of known sizes."""
    if asked.plans is not None:
        return asked.plans
    known = [size if isinstance(size, int) else 1 for size in source]
    outs = [size if isinstance(size, int) else 1 for size in shape]
    wanted = None if asked.scales is not None else np.array([outs[axis] for axis in asked.axes], np.int64)
    return {plan.axis: plan for plan in resize_plans(known, asked.axes, None, asked.scales, wanted, policy="stretch")}


def _by_tables(ctx: LowerContext, node: Node, asked: _Resize, plans: Mapping[int, AxisPlan], axes: Sequence[int]) -> None:
    """Axis by axis, the shrinking ones first, which moves the least data.

    Of axes with the same factor the last one, whose elements are moved one by one, comes when there are fewest of them. Integers
    are cut off at the end: their axes come in the order of the definition.
    """
    value, output = first_input(node), node.outputs[0]
    source, shape, how = ctx.shape(value), ctx.shape(output), asked.how
    kind = ctx.dtype(output)
    wide = kind if how.mode == "nearest" else _blended_in(kind)
    tables = []
    exact = how.mode != "nearest" and not kind.is_float

    def order(axis: int) -> tuple[float, int]:
        known = _ratio(asked, axis, source, shape) or _scale_of(asked, axis)
        if known is None and axis < len(source) - 2:
            return 0.0, axis  # images and channels, which hardly ever change their number: while there are fewer pixels, mostly
        ratio = known or 1.0
        return ratio, axis if ratio < 1 and not exact else -axis

    for axis in sorted(axes, key=order):
        size, out = source[axis], shape[axis]
        if _is_known(asked, size, out):
            tables.append(known_table(ctx, plans[axis], how, wide, node.op_type))
        else:
            tables.append(open_table(ctx, axis, size, out, _factor(ctx, asked, axis), how, wide, node.op_type))
    current = ctx.view(value)
    if not tables:
        ctx.set_view(output, current)
        return
    final = ctx.output(output)
    lines: Table | None = None  # that the rows of the next step are taken from
    for number, table in enumerate(tables):
        following = tables[number + 1] if number + 1 < len(tables) else None
        if lines is None and following is not None and table.weights is None and is_row(current, following.axis, final):
            ratio = _ratio(asked, table.axis, source, shape) or _scale_of(asked, table.axis)
            if ratio is not None and ratio <= 1:  # others are read once and repeated as whole rows
                lines = table
                continue
        if following is None:
            target = final
        else:
            part = list(current.shape)
            for each in (table, lines):
                if each is not None:
                    part[each.axis] = each.out
            target = ctx.scratch(wide, part, node.op_type)
        if table.weights is not None:
            _blend(ctx, node, current, target, table.axis, table.indices, table.weights)
        elif is_row(current, table.axis, target):
            take_points(ctx, current, target, table, lines, node.op_type, node.label)
            lines = None
        else:
            fault = ctx.fault(node, "element {found} of {limit}")
            take(ctx, current, table.axis, table.indices, target, fault, node.op_type, trusted=True)
        current = target


def _blended_in(kind: DType) -> DType:
    """The type that elements are added in."""
    if kind.is_float:
        return dtypes.from_name(compute_type(kind.name))
    return dtypes.FLOAT64 if kind.bits > 16 else dtypes.FLOAT32


def _blend(ctx: LowerContext, node: Node, source: View, target: View, axis: int, indices: View, factors: View) -> None:
    taps = factors.shape[1]
    assert isinstance(taps, int)
    rank = len(source.shape)
    others = [other for other in range(rank) if other != axis]
    sides = (source, target)
    sizes, strides = merge_axes(
        [target.shape[other] for other in others], [[one.strides[other] for other in others] for one in sides]
    )
    row = next((other for other, (read, write) in enumerate(zip(*strides)) if read == 1 == write), None)
    inner: Dim = 1
    if row is not None:
        inner = sizes.pop(row)
        for own in strides:
            own.pop(row)
    types = [one.buffer.dtype.name for one in sides]
    kernel = ResampleKernel(
        source=types[0], target=types[1], compute=factors.buffer.dtype.name, taps=taps, outer=len(sizes), rows=row is not None
    )
    points = target.shape[axis]
    read, written = ((one.address, (*own, one.strides[axis])) for one, own in zip(sides, strides))
    arguments = kernel.arguments.entries(
        outer=sizes,
        points=points,
        inner=inner,
        source=read,
        target=written,
        indices=Address(indices.buffer),
        weights=Address(factors.buffer),
    )
    elements = product([*sizes, points, inner]) * taps
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            resample.units(kernel, sizes, points),
            cost.resample(elements, rows=row is not None),
            (source.buffer, indices.buffer, factors.buffer),
            (target.buffer,),
            node.op_type,
            (node.label,),
        )
    )
