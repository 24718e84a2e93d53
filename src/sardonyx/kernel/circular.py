"""Circular functions as expressions, and their inverses; how near they come stands in `kernel.math.ULP`.

The angle in quarter turns is x * 2 / pi modulo 4, with 2 / pi to as many digits as the exponent asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from sardonyx.kernel import math_tables as tables
from sardonyx.kernel.expr import Expr, const, fma, rarely, select, sqrt, unary
from sardonyx.kernel.math import Function, absolute, bits_of, polynomial, through_f64, two_sum, with_sign


def _quarter_turns_f32(x: Expr) -> tuple[Expr, Expr]:
    """The quadrant of an f32 angle and what is left of it (at most 1/2), in f64: products of 24 and 29 bits are exact."""
    wide = x.cast("f64")
    total: Expr | None = None
    for number, piece in enumerate(tables.TWO_OVER_PI_29):
        part = wide * piece
        if number < 4:  # the others are below 4 for every f32
            part = fma(unary("round", part * 0.25), -4.0, part)
        total = part if total is None else total + part
    assert total is not None
    quadrant = unary("round", total)
    return quadrant, total - quadrant


def _quarter_turns_f64(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(quadrant, left, what left lost in rounding) of an f64 angle."""
    # Pieces of 24 bits. Those before number j give whole turns; from j on ten of them give all the digits that matter.
    exponent = (bits_of(x) >> 52) & const(0x7FF, "u64")
    skip = [const(value, "f64") for value in tables.TWO_OVER_PI_24]
    # j = max(0, (E - 54) // 24), in pieces; division by 24 of numbers below 2048 as a multiplication
    beyond = select(exponent > const(1023 + 54, "u64"), exponent - const(1023 + 54, "u64"), const(0, "u64"))
    j = (beyond * const(2731, "u64")) >> 16
    window = 10
    pieces: list[Expr] = list(skip)
    for level in (32, 16, 8, 4, 2, 1):
        moved = (j & const(level, "u64")).ne(const(0, "u64"))
        wanted = window + level - 1
        zero = const(0, "f64")
        padded = pieces + [zero] * (wanted + level - len(pieces))
        pieces = [select(moved, padded[k + level], padded[k]) for k in range(wanted)]
    # x * 2**(-24 j), in two factors that are normal numbers, then cut into 27 and 26 bits
    scale_bits = j * const(24, "u64")
    half = scale_bits >> 1
    scaled = (
        x * ((const(1023, "u64") - half) << 52).bitcast("f64") * ((const(1023, "u64") - (scale_bits - half)) << 52).bitcast("f64")
    )
    top = (bits_of(scaled) & const(0xFFFFFFFFFC000000, "u64")).bitcast("f64")
    low = scaled - top
    total, lost = const(0, "f64"), const(0, "f64")
    for number, piece in enumerate(pieces[:window]):
        weighted = piece * 2.0 ** (-24 * (number + 1))
        for half_of_x in (top, low):
            part = half_of_x * weighted
            if number < 4:
                part = fma(unary("round", part * 0.25), -4.0, part)
            total, rest = two_sum(total, part)
            lost = lost + rest
        if number < 4:
            total = fma(unary("round", total * 0.25), -4.0, total)
    quadrant = unary("round", total)
    left, rest = two_sum(total - quadrant, lost)
    again = unary("round", left)  # the lost part may have carried it over 1/2
    return quadrant + again, left - again, rest


