"""Attention: scores, mask, softmax and the product with V in one kernel for every block of queries."""

from __future__ import annotations

import struct
from dataclasses import field
from typing import Final

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, dim_min, floordiv, product
from sardonyx.ir.graph import Value
from sardonyx.kernel import math
from sardonyx.kernel.attention.attention import NO_LIMIT, AttentionKernel, key, query, strip_vectors, units
from sardonyx.kernel.attention.transposed import MOST_COLUMNS, MOST_DEPTH, TransposedAttentionKernel, block_vectors
from sardonyx.kernel.attention.transposed import units as transposed_units
from sardonyx.kernel.expr import BITS, Expr, const, load, maximum, reduced, select, walk
from sardonyx.kernel.loops import Inner, Operand
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.matmul.pack import PackKernel
from sardonyx.kernel.matmul.pack import units as pack_units
from sardonyx.lower.attention.operands import consecutive, convert
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import broadcast_strides, loop_step, merge_axes
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.views import transposed, with_axes
from sardonyx.program.steps import Address, KernelStep, View
from sardonyx.records import dataclass
from sardonyx.target import cost
from sardonyx.target.target import CACHE_LINE

MANY: Final = 6  # queries from which on it pays to pack the keys
_PACKS_VALUES: Final = 96  # queries of a head of V from which on it pays to pack that, too
_COPIES_VALUES: Final = 48  # queries from which on the kernel that does not pack keys copies V
_FEWEST_UNITS: Final = 8  # of the kernel that does not: its blocks are larger, and workers should have some each


@dataclass
class Attend:
    """An attention over views [batch, heads, time, size]; `score` is what becomes of a scaled product."""

    q: View
    k: View
    v: View
    result: View  # [batch, heads, queries, columns]
    scale: float
    score: Expr
    operands: list[View] = field(default_factory=list)  # each broadcasts to [batch, heads, queries, keys]
    keys: Dim | None = None  # how many take part, if not all
    banded: bool = False
    offset: Dim = 0
    left: int = NO_LIMIT
    right: int = NO_LIMIT
    lengths: View | None = None
    more: int = 0
    first_positions: View | None = None  # with lengths: where the first query of each batch entry stands (i64)
    sinks: View | None = None  # [heads], or one for all, of the type that is computed in
    nan_rows: bool = False  # what a query without any key gets (see the kernel)
    clears_nan: bool = False
    captured: Expr | None = None  # what is stored of the scores, in `scores` [batch, heads, queries, keys], its last axis dense
    scores: View | None = None
    hidden: float = float("-inf")  # what is stored for keys that take no part
    captures_all: bool = False  # scores of keys that take no part are stored, too: they are computed like all others


def attend(ctx: LowerContext, group: Group, given: Attend) -> None:
    """The steps of an attention. Where the number of queries is known at run time only, they are there in two forms."""
    kind = compute_type(given.q.buffer.dtype.name)
    q, v = (consecutive(ctx, view, kind, group) for view in (given.q, given.v))
    batch, heads, queries, size = q.shape
    key_heads, total = given.k.shape[1], given.k.shape[2]
    for found, wanted in (
        (given.k.shape[0], batch), (v.shape[0], batch), (v.shape[1], key_heads), (given.k.shape[3], size), (v.shape[2], total),
        (floordiv(heads, dim_max(key_heads, 1)) * key_heads, heads),
    ):  # fmt: skip
        ctx.check_equal(found, wanted)
    result = given.result
    target = result
    if result.buffer.dtype.name != kind:
        target = transposed(ctx.scratch(dtypes.from_name(kind), [batch, queries, heads, v.shape[3]], "attended"), (0, 2, 1, 3))
    if given.captures_all:
        _hide_by_scores(ctx, given)
    if given.scores is not None:
        _hide_all(ctx, group, given, given.scores)
    if _is_better_transposed(ctx, given, q, kind):
        _transposed_step(ctx, group, given, q, v, target, kind)
    else:
        many = dim_min(floordiv(queries, MANY), 1)
        if many != 0:
            keys = _packed(ctx, group, given.k, kind, many, "keys")
            values = (
                _packed(ctx, group, transposed(v, (0, 1, 3, 2)), kind, many, "values") if _packs_values(ctx, q, v, kind) else v
            )
            _step(ctx, group, given, q, keys, values, target, kind, many)
        if many != 1:
            _step(ctx, group, given, q, consecutive(ctx, given.k, kind, group), v, target, kind, 1 - many)
    if target is not result:
        convert(ctx, group, target, result)


