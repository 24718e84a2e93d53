"""Which elements each point of a resized axis is made of, and how much of each.

Tables are made ahead for axes of known size. Those of open sizes, and of so many points that a table would cost more than the
rest of the program does, are made by kernels in every run.

The expressions are those of `ops/sampling/resize.py`, operation by operation: coordinates are f32, weights f64.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim
from sardonyx.kernel.expr import Expr, clamp, const, index, load, maximum, minimum, select, unary
from sardonyx.lower.indexing.index_loops import indexed_loop
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.views import transposed
from sardonyx.ops.sampling.resize import (
    ROUNDING,
    TIE,
    AxisPlan,
    Interpolation,
    axis_taps,
    nearest_index,
    source_coordinates,
    tap_count,
)
from sardonyx.program.steps import View
from sardonyx.records import dataclass

MOST_MADE_AHEAD: Final = 1 << 18  # entries of a table: about 30 ms and 20 MB while it is made
_TAPS: Final = {"linear": 2, "cubic": 4}  # without antialias
_OF_OPEN_SIZES: Final = frozenset(
    ("asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "half_pixel_symmetric", "align_corners")
)


@dataclass(frozen=True)
class Table:
    """One axis to resize: indices [out] of the nearest elements, or indices and weights, both [out, taps]."""

    axis: int
    out: Dim
    indices: View
    weights: View | None = None


def known_table(ctx: LowerContext, plan: AxisPlan, how: Interpolation, kind: DType, label: str) -> Table:
    """The table of an axis of known size."""
    if not is_made_ahead(plan, how):
        return open_table(ctx, plan.axis, plan.size, plan.out, float(plan.scale), how, kind, label)
    x = source_coordinates(plan, how.coordinates)
    if how.mode == "nearest":
        chosen = np.clip(nearest_index(x, how.nearest, plan.scale), 0, plan.size - 1)
        return Table(plan.axis, plan.out, ctx.literal(chosen))
    indices, weights = axis_taps(plan, how, x)
    return Table(plan.axis, plan.out, ctx.literal(indices), ctx.literal(weights.astype(kind.numpy)))


def is_made_ahead(plan: AxisPlan, how: Interpolation) -> bool:
    """Whether the table of an axis is small enough to be a constant."""
    return plan.out * tap_count(plan, how) <= MOST_MADE_AHEAD


def fits_open_sizes(how: Interpolation) -> bool:
    """Whether a kernel can make the tables."""
    return how.coordinates in _OF_OPEN_SIZES and not how.antialias


def open_table(
    ctx: LowerContext, axis: int, size: Dim, out: Dim, scale: float | View | None, how: Interpolation, kind: DType, label: str
) -> Table:
    """The table of an axis whose size, or the number that it is scaled by, is known only when the program runs."""
    both = ctx.sizes([size, out], label)
    views = [View(both.buffer, (), (), entry) for entry in (0, 1)]
    old, new = load(0, "i64"), load(1, "i64")
    if isinstance(scale, View):
        views.append(scale)
        factor = load(2, "f32")
    else:
        factor = const(scale, "f32") if scale is not None else new.cast("f32") / old.cast("f32")
    if how.mode == "nearest":
        x = _coordinate(index(0).cast("f32"), old, new, factor, how.coordinates)
        indices = ctx.scratch(dtypes.INT64, (out,), "indices")
        indexed_loop(ctx, (out,), views, indices, clamp(_nearest(x, how.nearest, factor), 0, old - 1), label)
        return Table(axis, out, indices)
    taps = _TAPS[how.mode]
    x = _coordinate(index(1).cast("f32"), old, new, factor, how.coordinates)
    below = unary("floor", x).cast("i64") + (1 - taps // 2)
    tap = below + index(0)
    weight = _weight(tap, x, old, how)
    if how.exclude_outside:
        total = _weight(below, x, old, how)
        for number in range(1, taps):
            total = total + _weight(below + number, x, old, how)
        weight = weight / total
    indices, weights = ctx.scratch(dtypes.INT64, (out, taps), "indices"), ctx.scratch(kind, (out, taps), "weights")
    for target, value in ((indices, clamp(tap, 0, old - 1)), (weights, weight.cast(kind.name))):
        indexed_loop(ctx, (taps, out), views, transposed(target, (1, 0)), value, label)
    return Table(axis, out, indices, weights)


def _coordinate(x: Expr, old: Expr, new: Expr, scale: Expr, mode: str) -> Expr:
    """Where in the input the point x lies."""
    size, half_pixel = old.cast("f32"), (x + 0.5) / scale - 0.5
    if mode == "asymmetric":
        return x / scale
    if mode == "half_pixel":
        return half_pixel
    if mode == "pytorch_half_pixel":
        return select(new > 1, half_pixel, 0.0)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    width = scale * size
    if mode == "half_pixel_symmetric":
        offset = size / 2.0 * (1.0 - new.cast("f32") / width)
        return (offset.cast("f64") + (x + 0.5).cast("f64") / scale.cast("f64") - 0.5).cast("f32")
    out = new.cast("f32")
    length = select(unary("abs", width - out) <= width * float(ROUNDING), out, width)
    return select(new.eq(1), const(0.0, "f32"), x * (size - 1.0) / (length - 1.0))


def _nearest(x: Expr, mode: str, scale: Expr) -> Expr:
    """The element nearest to a coordinate; not yet limited to the axis."""
    if mode == "truncate":
        return select(scale < 1, unary("ceil", x), unary("trunc", x)).cast("i64")
    if mode in ("floor", "ceil"):
        return unary(mode, x).cast("i64")
    low = unary("floor", x)
    above, tie = x - low - 0.5, float(TIE)
    upwards = above >= tie if mode == "round_prefer_floor" else above > -tie
    return low.cast("i64") + select(upwards, const(1, "i64"), const(0, "i64"))


def _weight(tap: Expr, x: Expr, old: Expr, how: Interpolation) -> Expr:
    """How much of an element a point has; 0 outside of the input, if that is asked for."""
    t = unary("abs", tap.cast("f64") - x.cast("f64"))
    if how.mode == "linear":
        weight = minimum(maximum(1.0 - t, 0.0), 1.0)
    else:
        a = how.cubic_a
        inner = (t * (a + 2) - (a + 3)) * t * t + 1.0
        outer = ((t * a - 5 * a) * t + 8 * a) * t - 4 * a
        weight = select(t <= 1.0, inner, select(t < 2.0, outer, 0.0))
    return select((tap >= 0) & (tap < old), weight, 0.0) if how.exclude_outside else weight