def _near_angle(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(quadrant, angle within it in radians, what that lost in rounding) of an f64 angle below NEAR: by three parts of pi / 2.

    The first product and difference, rounded once, is exact: a multiple of the last bit of the first part, and below 1.
    """
    first, second, third = tables.HALF_PI
    quadrant = unary("round", x * (2 / math.pi))
    rest = fma(quadrant, -first, x)
    part = quadrant * second
    angle, lost = two_sum(rest, -part)
    return quadrant, angle, lost - fma(quadrant, third, fma(quadrant, second, -part))


def _any_angle(x: Expr) -> tuple[Expr, Expr, Expr]:
    """The same of an f64 angle of any size."""
    quadrant, left, lost = _quarter_turns_f64(x)
    high, low, _ = tables.HALF_PI
    angle = left * high
    return quadrant, angle, fma(left, high, -angle) + fma(left, low, lost * high)


def _sine_cosine(x: Expr, near: bool) -> tuple[Expr, Expr, Expr]:
    """sin and cos of the angle within its quadrant, and the quadrant (0 to 3, as f64)."""
    if x.type == "f32":
        if near:
            quadrant, angle, lost = _near_angle(x.cast("f64"))
            r = (angle + lost).cast("f32")
        else:
            quadrant, left = _quarter_turns_f32(x)
            r = (left * (math.pi / 2)).cast("f32")
        z = r * r
        sine = fma(r * z, polynomial(z, tables.SIN32), r)
        cosine = fma(z * z, polynomial(z, tables.COS32), fma(z, -0.5, 1.0))
    else:
        quadrant, r, tail = _near_angle(x) if near else _any_angle(x)
        total = r + tail
        tail = tail - (total - r)
        r = total
        z = r * r
        sine = r + fma(r * z, polynomial(z, tables.SIN64), fma(z * -0.5, tail, tail))
        half = z * 0.5
        whole = 1.0 - half
        cosine = whole + (((1.0 - whole) - half) + fma(z * z, polynomial(z, tables.COS64), -(r * tail)))
    phase = fma(unary("floor", quadrant * 0.25), -4.0, quadrant)
    return sine, cosine, phase


_NEAR: Final = 2.0**24  # angles below this are taken into their quadrant by a few operations
_LINEAR: Final = {"f32": 2.0**-13, "f64": 2.0**-27}  # below this sin(x) and tan(x) are x


def _shifted_sin(x: Expr, quarter: float, near: bool) -> Expr:
    """sin of the angle moved by some quarter turns."""
    sine, cosine, phase = _sine_cosine(x, near)
    if quarter:
        moved = phase + quarter
        phase = select(moved >= 4.0, moved - 4.0, moved)
    odd = phase.eq(1.0) | phase.eq(3.0)
    value = select(odd, cosine, sine)
    return select(phase >= 2.0, -value, value)


def _sin(x: Expr, near: bool) -> Expr:
    return select(absolute(x) < _LINEAR[x.type], x, _shifted_sin(x, 0.0, near))


def _cos(x: Expr, near: bool) -> Expr:
    return _shifted_sin(x, 1.0, near)


def _tan(x: Expr, near: bool) -> Expr:
    sine, cosine, phase = _sine_cosine(x, near)
    odd = phase.eq(1.0) | phase.eq(3.0)
    result = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return select(absolute(x) < _LINEAR[x.type], x, result)


def _of_any_angle(function: Callable[[Expr, bool], Expr]) -> Function:
    def rare(x: Expr) -> Expr:
        return select(absolute(x) < math.inf, function(x, False), x - x)

    return rare


# What `expr.rarely` computes, by name: right for every number, and slow.
RARE: Final[dict[str, Function]] = {"sin": _of_any_angle(_sin), "cos": _of_any_angle(_cos), "tan": _of_any_angle(_tan)}


def sin(x: Expr) -> Expr:
    """The sine, for angles of any size; NaN of infinity."""
    return rarely(absolute(x) >= _NEAR, _sin(x, near=True), "sin", x)


def cos(x: Expr) -> Expr:
    """The cosine, for angles of any size; NaN of infinity."""
    return rarely(absolute(x) >= _NEAR, _cos(x, near=True), "cos", x)


@through_f64
def tan(x: Expr) -> Expr:
    """The tangent; NaN of infinity."""
    return rarely(absolute(x) >= _NEAR, _tan(x, near=True), "tan", x)


def _arcsine_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """x in f64, whether |x| >= 1/2, and asin of |x| or, if so, of sqrt((1 - |x|) / 2)."""
    short = x.type == "f32"
    x = x.cast("f64")
    size = absolute(x)
    large = size >= 0.5
    z = select(large, (1.0 - size) * 0.5, size * size)
    s = select(large, sqrt(z), size)
    return x, large, fma(s * z, polynomial(z, tables.ASIN64_SHORT if short else tables.ASIN64), s)


def asin(x: Expr) -> Expr:
    """The angle whose sine this is; NaN outside [-1, 1]."""
    high, low, _ = tables.HALF_PI
    kind = x.type
    x, large, angle = _arcsine_parts(x)
    return with_sign(select(large, high - (angle * 2.0 - low), angle), x).cast(kind)


def acos(x: Expr) -> Expr:
    """The angle whose cosine this is; NaN outside [-1, 1]."""
    high, low, _ = tables.HALF_PI
    kind = x.type
    x, large, angle = _arcsine_parts(x)
    if kind == "f32":
        start = select(large, select(x < 0.0, const(2 * high, "f64"), const(0, "f64")), const(high, "f64"))
        return fma(with_sign(angle, x), select(large, const(2, "f64"), const(-1, "f64")), start).cast(kind)
    small_angle = high - (with_sign(angle, x) - low)
    double = angle * 2.0
    large_angle = select(x < 0.0, 2 * high - (double - 2 * low), double)
    return select(large, large_angle, small_angle)


def atan(x: Expr) -> Expr:
    """The angle whose tangent this is."""
    high, low, _ = tables.HALF_PI
    kind, coefficients = x.type, tables.ATAN64_SHORT if x.type == "f32" else tables.ATAN64
    x = x.cast("f64")
    size = absolute(x)
    far, middle = size > 1 + math.sqrt(2), size > math.sqrt(2) - 1
    top = select(far, const(-1, x.type), select(middle, size - 1.0, size))
    bottom = select(far, size, select(middle, size + 1.0, const(1, x.type)))
    t = top / bottom
    z = t * t
    start = select(far, const(high, x.type), select(middle, const(high / 2, x.type), const(0, x.type)))
    rest = select(far, const(low, x.type), select(middle, const(low / 2, x.type), const(0, x.type)))
    return with_sign(start + (fma(t * z, polynomial(z, coefficients), t) + rest), x).cast(kind)
