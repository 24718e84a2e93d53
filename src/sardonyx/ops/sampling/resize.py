"""Resize and Upsample.

Interpolation is separable: along each axis an output element is a weighted sum of a few input elements (its taps). The tables of
taps are made once per axis, then the axes are resized one after the other. Coordinates are float32, as in the runtimes these
models were made for: whether 2.9999998 is 3 decides which pixel is nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.records import dataclass

BLOCK_BYTES: Final = 1 << 20  # of results blended at once
_ZERO: Final = np.float32(0)
_ONE: Final = np.float32(1)
_HALF: Final = np.float32(0.5)
ROUNDING: Final = np.float32(1e-6)  # share of a length by which its product of size and scale may miss it
# A coordinate that is nearer than this to the middle of two elements counts as the middle, as in ONNX Runtime: coordinates carry
# rounding errors of their own.
TIE: Final = np.float32(1e-6)


@dataclass(frozen=True, slots=True)
class Interpolation:
    """How values between elements are found; the fields are Resize's attributes."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"  # "truncate" is the rule before nearest_mode existed
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """One axis: its old and new length, the factor between them, and the part of it that is taken (tf_crop_and_resize)."""

    axis: int
    size: int
    out: int
    scale: np.float32
    start: np.float32
    end: np.float32


def source_coordinates(plan: AxisPlan, mode: str) -> Array:
    """Where in the input each output element of an axis lies."""
    x = np.arange(plan.out, dtype=np.float32)
    size, scale = np.float32(plan.size), plan.scale
    width = scale * size  # may be fractional
    if mode == "asymmetric":
        return x / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and plan.out > 1):
        return (x + _HALF) / scale - _HALF
    if mode == "pytorch_half_pixel":
        return np.zeros(plan.out, np.float32)
    if mode == "tf_half_pixel_for_nn":
        return (x + _HALF) / scale
    if mode == "half_pixel_symmetric":
        offset = size / 2 * (_ONE - np.float32(plan.out) / width)
        # The sum alone is float64 in ONNX Runtime: the point in the middle of an odd axis may fall short of a whole number.
        return (offset + (x + 0.5).astype(np.float64) / scale - 0.5).astype(np.float32)
    if mode == "align_corners":
        length = np.float32(plan.out) if abs(width - plan.out) <= ROUNDING * width else width  # rounding made it no whole number
        return np.zeros(plan.out, np.float32) if plan.out == 1 else x * (size - _ONE) / (length - _ONE)
    if mode == "tf_crop_and_resize":
        if plan.out == 1:
            return np.full(1, _HALF * (plan.start + plan.end) * (size - _ONE), np.float32)
        return plan.start * (size - _ONE) + x * (plan.end - plan.start) * (size - _ONE) / (np.float32(plan.out) - _ONE)
    raise ValueError(f"coordinate_transformation_mode is {mode!r}, which is not known")


def nearest_index(x: Array, mode: str, scale: np.float32) -> Array:
    """The element nearest to each coordinate; not yet limited to the axis."""
    if mode in ("round_prefer_floor", "round_prefer_ceil"):
        low = np.floor(x)
        above = x - low - _HALF  # both differences are exact
        upwards = above >= TIE if mode == "round_prefer_floor" else above > -TIE
        return (low + upwards).astype(np.int64)
    if mode == "floor":
        return np.floor(x).astype(np.int64)
    if mode == "ceil":
        return np.ceil(x).astype(np.int64)
    if mode == "truncate":
        return (np.ceil(x) if scale < 1 else np.trunc(x)).astype(np.int64)
    raise ValueError(f"nearest_mode is {mode!r}, expected round_prefer_floor, round_prefer_ceil, floor or ceil")


def cubic_kernel(distance: Array, a: float) -> Array:
    """The cubic convolution kernel with parameter a."""
    t = np.abs(distance)
    inner = ((a + 2) * t - (a + 3)) * t * t + 1
    outer = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, inner, np.where(t < 2, outer, 0.0))


def tap_count(plan: AxisPlan, how: Interpolation) -> int:
    """How many input elements an output element is made of."""
    return 1 if how.mode == "nearest" else 2 * _reach(plan, how)


def _reach(plan: AxisPlan, how: Interpolation) -> int:
    """How many elements on either side take part; more than usual where many become one and antialias is asked for."""
    return int(np.ceil((1 if how.mode == "linear" else 2) / _stretch(plan, how)))


def _stretch(plan: AxisPlan, how: Interpolation) -> float:
    return min(float(plan.scale), 1.0) if how.antialias else 1.0


