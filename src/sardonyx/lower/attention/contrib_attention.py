"""Attention of com.microsoft: MultiHeadAttention, its decoding form, and Attention with its projection.

Masks are added to the scores, with the filter value of the node where they forbid a key; see
`ops/attention/contrib_attention.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_min, floordiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel.attention.attention import key
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, const, load, select
from sardonyx.lower.attention.attend import Attend, attend, capture
from sardonyx.lower.attention.cache import append, check_positions
from sardonyx.lower.attention.operands import convert, input_at, joined, split_heads, used_outputs
from sardonyx.lower.epilogue import GroupEpilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import FAR_AWAY
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.matmul import product_into
from sardonyx.lower.registry import template
from sardonyx.lower.views import sliced, transposed, with_axes
from sardonyx.program.steps import View
from sardonyx.records import dataclass

MICROSOFT: Final = "com.microsoft"
FLOATS: Final = ("f32", "f16", "bf16")  # scores and sums are f32 for all of them
_MASK_FILTER: Final = -10000.0
_LOWEST: Final = np.array(np.finfo(np.float32).min, np.float32)  # what is shown for scores of keys that are not seen


def one_type(node: Node) -> str:
    """Why the types of a node have no kernel, or "": all floats must be of one type, which may be narrow."""
    kinds = {
        value.type.dtype.name
        for value in (*node.inputs, *node.outputs)
        if value is not None and isinstance(value.type, TensorType) and value.type.dtype.is_float
    }
    return "" if len(kinds) == 1 and kinds <= set(FLOATS) else f"no kernel for {', '.join(sorted(kinds))}"


@dataclass(frozen=True)
class _Positions:
    """Where the inputs of an operator stand behind query, key and value."""

    bias: int
    mask: int
    added: int
    past_key: int
    length: int  # of the past, which then is a buffer with room
    beams: tuple[int, ...]


_MULTI_HEAD: Final = _Positions(3, 4, 5, 6, 8, (9,))
_DECODING: Final = _Positions(10, 3, 4, 5, 7, (8, 9))


def _mask_fits(mask: Value | None, batch: Dim) -> str:
    if mask is None:
        return ""
    shape = mask.shape or ()
    if len(shape) == 1 and shape[0] not in (batch, 2 * batch, 3 * batch + 2):
        return "a mask that is not one length for each sequence, nor their ends and starts"
    return "" if 1 <= len(shape) <= 3 else "a mask with four axes"


def _accepts_multi_head(node: Node) -> str:
    return _accepts_heads(node, _MULTI_HEAD)


def _accepts_decoding(node: Node) -> str:
    return _accepts_heads(node, _DECODING)


def _accepts_heads(node: Node, positions: _Positions) -> str:
    query, keys, values = (input_at(node, position) for position in range(3))
    assert query is not None
    shape = query.shape or ()
    past, past_value, length = (
        input_at(node, position) for position in (positions.past_key, positions.past_key + 1, positions.length)
    )
    if any(input_at(node, position) is not None for position in positions.beams):
        return "beams"
    if (past is None) != (past_value is None):
        return "a past without keys or values"
    has_scores = len(node.outputs) > 3 and bool(node.outputs[3].name)
    if has_scores and length is not None and past is not None:
        return "the scores of a past whose length is known only at run time are an output"
    if has_scores and attribute_values(node).get("unidirectional") and input_at(node, positions.added) is not None:
        return "the scores of keys that are not seen are an output"
    if len(shape) == 5:
        fits = keys is None and values is None
    elif len(shape) != 3 or keys is None:
        fits = False
    elif len(keys.shape or ()) == 5:
        fits = values is None
    else:
        fits = values is not None and len(keys.shape or ()) == len(values.shape or ()) and len(keys.shape or ()) in (3, 4)
    if not fits:
        return "a packing without a kernel"
    size = shape[4] if len(shape) == 5 else shape[2]
    if not isinstance(size, int):
        return "a head size that is known only at run time"
    if attribute_values(node).get("unidirectional") and len(shape) == 3 and _key_length(node) != shape[1]:
        return "a causal mask over other keys than those of the queries"
    return one_type(node) or _mask_fits(input_at(node, positions.mask), shape[0])


def _key_length(node: Node) -> Dim | None:
    keys = input_at(node, 1)
    shape = None if keys is None else keys.shape
    return None if not shape else shape[2] if len(shape) == 4 else shape[1]


@template("MultiHeadAttention", domain=MICROSOFT, types={"T": FLOATS}, accepts=_accepts_multi_head)
def multi_head_attention(ctx: LowerContext, group: Group) -> None:
    """Attention of queries, keys and values that come in any of several packings."""
    _attend_heads(ctx, group, _MULTI_HEAD)


@template("DecoderMaskedMultiHeadAttention", domain=MICROSOFT, types={"T": FLOATS}, accepts=_accepts_decoding)
def decoder_masked_multi_head_attention(ctx: LowerContext, group: Group) -> None:
    """The same for one query, with its inputs in another order."""
    assert group.root is not None
    assert group.root.inputs[0] is not None
    ctx.check_equal(ctx.shape(group.root.inputs[0])[1], 1)
    _attend_heads(ctx, group, _DECODING)


def _attend_heads(ctx: LowerContext, group: Group, positions: _Positions) -> None:
    node = group.root
    assert node is not None
    attrs = attribute_values(node)
    heads = int(attrs["num_heads"])
    outputs = used_outputs(ctx, group, node)
    q, k, v = _with_bias(ctx, group, node, _parts(ctx, node, heads), heads, input_at(node, positions.bias))
    past = [input_at(node, positions.past_key + number) for number in range(2)]
    mask, added = input_at(node, positions.mask), input_at(node, positions.added)
    length = input_at(node, positions.length)
    first = lengths = None
    if length is not None and past[0] is not None:
        first, lengths = _filled(ctx, node, (past[0], k), length, (mask, added))
        keys, values = (
            _buffered(ctx, group, before, new, present, first)
            for before, new, present in zip(past, (k, v), outputs[1:3])
            if before is not None
        )
    else:
        keys, values = (
            joined(ctx, None if before is None else ctx.view(before), new, present)
            for before, new, present in zip(past, (k, v), outputs[1:3])
        )
    if outputs[0] is None and outputs[3] is None:
        return
    given = _plain(q, keys, values, split_heads(ctx.output(node.outputs[0]), heads), attrs)
    given.first_positions, given.lengths = first, lengths
    given.offset = 0 if past[0] is None else ctx.shape(past[0])[2]
    given.banded, given.right = (True, 0) if attrs.get("unidirectional") else (False, given.right)
    add_masks(ctx, given, mask, added, attrs)
    if outputs[3] is not None:
        with np.errstate(over="ignore"):
            given.hidden = float(_LOWEST.astype(ctx.dtype(outputs[3]).numpy))
        capture(ctx, given, outputs[3], "f32", probabilities=False)
    attend(ctx, group, given)


def _filled(
    ctx: LowerContext, node: Node, ends: tuple[Value, View], length: Value, masks: Sequence[Value | None]
) -> tuple[View, View]:
    """Where new rows begin in a past with room, and how many there are then, for each batch entry; masks must reach as far."""
    past, new = ends
    batch, added = new.shape[0], new.shape[2]
    counted = ctx.contiguous(length)
    ctx.check_equal(product(list(counted.shape)), 1)
    reaches = [
        ctx.shape(mask)[-1] for mask in masks if mask is not None and len(ctx.shape(mask)) > 1 and ctx.shape(mask)[-1] != 1
    ]
    sizes = ctx.sizes([added, ctx.shape(past)[2], *reaches], "sizes of the cache")
    views = [View(counted.buffer, (1,), (0,), counted.offset)]
    views += [View(sizes.buffer, (1,), (0,), sizes.offset + number) for number in range(2 + len(reaches))]
    before = load(0, counted.buffer.dtype.name).cast("i64")
    end = before + load(1, "i64")
    wrong = (before < 0) | (end > load(2, "i64"))
    for number in range(len(reaches)):
        wrong = wrong | end.ne(load(3 + number, "i64"))
    first = index_tensor(ctx, (batch,), views, select(wrong, const(FAR_AWAY, "i64"), before), "first_positions")
    text = "past_sequence_length does not fit the room that the past has, or the mask"
    check_positions(ctx, first, ctx.fault(node, text))
    return first, index_tensor(ctx, (batch,), views, select(wrong, const(0, "i64"), end), "lengths")


def _buffered(ctx: LowerContext, group: Group, past: Value, new: View, present: Value | None, first: View) -> View:
    """A past with room and the new rows in it; what lies behind them stays."""
    before = ctx.view(past)
    target = ctx.output(present) if present is not None else ctx.scratch(before.buffer.dtype, before.shape, "present")
    append(ctx, group, past, new, target, first, keeps=True)
    return target


def _accepts_cached(node: Node) -> str:
    query = node.inputs[0]
    shape = (query.shape if query is not None else None) or ()
    if len(shape) != 3 or not isinstance(shape[2], int):
        return "a hidden size that is known only at run time"
    return one_type(node) or _mask_fits(input_at(node, 3), shape[0])


@template("CachedAttention", domain="sardonyx", types={"T": FLOATS}, accepts=_accepts_cached)
def cached_attention(ctx: LowerContext, group: Group) -> None:
    """Attention of the last queries to all keys."""
    node = group.root
    assert node is not None
    attrs = attribute_values(node)
    heads = int(attrs["num_heads"])
    query, keys, values = (ctx.view(value) for value in node.inputs[:3] if value is not None)
    given = _plain(split_heads(query, heads), keys, values, split_heads(ctx.output(node.outputs[0]), heads), attrs)
    given.offset = keys.shape[2] - query.shape[1]
    given.banded, given.right = (True, 0) if attrs.get("unidirectional") else (False, given.right)
    add_masks(ctx, given, input_at(node, 3), input_at(node, 4), attrs)
    attend(ctx, group, given)


def _plain(q: View, k: View, v: View, result: View, attrs: dict[str, Any]) -> Attend:
    size = q.shape[3]
    assert isinstance(size, int)
    return Attend(q, k, v, result, float(attrs.get("scale") or 1 / sqrt(max(size, 1))), accumulator("f32"))


def _parts(ctx: LowerContext, node: Node, heads: int) -> list[View]:
    """Query, key and value as [batch, heads, time, size]."""
    views = [ctx.view(value) for value in node.inputs[:3] if value is not None]
    if len(views[0].shape) == 5:  # [batch, time, heads, 3, size]
        return [transposed(ctx.at(views[0], 3, number), (0, 2, 1, 3)) for number in range(3)]
    query = split_heads(views[0], heads)
    if len(views[1].shape) == 5:  # [batch, time, heads, 2, size]
        return [query, *(transposed(ctx.at(views[1], 3, number), (0, 2, 1, 3)) for number in range(2))]
    return [query, *(split_heads(view, heads) for view in views[1:3])]


def _with_bias(ctx: LowerContext, group: Group, node: Node, parts: list[View], heads: int, value: Value | None) -> list[View]:
    """The parts with their bias added, by a step for each; keys that come with four axes have none."""
    if value is None:
        return parts
    bias = ctx.view(value)
    keys = node.inputs[1] if len(node.inputs) > 1 else None
    only_query = keys is not None and len(keys.shape or ()) == 4
    made: list[View] = []
    start: Dim = 0
    for number, part in enumerate(parts):
        size = part.shape[1] * part.shape[3]
        if number and only_query:
            made.append(part)
            continue
        kind = part.buffer.dtype.name
        rows = transposed(part, (0, 2, 1, 3))  # in the order in which it lies
        piece = ctx.part(bias, 0, start, size)
        added = View(piece.buffer, (heads, part.shape[3]), (piece.strides[0] * part.shape[3], piece.strides[0]), piece.offset)
        target = ctx.scratch(part.buffer.dtype, rows.shape, "with bias")
        ctx.step(
            loop_step(
                rows.shape,
                [rows, added, target],
                [kind] * 3,
                [(2, (load(0, kind).cast("f32") + load(1, kind).cast("f32")).cast(kind))],
                target=ctx.target,
                label="bias",
                nodes=tuple(one.label for one in group.nodes),
            )
        )
        made.append(transposed(target, (0, 2, 1, 3)))
        start = start + size
    if not only_query:
        ctx.check_equal(bias.shape[0], start)
    return made


def add_masks(ctx: LowerContext, given: Attend, mask: Value | None, bias: Value | None, attrs: dict[str, Any]) -> None:
    """What is added to the scores: a bias, and the filter value where a mask forbids a key."""
    batch, _, queries, _ = given.q.shape
    total = given.k.shape[2]
    added: Expr | None = None
    if bias is not None:
        view = ctx.view(bias)
        if given.lengths is None or view.shape[-1] == 1:
            ctx.check_broadcast(view.shape, (batch, given.q.shape[1], queries, total))
        else:
            ctx.check_broadcast(view.shape[:-1], (batch, given.q.shape[1], queries))
            view = _reaching(given, view)
        given.operands.append(view)
        added = load(len(given.operands) - 1, view.buffer.dtype.name).cast("f32")
    if mask is not None:
        filtered = _filtered(ctx, given, mask, attrs)
        added = filtered if added is None else added + filtered
    if added is not None:
        given.score = given.score + added


def _filtered(ctx: LowerContext, given: Attend, mask: Value, attrs: dict[str, Any]) -> Expr:
    """The filter value where a mask forbids a key, else 0; the mask is one more operand."""
    batch, _, queries, _ = given.q.shape
    total = given.k.shape[2]
    view = ctx.view(mask)
    name = view.buffer.dtype.name
    value = load(len(given.operands), name)
    if len(view.shape) == 1:  # how many keys there are; then, perhaps, from which one on
        given.operands.append(with_axes(sliced(view, 0, 0, batch, 1), (1, 2, 3)))
        allowed = key().cast(name) < value
        if view.shape[0] != batch and view.shape[0] == 2 * batch:
            allowed = allowed & (key().cast(name) >= load(len(given.operands), name))
            given.operands.append(with_axes(sliced(view, 0, batch, batch, 1), (1, 2, 3)))
    else:
        broadcast = with_axes(view, (1, 2) if len(view.shape) == 2 else (1,))
        for size, wanted in zip(view.shape[:-1], (batch, queries)):
            ctx.check_equal(size, wanted)
        if given.lengths is None:
            ctx.check_equal(view.shape[-1], total)
            broadcast = View(broadcast.buffer, (*broadcast.shape[:-1], total), broadcast.strides, broadcast.offset)
        else:
            broadcast = _reaching(given, broadcast)
        given.operands.append(broadcast)
        allowed = value > 0
    filtered = attrs.get("mask_filter_value")
    filter_value = const(_MASK_FILTER if filtered is None else float(filtered), "f32")
    return select(allowed, const(0.0, "f32"), filter_value)


def _reaching(given: Attend, mask: View) -> View:
    """A mask of as many keys as there are in the run; the memory of keys may have room for more, and no others are looked at."""
    given.keys = dim_min(mask.shape[-1], given.k.shape[2] if given.keys is None else given.keys)
    return View(mask.buffer, (*mask.shape[:-1], given.keys), mask.strides, mask.offset)


def _accepts_packed(node: Node) -> str:
    attrs = attribute_values(node)
    source, weights = node.inputs[0], node.inputs[1]
    assert source is not None
    assert weights is not None
    if attrs.get("do_rotary") or attrs.get("past_present_share_buffer") or input_at(node, 6) is not None:
        return "a rotation, or a past in a buffer with room"
    if len(source.shape or ()) != 3 or len(weights.shape or ()) != 2 or not isinstance((weights.shape or (None, None))[1], int):
        return "a hidden size that is known only at run time"
    sizes = attrs.get("qkv_hidden_sizes")
    if sizes and (len(sizes) != 3 or sizes[0] != sizes[1] or sum(sizes) != weights.shape[1]):  # type: ignore[index]
        return "hidden sizes that do not fit"
    if sizes and sizes[2] != sizes[1] and (input_at(node, 4) is not None or (len(node.outputs) > 1 and node.outputs[1].name)):
        return "a past with values of another size"
    return one_type(node) or _mask_fits(input_at(node, 3), (source.shape or (0,))[0])


@template("Attention", domain=MICROSOFT, types={"T": FLOATS}, accepts=_accepts_packed)
def packed_attention(ctx: LowerContext, group: Group) -> None:
    """Attention of a tensor with itself: the projections to queries, keys and values are one product."""
    node = group.root
    assert node is not None
    source, weights = node.inputs[0], node.inputs[1]
    assert source is not None
    assert weights is not None
    attrs = attribute_values(node)
    heads = int(attrs["num_heads"])
    x, w = ctx.view(source), ctx.view(weights)
    ctx.check_equal(x.shape[2], w.shape[0])
    batch, queries = x.shape[:2]
    shape = (batch, queries, w.shape[1])
    target = ctx.scratch(dtypes.FLOAT32, shape, "projected")
    value, views = accumulator("f32"), [target]
    bias = input_at(node, 2)
    if bias is not None:
        views.insert(0, ctx.view(bias))
        value = value + load(0, views[0].buffer.dtype.name).cast("f32")
        ctx.check_equal(views[0].shape[0], w.shape[1])
    product_into(ctx, group, x, w, GroupEpilogue(tuple(views), ((len(views) - 1, value),)), shape)
    sizes = attrs.get("qkv_hidden_sizes") or (floordiv(w.shape[1], 3),) * 3
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (split_heads(ctx.part(target, 2, start, size), heads) for start, size in zip(starts, sizes))
    outputs = used_outputs(ctx, group, node)
    past = input_at(node, 4)
    before = None if past is None else ctx.view(past)
    k, v = _with_present(ctx, group, before, [k, v], outputs[1])
    if outputs[0] is None:
        return
    given = _plain(q, k, v, split_heads(ctx.output(outputs[0]), heads), attrs)
    given.offset = 0 if before is None else before.shape[3]
    given.banded, given.right = (True, 0) if attrs.get("unidirectional") else (False, given.right)
    add_masks(ctx, given, input_at(node, 3), input_at(node, 5), attrs)
    attend(ctx, group, given)


def _with_present(ctx: LowerContext, group: Group, past: View | None, new: list[View], present: Value | None) -> list[View]:
    """Keys and values behind those of the past [2, batch, heads, time, size]; `present` has the same form and type."""
    if past is None and present is None:
        return new
    both = None if present is None else ctx.output(present)
    dtype = both.buffer.dtype if both is not None else new[0].buffer.dtype if past is None else past.buffer.dtype
    made = []
    for number, part in enumerate(new):
        length = 0 if past is None else past.shape[3]
        shape = (*part.shape[:2], length + part.shape[2], part.shape[3])
        target = ctx.scratch(dtype, shape, "present") if both is None else ctx.at(both, 0, number)
        if past is not None:
            before = ctx.at(past, 0, number)
            for axis in (0, 1, 3):
                ctx.check_equal(before.shape[axis], part.shape[axis])
            ctx.copy(before, ctx.part(target, 2, 0, length), "past")
        behind = ctx.part(target, 2, length, part.shape[2])
        if dtype is part.buffer.dtype:
            ctx.copy(part, behind, "append")
        else:
            convert(ctx, group, part, behind)
        made.append(target)
    return made
