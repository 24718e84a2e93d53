"""Attention of com.microsoft with as many key heads as query heads: Attention, MultiHeadAttention, its decoding form.

Masks are added to the scaled scores, as ONNX Runtime does it: a row whose keys are all masked with the (finite) filter value
still attends to them. What a causal mask forbids gets the lowest float instead.
Letters in comments: B batch, S new queries, L new keys, P past keys, T = P + L, N heads, H size of a head.
"""

from __future__ import annotations

from functools import reduce
from math import sqrt
from typing import Any

import numpy as np

from sardonyx.ir.dims import Dim, floordiv
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.attention.attention import attend, merge_heads, split_heads
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul

MICROSOFT = "com.microsoft"
_LOWEST = np.finfo(np.float32).min
_MASK_FILTER = -10000.0  # what a mask adds unless mask_filter_value says otherwise


def attend_added(
    query: Array, key: Array, value: Array, scale: float | None, addends: list[Array], *, capture: bool = False
) -> tuple[Array, Array | None]:
    """Attention over [B, N, T, H] with arrays added to the scores: the result [B, S, N*Hv], and the scores if asked for."""
    with np.errstate(over="ignore", invalid="ignore"):
        bias = reduce(np.add, addends) if addends else None
        result, scores = attend(
            query, key, value, scale=scale or 1 / sqrt(query.shape[-1]), bias=bias, capture=2 if capture else None
        )
    return merge_heads(result), scores


def additive_mask(
    mask: Array | None, causal: bool, batch: int, queries: int, keys: int, past: int, filter_value: float | None
) -> list[Array]:
    """A mask of any accepted form, and the causal one, as at most one array that broadcasts against [B, N, S, T]."""
    filtered = np.float32(_MASK_FILTER if filter_value is None else filter_value)
    causal = causal and queries > 1
    if mask is None and not causal:
        return []
    allowed = np.ones((1, 1, 1, keys), bool) if mask is None else _allowed_keys(mask, batch, queries, keys, past)
    added = np.where(allowed, np.float32(0), filtered)
    if causal:
        reach = np.arange(keys) <= past + np.arange(queries)[:, None]
        reach[-1] = True  # the last query sees every key, also where there are more keys than queries
        added = np.where(reach, added, _LOWEST)
    return [added]


def _allowed_keys(mask: Array, batch: int, queries: int, keys: int, past: int) -> Array:
    """Which keys may be attended to, as booleans that broadcast against [B, N, S, T]."""
    position = np.arange(keys)
    if mask.ndim == 1 and mask.shape[0] in (batch, 2 * batch, 3 * batch + 2):
        if (mask[:batch] < 0).any():
            raise ValueError(f"mask_index holds negative key lengths: {mask[:batch].tolist()}")
        allowed = position < mask[:batch, None]
        if mask.shape[0] == 2 * batch:
            allowed &= position >= mask[batch:, None]
        return allowed[:, None, None, :]
    if mask.ndim == 2 and mask.shape == (batch, keys):
        return (mask > 0)[:, None, None, :]
    if mask.ndim == 2 and mask.shape in ((batch, 1), (1, 1)):  # a placeholder that masks nothing
        return np.ones((1, 1, 1, keys), bool)
    if mask.ndim == 3 and mask.shape == (batch, queries, keys):
        return (mask > 0)[:, None]
    if mask.ndim == 4 and mask.shape[:2] == (batch, 1) and mask.shape[2] == mask.shape[3] >= keys:
        return mask[:, :, past : past + queries, :keys] > 0
    raise ValueError(
        f"the mask is {mask.shape}; expected ({batch},), ({2 * batch},), ({batch}, {keys}), ({batch}, {queries}, {keys}) "
        f"or ({batch}, 1, M, M) with M >= {keys}"
    )


