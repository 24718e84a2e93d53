"""Convolutions: Conv, CausalConvWithState, and the core that quantised convolutions share.

`conv_core` gathers the windows of a band of output rows into a buffer (im2col) and multiplies it with the kernels in BLAS,
several groups at a time where they are small, as in a depthwise convolution. The buffer has a fixed size, so memory does not
grow with the image. Kernels of one element need no gathering.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx.ir.dims import Dim, fresh
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, format_shape
from sardonyx.ops.conv.windows import Windows, expect_windows, output_spatial, windows
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.matmul.matmul import exact_float
from sardonyx.ops.precision import narrow, wide_dtype, widen
from sardonyx.ops.products import matmul

GATHER_BYTES: Final = 4 << 20  # size of the gathered band; larger and smaller ones were slower
FEW_POSITIONS: Final = 64  # fewer output positions than this: gather several images for one product


def conv_core(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str | None = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The convolution of x [N, C, ...] with w [M, C / group, ...], for any numeric type.

    Floats keep their type. Integers (of two types, if need be) give int32, or int64 if one has 64 bits; sums wrap around.
    """
    check_conv(x.shape, w.shape, group, kernel_shape)
    if b is not None and b.shape != (w.shape[0],):
        raise ValueError(f"B has shape {b.shape}, expected ({w.shape[0]},): one bias for each of the kernels")
    window = windows(x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)
    with np.errstate(all="ignore"):
        if x.dtype.kind in "iu":
            result = _convolve_integers(x, w, window, group)
        else:
            result = _convolve(widen(x), widen(w).astype(wide_dtype(x.dtype), copy=False), window, group)
        if b is not None:
            result += b.astype(result.dtype, copy=False).reshape(-1, *(1,) * (x.ndim - 2))
        return result if x.dtype.kind in "iu" else narrow(result, x.dtype)


def check_conv(x: Sequence[Any], w: Sequence[Any], group: int, kernel_shape: Sequence[int] | None) -> None:
    """ValueError if the shapes of input and kernels do not fit each other; dimensions that are not numbers are not looked at."""
    if len(x) < 3 or len(w) != len(x):
        raise ValueError(f"X of rank {len(x)} and W of rank {len(w)}: both need one rank, at least 3")
    if group < 1 or (isinstance(w[0], int) and w[0] % group):
        raise ValueError(f"{w[0]} kernels cannot be divided into {group} groups")
    if isinstance(x[1], int) and isinstance(w[1], int) and x[1] != w[1] * group:
        raise ValueError(f"X has {x[1]} channels, but W has {w[1]} in each of {group} groups")
    if kernel_shape and all(isinstance(dim, int) for dim in w[2:]) and tuple(kernel_shape) != tuple(w[2:]):
        raise ValueError(f"kernel_shape is {list(kernel_shape)}, but W has kernels of {list(w[2:])}")


def _convolve_integers(x: Array, w: Array, window: Windows, group: int) -> Array:
    accumulator = np.dtype(np.int64 if max(x.dtype.itemsize, w.dtype.itemsize) == 8 else np.int32)
    exact = exact_float(prod(w.shape[1:]), x, w)
    if exact is not None:
        return _convolve(x.astype(exact), w.astype(exact), window, group).astype(np.int64).astype(accumulator)
    return _convolve(x.astype(accumulator), w.astype(accumulator), window, group)


def _convolve(x: Array, w: Array, window: Windows, group: int) -> Array:
    """The convolution of two arrays of one type, in that type."""
    if 0 in (x.size, w.size, *window.out):
        return np.zeros((x.shape[0], w.shape[0], *window.out), x.dtype)
    padded = window.pad(x)
    if prod(window.kernel) == 1:
        return _pointwise(padded, w, window, group)
    return _gathered(padded, w, window, group)


