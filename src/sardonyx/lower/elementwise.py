"""Elementwise operators as expressions; the operators mean what `ops/elementwise*.py` says."""

from __future__ import annotations

from sardonyx.kernel.expr import Expr, clamp, const, maximum, minimum, select, sqrt, unary
from sardonyx.lower.registry import elementwise


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


@elementwise("Neg", since=6)
def neg(x: Expr) -> Expr:
    return -x


@elementwise("Abs", since=6)
def abs_(x: Expr) -> Expr:
    return unary("abs", x)


@elementwise("Sqrt", since=6)
def square_root(x: Expr) -> Expr:
    return sqrt(x)


@elementwise("Relu", since=6)
def relu(x: Expr) -> Expr:
    return clamp(x, 0, None)


@elementwise("Identity")
def identity(x: Expr) -> Expr:
    return x


@elementwise("Where", since=9)
def where(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return select(condition, yes, no)


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


@elementwise("Clip", since=11)
def clip(x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    return clamp(x, low, high)


@elementwise("HardSigmoid", since=6)
def hard_sigmoid(x: Expr, *, alpha: float, beta: float) -> Expr:
    return clamp(x * alpha + beta, 0.0, 1.0)


@elementwise("HardSwish", since=14)
def hard_swish(x: Expr) -> Expr:
    return x * clamp(x * (1 / 6) + 0.5, 0.0, 1.0)


@elementwise("LeakyRelu", since=6)
def leaky_relu(x: Expr, *, alpha: float) -> Expr:
    return select(x < 0.0, x * alpha, x)


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
def and_(a: Expr, b: Expr) -> Expr:
    return a & b


@elementwise("Or", since=7)
def or_(a: Expr, b: Expr) -> Expr:
    return a | b


@elementwise("Not")
def not_(x: Expr) -> Expr:
    return ~x


@elementwise("Cast", since=6)
def cast(x: Expr, *, out: str) -> Expr:
    return x.cast(out) if out not in ("f16", "bf16") else x.cast("f32")


@elementwise("Reciprocal", since=6)
def reciprocal(x: Expr) -> Expr:
    return const(1, x.type) / x


@elementwise("Floor", since=6)
def floor(x: Expr) -> Expr:
    return unary("floor", x)


@elementwise("Ceil", since=6)
def ceil(x: Expr) -> Expr:
    return unary("ceil", x)


@elementwise("Round")
def round_(x: Expr) -> Expr:
    return unary("round", x)
