"""Operators of com.microsoft on quantized tensors: QuantizeLinear and DequantizeLinear, and QLinear forms of float operators.

A QLinear operator means: dequantize the inputs, compute in float32, quantize the result. Sums of integers stay exact.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.conv.conv import conv_attributes, conv_shape
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.elementwise.special import sigmoid
from sardonyx.ops.indexing.contrib_layout import channels_back, channels_first, infer_channels_last
from sardonyx.ops.infer import InferContext, InferResult, broadcast_inputs, normalize_axis, same_as
from sardonyx.ops.pool.pool import mean_of_windows, pool_windows, pooled_shape
from sardonyx.ops.quant.quant import QLINEAR_CONV as STANDARD_QLINEAR_CONV
from sardonyx.ops.quant.quant import dequantize, quantize
from sardonyx.ops.rows.reduce import softmax


def _quantize_linear(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int | None) -> Array:
    return quantize(x, scale, zero_point, axis=1 if axis is None else axis)


def _dequantize_linear(x: Array, scale: Array, zero_point: Array | None = None, *, axis: int | None) -> Array:
    return dequantize(x, scale, zero_point, axis=1 if axis is None else axis)


def _infer_quantize_linear(ctx: InferContext) -> InferResult:
    dtype = ctx.dtype(2) if ctx.has(2) else dtypes.UINT8
    return ctx.shape(0) if dtype is None else TensorType(dtype, ctx.shape(0))


QUANTIZE_LINEAR = op("QuantizeLinear", domain=MICROSOFT, eval=_quantize_linear, infer=_infer_quantize_linear)
DEQUANTIZE_LINEAR = op("DequantizeLinear", domain=MICROSOFT, eval=_dequantize_linear, infer=same_as(0), traits=Trait.WIDENS)


def real(x: Array, scale: Array, zero_point: Array | None) -> Array:
    """The values a per-tensor quantized array stands for."""
    offset = np.int32(0) if zero_point is None else zero_point.reshape(()).astype(np.int32)
    return np.asarray((x.astype(np.int32) - offset).astype(np.float32) * scale.reshape(()))


def quantized(values: Array, scale: Array, zero_point: Array | None, dtype: np.dtype[Any]) -> Array:
    """Values as a per-tensor quantized array; without a zero point it is 0."""
    point = np.zeros((), dtype) if zero_point is None else zero_point.reshape(())
    return quantize(values, scale.reshape(()), point)


def _binary(name: str, function: Callable[[Array, Array], Any]) -> None:
    def evaluate(
        a: Array,
        a_scale: Array,
        a_zero_point: Array | None,
        b: Array,
        b_scale: Array,
        b_zero_point: Array | None,
        c_scale: Array,
        c_zero_point: Array | None = None,
    ) -> Array:
        result = np.asarray(function(real(a, a_scale, a_zero_point), real(b, b_scale, b_zero_point)))
        return quantized(result, c_scale, c_zero_point, a.dtype)

    op(
        name,
        domain=MICROSOFT,
        eval=evaluate,
        infer=lambda ctx: broadcast_inputs(ctx, 0, 3),
        traits=Trait.ELEMENTWISE,
    )


_binary("QLinearAdd", np.add)
_binary("QLinearMul", np.multiply)


def _qlinear_sigmoid(
    x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array | None = None
) -> Array:
    return quantized(sigmoid(real(x, x_scale, x_zero_point)), y_scale, y_zero_point, x.dtype)


def _qlinear_leaky_relu(
    x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array | None = None, *, alpha: float
) -> Array:
    values = real(x, x_scale, x_zero_point)
    return quantized(np.where(values < 0, values * np.float32(alpha), values), y_scale, y_zero_point, x.dtype)


QLINEAR_SIGMOID = op("QLinearSigmoid", domain=MICROSOFT, eval=_qlinear_sigmoid, infer=same_as(0), traits=Trait.ELEMENTWISE)
QLINEAR_LEAKY_RELU = op(
    "QLinearLeakyRelu", domain=MICROSOFT, eval=_qlinear_leaky_relu, infer=same_as(0), traits=Trait.ELEMENTWISE
)


def _qlinear_softmax(
    x: Array, x_scale: Array, x_zero_point: Array | None, y_scale: Array, y_zero_point: Array, *, axis: int, opset: int
) -> Array:
    """Before opset 13 all axes from `axis` on are normalized together, later `axis` alone."""
    first = normalize_axis(axis, x.ndim)
    values = real(x, x_scale, x_zero_point)
    if opset < 13:
        rows = values.reshape(prod(x.shape[:first]), prod(x.shape[first:]))
        weights = softmax(rows, 1).reshape(x.shape)
    else:
        weights = softmax(values, first)
    return quantized(weights, y_scale, y_zero_point, x.dtype)


QLINEAR_SOFTMAX = op("QLinearSoftmax", domain=MICROSOFT, eval=_qlinear_softmax, infer=same_as(0))


def _qlinear_where(
    condition: Array,
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    y: Array,
    y_scale: Array,
    y_zero_point: Array,
    z_scale: Array,
    z_zero_point: Array,
) -> Array:
    first = quantized(real(x, x_scale, x_zero_point), z_scale, z_zero_point, x.dtype)
    second = quantized(real(y, y_scale, y_zero_point), z_scale, z_zero_point, x.dtype)
    return np.asarray(np.where(condition, first, second))


QLINEAR_WHERE = op(
    "QLinearWhere",
    domain=MICROSOFT,
    eval=_qlinear_where,
    infer=lambda ctx: broadcast_inputs(ctx, 0, 1, 4),
    traits=Trait.ELEMENTWISE,
)


def _qlinear_concat(y_scale: Array, y_zero_point: Array, *inputs: Array, axis: int) -> Array:
    """The inputs come in threes: tensor, scale, zero point."""
    if not inputs or len(inputs) % 3:
        raise ValueError(
            f"{len(inputs)} inputs behind the output's scale and zero point: expected tensor, scale, zero point each"
        )
    parts = []
    for x, scale, zero_point in zip(inputs[0::3], inputs[1::3], inputs[2::3], strict=True):
        same = scale.item() == y_scale.item() and zero_point.item() == y_zero_point.item()
        parts.append(x if same else quantized(real(x, scale, zero_point), y_scale, y_zero_point, x.dtype))
    return np.concatenate(parts, axis=normalize_axis(axis, parts[0].ndim))


def _infer_qlinear_concat(ctx: InferContext) -> InferResult:
    shapes = [ctx.shape(index) for index in range(2, len(ctx.inputs), 3)]
    known = [shape for shape in shapes if shape is not None]
    if not known or len(known) < len(shapes):
        return ctx.unknown(len(known[0])) if known else None
    axis = normalize_axis(ctx.attr("axis"), len(known[0]))
    joined = list(known[0])
    for shape in known[1:]:
        if len(shape) != len(joined):
            raise ValueError(f"inputs of ranks {len(joined)} and {len(shape)} cannot be concatenated")
        for other, (size, same) in enumerate(zip(shape, joined)):
            if other != axis:
                ctx.expect_equal(size, same)
        joined[axis] = joined[axis] + shape[axis]
    return tuple(joined)


QLINEAR_CONCAT = op("QLinearConcat", domain=MICROSOFT, eval=_qlinear_concat, infer=_infer_qlinear_concat)


def _qlinear_average_pool(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    auto_pad: str | None,
    ceil_mode: int | None,
    channels_last: int,
    count_include_pad: int | None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Array:
    values = channels_first(real(x, x_scale, x_zero_point), channels_last)
    window = pool_windows(values, kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode, pads=pads, strides=strides)
    means = mean_of_windows(values, window, count_include_pad)
    return quantized(channels_back(means, channels_last), y_scale, y_zero_point, x.dtype)


QLINEAR_AVERAGE_POOL = op(
    "QLinearAveragePool", domain=MICROSOFT, eval=_qlinear_average_pool, infer=infer_channels_last(pooled_shape)
)


def _qlinear_global_average_pool(
    x: Array, x_scale: Array, x_zero_point: Array, y_scale: Array, y_zero_point: Array, *, channels_last: int
) -> Array:
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    count = prod(x.shape[axis] for axis in axes)
    total = x.sum(axis=axes, keepdims=True, dtype=np.int64) - count * x_zero_point.reshape(()).astype(np.int64)
    with np.errstate(all="ignore"):
        means = total.astype(np.float32) * (x_scale.reshape(()) / np.float32(count))
    return quantized(means, y_scale, y_zero_point, x.dtype)


def _infer_global(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    return None if x is None else x[:2] + (1,) * (len(x) - 2)


QLINEAR_GLOBAL_AVERAGE_POOL = op(
    "QLinearGlobalAveragePool",
    domain=MICROSOFT,
    eval=_qlinear_global_average_pool,
    infer=infer_channels_last(_infer_global),
)


def _qlinear_conv(x: Array, *others: Array | None, channels_last: int, **geometry: Any) -> Array:
    return channels_back(STANDARD_QLINEAR_CONV.eval(channels_first(x, channels_last), *others, **geometry), channels_last)


QLINEAR_CONV = op(
    "QLinearConv",
    domain=MICROSOFT,
    eval=_qlinear_conv,
    infer=infer_channels_last(lambda ctx: conv_shape(ctx.shape(0), ctx.shape(3), **conv_attributes(ctx))),
    keywords=("channels_last", *STANDARD_QLINEAR_CONV.attr_names),
)


def _reduced_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return tuple(sorted({normalize_axis(axis, rank) for axis in axes}))


def _infer_reduced(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    if shape is None:
        return None
    axes = _reduced_axes(ctx.attr("axes"), len(shape))
    if ctx.attr("keepdims"):
        return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in axes)


def _qlinear_reduce_mean(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axes: tuple[int, ...],
    keepdims: int,
) -> Array:
    along = _reduced_axes(axes, x.ndim)
    means = real(x, x_scale, x_zero_point).mean(axis=along, keepdims=bool(keepdims), dtype=np.float64)
    return quantized(np.asarray(means, np.float32), y_scale, y_zero_point, x.dtype)


QLINEAR_REDUCE_MEAN = op("QLinearReduceMean", domain=MICROSOFT, eval=_qlinear_reduce_mean, infer=_infer_reduced)
