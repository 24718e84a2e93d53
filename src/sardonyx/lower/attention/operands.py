"""What operators of attention read: inputs that may be left out, heads, keys and values with those of the past."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir.dims import floordiv
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.kernel import math
from sardonyx.kernel.expr import Expr, const, load
from sardonyx.lower.groups import Group
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.program.steps import View


def consecutive(ctx: LowerContext, view: View, kind: str, group: Group) -> View:
    """The view in the computing type, consecutive along its last axis."""
    if view.buffer.dtype.name == kind and (view.strides[-1] == 1 or view.shape[-1] == 1):
        return view
    target = ctx.scratch(dtypes.from_name(kind), view.shape, "converted")
    convert(ctx, group, view, target)
    return target


def convert(ctx: LowerContext, group: Group, source: View, target: View) -> None:
    """Copy a view into another of the same shape and perhaps another type."""
    types = [view.buffer.dtype.name for view in (source, target)]
    value = load(0, types[0]).cast(compute_type(types[0])).cast(compute_type(types[1])).cast(types[1])
    nodes = tuple(node.label for node in group.nodes)
    ctx.step(loop_step(target.shape, [source, target], types, [(1, value)], target=ctx.target, label="convert", nodes=nodes))


def split_heads(view: View, heads: int) -> View:
    """[batch, time, heads * size] as [batch, heads, time, size]; a view with four axes has that form."""
    if len(view.shape) == 4:
        return view
    size = floordiv(view.shape[2], heads)
    batch, time, inner = view.strides
    return View(view.buffer, (view.shape[0], heads, view.shape[1], size), (batch, inner * size, time, inner), view.offset)


def joined(ctx: LowerContext, past: View | None, new: View, present: Value | None) -> View:
    """Past and new keys (or values) one after the other along time; they are the value `present`, if that is used."""
    if past is None:
        if present is not None:
            ctx.set_view(present, new)
        return new
    shape = (*new.shape[:2], past.shape[2] + new.shape[2], new.shape[3])
    for axis in (0, 1, 3):
        ctx.check_equal(past.shape[axis], new.shape[axis])
    target = ctx.output(present) if present is not None else ctx.scratch(new.buffer.dtype, shape, "present")
    ctx.check_equal(target.shape[2], shape[2])
    ctx.copy(past, ctx.part(target, 2, 0, past.shape[2]), "past")
    ctx.copy(new, ctx.part(target, 2, past.shape[2], new.shape[2]), "append")
    return target


def used_outputs(ctx: LowerContext, group: Group, node: Node) -> list[Value | None]:
    """The outputs somebody reads, by position; four of them."""
    escaping = set(ctx.escaping(group))
    found = [value if value in escaping else None for value in node.outputs]
    return found + [None] * (4 - len(found))


def input_at(node: Node, position: int) -> Value | None:
    """An input that may be left out."""
    return node.inputs[position] if position < len(node.inputs) else None


def float_kinds(node: Node, positions: Sequence[int]) -> set[str]:
    """The element types of some inputs."""
    values = [input_at(node, position) for position in positions]
    return {value.type.dtype.name for value in values if value is not None and isinstance(value.type, TensorType)}


def softcapped(score: Expr, cap: float | None) -> Expr:
    """Scores pressed into -cap .. cap."""
    return score if not cap else math.tanh(score / const(cap, score.type)) * cap
