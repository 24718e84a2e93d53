"""Attention: Attention, FlexAttention, RotaryEmbedding and LinearAttention.

Scores are computed for a block of heads and queries at a time, so that memory does not grow with the square of the sequence.
Query heads that share a key head are stacked into one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod, sqrt
from typing import Any, Final

import numpy as np
from ml_dtypes import finfo

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, dim_max
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, TensorType
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul

BLOCK_BYTES: Final = 32 << 20  # of scores held at once

Block = tuple[slice, slice, slice]  # of batch, key heads and queries


def split_heads(x: Array, heads: int | None, name: str) -> Array:
    """[batch, time, heads * size] as [batch, heads, time, size]; an input with four axes has that form."""
    if x.ndim == 4:
        return x
    if x.ndim != 3:
        raise ValueError(f"{name} has shape {x.shape}, expected three or four axes")
    if not heads or x.shape[2] % heads:
        raise ValueError(f"{name} of shape {x.shape} cannot be divided into {heads or 'an unknown number of'} heads")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """[batch, heads, time, size] as [batch, time, heads * size]."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def stable_softmax(scores: Array) -> Array:
    """Softmax over the last axis, in place; a row of minus infinity alone gives zeros."""
    highest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    scores -= np.where(np.isneginf(highest), scores.dtype.type(0), highest)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)
    scores /= np.where(total == 0, total.dtype.type(1), total)
    return scores


