"""Elementwise operators with several inputs: arithmetic, comparison, logic, bits, selection; and Identity.

Before opset 7 shapes did not broadcast by themselves: with `broadcast=1` the second input lined up with the first from `axis` on
(or with its last dimensions), without it the shapes had to agree. Those forms are the definitions with `since=1`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final

import ml_dtypes
import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, broadcast, same_as
from sardonyx.ops.precision import rounded_once, widen

_ELEMENTWISE: Final = Trait.ELEMENTWISE
_SWAPPABLE: Final = Trait.ELEMENTWISE | Trait.COMMUTATIVE


def aligned(a: Array, b: Array, axis: int | None, broadcast: int | None) -> Array:
    """The second input of an operator before opset 7, shaped so that NumPy broadcasts it to the first."""
    if not broadcast:
        if a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} differ, and broadcast is 0: before opset 7 they must agree")
        return b
    if axis is None:
        return b
    start = axis + a.ndim if axis < 0 else axis
    trailing = a.ndim - start - b.ndim
    if start < 0 or trailing < 0:
        raise ValueError(f"shape {b.shape} does not fit into shape {a.shape} from axis {axis} on")
    return b.reshape(b.shape + (1,) * trailing)


def truncated_division(a: Array, b: Array) -> Array:
    """Division as in C: integers round towards zero, and an integer divided by zero gives 0."""
    if a.dtype.kind not in "iu":
        return np.asarray(np.divide(a, b))
    quotient = np.asarray(np.floor_divide(a, b))
    if a.dtype.kind == "i":
        inexact = (a - quotient * b != 0) & ((a < 0) != (b < 0)) & (b != 0)
        quotient = quotient + inexact.astype(a.dtype)
    return quotient


def _truncates(fmod: int) -> bool:
    if fmod not in (0, 1):
        raise ValueError(f"fmod is {fmod}: expected 0 or 1")
    return bool(fmod)


def _remainder(a: Array, b: Array, *, fmod: int) -> Array:
    return rounded_once(np.fmod if _truncates(fmod) else np.mod, a, b)


def _infer_remainder(ctx: InferContext) -> InferResult:
    _truncates(ctx.attr("fmod"))
    return broadcast(ctx)


def _integer_power(base: Array, exponent: Array) -> Array:
    """Exact modulo 2**bits; a negative exponent truncates 1 / base**n towards zero, and 0 to a negative power gives 0."""
    wide = np.power(base, np.maximum(exponent, 0).astype(base.dtype))
    if exponent.dtype.kind == "u" or not (exponent < 0).any():
        return np.asarray(wide)
    unit = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent % 2), 0))
    return np.asarray(np.where(exponent < 0, unit, wide))


def _power(base: Array, exponent: Array) -> Array:
    def compute(x: Array, y: Array) -> Array:
        if x.dtype.kind in "iu" and y.dtype.kind in "iu":
            return _integer_power(x, y)
        kind = np.result_type(x.dtype, y.dtype)
        return np.asarray(np.power(x.astype(kind, copy=False), y.astype(kind, copy=False)))

    return rounded_once(compute, base, exponent)


def _arithmetic(name: str, function: Callable[[Array, Array], Any], traits: Trait = _ELEMENTWISE) -> None:
    def legacy(a: Array, b: Array, *, axis: int | None, broadcast: int | None) -> Array:
        return rounded_once(function, a, aligned(a, b, axis, broadcast))

    op(name, eval=legacy, infer=same_as(0), traits=_ELEMENTWISE)
    op(name, eval=lambda a, b: rounded_once(function, a, b), infer=broadcast, traits=traits, since=7)


_arithmetic("Add", np.add, _SWAPPABLE)
_arithmetic("Sub", np.subtract)
_arithmetic("Mul", np.multiply, _SWAPPABLE)
_arithmetic("Div", truncated_division)
_arithmetic("Pow", _power)
MOD = op("Mod", eval=_remainder, infer=_infer_remainder, traits=_ELEMENTWISE, since=10)


def _as_bool(result: Any) -> Array:
    return np.asarray(result).astype(np.bool_, copy=False)


def _comparison(name: str, function: Callable[[Array, Array], Any], *, since: int = 7, traits: Trait = _ELEMENTWISE) -> None:
    def legacy(a: Array, b: Array, *, axis: int | None, broadcast: int | None) -> Array:
        return _as_bool(function(widen(a), widen(aligned(a, b, axis, broadcast))))

    if since == 7:
        op(name, eval=legacy, infer=same_as(0), traits=_ELEMENTWISE)
    op(name, eval=lambda a, b: _as_bool(function(widen(a), widen(b))), infer=broadcast, traits=traits, since=since)


_comparison("Equal", np.equal, traits=_SWAPPABLE)
_comparison("Less", np.less)
_comparison("Greater", np.greater)
_comparison("LessOrEqual", np.less_equal, since=12)
_comparison("GreaterOrEqual", np.greater_equal, since=12)
_comparison("And", np.logical_and, traits=_SWAPPABLE)
_comparison("Or", np.logical_or, traits=_SWAPPABLE)
_comparison("Xor", np.logical_xor, traits=_SWAPPABLE)
NOT = op("Not", eval=lambda x: _as_bool(np.logical_not(x)), infer=same_as(0), traits=_ELEMENTWISE)

BITWISE_AND = op("BitwiseAnd", eval=lambda a, b: np.asarray(np.bitwise_and(a, b)), infer=broadcast, traits=_SWAPPABLE, since=18)
BITWISE_OR = op("BitwiseOr", eval=lambda a, b: np.asarray(np.bitwise_or(a, b)), infer=broadcast, traits=_SWAPPABLE, since=18)
BITWISE_XOR = op("BitwiseXor", eval=lambda a, b: np.asarray(np.bitwise_xor(a, b)), infer=broadcast, traits=_SWAPPABLE, since=18)
BITWISE_NOT = op("BitwiseNot", eval=lambda x: np.asarray(np.bitwise_not(x)), infer=same_as(0), traits=_ELEMENTWISE, since=18)


def _shift(x: Array, y: Array, *, direction: str) -> Array:
    """A shift by a negative amount, or by all bits or more, leaves only copies of the sign."""
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction is {direction!r}: expected 'LEFT' or 'RIGHT'")
    bits = 8 * x.dtype.itemsize
    inside = (y >= 0) & (y < bits)
    amount = np.where(inside, y, 0).astype(x.dtype)
    if direction == "LEFT":
        return np.asarray(np.where(inside, np.left_shift(x, amount), 0)).astype(x.dtype, copy=False)
    sign = np.where(x < 0, -1, 0) if x.dtype.kind == "i" else 0
    return np.asarray(np.where(inside, np.right_shift(x, amount), sign)).astype(x.dtype, copy=False)


BIT_SHIFT = op("BitShift", eval=_shift, infer=broadcast, traits=_ELEMENTWISE, since=11)


def _variadic(name: str, function: Callable[..., Any]) -> None:
    def same_shapes(*inputs: Array) -> Array:
        for position, array in enumerate(inputs):
            if array.shape != inputs[0].shape:
                raise ValueError(
                    f"input {position} is {array.shape} but input 0 is {inputs[0].shape}: before opset 8 they must agree"
                )
        return rounded_once(function, *inputs)

    op(name, eval=same_shapes, infer=same_as(0), traits=_SWAPPABLE)
    op(name, eval=lambda *inputs: rounded_once(function, *inputs), infer=broadcast, traits=_SWAPPABLE, since=8)


def _sum(*inputs: Array) -> Any:
    return reduce(np.add, inputs)


_variadic("Sum", _sum)
_variadic("Mean", lambda *inputs: _sum(*inputs) / len(inputs))
_variadic("Max", lambda *inputs: reduce(np.maximum, inputs))
_variadic("Min", lambda *inputs: reduce(np.minimum, inputs))


def _clip_by_attributes(x: Array, *, min: float | None, max: float | None) -> Array:
    def compute(values: Array) -> Any:
        values = values if min is None else np.maximum(values, values.dtype.type(min))
        return values if max is None else np.minimum(values, values.dtype.type(max))

    return rounded_once(compute, x)


def _clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """A missing bound is the largest finite number, so infinities are clipped too. Where low > high the result is high."""
    for name, bound in (("min", low), ("max", high)):
        if bound is not None and bound.size != 1:
            raise ValueError(f"{name} has shape {bound.shape}: expected a scalar")
    if dtypes.from_numpy(x.dtype).is_float:
        limits = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]
        low = np.asarray(limits.min, x.dtype) if low is None else low
        high = np.asarray(limits.max, x.dtype) if high is None else high
    result = x if low is None else rounded_once(np.maximum, x, low.reshape(()))
    return result if high is None else rounded_once(np.minimum, result, high.reshape(()))


CLIP_1 = op("Clip", eval=_clip_by_attributes, infer=same_as(0), traits=_ELEMENTWISE)
CLIP = op("Clip", eval=_clip, infer=same_as(0), traits=_ELEMENTWISE, since=11)


def _where(condition: Array, x: Array, y: Array) -> Array:
    return np.asarray(np.where(condition, x, y)).astype(x.dtype, copy=False)


WHERE = op("Where", eval=_where, infer=broadcast, traits=_ELEMENTWISE, since=9)


def _is_inf(x: Array, *, detect_negative: int, detect_positive: int) -> Array:
    values = widen(x)
    found = np.zeros(x.shape, np.bool_)
    if detect_positive:
        found |= values == np.inf
    if detect_negative:
        found |= values == -np.inf
    return found


IS_NAN = op("IsNaN", eval=lambda x: np.asarray(np.isnan(widen(x))), infer=same_as(0), traits=_ELEMENTWISE, since=9)
IS_INF = op("IsInf", eval=_is_inf, infer=same_as(0), traits=_ELEMENTWISE, since=10)


def _parametric_relu(x: Array, slope: Array) -> Array:
    def compute(values: Array, slopes: Array) -> Any:
        return np.where(values < 0, values * np.broadcast_to(slopes, values.shape), values)

    return rounded_once(compute, x, slope)


def _parametric_relu_by_channel(x: Array, slope: Array) -> Array:
    """Before opset 7: one slope for all, or one for each channel (axis 1)."""
    if slope.size == 1:
        return _parametric_relu(x, slope.reshape(()))
    channels = x.shape[1] if x.ndim > 1 else x.size
    if slope.size != channels:
        raise ValueError(f"slope has {slope.size} elements: expected 1, or {channels} for the channels of shape {x.shape}")
    return _parametric_relu(x, slope.reshape((-1,) + (1,) * max(x.ndim - 2, 0)))


def _infer_parametric_relu(ctx: InferContext) -> InferResult:
    x, slope = ctx.shape(0), ctx.shape(1)
    if x is not None and slope is not None:
        ctx.expect_broadcast(slope, x)
    return x


PRELU_1 = op("PRelu", eval=_parametric_relu_by_channel, infer=same_as(0), traits=_ELEMENTWISE)
PRELU = op("PRelu", eval=_parametric_relu, infer=_infer_parametric_relu, traits=_ELEMENTWISE, since=7)


def infer_identity(ctx: InferContext) -> InferResult:
    """The output is what the input is: tensor, sequence or optional."""
    return ctx.type(0)


IDENTITY = op("Identity", eval=lambda value: value, infer=infer_identity, traits=_ELEMENTWISE | Trait.VIEW)
