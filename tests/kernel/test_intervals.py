"""What is known of floats: never less than what can come out."""

from __future__ import annotations

import math

import pytest

from sardonyx.kernel.expr import Expr, binary, const, load, quotient, unary
from sardonyx.kernel.intervals import interval, is_within, limits

X = load(0, "f32")
BYTE = load(1, "u8").cast("f32")


def bounded(least: Expr, most: Expr) -> Expr:
    return binary("minr", binary("maxr", X, least), most)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (X, None),
        (const(2.5, "f32"), (2.5, 2.5)),
        (const(math.nan, "f32"), None),
        (BYTE, (0.0, 255.0)),
        (load(0, "i32").cast("f32"), None),
        (binary("maxr", X, const(0.0, "f32")), (0.0, math.inf)),
        (binary("maxr", const(0.0, "f32"), X), None),  # NaN on the right comes out
        (bounded(const(-1.5, "f32"), const(7.0, "f32")), (-1.5, 7.0)),
        (unary("round", bounded(const(-1.5, "f32"), const(7.0, "f32"))), (-2.0, 7.0)),
        (bounded(const(0.0, "f32") - BYTE, const(255.0, "f32") - BYTE), (-255.0, 255.0)),
        (quotient(X, load(2, "f32"), const(0.0, "f32"), const(255.0, "f32")), (0.0, 255.0)),
        (binary("maxr", X, const(0.0, "f32")) + const(1.0, "f32"), None),
    ],
)
def test_intervals(value: Expr, expected: tuple[float, float] | None) -> None:
    assert interval(value) == expected


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "i32"])
def test_bounds_of_a_type_are_within_it(kind: str) -> None:
    low, high = limits(kind)
    if kind != "i32":
        assert is_within(bounded(const(low, "f32"), const(high, "f32")), kind)
    assert not is_within(bounded(const(low - 1, "f64").cast("f32"), const(high, "f32")), kind)
    assert not is_within(X, kind)
