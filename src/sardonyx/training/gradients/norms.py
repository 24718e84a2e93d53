"""Gradients of normalisations.

With n = (x - mean) * inverse deviation, over the axes that are normalised, and the gradient d of n:

    dx = inverse * (d - mean(d) - n * mean(d * n))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.dtypes import FLOAT32, FLOAT64
from sardonyx.ir.graph import Value
from sardonyx.ir.types import Shape
from sardonyx.records import dataclass
from sardonyx.training.gradients.rules import Backward, Term, dtype_of, gradient

Results = Sequence[Value | None]


def _mean(term: Term, axes: Sequence[int], count: Term | float) -> Term:
    """The mean over some axes, which stay with size 1."""
    return term.apply("ReduceSum", term.b.ints(*axes), keepdims=1) / count


def _count(b: Backward, value: Value, shape: Shape, axes: Sequence[int]) -> Term | float:
    sizes = [shape[axis] for axis in axes]
    if all(isinstance(size, int) for size in sizes):
        return float(np.prod([int(str(size)) for size in sizes]))
    dtype = dtype_of(b.x())
    return Term(b, b.Cast(b.ReduceProd(b.sizes(value, *axes), keepdims=0), to=dtype.onnx), dtype)


def _statistics(x: Term, axes: Sequence[int], count: Term | float, epsilon: float) -> tuple[Term, Term]:
    """x - mean and the inverse deviation."""
    centred = x - _mean(x, axes, count)
    variance = _mean(centred * centred, axes, count)
    return centred, 1 / (variance + epsilon).apply("Sqrt")


def _standardised(d: Term, normal: Term, inverse: Term, axes: Sequence[int], count: Term | float, centred: bool = True) -> Term:
    """The gradient of what was normalised, from that of the normalised values."""
    along = _mean(d * normal, axes, count)
    inner = d - normal * along
    if centred:
        inner = inner - _mean(d, axes, count)
    return inverse * inner


@gradient("LayerNormalization")
def _layer_normalization(b: Backward) -> Results:
    x, shape = b.x(), b.shape(b.x())
    axis = int(b.attr("axis")) % len(shape)
    axes = range(axis, len(shape))
    count = _count(b, x, shape, axes)
    mean, inverse = Term(b, b.y(1), dtype_of(x)), Term(b, b.y(2), dtype_of(x))
    normal = (b.t(x) - mean) * inverse
    return _scaled(b, normal, lambda d: _standardised(d, normal, inverse, axes, count))


@gradient("SimplifiedLayerNormalization", "RMSNormalization")
@gradient("SimplifiedLayerNormalization", domain="com.microsoft")
def _rms_normalization(b: Backward) -> Results:
    x, shape = b.t(b.x()), b.shape(b.x())
    axis = int(b.attr("axis")) % len(shape)
    axes = range(axis, len(shape))
    count = _count(b, b.x(), shape, axes)
    inverse = 1 / (_mean(x * x, axes, count) + b.attr("epsilon")).apply("Sqrt")
    normal = x * inverse
    return _scaled(b, normal, lambda d: _standardised(d, normal, inverse, axes, count, centred=False))


def _scaled(b: Backward, normal: Term, of_normal: object) -> Results:
    """The gradients of input, scale and bias, from a function of the gradient of the normalised values."""
    results: list[Value | None] = [None, None, None]
    d, shape = b.d(), b.shape(b.x())
    if b.wants(0):
        results[0] = of_normal(d * b.t(b.x(1))).value  # type: ignore[operator]
    if b.wants(1):
        results[1] = b.sum_to((d * normal).value, shape, b.x(1))
    if b.has(2) and b.wants(2):
        results[2] = b.sum_to(d.value, shape, b.x(2))
    return results


def of_channels(b: Backward, value: Value, rank: int) -> Term:
    """One number for each channel, as [1, C, 1, ...]."""
    return Term(b, b.Unsqueeze(value, b.ints(0, *range(2, rank))), dtype_of(value))


def _channel_sum(b: Backward, term: Term, rank: int) -> Value:
    return term.apply("ReduceSum", b.ints(0, *range(2, rank)), keepdims=0).value


def _channel_total(term: Term, axes: np.ndarray[Any, Any]) -> Term:
    """The sum of every channel, as [1, C, 1, ...].

    It is added up in 64 bits, as PyTorch does: gradients of a norm are differences of such sums, and mostly cancel.
    """
    if term.dtype is not FLOAT32:
        return term.apply("ReduceSum", axes, keepdims=1)
    wide = Term(term.b, term.b.Cast(term.value, to=FLOAT64.onnx), FLOAT64).apply("ReduceSum", axes, keepdims=1)
    return Term(term.b, term.b.Cast(wide.value, to=FLOAT32.onnx), FLOAT32)


@dataclass(frozen=True)
class ChannelStatistics:
    """What a batch norm knows of its input: all as [1, C, 1, ...] but for the centred values."""

    mean: Term
    variance: Term
    centred: Term
    inverse: Term  # of the deviation
    count: Term | float  # elements of a channel


def channel_statistics(b: Backward) -> ChannelStatistics:
    """The statistics of a BatchNormalization in training."""
    x, shape = b.t(b.x()), b.shape(b.x())
    axes = (0, *range(2, len(shape)))
    count = _count(b, b.x(), shape, axes)
    along = b.ints(*axes)
    mean = _channel_total(x, along) / count
    centred = x - mean
    variance = _channel_total(centred * centred, along) / count
    return ChannelStatistics(mean, variance, centred, 1 / (variance + b.attr("epsilon")).apply("Sqrt"), count)


@gradient("BatchNormalization", stops=(3, 4))
def _batch_normalization(b: Backward) -> Results:
    """In training the statistics are those of the batch, else they are constants."""
    rank = b.rank(b.x())
    d, scale = b.d(), of_channels(b, b.x(1), rank)
    axes = b.ints(0, *range(2, rank))
    results: list[Value | None] = [None, None, None]
    if b.node.version < 14 or not b.attr("training_mode"):
        inverse = 1 / (of_channels(b, b.x(4), rank) + b.attr("epsilon")).apply("Sqrt")
        normal = (b.t(b.x()) - of_channels(b, b.x(3), rank)) * inverse
        results[0] = (d * (scale * inverse)).value if b.wants(0) else None
        results[1] = _channel_sum(b, d * normal, rank) if b.wants(1) else None
        results[2] = _channel_sum(b, d, rank) if b.wants(2) else None
        return results
    found = channel_statistics(b)
    normal = found.centred * found.inverse
    of_scale, of_bias = _channel_total(d * normal, axes), _channel_total(d, axes)
    if b.wants(0):
        results[0] = (scale * found.inverse * (d - (of_bias / found.count + normal * (of_scale / found.count)))).value
    results[1], results[2] = b.Squeeze(of_scale.value, axes), b.Squeeze(of_bias.value, axes)
    return results


@gradient("InstanceNormalization")
def _instance_normalization(b: Backward) -> Results:
    x, shape = b.t(b.x()), b.shape(b.x())
    rank = len(shape)
    axes = range(2, rank)
    count = _count(b, b.x(), shape, axes)
    centred, inverse = _statistics(x, axes, count, b.attr("epsilon"))
    normal, d = centred * inverse, b.d()
    of_x = _standardised(d * of_channels(b, b.x(1), rank), normal, inverse, axes, count).value if b.wants(0) else None
    return [of_x, _channel_sum(b, d * normal, rank), _channel_sum(b, d, rank)]


@gradient("GroupNormalization")
def _group_normalization(b: Backward) -> Results:
    """As rows of [N, groups, whatever is in a group]."""
    x, shape, groups = b.x(), b.shape(b.x()), int(b.attr("num_groups"))
    rank, dtype = len(shape), dtype_of(x)
    scale = b.x(1)
    scale_type = scale.type
    channels = b.sizes(x, 1)
    if b.node.version < 21:  # one factor for each group
        each = b.Div(channels, b.ints(groups))
        scale = b.Reshape(b.Expand(b.Unsqueeze(scale, b.ints(1)), b.Concat(b.ints(groups), each, axis=0)), b.ints(-1))
    scale.type = scale_type
    parted = b.Concat(b.sizes(x, 0), b.ints(groups, -1), axis=0)
    rows = Term(b, b.Reshape(x, parted), dtype)
    total = _count(b, x, shape, range(1, rank))
    count = total / groups
    centred, inverse = _statistics(rows, (2,), count, b.attr("epsilon"))
    normal = centred * inverse
    d = b.d()
    wide = Term(b, b.Reshape(normal.value, b.Shape(x)), dtype)
    of_x = None
    if b.wants(0):
        through = (d * Term(b, b.Unsqueeze(scale, b.ints(*range(1, rank - 1))) if rank > 2 else scale, dtype)).value
        part = Term(b, b.Reshape(through, parted), dtype)
        of_x = b.Reshape(_standardised(part, normal, inverse, (2,), count).value, b.Shape(x))
    of_scale, of_bias = _channel_sum(b, d * wide, rank), _channel_sum(b, d, rank)
    if b.node.version < 21:
        grouped = b.ints(groups, -1)
        of_scale = b.ReduceSum(b.Reshape(of_scale, grouped), b.ints(1), keepdims=0)
        of_bias = b.ReduceSum(b.Reshape(of_bias, grouped), b.ints(1), keepdims=0)
    return [of_x, of_scale, of_bias]


@gradient("LpNormalization")
def _lp_normalization(b: Backward) -> Results:
    x, axis, p = b.t(b.x()), int(b.attr("axis")), int(b.attr("p"))
    size = x.apply("Abs") if p == 1 else x * x
    norm = size.apply("ReduceSum", b.ints(axis), keepdims=1)
    norm = norm if p == 1 else norm.apply("Sqrt")
    d = b.d() / norm
    y = b.t(b.y())
    along = (d * y).apply("ReduceSum", b.ints(axis), keepdims=1)
    return [(d - along * (x.apply("Sign") if p == 1 else y)).value]


@gradient("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def _skip_layer_normalization(b: Backward) -> Results:
    """The norm of a sum of two or three values; the sum itself may be read, too."""
    x, shape = b.x(), b.shape(b.x())
    if any(d is not None for d in b.gradients[1:3]):
        b.refuse("its mean or deviation is read as an output")
    simplified = b.node.op_type == "SkipSimplifiedLayerNormalization"
    bias = 3 if simplified else 4
    total = b.t(x) + b.t(b.x(1))
    if b.has(bias):
        total = total + b.t(b.x(bias))
    axes = (len(shape) - 1,)
    count = _count(b, x, shape, axes)
    if simplified:
        inverse = 1 / (_mean(total * total, axes, count) + b.attr("epsilon")).apply("Sqrt")
        normal = total * inverse
    else:
        centred, inverse = _statistics(total, axes, count, b.attr("epsilon"))
        normal = centred * inverse
    results: list[Value | None] = [None] * 5
    of_sum = Term(b, b.gradients[3], total.dtype) if len(b.gradients) > 3 and b.gradients[3] is not None else None
    if b.gradients[0] is not None:
        d = b.d()
        through = _standardised(d * b.t(b.x(2)), normal, inverse, axes, count, centred=not simplified)
        of_sum = through if of_sum is None else of_sum + through
        results[2] = b.sum_to((d * normal).value, shape, b.x(2))
        if not simplified and b.has(3):
            results[3] = b.sum_to(d.value, shape, b.x(3))
    if of_sum is not None:
        for index in (0, 1, *((bias,) if b.has(bias) else ())):
            results[index] = b.sum_to(of_sum.value, shape, b.x(index))
    return results


@gradient("LRN")
def _lrn(b: Backward) -> Results:
    """With s = bias + alpha / size * (sum of squares of near channels): every x stands in the s of its neighbours, too."""
    x, size, rank = b.t(b.x()), int(b.attr("size")), b.rank(b.x())
    alpha, beta = float(b.attr("alpha")), float(b.attr("beta"))
    before, after = (size - 1) // 2, size // 2

    def near(term: Term, low: int, high: int) -> Term:
        """The sum over neighbouring channels, from `low` before to `high` after: a mean of a window, times its size."""
        wide = b.Reshape(term.value, b.Concat(b.sizes(b.x(), 0), b.ints(1), b.sizes(b.x(), 1), b.ints(-1), axis=0))
        pooled = b.AveragePool(wide, kernel_shape=[size, 1], pads=[low, 0, high, 0], count_include_pad=1)
        return Term(b, b.Reshape(pooled, b.Shape(b.x())), term.dtype) * float(size)

    if rank < 2:
        b.refuse("its input has no channels")
    total = near(x * x, before, after) * (alpha / size) + float(b.attr("bias"))
    power = (-beta * total.apply("Log")).apply("Exp")
    d = b.d()
    others = near(d * x * power / total, after, before)
    return [(d * power - x * others * (2 * alpha * beta / size)).value]


@gradient("MeanVarianceNormalization")
def _mean_variance_normalization(b: Backward) -> Results:
    x, shape = b.t(b.x()), b.shape(b.x())
    axes = tuple(int(axis) % len(shape) for axis in b.attr("axes") or (0, 2, 3))
    count = _count(b, b.x(), shape, axes)
    centred, inverse = _statistics(x, axes, count, 1e-18)
    return [_standardised(b.d(), centred * inverse, inverse, axes, count).value]
