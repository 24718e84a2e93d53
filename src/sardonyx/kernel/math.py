"""Mathematical functions as expressions: one implementation for every machine.

Functions take and give f32 or f64. The largest error over all inputs, in units of the last place (ulp), is stated in the
table ULP and held by a test, for machines that multiply and add with one rounding; others lose a little more. NaN, infinities
and signs of zeros are those of IEEE 754 and C, except where a function says otherwise. Sines and the like: `kernel.circular`.

f32 versions of what models spend time in (exp, log, tanh, sigmoid, erf, sin, cos) work in f32; the others compute in f64 and
round, which vector code does faster than a scalar library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sardonyx.kernel import math_tables as tables
from sardonyx.kernel.expr import Expr, binary, const, fma, lift, one_and_exp, scaled, select, sqrt, unary

Function: TypeAlias = Callable[[Expr], Expr]

# (f32, f64)
ULP: Final[dict[str, tuple[float, float]]] = {
    "exp": (1.0, 1.0), "exp_in_range": (2.5, 1.0), "exp2": (1.0, 1.0), "expm1": (1.5, 2.0), "log": (1.0, 1.0), "log2": (2.0, 2.0),
    "log1p": (0.6, 1.6), "erf": (4.5, 3.5), "tanh": (4.5, 3.0), "sigmoid": (4.0, 2.5), "softplus": (4.0, 2.5), "sin": (1.7, 1.0),
    "cos": (1.7, 1.0), "tan": (0.6, 3.0), "asin": (0.6, 2.5), "acos": (0.6, 2.0), "atan": (0.6, 2.0), "sinh": (0.6, 2.5),
    "cosh": (0.6, 1.5), "asinh": (0.6, 2.5), "acosh": (0.6, 2.5), "atanh": (0.6, 2.5), "power": (0.6, 2.0), "rsqrt": (1.5, 1.5),
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


def through_f64(function: Function) -> Function:
    """The f32 form of a function that is written for f64."""

    def either(x: Expr) -> Expr:
        return function(x) if x.type == "f64" else function(x.cast("f64")).cast("f32")

    either.__doc__ = function.__doc__
    return either


def bits_of(x: Expr) -> Expr:
    """The same bits as an unsigned integer."""
    return x.bitcast(_LAYOUT[x.type][2])


def _sign_bit(x: Expr) -> Expr:
    mantissa, _, integer = _LAYOUT[x.type]
    return bits_of(x) & const(1 << (31 if mantissa == 23 else 63), integer)


def with_sign(size: Expr, x: Expr) -> Expr:
    """A number that is not negative, with the sign of another."""
    return (bits_of(size) | _sign_bit(x)).bitcast(size.type)


def two_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """A sum, and what it lost in rounding."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


def absolute(x: Expr) -> Expr:
    """The number without its sign."""
    return unary("abs", x)


def _at_most(x: Expr, bound: float) -> Expr:
    return binary("minr", lift(bound, x.type), x)  # in this order NaN stays


def _at_least(x: Expr, bound: float) -> Expr:
    return binary("maxr", lift(bound, x.type), x)


# exp and its relatives: x = n ln 2 + r; adding a number whose last place is 1 rounds to n and leaves n in its low bits


def _reduce_by_ln2(x: Expr, offset: int) -> tuple[Expr, Expr, Expr]:
    """A number whose lowest bits are n + offset, n, and r."""
    mantissa, _, _ = _LAYOUT[x.type]
    magic = 1.5 * 2.0**mantissa + offset
    high, low = tables.LN2_32 if x.type == "f32" else tables.LN2_64
    shifted = fma(x, _LOG2_E, magic)
    n = shifted - magic
    r = fma(n, -low, fma(n, -high, x))
    return shifted, n, r


def _power_of_two(bits: Expr, type: str) -> Expr:
    """2**k, where the low bits hold k + bias and the bits above the exponent's are shifted out."""
    mantissa, _, _ = _LAYOUT[type]
    return (bits << mantissa).bitcast(type)


def _exp_polynomial(r: Expr) -> Expr:
    return polynomial(r, tables.EXP32 if r.type == "f32" else tables.EXP64)


_EXP_ENDS: Final = {"f32": (-104.0, 89.5), "f64": (-746.0, 711.0)}  # where e**x has come to 0 and to infinity
# Where e**x is lost beside 1, and where it has come to infinity, with an exponent that is the first beyond the largest.
_SIGMOID_ENDS: Final = {"f32": (-87.0, 89.0), "f64": (-708.0, 710.0)}


