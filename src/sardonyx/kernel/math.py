"""Mathematical functions as expressions: one implementation for every machine.

Functions take and give f32 or f64. The largest error over all inputs, in units of the last place (ulp), is stated in the
table ULP and held by a test; results smaller than the smallest normal number may be off by 2 of their steps. NaN, infinities and
signs of zeros are those of IEEE 754 and C, except where a function says otherwise.

f32 versions of what models spend time in (exp, log, tanh, sigmoid, erf, sin, cos) work in f32; the others compute in f64 and
round, which vector code does faster than a scalar library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sardonyx.kernel import math_tables as tables
from sardonyx.kernel.expr import Expr, binary, const, fma, lift, select, sqrt, unary

Function: TypeAlias = Callable[[Expr], Expr]

# (f32, f64)
ULP: Final[dict[str, tuple[float, float]]] = {
    "exp": (1.0, 1.0), "exp_in_range": (2.5, 1.0), "exp2": (1.5, 2.0), "expm1": (2.0, 2.5), "log": (1.0, 1.0), "log2": (2.0, 2.0),
    "log1p": (0.6, 2.0), "erf": (4.0, 3.0), "tanh": (3.0, 3.0), "sigmoid": (3.0, 2.0), "softplus": (3.0, 3.0), "sin": (1.5, 1.5),
    "cos": (1.5, 1.5), "tan": (0.6, 3.0), "asin": (0.6, 2.0), "acos": (0.6, 2.0), "atan": (0.6, 1.5), "sinh": (0.6, 3.0),
    "cosh": (0.6, 2.0), "asinh": (0.6, 3.0), "acosh": (0.6, 3.0), "atanh": (0.6, 3.0), "pow": (0.6, 2.0), "rsqrt": (1.0, 1.0),
}  # fmt: skip

_INF: Final = math.inf
_NAN: Final = math.nan
_LOG2_E: Final = 1 / math.log(2)

# mantissa bits, exponent bias, unsigned integer of the same width
_LAYOUT: Final = {"f32": (23, 127, "u32"), "f64": (52, 1023, "u64")}


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The value of a polynomial, coefficients from the lowest power on."""
    result = const(coefficients[-1], x.type)
    for coefficient in coefficients[-2::-1]:
        result = fma(result, x, coefficient)
    return result


def _through_f64(function: Function) -> Function:
    """The f32 form of a function that is written for f64."""

    def either(x: Expr) -> Expr:
        return function(x) if x.type == "f64" else function(x.cast("f64")).cast("f32")

    either.__doc__ = function.__doc__
    return either


def _bits(x: Expr) -> Expr:
    return x.bitcast(_LAYOUT[x.type][2])


def _sign_bit(x: Expr) -> Expr:
    mantissa, _, integer = _LAYOUT[x.type]
    return _bits(x) & const(1 << (31 if mantissa == 23 else 63), integer)


def with_sign(size: Expr, x: Expr) -> Expr:
    """A number that is not negative, with the sign of another."""
    return (_bits(size) | _sign_bit(x)).bitcast(size.type)


def _abs(x: Expr) -> Expr:
    return unary("abs", x)


def _at_most(x: Expr, bound: float) -> Expr:
    return binary("minr", lift(bound, x.type), x)  # in this order NaN stays


def _at_least(x: Expr, bound: float) -> Expr:
    return binary("maxr", lift(bound, x.type), x)


# exp and its relatives: x = n ln 2 + r; adding a number whose last place is 1 rounds to n and leaves n in its low bits


def _reduce_by_ln2(x: Expr, offset: int) -> tuple[Expr, Expr, Expr]:
    """n, r, and the bits whose lowest are n + offset."""
    mantissa, _, _ = _LAYOUT[x.type]
    magic = 1.5 * 2.0**mantissa + offset
    high, low = tables.LN2_32 if x.type == "f32" else tables.LN2_64
    shifted = fma(x, _LOG2_E, magic)
    n = shifted - magic
    r = fma(n, -low, fma(n, -high, x))
    return n, r, _bits(shifted)


def _power_of_two(bits: Expr, type: str) -> Expr:
    """2**k, where the low bits hold k + bias and the bits above the exponent's are shifted out."""
    mantissa, _, _ = _LAYOUT[type]
    return (bits << mantissa).bitcast(type)


def _exp_polynomial(r: Expr) -> Expr:
    return polynomial(r, tables.EXP32 if r.type == "f32" else tables.EXP64)


def _scaled_twice(value: Expr, bits: Expr) -> Expr:
    """value * 2**n, in two steps that cannot overflow: the low bits are n + 2 * bias."""
    half = bits >> 1
    return value * _power_of_two(half, value.type) * _power_of_two(bits - half, value.type)


