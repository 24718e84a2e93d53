"""Operators of ONNX Runtime on other layouts than channels first: channels last, and channels in blocks.

Channels last (com.ms.internal.nhwc, and the Nhwc operators of com.microsoft): the standard operator between two transposes.
Kernels of convolutions keep the standard layout.

Blocked channels (com.microsoft.nchwc) appear in models ONNX Runtime optimized and saved. There an activation keeps its shape
[N, C, H, W] with C rounded up to whole blocks, and memory holds blocks of channels innermost. That order is private to the
operators of this domain, so here activations stay in plain order, and ReorderInput and ReorderOutput only change the number
of channels. The kernels, though, are stored in the model in blocked order:

    [M, C, kh, kw] as [M/b, C/b, kh, kw, b in, b out]    if C is a multiple of b
                   or [M/b, C, kh, kw, b out]            for depthwise convolutions and inputs of few channels

Nothing in a model says what b is: it is 16 on machines with AVX-512 and 8 on others, and ONNX Runtime runs such a model
only on the kind of machine that wrote it. Here b is 8 where the shape of the kernels rules out 16, else what this machine has.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.conv import conv_transpose
from sardonyx.ops.conv.conv import CONV, conv_attributes, conv_shape, infer_conv
from sardonyx.ops.definition import OpDef, op
from sardonyx.ops.indexing import movement
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.matmul.contrib_fused import FUSED_CONV_ATTRIBUTES, activate, fused_conv
from sardonyx.ops.pool import pool
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.rows import norm
from sardonyx.ops.sampling import sampling
from sardonyx.ops.sampling.resize import RESIZE, Interpolation, interpolate, resize_plans

NHWC: Final = "com.ms.internal.nhwc"
NCHWC: Final = "com.microsoft.nchwc"


def channels_first(x: Array, last: int = 1) -> Array:
    """[N, ..., C] as [N, C, ...], if the channels are last."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if last else x


