"""Reductions along axes and the softmax family, as rules over rows; they mean what `ops/rows/reduce.py` says."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from sardonyx.analysis.attributes import attribute_values
from sardonyx.ir.dims import dim_max
from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import FLOATS, SIGNED, Expr, const, index, select, sqrt, unary
from sardonyx.kernel.math import exp, exp_not_positive, log
from sardonyx.lower.elementwise.cast import as_processor
from sardonyx.lower.groups import Group
from sardonyx.lower.lowering import LowerContext
from sardonyx.lower.registry import template
from sardonyx.lower.rows.rows import Made, Rows, lower_rows, wide
from sardonyx.ops.infer import normalize_axis


def _sum(rows: Rows) -> Expr:
    return rows.total("sum", rows.x)


def _mean(rows: Rows) -> Expr:
    if rows.x.type in FLOATS:
        return rows.mean(rows.x)
    # Integers are added in 64 bits: the mean fits where the sum may not.
    kind = "i64" if rows.x.type in SIGNED else "u64"
    return rows.mean(rows.x.cast(kind)).cast(rows.x.type)


def _log_sum_exp(rows: Rows) -> Expr:
    x = wide(rows.x)
    largest = rows.total("max", x)
    shift = select(unary("abs", largest) < math.inf, largest, select(unary("isnan", largest), largest, 0.0))
    return log(rows.total("sum", exp(x - shift))) + shift


_REDUCERS: Final[dict[str, Callable[[Rows], Expr]]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": lambda rows: rows.total("max", rows.x),
    "ReduceMin": lambda rows: rows.total("min", rows.x),
    "ReduceProd": lambda rows: rows.total("prod", rows.x),
    "ReduceL1": lambda rows: rows.total("sum", unary("abs", rows.x)),
    "ReduceL2": lambda rows: sqrt(rows.total("sum", wide(rows.x) * wide(rows.x))),
    "ReduceLogSum": lambda rows: log(rows.total("sum", wide(rows.x))),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda rows: rows.total("sum", rows.x * rows.x),
}


def _axes_are_constant(node: Node) -> str:
    """Why the axes are not known, or that there are none; "" if all is well."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        axes = node.inputs[1]
        made = axes.producer
        if axes.constant is None and (made is None or made.op_type != "Constant"):
            return "the axes are known only at run time"
        none = axes.shape == (0,)
    else:
        none = not attribute_values(node).get("axes")
    return "no axis is reduced" if none and attribute_values(node).get("noop_with_empty_axes") else ""


def _reduces_the_last_axis(node: Node) -> bool:
    """Whether the elements of a row are neighbours: a kernel then makes one result after the other."""
    source, given = node.inputs[0], attribute_values(node).get("axes")
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is not None and axes.constant is not None:
        given = axes.constant.numpy().reshape(-1).tolist()
    rank = len((source and source.shape) or ())
    return not given or rank - 1 in (axis % max(rank, 1) for axis in given)


def reduced_axes(ctx: LowerContext, node: Node) -> tuple[int, ...]:
    """The axes a Reduce node reduces, in order."""
    source = node.inputs[0]
    assert source is not None
    rank = len(ctx.shape(source))
    given = attribute_values(node).get("axes")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        given = ctx.integers(node.inputs[1])
        assert given is not None, f"{node.label}: the result's shape is known, so the axes must be"
    return tuple(sorted({normalize_axis(axis, rank) for axis in given})) if given else tuple(range(max(rank, 1)))


@template(*_REDUCERS, accepts=_axes_are_constant, fuses=True, absorbs=True, makes_single_results=_reduces_the_last_axis)
def reduce(ctx: LowerContext, group: Group) -> None:
    assert group.root is not None
    reducer = _REDUCERS[group.root.op_type]

    def rule(rows: Rows) -> Made:
        result = reducer(rows)
        source = rows.x.type
        if source not in FLOATS and result.type in FLOATS:
            result = as_processor(result, source)
        return Made(results={rows.output: result.cast(source)})

    lower_rows(ctx, group, rule, reduced_axes(ctx, group.root), side_by_side=True)


