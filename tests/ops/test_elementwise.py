"""Arithmetic, comparison, logic and selection against NumPy, Python and onnxruntime."""

from __future__ import annotations

import operator
from fractions import Fraction
from math import trunc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    broadcast_partner,
    by_onnxruntime,
    by_reference,
    close,
    f32,
    known_shape,
    random_array,
    run,
    seeds,
    shapes,
    text,
)  # fmt: skip

from sardonyx.ir.dims import symbol

quick = settings(max_examples=25, deadline=None)
numeric = st.sampled_from((*FLOATS, *SIGNED, *UNSIGNED))


@pytest.mark.parametrize(("name", "function"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)])
@quick
@given(shape=shapes, seed=seeds, dtype=numeric)
def test_arithmetic_broadcasts_and_keeps_the_type(
    name: str, function: Any, shape: tuple[int, ...], seed: int, dtype: Any
) -> None:
    a, b = random_array(seed, shape, dtype), random_array(seed + 1, broadcast_partner(seed, shape), dtype)
    with np.errstate(all="ignore"):
        expected = np.asarray(function(a, b))
    close(run(name, a, b), expected, ulps=0)
    close(run(name, b, a), np.asarray(run(name, b, a)), ulps=0)


@quick
@given(shape=shapes, seed=seeds, dtype=st.sampled_from((*SIGNED, *UNSIGNED)))
def test_integer_division_truncates_towards_zero(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    a, b = random_array(seed, shape, dtype), random_array(seed + 1, broadcast_partner(seed, shape), dtype)
    wide, divisor = np.broadcast_arrays(a, b)
    expected = [trunc(Fraction(int(x), int(y))) if y else 0 for x, y in zip(wide.flat, divisor.flat, strict=True)]
    assert run("Div", a, b).reshape(-1).tolist() == expected


def test_the_lowest_integer_divided_by_minus_one_wraps() -> None:
    assert run("Div", np.array([-128], np.int8), np.array([-1], np.int8)).tolist() == [-128]


def test_float_division_by_zero_gives_infinity_or_nan() -> None:
    result = run("Div", np.array([1, -1, 0], np.float32), np.zeros(3, np.float32))
    np.testing.assert_array_equal(result, np.array([np.inf, -np.inf, np.nan], np.float32))


@pytest.mark.parametrize("fmod", [0, 1])
@quick
@given(shape=shapes, seed=seeds, dtype=numeric)
def test_mod_has_the_sign_of_the_divisor_or_of_the_dividend(fmod: int, shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    a, b = random_array(seed, shape, dtype), random_array(seed + 1, shape, dtype)
    wide = np.float64 if np.dtype(dtype).kind not in "iu" else np.int64
    with np.errstate(all="ignore"):
        expected = np.asarray((np.fmod if fmod else np.mod)(a.astype(wide), b.astype(wide))).astype(dtype)
    close(run("Mod", a, b, fmod=fmod), expected)


def test_mod_refuses_an_fmod_that_is_neither_zero_nor_one() -> None:
    with pytest.raises(ValueError, match="fmod is 2: expected 0 or 1"):
        run("Mod", np.ones(1, np.int32), np.ones(1, np.int32), fmod=2)


@pytest.mark.parametrize("exponent", [np.float32, np.float64, np.int32, np.int64, np.uint8, np.float16])
@pytest.mark.parametrize("base", [np.float32, np.float64, np.int32, np.int64, np.float16, ml_dtypes.bfloat16])
def test_pow_gives_the_type_of_the_base(base: Any, exponent: Any) -> None:
    x, y = np.array([1, 2, 3, 5]).astype(base), np.array([[0], [1], [3]]).astype(exponent)
    close(run("Pow", x, y), (np.array([1, 2, 3, 5]) ** np.array([[0], [1], [3]])).astype(base), ulps=1)


def test_an_integer_to_a_negative_power_truncates() -> None:
    x = np.array([2, 1, -1, -1, 0], np.int32)
    assert run("Pow", x, np.array([-1, -3, -3, -2, -1], np.int64)).tolist() == [0, 1, -1, 1, 0]


def test_large_integer_powers_are_exact() -> None:
    assert run("Pow", np.array([3], np.int64), np.array([39], np.int64)).tolist() == [3**39]


COMPARISONS = {
    "Equal": operator.eq, "Less": operator.lt, "Greater": operator.gt, "LessOrEqual": operator.le, "GreaterOrEqual": operator.ge,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
@quick
@given(shape=shapes, seed=seeds, dtype=numeric)
def test_comparisons_give_bools(name: str, shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    a, b = random_array(seed, shape, dtype), random_array(seed + 1, broadcast_partner(seed, shape), dtype)
    wide, other = np.broadcast_arrays(a, b)
    expected = [bool(COMPARISONS[name](x, y)) for x, y in zip(wide.flat, other.flat, strict=True)]
    assert run(name, a, b).reshape(-1).tolist() == expected


def test_equal_compares_strings_and_bools() -> None:
    assert run("Equal", text("a", "b"), text("a")).tolist() == [True, False]
    assert run("Equal", np.array([True, False]), np.array([True, True])).tolist() == [True, False]


@pytest.mark.parametrize(("name", "function"), [("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)])
@quick
@given(shape=shapes, seed=seeds)
def test_logic_broadcasts(name: str, function: Any, shape: tuple[int, ...], seed: int) -> None:
    a, b = random_array(seed, shape, np.bool_), random_array(seed + 1, broadcast_partner(seed, shape), np.bool_)
    close(run(name, a, b), np.asarray(function(a, b)))
    close(run("Not", a), np.asarray(~a))


@pytest.mark.parametrize(
    ("name", "function"), [("BitwiseAnd", operator.and_), ("BitwiseOr", operator.or_), ("BitwiseXor", operator.xor)]
)
@quick
@given(shape=shapes, seed=seeds, dtype=st.sampled_from((*SIGNED, *UNSIGNED)))
def test_bitwise_operators(name: str, function: Any, shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    a, b = random_array(seed, shape, dtype), random_array(seed + 1, broadcast_partner(seed, shape), dtype)
    close(run(name, a, b), np.asarray(function(a, b)))
    close(run("BitwiseNot", a), np.asarray(~a))


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
def test_a_shift_by_too_much_leaves_the_sign(dtype: Any) -> None:
    bits = np.dtype(dtype).itemsize * 8
    x = np.array([1, 3, 100]).astype(dtype)
    assert (
        run("BitShift", x, np.array([1, 1, 2]).astype(dtype), direction="LEFT").tolist()
        == np.array([2, 6, 400]).astype(dtype).tolist()
    )
    assert run("BitShift", x, np.array(bits).astype(dtype), direction="LEFT").tolist() == [0, 0, 0]
    assert run("BitShift", x, np.array(bits).astype(dtype), direction="RIGHT").tolist() == [0, 0, 0]
    if dtype in SIGNED:
        shifted = run("BitShift", np.array([-5, -5, 5], dtype), np.array([-1, 1, -1], dtype), direction="RIGHT")
        assert shifted.tolist() == [-1, -3, 0]


def test_a_shift_refuses_an_unknown_direction() -> None:
    with pytest.raises(ValueError, match="direction is 'UP': expected 'LEFT' or 'RIGHT'"):
        run("BitShift", np.ones(1, np.uint8), np.ones(1, np.uint8), direction="UP")


@pytest.mark.parametrize(("name", "function"), [("Max", np.maximum), ("Min", np.minimum)])
@quick
@given(shape=shapes, seed=seeds, dtype=numeric, count=st.integers(1, 4))
def test_extrema_of_many_inputs_propagate_nan(
    name: str, function: Any, shape: tuple[int, ...], seed: int, dtype: Any, count: int
) -> None:
    inputs = [random_array(seed + i, broadcast_partner(seed + i, shape), dtype) for i in range(count)]
    expected = inputs[0].astype(np.float64)
    for other in inputs[1:]:
        expected = function(expected, other.astype(np.float64))
    close(run(name, *inputs), np.asarray(expected).astype(dtype), ulps=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_and_mean_take_any_number_of_inputs(dtype: Any) -> None:
    inputs = [random_array(seed, (3, 4), dtype, special=False) for seed in range(5)]
    total = sum(array.astype(np.float64) for array in inputs)
    close(run("Sum", *inputs), np.asarray(total).astype(dtype), ulps=16)
    close(run("Mean", *inputs), np.asarray(total / 5).astype(dtype), ulps=16)


def test_many_small_halves_add_up() -> None:
    inputs = [np.array([2048], np.float16)] + [np.array([0.5], np.float16)] * 8
    assert run("Sum", *inputs).tolist() == [2052]


def test_before_opset_eight_variadic_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"input 1 is \(1,\) but input 0 is \(2,\): before opset 8 they must agree"):
        run("Max", np.zeros(2, np.float32), np.zeros(1, np.float32), version=6)


@quick
@given(shape=shapes, seed=seeds, dtype=st.sampled_from((np.float32, np.float64, np.int8, np.uint8, np.int64, np.float16)))
def test_clip_takes_any_combination_of_bounds(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x, low, high = random_array(seed, shape, dtype), np.array(2).astype(dtype), np.array(9).astype(dtype)
    for bounds in ((), (low,), (None, high), (low, high), (high, low)):
        close(run("Clip", x, *bounds), by_onnxruntime("Clip", x, *bounds, like=[x])[0])


def test_clip_before_opset_eleven_has_its_bounds_in_attributes() -> None:
    x = np.array([-5, 0.5, np.nan, 7], np.float32)
    np.testing.assert_array_equal(run("Clip", x, version=6, min=-1.0, max=1.0), np.array([-1, 0.5, np.nan, 1], np.float32))
    np.testing.assert_array_equal(run("Clip", x, version=1, max=1.0), np.array([-5, 0.5, np.nan, 1], np.float32))
    np.testing.assert_array_equal(run("Clip", x, version=6), x)


def test_clip_refuses_bounds_with_a_shape() -> None:
    with pytest.raises(ValueError, match=r"max has shape \(2,\): expected a scalar"):
        run("Clip", np.zeros(2, np.float32), None, np.zeros(2, np.float32))


@quick
@given(shape=shapes, seed=seeds, dtype=st.sampled_from((*FLOATS, np.int64, np.bool_, object, np.complex64)))
def test_where_chooses_elements_of_any_type(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    condition = random_array(seed, broadcast_partner(seed, shape), np.bool_)
    x = random_array(seed + 1, shape, np.float32 if dtype is np.complex64 else dtype, special=False).astype(dtype)
    y = random_array(
        seed + 2, broadcast_partner(seed + 2, shape), np.float32 if dtype is np.complex64 else dtype, special=False
    ).astype(dtype)
    flags, wide, other = np.broadcast_arrays(condition, x, y)
    result = run("Where", condition, x, y)
    assert result.reshape(-1).tolist() == [
        p if c else q for c, p, q in zip(flags.flat, wide.reshape(-1).tolist(), other.reshape(-1).tolist(), strict=True)
    ]


@pytest.mark.parametrize("dtype", [*FLOATS, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn])
def test_nan_and_infinity_are_found(dtype: Any) -> None:
    x = np.array([1, np.nan, np.inf, -np.inf]).astype(dtype)
    has_infinity = dtype is not ml_dtypes.float8_e4m3fn
    assert run("IsNaN", x).tolist() == [False, True, not has_infinity, not has_infinity]
    assert run("IsInf", x).tolist() == [False, False, has_infinity, has_infinity]
    assert run("IsInf", x, detect_negative=0).tolist() == [False, False, has_infinity, False]
    assert run("IsInf", x, detect_positive=0).tolist() == [False, False, False, has_infinity]


@quick
@given(shape=shapes, seed=seeds, dtype=st.sampled_from((*FLOATS, np.int32, np.uint64)))
def test_prelu_scales_what_is_negative(shape: tuple[int, ...], seed: int, dtype: Any) -> None:
    x, slope = random_array(seed, shape, dtype), random_array(seed + 1, broadcast_partner(seed, shape), dtype)
    wide = slope.astype(np.float64)
    with np.errstate(all="ignore"):
        expected = np.where(x.astype(np.float64) < 0, x.astype(np.float64) * wide, x.astype(np.float64))
        close(run("PRelu", x, slope), np.asarray(expected).astype(dtype))


def test_prelu_before_opset_seven_has_a_slope_for_each_channel() -> None:
    x = -np.ones((1, 2, 2), np.float32)
    assert run("PRelu", x, np.array([2, 3], np.float32), version=6).tolist() == [[[-2, -2], [-3, -3]]]
    assert run("PRelu", x, np.array([4], np.float32), version=6).tolist() == [[[-4, -4], [-4, -4]]]
    with pytest.raises(ValueError, match=r"slope has 3 elements: expected 1, or 2 for the channels of shape \(1, 2, 2\)"):
        run("PRelu", x, np.zeros(3, np.float32), version=6)


def test_before_opset_seven_the_second_input_lines_up_at_an_axis() -> None:
    a, b = np.zeros((2, 3, 4), np.float32), np.arange(3, dtype=np.float32)
    result = run("Add", a, b, version=6, broadcast=1, axis=1)
    np.testing.assert_array_equal(result, np.broadcast_to(b[:, None], (2, 3, 4)))
    np.testing.assert_array_equal(run("Mul", a + 1, np.arange(4, dtype=np.float32), version=1, broadcast=1)[0, 0], [0, 1, 2, 3])
    assert run("Greater", a, b, version=1, broadcast=1, axis=-2).shape == a.shape


def test_before_opset_seven_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1,\) differ, and broadcast is 0"):
        run("Add", np.zeros(2, np.float32), np.zeros(1, np.float32), version=6)
    with pytest.raises(ValueError, match=r"shape \(2, 2\) does not fit into shape \(2, 2\) from axis 1 on"):
        run("Add", np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32), version=6, broadcast=1, axis=1)


def test_identity_passes_everything_on() -> None:
    for value in (np.arange(3), [np.zeros(2)], None):
        from sardonyx.ops import registry

        definition = registry.lookup("", "Identity", 21)
        assert definition is not None
        assert registry.call(definition, [value], {}, registry.EvalContext(21, (True,)))[0] is value


def test_broadcasting_is_symbolic() -> None:
    n = symbol("N")
    assert known_shape("Add", [f32("N", 1, 3), f32(4, 1)]) == (n, 4, 3)
    assert known_shape("Where", [f32("N"), f32(1), f32()]) == (n,)
    with pytest.raises(ValueError, match="dimensions 2 and 3 do not broadcast"):
        known_shape("Add", [f32(2), f32(3)])


@quick
@given(shape=shapes, seed=seeds)
def test_the_reference_agrees_about_pow_and_mod(shape: tuple[int, ...], seed: int) -> None:
    a, b = random_array(seed, shape, np.float32, special=False), random_array(seed + 1, shape, np.float32, special=False)
    close(run("Mod", a, b, fmod=1), np.asarray(by_reference("Mod", a, b, fmod=1)))
    close(run("Pow", np.abs(a), b), np.asarray(by_reference("Pow", np.abs(a), b)).astype(np.float32))
