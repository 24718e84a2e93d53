"""Between which numbers an expression of floats is known to lie, whatever it is computed from."""

from __future__ import annotations

import math
from typing import TypeAlias

from sardonyx.kernel.expr import BITS, FLOATS, INTEGERS, SIGNED, Expr

Interval: TypeAlias = tuple[float, float]

_SHORT = tuple(kind for kind in INTEGERS if BITS[kind] <= 16)


def limits(kind: str) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    return (-(1 << (BITS[kind] - 1)), (1 << (BITS[kind] - 1)) - 1) if kind in SIGNED else (0, (1 << BITS[kind]) - 1)


def is_within(x: Expr, kind: str) -> bool:
    """Whether a float is known to be a number, and one between the limits of an integer type."""
    known = interval(x)
    low, high = limits(kind)
    return known is not None and low <= known[0] and known[1] <= high


def interval(x: Expr) -> Interval | None:
    """The bounds of a float, infinite where there is none; None if it may be NaN, or nothing is known."""
    if x.type not in FLOATS:
        return None
    if x.op == "const":
        return None if math.isnan(x.param) else (x.param, x.param)
    if x.op == "cast" and x.args[0].type in _SHORT:
        low, high = limits(x.args[0].type)
        return float(low), float(high)
    if x.op == "round":
        inner = interval(x.args[0])
        return None if inner is None else (_rounded(inner[0]), _rounded(inner[1]))
    if x.op in ("add", "sub"):
        return _sum(interval(x.args[0]), interval(x.args[1]), 1 if x.op == "add" else -1)
    if x.op in ("minr", "maxr"):
        return _extreme(x.op, interval(x.args[0]), interval(x.args[1]))
    if x.op == "quotient":
        least, most = interval(x.args[2]), interval(x.args[3])
        return None if least is None or most is None else (least[0], most[1])
    return None


def _rounded(bound: float) -> float:
    return float(round(bound)) if math.isfinite(bound) else bound


def _sum(a: Interval | None, b: Interval | None, sign: int) -> Interval | None:
    if a is None or b is None or not all(map(math.isfinite, (*a, *b))):
        return None
    other = b if sign > 0 else (-b[1], -b[0])
    low, high = a[0] + other[0], a[1] + other[1]
    # Bounds are whole numbers here; beyond 2**24 a sum in float32 may be rounded past them.
    return (low, high) if max(abs(low), abs(high)) <= 1 << 24 else None


def _extreme(op: str, a: Interval | None, b: Interval | None) -> Interval | None:
    """Of the machine's own minimum or maximum, which is the right operand if either is NaN."""
    if b is None:
        return None
    low, high = a or (-math.inf, math.inf)
    if op == "minr":
        return min(low, b[0]), min(high, b[1]) if a is not None else b[1]
    return max(low, b[0]) if a is not None else b[0], max(high, b[1])