def _blocks(batch: int, heads: int, queries: int, row_bytes: int) -> Iterator[Block]:
    """Cut batch x heads x queries into parts whose scores fit a block; row_bytes is what one query of one head needs."""
    rows = max(1, BLOCK_BYTES // max(row_bytes, 1))
    per_query = min(queries, rows)
    per_head = min(heads, max(1, rows // max(queries, 1)))
    per_batch = min(batch, max(1, rows // max(queries * heads, 1)))
    for b in range(0, batch, max(per_batch, 1)):
        for h in range(0, heads, max(per_head, 1)):
            for q in range(0, queries, max(per_query, 1)):
                stop_if_asked()
                yield slice(b, b + per_batch), slice(h, h + per_head), slice(q, q + per_query)


def _part(bias: Array, block: Block, group: int) -> Array:
    """The part of a bias [batch or 1, heads or 1, queries or 1, keys] that belongs to a block."""
    batch, heads, queries = block
    wanted = (batch, slice(heads.start * group, heads.stop * group), queries)
    index = tuple(slice(None) if size == 1 else part for size, part in zip(bias.shape, wanted, strict=False))
    return bias[index]


def attend(
    q: Array,
    k: Array,
    v: Array,
    *,
    scale: float,
    bias: Array | None = None,
    allowed: Array | None = None,
    softcap: float = 0.0,
    precision: np.dtype[Any] | None = None,
    capture: int | None = None,
) -> tuple[Array, Array | None]:
    """softmax(q @ k.T * scale + bias) @ v over [batch, heads, time, size], all in one computing type.

    `bias` and `allowed` have four axes that broadcast. A key that a query is not allowed to see takes no part, whatever its score
    is; a bias of minus infinity alone leaves an infinite score NaN. `capture` asks for the scores as well: 0 raw, 1 after
    the soft cap, 2 with bias, 3 the probabilities. `precision` is the type of the softmax, if it is another.
    """
    batch, heads, queries, size = q.shape
    key_heads, keys = k.shape[1], k.shape[2]
    fits = k.shape[0] == v.shape[0] == batch and v.shape[1] == key_heads >= 1 and k.shape[3] == size and v.shape[2] == keys
    if not fits or heads % key_heads:
        raise ValueError(f"queries {q.shape}, keys {k.shape} and values {v.shape} (batch, heads, time, size) do not fit")
    group = heads // key_heads
    result = np.empty((batch, heads, queries, v.shape[3]), q.dtype)
    captured = None if capture is None else np.empty((batch, heads, queries, keys), q.dtype)
    if not heads:
        return result, captured
    scaled = q * q.dtype.type(scale)
    for block in _blocks(batch, key_heads, queries, group * keys * q.dtype.itemsize):
        images, kv, rows = block
        whole = (images, slice(kv.start * group, kv.stop * group), rows)
        part = scaled[whole]
        count, held, length = part.shape[0], part.shape[1], part.shape[2]
        stacked = part.reshape(count, held // group, group * length, size)
        scores = matmul(stacked, k[images, kv].swapaxes(2, 3)).reshape(count, held, length, keys)
        if captured is not None and capture == 0:
            captured[whole] = scores
        if softcap:
            scores /= scores.dtype.type(softcap)
            np.tanh(scores, out=scores)
            scores *= scores.dtype.type(softcap)
        if captured is not None and capture == 1:
            captured[whole] = scores
        local = None if bias is None else _part(bias, block, group)
        seen = None if allowed is None else _part(allowed, block, group)
        if local is not None:
            scores += local
        if seen is not None:
            np.copyto(scores, -np.inf, where=~seen)
        if captured is not None and capture == 2:
            captured[whole] = scores
        shares = _softmax_in(scores, precision)
        if local is not None:  # a query that may see no key has no answer, whatever its scores were
            visible = ~np.isneginf(local) if seen is None else ~np.isneginf(local) & seen
            unseen = ~visible.any(axis=-1, keepdims=True)
            if unseen.any():
                shares = np.where(unseen, shares.dtype.type(0), shares)
        if captured is not None and capture == 3:
            captured[whole] = shares
        columns = matmul(shares.reshape(count, held // group, group * length, keys), v[images, kv])
        result[whole] = columns.reshape(count, held, length, v.shape[3])
    return result, captured


def _softmax_in(scores: Array, precision: np.dtype[Any] | None) -> Array:
    """Softmax in a type of its own, back in the type of the scores."""
    if precision is None or precision == scores.dtype:
        return stable_softmax(scores)
    rounded = narrow(scores, precision)
    return narrow(stable_softmax(widen(rounded).copy()), precision).astype(scores.dtype)


def _visible(queries: int, keys: int, offset: Array, *, causal: bool, left: int, right: int) -> Array | None:
    """Which keys a query may see, [offsets, 1, queries, keys]: query i stands at position i + offset. None: all."""
    if not causal and left < 0 and right < 0:
        return None
    positions = np.arange(queries)[:, None] + offset.reshape(-1, 1, 1, 1)
    number = np.arange(keys)
    allowed = np.ones((offset.size, 1, queries, keys), np.bool_)
    if causal:
        allowed &= number <= positions
    if left >= 0:
        allowed &= number >= positions - left
    if right >= 0:
        allowed &= number <= positions + right
    return allowed


def _attention_bias(
    mask: Array | None, allowed: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> tuple[Array | None, Array | None]:
    """An additive mask as a bias, a mask of truth values among the allowed positions, either possibly with too few keys.

    Keys to which the lowest number is added take no part, like those to which minus infinity is, as in ONNX Runtime.
    """
    if mask is None:
        return None, allowed
    decides = mask.dtype == np.bool_
    wide = mask if decides else widen(mask).astype(dtype, copy=False)
    missing = shape[-1] - wide.shape[-1]
    if missing > 0:
        edge = False if decides else dtype.type(-np.inf)
        wide = np.pad(wide, [(0, 0)] * (wide.ndim - 1) + [(0, missing)], constant_values=edge)
    whole = wide.reshape((1,) * (4 - wide.ndim) + wide.shape)
    if any(size not in (1, full) for size, full in zip(whole.shape, shape, strict=True)):
        raise ValueError(f"attn_mask of shape {mask.shape} does not broadcast to (batch, heads, queries, keys) {shape}")
    shown = whole if decides else ~(whole <= wide.dtype.type(finfo(mask.dtype).min))  # type: ignore[no-untyped-call]
    return None if decides else whole, shown if allowed is None else allowed & shown


def _attention(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int,
    kv_num_heads: int | None,
    left_window_size: int | None,
    q_num_heads: int | None,
    qk_matmul_output_mode: int,
    right_window_size: int | None,
    scale: float | None,
    softcap: float,
    softmax_precision: int | None,
    ctx: EvalContext,
) -> tuple[Array | None, ...]:
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value must be given together")
    if nonpad_kv_seqlen is not None and past_key is not None:
        raise ValueError("nonpad_kv_seqlen cannot be combined with past_key and past_value")
    packed = q.ndim == 3
    queries = split_heads(q, q_num_heads, "Q")
    keys, values = split_heads(k, kv_num_heads, "K"), split_heads(v, kv_num_heads, "V")
    if past_key is not None and past_value is not None:
        keys = np.concatenate((past_key, keys), axis=2)
        values = np.concatenate((past_value, values), axis=2)
    wide_q, wide_k, wide_v = widen(queries), widen(keys), widen(values)
    batch, heads, length, size = queries.shape
    total = keys.shape[2]
    offset = np.array([0 if past_key is None else past_key.shape[2]], np.int64)
    if nonpad_kv_seqlen is not None:
        offset = nonpad_kv_seqlen.reshape(-1).astype(np.int64) - length
    allowed = _visible(
        length,
        total,
        offset,
        causal=bool(is_causal),
        left=-1 if left_window_size is None else left_window_size,
        right=-1 if right_window_size is None else right_window_size,
    )
    if nonpad_kv_seqlen is not None:
        filled = np.arange(total) < nonpad_kv_seqlen.reshape(-1, 1, 1, 1)
        allowed = filled if allowed is None else allowed & filled
    wants_scores = len(ctx.outputs) > 3 and ctx.outputs[3]
    bias, allowed = _attention_bias(attn_mask, allowed, (batch, heads, length, total), wide_q.dtype)
    with np.errstate(all="ignore"):
        result, scores = attend(
            wide_q,
            wide_k,
            wide_v.astype(wide_q.dtype, copy=False),
            scale=1 / sqrt(max(size, 1)) if scale is None else scale,
            bias=bias,
            allowed=allowed,
            softcap=softcap or 0.0,
            precision=dtypes.from_onnx(softmax_precision).numpy if softmax_precision else None,
            capture=qk_matmul_output_mode if wants_scores else None,
        )
    y = merge_heads(result) if packed else result
    return narrow(y, q.dtype), keys, values, None if scores is None else narrow(scores, q.dtype)


def _heads_and_time(ctx: InferContext, index: int, heads: str) -> tuple[Dim, Dim, Dim, Dim] | None:
    """An input as (batch, heads, time, size)."""
    shape = ctx.shape(index)
    if shape is None:
        return None
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    if len(shape) != 3 or not ctx.attr(heads):
        raise ValueError(f"input {index} must have four axes, or three and the attribute {heads}")
    return shape[0], ctx.attr(heads), shape[1], shape[2] // ctx.attr(heads)


def _infer_attention(ctx: InferContext) -> InferResult:
    mode = ctx.attr("qk_matmul_output_mode")
    if ctx.outputs > 3 and mode not in range(4):
        raise ValueError(f"qk_matmul_output_mode is {mode}: expected 0, 1, 2 or 3")
    q = _heads_and_time(ctx, 0, "q_num_heads")
    k, v = _heads_and_time(ctx, 1, "kv_num_heads"), _heads_and_time(ctx, 2, "kv_num_heads")
    past, past_value = ctx.shape(4, rank=4), ctx.shape(5, rank=4)
    results: list[InferOne] = [None] * 4
    total: Dim | None = None if k is None else k[2]
    for index, heads in ((0, "q_num_heads"), (1, "kv_num_heads"), (2, "kv_num_heads")):
        if ctx.rank(index) == 3:
            ctx.expect_divisible((ctx.shape(index) or ())[2], ctx.attr(heads))
    if q is not None and k is not None and v is not None:
        for size, other in ((k[0], q[0]), (v[0], q[0]), (k[3], q[3]), (v[1], k[1]), (v[2], k[2])):
            ctx.expect_equal(size, other)
        ctx.expect_divisible(q[1], dim_max(k[1], 1))
        ctx.expect_shape(6, q[0])
        if past is not None:
            ctx.expect_shape(4, k[0], k[1], past[2], k[3])
            ctx.expect_shape(5, v[0], v[1], past[2], v[3])
        mask, keys = ctx.shape(3) if ctx.has(3) else None, total if past is None or total is None else total + past[2]
        if mask and len(mask) <= 4 and keys is not None:
            ctx.expect_broadcast(mask[:-1], q[:3])
            ctx.expect_at_most(mask[-1], keys)
    if ctx.has(4):
        total = None if total is None or past is None else total + past[2]
    if q is not None:
        value_size = ctx.fresh() if v is None else v[3]
        results[0] = (q[0], q[2], q[1] * value_size) if ctx.rank(0) == 3 else (q[0], q[1], q[2], value_size)
        results[3] = (q[0], q[1], q[2], ctx.fresh() if total is None else total)
    if k is not None:
        results[1] = (k[0], k[1], ctx.fresh() if total is None else total, k[3])
    if v is not None:
        length: Dim | None = v[2]
        if ctx.has(5):
            length = None if past_value is None else v[2] + past_value[2]
        results[2] = (v[0], v[1], ctx.fresh() if length is None else length, v[3])
    return results[: ctx.outputs]


ATTENTION = op("Attention", eval=_attention, infer=_infer_attention, since=23, traits=Trait.REFUSES)


def _flex_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    prob_mod: Callable[..., list[Array]] | None,
    scale: float | None,
    score_mod: Callable[..., list[Array]] | None,
    softmax_precision: int | None,
) -> Array:
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4 or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"Q, K and V have the shapes {q.shape}, {k.shape} and {v.shape}: expected four axes and heads that divide"
        )
    group = q.shape[1] // k.shape[1]
    wide_q, wide_k, wide_v = widen(q), widen(k), widen(v)
    precision = wide_q.dtype if softmax_precision is None else dtypes.from_onnx(softmax_precision).numpy
    factor = 1 / sqrt(max(q.shape[3], 1)) if scale is None else scale
    with np.errstate(all="ignore"):
        stacked = (wide_q * wide_q.dtype.type(factor)).reshape(q.shape[0], k.shape[1], group * q.shape[2], q.shape[3])
        scores = matmul(stacked, wide_k.swapaxes(2, 3)).reshape(*q.shape[:3], k.shape[2])
        scores = _modified(narrow(scores, precision), score_mod, "score_mod")
        shares = narrow(stable_softmax(widen(scores).copy()), precision)
        shares = widen(_modified(shares, prob_mod, "prob_mod")).astype(wide_q.dtype, copy=False)
        result = matmul(shares.reshape(q.shape[0], k.shape[1], group * q.shape[2], k.shape[2]), wide_v)
    return narrow(result.reshape(*q.shape[:3], v.shape[3]), q.dtype)


def _modified(x: Array, graph: Callable[..., list[Array]] | None, name: str) -> Array:
    if graph is None:
        return x
    (result,) = graph(x)
    if result.shape != x.shape:
        raise ValueError(f"{name} made the shape {x.shape} into {result.shape}, but must keep it")
    return result


def _infer_flex_attention(ctx: InferContext) -> InferResult:
    q, v = ctx.shape(0, rank=4), ctx.shape(2, rank=4)
    return None if q is None else (*q[:3], ctx.fresh() if v is None else v[3])


FLEX_ATTENTION = op(
    "FlexAttention", domain="ai.onnx.preview", eval=_flex_attention, infer=_infer_flex_attention, traits=Trait.REFUSES
)


def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """The leading 2 * cos.shape[-1] elements of the last axis, rotated in pairs; the rest stays. cos and sin broadcast."""
    half = cos.shape[-1]
    rotated, rest = x[..., : 2 * half], x[..., 2 * half :]
    first, second = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else (rotated[..., :half], rotated[..., half:])
    real, imaginary = first * cos - second * sin, first * sin + second * cos
    if interleaved:
        result = np.stack((real, imaginary), axis=-1).reshape(rotated.shape)
    else:
        result = np.concatenate((real, imaginary), axis=-1)
    return np.concatenate((result, rest), axis=-1) if rest.shape[-1] else result


def _rotary_embedding(
    x: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> Array:
    heads = split_heads(x, num_heads, "X")
    cos, sin = widen(cos_cache), widen(sin_cache)
    if position_ids is not None:
        cos, sin = cos[position_ids], sin[position_ids]
    size = rotary_embedding_dim or heads.shape[3]
    if cos.shape != sin.shape or cos.ndim != 3 or cos.shape[-1] * 2 != size:
        raise ValueError(
            f"the caches give cosines of shape {cos.shape} and sines of shape {sin.shape}, expected (N, time, {size // 2})"
        )
    with np.errstate(all="ignore"):
        result = rotate(widen(heads), cos[:, None], sin[:, None], interleaved=bool(interleaved))
    return narrow(merge_heads(result) if x.ndim == 3 else result, x.dtype)


def _infer_rotary_embedding(ctx: InferContext) -> InferResult:
    shape, cos = ctx.shape(0), ctx.shape(1)
    if shape is not None and len(shape) in (3, 4) and cos is not None:
        if len(shape) == 3 and ctx.attr("num_heads"):
            ctx.expect_divisible(shape[2], ctx.attr("num_heads"))
        batch, time = (shape[0], shape[1]) if len(shape) == 3 else (shape[0], shape[2])
        ctx.expect_shape(2, *cos)
        positions = ctx.shape(3) if ctx.has(3) else None
        rows = positions if ctx.has(3) else cos[:-1]
        if rows is not None and len(rows) == 2:
            ctx.expect_broadcast(rows[:1], (batch,))
            ctx.expect_equal(rows[1], time)
    return shape


ROTARY_EMBEDDING = op("RotaryEmbedding", eval=_rotary_embedding, infer=_infer_rotary_embedding, since=23, traits=Trait.REFUSES)


_UPDATE_RULES: Final = ("linear", "gated", "delta", "gated_delta")


def _linear_attention(
    query: Array,
    key: Array,
    value: Array,
    past_state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float,
    update_rule: str,
) -> tuple[Array, Array]:
    if update_rule not in _UPDATE_RULES:
        raise ValueError(f"update_rule is {update_rule!r}, expected one of {', '.join(_UPDATE_RULES)}")
    if kv_num_heads < 1 or q_num_heads % kv_num_heads:
        raise ValueError(f"{q_num_heads} query heads cannot share {kv_num_heads} key heads")
    for name, needed, given in (("decay", "gated" in update_rule, decay), ("beta", "delta" in update_rule, beta)):
        if needed and given is None:
            raise ValueError(f"update_rule {update_rule!r} needs the input {name}")
    if (
        {query.ndim, key.ndim, value.ndim} != {3}
        or query.shape[2] % q_num_heads
        or key.shape[2] % kv_num_heads
        or value.shape[2] % kv_num_heads
    ):
        shapes = f"{query.shape}, {key.shape} and {value.shape}"
        raise ValueError(
            f"query, key and value of the shapes {shapes} cannot be divided into {q_num_heads} and {kv_num_heads} heads"
        )
    batch, steps = query.shape[:2]
    group = q_num_heads // kv_num_heads
    q = widen(query).reshape(batch, steps, kv_num_heads, group, query.shape[2] // q_num_heads)
    k, v = (_per_head(widen(x), kv_num_heads) for x in (key, value))
    sizes = (batch, kv_num_heads, k.shape[3], v.shape[3])
    if past_state is not None and past_state.shape != sizes:
        raise ValueError(f"past_state has shape {past_state.shape}, expected {sizes}")
    state = np.zeros(sizes, q.dtype) if past_state is None else widen(past_state).astype(q.dtype)
    factor = q.dtype.type(scale or 1 / sqrt(max(q.shape[4], 1)))
    outputs = np.empty((batch, steps, *q.shape[2:4], v.shape[3]), q.dtype)
    with np.errstate(all="ignore"):
        gates = _per_head(np.exp(widen(decay)), kv_num_heads) if decay is not None and "gated" in update_rule else None
        rates = widen(beta)[..., None] if beta is not None and "delta" in update_rule else None
        for time in range(steps):
            stop_if_asked()
            if gates is not None:
                state = state * gates[:, time, :, :, None]
            news = v[:, time]
            if rates is not None:
                known = matmul(k[:, time, :, None], state)[:, :, 0]  # what the state answers to this key already
                news = (news - known) * rates[:, time]
            state = state + k[:, time, :, :, None] * news[:, :, None]
            outputs[:, time] = matmul(q[:, time], state)
        outputs *= factor
    kept = query.dtype if past_state is None else past_state.dtype
    return narrow(outputs.reshape(batch, steps, prod(outputs.shape[2:])), query.dtype), narrow(state, kept)


def _per_head(x: Array, heads: int) -> Array:
    """[batch, time, heads * n] as [batch, time, heads, n]."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _infer_linear_attention(ctx: InferContext) -> InferResult:
    q, k, v = ctx.shape(0, rank=3), ctx.shape(1, rank=3), ctx.shape(2, rank=3)
    q_heads, kv_heads = ctx.attr("q_num_heads"), ctx.attr("kv_num_heads")
    if q_heads < 1 or kv_heads < 1:
        raise ValueError(f"q_num_heads is {q_heads} and kv_num_heads is {kv_heads}, expected positive numbers")
    output: Shape | None = None
    state = ctx.shape(3, rank=4)
    if q is not None and v is not None:
        output = (q[0], q[1], v[2] // kv_heads * q_heads)
    if state is None and k is not None and v is not None:
        state = (k[0], kv_heads, k[2] // kv_heads, v[2] // kv_heads)
    dtype = ctx.dtype(3) or ctx.dtype(0)
    return [output, state if dtype is None else TensorType(dtype, state)]


LINEAR_ATTENTION = op("LinearAttention", eval=_linear_attention, infer=_infer_linear_attention, since=27, traits=Trait.REFUSES)