def exp(x: Expr) -> Expr:
    """e**x."""
    return _exp_times(x, 0)


def _exp_times(x: Expr, exponent: int) -> Expr:
    """e**x * 2**exponent for a small exponent, without overflow before the end."""
    _, bias, _ = _LAYOUT[x.type]
    least, most = _EXP_ENDS[x.type]
    shifted, n, r = _reduce_by_ln2(_at_most(_at_least(x, least), most), 2 * bias + exponent)
    return scaled(_exp_polynomial(r), n + exponent if exponent else n, bits_of(shifted))


def exp_in_range(x: Expr) -> Expr:
    """e**x where the result is a normal number; below that 0 or what it should be, above it infinity. The quick one: sigmoid."""
    least, most = _EXP_ENDS[x.type]
    return _exp_quick(_at_most(_at_least(x, least), most), (0, 1))


def exp_not_positive(x: Expr) -> Expr:
    """`exp_in_range` for x <= 0, as in softmax: one bound less to check."""
    return _exp_quick(_at_least(x, _EXP_ENDS[x.type][0]), (0,))


def _exp_quick(x: Expr, ends: Sequence[int]) -> Expr:
    """The exponent with its bias, without an instruction for scaling, must not leave its bits at the ends that x may reach."""
    mantissa, bias, _ = _LAYOUT[x.type]
    shifted, n, r = _reduce_by_ln2(x, bias)
    value = polynomial(r, tables.EXP32_SHORT if x.type == "f32" else tables.EXP64)
    for end in ends:
        bound = 1.5 * 2.0**mantissa + end * (2 * bias + 1)  # 0 stands for 0, and the largest for infinity
        shifted = _at_most(shifted, bound) if end else _at_least(shifted, bound)
    return scaled(value, n, bits_of(shifted), normal=True)


def exp2(x: Expr) -> Expr:
    """2**x."""
    mantissa, bias, _ = _LAYOUT[x.type]
    x = _at_most(_at_least(x, -151.0 if x.type == "f32" else -1076.0), 129.0 if x.type == "f32" else 1025.0)
    magic = 1.5 * 2.0**mantissa + 2 * bias
    shifted = x + magic
    n = shifted - magic
    return scaled(_exp_polynomial((x - n) * math.log(2)), n, bits_of(shifted))


def expm1(x: Expr) -> Expr:
    """e**x - 1."""
    _, bias, _ = _LAYOUT[x.type]
    bounded = _at_most(_at_least(x, -18.0 if x.type == "f32" else -38.0), 89.0 if x.type == "f32" else 710.0)
    shifted, _, r = _reduce_by_ln2(bounded, bias - 1)
    half = _power_of_two(bits_of(shifted), x.type)  # 2**n / 2: 2**n itself may be too large
    tail = polynomial(r, tables.EXPM1_32 if x.type == "f32" else tables.EXPM1_64)
    small = fma(r * r, tail, r)  # e**r - 1
    result = fma(half, small, half - 0.5) * 2.0
    return select(x.eq(0.0), x, result)  # keeps the sign of a zero


# Logarithms


def _split_exponent(x: Expr) -> tuple[Expr, Expr]:
    """(e, m): x = m * 2**e with sqrt(1/2) <= m < sqrt(2), for 0 < x < infinity; e as a number of the same type."""
    mantissa, bias, integer = _LAYOUT[x.type]
    tiny = x < 2.0 ** (1 - bias)
    lifted_by = mantissa + 2.0
    x = select(tiny, x * 2.0**lifted_by, x)
    root = 0x3F3504F3 if x.type == "f32" else 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
    # The distance to it in the exponent's place, made positive; its fraction is that of m.
    distance = bits_of(x) + const(((bias + 1) << mantissa) - root, integer)
    # A whole number becomes a float below the last place of a large one.
    large = const((mantissa + bias) << mantissa, integer)
    e = ((distance >> mantissa) | large).bitcast(x.type) - (2.0**mantissa + bias + 1)
    e = select(tiny, e - lifted_by, e)
    m = ((distance & const((1 << mantissa) - 1, integer)) + const(root, integer)).bitcast(x.type)
    return e, m


def _log_specials(x: Expr, result: Expr) -> Expr:
    inside = select(x < _INF, result, x)
    return select(x > 0.0, inside, select(x.eq(0.0), const(-_INF, x.type), const(_NAN, x.type)))


