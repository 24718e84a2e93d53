"""Layer normalizations ONNX Runtime had before the standard, and their fused forms in com.microsoft.

LayerNormalization-1 and SimplifiedLayerNormalization live in ai.onnx; the latter is the RMS normalization of later opsets.
The forms with `Skip` normalize a sum, which is an output too; those with `Embed` normalize looked-up embeddings.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.elementwise.special import sigmoid
from sardonyx.ops.infer import InferContext, InferOne, InferResult, normalize_axis, same_as
from sardonyx.ops.precision import narrow, rounded_once, widen
from sardonyx.ops.rows.norm import expect_scales, standardize, stash_dtype

_STATISTICS: Final = np.dtype(np.float32)


def _root_mean_square(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array]:
    """x / sqrt(mean(x * x) + epsilon) over the axes, and the reciprocal of the root."""
    inverse = np.asarray(1 / np.sqrt(np.mean(x * x, axis=axes, keepdims=True) + x.dtype.type(epsilon)))
    return np.asarray(x * inverse), inverse


def _layer_normalization_1(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float, stash_type: int
) -> tuple[Array, Array, Array]:
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    with np.errstate(all="ignore"):
        result, mean, inverse = standardize(widen(x), axes, epsilon)
        result = result * widen(scale)
        if bias is not None:
            result = result + widen(bias)
    stash = stash_dtype(stash_type)
    return narrow(result, scale.dtype), narrow(mean, stash), narrow(inverse, stash)


def _simplified_layer_normalization(x: Array, scale: Array, *, axis: int, epsilon: float, stash_type: int) -> tuple[Array, Array]:
    axes = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    with np.errstate(all="ignore"):
        result, inverse = _root_mean_square(widen(x), axes, epsilon)
        return narrow(result * widen(scale), scale.dtype), narrow(inverse, stash_dtype(stash_type))


def _infer_layer_normalization_1(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    expect_scales(ctx, 1, 2)
    statistics: Shape | None = None
    if shape is not None:
        axis = normalize_axis(ctx.attr("axis"), len(shape))
        statistics = shape[:axis] + (1,) * (len(shape) - axis)
    stash = TensorType(dtypes.from_numpy(stash_dtype(ctx.attr("stash_type"))), statistics)
    first: list[InferOne] = [shape]
    return first + [stash] * (ctx.outputs - 1)


LAYER_NORMALIZATION_1 = op("LayerNormalization", eval=_layer_normalization_1, infer=_infer_layer_normalization_1)
SIMPLIFIED_LAYER_NORMALIZATION = op(
    "SimplifiedLayerNormalization", eval=_simplified_layer_normalization, infer=_infer_layer_normalization_1
)


def _skip_sum(x: Array, skip: Array, bias: Array | None) -> Array:
    if x.ndim not in (2, 3) or skip.shape[-2:] != x.shape[-2:]:
        raise ValueError(f"input is {x.shape} and skip {skip.shape}: expected 2 or 3 axes, of which the last two agree")
    total = widen(x) + widen(skip)
    return np.asarray(total if bias is None else total + widen(bias))


def _scaled(x: Array, gamma: Array) -> Array:
    if gamma.shape != x.shape[-1:]:
        raise ValueError(f"gamma is {gamma.shape}, expected ({x.shape[-1]},): one element per hidden unit")
    return np.asarray(x * widen(gamma))


def _skip_layer_normalization(
    x: Array, skip: Array, gamma: Array, beta: Array | None = None, bias: Array | None = None, *, epsilon: float
) -> tuple[Array, Array, Array, Array]:
    with np.errstate(all="ignore"):
        total = _skip_sum(x, skip, bias)
        result, mean, inverse = standardize(total, (total.ndim - 1,), epsilon)
        result = _scaled(result, gamma)
        if beta is not None:
            result = result + widen(beta)
    return narrow(result, x.dtype), narrow(mean, _STATISTICS), narrow(inverse, _STATISTICS), narrow(total, x.dtype)


def _skip_simplified_layer_normalization(
    x: Array, skip: Array, gamma: Array, bias: Array | None = None, *, epsilon: float
) -> tuple[Array, None, Array, Array]:
    with np.errstate(all="ignore"):
        total = _skip_sum(x, skip, bias)
        result, inverse = _root_mean_square(total, (total.ndim - 1,), epsilon)
        return narrow(_scaled(result, gamma), x.dtype), None, narrow(inverse, _STATISTICS), narrow(total, x.dtype)


def _infer_skip(ctx: InferContext) -> InferResult:
    shape, skip = ctx.shape(0), ctx.shape(1)
    if shape is not None and skip is not None and len(shape) >= 2 and len(skip) >= 2:
        ctx.expect_broadcast(skip, shape)
        for size, other in zip(skip[-2:], shape[-2:]):
            ctx.expect_equal(size, other)
        for index in range(2, 5):
            ctx.expect_shape(index, shape[-1])
    statistics = TensorType(dtypes.FLOAT32, None if shape is None else (*shape[:-1], 1))
    return [shape, statistics, statistics, shape]


SKIP_LAYER_NORMALIZATION = op("SkipLayerNormalization", domain=MICROSOFT, eval=_skip_layer_normalization, infer=_infer_skip)
SKIP_SIMPLIFIED_LAYER_NORMALIZATION = op(
    "SkipSimplifiedLayerNormalization", domain=MICROSOFT, eval=_skip_simplified_layer_normalization, infer=_infer_skip
)


def checked_rows(table: Array, ids: Array, name: str) -> Array:
    """Rows of an embedding table; ValueError if there are no such rows."""
    if ids.size and (ids.min() < 0 or ids.max() >= table.shape[0]):
        raise ValueError(f"{name} run from {ids.min()} to {ids.max()}, but the embedding has {table.shape[0]} rows")
    return table[ids]


def normalized_embedding(total: Array, gamma: Array, beta: Array, epsilon: float) -> Array:
    """A sum of embeddings [B, S, hidden], normalized over the last axis."""
    with np.errstate(all="ignore"):
        result, _, _ = standardize(total, (total.ndim - 1,), epsilon)
        return np.asarray(_scaled(result, gamma) + widen(beta))


def mask_lengths(mask: Array | None, batch: int) -> Array:
    """How many positions of each batch entry a mask holds; zeros without a mask."""
    return np.zeros(batch, np.int32) if mask is None else np.count_nonzero(mask == 1, axis=1).astype(np.int32)


def _embed_layer_normalization(
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    positions = np.arange(input_ids.shape[1]) if position_ids is None else position_ids
    total = widen(checked_rows(word_embedding, input_ids, "input_ids"))
    total = total + widen(checked_rows(position_embedding, positions, "positions"))
    if segment_embedding is not None:
        segments = np.zeros_like(input_ids) if segment_ids is None else segment_ids
        total = total + widen(checked_rows(segment_embedding, segments, "segment_ids"))
    result = narrow(normalized_embedding(total, gamma, beta, epsilon), word_embedding.dtype)
    return result, mask_lengths(mask, input_ids.shape[0]), narrow(total, word_embedding.dtype)


def infer_embedding(ctx: InferContext) -> InferResult:
    """Shape rule of EmbedLayerNormalization and its quantized form."""
    ids, table = ctx.shape(0, rank=2), ctx.shape(2, rank=2)
    lengths: InferOne = None if ids is None else (ids[0],)
    result: InferOne = None if ids is None or table is None else (*ids, table[1])
    return [result, lengths, result][: max(ctx.outputs, 1)]


EMBED_LAYER_NORMALIZATION = op(
    "EmbedLayerNormalization", domain=MICROSOFT, eval=_embed_layer_normalization, infer=infer_embedding, traits=Trait.REFUSES
)


def _group_norm_core(
    x: Array, gamma: Array, beta: Array, groups: int, epsilon: float, activation: int, channels_last: int
) -> Array:
    """Group normalization of a wide array, with x * sigmoid(x) behind it if `activation` is 1."""
    first = np.moveaxis(x, -1, 1) if channels_last else x
    batch, channels = first.shape[:2]
    if channels % groups:
        raise ValueError(f"{channels} channels cannot be divided into {groups} groups")
    grouped = np.ascontiguousarray(first).reshape(batch, groups, prod(first.shape[1:]) // groups)
    result = standardize(grouped, (2,), epsilon)[0].reshape(first.shape)
    channel_shape = (channels, *(1,) * (first.ndim - 2))
    result = result * widen(gamma).reshape(channel_shape) + widen(beta).reshape(channel_shape)
    if activation:
        result = result * sigmoid(result)
    return np.moveaxis(result, 1, -1) if channels_last else result


def _group_norm(
    x: Array, gamma: Array, beta: Array, *, activation: int, channels_last: int, epsilon: float, groups: int
) -> Array:
    with np.errstate(all="ignore"):
        return narrow(_group_norm_core(widen(x), gamma, beta, groups, epsilon, activation, channels_last), x.dtype)


def _skip_group_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    skip: Array,
    bias: Array | None = None,
    *,
    activation: int,
    channels_last: int,
    epsilon: float,
    groups: int,
) -> tuple[Array, Array]:
    channel_axis = x.ndim - 1 if channels_last else 1
    added = widen(skip)
    if added.ndim == 2:  # [N, C]: the same for every position
        added = added.reshape(added.shape[0], *(added.shape[1] if axis == channel_axis else 1 for axis in range(1, x.ndim)))
    with np.errstate(all="ignore"):
        total = widen(x) + added
        if bias is not None:
            total = total + widen(bias).reshape([-1 if axis == channel_axis else 1 for axis in range(x.ndim)])
        result = _group_norm_core(total, gamma, beta, groups, epsilon, activation, channels_last)
    return narrow(result, x.dtype), narrow(total, x.dtype)


def _infer_group_norm(ctx: InferContext) -> InferResult:
    x = ctx.shape(0)
    if x is not None and len(x) > 1:
        channels = x[-1 if ctx.attr("channels_last") else 1]
        ctx.expect_divisible(channels, ctx.attr("groups"))
        for index in (1, 2):
            ctx.expect_shape(index, channels)
    return x


GROUP_NORM = op("GroupNorm", domain=MICROSOFT, eval=_group_norm, infer=_infer_group_norm)
SKIP_GROUP_NORM = op("SkipGroupNorm", domain=MICROSOFT, eval=_skip_group_norm, infer=lambda ctx: [ctx.shape(0)] * ctx.outputs)


def _gated_rms_norm(x: Array, scale: Array, gate: Array, *, activation: str, epsilon: float) -> Array:
    """RMS normalization of runs of len(scale) elements, times an activation of the gate."""
    if not scale.size or x.shape[-1] % scale.size or gate.shape != x.shape:
        raise ValueError(f"X is {x.shape}, scale {scale.shape}, gate {gate.shape}: runs as long as scale must fill rows of X")
    if activation not in ("silu", "swish", "sigmoid"):
        raise ValueError(f"activation is {activation!r}; expected silu, swish or sigmoid")

    def compute(values: Array, factors: Array, gates: Array) -> Array:
        runs, _ = _root_mean_square(values.reshape(*values.shape[:-1], -1, factors.size), (values.ndim,), epsilon)
        opened = sigmoid(gates) if activation == "sigmoid" else gates * sigmoid(gates)
        return np.asarray((runs * factors).reshape(values.shape) * opened)

    return rounded_once(compute, x, scale, gate)


GATED_RMS_NORM = op("GatedRMSNorm", domain=MICROSOFT, eval=_gated_rms_norm, infer=same_as(0))