def _appended(past: Array | None, new: Array, at: int | None) -> tuple[Array, Array]:
    """All keys (or values) so far, and what is handed on: the same, or with `at` the past buffer with the new rows written in."""
    if past is None:
        return new, new
    if at is None:
        joined = np.concatenate([past, new], axis=2)
        return joined, joined
    end = at + new.shape[2]
    if at < 0 or end > past.shape[2]:
        raise ValueError(f"the past buffer has room for {past.shape[2]} positions, {end} are needed from {at} on")
    buffer = past.copy()
    buffer[:, :, at:end] = new
    return buffer[:, :, :end], buffer


def _attention(
    input: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    num_heads: int,
    unidirectional: int,
    qkv_hidden_sizes: tuple[int, ...] | None,
    past_present_share_buffer: int | None,
    do_rotary: int | None,
    mask_filter_value: float | None,
    scale: float | None,
) -> tuple[Array, ...]:
    if do_rotary:
        raise ValueError("do_rotary=1 is not supported: use RotaryEmbedding and MultiHeadAttention")
    projected = matmul(widen(input), widen(weights))
    if bias is not None:
        projected = projected + widen(bias)
    return attend_projected(
        projected, mask_index, past, attention_bias, past_sequence_length, input.dtype, num_heads=num_heads,
        unidirectional=unidirectional, qkv_hidden_sizes=qkv_hidden_sizes, share_buffer=bool(past_present_share_buffer),
        mask_filter_value=mask_filter_value, scale=scale,
    )  # fmt: skip


