"""What the decoder loop makes of caches, so that keys and values can stay where they are.

AppendToCache, of Concat(past, new):

    cache[B, N, M, H]   with room for M positions, of which the first P (the length of `past`) are filled
    present             the cache with the new rows behind those, zeros behind them
    filled              its first P + S positions: what Concat gave

CachedAttention, of a MultiHeadAttention with past and present: the new keys and values are among those it is given.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.attention import split_heads
from sardonyx.ops.attention.contrib_attention import additive_mask, attend_added, expect_masks
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen


def _append_to_cache(cache: Array, new: Array, past: Array) -> tuple[Array, Array]:
    held, added, room = past.shape[0], new.shape[2], cache.shape[2]
    if held + added > room:
        raise ValueError(f"the cache has room for {room} positions, {held} are filled and {added} more do not fit")
    if (*cache.shape[:2], cache.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(f"the cache is {cache.shape}, new rows are {new.shape}: they may differ only on axis 2")
    present = np.zeros_like(cache)
    present[:, :, :held] = cache[:, :, :held]
    present[:, :, held : held + added] = new
    return present, present[:, :, : held + added].copy()


def _infer_append(ctx: InferContext) -> InferResult:
    cache, new, past = ctx.shape(0, rank=4), ctx.shape(1, rank=4), ctx.shape(2, rank=1)
    if cache is None or new is None or past is None:
        return [cache, None]
    batch, heads, room, size = cache
    ctx.expect_shape(1, batch, heads, new[2], size)
    filled = past[0] + new[2]
    ctx.expect_at_most(filled, room)
    return [cache, (batch, heads, filled, size)]


def _cached_attention(
    query: Array,
    keys: Array,
    values: Array,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None,
    scale: float | None,
    unidirectional: int,
) -> Array:
    batch, queries, total = query.shape[0], query.shape[1], keys.shape[2]
    if total < queries:
        raise ValueError(f"{total} keys for {queries} queries, whose own keys are among them")
    addends = [] if attention_bias is None else [widen(attention_bias)]
    addends += additive_mask(key_padding_mask, bool(unidirectional), batch, queries, total, total - queries, mask_filter_value)
    split = split_heads(widen(query), num_heads, "query")
    result, _ = attend_added(split, widen(keys), widen(values), scale, addends)
    return narrow(result, query.dtype)


def _infer_cached_attention(ctx: InferContext) -> InferResult:
    heads = int(ctx.attr("num_heads"))
    query, keys, values = ctx.shape(0, rank=3), ctx.shape(1, rank=4), ctx.shape(2, rank=4)
    if query is None or keys is None or values is None:
        return None
    batch, queries, hidden = query
    size, total = keys[3], keys[2]
    ctx.expect_equal(hidden, heads * size)
    ctx.expect_shape(1, batch, heads, total, size)
    ctx.expect_shape(2, batch, heads, total, values[3])
    ctx.expect_at_most(queries, total)
    expect_masks(ctx, 3, 4, (batch, heads, queries, total))
    return (batch, queries, heads * values[3])


APPEND_TO_CACHE = op("AppendToCache", domain="sardonyx", eval=_append_to_cache, infer=_infer_append, traits=Trait.REFUSES)
CACHED_ATTENTION = op("CachedAttention", domain="sardonyx", eval=_cached_attention, infer=_infer_cached_attention)
