"""Rotary position embeddings: pairs of elements of a head turned by the angles of their position."""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import Dim, floordiv, product
from sardonyx.ir.graph import Node, Value
from sardonyx.kernel.expr import FLOATS, const, index, load, select
from sardonyx.lower.attention.operands import convert, input_at, split_heads
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import index_tensor
from sardonyx.lower.indexing.indexing import FAR_AWAY, take
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template
from sardonyx.lower.views import with_axes
from sardonyx.ops.attention.contrib_rotary import streams_of_columns
from sardonyx.program.steps import View

_MICROSOFT: Final = "com.microsoft"
_STREAMS: Final = 3  # of positions: time, height, width


def rotate(ctx: LowerContext, group: Group, x: View, cos: View, sin: View, target: View, *, interleaved: bool) -> None:
    """target := x [batch, heads, time, size] with the elements the angles [batch or 1, time, half] are for turned."""
    half = cos.shape[2]
    parts = []
    for view in (x, target):
        if interleaved:
            parts += [ctx.part(view, 3, start, half, 2) for start in range(2)]
        else:
            parts += [ctx.part(view, 3, start, half) for start in (0, half)]
    angles = [with_axes(view, (1,)) for view in (cos, sin)]
    views = [parts[0], parts[1], *angles, parts[2], parts[3]]
    types = [view.buffer.dtype.name for view in views]
    first, second, c, s = (load(number, kind).cast(compute_type(kind)) for number, kind in enumerate(types[:4]))
    kind = first.type
    c, s = c.cast(kind), s.cast(kind)
    stores = [(4, (first * c - second * s).cast(types[4])), (5, (first * s + second * c).cast(types[5]))]
    nodes = tuple(node.label for node in group.nodes)
    ctx.step(loop_step((*x.shape[:3], half), views, types, stores, target=ctx.target, label="rotate", nodes=nodes))
    rest = x.shape[3] - 2 * half
    if rest != 0:
        convert(ctx, group, ctx.part(x, 3, 2 * half, rest), ctx.part(target, 3, 2 * half, rest))


def angles_at(ctx: LowerContext, group: Group, caches: tuple[Value, Value], positions: View) -> tuple[View, View]:
    """The rows of the caches [positions, half] that positions [batch, time] name."""
    node = group.root
    assert node is not None
    fault = ctx.fault(node, "a position is not one of the {limit} that the caches hold")
    made = []
    for value in caches:
        cache = ctx.view(value)
        target = ctx.scratch(cache.buffer.dtype, (*positions.shape, cache.shape[1]), "angles")
        take(ctx, cache, 0, positions, target, fault, "angles")
        made.append(target)
    return made[0], made[1]


def _accepts(node: Node) -> str:
    attrs = attribute_values(node)
    x, cache = node.inputs[0], node.inputs[1]
    shape, angles = (value.shape if value is not None else None for value in (x, cache))
    if not shape or not angles or len(shape) not in (3, 4) or (len(shape) == 3 and not attrs.get("num_heads")):
        return "an input without heads"
    if len(angles) != (2 if input_at(node, 3) is not None else 3):
        return "caches of another rank"
    size = attrs.get("rotary_embedding_dim") or (shape[3] if len(shape) == 4 else floordiv(shape[2], attrs["num_heads"]))
    return "" if angles[-1] * 2 == size else "caches that do not fit the head"


@template("RotaryEmbedding", types={"T": FLOATS}, accepts=_accepts)
def rotary_embedding(ctx: LowerContext, group: Group) -> None:
    """The operator of ONNX: caches for the positions as they come, or with positions that choose from them."""
    node = group.root
    assert node is not None
    x, cos, sin = (value for value in node.inputs[:3] if value is not None)
    attrs = attribute_values(node)
    heads = attrs.get("num_heads") or 0
    source, target = split_heads(ctx.view(x), heads), split_heads(ctx.output(node.outputs[0]), heads)
    positions = input_at(node, 3)
    if positions is None:
        angles = (ctx.view(cos), ctx.view(sin))
    else:
        ctx.check_equal(ctx.shape(positions)[1], source.shape[2])
        angles = angles_at(ctx, group, (cos, sin), ctx.view(positions))
    for size, wanted in zip(angles[0].shape, angles[1].shape):
        ctx.check_equal(size, wanted)
    ctx.check_broadcast(angles[0].shape[:1], source.shape[:1])
    ctx.check_equal(angles[0].shape[1], source.shape[2])
    rotate(ctx, group, source, *angles, target, interleaved=bool(attrs.get("interleaved")))


def _accepts_microsoft(node: Node) -> str:
    attrs = attribute_values(node)
    x, positions, cos, sin = node.inputs[:4]
    shape, angles = (value.shape if value is not None else None for value in (x, cos))
    if not shape or not angles or len(shape) not in (3, 4) or len(angles) != 2 or not isinstance(angles[1], int):
        return "sizes that are not known"
    if sin is None or sin.shape != angles or (attrs.get("rotary_embedding_dim") or 2 * angles[1]) != 2 * angles[1]:
        return "caches that do not fit"
    hidden = shape[-1]
    heads = _heads(node)
    if not isinstance(hidden, int) or (len(shape) == 3 and (not heads or hidden % heads)):
        return "a hidden size that is not divided into heads"
    size = hidden if len(shape) == 4 else hidden // heads
    if positions is None or positions.shape is None or 2 * angles[1] > size:
        return "caches that do not fit the head"
    one = all(count == 1 for count in positions.shape)
    return "" if one or len(positions.shape) == 2 else "positions of another rank"


