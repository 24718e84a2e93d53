"""Conversions between all native types, natively against their NumPy meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from lowering_case import BOOL, F16, F32, F64, FLOATS, INTEGERS, check_one, onnx_type, samples

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
