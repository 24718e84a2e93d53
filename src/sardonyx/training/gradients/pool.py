"""Gradients of pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]

_VOLUME: Final = 3  # axes besides those of images and channels
_WINDOW: Final = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


def _attrs(b: Backward, *more: str) -> dict[str, Any]:
    return {name: b.node.attrs[name].value for name in (*_WINDOW, *more) if name in b.node.attrs}


@gradient("MaxPool")
def _max_pool(b: Backward) -> Results:
    if len(b.attr("kernel_shape")) == _VOLUME and b.attr("auto_pad") in (None, "NOTSET", "VALID"):
        return [_max_pool_of_volumes(b)]
    return [b.own("MaxPoolGrad", b.dy(), b.x(), b.y(), **_attrs(b))]


def _max_pool_of_volumes(b: Backward) -> Value:
    """First the maxima of each plane, then those along the planes: of equal elements both take the first, as all at once does."""
    attrs = _attrs(b)
    attrs.pop("auto_pad", None)
    along, across = _cut_attrs(attrs, 0, 1), _cut_attrs(attrs, 1, _VOLUME)
    x, y, dy = b.x(), b.y(), b.dy()
    transposed = b.Transpose(x, perm=[0, 2, 1, 3, 4])
    images = b.Reshape(transposed, b.Concat(b.ints(-1), b.sizes(x, 1, 3, 4), axis=0))
    maxima = b.MaxPool(images, **across)
    # Planes are rows now, and the pixels of a plane columns.
    rows = b.Concat(b.sizes(x, 0, 1, 2), b.ints(-1), axis=0)
    planes = b.Reshape(maxima, b.Concat(b.sizes(x, 0, 2, 1), b.sizes(y, 3, 4), axis=0))
    lines = b.Reshape(b.Transpose(planes, perm=[0, 2, 1, 3, 4]), rows)
    of_y = b.Concat(b.sizes(y, 0, 1, 2), b.ints(-1), axis=0)
    of_lines = b.own("MaxPoolGrad", b.Reshape(dy, of_y), lines, b.Reshape(y, of_y), **along)
    of_planes = b.Reshape(of_lines, b.Concat(b.sizes(x, 0, 1, 2), b.sizes(y, 3, 4), axis=0))
    of_maxima = b.Reshape(b.Transpose(of_planes, perm=[0, 2, 1, 3, 4]), b.Shape(maxima))
    of_images = b.own("MaxPoolGrad", of_maxima, images, maxima, **across)
    return b.Transpose(b.Reshape(of_images, b.Shape(transposed)), perm=[0, 2, 1, 3, 4])


def _cut_attrs(attrs: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    """The attributes of a pool of volumes for some of its axes; with a single one, for another, too, on which nothing is done."""
    more = end - start < 2
    found = dict(attrs)
    for name, nothing in (("kernel_shape", 1), ("strides", 1), ("dilations", 1)):
        if found.get(name):
            found[name] = [*found[name][start:end], *([nothing] if more else [])]
    if found.get("pads"):
        halves = found["pads"][:_VOLUME], found["pads"][_VOLUME:]
        found["pads"] = [size for half in halves for size in (*half[start:end], *([0] if more else []))]
    return found


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
