"""Pools: the maximum, mean or p-norm of every window, of the whole image, or of regions; and MaxUnpool.

Maxima, sums and counts are taken one axis after the other, so that a window costs the sum of its sides, not their product.
`pool_windows`, `max_of_windows` and `mean_of_windows` serve the quantised pools as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, format_shape
from sardonyx.ops.conv.windows import Windows, expect_windows, output_spatial, pad_pairs, per_axis, windows
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen


def pool_windows(
    x: Array,
    kernel_shape: Sequence[int],
    *,
    auto_pad: str | None = "NOTSET",
    ceil_mode: int | None = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Windows:
    """The windows of a pool over an input [N, C, ...]."""
    if x.ndim < 3:
        raise ValueError(f"X of shape {x.shape} has no spatial axes: expected a rank of at least 3")
    return windows(
        x.shape[2:],
        kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        cut=True,
    )


def _fold(padded: Array, window: Windows, combine: Callable[..., Any]) -> Array:
    """The elements of every window combined, one axis after the other."""
    result = padded
    rank = len(window.out)
    for axis in range(rank):
        before = (slice(None),) * (padded.ndim - rank + axis)
        total = result[(*before, window.slice_at(axis, 0))]
        for tap in range(1, window.kernel[axis]):
            part = result[(*before, window.slice_at(axis, tap))]
            total = combine(total, part) if tap == 1 else combine(total, part, out=total)
        result = total
    return result


def max_of_windows(x: Array, window: Windows) -> Array:
    """The largest element of every window; padding never counts. NaN wins."""
    wide = widen(x)
    lowest = np.iinfo(wide.dtype).min if wide.dtype.kind in "iu" else -np.inf
    with np.errstate(invalid="ignore"):
        inner = window.without_empty_taps()
        return narrow(np.ascontiguousarray(_fold(inner.pad(wide, lowest), inner, np.maximum)), x.dtype)


def mean_of_windows(x: Array, window: Windows, count_include_pad: int | None = 0) -> Array:
    """The mean of every window, in the type of the (floating point) input; what lies past the padding never counts."""
    wide = widen(x)
    with np.errstate(all="ignore"):
        inner = window.without_empty_taps()
        total = _fold(inner.pad(wide), inner, np.add)
        return narrow(total / window_sizes(window, count_include_pad).astype(wide.dtype), x.dtype)


def window_sizes(window: Windows, count_include_pad: int | None = 0) -> Array:
    """How many elements each window has: of the input, or with `count_include_pad` of input and padding."""
    sizes = np.ones((1,) * len(window.out), np.int64)
    for axis, count in enumerate(window.out):
        low, high = window.begin[axis], window.begin[axis] + window.spatial[axis]
        if count_include_pad:
            low, high = 0, high + window.end[axis]
        starts, width, dilation = np.arange(count) * window.strides[axis], window.kernel[axis], window.dilations[axis]
        first, last = (np.clip(-((starts - bound) // dilation), 0, width) for bound in (low, high))  # rounded up
        inside = last - first
        sizes = sizes * inside.reshape([-1 if other == axis else 1 for other in range(len(window.out))])
    return sizes


def _max_with_indices(x: Array, window: Windows, column_major: bool) -> tuple[Array, Array]:
    """The maxima, and where each one stands in the flattened input."""
    window = window.without_empty_taps()
    spatial, wide = window.spatial, widen(x)
    lowest = np.iinfo(wide.dtype).min if wide.dtype.kind in "iu" else -np.inf
    numbers = np.arange(prod(spatial), dtype=np.int64)
    positions = window.pad(numbers.reshape(spatial[::-1]).T if column_major else numbers.reshape(spatial), -1)
    padded = window.pad(wide, lowest)
    best = np.full((*x.shape[:2], *window.out), lowest, wide.dtype)
    where = np.full(best.shape, -1, np.int64)
    for _, at in window.taps():
        value, position = padded[at], positions[at]
        better = (value > best) | ((where < 0) & (position >= 0))
        if wide.dtype.kind == "f":
            better |= np.isnan(value) & ~np.isnan(best)
        np.copyto(best, value, where=better)
        np.copyto(where, position, where=better)
    first = np.arange(prod(x.shape[:2]), dtype=np.int64).reshape(*x.shape[:2], *(1,) * len(spatial))
    return narrow(best, x.dtype), where + first * prod(spatial)


def _max_pool(
    x: Array,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    storage_order: int | None,
    strides: tuple[int, ...] | None,
    ctx: EvalContext,
) -> Array | tuple[Array, Array]:
    window = pool_windows(
        x, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    if len(ctx.outputs) > 1 and ctx.outputs[1]:
        return _max_with_indices(x, window, bool(storage_order))
    return max_of_windows(x, window)


def pooled_shape(ctx: InferContext) -> Shape | None:
    """The shape of a pool's result."""
    x = ctx.shape(0)
    if x is None:
        return None
    if len(x) < 3:
        raise ValueError(f"X of shape {format_shape(x)} has no spatial axes: expected a rank of at least 3")
    if ctx.attr("kernel_shape") is None:
        raise ValueError("kernel_shape is missing")
    spatial = output_spatial(
        x[2:],
        ctx.attr("kernel_shape"),
        strides=ctx.attr("strides"),
        dilations=ctx.attr("dilations"),
        pads=ctx.attr("pads"),
        auto_pad=ctx.attr("auto_pad"),
        ceil_mode=ctx.attr("ceil_mode"),
        cut=True,
    )
    expect_windows(ctx, x[2:], ctx.attr("kernel_shape"))
    return (x[0], x[1], *spatial)