def attend_projected(
    projected: Array,
    mask_index: Array | None,
    past: Array | None,
    attention_bias: Array | None,
    past_sequence_length: Array | None,
    dtype: np.dtype[Any],
    *,
    num_heads: int,
    unidirectional: int,
    qkv_hidden_sizes: tuple[int, ...] | None,
    share_buffer: bool,
    mask_filter_value: float | None,
    scale: float | None,
) -> tuple[Array, ...]:
    """Attention after its projection: [B, S, D + D + Dv] in, result and present state [2, B, N, T, H] out."""
    q_size, k_size, _ = qkv_hidden_sizes or (projected.shape[-1] // 3,) * 3
    query, key, value = (
        split_heads(part, num_heads, "the projection") for part in np.split(projected, [q_size, q_size + k_size], axis=-1)
    )
    at = int(past_sequence_length.reshape(-1)[0]) if share_buffer and past_sequence_length is not None else None
    keys, present_key = _appended(None if past is None else widen(past[0]), key, at)
    values, present_value = _appended(None if past is None else widen(past[1]), value, at)
    batch, queries, total = projected.shape[0], projected.shape[1], keys.shape[2]
    addends = [] if attention_bias is None else [widen(attention_bias)]
    addends += additive_mask(mask_index, bool(unidirectional), batch, queries, total, total - queries, mask_filter_value)
    result, _ = attend_added(query, keys, values, scale, addends)
    if present_key.shape != present_value.shape:  # heads of V of another size: there is no present state
        return (narrow(result, dtype),)
    return narrow(result, dtype), narrow(np.stack([present_key, present_value]), dtype)


def _packed_hidden(ctx: InferContext) -> Dim | None:
    """Hidden size of V, from the attribute or a third of the weights' columns."""
    sizes = ctx.attr("qkv_hidden_sizes")
    weights = ctx.shape(1)
    if sizes:
        if len(sizes) != 3:
            raise ValueError(f"qkv_hidden_sizes has {len(sizes)} elements, expected 3: of Q, K and V")
        return int(sizes[2])
    return None if weights is None or len(weights) != 2 else floordiv(weights[1], 3)


def infer_packed_attention(past_index: int) -> Any:
    """Shape rule of Attention and QAttention, whose past state is the input `past_index`."""

    def rule(ctx: InferContext) -> InferResult:
        shape, hidden = ctx.shape(0, rank=3), _packed_hidden(ctx)
        if shape is None or hidden is None:
            return [None, None]
        heads = int(ctx.attr("num_heads"))
        past = ctx.shape(past_index)
        if ctx.has(past_index) and (past is None or len(past) != 5):
            total = ctx.fresh("total")
        elif past is None:
            total = shape[1]
        else:
            total = past[3] if ctx.attr("past_present_share_buffer") else past[3] + shape[1]
        if past_index == 4:
            _expect_packed(ctx, shape, hidden, total, past)
        present: InferOne = (2, shape[0], heads, total, floordiv(hidden, heads))
        return [(shape[0], shape[1], hidden), present]

    return rule


def _expect_packed(ctx: InferContext, shape: Shape, hidden: Dim, total: Dim, past: Shape | None) -> None:
    weights, sizes = ctx.shape(1), ctx.attr("qkv_hidden_sizes")
    heads = int(ctx.attr("num_heads"))
    if weights is None or len(weights) != 2:
        return
    ctx.expect_equal(weights[0], shape[2])
    ctx.expect_equal(sum(sizes) if sizes else hidden * 3, weights[1])
    for size in (hidden, *(sizes or ())):
        ctx.expect_divisible(size, heads)
    ctx.expect_shape(2, weights[1])
    if past is not None and len(past) == 5:
        for size, other in zip(past, (2, shape[0], heads, past[3], floordiv(hidden, heads))):
            ctx.expect_equal(size, other)
    expect_masks(ctx, 3, 5, (shape[0], heads, shape[1], total))


def expect_masks(ctx: InferContext, mask_index: int, bias_index: int, scores: Shape) -> None:
    """State what a mask and a bias must be for scores of this shape; a mask with other sizes is left to NumPy."""
    batch, _, queries, total = scores
    mask, bias = (ctx.shape(index) if ctx.has(index) else None for index in (mask_index, bias_index))
    if mask is not None and len(mask) == 1:
        with_more = (2 * batch, 3 * batch + 2)  # ends of sequences and their starts, or what only other devices read
        ctx.expect_shape(mask_index, mask[0] if mask[0] in with_more else batch)
    elif mask is not None and len(mask) in (2, 3):
        ctx.expect_shape(mask_index, *{2: (batch, total), 3: (batch, queries, total)}[len(mask)])
    if bias is not None:
        ctx.expect_broadcast(bias, scores)


ATTENTION = op("Attention", domain=MICROSOFT, eval=_attention, infer=infer_packed_attention(4), traits=Trait.REFUSES)


def _multi_head_inputs(
    query: Array, key: Array | None, value: Array | None, bias: Array | None, heads: int
) -> tuple[Array, Array, Array]:
    """Query, key and value as [B, N, S or L, H], out of every packing, with the bias added."""
    query = widen(query)
    for name, packed, count in (("query", query, 3), ("key", key, 2)):
        if packed is not None and packed.ndim == 5 and packed.shape[2:4] != (heads, count):
            raise ValueError(
                f"{name} is {packed.shape}, expected (batch, length, {heads}, {count}, size): {heads} heads of {count}"
            )
    for name, part in (("key", key), ("value", value)):
        if part is not None and part.ndim == 4 and part.shape[1] != heads:
            raise ValueError(f"{name} is {part.shape}, expected (batch, {heads}, length, size)")
    if query.ndim == 5:  # [B, S, N, 3, H]
        parts = [query[:, :, :, index].transpose(0, 2, 1, 3) for index in range(3)]
    elif key is None:
        raise ValueError("key is missing; it may be left out only if query packs all three as (batch, length, heads, 3, size)")
    elif key.ndim == 5:  # [B, L, N, 2, H]
        packed = widen(key)
        parts = [split_heads(query, heads, "query"), *(packed[:, :, :, index].transpose(0, 2, 1, 3) for index in range(2))]
    elif value is None:
        raise ValueError("value is missing; it may be left out only if key packs both as (batch, length, heads, 2, size)")
    elif key.ndim == 4:  # already [B, N, L, H], as a cross attention keeps them: no bias belongs to them
        parts = [split_heads(query, heads, "query"), widen(key), widen(value)]
        if bias is not None:
            parts[0] = parts[0] + _head_bias(widen(bias)[: query.shape[-1]], heads)
        return parts[0], parts[1], parts[2]
    else:
        parts = [split_heads(widen(part), heads, name) for part, name in ((query, "query"), (key, "key"), (value, "value"))]
    if bias is not None:
        sizes = [part.shape[1] * part.shape[3] for part in parts]
        if bias.shape != (sum(sizes),):
            raise ValueError(f"bias is {bias.shape}, expected ({sum(sizes)},): one element per hidden unit of Q, K and V")
        biases = np.split(widen(bias), [sizes[0], sizes[0] + sizes[1]])
        parts = [part + _head_bias(added, heads) for part, added in zip(parts, biases, strict=True)]
    return parts[0], parts[1], parts[2]


def _head_bias(bias: Array, heads: int) -> Array:
    return bias.reshape(1, heads, 1, -1)


def _beams_gathered(buffer: Array, cache_indirection: Array, past: int) -> Array:
    """The past [B*W, N, M, H] as each beam sees it: position j of a beam lies in the beam `cache_indirection[b, w, j]`."""
    batch, width, _ = cache_indirection.shape
    beams = cache_indirection[:, :, :past]
    if ((beams < 0) | (beams >= width)).any():
        raise ValueError(f"cache_indirection names beams outside 0 to {width - 1}")
    rows = (np.arange(batch)[:, None, None] * width + beams).reshape(batch * width, past)
    return np.asarray(buffer[rows[:, None, :], np.arange(buffer.shape[1])[None, :, None], np.arange(past)[None, None, :]])


def _multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None,
    scale: float | None,
    unidirectional: int,
    ctx: EvalContext,
) -> tuple[Array | None, ...]:
    dtype = query.dtype
    q, k, v = _multi_head_inputs(query, key, value, bias, num_heads)
    if past_key is None or past_value is None:
        keys, values, present_key, present_value = k, v, k, v
    else:
        at = None if past_sequence_length is None else int(past_sequence_length.reshape(-1)[0])
        keys, present_key = _appended(widen(past_key), k, at)
        values, present_value = _appended(widen(past_value), v, at)
        if cache_indirection is not None and at:
            keys = np.concatenate([_beams_gathered(widen(past_key), cache_indirection, at), k], axis=2)
            values = np.concatenate([_beams_gathered(widen(past_value), cache_indirection, at), v], axis=2)
    batch, _, queries, _ = q.shape
    total = keys.shape[2]
    addends = []
    if attention_bias is not None:
        bias_rows = widen(attention_bias)
        if cache_indirection is not None and bias_rows.shape[0] not in (1, batch):
            bias_rows = np.repeat(bias_rows, cache_indirection.shape[1], axis=0)
        addends.append(bias_rows)
    past = total - k.shape[2]
    addends += additive_mask(key_padding_mask, bool(unidirectional), batch, queries, total, past, mask_filter_value)
    result, scores = attend_added(q, keys, values, scale, addends, capture=len(ctx.outputs) > 3 and ctx.outputs[3])
    kept = None if scores is None else narrow(scores, dtype)
    return narrow(result, dtype), narrow(present_key, dtype), narrow(present_value, dtype), kept


