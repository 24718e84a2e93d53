"""MatMulInteger and QLinearMatMul: products of 8-bit integers, added up in 32 bits; they mean what `ops/quant/quant.py` says.

The distances to the zero points are written as 32-bit integers first, those of constants when the program is made.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, load
from sardonyx.lower.epilogue import group_epilogue
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.indexing import given
from sardonyx.lower.indexing.movement import root_of
from sardonyx.lower.loop_builder import loop_step
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.matmul.matmul import lower_product, product_into
from sardonyx.lower.quant.quant import saturated
from sardonyx.lower.registry import template
from sardonyx.lower.views import with_axes
from sardonyx.program.constants import Cut, transform
from sardonyx.program.steps import View


def _rank(value: Value | None) -> int:
    return len(value.shape or ()) if value is not None else 0


def _fits(zero_point: Value | None, matrix: Value | None, axis: int) -> bool:
    """Whether a zero point is one number or has one for each row (axis -2) or column (axis -1) of a matrix."""
    if zero_point is None or set(zero_point.shape or ()) <= {1}:
        return True
    shape = (matrix.shape or ()) if matrix is not None else ()
    return len(shape) >= 2 and len(zero_point.shape or ()) == 1 and (zero_point.shape or ())[0] == shape[axis]


def _accepts_integers(node: Node) -> str:
    a, b = node.inputs[:2]
    zero_points = [*node.inputs[2:], None, None]
    if not _rank(a) or not _rank(b):
        return "an operand has no dimensions"
    return "" if _fits(zero_points[0], a, -2) and _fits(zero_points[1], b, -1) else "zero points of another form"


@template("MatMulInteger", accepts=_accepts_integers, fuses=True)
def matmul_integer(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    zero_points = [*node.inputs[2:], None, None]
    a = centred(ctx, group, given(node, 0), zero_points[0], -2)
    b = centred(ctx, group, given(node, 1), zero_points[1], -1)
    lower_product(ctx, group, a, b, 1.0)


def _accepts_quantized(node: Node) -> str:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    if _rank(a) < 2 or _rank(b) < 2:
        return "an operand that is no matrix"
    if not (_fits(a_zero, a, -2) and _fits(b_zero, b, -1) and _fits(b_scale, b, -1)):
        return "zero points or scales of another form"
    single = all(set((value.shape if value is not None else None) or ()) <= {1} for value in (a_scale, y_scale, y_zero))
    return "" if single else "a scale for every row"


@template("QLinearMatMul", accepts=_accepts_quantized, fuses=True)
def qlinear_matmul(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    assert group.shape is not None
    a = centred(ctx, group, given(node, 0), node.inputs[2], -2)
    b = centred(ctx, group, given(node, 3), node.inputs[5], -1)
    output = node.outputs[0]

    def root(operand: Callable[[Value], int]) -> dict[Value, Expr]:
        def leaf(position: int) -> Expr:
            value = given(node, position)
            return load(operand(value), ctx.dtype(value).name).cast("f32")

        factor = leaf(1) * leaf(4) / leaf(6)
        value = accumulator("i32").cast("f32") * factor
        return {output: saturated(value, leaf(7), ctx.dtype(output).name)}

    epilogue = group_epilogue(ctx, group, root)
    if epilogue.stores:
        product_into(ctx, group, a, b, epilogue, group.shape)


def _distance_cuts(elements: Array, origin: Array | None, axis: int) -> list[Cut]:
    """Every axis but one along which the zero points change."""
    kept = -1 if origin is None or origin.size == 1 else axis % elements.ndim
    return [Cut(each, each) for each in range(elements.ndim) if each != kept]


@transform("centre_on_zero_point", 1, _distance_cuts)
def _distances(elements: Array, origin: Array | None, axis: int) -> Array:
    """The distances of elements to one zero point, or to one for each place of an axis."""
    if origin is None:
        return elements.astype(np.int32)
    shape = [1] * elements.ndim
    if origin.size != 1:
        shape[axis] = origin.size
    return np.ascontiguousarray(elements.astype(np.int32) - origin.astype(np.int32).reshape(shape))


def centred(ctx: LowerContext, group: Group, value: Value, zero_point: Value | None, axis: int, into: View | None = None) -> View:
    """The distances of a tensor's elements to their zero point: one number, or one for each place of an axis."""
    known, origin = ctx.constant_data(value), ctx.constant_data(zero_point)
    rank = len(ctx.shape(value))
    others = [place for place in range(rank) if place != axis % rank]
    if into is None and known is not None and (zero_point is None or origin is not None):
        sources = (ctx.view(value), None if zero_point is None else ctx.view(zero_point))
        return ctx.packed(_distances, sources, axis, dtype=dtypes.INT32, shape=known.shape)
    x = ctx.straight(value)
    views, expression = [x], load(0, x.buffer.dtype.name).cast("i32")
    if zero_point is not None:
        given_view = ctx.view(zero_point)
        if set(given_view.shape) <= {1}:
            views.append(View(given_view.buffer, (), (), given_view.offset))
        else:
            views.append(with_axes(given_view, others))
        expression = expression - load(1, given_view.buffer.dtype.name).cast("i32")
    target = ctx.scratch(dtypes.INT32, x.shape, "centred") if into is None else into
    types = [view.buffer.dtype.name for view in (*views, target)]
    stores = [(len(views), expression)]
    step = loop_step(x.shape, [*views, target], types, stores, target=ctx.target, label=group.label, nodes=(group.label,))
    ctx.step(step)
    return target
