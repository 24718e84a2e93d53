"""GroupQueryAttention of com.microsoft: rotation, the cache of keys and values, and attention behind it.

Every batch entry has its own length. New keys and values are written behind those of the past, which is a buffer with room, or
one that slides: a full one drops its oldest rows, as many at once as are behind every window (`_ring`). Caches may hold 8 or 4
bits.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, dim_min, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, const, index, load, select
from sardonyx.lower.attention.attend import MANY, Attend, attend, capture, probabilities
from sardonyx.lower.attention.cache import append, append_rows, check_positions
from sardonyx.lower.attention.cache_codec import STORED_AS, CacheCodec
from sardonyx.lower.attention.contrib_attention import FLOATS, MICROSOFT
from sardonyx.lower.attention.operands import convert, float_kinds, input_at, softcapped, split_heads, used_outputs
from sardonyx.lower.attention.rotary import angles_at, rotate
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import FAR_AWAY
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.program.steps import Address, View

_PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL, _COS, _SIN, _POSITIONS, _BIAS, _SINKS, _KEY_SCALE, _VALUE_SCALE = range(3, 14)
_PROBABILITIES = 2  # of the modes of qk_output; 1 is scores


def _accepts(node: Node) -> str:
    attrs = attribute_values(node)
    if any(input_at(node, position) is not None for position in range(_VALUE_SCALE + 1, 16)):
        return "normalized heads"
    window = attrs.get("local_window_size")
    if attrs.get("sliding_window_cache"):
        if input_at(node, _BIAS) is not None or attrs.get("qk_output"):
            return "a sliding cache with a bias or scores as an output"
        if window is None or window <= 0:
            return "a sliding cache without a window"
    if window is not None and window >= 0 and not attrs.get("causal"):
        return "a window that is not causal"
    query, key, value = (input_at(node, position) for position in range(3))
    if query is None or (key is None) != (value is None) or (input_at(node, 3) is None) != (input_at(node, 4) is None):
        return "inputs that do not belong together"
    if input_at(node, 3) is not None and (len(node.outputs) < 2 or not node.outputs[1].shape):
        return "a cache whose room is not known"
    shape = query.shape or ()
    if len(shape) != 3 or not isinstance(shape[2], int):
        return "a hidden size that is known only at run time"
    for other in (key, value):
        if other is not None and (len(other.shape or ()) != 3 or (other.shape or ())[1] != shape[1]):
            return "keys that are not as many as the queries"
    positions = input_at(node, _POSITIONS)
    if attrs.get("do_rotary") and (input_at(node, _COS) is None or (positions is not None and len(positions.shape or ()) != 2)):
        return "a rotation without angles, or by positions of another rank"
    bits = attrs.get("kv_cache_bit_width") or 0
    kinds = float_kinds(node, (0, 1, 2, *(() if bits else (3, 4)), _COS, _SIN, _BIAS, _SINKS))
    if len(kinds) != 1:
        return f"no kernel for operands of different types: {', '.join(sorted(kinds))}"
    return _accepts_codes(node, bits, shape[2]) if bits else ""


def _accepts_codes(node: Node, bits: int, hidden: int) -> str:
    """Why a cache of integers has no kernel, or ""."""
    attrs = attribute_values(node)
    heads = attrs["num_heads"] if input_at(node, 1) is not None else attrs["num_heads"] + 2 * attrs["kv_num_heads"]
    if bits not in STORED_AS or float_kinds(node, (_PAST_KEY, _PAST_VALUE)) != {STORED_AS[bits]}:
        return f"{bits} bits in a cache of another type, or without a past"
    if float_kinds(node, (_KEY_SCALE, _VALUE_SCALE)) != {"f32"} or input_at(node, _VALUE_SCALE) is None:
        return "a quantized cache without scales"
    return "heads of odd size in pairs of 4 bits" if bits == 4 and hidden // heads % 2 else ""


@template(
    "GroupQueryAttention", domain=MICROSOFT, types={"T": FLOATS, "T_CACHE": (*FLOATS, *STORED_AS.values())}, accepts=_accepts
)
def group_query_attention(ctx: LowerContext, group: Group) -> None:
    """Attention of query heads that share key heads, behind a cache."""
    assert group.root is not None
    _Grouped(ctx, group, group.root).lower()


class _Grouped:
    def __init__(self, ctx: LowerContext, group: Group, node: Node) -> None:
        self.ctx, self.group, self.node = ctx, group, node
        self.attrs: dict[str, Any] = attribute_values(node)
        self.heads, self.key_heads = int(self.attrs["num_heads"]), int(self.attrs["kv_num_heads"])
        self.outputs = used_outputs(ctx, group, node)
        self.q, self.k, self.v = self._parts()
        self.batch, self.queries = self.q.shape[0], self.q.shape[2]
        self.lengths = ctx.contiguous(self._input(_LENGTHS))
        for size in self.lengths.shape[1:]:
            ctx.check_equal(size, 1)
        ctx.check_equal(self.lengths.shape[0], self.batch)
        self.more = 1  # a length is one more than what is given for it
        self.window = int(self.attrs.get("local_window_size") or -1)
        self.is_sliding = bool(self.attrs.get("sliding_window_cache")) and input_at(node, _PAST_KEY) is not None
        self.kept, self.dropped = self.lengths, self.lengths  # of a sliding cache, see `_ring`

    def _input(self, position: int) -> Value:
        value = input_at(self.node, position)
        assert value is not None
        return value

    def _parts(self) -> list[View]:
        """Query, key and value as [batch, heads, time, size], out of three inputs or one that packs them."""
        query, key, value = (input_at(self.node, position) for position in range(3))
        assert query is not None
        if key is not None and value is not None:
            counts = (self.heads, self.key_heads, self.key_heads)
            return [split_heads(self.ctx.view(one), count) for one, count in zip((query, key, value), counts)]
        packed = split_heads(self.ctx.view(query), self.heads + 2 * self.key_heads)
        starts = ((0, self.heads), (self.heads, self.key_heads), (self.heads + self.key_heads, self.key_heads))
        return [self.ctx.part(packed, 1, start, count) for start, count in starts]

    def lower(self) -> None:
        """Positions, rotation, cache, attention."""
        ctx = self.ctx
        first_positions = self._first_positions()
        if input_at(self.node, 3) is None:  # then everything is a prompt
            total = ctx.elements(self._input(_TOTAL))
            ctx.check_equal(self.queries, total[0] if total else self.queries)
        q, k = self.q, self.k
        if self.attrs.get("do_rotary"):
            angles = angles_at(ctx, self.group, (self._input(_COS), self._input(_SIN)), self._positions(first_positions))
            q, k = (self._rotated(view, *angles) for view in (q, k))
        if self.is_sliding:
            first_positions = self._ring(first_positions)
        keys = self._cached(_PAST_KEY, k, self.outputs[1], first_positions)
        values = self._cached(_PAST_VALUE, self.v, self.outputs[2], first_positions)
        if self.outputs[0] is not None or self.outputs[3] is not None:
            self._attend(q, keys, values, first_positions)

    def _first_positions(self) -> View:
        """Where the first query of each batch entry stands: behind its past, or at the start of a prompt."""
        ctx = self.ctx
        total = ctx.contiguous(self._input(_TOTAL))
        past = input_at(self.node, 3)
        limits = (0, self.queries) if past is None else (ctx.shape(past)[2], ctx.shape(self.node.outputs[1])[2])
        sizes = ctx.sizes([self.queries, *limits], "sizes of the cache")
        views = [
            View(self.lengths.buffer, (self.batch,), (1,), self.lengths.offset),
            View(total.buffer, (1,), (0,), total.offset),
            *(View(sizes.buffer, (1,), (0,), sizes.offset + number) for number in range(3)),
        ]
        length, whole = (load(number, view.buffer.dtype.name).cast("i64") for number, view in enumerate(views[:2]))
        queries, held, room = (load(number, "i64") for number in (2, 3, 4))
        behind = length + 1 - queries
        if self.is_sliding:  # positions count from the start of the sequence, wherever that is
            position, wrong = behind, (length < 0) | (behind < 0)
        else:
            position = select(whole.eq(queries), const(0, "i64"), behind)
            # Where nothing is new, nothing is stored: any position will do.
            wrong = (length < 0) | (length >= room) | (position < 0) | ((position > held) & (queries > 0))
        first_positions = index_tensor(
            ctx, (self.batch,), views, select(wrong, const(FAR_AWAY, "i64"), position), "first_positions"
        )
        check_positions(ctx, first_positions, self._fault())
        return first_positions

    def _ring(self, first_positions: View) -> View:
        """Where the new rows of each batch entry begin in a sliding cache.

        From here on `lengths` counts its rows with the new ones; the last `kept` of them stay, the first `dropped` do not.
        """
        ctx = self.ctx
        room = ctx.shape(self._input(_PAST_KEY))[2]
        ctx.check_at_most(self.window, room)
        sizes = ctx.sizes([self.queries, room, room - self.window + 1], "sizes of the cache")
        views = [first_positions, *(View(sizes.buffer, (1,), (0,), sizes.offset + number) for number in range(3))]
        past, queries, most, step = (load(number, "i64") for number in range(4))

        def held(count: Expr) -> Expr:
            """How many of the last positions there are: whole steps are dropped when there is no room."""
            over = count - most
            return select(over <= 0, count, count - step * ((over + step - 1) / step))

        before, after = held(past), held(past + queries)
        made = (("first rows", before), ("rows", before + queries), ("kept", after), ("dropped", before + queries - after))
        first, self.lengths, self.kept, self.dropped = (
            index_tensor(ctx, (self.batch,), views, value, label) for label, value in made
        )
        self.more = 0
        return first

    def _positions(self, first_positions: View) -> View:
        """By which queries and keys are rotated: where they stand, or what the node is given for it.

        Of those given for a prompt only the very first counts, as in ONNX Runtime: all entries begin there.
        """
        ctx, shape = self.ctx, (self.batch, self.queries)
        given = input_at(self.node, _POSITIONS)
        if given is None:
            stand = View(first_positions.buffer, (self.batch, 1), (1, 0), first_positions.offset)
            return index_tensor(ctx, shape, [stand], load(0, "i64") + index(1), "positions")
        own = ctx.contiguous(given)
        for size, wanted in zip(own.shape, shape):
            ctx.check_equal(size, wanted)
        total, queries = ctx.contiguous(self._input(_TOTAL)), ctx.sizes([self.queries], "queries")
        views = [own, *(View(view.buffer, (1, 1), (0, 0), view.offset) for view in (own, total, queries))]
        each, first, whole, count = (load(number, view.buffer.dtype.name).cast("i64") for number, view in enumerate(views))
        position = select(whole.eq(count), first + index(1), each)
        return index_tensor(ctx, shape, views, select(position < 0, const(FAR_AWAY, "i64"), position), "positions")

    def _sinks(self) -> View | None:
        """A score for each head that takes part in the softmax without a value; smooth softmax is one of 0."""
        given = input_at(self.node, _SINKS)
        kind = compute_type(self.q.buffer.dtype.name)
        if given is None:
            smooth = self.attrs.get("smooth_softmax") == 1
            return self.ctx.literal(np.zeros(1, dtypes.from_name(kind).numpy)) if smooth else None
        view = self.ctx.contiguous(given)
        self.ctx.check_equal(product(list(view.shape)), self.heads)
        flat = View(view.buffer, (self.heads,), (1,), view.offset)
        if view.buffer.dtype.name == kind:
            return flat
        wide = self.ctx.scratch(dtypes.from_name(kind), (self.heads,), "sinks")
        convert(self.ctx, self.group, flat, wide)
        return wide

    def _fault(self) -> tuple[Address, int]:
        return self.ctx.fault(self.node, "seqlens_k does not fit the new positions, the past and the room the cache has")

    def _rotated(self, view: View, cos: View, sin: View) -> View:
        batch, heads, length, size = view.shape
        stored = self.ctx.scratch(view.buffer.dtype, (batch, length, heads, size), "rotated")
        target = View(stored.buffer, view.shape, (stored.strides[0], stored.strides[2], stored.strides[1], 1), stored.offset)
        rotate(self.ctx, self.group, view, cos, sin, target, interleaved=bool(self.attrs.get("rotary_interleaved")))
        return target

    def _codec(self, position: int, new: View) -> CacheCodec:
        """How the cache of keys or values stores them."""
        is_key = position == _PAST_KEY
        bits = int(self.attrs.get("kv_cache_bit_width") or 0)
        per_column = self.attrs.get("k_quant_type" if is_key else "v_quant_type") == "PER_CHANNEL"
        scales = None
        if bits:
            scales = self.ctx.contiguous(self._input(_KEY_SCALE if is_key else _VALUE_SCALE))
            self.ctx.check_equal(product(list(scales.shape)), self.key_heads * new.shape[3] if per_column else 1)
        return CacheCodec(self.ctx.dtype(self._input(position)), bits, new.shape[3], scales, per_column)

    def _cached(self, position: int, new: View, present: Value | None, first_positions: View) -> View:
        """All keys (or values) so far: those of the past, the new ones behind them, then zeros (unless it is one buffer)."""
        ctx, past = self.ctx, input_at(self.node, position)
        if past is None:
            if present is not None:
                ctx.set_view(present, new)
            return new
        codec = self._codec(position, new)
        rows = codec.encoded(ctx, self.group, new)
        room = ctx.shape(self.node.outputs[1])[2]
        shape: tuple[Dim, ...] = (*rows.shape[:2], room + self.queries if self.is_sliding else room, rows.shape[3])
        if present is not None and not self.is_sliding:
            target = ctx.output(present)
        else:
            target = ctx.scratch(rows.buffer.dtype, shape, "present")
        append(ctx, self.group, past, rows, target, first_positions)
        if present is not None and self.is_sliding:
            nothing = View(rows.buffer, (*rows.shape[:2], 0, rows.shape[3]), rows.strides, rows.offset)
            append_rows(ctx, self.group, target, nothing, ctx.output(present), self.kept, self.dropped)
        kind = compute_type(self.q.buffer.dtype.name)
        is_packed = position == _PAST_KEY and isinstance(self.queries, int) and self.queries >= MANY
        if codec.is_wide(kind) or (is_packed and not codec.bits):  # keys are widened as they are packed
            return target
        return codec.filled(ctx, self.group, target, kind, self.lengths, self.more)

    def _attend(self, q: View, keys: View, values: View, first_positions: View) -> None:
        ctx, attrs = self.ctx, self.attrs
        size = q.shape[3]
        assert isinstance(size, int)
        given = Attend(
            q,
            keys,
            values,
            split_heads(ctx.output(self.node.outputs[0]), self.heads),
            float(attrs.get("scale") or 1 / sqrt(max(size, 1))),
            softcapped(accumulator("f32"), attrs.get("softcap")),
            banded=bool(attrs.get("causal")),
            lengths=self.lengths,
            more=self.more,
            first_positions=first_positions,
            sinks=self._sinks(),
        )
        if attrs.get("causal"):
            given.right = 0
            window = attrs.get("local_window_size")
            given.left = given.left if window is None or window < 0 else window - 1
        bias = input_at(self.node, _BIAS)
        if bias is not None:
            view = ctx.view(bias)
            given.keys = dim_min(view.shape[-1], keys.shape[2])
            ctx.check_broadcast(view.shape[:-1], (self.batch, self.heads, self.queries))
            given.operands.append(View(view.buffer, (*view.shape[:-1], given.keys), view.strides, view.offset))
            given.score = given.score + load(0, view.buffer.dtype.name).cast("f32")
        scores, mode = self.outputs[3], attrs.get("qk_output")
        if scores is not None and mode:
            given.keys = dim_min(ctx.shape(scores)[3], keys.shape[2] if given.keys is None else given.keys)
            given.hidden = float("-inf") if mode == _PROBABILITIES else 0.0
            capture(ctx, given, scores, "f32", probabilities=mode == _PROBABILITIES)
        attend(ctx, self.group, given)
        if scores is not None and mode == _PROBABILITIES:
            probabilities(ctx, self.group, given, scores)
