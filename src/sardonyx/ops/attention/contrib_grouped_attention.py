"""Attention of com.microsoft with fewer key heads than query heads and a growing cache: GroupQueryAttention, SparseAttention.

The cache is a buffer [B, Nkv, M, H] with room for M positions. Each batch entry has its own number of positions so far; new
keys (rotated) and values are written behind them, and the present output is the buffer with zeros where nothing was written.
Letters in comments: B batch, S new positions, T positions in all, N query heads, Nkv key heads, H size of a head.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from sardonyx.ir.dims import Dim, dim_max, floordiv, product
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.attention.attention import attend, merge_heads, split_heads
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.attention.contrib_rotary import rotate_at
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul


def _heads_of(query: Array, key: Array | None, value: Array | None, heads: int, kv_heads: int) -> tuple[Array, Array, Array]:
    """Query [B, N, S, H], key and value [B, Nkv, S, H], out of three inputs or one that packs them."""
    if key is not None and value is not None:
        parts = [split_heads(part, kv_heads, name) for part, name in ((key, "key"), (value, "value"))]
        return widen(split_heads(query, heads, "query")), widen(parts[0]), widen(parts[1])
    packed = widen(split_heads(query, heads + 2 * kv_heads, "query"))
    return packed[:, :heads], packed[:, heads : heads + kv_heads], packed[:, heads + kv_heads :]


def _normalized(x: Array, weight: Array | None, epsilon: float) -> Array:
    """RMS normalization of each head, where a weight [H] is given."""
    if weight is None:
        return x
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * widen(weight))


class _CacheCodec:
    """How cache rows are stored: as they are, or quantized to 8 or 4 bits with a scale per tensor or per channel."""

    def __init__(self, dtype: np.dtype[Any], bits: int, scale: Array | None, per_channel: bool, kv_heads: int, size: int) -> None:
        self.dtype = dtype
        self.bits = bits
        self.size = size
        if bits not in (0, 4, 8):
            raise ValueError(f"kv_cache_bit_width is {bits}; expected 0, 4 or 8")
        if bits:
            if scale is None:
                raise ValueError("a quantized cache needs k_scale and v_scale")
            expected = kv_heads * size if per_channel else 1
            if scale.size != expected:
                raise ValueError(f"a cache scale has {scale.size} elements, expected {expected}")
            self.scale = scale.reshape((kv_heads, 1, size) if per_channel else (1, 1, 1)).astype(np.float32)

    @property
    def width(self) -> int:
        return (self.size + 1) // 2 if self.bits == 4 else self.size

    def encode(self, rows: Array) -> Array:
        """[Nkv, rows, H] floats as the cache stores them."""
        if not self.bits:
            return narrow(rows, self.dtype)
        inverse = np.float32(1) / np.where(self.scale == 0, np.float32(1), self.scale)
        limit = 1 << (self.bits - 1)
        whole = np.clip(np.rint(rows * inverse), -limit, limit - 1)
        if self.bits == 8:
            return whole.astype(self.dtype)
        nibbles = np.zeros((*rows.shape[:-1], 2 * self.width), np.uint8)
        nibbles[..., : self.size] = (whole + limit).astype(np.uint8)
        return np.asarray((nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(self.dtype))

    def decode(self, rows: Array) -> Array:
        """Stored rows as floats [Nkv, rows, H]."""
        if not self.bits:
            return widen(rows)
        if self.bits == 8:
            return rows.astype(np.float32) * self.scale
        packed = rows.astype(np.uint8)
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*rows.shape[:-1], -1)[..., : self.size]
        return (nibbles.astype(np.float32) - np.float32(8)) * self.scale


def _visible(queries: int, keys: int, first: int, causal: bool, window: int) -> Array:
    """Which of `keys` keys each query sees, if query 0 stands at position `first`: booleans [S, T]."""
    end = np.minimum(first + np.arange(queries) + 1, keys) if causal else np.full(queries, keys)
    position = np.arange(keys)
    seen = position < end[:, None]
    return seen & (position >= end[:, None] - window) if window >= 0 else seen


def _attend_with_sink(
    query: Array,
    keys: Array,
    values: Array,
    *,
    scale: float,
    bias: Array,
    softcap: float,
    sink: Array,
    capture: int | None,
) -> tuple[Array, Array | None]:
    """Attention of [N, S, H] over [Nkv, T, H], where one more key of score `sink` [N, 1, 1] takes weight but has no value.

    `capture` asks for scores as `attend` does: 2 with bias, 3 the probabilities.
    """
    group = query.shape[0] // keys.shape[0]
    result = np.empty((*query.shape[:2], values.shape[2]), query.dtype)
    captured = None if capture is None else np.empty((*query.shape[:2], keys.shape[1]), query.dtype)
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        heads = slice(number * group, (number + 1) * group)
        scores = matmul(query[heads], key.T) * np.float32(scale)
        if softcap:
            scores = np.tanh(scores / np.float32(softcap)) * np.float32(softcap)
        scores += bias[0, heads if bias.shape[1] > 1 else slice(None)]
        peak = np.maximum(scores.max(axis=-1, keepdims=True), sink[heads])
        weights = np.exp(scores - peak)
        total = weights.sum(axis=-1, keepdims=True) + np.exp(sink[heads] - peak)
        weights /= total
        result[heads] = matmul(weights, value)
        if captured is not None:
            captured[heads] = scores if capture == 2 else weights
    return result, captured


def _kept_rows(count: int, capacity: int, window: int) -> int:
    """How many of the last `count` positions a sliding cache holds: it drops blocks of capacity - window + 1 when it is full."""
    if count <= capacity:
        return count
    gap = capacity - window + 1
    return count - gap * -(-(count - capacity) // gap)


def _group_query_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    seqlens_k: Array | None = None,
    total_sequence_length: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    attention_bias: Array | None = None,
    head_sink: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float | None,
    softcap: float | None,
    local_window_size: int,
    do_rotary: int | None,
    rotary_interleaved: int | None,
    smooth_softmax: int,
    causal: int,
    qk_output: int,
    qk_norm_epsilon: float,
    kv_cache_bit_width: int | None,
    k_quant_type: str,
    v_quant_type: str,
    sliding_window_cache: int,
) -> tuple[Array | None, ...]:
    if seqlens_k is None or total_sequence_length is None:
        raise ValueError("seqlens_k and total_sequence_length are required")
    if num_heads % kv_num_heads:
        raise ValueError(f"num_heads ({num_heads}) is not a multiple of kv_num_heads ({kv_num_heads})")
    q, k, v = _heads_of(query, key, value, num_heads, kv_num_heads)
    batch, _, length, size = q.shape
    fresh = k.shape[2]  # new keys: as many as queries, or none if the cache is another layer's
    lengths = seqlens_k.reshape(-1).astype(np.int64) + 1
    if lengths.size != batch:
        raise ValueError(f"seqlens_k has {lengths.size} elements, expected one for each of the {batch} batch entries")
    total = int(total_sequence_length.reshape(-1)[0])
    prompt = length == total
    room = total if past_key is None else max(total, past_key.shape[2])
    sliding = bool(sliding_window_cache) and past_key is not None
    if sliding and past_key is not None:
        room = past_key.shape[2]
        if room < local_window_size:
            raise ValueError(
                f"the sliding cache has room for {room} positions, fewer than local_window_size ({local_window_size})"
            )
    elif (lengths < 1).any() or (lengths > room).any():
        raise ValueError(f"seqlens_k {seqlens_k.tolist()} must lie from 0 to {room - 1}: the cache has room for {room} positions")
    before = np.zeros(batch, np.int64) if prompt and not sliding else lengths - length
    if past_key is not None and past_value is not None:
        shape = (batch, kv_num_heads, past_key.shape[2])
        if past_key.shape[:3] != shape or past_value.shape[:3] != shape:
            raise ValueError(
                f"past_key is {past_key.shape}, past_value {past_value.shape}: expected ({batch}, {kv_num_heads}, length, size)"
            )
    if past_key is not None and fresh and not sliding and (before > past_key.shape[2]).any():
        raise ValueError(f"seqlens_k {seqlens_k.tolist()} needs more past positions than the cache has ({past_key.shape[2]})")
    if (before < 0).any():
        raise ValueError(f"seqlens_k {seqlens_k.tolist()} is too small for {length} new positions")
    q = _normalized(q, q_norm_weight, qk_norm_epsilon)
    k = _normalized(k, k_norm_weight, qk_norm_epsilon)
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary=1 needs cos_cache and sin_cache")
        positions = before[:, None] + np.arange(length)
        if position_ids is not None:
            # For a prompt only the first element counts: all entries start at the same position.
            positions = (
                position_ids if not prompt else position_ids.reshape(-1)[0] + np.broadcast_to(np.arange(length), (batch, length))
            )
        q = rotate_at(q, cos_cache, sin_cache, positions, bool(rotary_interleaved))
        if fresh:
            k = rotate_at(k, cos_cache, sin_cache, positions, bool(rotary_interleaved))
    # Keys and values take part as the cache holds them: rounded to its type.
    cache_dtype = query.dtype if past_key is None else past_key.dtype
    bits = kv_cache_bit_width or 0
    key_codec = _CacheCodec(cache_dtype, bits, k_scale, k_quant_type == "PER_CHANNEL", kv_num_heads, size)
    value_codec = _CacheCodec(cache_dtype, bits, v_scale, v_quant_type == "PER_CHANNEL", kv_num_heads, size)
    present_key = np.zeros((batch, kv_num_heads, room, key_codec.width), cache_dtype)
    present_value = np.zeros_like(present_key)
    output = np.empty(q.shape, np.float32)
    scores_out = np.zeros((batch, num_heads, length, total), np.float32) if qk_output else None
    sink = None
    if head_sink is not None:
        sink = widen(head_sink).reshape(num_heads, 1, 1)
    elif smooth_softmax == 1:
        sink = np.zeros((num_heads, 1, 1), np.float32)
    factor = scale or 1 / sqrt(size)
    capture = {0: None, 1: 2, 2: 3}[qk_output]
    for entry in range(batch):
        stop_if_asked()
        past = int(before[entry])
        if sliding:
            past = _kept_rows(past, room, local_window_size)
        stored = past if fresh else int(lengths[entry])
        rows_key, rows_value = key_codec.encode(k[entry]), value_codec.encode(v[entry])
        if past_key is not None and past_value is not None:
            rows_key = np.concatenate([past_key[entry, :, :stored], rows_key], axis=1)
            rows_value = np.concatenate([past_value[entry, :, :stored], rows_value], axis=1)
        kept = rows_key.shape[1]
        if sliding:
            kept = _kept_rows(int(lengths[entry]), room, local_window_size)
        present_key[entry, :, :kept] = rows_key[:, rows_key.shape[1] - kept :]
        present_value[entry, :, :kept] = rows_value[:, rows_value.shape[1] - kept :]
        attended = past + length if sliding else int(lengths[entry])
        keys, values = key_codec.decode(rows_key[:, :attended]), value_codec.decode(rows_value[:, :attended])
        seen = _visible(length, attended, past, bool(causal), local_window_size)
        bias = np.where(seen, np.float32(0), np.float32(-np.inf))[None, None]
        if attention_bias is not None:
            given = widen(attention_bias[entry if attention_bias.shape[0] > 1 else 0])[None]
            bias = bias + given[..., given.shape[-1] - attended if sliding else 0 :][..., :attended]
        how: dict[str, Any] = {"scale": factor, "bias": bias, "softcap": softcap or 0.0, "capture": capture}
        with np.errstate(invalid="ignore", over="ignore"):
            if sink is None:
                results, captured = attend(q[entry][None], keys[None], values[None], **how)
                result, scores = results[0], None if captured is None else captured[0]
            else:
                result, scores = _attend_with_sink(q[entry], keys, values, sink=sink, **how)
        output[entry] = result
        if scores_out is not None and scores is not None:
            scores_out[entry, :, :, :attended] = np.where(seen, scores, 0)
    narrowed = None if scores_out is None else narrow(scores_out, query.dtype)
    return narrow(merge_heads(output), query.dtype), present_key, present_value, narrowed


def _grouped_sizes(ctx: InferContext) -> tuple[Shape, Dim] | None:
    """Shape of the attention output [B, S, N*H] and the size of a head."""
    query, heads, kv_heads = ctx.shape(0, rank=3), int(ctx.attr("num_heads")), int(ctx.attr("kv_num_heads"))
    if query is None:
        return None
    size = floordiv(query[2], heads) if ctx.has(1) else floordiv(query[2], heads + 2 * kv_heads)
    return (query[0], query[1], query[2] if ctx.has(1) else size * heads), size


def _expect_grouped(ctx: InferContext, output: Shape, size: Dim) -> None:
    heads, kv_heads = int(ctx.attr("num_heads")), int(ctx.attr("kv_num_heads"))
    batch, length, _ = output
    query, past = ctx.shape(0), ctx.shape(3) if ctx.has(3) else None
    assert query is not None
    ctx.expect_divisible(query[2], heads if ctx.has(1) else heads + 2 * kv_heads)
    for index in (1, 2):
        ctx.expect_shape(index, batch, length, kv_heads * size)
    if past is not None and len(past) == 4 and not ctx.attr("kv_cache_bit_width"):
        for index in (3, 4):
            ctx.expect_shape(index, batch, kv_heads, past[2], size)
    ctx.expect_one_of(5, (batch,), (batch, 1))
    total = ctx.shape(6)
    ctx.expect_equal(product(total or ()), 1)
    cos = ctx.shape(7) if ctx.has(7) else None
    if cos is not None:
        ctx.expect_shape(8, *cos)
        ctx.expect_at_most(cos[-1] * 2, size)
    bias = ctx.shape(10) if ctx.has(10) else None
    if bias is not None and len(bias) == 4:
        ctx.expect_broadcast(bias[:3], (batch, heads, length))


def _infer_group_query(ctx: InferContext) -> InferResult:
    if ctx.attr("qk_output") not in range(3):
        raise ValueError(f"qk_output is {ctx.attr('qk_output')}: expected 0, 1 or 2")
    sizes = _grouped_sizes(ctx)
    dtype = ctx.dtype(3) if ctx.has(3) else ctx.dtype(0)
    if sizes is None:
        unknown = None if dtype is None else TensorType(dtype)
        return [None, unknown, unknown, None]
    output, size = sizes
    past, kv_heads = ctx.shape(3), int(ctx.attr("kv_num_heads"))
    known = ctx.dims(6)
    total: Dim = known[0] if known else ctx.fresh("total")
    _expect_grouped(ctx, output, size)
    width = past[3] if past is not None and len(past) == 4 else ctx.fresh("width") if ctx.has(3) else size
    room: Dim
    if past is None or len(past) != 4:
        room = ctx.fresh("room") if ctx.has(3) else total
    elif ctx.attr("sliding_window_cache"):
        room = past[2]
    else:
        room = dim_max(total, past[2])
    shape: Shape = (output[0], kv_heads, room, width)
    present: InferOne = shape if dtype is None else TensorType(dtype, shape)
    return [output, present, present, (output[0], int(ctx.attr("num_heads")), output[1], total)]


GROUP_QUERY_ATTENTION = op(
    "GroupQueryAttention", domain=MICROSOFT, eval=_group_query_attention, infer=_infer_group_query, traits=Trait.REFUSES
)


def _sparse_attention(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array,
    past_value: Array,
    block_row_indices: Array,
    block_col_indices: Array,
    total_sequence_length: Array,
    key_total_sequence_lengths: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    scale: float | None,
    sparse_block_size: int,
    do_rotary: int | None,
    rotary_interleaved: int | None,
) -> tuple[Array, Array, Array]:
    q, k, v = _heads_of(query, key, value, num_heads, kv_num_heads)
    batch, _, length, _ = q.shape
    lengths = key_total_sequence_lengths.reshape(-1).astype(np.int64)
    total = int(total_sequence_length.reshape(-1)[0])
    if (lengths > past_key.shape[2]).any() or total > past_key.shape[2]:
        raise ValueError(f"the cache has room for {past_key.shape[2]} positions, {max(total, int(lengths.max()))} are needed")
    before = np.zeros(batch, np.int64) if length == total else lengths - length
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary=1 needs cos_cache and sin_cache")
        positions = before[:, None] + np.arange(length)
        q = rotate_at(q, cos_cache, sin_cache, positions, bool(rotary_interleaved))
        k = rotate_at(k, cos_cache, sin_cache, positions, bool(rotary_interleaved))
    k, v = narrow(k, past_key.dtype), narrow(v, past_value.dtype)
    present_key, present_value = past_key.copy(), past_value.copy()
    output = np.empty(q.shape, np.float32)
    layouts = _block_layouts(block_row_indices, block_col_indices)
    for entry in range(batch):
        stop_if_asked()
        past, attended = int(before[entry]), int(lengths[entry])
        present_key[entry, :, past : past + length] = k[entry]
        present_value[entry, :, past : past + length] = v[entry]
        keys, values = widen(present_key[entry, :, :attended]), widen(present_value[entry, :, :attended])
        seen = _visible(length, attended, past, True, -1)
        rows = np.minimum((past + np.arange(length)) // sparse_block_size, layouts.shape[1] - 1)
        columns = np.arange(attended) // sparse_block_size
        blocks = layouts[:, rows[:, None], columns[None, :]]  # [layouts, S, T]
        allowed = seen & blocks[np.arange(num_heads) % layouts.shape[0]]
        bias = np.where(allowed, np.float32(0), np.float32(-np.inf))[None]
        factor = scale or 1 / sqrt(q.shape[-1])
        output[entry] = attend(q[entry][None], keys[None], values[None], scale=factor, bias=bias)[0][0]
    return narrow(merge_heads(output), query.dtype), present_key, present_value


def _block_layouts(rows: Array, columns: Array) -> Array:
    """Layouts in compressed rows, [layouts, blocks + 1] and [layouts, entries], as booleans [layouts, blocks, blocks]."""
    layouts, blocks = rows.shape[0], rows.shape[1] - 1
    counts = np.diff(rows, axis=1)
    if (counts < 0).any() or (rows[:, -1] > columns.shape[1]).any():
        raise ValueError(f"block_row_indices {rows.tolist()} does not describe {columns.shape[1]} column indices per layout")
    dense = np.zeros((layouts, blocks, blocks), bool)
    for layout in range(layouts):
        used = columns[layout, : rows[layout, -1]]
        if ((used < 0) | (used >= blocks)).any():
            raise ValueError(f"block_col_indices name blocks outside 0 to {blocks - 1}")
        dense[layout, np.repeat(np.arange(blocks), counts[layout]), used] = True
    return dense


def _infer_sparse(ctx: InferContext) -> InferResult:
    sizes = _grouped_sizes(ctx)
    return [None if sizes is None else sizes[0], ctx.shape(3), ctx.shape(4)]


SPARSE_ATTENTION = op("SparseAttention", domain=MICROSOFT, eval=_sparse_attention, infer=_infer_sparse)