def _log_of_parts(e: Expr, m: Expr) -> Expr:
    """log(m) + e ln 2."""
    high, low = tables.LN2_32 if m.type == "f32" else tables.LN2_64
    f = m - 1.0
    square = f * f
    if m.type == "f32":
        tail = fma(polynomial(f, tables.LOG32) * f, square, e * low)
        return fma(e, high, fma(square, -0.5, tail) + f)
    half_square = square * 0.5
    s = f / (f + 2.0)
    z = s * s
    rest = s * fma(polynomial(z, tables.LOG64), z, half_square)
    return fma(e, high, f - (half_square - (rest + e * low)))


def log(x: Expr) -> Expr:
    """The natural logarithm."""
    return _log_specials(x, _log_of_parts(*_split_exponent(x)))


def log2(x: Expr) -> Expr:
    """The logarithm to base 2, exact for powers of 2."""
    e, m = _split_exponent(x)
    return _log_specials(x, fma(_log_of_parts(const(0, x.type), m), _LOG2_E, e))


@through_f64
def log1p(x: Expr) -> Expr:
    """log(1 + x)."""
    whole = x + 1.0
    lost = x - (whole - 1.0)  # what rounding took from x
    result = log(whole) + lost / whole
    usual = select(absolute(x) < 2.0**-54, x, result)
    return select((x > -1.0) & (x < _INF), usual, log(whole))


# Error function and sigmoids


def _within_one(x: Expr) -> Expr:
    return _at_most(_at_least(x, -1.0), 1.0)


def erf(x: Expr) -> Expr:
    """The error function."""
    if x.type == "f32":
        v = _at_most(_at_least(x, -ERF_LIMIT), ERF_LIMIT)
        z = v * v
        return _within_one(v * polynomial(z, tables.ERF32_TOP) / polynomial(z, tables.ERF32_BOTTOM))
    size = _at_most(absolute(x), 6.0)
    near = size * polynomial(size * size, tables.ERF64_NEAR)
    far = 1.0 - exp_not_positive(-(size * size)) * polynomial((size - 3.0) / (size + 3.0), tables.ERF64_FAR)
    return with_sign(select(size < 1.0, near, far), x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    if x.type == "f32":
        v = _at_most(_at_least(x, -TANH_LIMIT), TANH_LIMIT)
        z = v * v
        return _within_one(v * polynomial(z, tables.TANH32_TOP) / polynomial(z, tables.TANH32_BOTTOM))
    t = expm1(_at_most(absolute(x), 22.0) * 2.0)
    return with_sign(t / (t + 2.0), x)


# Where the f32 quotients of erf and tanh have come to 1 and one step more; both are held there, and the quotient at 1.
ERF_LIMIT: Final = 3.9500274658203125
TANH_LIMIT: Final = 8.8524751663208


def _one_and_exp(x: Expr) -> Expr:
    """1 + e**-x."""
    return one_and_exp(x) if x.type == "f32" else one_and_exp_by_polynomial(x)


def one_and_exp_by_polynomial(x: Expr) -> Expr:
    """1 + e**-x, for which the least powers need not be exact: no end of the exponent's bits is left to check."""
    least, most = _SIGMOID_ENDS[x.type]
    return _exp_quick(_at_most(_at_least(-x, least), most), ()) + 1.0


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x); 0 where that is no normal number."""
    return const(1, x.type) / _one_and_exp(x)


def silu(x: Expr) -> Expr:
    """x * sigmoid(x)."""
    return x / _one_and_exp(x)


def gelu(x: Expr) -> Expr:
    """x times the normal distribution function."""
    half = x * 0.5
    return fma(half, erf(x * math.sqrt(0.5)), half)


def gelu_tanh(x: Expr) -> Expr:
    """The approximation of gelu by tanh: x * (1 + tanh(u)) / 2 is x * sigmoid(2 u)."""
    factor = math.sqrt(8 / math.pi)
    u = x * fma(x * x, 0.044715 * factor, factor)
    return x / _one_and_exp(u)


def softplus(x: Expr) -> Expr:
    """log(1 + e**x)."""
    decay = exp_not_positive(-absolute(x))
    rest = decay * polynomial(decay, tables.LOG1P32) if x.type == "f32" else log1p(decay)
    return _at_least(x, 0.0) + rest


def mish(x: Expr) -> Expr:
    """x * tanh(softplus(x)): with n = e**x (e**x + 2), x * n / (n + 2)."""
    growth = exp_in_range(_at_most(x, 20.0))  # from there on the quotient is 1
    n = growth * (growth + 2.0)
    return x * (n / (n + 2.0))


# Hyperbolic functions


@through_f64
def sinh(x: Expr) -> Expr:
    """The hyperbolic sine."""
    size = absolute(x)
    t = expm1(_at_most(size, 22.0))
    return with_sign(select(size > 22.0, _exp_times(size, -1), (t + t / (t + 1.0)) * 0.5), x)


@through_f64
def cosh(x: Expr) -> Expr:
    """The hyperbolic cosine."""
    half = _exp_times(absolute(x), -1)
    return half + 0.25 / half


_HUGE: Final = 2.0**54  # from here on 1 + x**2 is x**2 and 1 + x is x


@through_f64
def asinh(x: Expr) -> Expr:
    """The inverse hyperbolic sine."""
    size = absolute(x)
    huge = size > _HUGE
    safe = _at_most(size, _HUGE)
    near = safe + safe * safe / (1.0 + sqrt(fma(safe, safe, 1.0)))
    result = log1p(select(huge, size, near))
    return with_sign(select(huge, result + math.log(2), result), x)


@through_f64
def acosh(x: Expr) -> Expr:
    """The inverse hyperbolic cosine; NaN below 1."""
    huge = x > _HUGE
    t = x - 1.0
    result = log1p(select(huge, x, t + sqrt(t) * sqrt(t + 2.0)))
    return select(huge, result + math.log(2), result)


@through_f64
def atanh(x: Expr) -> Expr:
    """The inverse hyperbolic tangent; NaN outside [-1, 1]."""
    size = absolute(x)
    return with_sign(log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x)."""
    return const(1, x.type) / sqrt(x)


