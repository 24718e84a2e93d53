"""Windows added back into an image: ConvTranspose and Col2Im."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from sardonyx.ir.dims import Dim, dim_max, fresh
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape
from sardonyx.ops.conv.windows import AUTO_PADS, Windows, extent, pad_pairs, per_axis, windows
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, wide_dtype, widen
from sardonyx.ops.products import matmul
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True)
class TransposedGeometry:
    """Where a transposed convolution puts its kernels."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[Dim, ...]  # how much of the full result is cut off in front
    out: tuple[Dim, ...]


def transposed_geometry(
    spatial: Sequence[Dim],
    kernel: Sequence[int],
    *,
    auto_pad: str | None = "NOTSET",
    dilations: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> TransposedGeometry:
    """The geometry of a transposed convolution; `spatial` may be symbolic."""
    rank = len(spatial)
    mode = auto_pad or "NOTSET"
    if mode not in AUTO_PADS:
        raise ValueError(f"auto_pad is {mode!r}, expected one of {', '.join(AUTO_PADS)}")
    steps, dilated = per_axis(strides, rank, "strides"), per_axis(dilations, rank, "dilations")
    extra = per_axis(output_padding, rank, "output_padding", 0)
    if len(kernel) != rank:
        raise ValueError(f"kernel_shape {list(kernel)} has {len(kernel)} elements, but there are {rank} spatial axes")
    full = [
        (size - 1) * step + extent(width, dilation) + more
        for size, step, width, dilation, more in zip(spatial, steps, kernel, dilated, extra, strict=True)
    ]
    wanted: Sequence[Dim] | None = None
    if output_shape:
        wanted = per_axis(output_shape[-rank:], rank, "output_shape")
    elif mode.startswith("SAME"):
        wanted = [size * step for size, step in zip(spatial, steps, strict=True)]
    if wanted is None:
        before, after = pad_pairs(pads if mode == "NOTSET" else None, rank)
        out = tuple(length - low - high for length, low, high in zip(full, before, after, strict=True))
        return TransposedGeometry(steps, dilated, before, out)
    begin: list[Dim] = []
    for length, target in zip(full, wanted, strict=True):
        total = dim_max(length - target, 0)
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return TransposedGeometry(steps, dilated, tuple(begin), tuple(wanted))


def _conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str | None,
    dilations: tuple[int, ...] | None,
    group: int,
    kernel_shape: tuple[int, ...] | None,
    output_padding: tuple[int, ...] | None,
    output_shape: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    _check(x.shape, w.shape, group, kernel_shape)
    kernel, batch = w.shape[2:], x.shape[0]
    where = transposed_geometry(
        x.shape[2:],
        kernel,
        auto_pad=auto_pad,
        dilations=dilations,
        output_padding=output_padding,
        output_shape=output_shape,
        pads=pads,
        strides=strides,
    )
    begin, out = _numbers(where.begin), _numbers(where.out)
    if min(out) < 0:
        raise ValueError(f"the result would have the spatial shape {list(out)}: the pads are larger than what the kernels cover")
    window = Windows(kernel, where.strides, where.dilations, begin, begin, out, x.shape[2:])
    full = tuple(max(low + size, covered) for low, size, covered in zip(begin, out, window.covered, strict=True))
    per_group = w.shape[1]
    with np.errstate(all="ignore"):
        columns = widen(x).reshape(batch, group, x.shape[1] // group, prod(x.shape[2:]))
        kernels = widen(w).reshape(group, w.shape[0] // group, per_group, *kernel).swapaxes(1, 2)
        if where.strides == kernel and full == window.covered and max(where.dilations) == 1:
            result = _tiled(columns, kernels, x.shape[2:])
        else:
            result = np.zeros((batch, group, per_group, *full), columns.dtype)
            for index, at in window.taps() if columns.size else ():
                part = matmul(kernels[(..., *index)], columns)  # type: ignore[arg-type]
                result[at] += part.reshape(batch, group, per_group, *x.shape[2:])
        cut: tuple[Any, ...] = (..., *(slice(low, low + size) for low, size in zip(begin, out, strict=True)))
        result = result.reshape(batch, group * per_group, *full)[cut]
        if b is not None:
            result = result + widen(b).reshape(-1, *(1,) * len(kernel))
        return narrow(np.ascontiguousarray(result), x.dtype)


def _tiled(columns: Array, kernels: Array, spatial: tuple[int, ...]) -> Array:
    """Kernels that touch but do not overlap: each input element makes a tile of its own.

    columns is [batch, group, inputs, positions], kernels [group, outputs, inputs, kernel].
    """
    kernel = kernels.shape[3:]
    flat = np.moveaxis(kernels, 2, -1).reshape(kernels.shape[0], -1, kernels.shape[2])
    tiles = matmul(flat, columns).reshape(*columns.shape[:2], kernels.shape[1], *kernel, *spatial)
    result = np.empty((*tiles.shape[:3], *(length * width for length, width in zip(spatial, kernel, strict=True))), columns.dtype)
    for index in np.ndindex(*kernel):
        at: tuple[Any, ...] = (..., *(slice(tap, None, width) for tap, width in zip(index, kernel, strict=True)))
        result[at] = tiles[(slice(None), slice(None), slice(None), *index)]
    return result


def _check(x: Sequence[Dim], w: Sequence[Dim], group: int, kernel_shape: Sequence[int] | None) -> None:
    if len(x) < 3 or len(w) != len(x):
        raise ValueError(f"X of rank {len(x)} and W of rank {len(w)}: both need one rank, at least 3")
    if isinstance(x[1], int) and isinstance(w[0], int) and x[1] != w[0]:
        raise ValueError(f"X has {x[1]} channels, but W is made for {w[0]}")
    if group < 1 or (isinstance(x[1], int) and x[1] % group):
        raise ValueError(f"{x[1]} channels cannot be divided into {group} groups")
    if kernel_shape and all(isinstance(dim, int) for dim in w[2:]) and tuple(kernel_shape) != tuple(w[2:]):
        raise ValueError(f"kernel_shape is {list(kernel_shape)}, but W has kernels of {list(w[2:])}")


def _numbers(dims: Sequence[Dim]) -> tuple[int, ...]:
    return tuple(int(dim) for dim in dims if isinstance(dim, int))


def _infer_conv_transpose(ctx: InferContext) -> InferResult:
    x, w = ctx.shape(0, least=3), ctx.shape(1)
    if x is None:
        return None
    group = 1 if ctx.attr("group") is None else ctx.attr("group")
    if w is not None:
        _check(x, w, group, ctx.attr("kernel_shape"))
        ctx.expect_equal(x[1], w[0])
        ctx.expect_divisible(x[1], group)
        ctx.expect_shape(2, w[1] * group)
        for size, width in zip(w[2:], ctx.attr("kernel_shape") or ()):
            ctx.expect_equal(size, width)
    kernel: Any = ctx.attr("kernel_shape") or (None if w is None else w[2:])
    outer: Shape = (x[0], fresh("M") if w is None else w[1] * group)
    if kernel is None or any(not isinstance(width, int) for width in kernel):
        return outer + tuple(ctx.attr("output_shape")[-len(x) + 2 :] if ctx.attr("output_shape") else (fresh() for _ in x[2:]))
    where = transposed_geometry(
        x[2:],
        kernel,
        auto_pad=ctx.attr("auto_pad"),
        dilations=ctx.attr("dilations"),
        output_padding=ctx.attr("output_padding"),
        output_shape=ctx.attr("output_shape"),
        pads=ctx.attr("pads"),
        strides=ctx.attr("strides"),
    )
    return outer + where.out


CONV_TRANSPOSE = op("ConvTranspose", eval=_conv_transpose, infer=_infer_conv_transpose)


def _col2im(
    x: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    image, block = [int(size) for size in image_shape], [int(size) for size in block_shape]
    window = windows(image, block, strides=strides, dilations=dilations, pads=pads)
    taps = prod(block)
    if x.ndim != 3 or x.shape[1] % max(taps, 1) or x.shape[2] != prod(window.out):
        raise ValueError(
            f"input of shape {x.shape} does not fit blocks of {block} in an image of {image}: "
            f"expected (N, C * {taps}, {prod(window.out)})"
        )
    full = tuple(low + size + high for low, size, high in zip(window.begin, image, window.end, strict=True))
    columns = x.reshape(x.shape[0], x.shape[1] // max(taps, 1), *block, *window.out)
    result = np.zeros((*columns.shape[:2], *full), wide_dtype(x.dtype))
    for index, at in window.taps():
        result[at] += columns[(slice(None), slice(None), *index)]  # type: ignore[arg-type]
    cut: tuple[Any, ...] = (..., *(slice(low, low + size) for low, size in zip(window.begin, image, strict=True)))
    return narrow(np.ascontiguousarray(result[cut]), x.dtype)


def _infer_col2im(ctx: InferContext) -> InferResult:
    x, image, block = ctx.shape(0, rank=3), ctx.dims(1), ctx.dims(2)
    count = ctx.shape(1, rank=1)
    if image is None:
        rank = None if count is None or not isinstance(count[0], int) else count[0]
        if rank is None:
            return None
        image = tuple(ctx.fresh() for _ in range(rank))
    batch = ctx.fresh() if x is None else x[0]
    if x is None or block is None:
        return (batch, ctx.fresh(), *image)
    taps: Dim = 1
    for size in block:
        taps = taps * size
    return (batch, x[1] // taps, *image)


COL2IM = op("Col2Im", eval=_col2im, infer=_infer_col2im, since=18, traits=Trait.REFUSES)