def _infer_max_pool(ctx: InferContext) -> InferResult:
    shape = pooled_shape(ctx)
    return [shape, shape] if ctx.outputs > 1 else shape


MAX_POOL = op("MaxPool", eval=_max_pool, infer=_infer_max_pool, traits=Trait.SELECTS)


def _average_pool(
    x: Array,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    count_include_pad: int | None,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    window = pool_windows(
        x, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    return mean_of_windows(x, window, count_include_pad)


AVERAGE_POOL = op("AveragePool", eval=_average_pool, infer=pooled_shape)


def _power_root(x: Array, p: float, total: Callable[[Array], Array]) -> Array:
    """total(|x| ** p) ** (1 / p)"""
    if not p > 0:
        raise ValueError(f"p is {p}, expected a positive number")
    wide = widen(x)
    with np.errstate(all="ignore"):
        if p == 1:
            return narrow(total(np.abs(wide)), x.dtype)
        if p == 2:
            return narrow(np.sqrt(total(wide * wide)), x.dtype)
        return narrow(total(np.abs(wide) ** wide.dtype.type(p)) ** wide.dtype.type(1 / p), x.dtype)


def _lp_pool(
    x: Array,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    p: float,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    window = pool_windows(
        x, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, dilations=dilations, pads=pads, strides=strides
    )
    return _power_root(x, p, lambda powers: _fold(window.pad(powers), window, np.add))


LP_POOL = op("LpPool", eval=_lp_pool, infer=pooled_shape)


def _spatial_axes(x: Array) -> tuple[int, ...]:
    if x.ndim < 2:
        raise ValueError(f"X of shape {x.shape} needs a batch and a channel axis")
    return tuple(range(2, x.ndim))


def _global_average_pool(x: Array) -> Array:
    axes, wide = _spatial_axes(x), widen(x)
    with np.errstate(all="ignore"):
        return narrow(wide.sum(axis=axes, keepdims=True) / wide.dtype.type(prod(x.shape[2:])), x.dtype)


def _global_max_pool(x: Array) -> Array:
    return narrow(widen(x).max(axis=_spatial_axes(x), keepdims=True, initial=-np.inf), x.dtype)


def _global_lp_pool(x: Array, *, p: float) -> Array:
    axes = _spatial_axes(x)
    return _power_root(x, p, lambda powers: powers.sum(axis=axes, keepdims=True))


def _infer_global(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    return None if x is None else x[:2] + (1,) * (len(x) - 2)


GLOBAL_AVERAGE_POOL = op("GlobalAveragePool", eval=_global_average_pool, infer=_infer_global)
GLOBAL_MAX_POOL = op("GlobalMaxPool", eval=_global_max_pool, infer=_infer_global)
GLOBAL_LP_POOL = op("GlobalLpPool", eval=_global_lp_pool, infer=_infer_global)


def _unpooled_spatial(
    spatial: Sequence[Dim], kernel: Sequence[int], pads: Sequence[int] | None, strides: Sequence[int] | None
) -> tuple[Dim, ...]:
    rank = len(spatial)
    begin, end = pad_pairs(pads, rank)
    steps, widths = per_axis(strides, rank, "strides"), per_axis(kernel, rank, "kernel_shape")
    return tuple((size - 1) * steps[axis] - begin[axis] - end[axis] + widths[axis] for axis, size in enumerate(spatial))


def _max_unpool(
    x: Array,
    indices: Array,
    output_shape: Array | None = None,
    *,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    if x.ndim < 3 or indices.shape != x.shape:
        raise ValueError(f"X and I need one shape with spatial axes, they have {x.shape} and {indices.shape}")
    inner = tuple(int(size) for size in _unpooled_spatial(x.shape[2:], kernel_shape, pads, strides) if isinstance(size, int))
    pooled = (*x.shape[:2], *inner)
    shape = pooled if output_shape is None else tuple(int(size) for size in output_shape)
    if len(shape) != x.ndim or any(given < least for given, least in zip(shape, pooled, strict=True)):
        raise ValueError(f"output_shape {list(shape)} is smaller than the unpooled shape {list(pooled)}")
    flat = np.zeros(prod(pooled), x.dtype)
    positions = indices.reshape(-1)
    if positions.size and (positions.min() < 0 or positions.max() >= flat.size):
        raise IndexError(
            f"I has values from {positions.min()} to {positions.max()}, but the unpooled tensor has {flat.size} elements"
        )
    flat[positions] = x.reshape(-1)
    if shape == pooled:
        return flat.reshape(pooled)
    # The indices count in the tensor that was pooled; a larger result holds it at its origin.
    result = np.zeros(shape, x.dtype)
    result[tuple(slice(0, size) for size in pooled)] = flat.reshape(pooled)
    return result


def _infer_max_unpool(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if ctx.has(2):
        return ctx.dims(2) or ctx.unknown(None if x is None else len(x))
    if x is None:
        return None
    return x[:2] + _unpooled_spatial(x[2:], ctx.attr("kernel_shape"), ctx.attr("pads"), ctx.attr("strides"))


MAX_UNPOOL = op("MaxUnpool", eval=_max_unpool, infer=_infer_max_unpool, since=9, traits=Trait.REFUSES)


def _round_half_away(values: Array) -> Array:
    return np.asarray(np.trunc(values + np.copysign(0.5, values)))


def _max_roi_pool(x: Array, rois: Array, *, pooled_shape: tuple[int, ...], spatial_scale: float) -> Array:
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise ValueError(f"X of shape {x.shape} and rois of shape {rois.shape}: expected (N, C, H, W) and (R, 5)")
    images = x.shape[0]
    wide, regions = widen(x), widen(rois)
    result = np.zeros((rois.shape[0], x.shape[1], *pooled_shape), wide.dtype)
    corners = _round_half_away(regions[:, 1:] * regions.dtype.type(spatial_scale)).astype(np.int64)
    for number, (left, top, right, bottom) in enumerate(corners):
        image = int(regions[number, 0])
        if not 0 <= image < images:
            raise IndexError(f"region {number} lies in image {image}, but there are {images}")
        rows = _bins(int(top), int(bottom), pooled_shape[0], x.shape[2])
        columns = _bins(int(left), int(right), pooled_shape[1], x.shape[3])
        for row, (upper, lower) in enumerate(rows):
            if lower <= upper:
                continue
            band = wide[image, :, upper:lower].max(axis=1)
            for column, (start, stop) in enumerate(columns):
                if stop > start:
                    result[number, :, row, column] = band[:, start:stop].max(axis=1)
    return narrow(result, x.dtype)


def _bins(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """A side of a region, cut into `count` overlapping bins, clipped to the image."""
    width = np.float32(max(last - first + 1, 1)) / np.float32(count)
    return [
        (
            min(max(int(np.floor(np.float32(index) * width)) + first, 0), size),
            min(max(int(np.ceil(np.float32(index + 1) * width)) + first, 0), size),
        )
        for index in range(count)
    ]


def _infer_max_roi_pool(ctx: InferContext) -> InferResult:
    x, rois = ctx.shape(0, rank=4), ctx.shape(1, rank=2)
    return (
        ctx.fresh() if rois is None else rois[0],
        ctx.fresh() if x is None else x[1],
        *ctx.attr("pooled_shape"),
    )


MAX_ROI_POOL = op("MaxRoiPool", eval=_max_roi_pool, infer=_infer_max_roi_pool)
