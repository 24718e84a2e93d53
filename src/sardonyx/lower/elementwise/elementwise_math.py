"""Elementwise operators with one input as expressions: mathematical functions and activations.

They mean what `ops/elementwise/elementwise_math.py` and `ops/matmul/contrib_fused.py` say.
"""

from __future__ import annotations

from sardonyx.ir.graph import Node
from sardonyx.kernel import circular, math
from sardonyx.kernel.expr import FLOATS, UNSIGNED, Expr, clamp, const, maximum, minimum, select, sqrt, unary
from sardonyx.lower.elementwise.cast import as_processor
from sardonyx.lower.registry import elementwise

_MICROSOFT = "com.microsoft"


@elementwise("Abs")
def abs_(x: Expr) -> Expr:
    return unary("abs", x)


@elementwise("Neg")
def neg(x: Expr) -> Expr:
    return -x


@elementwise("Sign", since=9)
def sign(x: Expr) -> Expr:
    one, zero = const(1, x.type), const(0, x.type)
    if x.type in UNSIGNED:
        return select(x > 0, one, zero)
    result = select(x > 0, one, select(x < 0, -one, zero))
    return select(unary("isnan", x), x, result) if x.type in FLOATS else result


@elementwise("Ceil")
def ceil(x: Expr) -> Expr:
    return unary("ceil", x)


@elementwise("Floor")
def floor(x: Expr) -> Expr:
    return unary("floor", x)


@elementwise("Round", since=11)
def round_(x: Expr) -> Expr:
    return unary("round", x)


@elementwise("Reciprocal")
def reciprocal(x: Expr) -> Expr:
    return const(1, x.type) / x


@elementwise("Sqrt")
def square_root(x: Expr) -> Expr:
    return sqrt(x)


@elementwise("Exp")
def exp(x: Expr) -> Expr:
    return math.exp(x)


@elementwise("Log")
def log(x: Expr) -> Expr:
    return math.log(x)


@elementwise("Erf", since=9)
def erf(x: Expr) -> Expr:
    return math.erf(x) if x.type in FLOATS else as_processor(math.erf(x.cast("f64")), x.type)


@elementwise("Sin", since=7)
def sin(x: Expr) -> Expr:
    return circular.sin(x)


@elementwise("Cos", since=7)
def cos(x: Expr) -> Expr:
    return circular.cos(x)


@elementwise("Tan", since=7)
def tan(x: Expr) -> Expr:
    return circular.tan(x)


@elementwise("Asin", since=7)
def asin(x: Expr) -> Expr:
    return circular.asin(x)


@elementwise("Acos", since=7)
def acos(x: Expr) -> Expr:
    return circular.acos(x)


@elementwise("Atan", since=7)
def atan(x: Expr) -> Expr:
    return circular.atan(x)


@elementwise("Sinh", since=9)
def sinh(x: Expr) -> Expr:
    return math.sinh(x)


@elementwise("Cosh", since=9)
def cosh(x: Expr) -> Expr:
    return math.cosh(x)


@elementwise("Tanh")
def tanh(x: Expr) -> Expr:
    return math.tanh(x)


@elementwise("Asinh", since=9)
def asinh(x: Expr) -> Expr:
    return math.asinh(x)


@elementwise("Acosh", since=9)
def acosh(x: Expr) -> Expr:
    return math.acosh(x)


@elementwise("Atanh", since=9)
def atanh(x: Expr) -> Expr:
    return math.atanh(x)


@elementwise("Sigmoid")
def sigmoid(x: Expr) -> Expr:
    return math.sigmoid(x)


@elementwise("Softplus")
def softplus(x: Expr) -> Expr:
    return math.softplus(x)


@elementwise("Softsign")
def softsign(x: Expr) -> Expr:
    return x / (unary("abs", x) + 1.0)


@elementwise("Relu")
def relu(x: Expr) -> Expr:
    return clamp(x, 0, None)


@elementwise("LeakyRelu")
def leaky_relu(x: Expr, *, alpha: float) -> Expr:
    return select(x < 0.0, x * alpha, x)


@elementwise("Elu")
def elu(x: Expr, *, alpha: float) -> Expr:
    return select(x > 0.0, x, math.expm1(x) * alpha)


@elementwise("Selu")
def selu(x: Expr, *, alpha: float, gamma: float) -> Expr:
    return elu(x, alpha=alpha) * gamma


@elementwise("Celu", since=12)
def celu(x: Expr, *, alpha: float) -> Expr:
    return maximum(x, 0.0) + minimum(math.expm1(x / alpha) * alpha, 0.0)


@elementwise("ThresholdedRelu", since=10)
def thresholded_relu(x: Expr, *, alpha: float) -> Expr:
    return select(x > alpha, x, 0.0)


@elementwise("HardSigmoid")
def hard_sigmoid(x: Expr, *, alpha: float, beta: float) -> Expr:
    return clamp(x * alpha + beta, 0.0, 1.0)


@elementwise("HardSwish", since=14)
def hard_swish(x: Expr) -> Expr:
    return x * clamp(x * (1 / 6) + 0.5, 0.0, 1.0)


@elementwise("Mish", since=18)
def mish(x: Expr) -> Expr:
    return math.mish(x)


@elementwise("Shrink", since=9)
def shrink(x: Expr, *, bias: float, lambd: float) -> Expr:
    """Integers are compared and shifted as f64, then truncated."""
    v = x if x.type in FLOATS else x.cast("f64")
    result = select(v < -lambd, v + bias, select(v > lambd, v - bias, 0.0))
    return result if x.type in FLOATS else as_processor(result, x.type)


@elementwise("Gelu", since=20)
def gelu(x: Expr, *, approximate: str) -> Expr:
    return math.gelu_tanh(x) if approximate == "tanh" else math.gelu(x)


def _scaled_silu(x: Expr, alpha: float) -> Expr:
    return math.silu(x) if alpha == 1.0 else x * math.sigmoid(x * alpha)


@elementwise("Swish", since=24)
@elementwise("QuickGelu", domain=_MICROSOFT)
def swish(x: Expr, *, alpha: float) -> Expr:
    return _scaled_silu(x, alpha)


def _shapes_agree(node: Node) -> bool:
    return all(value is not None and value.shape == node.outputs[0].shape for value in node.inputs)


@elementwise("SwiGLU", since=28, where=_shapes_agree)
def swiglu(gate: Expr, linear: Expr, *, alpha: float) -> Expr:
    return _scaled_silu(gate, alpha) * linear


@elementwise("Gelu", domain=_MICROSOFT)
def gelu_exact(x: Expr) -> Expr:
    return math.gelu(x)


@elementwise("FastGelu", domain=_MICROSOFT)
def fast_gelu(x: Expr, bias: Expr | None = None) -> Expr:
    return math.gelu_tanh(x if bias is None else x + bias)


@elementwise("BiasGelu", domain=_MICROSOFT)
def bias_gelu(x: Expr, bias: Expr) -> Expr:
    return math.gelu(x + bias)
