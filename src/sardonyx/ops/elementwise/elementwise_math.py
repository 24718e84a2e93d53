"""Elementwise operators with one input: mathematical functions and activations.

Narrow floats are computed in float32 and rounded once (`precision.py`); float attributes take part in the computing type.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, Final

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import OpDef, Trait, op
from sardonyx.ops.elementwise.special import erf, sigmoid, softplus
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.precision import rounded_once


def _unary(name: str, function: Callable[[Array], Any], since: int = 1) -> OpDef:
    return op(name, eval=lambda x: rounded_once(function, x), infer=same_as(0), traits=Trait.ELEMENTWISE, since=since)


def _activation(name: str, eval: Callable[..., Array], since: int = 1) -> OpDef:
    return op(name, eval=eval, infer=same_as(0), traits=Trait.ELEMENTWISE, since=since)


def _erf(x: Array) -> Array:
    return erf(x) if x.dtype.kind == "f" else erf(x.astype(np.float64))


ABS = _unary("Abs", np.abs)
NEG = _unary("Neg", np.negative)
SIGN = _unary("Sign", np.sign, 9)
CEIL = _unary("Ceil", np.ceil)
FLOOR = _unary("Floor", np.floor)
ROUND = _unary("Round", np.rint, 11)
RECIPROCAL = _unary("Reciprocal", np.reciprocal)
SQRT = _unary("Sqrt", np.sqrt)
EXP = _unary("Exp", np.exp)
LOG = _unary("Log", np.log)
ERF = _unary("Erf", _erf, 9)
SIN = _unary("Sin", np.sin, 7)
COS = _unary("Cos", np.cos, 7)
TAN = _unary("Tan", np.tan, 7)
ASIN = _unary("Asin", np.arcsin, 7)
ACOS = _unary("Acos", np.arccos, 7)
ATAN = _unary("Atan", np.arctan, 7)
SINH = _unary("Sinh", np.sinh, 9)
COSH = _unary("Cosh", np.cosh, 9)
TANH = _unary("Tanh", np.tanh)
ASINH = _unary("Asinh", np.arcsinh, 9)
ACOSH = _unary("Acosh", np.arccosh, 9)
ATANH = _unary("Atanh", np.arctanh, 9)

SIGMOID = _unary("Sigmoid", sigmoid)
SOFTPLUS = _unary("Softplus", softplus)
SOFTSIGN = _unary("Softsign", lambda x: x / (1 + np.abs(x)))
RELU = _unary("Relu", lambda x: np.maximum(x, 0))
HARD_SWISH = _unary("HardSwish", lambda x: x * np.clip(x * x.dtype.type(1 / 6) + x.dtype.type(0.5), 0, 1), 14)
MISH = _unary("Mish", lambda x: x * np.tanh(softplus(x)), 18)


def _leaky_relu(x: Array, *, alpha: float) -> Array:
    return rounded_once(lambda v: np.where(v < 0, v * v.dtype.type(alpha), v), x)


def _elu(x: Array, *, alpha: float) -> Array:
    return rounded_once(lambda v: np.where(v > 0, v, v.dtype.type(alpha) * np.expm1(v)), x)


def _selu(x: Array, *, alpha: float, gamma: float) -> Array:
    return rounded_once(lambda v: v.dtype.type(gamma) * np.where(v > 0, v, v.dtype.type(alpha) * np.expm1(v)), x)


def _celu(x: Array, *, alpha: float) -> Array:
    return rounded_once(lambda v: np.maximum(v, 0) + np.minimum(v.dtype.type(alpha) * np.expm1(v / v.dtype.type(alpha)), 0), x)


def _thresholded_relu(x: Array, *, alpha: float) -> Array:
    return rounded_once(lambda v: np.where(v > v.dtype.type(alpha), v, 0), x)


def _hard_sigmoid(x: Array, *, alpha: float, beta: float) -> Array:
    return rounded_once(lambda v: np.clip(v.dtype.type(alpha) * v + v.dtype.type(beta), 0, 1), x)


def _shrink(x: Array, *, bias: float, lambd: float) -> Array:
    """Integers are compared and shifted as float64, then truncated."""

    def compute(v: Array) -> Any:
        if v.dtype.kind != "f":
            v = v.astype(np.float64)
        kind = v.dtype.type
        return np.where(v < kind(-lambd), v + kind(bias), np.where(v > kind(lambd), v - kind(bias), 0))

    return rounded_once(compute, x)


_SQRT_HALF: Final = sqrt(0.5)
_SQRT_2_OVER_PI: Final = sqrt(2 / pi)


def gelu_exact(x: Array) -> Array:
    """x times the normal distribution function, of a float32 or float64 array."""
    kind = x.dtype.type
    return np.asarray(kind(0.5) * x * (kind(1) + erf(np.asarray(x * kind(_SQRT_HALF)))))


def gelu_tanh(x: Array) -> Array:
    """The approximation of `gelu_exact` by tanh."""
    kind = x.dtype.type
    return np.asarray(kind(0.5) * x * (kind(1) + np.tanh(kind(_SQRT_2_OVER_PI) * (x + kind(0.044715) * x * x * x))))


def _gelu(x: Array, *, approximate: str) -> Array:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is {approximate!r}: expected 'none' or 'tanh'")
    return rounded_once(gelu_tanh if approximate == "tanh" else gelu_exact, x)


def _swish(x: Array, *, alpha: float) -> Array:
    return rounded_once(lambda v: v * sigmoid(np.asarray(v * v.dtype.type(alpha))), x)


def _swiglu(gate: Array, linear: Array, *, alpha: float) -> Array:
    if gate.shape != linear.shape:
        raise ValueError(f"A is {gate.shape} but B is {linear.shape}: the shapes must agree")
    return rounded_once(lambda a, b: a * sigmoid(np.asarray(a * a.dtype.type(alpha))) * b, gate, linear)


LEAKY_RELU = _activation("LeakyRelu", _leaky_relu)
ELU = _activation("Elu", _elu)
SELU = _activation("Selu", _selu)
CELU = _activation("Celu", _celu, 12)
THRESHOLDED_RELU = _activation("ThresholdedRelu", _thresholded_relu, 10)
HARD_SIGMOID = _activation("HardSigmoid", _hard_sigmoid)
SHRINK = _activation("Shrink", _shrink, 9)
GELU = _activation("Gelu", _gelu, 20)
SWISH = _activation("Swish", _swish, 24)


def _infer_swiglu(ctx: InferContext) -> InferResult:
    ctx.expect_shape(1, *(ctx.shape(0) or ctx.shape(1) or ()))
    return ctx.shape(0)


SWIGLU = op("SwiGLU", eval=_swiglu, infer=_infer_swiglu, traits=Trait.ELEMENTWISE, since=28)
