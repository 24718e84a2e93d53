"""Gradients of operators that work element by element: dx = dy * slope(x), summed over the axes x was broadcast along."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.rules import Backward, Term, constant_for_gradients, dtype_of, gradient

Results = Sequence[Value | None]

constant_for_gradients("Ceil", "Floor", "Round", "Sign", "EyeLike", "Range", "ConstantOfShape", "Constant", "OneHot")
constant_for_gradients("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
constant_for_gradients("HannWindow", "HammingWindow", "BlackmanWindow", "BitCast")


def slope(*names: str, domain: str = "") -> Callable[[Callable[[Backward, Term, Term], Term]], None]:
    """Register operators of one input by their slope, as a formula of input and output."""

    def register(formula: Callable[[Backward, Term, Term], Term]) -> None:
        def rule(b: Backward) -> Results:
            return [(b.d() * formula(b, b.t(b.x()), b.t(b.y()))).value]

        gradient(*names, domain=domain)(rule)

    return register


slope("Exp")(lambda b, x, y: y)
slope("Log")(lambda b, x, y: 1 / x)
slope("Sqrt")(lambda b, x, y: 0.5 / y)
slope("Reciprocal")(lambda b, x, y: -(y * y))
slope("Sin")(lambda b, x, y: x.apply("Cos"))
slope("Cos")(lambda b, x, y: -x.apply("Sin"))
slope("Tan")(lambda b, x, y: 1 + y * y)
slope("Asin")(lambda b, x, y: 1 / (1 - x * x).apply("Sqrt"))
slope("Acos")(lambda b, x, y: -1 / (1 - x * x).apply("Sqrt"))
slope("Atan")(lambda b, x, y: 1 / (1 + x * x))
slope("Sinh")(lambda b, x, y: x.apply("Cosh"))
slope("Cosh")(lambda b, x, y: x.apply("Sinh"))
slope("Asinh")(lambda b, x, y: 1 / (1 + x * x).apply("Sqrt"))
slope("Acosh")(lambda b, x, y: 1 / (x * x - 1).apply("Sqrt"))
slope("Atanh")(lambda b, x, y: 1 / (1 - x * x))
slope("Tanh")(lambda b, x, y: 1 - y * y)
slope("Sigmoid")(lambda b, x, y: y * (1 - y))
slope("Abs")(lambda b, x, y: x.apply("Sign"))
slope("Erf")(lambda b, x, y: (2 / math.sqrt(math.pi)) * (-(x * x)).apply("Exp"))
slope("Softplus")(lambda b, x, y: x.apply("Sigmoid"))


@slope("Softsign")
def _softsign(b: Backward, x: Term, y: Term) -> Term:
    whole = 1 + x.apply("Abs")
    return 1 / (whole * whole)


@slope("Mish")
def _mish(b: Backward, x: Term, y: Term) -> Term:
    bent, sigmoid = x.apply("Softplus").apply("Tanh"), x.apply("Sigmoid")
    return bent + x * sigmoid * (1 - bent * bent)


@slope("HardSwish")
def _hard_swish(b: Backward, x: Term, y: Term) -> Term:
    ramp = x / 3 + 0.5
    ones = Term(b, b.g.constant(b.number(1, x.value)), x.dtype)
    return ramp.select(x.compare("Less", 3), ones).select(x.compare("Greater", -3))


@gradient("Neg")
def _neg(b: Backward) -> Results:
    return [b.Neg(b.dy())]


@gradient("Identity")
def _identity(b: Backward) -> Results:
    return [b.dy()]


@gradient("Relu")
def _relu(b: Backward) -> Results:
    y = b.t(b.y())  # the input need not be kept
    return [b.Where(y.compare("LessOrEqual", 0), b.number(0, y.value), b.dy())]  # what is NaN passes gradients on


@gradient("LeakyRelu")
def _leaky_relu(b: Backward) -> Results:
    d = b.d()
    return [d.select(b.t(b.x()).compare("Greater", 0), d * b.attr("alpha")).value]


@gradient("PRelu")
def _prelu(b: Backward) -> Results:
    d, x, factor = b.d(), b.t(b.x()), b.t(b.x(1))
    right = x.compare("Greater", 0)
    zero = Term(b, b.g.constant(b.number(0, b.x())), x.dtype)
    return [d.select(right, d * factor).value, b.sum_to(zero.select(right, d * x).value, b.x().shape, b.x(1))]


@gradient("Elu")
def _elu(b: Backward) -> Results:
    d, x, alpha = b.d(), b.t(b.x()), b.attr("alpha")
    return [d.select(x.compare("Greater", 0), d * (x.apply("Exp") * alpha)).value]


@gradient("Celu")
def _celu(b: Backward) -> Results:
    d, x, alpha = b.d(), b.t(b.x()), b.attr("alpha")
    return [d.select(x.compare("Greater", 0), d * (x / alpha).apply("Exp")).value]


@gradient("Selu")
def _selu(b: Backward) -> Results:
    d, x, alpha, gamma = b.d(), b.t(b.x()), b.attr("alpha"), b.attr("gamma")
    return [(d * gamma).select(x.compare("Greater", 0), d * (x.apply("Exp") * (alpha * gamma))).value]


@gradient("HardSigmoid")
def _hard_sigmoid(b: Backward) -> Results:
    d, y = b.d(), b.t(b.y())
    inside = b.And(y.compare("Greater", 0), y.compare("Less", 1))
    return [(d * b.attr("alpha")).select(inside).value]


@gradient("ThresholdedRelu")
def _thresholded_relu(b: Backward) -> Results:
    return [b.d().select(b.t(b.x()).compare("Greater", b.attr("alpha"))).value]


_TANH_FACTOR: Final = math.sqrt(2 / math.pi)
_TANH_CUBIC: Final = 0.044715


def _gelu_slope(b: Backward, x: Term) -> Term:
    normal = (x * math.sqrt(0.5)).apply("Erf") * 0.5 + 0.5
    return normal + x * ((x * x * -0.5).apply("Exp") * (1 / math.sqrt(2 * math.pi)))


def _tanh_gelu_slope(b: Backward, x: Term) -> Term:
    square = x * x
    bent = (x * (square * (_TANH_FACTOR * _TANH_CUBIC) + _TANH_FACTOR)).apply("Tanh")
    inner = square * (3 * _TANH_FACTOR * _TANH_CUBIC) + _TANH_FACTOR
    return 0.5 * (1 + bent) + 0.5 * x * (1 - bent * bent) * inner


@gradient("Gelu")
def _gelu(b: Backward) -> Results:
    formula = _tanh_gelu_slope if b.attr("approximate") == "tanh" else _gelu_slope
    return [(b.d() * formula(b, b.t(b.x()))).value]


def _biased(formula: Callable[[Backward, Term], Term]) -> Callable[[Backward], Results]:
    """The rule of an activation of input plus bias."""

    def rule(b: Backward) -> Results:
        x = b.t(b.x())
        if not b.has(1):
            return [(b.d() * formula(b, x)).value]
        d = (b.d() * formula(b, x + b.t(b.x(1)))).value
        return [d, b.sum_to(d, b.x().shape, b.x(1)) if b.wants(1) else None]

    return rule


gradient("Gelu", "BiasGelu", domain="com.microsoft")(_biased(_gelu_slope))
gradient("FastGelu", domain="com.microsoft")(_biased(_tanh_gelu_slope))


@gradient("QuickGelu", domain="com.microsoft")
def _quick_gelu(b: Backward) -> Results:
    return _swish(b, b.attr("alpha"))


@gradient("Swish")
def _swish_rule(b: Backward) -> Results:
    return _swish(b, b.attr("alpha"))


def _swish(b: Backward, alpha: float) -> Results:
    """y = x * sigmoid(alpha x)."""
    x = b.t(b.x())
    sigmoid = (x * alpha).apply("Sigmoid")
    return [(b.d() * (sigmoid * (1 + alpha * x * (1 - sigmoid)))).value]


def _both(b: Backward, left: Callable[[], Value], right: Callable[[], Value]) -> Results:
    """The gradients of two operands, each of the shape it was broadcast from; those nobody wants are not computed."""
    results: list[Value | None] = []
    for index, made in enumerate((left, right)):
        results.append(b.sum_to(made(), b.y().shape, b.x(index)) if b.wants(index) else None)
    return results


@gradient("Add")
def _add(b: Backward) -> Results:
    return _both(b, b.dy, b.dy)


@gradient("Sub")
def _sub(b: Backward) -> Results:
    return _both(b, b.dy, lambda: b.Neg(b.dy()))


@gradient("Mul")
def _mul(b: Backward) -> Results:
    return _both(b, lambda: b.Mul(b.dy(), b.x(1)), lambda: b.Mul(b.dy(), b.x(0)))


@gradient("Div")
def _div(b: Backward) -> Results:
    return _both(b, lambda: b.Div(b.dy(), b.x(1)), lambda: b.Neg(b.Div(b.Mul(b.dy(), b.y()), b.x(1))))


@gradient("Pow")
def _pow(b: Backward) -> Results:
    base, exponent = b.t(b.x()), b.x(1)
    if dtype_of(exponent) is not base.dtype:
        exponent = b.Cast(exponent, to=base.dtype.onnx)
    power = Term(b, exponent, base.dtype)

    def of_base() -> Value:
        known = b.constant(1)
        if known is not None and known.size == 1 and float(known.reshape(())) == 2.0:
            return (b.d() * (base * 2)).value
        slope = power * base.apply("Pow", power - 1)
        return (b.d() * slope.select(b.Not(power.compare("Equal", 0)))).value  # 0 ** -1 is infinite, and times 0 no number

    def of_exponent() -> Value:
        slope = b.t(b.y()) * base.apply("Log")
        return (b.d() * slope.select(b.Not(base.compare("Equal", 0)))).value

    return _both(b, of_base, of_exponent)


@gradient("Mod")
def _mod(b: Backward) -> Results:
    """x - y * trunc(x / y) (fmod) or x - y * floor(x / y)."""
    quotient = b.Div(b.x(), b.x(1))
    whole = b.Floor(quotient)
    if b.attr("fmod"):
        size = b.Floor(b.Abs(quotient))
        whole = b.Mul(b.Sign(quotient), size)
    return _both(b, b.dy, lambda: b.Neg(b.Mul(b.dy(), whole)))


@gradient("Sum")
def _sum(b: Backward) -> Results:
    return [b.sum_to(b.dy(), b.y().shape, b.x(index)) if b.wants(index) else None for index in range(len(b.node.inputs))]


@gradient("Mean")
def _mean(b: Backward) -> Results:
    part = (b.d() * (1 / len(b.node.inputs))).value
    return [b.sum_to(part, b.y().shape, b.x(index)) if b.wants(index) else None for index in range(len(b.node.inputs))]


@gradient("Max", "Min")
def _extremum(b: Backward) -> Results:
    """The operand that is the result gets the gradient; several share it in equal parts."""
    dtype, count = dtype_of(b.y()), len(b.node.inputs)
    if count == 1:
        return [b.dy()]
    hits = [b.Cast(b.Equal(b.x(index), b.y()), to=dtype.onnx) for index in range(count)]
    total = hits[0]
    for hit in hits[1:]:
        total = b.Add(total, hit)
    share = b.Div(b.dy(), total)
    return [b.sum_to(b.Mul(share, hit), b.y().shape, b.x(i)) if b.wants(i) else None for i, hit in enumerate(hits)]


@gradient("Clip", stops=(1, 2))
def _clip(b: Backward) -> Results:
    x, d = b.t(b.x()), b.d()
    inside: Value | None = None
    for index, comparison, name in ((1, "GreaterOrEqual", "min"), (2, "LessOrEqual", "max")):
        bound: Term | float | None = b.t(b.x(index)) if b.has(index) else None
        if bound is None and b.node.version < 11:
            bound = b.node.attr(name)
        if bound is not None:
            found = x.compare(comparison, bound)
            inside = found if inside is None else b.And(inside, found)
    return [d.value if inside is None else d.select(inside).value]


@gradient("Where", stops=(0,))
def _where(b: Backward) -> Results:
    d, shape, zero = b.dy(), b.y().shape, b.number(0, b.y())
    left = b.sum_to(b.Where(b.x(0), d, zero), shape, b.x(1)) if b.wants(1) else None
    right = b.sum_to(b.Where(b.x(0), zero, d), shape, b.x(2)) if b.wants(2) else None
    return [None, left, right]


@gradient("Cast", "CastLike", stops=(1,))
def _cast(b: Backward) -> Results:
    return [b.Cast(b.dy(), to=dtype_of(b.x()).onnx)]


@gradient("Dropout", stops=(1, 2))
def _dropout(b: Backward) -> Results:
    """The mask of the forward pass is kept; elements that stay are scaled, as there."""
    training = b.constant(2)
    if b.node.version < 12 or not b.has(2) or (training is not None and not bool(training)):
        return [b.dy()]
    d, dtype = b.d(), dtype_of(b.y())
    ratio = b.constant(1)
    if not b.has(1) or ratio is not None:
        share = 0.5 if ratio is None else float(ratio.reshape(()))
        scaled = d * (1 / (1 - share)) if share < 1 else d
    else:
        kept = b.Cast(b.Sub(np.ones((), dtype_of(b.x(1)).numpy), b.x(1)), to=dtype.onnx)
        scaled = d / Term(b, kept, dtype)
    if training is None:  # in inference the mask is true everywhere
        scaled = scaled.select(b.x(2), d)
    return [scaled.select(b.y(1)).value]