def _step(ctx: LowerContext, group: Group, given: Attend, q: View, k: View, v: View, target: View, kind: str, share: Dim) -> None:
    """The step of the kernel: K is packed (an axis of strips, depth, lanes more) or as it lies, and so is V."""
    batch, heads, queries, size = q.shape
    packed, packed_values = (len(view.shape) == 5 for view in (k, v))
    keys = given.k.shape[2] if given.keys is None else given.keys
    key_heads, columns = given.k.shape[1], given.v.shape[3]
    shape = (batch, heads, queries, keys)
    strides = [broadcast_strides(view, shape) for view in given.operands]
    operands = tuple(Operand(view.buffer.dtype.name, _inner(own[-1])) for view, own in zip(given.operands, strides))
    kernel = AttentionKernel(
        type=kind,
        packed=packed,
        score=given.score,
        operands=operands,
        banded=given.banded,
        lengths="" if given.lengths is None else given.lengths.buffer.dtype.name,
        more=given.more,
        has_first_positions=given.first_positions is not None,
        queries=queries if isinstance(queries, int) else None,
        columns=columns if isinstance(columns, int) else None,
        keys=keys if isinstance(keys, int) and given.lengths is None and not given.banded else None,
        has_sinks=given.sinks is not None,
        nan_rows=given.nan_rows,
        clears_nan=given.clears_nan,
        packed_values=packed_values,
        captured=given.captured,
        hidden=given.hidden,
    )
    extra = {
        name: view for name, view in (("lengths", given.lengths), ("first_positions", given.first_positions)) if view is not None
    }
    arguments = kernel.arguments.entries(
        batch=batch,
        heads=heads,
        queries=queries,
        keys=keys,
        depth=size,
        columns=columns,
        group=floordiv(heads, dim_max(key_heads, 1)),
        offset=given.offset,
        left=given.left,
        right=given.right,
        scale=_bits(given.scale),
        q=(q.address, q.strides[:3]),
        k=(k.address, k.strides[: 2 if packed else 3]),
        v=(v.address, (*v.strides[:2], v.strides[3], v.strides[2]) if packed_values else v.strides[:3]),
        o=(target.address, target.strides[:3]),
        operands=[(view.address, own) for view, own in zip(given.operands, strides)],
        **{name: view.address for name, view in extra.items()},
        **({} if given.sinks is None else {"sinks": (given.sinks.address, broadcast_strides(given.sinks, (heads,)))}),
        **({} if given.scores is None else {"captured": (given.scores.address, given.scores.strides[:3])}),
    )
    sinks = [] if given.sinks is None else [given.sinks]
    reads = [view.buffer for view in (q, k, v, *given.operands, *extra.values(), *sinks)]
    work = cost.attention(product([batch, heads, queries, keys]), size + columns)
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            units(batch, heads, queries) * share,
            work * share,
            tuple(dict.fromkeys(reads)),
            (target.buffer, *([] if given.scores is None else [given.scores.buffer])),
            group.label,
            tuple(node.label for node in group.nodes),
            flops=2 * product([batch, heads, queries, keys]) * (size + columns),
        )
    )


def _hide_by_scores(ctx: LowerContext, given: Attend) -> None:
    """Have keys that are hidden by their numbers get a score of minus infinity instead of being left out."""
    conditions: list[Expr] = []
    count = len(given.operands)
    if given.lengths is not None:
        given.operands.append(with_axes(given.lengths, (1, 2, 3)))
        length = load(count, given.lengths.buffer.dtype.name).cast("i32") + given.more
        offset = ctx.sizes([given.q.shape[2]], "queries")
        position = query() + length - load(count + 1, "i64").cast("i32")
        conditions.append(key() < length)
    else:
        offset = ctx.sizes([given.offset], "offset")
        position = query() + load(count, "i64").cast("i32")
    given.operands.append(View(offset.buffer, (1, 1, 1, 1), (0, 0, 0, 0), offset.offset))
    if given.banded and given.left < NO_LIMIT:
        conditions.append(key() >= position - given.left)
    if given.banded and given.right < NO_LIMIT:
        conditions.append(key() <= position + given.right)
    for condition in conditions:
        given.score = select(condition, given.score, const(float("-inf"), given.score.type))
    given.banded, given.lengths = False, None


