"""Image operators of com.microsoft: GridSample, CropAndResize, MaxpoolWithMask, ConvTransposeWithDynamicPads."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.conv.conv_transpose import CONV_TRANSPOSE
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.pool.pool import pool_windows, pooled_shape
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.sampling.sampling import GRID_SAMPLE


def _infer_grid_sample(ctx: InferContext) -> InferResult:
    assert GRID_SAMPLE.infer is not None
    shape = GRID_SAMPLE.infer(ctx)
    dtype = ctx.dtype(0)
    return shape if dtype is None else TensorType(dtype, shape if isinstance(shape, tuple) else None)


OLD_GRID_SAMPLE = op(
    "GridSample", domain=MICROSOFT, eval=GRID_SAMPLE.eval, infer=_infer_grid_sample, keywords=GRID_SAMPLE.attr_names
)


def _sampled_coordinates(first: Array, last: Array, size: int, count: int) -> Array:
    """Where `count` samples of each region lie on an axis of this size; one sample lies in the middle."""
    extent = first.dtype.type(size - 1)
    if count == 1:
        return np.asarray(first.dtype.type(0.5) * (first + last) * extent)[:, None]
    step = (last - first) * extent / first.dtype.type(count - 1)
    coordinates = first[:, None] * extent + np.arange(count, dtype=first.dtype) * step[:, None]
    coordinates[:, -1] = last * extent
    return np.asarray(coordinates)


def _crop_and_resize(
    x: Array, rois: Array, batch_indices: Array, crop_size: Array, *, extrapolation_value: float, mode: str
) -> Array:
    """Regions [y1, x1, y2, x2] in relative coordinates, each resized to crop_size."""
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"mode is {mode!r}; expected 'bilinear' or 'nearest'")
    if rois.ndim != 2 or rois.shape[1] != 4 or batch_indices.shape != rois.shape[:1]:
        raise ValueError(f"rois is {rois.shape} and batch_indices {batch_indices.shape}: expected (N, 4) and (N,)")
    if batch_indices.size and (batch_indices.min() < 0 or batch_indices.max() >= x.shape[0]):
        raise ValueError(f"batch_indices must lie from 0 to {x.shape[0] - 1}")
    rows, columns = (int(size) for size in crop_size.reshape(-1))
    regions, images = widen(rois), widen(x)
    height, width = x.shape[2:]
    y = _sampled_coordinates(regions[:, 0], regions[:, 2], height, rows)
    x_coordinates = _sampled_coordinates(regions[:, 1], regions[:, 3], width, columns)
    inside = ((y >= 0) & (y <= height - 1))[:, :, None] & ((x_coordinates >= 0) & (x_coordinates <= width - 1))[:, None, :]
    y, x_coordinates = np.clip(y, 0, height - 1), np.clip(x_coordinates, 0, width - 1)
    image = batch_indices.astype(np.int64)[:, None, None]

    def taken(row: Array, column: Array) -> Array:
        return images[image, :, row.astype(np.int64)[:, :, None], column.astype(np.int64)[:, None, :]]  # [N, rows, columns, C]

    if mode == "nearest":
        values = taken(np.floor(y + y.dtype.type(0.5)), np.floor(x_coordinates + x_coordinates.dtype.type(0.5)))
    else:
        top, left = np.floor(y), np.floor(x_coordinates)
        down, right = (y - top)[:, :, None, None], (x_coordinates - left)[:, None, :, None]
        upper = taken(top, left) * (1 - right) + taken(top, np.ceil(x_coordinates)) * right
        lower = taken(np.ceil(y), left) * (1 - right) + taken(np.ceil(y), np.ceil(x_coordinates)) * right
        values = upper * (1 - down) + lower * down
    result = np.where(inside[..., None], values, images.dtype.type(extrapolation_value))
    return narrow(np.ascontiguousarray(np.moveaxis(result, -1, 1)), x.dtype)


def _infer_crop_and_resize(ctx: InferContext) -> InferResult:
    x, rois, size = ctx.shape(0, rank=4), ctx.shape(1, rank=2), ctx.dims(3)
    if x is None or rois is None:
        return None
    return (rois[0], x[1], *(size if size is not None and len(size) == 2 else (ctx.fresh(), ctx.fresh())))


CROP_AND_RESIZE = op("CropAndResize", domain=MICROSOFT, eval=_crop_and_resize, infer=_infer_crop_and_resize, traits=Trait.REFUSES)


def _maxpool_with_mask(
    x: Array,
    mask: Array,
    *,
    auto_pad: str | None,
    kernel_shape: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    """Maxima of windows; in each row of a window the elements from the first masked one on do not count."""
    if not kernel_shape:
        raise ValueError("kernel_shape is required")
    window = pool_windows(x, kernel_shape, auto_pad=auto_pad, pads=pads, strides=strides)
    spatial = x.shape[2:]
    planes = mask.reshape(-1, *spatial)
    outer = np.arange(x.shape[0] * x.shape[1]) % planes.shape[0]
    allowed = window.pad(planes[outer].reshape(x.shape) != 0, True)
    lowest = np.finfo(np.float32).min
    values = window.pad(widen(x), lowest)
    result = np.full((*x.shape[:2], *window.out), lowest, values.dtype)
    for row in product(*(range(width) for width in window.kernel[:-1])):
        counts = np.ones(result.shape, bool)
        before = tuple(window.slice_at(axis, tap) for axis, tap in enumerate(row))
        for tap in range(window.kernel[-1]):
            at: Any = (..., *before, window.slice_at(len(row), tap))
            counts &= allowed[at]
            np.maximum(result, np.where(counts, values[at], lowest), out=result)
    return narrow(result, x.dtype)


MAXPOOL_WITH_MASK = op("MaxpoolWithMask", domain=MICROSOFT, eval=_maxpool_with_mask, infer=pooled_shape)


def _conv_transpose_with_dynamic_pads(
    x: Array,
    w: Array,
    pads: Array | None = None,
    b: Array | None = None,
    *,
    auto_pad: str | None,
    dilations: tuple[int, ...] | None,
    group: int,
    kernel_shape: tuple[int, ...] | None,
    output_padding: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    fixed = None if pads is None else tuple(int(size) for size in pads.reshape(-1))
    result: Array = CONV_TRANSPOSE.eval(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, output_padding=output_padding,
        output_shape=None, pads=fixed, strides=strides,
    )  # fmt: skip
    return result


def _infer_conv_transpose(ctx: InferContext) -> InferResult:
    x, w = ctx.shape(0, least=3), ctx.shape(1, least=3)
    if x is None or w is None:
        return ctx.unknown(ctx.rank(0))
    return (x[0], w[1] * (ctx.attr("group") or 1), *(ctx.fresh() for _ in x[2:]))


CONV_TRANSPOSE_WITH_DYNAMIC_PADS = op(
    "ConvTransposeWithDynamicPads", domain=MICROSOFT, eval=_conv_transpose_with_dynamic_pads, infer=_infer_conv_transpose
)