def _axis_is_not_empty(node: Node) -> str:
    source = node.inputs[0]
    assert source is not None
    shape = source.shape or ()
    if not shape:
        return ""
    size = shape[normalize_axis(attribute_values(node)["axis"], len(shape))]
    return "" if size != 0 else "the axis is empty, which is an error"


@template("ArgMax", "ArgMin", accepts=_axis_is_not_empty, absorbs=True)
def arg_extremum(ctx: LowerContext, group: Group) -> None:
    assert group.root is not None
    attrs = attribute_values(group.root)
    kind = group.root.op_type.lower() + ("_last" if attrs.get("select_last_index") else "")
    source = group.root.inputs[0]
    assert source is not None
    axis = normalize_axis(attrs["axis"], max(len(ctx.shape(source)), 1))
    for size in ctx.shape(source)[axis : axis + 1]:
        ctx.check_equal(dim_max(size, 1), size)

    def rule(rows: Rows) -> Made:
        return Made(results={rows.output: _position_of_extreme(rows, kind)})

    lower_rows(ctx, group, rule, (axis,), side_by_side=True)


def _position_of_extreme(rows: Rows, kind: str) -> Expr:
    """The position of the first or last extreme of each row.

    Where lanes are neighbours in a row, first the extreme is found, then where it is: joining lanes that carry positions along
    takes longer, unless elements have to be widened twice. A NaN is more extreme than any number, and makes the extreme one.
    """
    if not rows.inner or rows.x.type not in _WHOLE_WORDS:
        return rows.total(kind, rows.x)
    extreme = rows.total("max" if kind.startswith("argmax") else "min", rows.x)
    found = rows.x.eq(extreme)
    if rows.x.type in FLOATS:
        found = found | rows.x.ne(rows.x)
    if kind.endswith("_last"):
        return rows.total("max", select(found, index(-1), const(-1, "i64")))
    return rows.total("min", select(found, index(-1), const(2**63 - 1, "i64")))


_WHOLE_WORDS: Final = frozenset(("f32", "f64", "i32", "u32", "i64", "u64"))


def _softmax(rows: Rows) -> Expr:
    """From the distance to the largest; a NaN reaches every element through the sum."""
    weight = rows.kept(exp_not_positive(rows.x - rows.total("maxnum", rows.x)))
    return weight * (const(1, weight.type) / rows.total("sum", weight))


def _log_softmax(rows: Rows) -> Expr:
    distance = rows.x - rows.total("maxnum", rows.x)
    return distance - log(rows.total("sum", exp_not_positive(distance)))


def _hardmax(rows: Rows) -> Expr:
    """1 at the first largest element, 0 elsewhere."""
    kind = rows.x.type
    return select(index(-1 if rows.inner else -2).eq(rows.total("argmax", rows.x)), const(1, kind), const(0, kind))


_SOFTMAXES: Final[dict[str, Callable[[Rows], Expr]]] = {"Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}


@template(*_SOFTMAXES, fuses=True, absorbs=True)
def softmax(ctx: LowerContext, group: Group) -> None:
    """Before opset 13 all dimensions from the axis on were one."""
    node = group.root
    assert node is not None
    source = node.inputs[0]
    assert source is not None
    rank = len(ctx.shape(source))
    axis = attribute_values(node)["axis"]
    axes: tuple[int, ...]
    if node.version >= 13:
        axes = (normalize_axis(axis, rank),) if rank else (0,)
    else:
        axes = tuple(range(normalize_axis(axis, rank) if axis != rank else rank, rank))
    function = _SOFTMAXES[node.op_type]
    # Softmax has a walk of its own for short rows.
    lower_rows(ctx, group, lambda rows: Made(full={rows.output: function(rows)}), axes, side_by_side=node.op_type != "Softmax")
