"""Derives the coefficients of `sardonyx.kernel.math_tables` in high precision and prints that module.

    python tools/derive_polynomials.py > src/sardonyx/kernel/math_tables.py

Polynomials are least-squares fits of the relative error at Chebyshev nodes, within a small factor of the best possible; their
coefficients are rounded to the type one by one from the lowest on, and the others fitted again, so that rounding costs nothing.
Rational functions are fitted the same way, with weights corrected until the largest error is as small as it gets. Needs mpmath.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from mpmath import mp, mpf

mp.dps = 120

Function = Callable[[mpf], mpf]


def rounded(value: mpf, kind: str) -> mpf:
    """The nearest number of the type."""
    code = "<f" if kind == "f32" else "<d"
    return mpf(struct.unpack(code, struct.pack(code, float(value)))[0])


def nodes(low: mpf, high: mpf, count: int) -> list[mpf]:
    """Chebyshev nodes of an interval."""
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle + half * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def polynomial(function: Function, low: float, high: float, degree: int, kind: str, fixed: Sequence[float] = ()) -> list[float]:
    """Coefficients from the lowest power on; `fixed` gives the first ones."""
    known = [mpf(value) for value in fixed]
    while len(known) <= degree:
        unknown = degree + 1 - len(known)
        points = nodes(mpf(low), mpf(high), 4 * unknown + 1)
        matrix, right = mp.matrix(len(points), unknown), mp.matrix(len(points), 1)
        for row, x in enumerate(points):
            exact = function(x)
            right[row] = 1 - sum(c * x**k for k, c in enumerate(known)) / exact
            for column in range(unknown):
                matrix[row, column] = x ** (len(known) + column) / exact
        known.append(rounded(mp.qr_solve(matrix, right)[0][0], kind))
    return [float(value) for value in known]


def rational(
    function: Function, low: float, high: float, above: int, below: int, kind: str, iterations: int = 40
) -> tuple[list[float], list[float]]:
    """Numerator and denominator (whose lowest coefficient is 1) with the smallest relative error."""
    mp.dps = 40
    count = 8 * (above + below)
    points = [x for x in nodes(mpf(low), mpf(high), count) if x > low]
    values = [function(x) for x in points]
    weights = [mpf(1)] * len(points)
    bottoms = [mpf(1)] * len(points)
    best: tuple[mpf, list[mpf], list[mpf]] | None = None
    unknown = above + 1 + below
    for _ in range(iterations):
        matrix, right = mp.matrix(len(points), unknown), mp.matrix(len(points), 1)
        for row, (x, y) in enumerate(zip(points, values)):
            scale = mp.sqrt(weights[row]) / (bottoms[row] * y)
            for k in range(above + 1):
                matrix[row, k] = scale * x**k
            for k in range(below):
                matrix[row, above + 1 + k] = -scale * y * x ** (k + 1)
            right[row] = scale * y
        found = mp.qr_solve(matrix, right)[0]
        top = [found[k] for k in range(above + 1)]
        bottom = [mpf(1)] + [found[above + 1 + k] for k in range(below)]
        bottoms = [sum(c * x**k for k, c in enumerate(bottom)) for x in points]
        errors = [abs(sum(c * x**k for k, c in enumerate(top)) / down / y - 1) for x, y, down in zip(points, values, bottoms)]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = (worst, top, bottom)
        total = sum(w * e for w, e in zip(weights, errors))
        weights = [w * e / total * len(points) + mpf("1e-30") for w, e in zip(weights, errors)]
    assert best is not None
    mp.dps = 120
    return [float(rounded(c, kind)) for c in best[1]], [float(rounded(c, kind)) for c in best[2]]


def split(value: mpf, bits: int, parts: int) -> list[float]:
    """A number as a sum of floats of at most `bits` bits each."""
    result = []
    for _ in range(parts):
        exponent = mp.floor(mp.log(abs(value), 2))
        unit = mpf(2) ** (exponent - bits + 1)
        piece = mp.floor(value / unit) * unit
        result.append(float(piece))
        value -= piece
    return result


def digits(value: mpf, bits: int, count: int) -> list[float]:
    """A number below 1 cut into pieces of `bits` bits each: piece k has the weight 2**-(bits * (k + 1))."""
    result = []
    for k in range(count):
        unit = mpf(2) ** (-bits * (k + 1))
        piece = mp.floor(value / unit)
        result.append(float(piece * unit))
        value -= piece * unit
    return result


def whole_digits(value: mpf, bits: int, count: int) -> list[float]:
    """The same pieces as whole numbers, for a number so small in its last pieces that no float could hold them."""
    result = []
    for _ in range(count):
        value *= 2**bits
        piece = mp.floor(value)
        result.append(float(piece))
        value -= piece
    return result


def show(name: str, values: Sequence[float], note: str = "") -> None:
    """One table as Python text, as the formatter would leave it."""
    comment = f"  # {note}" if note else ""
    print(f"{name}: Final = ({comment}")
    line = "   "
    for value in values:
        item = f" {value!r},"
        if len(line) + len(item) > 126:
            print(line)
            line = "   "
        line += item
    print(line)
    print(")  # fmt: skip")


def quotient(function: Function, power: int, start: Sequence[float] = ()) -> Function:
    """(f(x) - sum of start[k] x**k) / x**power, by a limit near 0."""

    def divided(x: mpf) -> mpf:
        x = x if abs(x) > mpf("1e-30") else mpf("1e-30")
        return (function(x) - sum(mpf(c) * x**k for k, c in enumerate(start))) / x**power

    return divided


def root(function: Function) -> Function:
    """g(z) = f(sqrt(z)) / sqrt(z): the even part of an odd function."""

    def divided(z: mpf) -> mpf:
        x = mp.sqrt(z) if z > mpf("1e-60") else mpf("1e-30")
        return function(x) / x

    return divided


def main() -> None:
    half = float(mp.log(2) / 2) * 1.0001
    print('"""Coefficients for math.py and circular.py, lowest power first. Made by tools/derive_polynomials.py; do not edit."""')
    print("\nfrom typing import Final\n")
    show("EXP32", polynomial(mp.exp, -half, half, 6, "f32", (1.0, 1.0)), "exp(r), |r| <= ln 2 / 2")
    show("EXP32_SHORT", polynomial(mp.exp, -half, half, 5, "f32", (1.0,)), "the same, for 2 ulp")
    show("EXP64", polynomial(mp.exp, -half, half, 12, "f64", (1.0, 1.0)))
    show("EXPM1_32", polynomial(quotient(mp.exp, 2, (1, 1)), -half, half, 5, "f32"), "(exp(r) - 1 - r) / r**2")
    show("EXPM1_64", polynomial(quotient(mp.exp, 2, (1, 1)), -half, half, 11, "f64"))
    low, high = float(mp.sqrt(mpf(1) / 2) - 1), float(mp.sqrt(2) - 1)
    log1p = lambda x: mp.log(1 + x)  # noqa: E731
    show("LOG32", polynomial(quotient(log1p, 3, (0, 1, -0.5)), low, high, 8, "f32"), "(log(1 + f) - f + f**2 / 2) / f**3")
    atanh_tail: Function = lambda z: (root(mp.atanh)(z) - 1) / z if z > mpf("1e-40") else mpf(1) / 3  # noqa: E731
    show(
        "LOG64",
        [2 * c for c in polynomial(atanh_tail, 0.0, float((high / (2 + high)) ** 2), 7, "f64")],
        "2 (atanh(s) / s - 1) / s**2 of z = s**2",
    )
    show("LOG1P32", polynomial(quotient(log1p, 1), 0.0, 1.0, 10, "f32"), "log(1 + x) / x, 0 <= x <= 1")
    limit = 9.1
    top, bottom = rational(root(mp.tanh), 0.0, limit * limit, 6, 3, "f32")
    show("TANH32_TOP", top, "tanh(x) / x of z = x**2, x <= 9.1")
    show("TANH32_BOTTOM", bottom)
    top, bottom = rational(root(mp.erf), 0.0, 4.0 * 4.0, 6, 5, "f32")
    show("ERF32_TOP", top, "erf(x) / x of z = x**2, x <= 4")
    show("ERF32_BOTTOM", bottom)
    show("ERF64_NEAR", polynomial(root(mp.erf), 0.0, 1.0, 12, "f64"), "erf(x) / x of z = x**2, x <= 1")
    far = lambda t: mp.erfc(3 * (1 + t) / (1 - t)) * mp.exp((3 * (1 + t) / (1 - t)) ** 2)  # noqa: E731
    show("ERF64_FAR", polynomial(far, -0.5, 1 / 3, 16, "f64"), "erfc(x) exp(x**2) of t = (x - 3) / (x + 3), 1 <= x <= 6")
    quarter = float(mp.pi / 4) * 1.0001
    sine = lambda z: (root(mp.sin)(z) - 1) / z if z > mpf("1e-40") else -mpf(1) / 6  # noqa: E731
    cosine = lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2 if z > mpf("1e-40") else mpf(1) / 24  # noqa: E731
    for bits, degrees in (("32", (2, 2)), ("64", (5, 5))):
        show(f"SIN{bits}", polynomial(sine, 0.0, quarter**2, degrees[0], f"f{bits}"), "(sin(x) / x - 1) / x**2 of z = x**2")
        show(f"COS{bits}", polynomial(cosine, 0.0, quarter**2, degrees[1], f"f{bits}"), "(cos(x) - 1 + x**2 / 2) / x**4")
    arctangent = lambda z: (root(mp.atan)(z) - 1) / z if z > mpf("1e-40") else -mpf(1) / 3  # noqa: E731
    third = mpf(1) / 3
    rest = lambda z: (atanh_tail(z) - third) / z if z > mpf("1e-40") else mpf(1) / 5  # noqa: E731
    show("LOG_TAIL", polynomial(rest, 0.0, float((high / (2 + high)) ** 2), 8, "f64"), "(atanh(s) / s - 1 - z / 3) / z**2")
    show("THIRD", [float(third), float(third - mpf(float(third)))])
    show("ATAN64", polynomial(arctangent, 0.0, float(mp.tan(mp.pi / 8) ** 2) * 1.001, 11, "f64"), "(atan(x) / x - 1) / x**2")
    show("ATAN64_SHORT", polynomial(arctangent, 0.0, float(mp.tan(mp.pi / 8) ** 2) * 1.001, 5, "f64"), "the same, for f32")
    arcsine = lambda z: (root(mp.asin)(z) - 1) / z if z > mpf("1e-40") else mpf(1) / 6  # noqa: E731
    show("ASIN64", polynomial(arcsine, 0.0, 0.25, 11, "f64"), "(asin(x) / x - 1) / x**2 of z = x**2")
    show("ASIN64_SHORT", polynomial(arcsine, 0.0, 0.25, 5, "f64"), "the same, for f32")
    show(
        "LN2_32", [*split(mp.log(2), 15, 1), float(rounded(mp.log(2) - mpf(split(mp.log(2), 15, 1)[0]), "f32"))], "ln 2, in parts"
    )
    show("LN2_64", [*split(mp.log(2), 32, 1), float(mp.log(2) - mpf(split(mp.log(2), 32, 1)[0]))])
    show("LN2_DOUBLE", [float(mp.log(2)), float(mp.log(2) - mpf(float(mp.log(2))))])
    half_pi = [float(mp.pi / 2)]
    while len(half_pi) < 3:
        half_pi.append(float(mp.pi / 2 - sum(map(mpf, half_pi))))
    show("HALF_PI", half_pi)
    mp.dps = 400
    show("TWO_OVER_PI_29", digits(2 / mp.pi, 29, 7), "2 / pi in pieces of 29 bits")
    show("TWO_OVER_PI_24", whole_digits(2 / mp.pi, 24, 52), "in pieces of 24 bits, as integers")


if __name__ == "__main__":
    main()
