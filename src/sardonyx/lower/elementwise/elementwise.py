"""Elementwise operators with several inputs as expressions: arithmetic, comparison, logic, bits, selection; and Identity.

They mean what `ops/elementwise/elementwise.py` says; the forms before opset 7, whose shapes do not broadcast by themselves,
have no rule.
"""

from __future__ import annotations

import math
from typing import Final

from sardonyx.ir.graph import Node
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED, UNSIGNED, Expr, clamp, const, maximum, minimum, select, sqrt, unary
from sardonyx.kernel.math import power
from sardonyx.lower.elementwise.cast import as_processor
from sardonyx.lower.registry import elementwise

_LARGEST: Final = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38, "f64": 1.7976931348623157e308}


@elementwise("Add", since=7)
def add(a: Expr, b: Expr) -> Expr:
    return a + b


@elementwise("Sub", since=7)
def sub(a: Expr, b: Expr) -> Expr:
    return a - b


@elementwise("Mul", since=7)
def mul(a: Expr, b: Expr) -> Expr:
    return a * b


@elementwise("Div", since=7)
def div(a: Expr, b: Expr) -> Expr:
    return a / b


@elementwise("Mod", since=10)
def mod(a: Expr, b: Expr, *, fmod: int) -> Expr:
    """With fmod=0 the result has the sign of the divisor."""
    # The remainder of narrower floats, exact in f64, is one of theirs.
    remainder = (a.cast("f64") % b.cast("f64")).cast(a.type) if a.type in FLOATS else a % b
    if fmod or a.type in UNSIGNED:
        return remainder
    other_sign = (remainder < 0) ^ (b < 0)
    moved = select(remainder.ne(0) & other_sign, remainder + b, remainder)
    return moved if a.type not in FLOATS else select(remainder.eq(0), select(b < 0, const(-0.0, a.type), 0.0), moved)


def constant_value(x: Expr) -> float | None:
    """The number an expression always has, if it is a constant, converted or not."""
    while x.op == "cast":
        x = x.args[0]
    return x.param if x.op == "const" else None


@elementwise("Pow", since=7)
def pow_(base: Expr, exponent: Expr) -> Expr:
    number = constant_value(exponent)
    if base.type in FLOATS and number is not None and base.type != "bool":
        short = _short_power(base, float(number))
        if short is not None:
            return short
    if base.type not in FLOATS and exponent.type not in FLOATS:
        return _integer_power(base, exponent)
    wide = any(kind == "f64" or (kind not in FLOATS and BITS[kind] >= 32) for kind in (base.type, exponent.type))
    kind = "f64" if wide else "f32"
    result = power(base.cast(kind), exponent.cast(kind))
    return result.cast(base.type) if base.type in FLOATS else as_processor(result, base.type)


def _short_power(x: Expr, exponent: float) -> Expr | None:
    """Powers that are a few multiplications, or a root."""
    if exponent < 0:
        positive = _short_power(x, -exponent)
        return None if positive is None else const(1, x.type) / positive
    if exponent == 0.5:
        return select(x.eq(-math.inf), const(math.inf, x.type), sqrt(x) + 0.0)  # of -0 it is 0
    return {0.0: const(1, x.type), 1.0: x, 2.0: x * x, 3.0: x * x * x, 4.0: (x * x) * (x * x)}.get(exponent)


def _integer_power(base: Expr, exponent: Expr) -> Expr:
    """By squaring, modulo 2**bits; a negative exponent truncates 1 / base**n towards zero."""
    kind = base.type
    number = constant_value(exponent)
    # A negative exponent is set to 0 for the squaring, then what is wanted replaces the result.
    rising = exponent if exponent.type in UNSIGNED else maximum(exponent, 0)
    bits = rising.cast(kind)
    result, square = const(1, kind), base
    steps = BITS[kind] if number is None else max(int(number), 0).bit_length()
    for step in range(min(steps, BITS[kind])):
        odd = ((bits >> step) & const(1, kind)).ne(0)
        result = select(odd, result * square, result)
        square = square * square
    if exponent.type in UNSIGNED or (number is not None and number >= 0):
        return result
    one, zero = const(1, kind), const(0, kind)
    if kind in UNSIGNED:
        small = select(base.eq(1), one, zero)
    else:
        alternating = select((exponent & const(1, exponent.type)).ne(0), const(-1, kind), one)
        small = select(base.eq(1), one, select(base.eq(-1), alternating, zero))
    return select(exponent < 0, small, result)


@elementwise("Equal", since=7)
def equal(a: Expr, b: Expr) -> Expr:
    return a.eq(b)