def _typed(ctx: InferContext, shape: Shape | None) -> InferOne:
    """The shape with the element type of input 0, for an output no input fixes the type of."""
    dtype = ctx.dtype(0)
    return shape if dtype is None else TensorType(dtype, shape)


def _infer_multi_head(past_index: int) -> Any:
    """Shape rule of MultiHeadAttention and DecoderMaskedMultiHeadAttention; the past key is the input `past_index`."""

    def rule(ctx: InferContext) -> InferResult:
        heads = int(ctx.attr("num_heads"))
        query, key, value, past = ctx.shape(0, least=3), ctx.shape(1), ctx.shape(2), ctx.shape(past_index)
        if query is None:
            return [None, None, None, _typed(ctx, None)]
        batch, queries = query[0], query[1]
        size: Dim
        if len(query) == 5:
            size, v_size, length = query[4], query[4], query[1]
        elif len(query) != 3:
            raise ValueError(f"query has rank {len(query)}, expected 3 or 5")
        elif key is not None and len(key) == 5:
            size, v_size, length = key[4], key[4], key[1]
        elif key is not None and value is not None and len(key) == len(value) == 4:
            size, v_size, length = key[3], value[3], key[2]
        elif key is not None and value is not None and len(key) == len(value) == 3:
            size, v_size, length = floordiv(key[2], heads), floordiv(value[2], heads), key[1]
        else:
            return [(batch, queries, ctx.fresh("hidden")), None, None, _typed(ctx, None)]
        total, room = length, length
        ctx.expect_divisible(query[2] if len(query) == 3 else heads, heads)
        if len(query) == 5:
            ctx.expect_shape(0, batch, queries, heads, 3, size)
        else:
            ctx.expect_equal(query[2], heads * size)
            for index, packed, width in ((1, 2, size), (2, 0, v_size)):
                apart, joined = (batch, heads, length, width), (batch, length, heads * width)
                ctx.expect_one_of(index, (batch, length, heads, packed, width), apart, joined)
        for index in (past_index, past_index + 1):
            if past is not None and len(past) == 4:
                ctx.expect_shape(index, batch, heads, past[2], size if index == past_index else v_size)
        if ctx.has(past_index):
            known = past is not None and len(past) == 4
            shared = ctx.has(past_index + 2)  # past_sequence_length: the past is a buffer with room
            room = ctx.fresh("room") if not known else past[2] if shared else past[2] + length  # type: ignore[index]
            total = ctx.fresh("total") if shared else room
        mask_index = 4 if past_index == 6 else 3  # DecoderMaskedMultiHeadAttention has its bias elsewhere
        expect_masks(ctx, mask_index, mask_index + 1, (batch, heads, queries, total))
        hidden = heads * (2 * size + v_size) if key is None or len(key) != 4 else query[2]
        bias = ctx.shape(3 if past_index == 6 else 10) if ctx.has(3 if past_index == 6 else 10) else None
        if bias is not None and len(bias) == 1:
            ctx.expect_at_most(hidden, bias[0])
            if hidden != query[2]:
                ctx.expect_equal(hidden, bias[0])
        return [
            (batch, queries, heads * v_size),
            (batch, heads, room, size),
            (batch, heads, room, v_size),
            _typed(ctx, (batch, heads, queries, total)),
        ]

    return rule


