"""Normalisations, and Dropout.

Every one computes in float32 (float64 for float64) from its inputs to its outputs and rounds once; `stash_type` only decides
the type of the statistics an operator returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.creation.random import generator
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult, normalize_axis, same_as
from sardonyx.ops.precision import narrow, widen


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    """The mean with the axes kept; NaN for none."""
    return np.asarray(x.sum(axis=axes, keepdims=True) / x.dtype.type(prod(x.shape[axis] for axis in axes)))


def standardize(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """(x - mean) / sqrt(variance + epsilon) over the axes; with it the mean and the reciprocal standard deviation."""
    mean = _mean(x, axes)
    centred = x - mean
    inverse = 1 / np.sqrt(_mean(centred * centred, axes) + x.dtype.type(epsilon))
    centred *= inverse
    return centred, mean, np.asarray(inverse)


def _per_channel(values: Array, rank: int, channels: int, name: str) -> Array:
    if values.shape != (channels,):
        raise ValueError(f"{name} has shape {values.shape}, expected ({channels},): one value for each channel")
    return widen(values).reshape(channels, *(1,) * (rank - 2))


def _apply_statistics(x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, epsilon: float, dtype: Any) -> Array:
    """(x - mean) * factor + bias: as x * factor + shift it would lose all digits where the variance is nearly zero."""
    factor = scale / np.sqrt(variance + variance.dtype.type(epsilon))
    result = x - mean
    result = np.multiply(result, factor, out=result if factor.dtype == result.dtype else None)
    result = np.add(result, bias, out=result if bias.dtype == result.dtype else None)
    return narrow(result, dtype)


def _batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int,
) -> Array | tuple[Array, ...]:
    return _batch_norm(x, (scale, bias, input_mean, input_var), (epsilon, momentum), training=bool(training_mode))[
        : 3 if training_mode else 1
    ]


def _batch_norm(
    x: Array, parameters: tuple[Array, Array, Array, Array], factors: tuple[float, float], *, training: bool, spatial: bool = True
) -> tuple[Array, ...]:
    """Y; in training also the new running mean and variance, and the mean and variance of this batch."""
    epsilon, momentum = factors
    wide = widen(x)
    channels = x.shape[1] if x.ndim > 1 else 1
    if not spatial:
        if any(value.size != prod(x.shape[1:]) for value in parameters):
            raise ValueError(f"scale, B, mean and var must have {prod(x.shape[1:])} elements each when spatial is 0")
        scale, bias, mean, variance = (widen(value).reshape(x.shape[1:]) for value in parameters)
    else:
        names = ("scale", "B", "mean", "var")
        scale, bias, mean, variance = (
            _per_channel(value, max(x.ndim, 2), channels, name) for value, name in zip(parameters, names, strict=True)
        )
    with np.errstate(all="ignore"):
        if not training:
            return (_apply_statistics(wide, scale, bias, mean, variance, epsilon=epsilon, dtype=x.dtype),)
        axes = tuple(axis for axis in range(x.ndim) if axis != 1) if spatial else (0,)
        now_mean = _mean(wide, axes)
        now_variance = _mean((wide - now_mean) ** 2, axes)
        y = _apply_statistics(wide, scale, bias, now_mean, now_variance, epsilon=epsilon, dtype=x.dtype)
        statistics = []
        for old, now, like in ((mean, now_mean, parameters[2]), (variance, now_variance, parameters[3])):
            moved = old * old.dtype.type(momentum) + now.reshape(old.shape) * old.dtype.type(1 - momentum)
            statistics.append(narrow(moved.reshape(like.shape), like.dtype))
        saved = [narrow(now.reshape(parameters[2].shape), parameters[2].dtype) for now in (now_mean, now_variance)]
        return (y, *statistics, *saved)


def _batch_normalization_1(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float,
    spatial: int | None,
    ctx: EvalContext,
) -> tuple[Array, ...]:
    training = any(ctx.outputs[1:])  # before training_mode, asking for the statistics meant training
    return _batch_norm(x, (scale, bias, mean, var), (epsilon, momentum), training=training, spatial=spatial != 0)


def _infer_batch_normalization(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    statistics = ctx.shape(3)
    if statistics is None and x is not None and len(x) > 1 and ctx.attr("spatial") != 0:
        statistics = (x[1],)
    if x is not None and ctx.attr("spatial") != 0:
        for index in range(1, 5):
            ctx.expect_shape(index, x[1] if len(x) > 1 else 1)
    shapes: list[InferOne] = [x]
    return shapes + [statistics] * (ctx.outputs - 1)


BATCH_NORMALIZATION_1 = op("BatchNormalization", eval=_batch_normalization_1, infer=_infer_batch_normalization)
BATCH_NORMALIZATION = op("BatchNormalization", eval=_batch_normalization, infer=_infer_batch_normalization, since=14)


def _instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float) -> Array:
    if x.ndim < 3:
        raise ValueError(f"input of shape {x.shape} has no spatial axes: expected a rank of at least 3")
    with np.errstate(all="ignore"):
        result, _, _ = standardize(widen(x), tuple(range(2, x.ndim)), epsilon)
        result *= _per_channel(scale, x.ndim, x.shape[1], "scale")
        result += _per_channel(bias, x.ndim, x.shape[1], "B")
        return narrow(result, x.dtype)


def _infer_per_channel(ctx: InferContext) -> InferResult:
    """The shape of X; scale and bias have a value for each channel, or each group of channels before opset 21."""
    x, groups = ctx.shape(0), ctx.attr("num_groups")
    if x is not None and len(x) > 1:
        for index in (1, 2):
            ctx.expect_shape(index, x[1] if groups is None or ctx.version >= 21 else groups)
        if groups:
            ctx.expect_divisible(x[1], groups)
    return x


INSTANCE_NORMALIZATION = op("InstanceNormalization", eval=_instance_normalization, infer=_infer_per_channel)


def _grouped(x: Array, num_groups: int, epsilon: float) -> Array:
    """X standardised over each group of channels of each image."""
    if x.ndim < 2 or num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(f"X of shape {x.shape} cannot be divided into {num_groups} groups of channels")
    wide = widen(x)
    groups = wide.reshape(x.shape[0], num_groups, prod(x.shape[1:]) // num_groups)
    result, _, _ = standardize(groups, (2,), epsilon)
    return result.reshape(x.shape)


def _group_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int) -> Array:
    with np.errstate(all="ignore"):
        result = _grouped(x, num_groups, epsilon)
        result *= _per_channel(scale, x.ndim, x.shape[1], "scale")
        result += _per_channel(bias, x.ndim, x.shape[1], "bias")
        return narrow(result, x.dtype)


def _group_normalization_18(x: Array, scale: Array, bias: Array, *, epsilon: float, num_groups: int) -> Array:
    """Scale and bias have one value for each group."""
    for name, values in (("scale", scale), ("bias", bias)):
        if values.shape != (num_groups,):
            raise ValueError(f"{name} has shape {values.shape}, expected ({num_groups},): one value for each group")
    repeats = x.shape[1] // num_groups if x.ndim > 1 else 1
    return _group_normalization(x, scale.repeat(repeats), bias.repeat(repeats), epsilon=epsilon, num_groups=num_groups)


GROUP_NORMALIZATION_18 = op("GroupNormalization", eval=_group_normalization_18, infer=_infer_per_channel, since=18)
GROUP_NORMALIZATION = op("GroupNormalization", eval=_group_normalization, infer=_infer_per_channel, since=21)


def stash_dtype(stash_type: int | None) -> np.dtype[Any]:
    """The type in which statistics are returned."""
    return dtypes.from_onnx(stash_type or dtypes.FLOAT32.onnx).numpy


def _layer_normalization(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, ...]:
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    _check_scale(x.shape, scale.shape, "Scale")
    with np.errstate(all="ignore"):
        result, mean, inverse = standardize(widen(x), axes, epsilon)
        result = result * widen(scale)
        if bias is not None:
            _check_scale(x.shape, bias.shape, "B")
            result += widen(bias)
        stash = stash_dtype(stash_type)
        return narrow(result, x.dtype), narrow(mean, stash), narrow(inverse, stash)


def _check_scale(x: tuple[int, ...], scale: tuple[int, ...], name: str) -> None:
    fits = len(scale) <= len(x) and all(b in (1, a) for a, b in zip(x[::-1], scale[::-1], strict=False))
    if not fits:
        raise ValueError(f"{name} of shape {scale} does not broadcast to X of shape {x}")


def expect_scales(ctx: InferContext, *indices: int) -> None:
    """State that some inputs broadcast to the first."""
    x = ctx.shape(0)
    for index in indices:
        shape = ctx.shape(index) if ctx.has(index) else None
        if x is not None and shape is not None:
            ctx.expect_broadcast(shape, x)


def _infer_layer_normalization(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    expect_scales(ctx, 1, 2)
    if ctx.outputs == 1:
        return x
    statistics: Shape | None = None
    if x is not None:
        axis = normalize_axis(ctx.attr("axis"), len(x))
        statistics = x[:axis] + (1,) * (len(x) - axis)
    stash = TensorType(dtypes.from_onnx(ctx.attr("stash_type") or dtypes.FLOAT32.onnx), statistics)
    shapes: list[InferOne] = [x]
    return shapes + [stash] * (ctx.outputs - 1)


LAYER_NORMALIZATION = op("LayerNormalization", eval=_layer_normalization, infer=_infer_layer_normalization, since=17)


def _rms_normalization(x: Array, scale: Array, *, axis: int, epsilon: float) -> Array:
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    _check_scale(x.shape, scale.shape, "scale")
    wide = widen(x)
    with np.errstate(all="ignore"):
        inverse = 1 / np.sqrt(_mean(wide * wide, axes) + wide.dtype.type(epsilon))
        return narrow(wide * inverse * widen(scale), scale.dtype)


def _infer_rms_normalization(ctx: InferContext) -> InferResult:
    expect_scales(ctx, 1)
    return ctx.shape(0)


RMS_NORMALIZATION = op("RMSNormalization", eval=_rms_normalization, infer=_infer_rms_normalization, since=23)


def _lrn(x: Array, *, alpha: float, beta: float, bias: float, size: int) -> Array:
    if x.ndim < 2:
        raise ValueError(f"X of shape {x.shape} has no channel axis")
    wide = widen(x)
    dtype, channels = wide.dtype.type, x.shape[1]
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1")
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    with np.errstate(all="ignore"):
        squares = wide * wide
        total = np.zeros_like(wide)
        for shift in range(-before, after + 1):
            low, high = max(0, -shift), min(channels, channels - shift)
            if low < high:
                total[:, low:high] += squares[:, low + shift : high + shift]
        total *= dtype(alpha / size)
        total += dtype(bias)
        return narrow(wide / total ** dtype(beta), x.dtype)


LRN = op("LRN", eval=_lrn, infer=same_as(0))


def _lp_normalization(x: Array, *, axis: int, p: int) -> Array:
    if p not in (1, 2):
        raise ValueError(f"p is {p}, expected 1 or 2")
    wide = widen(x)
    along = normalize_axis(axis, x.ndim)
    with np.errstate(all="ignore"):
        if p == 1:
            norm = np.abs(wide).sum(axis=along, keepdims=True)
        else:
            norm = np.sqrt((wide * wide).sum(axis=along, keepdims=True))
        return narrow(np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0), x.dtype)


LP_NORMALIZATION = op("LpNormalization", eval=_lp_normalization, infer=same_as(0))


def _mean_variance_normalization(x: Array, *, axes: Sequence[int]) -> Array:
    wide = widen(x)
    along = tuple(sorted({normalize_axis(axis, x.ndim) for axis in axes}))
    with np.errstate(all="ignore"):
        centred = wide - _mean(wide, along)
        deviation = np.sqrt(_mean(centred * centred, along))
        return narrow(centred / (deviation + wide.dtype.type(1e-9)), x.dtype)


MEAN_VARIANCE_NORMALIZATION = op("MeanVarianceNormalization", eval=_mean_variance_normalization, infer=same_as(0), since=9)


def _dropout(
    data: Array, ratio: Array | None = None, training_mode: Array | None = None, *, seed: int | None, ctx: EvalContext
) -> tuple[Array, Array]:
    rate = 0.5 if ratio is None else float(np.asarray(ratio).reshape(()))
    training = training_mode is not None and bool(np.asarray(training_mode).reshape(()))
    if not training or rate == 0.0:
        return data, np.ones(data.shape, np.bool_)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"ratio is {rate}, expected 0 <= ratio < 1")
    if seed is None:
        mask = np.asarray(generator(ctx, None).random(data.shape, np.float32) >= rate)
    else:  # the series of numbers that ONNX' own definition draws
        repeated = ctx.state.get("repeated") or ctx.state.setdefault("repeated", np.random.RandomState(seed % 2**32))
        mask = np.asarray(repeated.uniform(0.0, 1.0, data.shape) >= rate)
    wide = widen(data)
    with np.errstate(all="ignore"):
        kept = np.asarray(wide * mask)  # what is dropped keeps its sign, NaN is NaN
        kept *= wide.dtype.type(1 / (1 - rate))
    return narrow(kept, data.dtype), mask


def _dropout_10(data: Array) -> tuple[Array, Array]:
    """The ratio matters in training only, which these versions leave to the framework; the mask is ONNX Runtime's, all zero."""
    return data, np.zeros(data.shape, np.bool_)


def _dropout_7(data: Array) -> tuple[Array, Array]:
    return data, np.zeros(data.shape, data.dtype)


def _dropout_1(data: Array) -> tuple[Array, Array]:
    return data, np.ones(data.shape, data.dtype)


def _infer_dropout(ctx: InferContext) -> InferResult:
    return [ctx.shape(0)] * ctx.outputs


DROPOUT_1 = op("Dropout", eval=_dropout_1, infer=_infer_dropout)
DROPOUT_7 = op("Dropout", eval=_dropout_7, infer=_infer_dropout, since=7)
DROPOUT_10 = op("Dropout", eval=_dropout_10, infer=_infer_dropout, since=10)
DROPOUT = op("Dropout", eval=_dropout, infer=_infer_dropout, since=12, traits=Trait.RANDOM)
