"""Tensors made from little: ranges, diagonals, one-hot rows, constants of a shape."""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import DimExpr, product, symbols_of
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import FLOATS, Expr, clamp, const, index, load, select, unary
from sardonyx.lower.groups import Group
from sardonyx.lower.indexing.index_loops import indexed_loop
from sardonyx.lower.indexing.movement import first_input, root_of
from sardonyx.lower.lowering import LowerContext, compute_type
from sardonyx.lower.registry import template, view
from sardonyx.lower.views import expanded, reshaped, with_axes
from sardonyx.ops.infer import normalize_axis
from sardonyx.program.steps import View

_FARTHEST: Final = 1 << 62  # diagonal


@view("ConstantOfShape", data_dependent_sizes=True)
def constant_of_shape(ctx: LowerContext, node: Node) -> bool:
    """One number, seen everywhere; how often may be data."""
    value, output, shape = attribute_values(node).get("value"), node.outputs[0], first_input(node)
    if ctx.elements(shape) is None and ctx.shape(output):
        ctx.bind_sizes(ctx.view(shape), ctx.shape(output), node)
    dtype = ctx.dtype(output)
    data = dtype.numpy.type(0) if value is None else value.reshape(-1)[0]
    one = ctx.literal(np.asarray(data, dtype.numpy))
    ctx.set_view(output, expanded(one, ctx.shape(output)))
    return True


def scalar_input(ctx: LowerContext, node: Node, position: int) -> View:
    """An input of one element, whatever its rank."""
    value = node.inputs[position]
    assert value is not None
    ctx.check_equal(product(list(ctx.shape(value))), 1)
    found = reshaped(ctx.contiguous(value), ())
    assert found is not None
    return found


@template("Range", writes_anywhere=True, data_dependent_sizes=True)
def range_(ctx: LowerContext, group: Group) -> None:
    """start + position * delta, rounded once."""
    node = root_of(group)
    output = node.outputs[0]
    name = ctx.dtype(output).name
    kind = compute_type(name)
    views = [scalar_input(ctx, node, position) for position in range(3)]
    start, limit, delta = (load(number, name).cast(kind) for number in range(3))
    (length,) = ctx.shape(output)
    elements = [ctx.elements(value) for value in node.inputs]
    made_of = {name for each in elements for dim in each or () for name in symbols_of(dim)}
    if isinstance(length, DimExpr) and length.is_symbol and (None in elements or str(length) not in made_of):
        counted = ctx.scratch(dtypes.INT64, (1,), "length")
        indexed_loop(ctx, (1,), views, counted, _range_length(start, limit, delta), group.label)
        ctx.bind_sizes(counted, (length,), node)
    views = [views[0], views[2]]
    start, delta = (load(number, name).cast(kind) for number in (0, 1))
    indexed_loop(ctx, (length,), views, ctx.output(output), start + index(0).cast(kind) * delta, group.label)


def _range_length(start: Expr, limit: Expr, delta: Expr) -> Expr:
    """How many numbers a range has; -1, which is no size, if it does not end: the definition says what is wrong with it."""
    if start.type in FLOATS:
        first, last, step = (value.cast("f64") for value in (start, limit, delta))
        exact = unary("ceil", (last - first) / step)
        ends = step.ne(0.0)
        for value in (first, last, step):
            ends = ends & (unary("abs", value) < float("inf"))
        return select(ends, clamp(exact, 0.0, 2.0**62).cast("i64"), -1)
    first, last, step = (value.cast("i64") for value in (start, limit, delta))
    up = step > 0
    distance, stride = select(up, last - first, first - last), select(step.eq(0), 1, unary("abs", step))
    # The distance of two far ends does not fit: what is left is then negative although the ends are in order.
    fits = (distance > 0).eq(select(up, last > first, first > last))
    length = select(distance > 0, (distance - 1) / stride + 1, 0)
    return select(step.ne(0) & fits, length, -1)


def _is_matrix(node: Node) -> str:
    value = node.inputs[0]
    return "" if value is not None and value.shape is not None and len(value.shape) == 2 else "the input is no matrix"


@template("EyeLike", accepts=_is_matrix, writes_anywhere=True)
def eye_like(ctx: LowerContext, group: Group) -> None:
    node = root_of(group)
    output = node.outputs[0]
    name, offset = ctx.dtype(output).name, attribute_values(node).get("k") or 0
    one = index(1).eq(_on_diagonal(0, const(offset, "i64"))).cast(compute_type(name))
    indexed_loop(ctx, ctx.shape(output), [], ctx.output(output), one, group.label)


def _on_diagonal(rows: int, offset: Expr) -> Expr:
    """The column of a diagonal: the same all along a row. Offsets that no matrix reaches are cut, so that no sum overflows."""
    return index(rows) + clamp(offset, -_FARTHEST, _FARTHEST)


def _has_matrices(node: Node) -> str:
    value = node.inputs[0]
    return "" if value is not None and value.shape is not None and len(value.shape) >= 2 else "the input has no matrices"


@template("Trilu", accepts=_has_matrices, writes_anywhere=True)
def trilu(ctx: LowerContext, group: Group) -> None:
    """Elements on one side of a diagonal; the diagonal may be data."""
    node = root_of(group)
    output = node.outputs[0]
    shape, name = ctx.shape(output), ctx.dtype(output).name
    views = [ctx.view(first_input(node))]
    diagonal: Expr = const(0, "i64")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        known = ctx.integers(node.inputs[1])
        if known is None:
            views.append(scalar_input(ctx, node, 1))
            diagonal = load(1, "i64")
        else:
            diagonal = const(known[0], "i64")
    column, first = index(len(shape) - 1), _on_diagonal(len(shape) - 2, diagonal)
    kept = column >= first if attribute_values(node).get("upper", 1) else column <= first
    x = load(0, name)
    zero = const(0, "f32").cast(name) if name in ("f16", "bf16") else const(0, name)
    indexed_loop(ctx, shape, views, ctx.output(output), select(kept, x, zero), group.label)


@template("OneHot", writes_anywhere=True)
def one_hot(ctx: LowerContext, group: Group) -> None:
    """Each index against each class; an index outside of -depth to depth - 1 has no class."""
    node = root_of(group)
    output = node.outputs[0]
    shape, name = ctx.shape(output), ctx.dtype(output).name
    axis = normalize_axis(attribute_values(node).get("axis", -1), len(shape))
    indices = with_axes(ctx.view(first_input(node)), [axis])
    values = node.inputs[2]
    assert values is not None
    both = ctx.contiguous(values)
    ctx.check_equal(product(list(both.shape)), 2)
    off, on = (View(both.buffer, (), (), both.offset + number) for number in (0, 1))
    wanted = load(0, indices.buffer.dtype.name).cast("i64")
    depth = ctx.sizes([shape[axis]], "depth")
    wanted = select(wanted < 0, wanted + load(3, "i64"), wanted)
    hot = select(wanted.eq(index(axis)), load(2, name), load(1, name))
    views = [indices, off, on, View(depth.buffer, (), (), 0)]
    indexed_loop(ctx, shape, views, ctx.output(output), hot, group.label)
