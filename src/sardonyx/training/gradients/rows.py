"""Gradients of reductions, of softmax and of losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sardonyx.dtypes import INT64
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
    return _unflattened(b, _of_logits(b, d, y, axis))


def _of_logits(b: Backward, d: Term, y: Term, axis: int) -> Term:
    return d - y.apply("Exp") * d.apply("ReduceSum", b.ints(axis), keepdims=1)


@gradient("CumSum", stops=(1,))
def _cumsum(b: Backward) -> Results:
    reverse = 0 if b.attr("reverse") else 1
    return [b.CumSum(b.dy(), b.x(1), exclusive=b.attr("exclusive"), reverse=reverse)]


@gradient("SoftmaxCrossEntropyLoss", stops=(1, 2))
def _cross_entropy(b: Backward) -> Results:
    """From the logarithms of the probabilities, which are the second output."""
    logarithms = Term(b, b.y(1), dtype_of(b.x()))
    found: list[Term] = []
    if b.gradients[0] is not None:
        probabilities = logarithms.apply("Exp")
        found.append(_label_factors(b) * (probabilities - 1).select(_is_label(b), probabilities))
    if len(b.gradients) > 1 and b.gradients[1] is not None:
        found.append(_of_logits(b, Term(b, b.dy(1), logarithms.dtype), logarithms, 1))
    return [(found[0] if len(found) == 1 else found[0] + found[1]).value]


@gradient("NegativeLogLikelihoodLoss", stops=(1, 2))
def _negative_log_likelihood(b: Backward) -> Results:
    return [(-_label_factors(b)).select(_is_label(b)).value]


def _is_label(b: Backward) -> Value:
    """[N, C, ...]: whether a class is the label."""
    labels, rank, classes = b.x(1), b.rank(b.x()), b.shape(b.x())[1]
    wide = b.Unsqueeze(b.Cast(labels, to=INT64.onnx), b.ints(1))
    if isinstance(classes, int):
        numbers = b.g.constant(np.arange(classes).reshape(classes, *(1,) * (rank - 2)))
    else:
        count = b.Squeeze(b.sizes(b.x(), 1))
        line = b.Range(np.array(0, np.int64), count, np.array(1, np.int64))
        numbers = b.Unsqueeze(line, b.ints(*range(1, rank - 1))) if rank > 2 else line
    return b.Equal(wide, numbers)


def _ignored(b: Backward, labels: Value) -> Value | None:
    """Where the label is the one to ignore; None if there is no such."""
    ignore = b.node.attr("ignore_index")
    return None if ignore is None else b.Equal(labels, np.array(ignore, dtype_of(labels).numpy))


def _safe_labels(b: Backward, labels: Value) -> Value:
    """Labels with 0 for those to ignore, as 64-bit integers."""
    ignored = _ignored(b, labels)
    if ignored is not None:
        labels = b.Where(ignored, np.zeros((), dtype_of(labels).numpy), labels)
    return b.Cast(labels, to=INT64.onnx)


def _label_factors(b: Backward) -> Term:
    """[N, 1, ...]: for each label the gradient of minus the logarithm of its probability; 0 where it is ignored."""
    labels, dtype, kind = b.x(1), dtype_of(b.x()), b.attr("reduction")
    ignored = _ignored(b, labels)
    if b.has(2):
        factors = b.Gather(b.x(2), _safe_labels(b, labels), axis=0)
    else:
        factors = b.ConstantOfShape(b.Shape(labels), value=np.ones(1, dtype.numpy))
    if ignored is not None:
        factors = b.Where(ignored, np.zeros((), dtype.numpy), factors)
    scaled = b.Mul(factors, b.dy())
    if kind == "mean":
        scaled = b.Div(scaled, b.ReduceSum(factors, keepdims=0))
    return Term(b, b.Unsqueeze(scaled, b.ints(1)), dtype)