MULTI_HEAD_ATTENTION = op("MultiHeadAttention", domain=MICROSOFT, eval=_multi_head_attention, infer=_infer_multi_head(6))


def _decoder_masked_multi_head_attention(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    mask_index: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    beam_width: Array | None = None,
    cache_indirection: Array | None = None,
    bias: Array | None = None,
    *,
    num_heads: int,
    mask_filter_value: float | None,
    scale: float | None,
    ctx: EvalContext,
) -> tuple[Array | None, ...]:
    if query.shape[1] != 1:
        raise ValueError(f"query holds {query.shape[1]} positions; this operator decodes one at a time")
    if cache_indirection is None and beam_width is not None and int(beam_width.reshape(-1)[0]) > 1:
        raise ValueError("a beam_width above 1 needs cache_indirection")
    return _multi_head_attention(
        query, key, value, bias, mask_index, attention_bias, past_key, past_value, past_sequence_length, cache_indirection,
        num_heads=num_heads, mask_filter_value=mask_filter_value, scale=scale, unidirectional=0, ctx=ctx,
    )  # fmt: skip


DECODER_MASKED_MULTI_HEAD_ATTENTION = op(
    "DecoderMaskedMultiHeadAttention",
    domain=MICROSOFT,
    eval=_decoder_masked_multi_head_attention,
    infer=_infer_multi_head(5),
)