def axis_taps(plan: AxisPlan, how: Interpolation, x: Array) -> tuple[Array, Array]:
    """For linear and cubic: the input elements each output element is made of, and their weights, both [out, count]."""
    stretch, reach = _stretch(plan, how), _reach(plan, how)
    low = np.floor(x).astype(np.int64)
    index = low[:, None] + np.arange(1 - reach, reach + 1)
    distance = (index - x[:, None].astype(np.float64)) * stretch
    weights = np.clip(1 - np.abs(distance), 0, 1) if how.mode == "linear" else cubic_kernel(distance, how.cubic_a)
    if how.exclude_outside:
        weights = np.where((index >= 0) & (index < plan.size), weights, 0.0)
    if how.exclude_outside or how.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, plan.size - 1), weights


def _blend(x: Array, axis: int, index: Array, weights: Array) -> Array:
    """The weighted sums of taps along one axis."""
    broadcast = (1,) * (x.ndim - axis - 1)
    total: Array | None = None
    for tap in range(index.shape[1]):
        factors = weights[:, tap].astype(x.dtype).reshape(-1, *broadcast)
        if not factors.any():
            continue
        part = x.take(index[:, tap], axis=axis)
        # A weight of zero takes no part: an infinity next door must not become NaN.
        part = np.multiply(part, factors, out=part) if factors.all() else np.where(factors == 0, x.dtype.type(0), part * factors)
        total = part if total is None else np.add(total, part, out=total)
    return x.take(index[:, 0], axis=axis) if total is None else total


