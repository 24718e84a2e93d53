"""Conversions between all native types, natively against their NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from lowering_case import BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, Array, check_one, model, onnx_type, samples
from property_support import SEEDS, any_bits, assert_guarded_agrees, between, shapes

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TYPES = (*FLOATS, *INTEGERS, BOOL)


@pytest.mark.parametrize("target", TYPES, ids=str)
@pytest.mark.parametrize("source", TYPES, ids=str)
def test_a_cast_between_native_types(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    x = samples(source, (3, 45))
    if source in FLOATS and target == np.uint32:
        x = np.where(np.isfinite(x.astype(np.float64)), x, np.array(0, source))  # what others become differs within NumPy itself
    check_one("Cast", x, out=target, to=onnx_type(target))


@pytest.mark.parametrize("target", [dtype for dtype in INTEGERS if dtype != np.uint32], ids=str)
@pytest.mark.parametrize("source", [F32, F64], ids=str)
def test_a_float_that_does_not_fit_an_integer_converts_as_the_processor_does(
    source: np.dtype[Any], target: np.dtype[Any]
) -> None:
    powers = 2.0 ** np.arange(5, 66)
    x = np.concatenate([powers, -powers, powers - 1.5, -powers - 0.5, [1e30, -1e30, np.nan, np.inf, -np.inf]]).astype(source)
    check_one("Cast", x, out=target, to=onnx_type(target))


def test_cast_like_takes_the_type_of_a_tensor_of_any_shape() -> None:
    check_one("CastLike", samples(F32, (4, 5)), np.zeros((7, 2, 3), np.float16), out=np.float16)


def test_a_bit_cast_keeps_the_bits() -> None:
    x = samples(F32, (33,))
    check_one("BitCast", x, out=np.int32, to=onnx_type(np.int32), opset=26)
    check_one("BitCast", samples(np.int64, (9,)), out=np.float64, to=onnx_type(np.float64), opset=26)


def test_rounding_to_half_precision_goes_to_the_nearest_even() -> None:
    x = np.array([1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 2**-25, 1.5 * 2**-24, -(2**-24)], np.float32)
    check_one("Cast", x, out=F16, to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float16)))


def check_exactly(x: Array, target: np.dtype[Any], symbolic: bool) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=onnx_type(target))
    assert_guarded_agrees(model([node], {"x": x}, {"y": target}, symbolic=symbolic), {"x": x})


@given(shapes(), st.sampled_from(TYPES), st.sampled_from(TYPES), SEEDS, st.booleans())
@settings(max_examples=80, deadline=None)
def test_any_element_of_any_shape_casts_exactly(
    shape: tuple[int, ...], source: np.dtype[Any], target: np.dtype[Any], seed: int, symbolic: bool
) -> None:
    x = any_bits(source, shape, seed)
    if source in FLOATS and target in INTEGERS:  # what does not fit has tests of its own
        limits, wide = np.iinfo(target), x.astype(np.float64)
        x = np.where((wide >= float(limits.min)) & (wide < float(limits.max)), x, np.array(1.5, source))
    check_exactly(x, target, symbolic)


@given(shapes(1), st.sampled_from(((F32, F16), (F32, BF16), (F64, F32), (F64, F16))), SEEDS)
@settings(max_examples=30, deadline=None)
def test_numbers_halfway_between_two_results_are_rounded_once_and_to_even(
    shape: tuple[int, ...], types: tuple[np.dtype[Any], np.dtype[Any]], seed: int
) -> None:
    source, target = types
    check_exactly(between(target, source, shape, seed), target, False)


@given(shapes(1), st.sampled_from([dtype for dtype in INTEGERS if dtype.itemsize > 1]), st.sampled_from(FLOATS), SEEDS)
@settings(max_examples=30, deadline=None)
def test_integers_of_every_length_become_the_nearest_float(
    shape: tuple[int, ...], source: np.dtype[Any], target: np.dtype[Any], seed: int
) -> None:
    bits = 8 * source.itemsize
    shifts = np.random.default_rng(seed).integers(0, bits, shape).astype(source)
    check_exactly(np.asarray(any_bits(source, shape, seed) >> shifts), target, False)


@pytest.mark.parametrize("exact", [42032.0, -(2.0**-25), 65520.0, 1 + 2**-11], ids=str)
def test_a_double_is_rounded_to_half_precision_once(exact: float) -> None:
    """Rounded to float32 first, what lies right beside the middle of two results would seem to lie there."""
    x = np.array([np.nextafter(exact, 0), exact, np.nextafter(exact, exact * 2), -np.nextafter(exact, 0), 5e-324, 1e300])
    check_exactly(x, F16, False)