def channels_back(x: Array, last: int = 1) -> Array:
    """[N, C, ...] as [N, ..., C], if the channels shall be last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x


def _first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1])


def _last(found: InferOne) -> InferOne:
    if isinstance(found, TensorType):
        return TensorType(found.dtype, None if found.shape is None else (found.shape[0], *found.shape[2:], found.shape[1]))
    return (found[0], *found[2:], found[1]) if isinstance(found, tuple) else found


def infer_channels_last(
    rule: Callable[[InferContext], InferResult], always: bool = False
) -> Callable[[InferContext], InferResult]:
    """The shape rule of an operator for channels last: always, or where its attribute `channels_last` says so."""

    def transposed(ctx: InferContext) -> InferResult:
        if not always and not ctx.attr("channels_last"):
            return rule(ctx)
        inner = copy.copy(ctx)
        inner.inputs = list(ctx.inputs)
        given, shape = inner.inputs[0], ctx.shape(0, least=3)
        if isinstance(given, TensorType) and shape is not None:
            inner.inputs[0] = TensorType(given.dtype, _first(shape))
        found = rule(inner)
        return [_last(found[0]), *found[1:]] if isinstance(found, list) else _last(found)

    return transposed


def _transposed(standard: OpDef) -> None:
    """Define the channels-last form of a standard operator, which may name an activation."""

    def evaluate(x: Array, *others: Array | None, **attrs: Any) -> Any:
        activation, params = attrs.pop("activation"), attrs.pop("activation_params")
        result = standard.eval(channels_first(x), *others, **attrs)
        first = result[0] if isinstance(result, tuple) else result
        if activation:
            first = narrow(activate(widen(first), activation, params), first.dtype)
        return (channels_back(first), *result[1:]) if isinstance(result, tuple) else channels_back(first)

    assert standard.infer is not None
    keywords = (*standard.attr_names, "activation", "activation_params", *(("ctx",) if standard.wants_context else ()))
    op(
        standard.name,
        domain=NHWC,
        since=standard.since,
        eval=evaluate,
        infer=infer_channels_last(standard.infer, always=True),
        traits=standard.traits,
        keywords=keywords,
    )


for _standard in (
    CONV, conv_transpose.CONV_TRANSPOSE, pool.AVERAGE_POOL, pool.MAX_POOL, pool.LP_POOL, pool.GLOBAL_AVERAGE_POOL,
    pool.GLOBAL_MAX_POOL, pool.GLOBAL_LP_POOL, norm.BATCH_NORMALIZATION_1, norm.BATCH_NORMALIZATION,
    norm.INSTANCE_NORMALIZATION, norm.LRN, movement.DEPTH_TO_SPACE, movement.SPACE_TO_DEPTH, sampling.GRID_SAMPLE,
):  # fmt: skip
    _transposed(_standard)

# Resize takes sizes and scales per axis, in the order the axes have: it does not know which one holds channels.
op("Resize", domain=NHWC, since=11, eval=RESIZE.eval, infer=RESIZE.infer, keywords=RESIZE.attr_names)


def _nhwc_conv(x: Array, w: Array, b: Array | None = None, z: Array | None = None, **attrs: Any) -> Array:
    return channels_back(fused_conv(channels_first(x), w, b, None if z is None else channels_first(z), **attrs))


def _plain_nhwc_conv(x: Array, w: Array, b: Array | None = None, **geometry: Any) -> Array:
    """NhwcConv has its kernels channels last as well: [M, kh, kw, C / group]."""
    return _nhwc_conv(x, channels_first(w), b, activation=None, activation_params=None, **geometry)


def _infer_plain_nhwc_conv(ctx: InferContext) -> InferResult:
    kernels = ctx.shape(1, least=3)
    return conv_shape(ctx.shape(0), None if kernels is None else _first(kernels), **conv_attributes(ctx))


NHWC_FUSED_CONV = op(
    "NhwcFusedConv",
    domain=MICROSOFT,
    eval=_nhwc_conv,
    infer=infer_channels_last(infer_conv, always=True),
    keywords=FUSED_CONV_ATTRIBUTES,
)
NHWC_CONV = op(
    "NhwcConv",
    domain=MICROSOFT,
    eval=_plain_nhwc_conv,
    infer=infer_channels_last(_infer_plain_nhwc_conv, always=True),
    keywords=CONV.attr_names,
)


def _nhwc_max_pool(x: Array, *, kernel_shape: tuple[int, ...], **geometry: Any) -> Array:
    first = channels_first(x)
    return channels_back(pool.max_of_windows(first, pool.pool_windows(first, kernel_shape, **geometry)))


NHWC_MAX_POOL = op(
    "NhwcMaxPool",
    domain=MICROSOFT,
    eval=_nhwc_max_pool,
    infer=infer_channels_last(pool.pooled_shape, always=True),
    keywords=("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"),
)


@cache
def machine_block() -> int:
    """How many channels ONNX Runtime puts into a block on this machine."""
    package = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
    features: dict[str, bool] = importlib.import_module(f"{package}._multiarray_umath").__cpu_features__
    return 16 if features.get("AVX512F") or features.get("ASIMD") else 8


def _block_of(w: Array) -> int:
    """The size of the blocks these kernels are stored in; more than 16 channels are always rounded up to whole blocks."""
    kernels, channels = w.shape[:2]
    return 8 if kernels % 16 or (channels > 16 and channels % 16) else machine_block()


def unblocked(w: Array) -> Array:
    """Kernels [M, C, ...] out of blocked order."""
    block = _block_of(w)
    kernels, channels, *size = w.shape
    rank = len(size)
    if kernels % block:
        raise ValueError(f"W is {w.shape}: {kernels} kernels are no whole number of blocks of {block}")
    if channels % block == 0:
        blocked = w.reshape(kernels // block, channels // block, *size, block, block)
        order = (0, rank + 3, 1, rank + 2, *range(2, rank + 2))
    else:
        blocked = w.reshape(kernels // block, channels, *size, block)
        order = (0, rank + 2, 1, *range(2, rank + 2))
    return np.ascontiguousarray(blocked.transpose(order)).reshape(w.shape)


def _blocked_conv(x: Array, w: Array, b: Array | None = None, total: Array | None = None, *, group: int, **attrs: Any) -> Array:
    padded = _with_channels(x, w.shape[1] * group)
    return fused_conv(padded, unblocked(w), b, total, group=group, **attrs)


def _with_channels(x: Array, channels: int) -> Array:
    """x with zeros for channels it lacks."""
    missing = channels - x.shape[1]
    return np.pad(x, [(0, 0), (0, missing), *[(0, 0)] * (x.ndim - 2)]) if missing > 0 else x


def _infer_blocked_conv(ctx: InferContext) -> InferResult:
    x, w = ctx.shape(0, least=3), ctx.shape(1, least=3)
    if x is None or w is None:
        return None
    padded: Shape = (x[0], w[1] * (ctx.attr("group") or 1), *x[2:])
    return conv_shape(padded, w, **conv_attributes(ctx))


BLOCKED_CONV = op("Conv", domain=NCHWC, eval=_blocked_conv, infer=_infer_blocked_conv, keywords=FUSED_CONV_ATTRIBUTES)

for _standard in (pool.MAX_POOL, pool.AVERAGE_POOL, pool.GLOBAL_MAX_POOL, pool.GLOBAL_AVERAGE_POOL):
    op(
        _standard.name,
        domain=NCHWC,
        eval=_standard.eval,
        infer=_standard.infer,
        keywords=(*_standard.attr_names, *(("ctx",) if _standard.wants_context else ())),
    )


def _reorder_input(x: Array, *, channels_last: int) -> Array:
    return channels_first(x, channels_last)


def _reorder_output(x: Array, *, channels: int, channels_last: int) -> Array:
    if not 0 < channels <= x.shape[1]:
        raise ValueError(f"channels is {channels}; X is {x.shape}, expected 1 to {x.shape[1]}")
    return channels_back(np.ascontiguousarray(x[:, :channels]), channels_last)


def _infer_reorder_input(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0, least=3)
    return _first(shape) if shape is not None and ctx.attr("channels_last") else shape


def _infer_reorder_output(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0, least=3)
    if shape is None:
        return None
    channels: Dim = int(ctx.attr("channels"))
    return (shape[0], *shape[2:], channels) if ctx.attr("channels_last") else (shape[0], channels, *shape[2:])


REORDER_INPUT = op("ReorderInput", domain=NCHWC, eval=_reorder_input, infer=_infer_reorder_input)
REORDER_OUTPUT = op("ReorderOutput", domain=NCHWC, eval=_reorder_output, infer=_infer_reorder_output)


def _blocked_upsample(x: Array, *, coordinate_transformation_mode: str, mode: str, scales: tuple[int, ...]) -> Array:
    if len(scales) != x.ndim or scales[:2] != (1, 1):
        raise ValueError(f"scales is {list(scales)}; expected 1, 1 and a factor for each of {x.ndim - 2} spatial axes")
    plans = resize_plans(x.shape, None, None, np.array(scales, np.float32), None, policy=None)
    return interpolate(x, plans, Interpolation(mode, coordinate_transformation_mode, "floor", -0.75, False, False))


def _infer_blocked_upsample(ctx: InferContext) -> InferResult:
    shape, scales = ctx.shape(0), ctx.attr("scales")
    if shape is None or scales is None:
        return None
    if len(scales) != len(shape):
        raise ValueError(f"scales has {len(scales)} elements, expected {len(shape)}: one for each axis")
    return tuple(dim * int(factor) for dim, factor in zip(shape, scales, strict=True))


BLOCKED_UPSAMPLE = op("Upsample", domain=NCHWC, eval=_blocked_upsample, infer=_infer_blocked_upsample)