def _blended(x: Array, moved: Sequence[tuple[int, Array, Array]], shape: tuple[int, ...]) -> Array:
    """All axes resized, a block of the leading axes at a time: what is blended stays in the cache."""
    lead = min((axis for axis, _, _ in moved), default=0)
    with np.errstate(all="ignore"):
        if not moved:
            return x
        images = x.reshape(prod(x.shape[:lead]), *x.shape[lead:])
        result = np.empty((images.shape[0], *shape[lead:]), x.dtype)
        block = max(1, BLOCK_BYTES // (prod(shape[lead:]) * x.dtype.itemsize))
        for start in range(0, images.shape[0], block):
            stop_if_asked()
            part = images[start : start + block]
            for axis, index, weights in moved:
                part = _blend(part, axis - lead + 1, index, weights)
            result[start : start + block] = part
        return result.reshape(shape)


def interpolate(x: Array, plans: Sequence[AxisPlan], how: Interpolation, extrapolation_value: float = 0.0) -> Array:
    """Resize the axes named by the plans; all others stay."""
    if how.mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode is {how.mode!r}, expected nearest, linear or cubic")
    shape = list(x.shape)
    for plan in plans:
        shape[plan.axis] = plan.out
    if 0 in shape or x.size == 0:
        if 0 not in shape:
            raise ValueError(f"an input without elements (shape {x.shape}) cannot be resized to {tuple(shape)}")
        return np.zeros(shape, x.dtype)
    np.empty(shape, x.dtype)  # what does not fit into memory shall fail now, not after minutes of work
    coordinates = {plan.axis: source_coordinates(plan, how.coordinates) for plan in plans}
    # Shrinking axes come first and then the last axes: that moves the least data.
    order = sorted(plans, key=lambda plan: (plan.out / plan.size, -plan.axis))
    if how.mode == "nearest":
        result = _nearest(x, order, how, coordinates)
    else:
        integers = x.dtype.kind in "iub"
        result = x.astype(np.float64 if x.dtype.itemsize > 2 else np.float32) if integers else widen(x)
        moved = [
            (plan.axis, *axis_taps(plan, how, coordinates[plan.axis]))
            for plan in order
            if plan.out != plan.size or not np.array_equal(coordinates[plan.axis], np.arange(plan.size))
        ]
        result = _blended(result, moved, tuple(shape))
    if how.coordinates == "tf_crop_and_resize":
        result = _extrapolated(result, plans, coordinates, extrapolation_value)
    if x.dtype.kind in "iu" and result.dtype != x.dtype:
        limits = np.iinfo(x.dtype)
        result = np.clip(result, limits.min, limits.max)
    return narrow(result, x.dtype)


def _nearest(x: Array, order: Sequence[AxisPlan], how: Interpolation, coordinates: dict[int, Array]) -> Array:
    indices = {
        plan.axis: np.clip(nearest_index(coordinates[plan.axis], how.nearest, plan.scale), 0, plan.size - 1) for plan in order
    }
    repeats = [1] * x.ndim
    for plan in order:
        factor, rest = divmod(plan.out, plan.size)
        if rest or not np.array_equal(indices[plan.axis], np.arange(plan.out) // max(factor, 1)):
            break
        repeats[plan.axis] = factor
    else:
        return _repeated(x, repeats)
    result = x
    for plan in order:
        if plan.out != plan.size or not np.array_equal(indices[plan.axis], np.arange(plan.size)):
            result = result.take(indices[plan.axis], axis=plan.axis)
    return result


def _repeated(x: Array, repeats: Sequence[int]) -> Array:
    """Every element repeated along each axis: the last axis by strided copies, the others by copying whole rows."""
    last = repeats[-1] if repeats else 1
    if last > 1:
        rows = np.empty((*x.shape, last), x.dtype)
        for number in range(last):
            rows[..., number] = x
        x = rows.reshape(*x.shape[:-1], x.shape[-1] * last)
    outer = repeats[:-1]
    if max(outer, default=1) == 1:
        return x
    pairs = [size for length, times in zip(x.shape, outer, strict=False) for size in (length, times)]
    broadcast = x.reshape(*(size for length in x.shape[:-1] for size in (length, 1)), x.shape[-1])
    shape = [length * times for length, times in zip(x.shape, outer, strict=False)]
    return np.broadcast_to(broadcast, (*pairs, x.shape[-1])).reshape(*shape, x.shape[-1])


def _extrapolated(result: Array, plans: Sequence[AxisPlan], coordinates: dict[int, Array], value: float) -> Array:
    """The value where a coordinate lies outside of the input."""
    outside = np.zeros((1,) * result.ndim, np.bool_)
    for plan in plans:
        x = coordinates[plan.axis]
        beyond = (x < 0) | (x > plan.size - 1)
        outside = outside | beyond.reshape([-1 if axis == plan.axis else 1 for axis in range(result.ndim)])
    return np.where(outside, np.asarray(value).astype(result.dtype), result) if outside.any() else result


def resize_plans(
    shape: Sequence[int],
    axes: Sequence[int] | None,
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    *,
    policy: str | None = "stretch",
) -> list[AxisPlan]:
    """What happens to each axis."""
    rank = len(shape)
    where = [normalize_axis(axis, rank) for axis in axes] if axes else list(range(rank))
    starts, ends = np.zeros(len(where), np.float32), np.ones(len(where), np.float32)
    if roi is not None and roi.size:
        if roi.size != 2 * len(where):
            raise ValueError(f"roi has {roi.size} elements, expected {2 * len(where)}: a start and an end for each axis")
        starts, ends = np.split(roi.reshape(-1).astype(np.float32), 2)
    if (scales is not None and scales.size > 0) == (sizes is not None and sizes.size > 0):
        raise ValueError("exactly one of scales and sizes must be given")
    given = scales if scales is not None and scales.size else sizes
    if given is None or given.size != len(where):
        raise ValueError(
            f"scales or sizes has {0 if given is None else given.size} elements, expected {len(where)}: one for each axis"
        )
    lengths = [shape[axis] for axis in where]
    if given is scales:
        factors = [np.float32(scale) for scale in given.reshape(-1)]
        if not all(0 < factor < np.inf for factor in factors):
            raise ValueError(f"scales must be positive numbers, found {given.reshape(-1).tolist()}")
        outs = [scaled_length(n, s, a, b) for n, s, a, b in zip(lengths, factors, starts, ends, strict=True)]
    else:
        outs = [int(size) for size in given.reshape(-1)]
        with np.errstate(all="ignore"):
            factors = [np.float32(out) / np.float32(length) for out, length in zip(outs, lengths, strict=True)]
        if policy in ("not_larger", "not_smaller"):
            best = min(factors) if policy == "not_larger" else max(factors)
            factors = [best] * len(where)
            outs = [int(np.floor(best * np.float32(length) + _HALF)) for length in lengths]
        elif policy not in (None, "stretch"):
            raise ValueError(f"keep_aspect_ratio_policy is {policy!r}, expected stretch, not_larger or not_smaller")
    return [AxisPlan(*fields) for fields in zip(where, lengths, outs, factors, starts, ends, strict=True)]


def scaled_length(length: int, scale: np.float32, start: np.float32 = _ZERO, end: np.float32 = _ONE) -> int:
    """floor(length * (end - start) * scale)"""
    return int(np.floor(np.float32(length) * (end - start) * scale))


def _resize(
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int | None,
    axes: tuple[int, ...] | None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: str | None,
    mode: str,
    nearest_mode: str,
) -> Array:
    crop = roi if coordinate_transformation_mode == "tf_crop_and_resize" else None
    plans = resize_plans(x.shape, axes, crop, scales, sizes, policy=keep_aspect_ratio_policy)
    how = Interpolation(mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside), bool(antialias))
    return interpolate(x, plans, how, extrapolation_value)


def _infer_resize(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if x is None:
        return None
    where = [normalize_axis(axis, len(x)) for axis in ctx.attr("axes") or range(len(x))]
    result = list(x)
    scales, sizes, roi = ctx.constant(2), ctx.dims(3), ctx.constant(1)
    cropped = ctx.attr("coordinate_transformation_mode") == "tf_crop_and_resize"
    policy = ctx.attr("keep_aspect_ratio_policy") or "stretch"
    lengths = [x[axis] for axis in where]
    if sizes and policy == "stretch":
        outs: list[Dim] = list(sizes)
    elif scales is not None and scales.size and not cropped:
        outs = _scaled_dims(ctx, lengths, scales)
    elif (scales is not None and scales.size and roi is not None) or sizes:
        if all(isinstance(dim, int) for dim in (*lengths, *(sizes or ()))):
            wanted = None if sizes is None else np.array(sizes, np.int64)
            known = [dim if isinstance(dim, int) else 1 for dim in x]
            plans = resize_plans(known, where, roi if cropped else None, scales, wanted, policy=policy)
            outs = [plan.out for plan in plans]
        else:
            outs = [ctx.fresh() for _ in where]
    else:
        outs = [ctx.fresh() for _ in where]
    if len(outs) != len(where):
        raise ValueError(f"scales or sizes has {len(outs)} elements, expected {len(where)}: one for each axis")
    for axis, out in zip(where, outs, strict=True):
        result[axis] = out
    return tuple(result)


def _scaled_dims(ctx: InferContext, lengths: Sequence[Dim], scales: Array) -> list[Dim]:
    """floor(length * scale); symbolic where the scale is a simple fraction."""
    result: list[Dim] = []
    for length, scale in zip(lengths, scales.reshape(-1).astype(np.float32), strict=False):
        if not 0 < scale < np.inf:
            raise ValueError(f"scales must be positive numbers, found {scales.reshape(-1).tolist()}")
        above, below = float(scale).as_integer_ratio()
        if isinstance(length, int):
            result.append(scaled_length(length, scale))
        else:
            result.append(length * above // below if below <= 64 else ctx.fresh())
    return result


RESIZE = op("Resize", eval=_resize, infer=_infer_resize, since=11)


_OLD_MODES: Final = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def _upsample(x: Array, scales: Array, mode: str) -> Array:
    how = Interpolation(_OLD_MODES.get(mode, mode), "asymmetric", "truncate")
    return interpolate(x, resize_plans(x.shape, None, None, scales, None), how)


def _upsample_9(x: Array, scales: Array, *, mode: str) -> Array:
    return _upsample(x, scales, mode)


def _upsample_7(x: Array, *, mode: str, scales: tuple[float, ...]) -> Array:
    return _upsample(x, np.array(scales, np.float32), mode)


def _upsample_1(x: Array, *, height_scale: float, mode: str, width_scale: float) -> Array:
    return _upsample(x, np.array([1, 1, height_scale, width_scale], np.float32), mode)


def _infer_scaled(ctx: InferContext, scales: Any) -> Shape | None:
    x = ctx.shape(0)
    if x is None:
        return None
    if scales is None:
        return ctx.unknown(len(x))
    factors = np.asarray(scales, np.float32)
    if factors.size != len(x):
        raise ValueError(f"scales has {factors.size} elements, expected {len(x)}: one for each axis")
    return tuple(_scaled_dims(ctx, x, factors))


def _infer_upsample_9(ctx: InferContext) -> InferResult:
    return _infer_scaled(ctx, ctx.constant(1))


def _infer_upsample_7(ctx: InferContext) -> InferResult:
    return _infer_scaled(ctx, ctx.attr("scales"))


def _infer_upsample_1(ctx: InferContext) -> InferResult:
    return _infer_scaled(ctx, (1.0, 1.0, ctx.attr("height_scale"), ctx.attr("width_scale")))


RESIZE_10 = op("Resize", eval=_upsample_9, infer=_infer_upsample_9, since=10)
UPSAMPLE_1 = op("Upsample", eval=_upsample_1, infer=_infer_upsample_1)
UPSAMPLE_7 = op("Upsample", eval=_upsample_7, infer=_infer_upsample_7, since=7)
UPSAMPLE = op("Upsample", eval=_upsample_9, infer=_infer_upsample_9, since=9)
