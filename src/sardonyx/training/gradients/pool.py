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
