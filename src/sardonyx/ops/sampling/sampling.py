"""Values between the elements of an image, at arbitrary coordinates: GridSample, AffineGrid and DeformConv."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import format_shape
from sardonyx.ops.conv.conv import check_conv
from sardonyx.ops.conv.windows import windows
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul
from sardonyx.ops.sampling.resize import cubic_kernel

_FARTHEST = 2.0**30  # coordinates are cut to this before they become integers


def _reflected(index: Array, size: int, align_corners: bool) -> Array:
    """Indices mirrored at the borders of an axis: its outermost elements, or without align_corners half an element beyond."""
    if align_corners:
        span = max(size - 1, 1)
        folded = np.abs(index) % (2 * span)
        return np.minimum(folded, 2 * span - folded) if size > 1 else np.zeros_like(index)
    folded = index % (2 * size)
    return np.asarray(np.minimum(folded, 2 * size - 1 - folded))


def _axis_taps(x: Array, mode: str) -> list[tuple[Array, Array | None]]:
    """The elements of one axis that make up the value at each coordinate, with their weights (None: all of it)."""
    finite = np.clip(np.nan_to_num(x, nan=-_FARTHEST), -_FARTHEST, _FARTHEST)
    if mode == "nearest":
        return [(np.rint(finite).astype(np.int64), None)]
    low = np.floor(finite).astype(np.int64)
    part = x - np.floor(x)
    if mode == "linear":
        return [(low, 1 - part), (low + 1, part)]
    return [(low + step, cubic_kernel(step - part, -0.75).astype(x.dtype)) for step in (-1, 0, 1, 2)]


def sample(
    image: Array, coordinates: Sequence[Array], *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Array:
    """image [C, ...] at the points whose coordinates (one array [P] for each spatial axis) are given: [C, P]."""
    spatial = image.shape[1:]
    count = coordinates[0].shape[0]
    result = np.zeros((count, image.shape[0]), image.dtype)
    if 0 in spatial:
        return result.T
    # With the channels last, what is gathered for one point lies together.
    pixels = np.ascontiguousarray(image.reshape(image.shape[0], prod(spatial)).T)
    for taps in product(*(_axis_taps(x, mode) for x in coordinates)):
        position = np.zeros(count, np.int64)
        inside: Array | None = None
        weight: Array | None = None
        for (index, share), size in zip(taps, spatial, strict=True):
            if padding == "zeros":
                within = (index >= 0) & (index < size)
                inside = within if inside is None else inside & within
                resolved = np.clip(index, 0, size - 1)
            elif padding == "border":
                resolved = np.clip(index, 0, size - 1)
            else:
                resolved = _reflected(index, size, align_corners)
            position = position * size + resolved
            if share is not None:
                weight = share if weight is None else weight * share
        value = pixels.take(position, axis=0)
        if inside is not None:
            value[~inside] = np.zeros((), image.dtype)
        if weight is None:
            return value.T
        value *= weight[:, None]
        result += value
    return result.T


def _denormalized(x: Array, size: int, align_corners: bool) -> Array:
    """-1 to 1 stretched over an axis: from the centre of its first element to that of its last, or from border to border."""
    half = x.dtype.type(0.5)
    return np.asarray((x + 1) * (half * (size - 1)) if align_corners else ((x + 1) * size - 1) * half)


_MODES = {"bilinear": "linear", "linear": "linear", "nearest": "nearest", "bicubic": "cubic", "cubic": "cubic"}


def _grid_sample(x: Array, grid: Array, *, align_corners: int, mode: str, padding_mode: str) -> Array:
    rank = x.ndim - 2
    if rank < 1 or grid.ndim != x.ndim or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise ValueError(
            f"X of shape {x.shape} needs a grid of shape ({x.shape[0]}, ..., {rank}) and rank {x.ndim}, it has {grid.shape}"
        )
    if mode not in _MODES or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"mode {mode!r} with padding_mode {padding_mode!r} is not known")
    points = widen(grid).reshape(grid.shape[0], prod(grid.shape[1:-1]), rank)
    exact = _MODES[mode] == "nearest"
    wide = x if exact else (x.astype(np.float64) if x.dtype.kind in "iub" else widen(x))
    result = np.empty((*x.shape[:2], points.shape[1]), wide.dtype)
    corners = bool(align_corners)
    with np.errstate(all="ignore"):
        for image in range(x.shape[0]):
            stop_if_asked()
            # The grid lists coordinates from the last axis to the first.
            coordinates = [_denormalized(points[image, :, rank - 1 - axis], x.shape[2 + axis], corners) for axis in range(rank)]
            result[image] = sample(wide[image], coordinates, mode=_MODES[mode], padding=padding_mode, align_corners=corners)
    return narrow(result.reshape(*x.shape[:2], *grid.shape[1:-1]), x.dtype)


def _infer_grid_sample(ctx: InferContext) -> InferResult:
    x, grid = ctx.shape(0, least=3), ctx.shape(1, least=3)
    if x is not None and grid is not None and len(x) != len(grid):
        raise ValueError(f"X is {format_shape(x)} and grid {format_shape(grid)}: expected the same rank")
    if x is None or grid is None:
        rank = ctx.rank(0) or ctx.rank(1)
        unknown = ctx.unknown(rank)
        return None if unknown is None else (x or unknown)[:2] + (unknown[2:] if grid is None else grid[1:-1])
    ctx.expect_equal(grid[0], x[0])
    ctx.expect_equal(grid[-1], len(x) - 2)
    return (*x[:2], *grid[1:-1])


GRID_SAMPLE = op("GridSample", eval=_grid_sample, infer=_infer_grid_sample, since=16)


def _affine_grid(theta: Array, size: Array, *, align_corners: int) -> Array:
    spatial = [int(length) for length in size[2:]]
    rank = len(spatial)
    if theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1):
        raise ValueError(f"theta has shape {theta.shape}, but size {size.tolist()} needs (N, {rank}, {rank + 1})")
    wide = widen(theta)
    axes = []
    for length in spatial:
        steps = np.arange(length, dtype=np.float64)
        axes.append(steps * 2 / max(length - 1, 1) - 1 if align_corners else (steps * 2 + 1) / length - 1)
    coordinates = np.meshgrid(*axes, indexing="ij")
    homogeneous = np.stack([*coordinates[::-1], np.ones(spatial)], axis=-1).reshape(-1, rank + 1).astype(wide.dtype)
    with np.errstate(all="ignore"):
        grid = matmul(homogeneous, wide.swapaxes(1, 2))
    return narrow(grid.reshape(theta.shape[0], *spatial, rank), theta.dtype)


def _infer_affine_grid(ctx: InferContext) -> InferResult:
    theta, size = ctx.shape(0, rank=3), ctx.dims(1)
    if size is not None:
        if len(size) not in (4, 5):
            raise ValueError(f"size has {len(size)} elements, expected 4 or 5: batch, channels and space")
        if theta is not None:
            ctx.expect_shape(0, theta[0], len(size) - 2, len(size) - 1)
        return (size[0] if theta is None else theta[0], *size[2:], len(size) - 2)
    if theta is not None and isinstance(theta[1], int):
        return (theta[0], *(ctx.fresh() for _ in range(theta[1])), theta[1])
    return None


AFFINE_GRID = op("AffineGrid", eval=_affine_grid, infer=_infer_affine_grid, since=20)


def _deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: tuple[int, ...] | None,
    group: int,
    kernel_shape: tuple[int, ...] | None,
    offset_group: int,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    check_conv(x.shape, w.shape, group, kernel_shape)
    window = windows(x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads)
    rank, taps, positions = len(window.out), prod(window.kernel), prod(window.out)
    batch, channels = x.shape[:2]
    if offset.shape != (batch, offset_group * taps * rank, *window.out):
        expected = (batch, offset_group * taps * rank, *window.out)
        raise ValueError(f"offset has shape {offset.shape}, expected {expected}")
    if channels % offset_group:
        raise ValueError(f"{channels} channels cannot be divided into {offset_group} offset groups")
    offsets = widen(offset).reshape(batch, offset_group, taps, rank, positions)
    shares = None if mask is None else widen(mask).reshape(batch, offset_group, 1, taps * positions)
    bases = [
        _bases(window.kernel, window.out, axis, window.strides, window.dilations) - window.begin[axis] for axis in range(rank)
    ]
    images = widen(x).reshape(batch, offset_group, channels // offset_group, *x.shape[2:])
    kernels = widen(w).reshape(group, w.shape[0] // group, prod(w.shape[1:]))
    result = np.empty((batch, group, w.shape[0] // group, positions), images.dtype)
    columns = np.empty((offset_group, channels // offset_group, taps * positions), images.dtype)
    with np.errstate(all="ignore"):
        for image in range(batch):
            for part in range(offset_group):
                stop_if_asked()
                where = [(offsets[image, part, :, axis] + bases[axis]).reshape(-1) for axis in range(rank)]
                columns[part] = sample(images[image, part], where)
            if shares is not None:
                columns *= shares[image]
            matmul(kernels, columns.reshape(group, prod(w.shape[1:]), positions), out=result[image])
        full = result.reshape(batch, w.shape[0], *window.out)
        if b is not None:
            full += widen(b).reshape(-1, *(1,) * rank)
    return narrow(full, x.dtype)


def _bases(
    kernel: tuple[int, ...], out: tuple[int, ...], axis: int, strides: tuple[int, ...], dilations: tuple[int, ...]
) -> Array:
    """The undeformed coordinate on one axis for each tap of the kernel and each output position, [taps, positions]."""
    inner = (
        np.arange(kernel[axis], dtype=np.float32).reshape([-1 if i == axis else 1 for i in range(len(kernel))]) * dilations[axis]
    )
    outer = np.arange(out[axis], dtype=np.float32).reshape([-1 if i == axis else 1 for i in range(len(out))]) * strides[axis]
    taps, positions = np.broadcast_to(inner, kernel).reshape(-1, 1), np.broadcast_to(outer, out).reshape(1, -1)
    return taps + positions


def _infer_deform_conv(ctx: InferContext) -> InferResult:
    x, w, offset = ctx.shape(0, least=3), ctx.shape(1, least=3), ctx.shape(2, least=3)
    if x is None and offset is None:
        return None
    batch: Any = x[0] if x is not None else offset[0]  # type: ignore[index]
    kernels = ctx.fresh() if w is None else w[0]
    if offset is not None:
        return (batch, kernels, *offset[2:])
    return (batch, kernels, *(ctx.fresh() for _ in (x or ())[2:]))


DEFORM_CONV = op("DeformConv", eval=_deform_conv, infer=_infer_deform_conv, since=19, traits=Trait.REFUSES)
