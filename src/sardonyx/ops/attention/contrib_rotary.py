"""Rotary position embeddings of com.microsoft: RotaryEmbedding, and MRotaryEmbedding with several position axes."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.dims import floordiv
from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.attention import merge_heads, rotate, split_heads
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.precision import narrow, widen


def rotate_at(x: Array, cos_cache: Array, sin_cache: Array, positions: Array, interleaved: bool) -> Array:
    """Rotate the first dimensions of every head of [B, N, S, H] by the angles of its position [B, S].

    The caches [M, R/2] say how many dimensions R take part.
    """
    if positions.size and (positions.min() < 0 or positions.max() >= cos_cache.shape[0]):
        raise ValueError(
            f"positions from {positions.min()} to {positions.max()}, but the cosine cache holds {cos_cache.shape[0]} of them"
        )
    if 2 * cos_cache.shape[1] > x.shape[-1]:
        raise ValueError(f"the caches rotate {2 * cos_cache.shape[1]} dimensions, but a head has {x.shape[-1]}")
    cos, sin = (widen(cache)[positions][:, None] for cache in (cos_cache, sin_cache))
    return rotate(x, cos, sin, interleaved=interleaved)


def _heads_first(x: Array, num_heads: int | None, half: int) -> Array:
    """[B, S, hidden] or [B, N, S, H] as [B, N, S, H]; without num_heads a head is as large as the caches say."""
    if x.ndim == 4:
        return x
    if x.ndim != 3:
        raise ValueError(f"the input has rank {x.ndim}, expected 3 (batch, sequence, hidden) or 4 (batch, heads, sequence, size)")
    heads = num_heads or x.shape[-1] // (2 * half)
    if not heads:
        raise ValueError(f"the caches rotate {2 * half} dimensions, but the hidden size is {x.shape[-1]}")
    return split_heads(x, heads, "the input")


def _rotary_embedding(
    x: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int | None,
    num_heads: int | None,
    rotary_embedding_dim: int | None,
    scale: float | None,
) -> Array:
    if rotary_embedding_dim and rotary_embedding_dim != 2 * cos_cache.shape[1]:
        raise ValueError(
            f"rotary_embedding_dim is {rotary_embedding_dim}, but the caches rotate {2 * cos_cache.shape[1]} dimensions"
        )
    heads = widen(_heads_first(x, num_heads, cos_cache.shape[1]))
    batch, _, length, _ = heads.shape
    if position_ids.size == 1:
        positions = position_ids.reshape(()) + np.broadcast_to(np.arange(length), (batch, length))
    elif position_ids.shape == (batch, length):
        positions = position_ids
    else:
        raise ValueError(f"position_ids is {position_ids.shape}, expected one element or ({batch}, {length})")
    rotated = rotate_at(heads, cos_cache, sin_cache, positions, bool(interleaved))
    return narrow(rotated if x.ndim == 4 else merge_heads(rotated), x.dtype)


def _infer_rotary_embedding(ctx: InferContext) -> InferResult:
    shape, positions, cos = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if shape is None or len(shape) not in (3, 4) or cos is None or len(cos) != 2:
        return shape
    heads = ctx.attr("num_heads") or None
    hidden = shape[-1]
    if len(shape) == 3 and heads is not None:
        ctx.expect_divisible(hidden, heads)
    ctx.expect_at_most(cos[1] * 2, hidden if len(shape) == 4 or heads is None else floordiv(hidden, heads))
    ctx.expect_shape(3, *cos)
    if positions is not None and len(positions) == 2 and any(size != 1 for size in positions):
        ctx.expect_shape(1, shape[0], shape[-2] if len(shape) == 4 else shape[1])
    elif positions is not None and len(positions) == 1:
        ctx.expect_shape(1, 1)
    return shape


ROTARY_EMBEDDING = op(
    "RotaryEmbedding", domain=MICROSOFT, eval=_rotary_embedding, infer=_infer_rotary_embedding, traits=Trait.REFUSES
)


def streams_of_columns(section: tuple[int, ...], layout: int | None, half: int) -> Array:
    """Which of the three position streams (time, height, width) gives the angle of each of the R/2 columns."""
    if len(section) != 3 or sum(section) != half or min(section) < 0:
        raise ValueError(f"mrope_section is {list(section)}, expected three sizes with the sum {half}")
    if not layout:
        return np.repeat(np.arange(3), section)
    streams = np.zeros(half, np.int64)
    for stream in (1, 2):
        streams[stream : min(3 * section[stream], half) : 3] = stream
    return streams


def _multi_axis_rotary_embedding(
    x: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int | None,
    num_heads: int | None,
    mrope_section: tuple[int, ...],
    mrope_layout: int | None,
    scale: float | None,
) -> Array:
    heads = widen(_heads_first(x, num_heads, cos_cache.shape[1]))
    batch, _, length, _ = heads.shape
    if position_ids.shape != (3, batch, length):
        raise ValueError(f"position_ids is {position_ids.shape}, expected (3, {batch}, {length})")
    if position_ids.size and (position_ids.min() < 0 or position_ids.max() >= cos_cache.shape[0]):
        raise ValueError(f"position_ids must lie from 0 to {cos_cache.shape[0] - 1}, the positions the caches hold")
    columns = np.arange(cos_cache.shape[1])
    rows = np.moveaxis(position_ids[streams_of_columns(mrope_section, mrope_layout, columns.size)], 0, -1)  # [B, S, R/2]
    factor = np.float32(1 if scale is None else scale)
    cos, sin = (narrow(widen(cache)[rows, columns] * factor, x.dtype)[:, None] for cache in (cos_cache, sin_cache))
    rotated = rotate(heads, widen(cos), widen(sin), interleaved=bool(interleaved))
    return narrow(rotated if x.ndim == 4 else merge_heads(rotated), x.dtype)


MULTI_AXIS_ROTARY_EMBEDDING = op("MRotaryEmbedding", domain=MICROSOFT, eval=_multi_axis_rotary_embedding, infer=same_as(0))
