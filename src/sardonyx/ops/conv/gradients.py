"""Gradients of convolutions; gradient rules make these, models do not hold them.

ConvGradData(dy, w, shape)     of the input, whose shape is given: dy through the kernels, back to where windows lay
ConvGradWeights(x, dy)         of the kernels: windows of x times dy, summed over all positions and images
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.conv.windows import Windows, windows
from sardonyx.ops.definition import op
from sardonyx.ops.indexing.gradients import DOMAIN, shape_input, sizes_of
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul


def scatter_windows(columns: Array, window: Windows) -> Array:
    """[outer ..., kernel ..., out ...] added up where the windows lie: [outer ..., spatial ...]."""
    rank = len(window.spatial)
    outer = columns.shape[: columns.ndim - 2 * rank]
    full = tuple(
        max(covered, before + size) for covered, before, size in zip(window.covered, window.begin, window.spatial, strict=True)
    )
    low = tuple(max(-before, 0) for before in window.begin)  # a negative pad cuts elements off: they get nothing
    padded = np.zeros((*outer, *full), columns.dtype)
    for index, at in window.taps():
        padded[at] += columns[(slice(None),) * len(outer) + index]
    result = np.zeros((*outer, *window.spatial), columns.dtype)
    source: tuple[Any, ...] = (...,)
    target: tuple[Any, ...] = (...,)
    for before, size, skip in zip(window.begin, window.spatial, low, strict=True):
        source += (slice(before + skip, before + size),)
        target += (slice(skip, size),)
    result[target] = padded[source]
    return result


def _window(spatial: Sequence[int], kernel: Sequence[int], dy: Array, **attrs: Any) -> Windows:
    window = windows(spatial, kernel, **attrs)
    if window.out != dy.shape[2:]:
        raise ValueError(f"dY has the spatial shape {dy.shape[2:]}, expected {window.out}")
    return window


def _conv_grad_data(
    dy: Array,
    w: Array,
    shape: Array,
    *,
    auto_pad: str | None,
    dilations: tuple[int, ...] | None,
    group: int,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    sizes = sizes_of(shape)
    if dy.ndim != w.ndim or len(sizes) != w.ndim or w.ndim < 3 or dy.shape[1] != w.shape[0] or w.shape[0] % group:
        raise ValueError(f"dY of shape {dy.shape}, W of shape {w.shape} and an input of shape {sizes} do not fit")
    if sizes[:2] != (dy.shape[0], w.shape[1] * group):
        raise ValueError(f"the input has shape {sizes}, expected ({dy.shape[0]}, {w.shape[1] * group}, ...)")
    window = _window(sizes[2:], w.shape[2:], dy, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    batch, outputs, inputs = dy.shape[0], w.shape[0] // group, w.shape[1]
    kernels = widen(w).reshape(group, outputs, inputs * prod(window.kernel)).swapaxes(1, 2)
    columns = matmul(kernels, widen(dy).reshape(batch, group, outputs, prod(window.out)))
    parted = columns.reshape(batch, group * inputs, *window.kernel, *window.out)
    return narrow(scatter_windows(parted, window), dy.dtype)


def _infer_conv_grad_data(ctx: InferContext) -> InferResult:
    made = shape_input(2)(ctx)
    dy, w = ctx.shape(0), ctx.shape(1)
    if isinstance(made, tuple) and dy is not None and w is not None and len(made) == len(dy) == len(w):
        ctx.expect_equal(made[0], dy[0])
        ctx.expect_equal(made[1], w[1] * ctx.attr("group"))
        ctx.expect_equal(dy[1], w[0])
    return made  # type: ignore[no-any-return]


CONV_GRAD_DATA = op("ConvGradData", eval=_conv_grad_data, infer=_infer_conv_grad_data, domain=DOMAIN)


def _conv_grad_weights(
    x: Array,
    dy: Array,
    *,
    auto_pad: str | None,
    dilations: tuple[int, ...] | None,
    group: int,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    if x.ndim != dy.ndim or x.ndim < 3 or x.shape[0] != dy.shape[0] or x.shape[1] % group or dy.shape[1] % group:
        raise ValueError(f"X of shape {x.shape} and dY of shape {dy.shape} do not fit {group} groups")
    window = _window(x.shape[2:], kernel_shape, dy, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    outputs, inputs = dy.shape[1] // group, x.shape[1] // group
    total = np.zeros((group, outputs, inputs * prod(window.kernel)), widen(x).dtype)
    padded = window.pad(widen(x))
    for image in range(x.shape[0]):
        view = window.view(padded[image])  # [C, kernel, out]
        columns = np.ascontiguousarray(view).reshape(group, inputs * prod(window.kernel), prod(window.out))
        total += matmul(widen(dy[image]).reshape(group, outputs, prod(window.out)), columns.swapaxes(1, 2))
    return narrow(total.reshape(group * outputs, inputs, *window.kernel), x.dtype)


def _infer_conv_grad_weights(ctx: InferContext) -> InferResult:
    x, dy = ctx.shape(0), ctx.shape(1)
    if x is None or dy is None:
        return None
    ctx.expect_equal(x[0], dy[0])
    return (dy[1], x[1] // ctx.attr("group"), *ctx.attr("kernel_shape"))


CONV_GRAD_WEIGHTS = op("ConvGradWeights", eval=_conv_grad_weights, infer=_infer_conv_grad_weights, domain=DOMAIN)
