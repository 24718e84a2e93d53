"""Gradients of pools; gradient rules make these, models do not hold them.

MaxPoolGrad(dy, x, y)            each gradient goes to the first element of its window that is the maximum
AveragePoolGrad(dy, shape)       each is shared by the elements of its window; `shape` is that of the input
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.conv.gradients import scatter_windows
from sardonyx.ops.conv.windows import windows
from sardonyx.ops.definition import op
from sardonyx.ops.indexing.gradients import DOMAIN, shape_input, sizes_of
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.pool.pool import window_sizes
from sardonyx.ops.precision import narrow, widen


def _max_pool_grad(
    dy: Array,
    x: Array,
    y: Array,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    window = windows(
        x.shape[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, ceil_mode=ceil_mode
    )
    if dy.shape != y.shape or y.shape != (*x.shape[:2], *window.out):
        raise ValueError(f"dY of shape {dy.shape} and Y of shape {y.shape} do not fit an input of shape {x.shape}")
    wide, gradients, maxima = window.pad(widen(x), -np.inf), widen(dy), widen(y)
    columns = np.zeros((*x.shape[:2], *window.kernel, *window.out), gradients.dtype)
    inside = window.pad(np.ones(x.shape[2:], np.bool_), False)
    taken = np.zeros(y.shape, np.bool_)
    for index, at in window.taps():
        at_tap: tuple[Any, ...] = (slice(None), slice(None), *index)
        found = ((wide[at] == maxima) | (np.isnan(maxima) & np.isnan(wide[at]))) & inside[at] & ~taken
        columns[at_tap] = np.where(found, gradients, 0)
        taken |= found
    return narrow(scatter_windows(columns, window), dy.dtype)


def _infer_max_pool_grad(ctx: InferContext) -> InferResult:
    y = ctx.shape(2)
    if y is not None:
        ctx.expect_shape(0, *y)
    return ctx.shape(1)


MAX_POOL_GRAD = op("MaxPoolGrad", eval=_max_pool_grad, infer=_infer_max_pool_grad, domain=DOMAIN)


def _average_pool_grad(
    dy: Array,
    shape: Array,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    count_include_pad: int | None,
    dilations: tuple[int, ...] | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    sizes = sizes_of(shape)
    window = windows(
        sizes[2:], kernel_shape, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad, ceil_mode=ceil_mode
    )
    if dy.shape != (*sizes[:2], *window.out):
        raise ValueError(f"dY of shape {dy.shape} does not fit an input of shape {sizes}")
    wide = widen(dy)
    with np.errstate(all="ignore"):
        share = wide / window_sizes(window, count_include_pad).astype(wide.dtype)
    shared_out = share.reshape(*sizes[:2], *(1,) * len(window.kernel), *window.out)
    columns = np.broadcast_to(shared_out, (*sizes[:2], *window.kernel, *window.out))
    return narrow(scatter_windows(columns, window), dy.dtype)


AVERAGE_POOL_GRAD = op("AveragePoolGrad", eval=_average_pool_grad, infer=shape_input(1), domain=DOMAIN)