@elementwise("Less", since=7)
def less(a: Expr, b: Expr) -> Expr:
    return a < b


@elementwise("LessOrEqual", since=12)
def less_or_equal(a: Expr, b: Expr) -> Expr:
    return a <= b


@elementwise("Greater", since=7)
def greater(a: Expr, b: Expr) -> Expr:
    return a > b


@elementwise("GreaterOrEqual", since=12)
def greater_or_equal(a: Expr, b: Expr) -> Expr:
    return a >= b


@elementwise("And", since=7)
@elementwise("BitwiseAnd", since=18)
def and_(a: Expr, b: Expr) -> Expr:
    return a & b


@elementwise("Or", since=7)
@elementwise("BitwiseOr", since=18)
def or_(a: Expr, b: Expr) -> Expr:
    return a | b


@elementwise("Xor", since=7)
@elementwise("BitwiseXor", since=18)
def xor(a: Expr, b: Expr) -> Expr:
    return a ^ b


@elementwise("Not")
@elementwise("BitwiseNot", since=18)
def not_(x: Expr) -> Expr:
    return ~x


@elementwise("BitShift", since=11)
def bit_shift(x: Expr, amount: Expr, *, direction: str) -> Expr:
    """A shift by a negative amount, or by all bits or more, leaves only copies of the sign."""
    if direction == "LEFT":
        return x << amount
    if x.type in SIGNED:
        amount = select((amount >= 0) & (amount < BITS[x.type]), amount, const(BITS[x.type] - 1, x.type))
    return x >> amount


@elementwise("Sum", since=8)
def sum_(first: Expr, *rest: Expr) -> Expr:
    for value in rest:
        first = first + value
    return first


@elementwise("Mean", since=8)
def mean(*values: Expr) -> Expr:
    return sum_(*values) / len(values)


@elementwise("Max", since=8)
def max_(first: Expr, *rest: Expr) -> Expr:
    for value in rest:
        first = maximum(first, value)
    return first


@elementwise("Min", since=8)
def min_(first: Expr, *rest: Expr) -> Expr:
    for value in rest:
        first = minimum(first, value)
    return first


def _bounds_are_scalars(node: Node) -> bool:
    return all(value is None or all(size == 1 for size in value.shape or ()) for value in node.inputs[1:])


@elementwise("Clip", since=11, where=_bounds_are_scalars)
def clip(x: Expr, low: Expr | None = None, high: Expr | None = None, *, out: str) -> Expr:
    """A missing bound of floats is the largest finite number of the type: infinities are clipped too."""
    limit = _LARGEST.get(out)
    for bound, missing, extreme in ((low, limit and -limit, maximum), (high, limit, minimum)):
        number = missing if bound is None else constant_value(bound)
        if bound is not None and (number is None or math.isnan(number)):
            x = extreme(x, bound)
        elif bound is not None:
            x = clamp(x, bound, None) if extreme is maximum else clamp(x, None, bound)
        elif number is not None:
            x = clamp(x, number, None) if extreme is maximum else clamp(x, None, number)
    return x


@elementwise("Where", since=9)
def where(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return select(condition, yes, no)


@elementwise("IsNaN", since=9)
def is_nan(x: Expr) -> Expr:
    return unary("isnan", x)


@elementwise("IsInf", since=10)
def is_inf(x: Expr, *, detect_negative: int, detect_positive: int) -> Expr:
    if detect_negative and detect_positive:
        return unary("abs", x).eq(math.inf)
    if not detect_negative and not detect_positive:
        return const(False, "bool") & x.eq(x)
    return x.eq(math.inf if detect_positive else -math.inf)


@elementwise("PRelu", since=7)
def parametric_relu(x: Expr, slope: Expr) -> Expr:
    return select(x < 0, x * slope, x)


@elementwise("Identity")
def identity(x: Expr) -> Expr:
    return x


def _does_nothing(node: Node) -> bool:
    """Whether a Dropout is certain not to train, and nobody asks for its mask."""
    training = node.inputs[2] if len(node.inputs) > 2 else None
    mask_used = len(node.outputs) > 1
    return training is None and not mask_used


@elementwise("Dropout", where=_does_nothing)
def dropout(x: Expr) -> Expr:
    return x


@elementwise("BiasAdd", domain="com.microsoft")
def bias_add(x: Expr, bias: Expr, skip: Expr) -> Expr:
    return x + bias + skip


@elementwise("GatedAdd", domain="com.microsoft")
def gated_add(x: Expr, y: Expr, gate: Expr, *, out: str) -> Expr:
    """The product is rounded to the type first, as separate operators would round it."""
    return x + (y * gate).cast(out).cast(x.type)