def _heads(node: Node) -> int:
    """How many heads the last of three axes holds; without the attribute a head is as large as the caches say."""
    x, cos = node.inputs[0], node.inputs[2]
    assert x is not None
    assert cos is not None
    given = attribute_values(node).get("num_heads")
    hidden, half = (x.shape or (0,))[-1], (cos.shape or (0,))[-1]
    return int(given) if given else hidden // (2 * half) if isinstance(hidden, int) and isinstance(half, int) and half else 0


@template("RotaryEmbedding", domain=_MICROSOFT, types={"T": FLOATS}, accepts=_accepts_microsoft)
def microsoft_rotary_embedding(ctx: LowerContext, group: Group) -> None:
    """The operator of com.microsoft: positions, or one position from which on they count."""
    node = group.root
    assert node is not None
    x, positions, cos, sin = (value for value in node.inputs[:4] if value is not None)
    heads = _heads(node)
    source, target = split_heads(ctx.view(x), heads), split_heads(ctx.output(node.outputs[0]), heads)
    batch, _, length, _ = source.shape
    given = ctx.view(positions)
    rows = positions_of(ctx, given, batch, length)
    angles = angles_at(ctx, group, (cos, sin), rows)
    rotate(ctx, group, source, *angles, target, interleaved=bool(attribute_values(node).get("interleaved")))


def positions_of(ctx: LowerContext, given: View, batch: Dim, length: Dim) -> View:
    """Positions [batch, time] out of all of them, or of the one of the first. Negative ones are none."""
    kind = given.buffer.dtype.name
    value = load(0, kind).cast("i64")
    if product(list(given.shape)) == 1:
        view = View(given.buffer, (1, 1), (0, 0), given.offset)
        value = value + index(1)
    else:
        view = given
        for size, wanted in zip(given.shape, (batch, length)):
            ctx.check_equal(size, wanted)
    value = select(value < 0, const(FAR_AWAY, "i64"), value)
    return index_tensor(ctx, (batch, length), [view], value, "positions")


def _accepts_several_axes(node: Node) -> str:
    attrs = attribute_values(node)
    if attrs.get("is_packed_batching"):
        return "packed sequences"
    x, positions, cos, sin = node.inputs[:4]
    shape, angles = (value.shape if value is not None else None for value in (x, cos))
    if not shape or not angles or len(shape) not in (3, 4) or len(angles) != 2 or not isinstance(angles[1], int):
        return "sizes that are not known"
    section = attrs["mrope_section"]
    if sin is None or sin.shape != angles or len(section) != _STREAMS or sum(section) != angles[1] or min(section) < 0:
        return "caches or sections that do not fit"
    hidden, heads = shape[-1], _heads(node)
    if not isinstance(hidden, int) or (len(shape) == 3 and (not heads or hidden % heads)):
        return "a hidden size that is not divided into heads"
    if 2 * angles[1] > (hidden if len(shape) == 4 else hidden // heads):
        return "caches that do not fit the head"
    return "" if positions is not None and len(positions.shape or ()) == 3 else "positions of another rank"


@template("MRotaryEmbedding", domain=_MICROSOFT, types={"T": ("f32", "f16", "bf16")}, accepts=_accepts_several_axes)
def multi_axis_rotary_embedding(ctx: LowerContext, group: Group) -> None:
    """Every angle is that of one of three positions: in time, height or width."""
    node = group.root
    assert node is not None
    x, positions, cos, sin = (value for value in node.inputs[:4] if value is not None)
    attrs, heads = attribute_values(node), _heads(node)
    source, target = split_heads(ctx.view(x), heads), split_heads(ctx.output(node.outputs[0]), heads)
    batch, _, length, _ = source.shape
    given = ctx.view(positions)
    for size, wanted in zip(given.shape, (_STREAMS, batch, length)):
        ctx.check_equal(size, wanted)
    value = load(0, given.buffer.dtype.name).cast("i64")
    rows = index_tensor(ctx, (_STREAMS, batch, length), [given], select(value < 0, const(FAR_AWAY, "i64"), value), "positions")
    half = ctx.shape(cos)[1]
    assert isinstance(half, int)
    streams = streams_of_columns(tuple(attrs["mrope_section"]), attrs.get("mrope_layout"), half)
    chosen = ctx.literal(streams.astype(np.int32))
    scale = attrs.get("scale")
    factor = const(1.0 if scale is None else float(np.float32(scale)), "f32")
    angles = []
    for every in angles_at(ctx, group, (cos, sin), rows):
        kind = every.buffer.dtype.name
        views = [ctx.at(every, 0, number) for number in range(_STREAMS)]
        made = ctx.scratch(every.buffer.dtype, (batch, length, half), "angles")
        time, height, width = (load(number, kind).cast("f32") for number in range(_STREAMS))
        stream = load(_STREAMS, "i32")
        angle = select(stream.eq(0), time, select(stream.eq(1), height, width)) * factor
        along = View(chosen.buffer, made.shape, (0, 0, 1), chosen.offset)
        types = [kind] * _STREAMS + ["i32", kind]
        stores = [(_STREAMS + 1, angle.cast(kind))]
        nodes = tuple(each.label for each in group.nodes)
        ctx.step(loop_step(made.shape, [*views, along, made], types, stores, target=ctx.target, label="angles", nodes=nodes))
        angles.append(made)
    rotate(ctx, group, source, angles[0], angles[1], target, interleaved=bool(attrs.get("interleaved")))