def _hide_all(ctx: LowerContext, group: Group, given: Attend, scores: View) -> None:
    """Scores that no query looks at: those of keys it does not see by its number, or that do not take part."""
    keys = given.k.shape[2] if given.keys is None else given.keys
    if not given.banded and given.lengths is None and keys == scores.shape[3]:
        return
    kind = scores.buffer.dtype.name
    value = const(given.hidden, compute_type(kind)).cast(kind)
    nodes = tuple(node.label for node in group.nodes)
    ctx.step(loop_step(scores.shape, [scores], [kind], [(0, value)], target=ctx.target, label="hidden scores", nodes=nodes))


def capture(ctx: LowerContext, given: Attend, value: Value, kind: str, *, probabilities: bool) -> None:
    """Have scores stored as a value; where that is probabilities, `probabilities` follows the attention and needs all scores."""
    captured = given.score if given.captured is None else given.captured
    name = ctx.dtype(value).name
    given.captured = captured.cast(name) if not probabilities else captured
    if probabilities and name != kind:
        given.scores = ctx.scratch(dtypes.from_name(kind), ctx.shape(value), "scores")
    else:
        given.scores = ctx.output(value)


def probabilities(ctx: LowerContext, group: Group, given: Attend, value: Value) -> None:
    """The stored scores as probabilities; a row of minus infinity alone is zeros. Sinks take their share and show it nowhere."""
    scores = given.scores
    assert scores is not None
    kind = scores.buffer.dtype.name
    target = scores if ctx.dtype(value).name == kind else ctx.output(value)
    x = load(0, kind)
    top = reduced("maxnum", x, 0)
    views = [scores, target]
    if given.sinks is not None:
        views.append(with_axes(given.sinks, (0, 2, 3)))
        top = maximum(top, load(2, kind))
    lowest = const(float("-inf"), kind)
    held = select(top.eq(lowest), const(0.0, kind), top)
    weight = math.exp_not_positive(x - held)
    total = reduced("sum", weight, 1)
    if given.sinks is not None:
        total = total + math.exp_not_positive(load(2, kind) - held)
    share = weight * (const(1.0, kind) / select(total.eq(0.0), const(1.0, kind), total))
    types = [kind, target.buffer.dtype.name, *([kind] if given.sinks is not None else [])]
    ctx.step(
        loop_step(
            scores.shape,
            views,
            types,
            [(1, share.cast(types[1]))],
            target=ctx.target,
            label="softmax",
            nodes=tuple(node.label for node in group.nodes),
            reduce="inner",
            stash=[(0, weight)],
        )
    )


def _bits(number: float) -> int:
    """A number as an entry of a kernel's arguments."""
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    return int(bits)


def _is_better_transposed(ctx: LowerContext, given: Attend, q: View, kind: str) -> bool:
    """Whether the kernel that reads K as it lies takes less time than packing it: queries must fill most lanes of its vectors."""
    batch, heads, queries, size = q.shape
    if kind != "f32" or given.banded or given.lengths or given.sinks or given.clears_nan or given.scores:
        return False
    if not isinstance(queries, int) or not isinstance(size, int):
        return False
    if queries < MANY or not 0 < size <= MOST_DEPTH or given.k.buffer.dtype.name != kind or given.k.strides[3] != 1:
        return False
    if any(node in (query(), key()) for node in walk([given.score])):
        return False
    keys = given.k.shape[2] if given.keys is None else given.keys
    if any(broadcast_strides(view, (batch, heads, queries, keys))[2] != 0 for view in given.operands):
        return False
    lanes = vector_lanes(kind, ctx.target)
    vectors, blocks = block_vectors(queries, lanes)
    parallel = product([batch, heads, blocks])
    if isinstance(parallel, int) and parallel < _FEWEST_UNITS:
        return False
    packing = cost.packed(size)
    return isinstance(packing, int) and cost.attention_transposed(queries, vectors * lanes - queries, size) < packing


