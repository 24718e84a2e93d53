"""Gradients of pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

_WINDOW: Final = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def _attrs(b: Backward, *more: str) -> dict[str, Any]:
    return {name: b.node.attrs[name].value for name in (*_WINDOW, *more) if name in b.node.attrs}


@gradient("MaxPool")
def _max_pool(b: Backward) -> Results:
    return [b.own("MaxPoolGrad", b.dy(), b.x(), b.y(), **_attrs(b))]


@gradient("AveragePool")
def _average_pool(b: Backward) -> Results:
    return [b.own("AveragePoolGrad", b.dy(), b.Shape(b.x()), **_attrs(b, "count_include_pad"))]


@gradient("LpPool")
def _lp_pool(b: Backward) -> Results:
    """Each window's share of its elements is that of a mean, times the number of elements."""
    if b.attr("ceil_mode"):
        b.refuse("it has ceil_mode", "pad its input")
    counted = float(np.prod(b.attr("kernel_shape")))
    shared = b.own("AveragePoolGrad", _of_root(b).value, b.Shape(b.x()), count_include_pad=1, **_attrs(b))
    return [_of_power(b, Term(b, shared, dtype_of(b.x())) * counted)]


@gradient("GlobalLpPool")
def _global_lp_pool(b: Backward) -> Results:
    return [_of_power(b, _of_root(b))]


def _of_root(b: Backward) -> Term:
    """The gradient of a sum of powers, over p: that of its root y times y ** (1 - p); 0 where all elements are."""
    p, y = float(b.attr("p")), b.t(b.y())
    if p == 1:
        return b.d()
    slope = b.d() / (y if p == 2 else y.apply("Pow", b.number(p - 1, b.y())))
    return slope.select(y.compare("Greater", 0))


def _of_power(b: Backward, d: Term) -> Value:
    p, x = float(b.attr("p")), b.t(b.x())
    if p == 2:
        return (d * x).value
    slope = x.apply("Sign")
    if p != 1:
        slope = slope * x.apply("Abs").apply("Pow", b.number(p - 1, b.x()))
    return (d * slope).value


@gradient("GlobalAveragePool")
def _global_average_pool(b: Backward) -> Results:
    sizes = b.shape(b.x())[2:]
    dtype = dtype_of(b.x())
    if all(isinstance(size, int) for size in sizes):
        share = b.d() / float(np.prod([int(str(size)) for size in sizes]))
    else:
        count = b.ReduceProd(b.sizes(b.x(), *range(2, len(sizes) + 2)), keepdims=0)
        share = b.d() / Term(b, b.Cast(count, to=dtype.onnx), dtype)
    return [b.Expand(share.value, b.Shape(b.x()))]


@gradient("GlobalMaxPool")
def _global_max_pool(b: Backward) -> Results:
    """Several largest elements share the gradient."""
    x = b.t(b.x())
    axes = b.ints(*range(2, b.rank(b.x())))
    hits = Term(b, b.Cast(x.compare("Equal", b.t(b.y())), to=x.dtype.onnx), x.dtype)
    return [(hits * (b.d() / hits.apply("ReduceSum", axes, keepdims=1))).value]
