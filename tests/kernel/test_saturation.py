"""Bytes that are counted in steps of a float, and the instruction that narrows to the nearest byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model_text import model
from native_support import assert_native_agrees
from sardonyx.kernel.expr import Expr, binary, const, load, quotient, unary
from sardonyx.kernel.saturation import counted_steps
from targets import names_here

VALUE = load(0, "f32")
ORIGIN = load(1, "u8")
SPECIAL = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 3.4e38, -3.4e38, 2**31, -(2**31), 2**31 - 128, 2**32, 1e-45]


def counted(most: Any, least: Any, origin: Expr | None, kind: str = "u8") -> Expr:
    bounded = binary("minr", binary("maxr", VALUE, least), most)
    whole = unary("round", bounded).cast("i32")
    return (whole if origin is None else whole + origin.cast("i32")).cast(kind)


def test_steps_between_the_bounds_of_a_byte_are_found() -> None:
    plain = counted_steps(counted(const(255.0, "f32"), const(0.0, "f32"), None))
    assert plain is not None
    assert (plain.value, plain.divisor, plain.origin) == (VALUE, None, None)
    zero = ORIGIN.cast("f32")
    low, high = const(0.0, "f32") - zero, const(255.0, "f32") - zero
    found = counted_steps(counted(high, low, ORIGIN))
    assert found is not None
    assert (found.least, found.origin) == (low, ORIGIN.cast("i32"))
    scale = load(2, "f32")
    steps = unary("round", quotient(VALUE, scale, low, high)).cast("i32") + ORIGIN.cast("i32")
    divided = counted_steps(steps.cast("u8"))
    assert divided is not None
    assert divided.divisor is scale


@pytest.mark.parametrize(
    "node",
    [
        counted(const(254.0, "f32"), const(0.0, "f32"), None),
        counted(const(255.0, "f32"), const(-1.0, "f32"), None),
        counted(const(255.0, "f32"), const(0.0, "f32"), ORIGIN),
        counted(const(255.0, "f32") - load(2, "u8").cast("f32"), const(0.0, "f32") - ORIGIN.cast("f32"), ORIGIN),
        counted(const(255.0, "f32"), const(0.0, "f32"), None, "u16"),
        VALUE.cast("u8"),
        load(0, "i32").cast("u8"),
    ],
)
def test_other_bounds_and_types_are_not(node: Expr) -> None:
    assert counted_steps(node) is None


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["uint8", "int8"]),
    st.integers(0, 255),
    st.sampled_from([2.0**-64, 1e-6, 0.0078125, 0.1, 1.0, 7.3, 2.0**64, 2.0**-70, 3e38]),
    st.booleans(),
    st.sampled_from(names_here()),
    st.integers(0, 1 << 30),
)
def test_floats_of_any_size_become_the_bytes_of_the_definition(
    kind: str, origin: int, scale: float, is_constant: bool, target: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    zero = np.uint8(origin).view(kind)
    exponents = rng.integers(-40, 40, 300)
    x = np.concatenate([np.array(SPECIAL), rng.standard_normal(300) * 2.0**exponents, np.arange(-300, 300) * 0.5 * scale])
    with np.errstate(over="ignore"):
        feeds: dict[str, Any] = {"x": x.astype(np.float32)}
    constants = f"<float s = {{{scale!r}}}, {kind} z = {{{int(zero)}}}>"
    inputs = "float[N] x"
    if not is_constant:
        feeds |= {"s": np.array(scale, np.float32), "z": np.array(zero)}
        inputs, constants = f"float[N] x, float s, {kind} z", ""
    text = f"({inputs}) => ({kind}[N] y) {constants} {{ y = QuantizeLinear(x, s, z) }}"
    with np.errstate(all="ignore"):
        assert_native_agrees(model(text), feeds, target=target)