# Powers


def _exact_log(x: Expr) -> tuple[Expr, Expr]:
    """log(x) as the sum of two f64 numbers, with 65 good bits, for 0 < x < infinity."""
    e, m = _split_exponent(x)
    f = m - 1.0
    # s = f / (2 + f) and z = s * s, each with what rounding took
    bottom, bottom_low = two_sum(f, const(2, "f64"))
    s = f / bottom
    s_low = (fma(-s, bottom, f) - s * bottom_low) / bottom
    z = s * s
    z_low = fma(s, s, -z) + (s * s_low) * 2.0
    # log(m) / 2 = s + s * t, t = z * (1/3 + z * tail)
    tail = z * polynomial(z, tables.LOG_TAIL)
    third, third_low = tables.THIRD
    c, c_low = two_sum(const(third, "f64"), tail)
    c_low = c_low + third_low
    t = z * c
    t_low = fma(z, c, -t) + fma(z, c_low, z_low * c)
    v = s * t
    v_low = fma(s, t, -v) + fma(s, t_low, s_low * t)
    half, half_low = two_sum(s, v)
    half_low = half_low + (s_low + v_low)
    high, low = tables.LN2_64
    total, rest = two_sum(e * high, half * 2.0)
    rest = rest + fma(half_low, 2.0, e * low)
    whole = total + rest
    return whole, rest - (whole - total)


def _power_of_size(size: Expr, y: Expr) -> Expr:
    """size**y for 0 < size < infinity, in f64."""
    whole, low = _exact_log(size)
    product = y * whole
    rest = select(absolute(product) <= 1000.0, fma(y, whole, -product) + y * low, const(0, "f64"))
    result = exp(product)
    return select(result.eq(_INF), result, fma(result, rest, result))


def power(x: Expr, y: Expr) -> Expr:
    """x**y for every x and y, as C's pow."""
    if x.type == "f32":
        return _power(x, y, exp(log(absolute(x).cast("f64")) * y.cast("f64")).cast("f32"))
    return _power(x, y, _power_of_size(absolute(x), y))


def _power(x: Expr, y: Expr, size: Expr) -> Expr:
    """The special cases around |x|**y."""
    kind = x.type
    zero, infinity, one = const(0, kind), const(_INF, kind), const(1, kind)
    rising = y > 0.0
    positive = absolute(x)
    size = select(positive.eq(0.0), select(rising, zero, infinity), size)
    size = select(positive.eq(_INF), select(rising, infinity, zero), size)
    size = select(positive.eq(1.0), one, size)
    whole = unary("floor", y).eq(y)
    half = y * 0.5
    odd = whole & unary("floor", half).ne(half)
    negative = (_sign_bit(x)).ne(const(0, _LAYOUT[kind][2]))
    signed = select(odd & negative, -size, size)
    defined = whole | ~(x < 0.0) | x.eq(-_INF)
    result = select(defined, signed, const(_NAN, kind))
    result = select(unary("isnan", x) | unary("isnan", y), x + y, result)
    return select(y.eq(0.0) | x.eq(1.0), one, result)