def _transposed_step(ctx: LowerContext, group: Group, given: Attend, q: View, v: View, target: View, kind: str) -> None:
    """The step of the kernel with transposed scores."""
    batch, heads, queries, size = q.shape
    assert isinstance(queries, int)
    assert isinstance(size, int)
    keys = given.k.shape[2] if given.keys is None else given.keys
    strides = [broadcast_strides(view, (batch, heads, queries, keys)) for view in given.operands]
    columns = v.shape[3] if isinstance(v.shape[3], int) else None
    kernel = TransposedAttentionKernel(
        type=kind,
        score=given.score,
        operands=tuple(view.buffer.dtype.name for view in given.operands),
        queries=queries,
        depth=size,
        columns=columns,
        nan_rows=given.nan_rows,
        copies_values=_lies_in_lines(ctx, v, kind)
        and columns is not None
        and columns <= MOST_COLUMNS
        and queries >= _COPIES_VALUES,
    )
    arguments = kernel.arguments.entries(
        heads=heads,
        keys=keys,
        columns=v.shape[3],
        group=floordiv(heads, dim_max(given.k.shape[1], 1)),
        scale=_bits(given.scale),
        q=(q.address, q.strides[:3]),
        k=(given.k.address, given.k.strides[:3]),
        v=(v.address, v.strides[:3]),
        o=(target.address, target.strides[:3]),
        operands=[(view.address, (own[0], own[1], own[3])) for view, own in zip(given.operands, strides)],
    )
    scores = product([batch, heads, queries, keys])
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            transposed_units(batch, heads, queries, vector_lanes(kind, ctx.target)),
            cost.attention(scores, size + v.shape[3]),
            tuple(dict.fromkeys(view.buffer for view in (q, given.k, v, *given.operands))),
            (target.buffer,),
            group.label,
            tuple(node.label for node in group.nodes),
            flops=2 * scores * (size + v.shape[3]),
        )
    )


def _packs_values(ctx: LowerContext, q: View, v: View, kind: str) -> bool:
    """Whether V had better be packed, too: for many queries, or as many as keys, of which K is packed."""
    if v.shape[2] == q.shape[2]:
        return _lies_in_lines(ctx, v, kind)
    shared = floordiv(product(list(q.shape[1:3])), dim_max(v.shape[1], 1))  # queries of a head of V
    return isinstance(shared, int) and shared >= _PACKS_VALUES and _lies_in_lines(ctx, v, kind)


def _lies_in_lines(ctx: LowerContext, v: View, kind: str) -> bool:
    """Whether a strip of V's columns is one line of the caches in each row, and rows are longer.

    Lines so far apart share few sets of the first cache: every tile reads them from the second one.
    """
    strip = strip_vectors(ctx.target) * vector_lanes(kind, ctx.target)
    return strip * BITS[kind] // 8 <= CACHE_LINE and v.strides[2] != strip


def _packed(ctx: LowerContext, group: Group, k: View, kind: str, share: Dim, name: str) -> View:
    """K in strips [batch, heads, strip, depth, lane]; V with its last axes exchanged in [batch, heads, strip, key, lane]."""
    vectors = strip_vectors(ctx.target)
    strip = vectors * vector_lanes(kind, ctx.target)
    keys, size = k.shape[2], k.shape[3]
    target = ctx.scratch(dtypes.from_name(kind), (*k.shape[:2], ceildiv(keys, strip), size, strip), name)
    sizes, (reads, _) = merge_axes(k.shape[:2], [k.strides[:2], target.strides[:2]])
    unit_keys, unit_depth = (k.strides[axis] == 1 or k.shape[axis] == 1 for axis in (2, 3))
    kernel = PackKernel(
        source=k.buffer.dtype.name,
        type=kind,
        batch=len(sizes),
        vectors=vectors,
        order="depth" if unit_depth else "columns" if unit_keys else "any",
    )
    arguments = kernel.arguments.entries(
        batch=sizes,
        columns=keys,
        depth=size,
        source=(k.address, (*reads, k.strides[2], k.strides[3])),
        target=Address(target.buffer),
    )
    label = f"pack for {group.label}"
    ctx.step(
        KernelStep(
            kernel,
            arguments,
            pack_units(kernel, sizes, keys, size, ctx.target) * share,
            cost.packed(product(list(k.shape))) * share,
            (k.buffer,),
            (target.buffer,),
            label,
            tuple(node.label for node in group.nodes),
        )
    )
    return target


def _inner(stride: Dim) -> Inner:
    return "unit" if stride == 1 else "zero" if stride == 0 else "any"
