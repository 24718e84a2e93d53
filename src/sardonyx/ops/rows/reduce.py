"""Reductions along axes, their running forms, and the softmax family.

Axes are an attribute up to opset 17 (ReduceSum: 12) and an input since then. Over an empty set the results are those of ONNX:
0 for sums, 1 for products, the lowest or highest value for the extrema, -inf for logarithms of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from sardonyx.ir.dims import product
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.elementwise.elementwise import truncated_division
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.precision import rounded_once, widen

Axes: TypeAlias = tuple[int, ...]
Reducer: TypeAlias = Callable[[Array, Axes], Any]  # always keeps the reduced dimensions


def _floating(x: Array) -> Array:
    return x if x.dtype.kind == "f" else x.astype(np.float64)


def _sum(x: Array, axes: Axes) -> Any:
    return np.sum(x, axis=axes, keepdims=True, dtype=x.dtype)


def _mean(x: Array, axes: Axes) -> Any:
    count = prod(x.shape[axis] for axis in axes)
    if x.dtype.kind == "f":
        return _sum(x, axes) / x.dtype.type(count)
    total = np.sum(x, axis=axes, keepdims=True)  # in 64 bits: the mean fits where the sum may not
    return truncated_division(total, np.full_like(total, count))


def _lowest(x: Array) -> Any:
    if x.dtype.kind == "b":
        return False
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _highest(x: Array) -> Any:
    if x.dtype.kind == "b":
        return True
    return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


def _log_sum_exp(x: Array, axes: Axes) -> Any:
    x = _floating(x)
    largest = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    largest = np.where(np.isfinite(largest), largest, 0)  # an infinity minus itself would be NaN
    return np.log(np.sum(np.exp(x - largest), axis=axes, keepdims=True)) + largest


REDUCERS: Final[dict[str, Reducer]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": lambda x, axes: np.max(x, axis=axes, keepdims=True, initial=_lowest(x)),
    "ReduceMin": lambda x, axes: np.min(x, axis=axes, keepdims=True, initial=_highest(x)),
    "ReduceProd": lambda x, axes: np.prod(x, axis=axes, keepdims=True, dtype=x.dtype),
    "ReduceL1": lambda x, axes: _sum(np.abs(x), axes),
    "ReduceL2": lambda x, axes: np.sqrt(_sum(np.square(_floating(x)), axes)),
    "ReduceLogSum": lambda x, axes: np.log(_sum(_floating(x), axes)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axes: _sum(np.square(x), axes),
}


def _reduce(reducer: Reducer, x: Array, axes: Sequence[int] | None, keepdims: int, noop: int | None) -> Array:
    if axes is not None and len(axes):
        chosen = tuple(sorted({normalize_axis(int(axis), x.ndim) for axis in axes}))
    else:
        chosen = () if noop else tuple(range(x.ndim))
    result = rounded_once(lambda values: reducer(values, chosen), x)
    return result if keepdims else result.reshape([size for axis, size in enumerate(x.shape) if axis not in chosen])


def _reduced_shape(ctx: InferContext, axes: Sequence[int] | None, noop: int | None) -> InferResult:
    shape = ctx.shape(0)
    if shape is None:
        return None
    if axes:
        chosen = {normalize_axis(axis, len(shape)) for axis in axes}
    else:
        chosen = set() if noop else set(range(len(shape)))
    if ctx.attr("keepdims"):
        return tuple(1 if axis in chosen else dim for axis, dim in enumerate(shape))
    return tuple(dim for axis, dim in enumerate(shape) if axis not in chosen)


def infer_reduce_by_attribute(ctx: InferContext) -> InferResult:
    """The shape after a reduction over the axes of an attribute."""
    return _reduced_shape(ctx, ctx.attr("axes"), 0)


def infer_reduce(ctx: InferContext) -> InferResult:
    """The shape after a reduction over the axes of input 1."""
    if not ctx.has(1):
        return _reduced_shape(ctx, None, ctx.attr("noop_with_empty_axes"))
    axes = ctx.ints(1)
    if axes is not None:
        return _reduced_shape(ctx, axes, ctx.attr("noop_with_empty_axes"))
    rank, listed = ctx.rank(0), ctx.shape(1)
    if ctx.attr("keepdims"):
        return ctx.unknown(rank)
    count = listed[0] if listed is not None and len(listed) == 1 else None
    if rank is None or not isinstance(count, int) or not 0 < count <= rank:
        return None
    return ctx.unknown(rank - count)


def _reduction(name: str, reducer: Reducer, axes_are_input_since: int) -> None:
    def by_attribute(x: Array, *, axes: tuple[int, ...] | None, keepdims: int) -> Array:
        return _reduce(reducer, x, axes, keepdims, 0)

    def by_input(x: Array, axes: Array | None = None, *, keepdims: int, noop_with_empty_axes: int) -> Array:
        return _reduce(reducer, x, None if axes is None else axes.tolist(), keepdims, noop_with_empty_axes)

    op(name, eval=by_attribute, infer=infer_reduce_by_attribute, traits=Trait.AHEAD | Trait.REDUCES)
    op(name, eval=by_input, infer=infer_reduce, since=axes_are_input_since, traits=Trait.AHEAD | Trait.REDUCES)


for _name, _reducer in REDUCERS.items():
    _reduction(_name, _reducer, 13 if _name == "ReduceSum" else 18)


def _arg_extremum(find: Callable[..., Any]) -> Callable[..., Array]:
    def compute(x: Array, *, axis: int, keepdims: int, select_last_index: int | None) -> Array:
        values = widen(x)
        axis = normalize_axis(axis, max(x.ndim, 1))
        values = values.reshape(1) if x.ndim == 0 else values
        size = values.shape[axis]
        if size == 0:
            raise ValueError(f"axis {axis} of shape {x.shape} is empty: it has no extremum")
        if select_last_index:
            found = size - 1 - find(np.flip(values, axis), axis=axis)
        else:
            found = find(values, axis=axis)
        found = np.asarray(found, np.int64)
        return np.expand_dims(found, axis) if keepdims and x.ndim else found

    return compute


def infer_arg_extremum(ctx: InferContext) -> InferResult:
    """One axis becomes 1 or goes; without elements it has no extremum."""
    shape = ctx.shape(0)
    if shape:
        ctx.expect_filled(shape[normalize_axis(ctx.attr("axis"), len(shape))])
    return _reduced_shape(ctx, (ctx.attr("axis"),), 0) if ctx.rank(0) else ctx.shape(0)


ARG_MAX = op("ArgMax", eval=_arg_extremum(np.argmax), infer=infer_arg_extremum, traits=Trait.AHEAD)
ARG_MIN = op("ArgMin", eval=_arg_extremum(np.argmin), infer=infer_arg_extremum, traits=Trait.AHEAD)


def _cumulative(accumulate: Callable[..., Any], first: int) -> Callable[..., Array]:
    """A running sum or product; `first` is what an exclusive one starts with."""

    def running(values: Array, along: int, exclusive: int, reverse: int) -> Array:
        if reverse:
            values = np.flip(values, along)
        result = accumulate(values, axis=along, dtype=values.dtype)
        if exclusive and values.shape[along]:
            before = np.full_like(np.take(result, [0], axis=along), first)
            kept = np.take(result, np.arange(values.shape[along] - 1), axis=along)
            result = np.concatenate([before, kept], axis=along)
        return np.flip(result, along) if reverse else result

    def compute(x: Array, axis: Array, *, exclusive: int, reverse: int) -> Array:
        if axis.size != 1:
            raise ValueError(f"axis has shape {axis.shape}: expected one number")
        along = normalize_axis(int(axis.reshape(())), x.ndim)
        return rounded_once(lambda values: running(values, along, exclusive, reverse), x)

    return compute


def _infer_cumulative(ctx: InferContext) -> InferResult:
    shape, axis = ctx.shape(0), ctx.ints(1)
    ctx.expect_equal(product(ctx.shape(1) or ()), 1)
    if shape is not None and axis is not None and len(axis) == 1:
        normalize_axis(axis[0], len(shape))
    return shape


CUM_SUM = op("CumSum", eval=_cumulative(np.cumsum, 0), infer=_infer_cumulative, since=11, traits=Trait.AHEAD)
CUM_PROD = op("CumProd", eval=_cumulative(np.cumprod, 1), infer=_infer_cumulative, since=26, traits=Trait.AHEAD)


def softmax(x: Array, axis: int) -> Array:
    """exp(x) / sum(exp(x)) along an axis of a float32 or float64 array, computed from the distance to the largest."""
    weights = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    weights /= np.sum(weights, axis=axis, keepdims=True)
    return np.asarray(weights)


def log_softmax(x: Array, axis: int) -> Array:
    """The logarithm of softmax, without its rounding to zero."""
    distance = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(distance - np.log(np.sum(np.exp(distance), axis=axis, keepdims=True)))


def _hardmax(x: Array, axis: int) -> Array:
    """1 at the first largest element, 0 elsewhere."""
    result = np.zeros_like(x)
    if x.size:
        np.put_along_axis(result, np.expand_dims(np.argmax(x, axis=axis), axis), 1, axis=axis)
    return result


def infer_softmax(ctx: InferContext) -> InferResult:
    """The shape of the input; the axis must exist."""
    rank = ctx.rank(0)
    if rank and ctx.version >= 13:
        normalize_axis(ctx.attr("axis"), rank)
    return ctx.shape(0)


def _softmax_like(name: str, function: Callable[[Array, int], Array]) -> None:
    def flattened(x: Array, *, axis: int) -> Array:
        """Before opset 13 all dimensions from the axis on were one."""
        split = x.ndim if axis == x.ndim else normalize_axis(axis, x.ndim)
        rows = prod(x.shape[:split])
        matrix = x.reshape(rows, prod(x.shape[split:]))
        return rounded_once(lambda values: function(values, 1), matrix).reshape(x.shape)

    def along_axis(x: Array, *, axis: int) -> Array:
        if x.ndim == 0:
            return flattened(x, axis=0)
        chosen = normalize_axis(axis, x.ndim)
        return rounded_once(lambda values: function(values, chosen), x)

    op(name, eval=flattened, infer=infer_softmax)
    op(name, eval=along_axis, infer=infer_softmax, since=13)


_softmax_like("Softmax", softmax)
_softmax_like("LogSoftmax", log_softmax)
_softmax_like("Hardmax", _hardmax)