def exp(x: Expr) -> Expr:
    """e**x."""
    return _exp_times(x, 0)


def _exp_times(x: Expr, exponent: int) -> Expr:
    """e**x * 2**exponent for a small exponent, without overflow before the end."""
    _, bias, _ = _LAYOUT[x.type]
    x = _at_most(_at_least(x, -104.0 if x.type == "f32" else -746.0), 89.5 if x.type == "f32" else 711.0)
    offset = 2 * bias + exponent
    _, r, bits = _reduce_by_ln2(x, offset)
    return _scaled_twice(_exp_polynomial(r), bits)


def exp_in_range(x: Expr) -> Expr:
    """e**x where the result is a normal number; below that 0, and above it infinity. The quick one: softmax, sigmoid."""
    _, bias, _ = _LAYOUT[x.type]
    # At the bounds n is -bias and bias + 1, whose powers of two come out as 0 and infinity.
    bound = 88.03 if x.type == "f32" else 709.09
    return _exp_unchecked(_at_most(_at_least(x, -bound), bound + (0.6 if x.type == "f32" else 0.65)))


def exp_not_positive(x: Expr) -> Expr:
    """`exp_in_range` for x <= 0: one bound less to check."""
    return _exp_unchecked(_at_least(x, -88.03 if x.type == "f32" else -709.09))


def _exp_unchecked(x: Expr) -> Expr:
    _, bias, _ = _LAYOUT[x.type]
    _, r, bits = _reduce_by_ln2(x, bias)
    value = polynomial(r, tables.EXP32_SHORT) if x.type == "f32" else _exp_polynomial(r)
    return value * _power_of_two(bits, x.type)


def exp2(x: Expr) -> Expr:
    """2**x."""
    mantissa, bias, _ = _LAYOUT[x.type]
    x = _at_most(_at_least(x, -151.0 if x.type == "f32" else -1076.0), 129.0 if x.type == "f32" else 1025.0)
    magic = 1.5 * 2.0**mantissa + 2 * bias
    shifted = x + magic
    r = (x - (shifted - magic)) * math.log(2)
    return _scaled_twice(_exp_polynomial(r), _bits(shifted))


def expm1(x: Expr) -> Expr:
    """e**x - 1."""
    _, bias, _ = _LAYOUT[x.type]
    bounded = _at_most(_at_least(x, -18.0 if x.type == "f32" else -38.0), 89.0 if x.type == "f32" else 710.0)
    _, r, bits = _reduce_by_ln2(bounded, bias - 1)
    half = _power_of_two(bits, x.type)  # 2**n / 2: 2**n itself may be too large
    tail = polynomial(r, tables.EXPM1_32 if x.type == "f32" else tables.EXPM1_64)
    small = fma(r * r, tail, r)  # e**r - 1
    result = fma(half, small, half - 0.5) * 2.0
    return select(x.eq(0.0), x, result)  # keeps the sign of a zero


# Logarithms


def _split_exponent(x: Expr) -> tuple[Expr, Expr]:
    """(e, m): x = m * 2**e with sqrt(1/2) <= m < sqrt(2), for 0 < x < infinity; e as a number of the same type."""
    mantissa, _, integer = _LAYOUT[x.type]
    tiny = x < (2.0**-126 if x.type == "f32" else 2.0**-1022)
    lift_by = mantissa + 2
    x = select(tiny, x * 2.0**lift_by, x)
    root = 0x3F3504F3 if x.type == "f32" else 0x3FE6A09E667F3BCD  # sqrt(1/2)
    one = 0x3F800000 if x.type == "f32" else 0x3FF0000000000000
    distance = _bits(x) - const(root, integer)
    # The exponent as an unsigned number, made a float by placing it below a large one.
    bias = 512 if x.type == "f32" else 4096
    field = (distance + const(bias << mantissa & (1 << (32 if mantissa == 23 else 64)) - 1, integer)) >> mantissa
    large = 2.0**mantissa
    large_bits = (mantissa + _LAYOUT[x.type][1]) << mantissa
    width = 32 if mantissa == 23 else 64
    span = 1 << (width - mantissa)  # the field counts modulo this
    e = (field | const(large_bits, integer)).bitcast(x.type) - (large + bias % span)
    e = e - select(tiny, const(lift_by, x.type), const(0, x.type))
    keep = const((1 << mantissa) - 1, integer)
    m = ((distance & keep) + const(root, integer)).bitcast(x.type)
    del one
    return e, m


def _log_specials(x: Expr, result: Expr) -> Expr:
    inside = select(x < _INF, result, x)
    return select(x > 0.0, inside, select(x.eq(0.0), const(-_INF, x.type), const(_NAN, x.type)))
