"""Gradients of reductions and of softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]


def _kept(b: Backward, value: Value) -> Value:
    """A value of the result's shape, with the reduced axes as axes of size 1."""
    rank = b.rank(b.x())
    axes = b.axes(rank)
    if b.attr("keepdims") or (axes is None and b.attr("noop_with_empty_axes")) or not rank:
        return value
    return b.Unsqueeze(value, b.ints(*(axes if axes else range(rank))))


def _repeated(b: Backward, value: Value) -> Value:
    """A value of the result's shape, repeated along the reduced axes."""
    return b.Expand(_kept(b, value), b.Shape(b.x()))


def _does_nothing(b: Backward) -> bool:
    axes = b.axes(b.rank(b.x()))
    return not axes and bool(b.attr("noop_with_empty_axes"))


def reduction(*names: str) -> Callable[[Callable[[Backward, Term, Term, Term], Term | Value]], None]:
    """Register reductions by a formula of gradient, input and result, the latter with the axes kept."""

    def register(formula: Callable[[Backward, Term, Term, Term], Term | Value]) -> None:
        def rule(b: Backward) -> Results:
            x = b.t(b.x())
            d, y = Term(b, _kept(b, b.dy()), x.dtype), Term(b, _kept(b, b.y()), x.dtype)
            found = formula(b, d, x, y)
            return [found.value if isinstance(found, Term) else found]

        gradient(*names, stops=(1,))(rule)

    return register


@gradient("ReduceSum", stops=(1,))
def _reduce_sum(b: Backward) -> Results:
    return [b.dy() if _does_nothing(b) else _repeated(b, b.dy())]


@gradient("ReduceMean", stops=(1,))
def _reduce_mean(b: Backward) -> Results:
    if _does_nothing(b):
        return [b.dy()]
    return [_repeated(b, (b.d() / _count(b)).value)]


def _count(b: Backward) -> Term | float:
    """How many elements each result was made of."""
    shape = b.shape(b.x())
    axes = b.axes(len(shape)) or tuple(range(len(shape)))
    sizes = [shape[axis] for axis in axes]
    dtype = dtype_of(b.x())
    if all(isinstance(size, int) for size in sizes):
        return float(np.prod([int(str(size)) for size in sizes]))
    count = b.ReduceProd(b.sizes(b.x(), *axes), keepdims=0)
    return Term(b, b.Cast(count, to=dtype.onnx), dtype)


reduction("ReduceSumSquare")(lambda b, d, x, y: d * (x * 2))
reduction("ReduceL1")(lambda b, d, x, y: d * x.apply("Sign"))
reduction("ReduceLogSumExp")(lambda b, d, x, y: d * (x - y).apply("Exp"))
reduction("ReduceLogSum")(lambda b, d, x, y: (d / y.apply("Exp")).apply("Expand", b.Shape(b.x())))


@reduction("ReduceL2")
def _reduce_l2(b: Backward, d: Term, x: Term, y: Term) -> Term:
    quotient = (d / y).select(y.compare("Greater", 0))  # the norm of zeros has no slope: torch says 0
    return quotient * x


@reduction("ReduceMax", "ReduceMin")
def _reduce_extremum(b: Backward, d: Term, x: Term, y: Term) -> Term:
    hits = Term(b, b.Cast(x.compare("Equal", y), to=x.dtype.onnx), x.dtype)
    rank = b.rank(b.x())
    axes = b.axes(rank) or tuple(range(rank))
    count = hits.apply("ReduceSum", b.ints(*axes), keepdims=1)
    return hits * (d / count)  # several largest elements share the gradient


@reduction("ReduceProd")
def _reduce_prod(b: Backward, d: Term, x: Term, y: Term) -> Term:
    """product / x where x is not zero; of a single zero the product of the others, of several nothing."""
    rank = b.rank(b.x())
    axes = b.ints(*(b.axes(rank) or range(rank)))
    zero = x.compare("Equal", 0)
    ones = Term(b, b.g.constant(b.number(1, b.x())), x.dtype)
    others = ones.select(zero, x)
    total = others.apply("ReduceProd", **_axes_attr(b, axes))
    zeros = Term(b, b.Cast(zero, to=x.dtype.onnx), x.dtype).apply("ReduceSum", axes, keepdims=1)
    single = total.select(zeros.compare("Equal", 1))
    plain = (total / others).select(zeros.compare("Equal", 0))
    return d * single.select(zero, plain)


def _axes_attr(b: Backward, axes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, object]:
    """Axes of a reduction that has taken them as an input since opset 18 only."""
    return {"axes": axes.tolist(), "keepdims": 1, "version": 13}


def _rows(b: Backward) -> tuple[Term, Term, int]:
    """Gradient and result of a softmax, and its axis; before opset 13 it is over all axes from there on, as one."""
    d, y, axis = b.d(), b.t(b.y()), int(b.attr("axis"))
    if b.node.version >= 13:
        return d, y, axis
    flat = b.ints(0, -1) if axis in (1, 1 - b.rank(b.y())) else None
    if flat is None:
        rank = b.rank(b.y())
        rows = b.ReduceProd(b.sizes(b.y(), *range(axis % rank)), keepdims=1) if axis % rank else b.g.constant(b.ints(1))
        shape = b.Concat(rows, b.ints(-1), axis=0)
        return d.apply("Reshape", shape), y.apply("Reshape", shape), 1
    return d.apply("Reshape", flat), y.apply("Reshape", flat), 1


def _unflattened(b: Backward, term: Term) -> Results:
    return [term.value if b.node.version >= 13 else b.Reshape(term.value, b.Shape(b.x()))]


@gradient("Softmax")
def _softmax(b: Backward) -> Results:
    d, y, axis = _rows(b)
    along = (d * y).apply("ReduceSum", b.ints(axis), keepdims=1)
    return _unflattened(b, y * (d - along))


@gradient("LogSoftmax")
def _log_softmax(b: Backward) -> Results:
    d, y, axis = _rows(b)
    return _unflattened(b, of_logits(b, d, y, axis))


def of_logits(b: Backward, d: Term, y: Term, axis: int) -> Term:
    """The gradient of what a LogSoftmax along an axis was taken of."""
    return d - y.apply("Exp") * d.apply("ReduceSum", b.ints(axis), keepdims=1)


@gradient("CumSum", stops=(1,))
def _cumsum(b: Backward) -> Results:
    reverse = 0 if b.attr("reverse") else 1
    return [b.CumSum(b.dy(), b.x(1), exclusive=b.attr("exclusive"), reverse=reverse)]