def _pointwise(padded: Array, w: Array, window: Windows, group: int) -> Array:
    _, everywhere = next(window.taps())
    taken = padded[everywhere]
    columns = taken.reshape(taken.shape[0], group, -1, prod(window.out))
    kernels = w.reshape(group, w.shape[0] // group, -1)
    return np.asarray(matmul(kernels, columns)).reshape(taken.shape[0], -1, *window.out)


def _gathered(padded: Array, w: Array, window: Windows, group: int) -> Array:
    batch, out, rank = padded.shape[0], window.out, len(window.out)
    depth, positions, outputs = prod(w.shape[1:]), prod(out), w.shape[0] // group
    kernels = w.reshape(group, outputs, depth)
    view = window.view(padded.reshape(batch, group, -1, *padded.shape[2:]))  # [N, group, C/group, kernel, out]
    result = np.empty((batch, group, outputs, *out), padded.dtype)
    limit = max(1, GATHER_BYTES // (depth * padded.dtype.itemsize))  # positions of one group that are gathered at once
    if batch > 1 and positions < FEW_POSITIONS:
        images = max(1, limit // (positions * group))
        for start in range(0, batch, images):
            stop_if_asked()
            band = np.ascontiguousarray(np.moveaxis(view[start : start + images], 0, -rank - 1))
            columns = matmul(kernels, band.reshape(group, depth, -1))
            result[start : start + images] = np.moveaxis(columns.reshape(group, outputs, -1, *out), 2, 0)
        return result.reshape(batch, -1, *out)
    groups = max(1, min(group, limit // positions))
    rows = max(1, min(out[0], limit * out[0] // (positions * groups)))
    buffer = np.empty(groups * depth * rows * (positions // out[0]), padded.dtype)
    for image in range(batch):
        for first in range(0, group, groups):
            part = slice(first, min(first + groups, group))
            by_row = np.moveaxis(view[image, part], -rank, 0)
            for start in range(0, out[0], rows):
                stop_if_asked()
                source = np.moveaxis(by_row[start : start + rows], 0, -rank)
                band = buffer[: source.size].reshape(source.shape)
                np.copyto(band, source)
                target = result[image, part, :, start : start + rows].reshape(part.stop - first, outputs, -1)
                matmul(kernels[part], band.reshape(part.stop - first, depth, -1), out=target)
    return result.reshape(batch, -1, *out)


def conv_shape(
    x: Shape | None,
    w: Shape | None,
    *,
    auto_pad: str | None = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Shape | None:
    """The shape of a convolution's result; unknown sizes of the kernel make spatial sizes unknown."""
    if x is None:
        return None
    if w is not None:
        check_conv(x, w, group, kernel_shape)
    kernel = tuple(kernel_shape) if kernel_shape else None if w is None else w[2:]
    if len(x) < 3:
        raise ValueError(f"X of shape {format_shape(x)} needs a rank of at least 3")
    outer: Shape = (x[0], fresh("M") if not w else w[0])
    if kernel is None or any(not isinstance(width, int) for width in kernel):
        return outer + tuple(fresh() for _ in x[2:])
    widths = [width for width in kernel if isinstance(width, int)]
    return outer + output_spatial(x[2:], widths, strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad)


def conv_attributes(ctx: InferContext) -> dict[str, Any]:
    """The attributes of a convolution, as `conv_shape` takes them."""
    return {
        "auto_pad": ctx.attr("auto_pad"),
        "dilations": ctx.attr("dilations"),
        "group": 1 if ctx.attr("group") is None else ctx.attr("group"),
        "kernel_shape": ctx.attr("kernel_shape"),
        "pads": ctx.attr("pads"),
        "strides": ctx.attr("strides"),
    }


def expect_channels(ctx: InferContext, kernels: int, bias: int) -> None:
    """State that input, kernels and bias (inputs 0, `kernels` and `bias`) agree on the channels, and on the kernels' sizes."""
    x, w, attrs = ctx.shape(0), ctx.shape(kernels), conv_attributes(ctx)
    if x is None or w is None or len(x) < 2 or len(w) < 2:
        return
    group, widths = attrs["group"], attrs["kernel_shape"]
    ctx.expect_equal(x[1], w[1] * group)
    ctx.expect_divisible(w[0], group)
    ctx.expect_shape(bias, w[0])
    for size, width in zip(w[2:], widths or ()):
        ctx.expect_equal(size, width)


def infer_conv(ctx: InferContext) -> InferResult:
    """The shape of a convolution's result, from a node's inputs and attributes."""
    expect_channels(ctx, 1, 2)
    return convolved_shape(ctx, 1)


def convolved_shape(ctx: InferContext, kernels: int) -> Shape | None:
    """The shape of what a node's kernels (an input) make of its first input; that they fit into the image is expected."""
    x, w = ctx.shape(0), ctx.shape(kernels)
    made = conv_shape(x, w, **conv_attributes(ctx))
    kernel: Sequence[Dim] = ctx.attr("kernel_shape") or (() if w is None else w[2:])
    widths = [width for width in kernel if isinstance(width, int)]
    if x is not None and len(widths) == len(x) - 2:
        expect_windows(ctx, x[2:], widths)
    return made


def _conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str | None,
    dilations: tuple[int, ...] | None,
    group: int,
    kernel_shape: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    return conv_core(
        x, w, b, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides
    )


CONV = op("Conv", eval=_conv, infer=infer_conv)


def _causal_conv_with_state(
    x: Array, w: Array, bias: Array | None = None, past_state: Array | None = None, *, activation: str
) -> tuple[Array, Array]:
    if x.ndim != 3 or w.ndim != 3 or w.shape[1] != 1 or w.shape[0] != x.shape[1]:
        raise ValueError(f"input of shape {x.shape} and weight of shape {w.shape}: expected (N, C, L) and (C, 1, k)")
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}, expected none, silu or swish")
    state = np.zeros((*x.shape[:2], w.shape[2] - 1), x.dtype) if past_state is None else past_state
    if state.shape != (*x.shape[:2], w.shape[2] - 1):
        raise ValueError(f"past_state has shape {state.shape}, expected {(*x.shape[:2], w.shape[2] - 1)}")
    sequence = np.concatenate((state, x), axis=2)
    if x.size == 0:  # nothing new: the state stays
        return np.zeros(x.shape, x.dtype), sequence
    result = conv_core(widen(sequence), widen(w), None if bias is None else widen(bias), group=x.shape[1])
    if activation != "none":
        with np.errstate(over="ignore"):
            result = result / (1 + np.exp(-result))
    return narrow(result, x.dtype), np.ascontiguousarray(sequence[:, :, x.shape[2] :])


def _infer_causal_conv_with_state(ctx: InferContext) -> InferResult:
    x, w = ctx.shape(0, rank=3), ctx.shape(1, rank=3)
    state = ctx.shape(3, rank=3)
    if state is None and x is not None and w is not None:
        state = (x[0], x[1], w[2] - 1)
    return [x, state]


CAUSAL_CONV_WITH_STATE = op(
    "CausalConvWithState", eval=_causal_conv_with_state, infer=_infer_causal_conv_with_state, since=27, traits=Trait.REFUSES
)
