"""Scales and zero points: numbers come back to within half a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from sardonyx.quantization import QuantType, arithmetic
from sardonyx.quantization.quant_utils import pack_bytes_to_4bit

INTEGERS = [each for each in QuantType if each is not QuantType.QFLOAT8E4M3FN]
NUMBERS = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=3, max_side=6),
    elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False),
)


@settings(max_examples=60, deadline=None)
@given(data=NUMBERS, kind=st.sampled_from(INTEGERS), symmetric=st.booleans(), reduce_range=st.booleans())
def test_numbers_come_back_to_within_half_a_step(data: Any, kind: QuantType, symmetric: bool, reduce_range: bool) -> None:
    zero, scale, quantized = arithmetic.quantize_data(data, kind, symmetric, reduce_range)
    assert quantized.dtype == zero.dtype == kind.dtype.numpy
    real = arithmetic.dequantize(quantized, zero, scale)
    # The zero point is rounded as well: the outermost numbers may be cut off by half a step more.
    assert np.abs(real - data).max() <= 1.01 * float(scale) + 1e-6


@settings(max_examples=60, deadline=None)
@given(data=NUMBERS, kind=st.sampled_from(INTEGERS), axis=st.integers(0, 1))
def test_channels_are_quantized_as_if_each_were_alone(data: Any, kind: QuantType, axis: int) -> None:
    zero, scale = arithmetic.channel_parameters(data, kind.dtype, axis, True, False, None)
    together = arithmetic.quantize_weight(data, kind.dtype, zero, scale, axis)
    for index in range(data.shape[axis]):
        own_zero, own_scale, alone = arithmetic.quantize_data(data.take(index, axis), kind, True)
        assert (own_zero, own_scale) == (zero[index], scale[index])
        np.testing.assert_array_equal(together.take(index, axis).astype(np.int32), alone.astype(np.int32))


@pytest.mark.parametrize("symmetric", [True, False])
def test_blocks_of_a_matrix(symmetric: bool) -> None:
    data = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
    zero, scale = arithmetic.compute_scale_zp_blocked(data, QuantType.QInt8, 0, 4, symmetric)
    assert zero.shape == scale.shape == (3, 3)
    quantized = arithmetic.quantize_weight(data, QuantType.QInt8.dtype, zero, scale, 0, 4)
    real = arithmetic.dequantize(quantized, zero, scale, 0, 4)
    assert np.all(np.abs(real - data) <= 1.01 * np.repeat(scale, 4, axis=0)[:10])


def test_a_range_that_is_a_point_has_a_scale() -> None:
    zero, scale = arithmetic.compute_scale_zp(np.float32(0), np.float32(0), np.int8(-128), np.int8(127))  # type: ignore[arg-type]
    assert (int(zero), float(scale)) == (0, 1.0)


def test_float_8_never_becomes_nan() -> None:
    data = np.array([-1e6, -1.0, 0.0, 3.0, 1e6], np.float32)
    quantized = arithmetic.quantize_nparray(QuantType.QFLOAT8E4M3FN, data, np.float32(1), np.float32(0))
    assert not np.isnan(quantized.astype(np.float32)).any()
    with pytest.raises(NotImplementedError, match="float8e4m3fn has no range"):
        arithmetic.quantized_range(QuantType.QFLOAT8E4M3FN)


def test_four_bit_elements_are_packed_low_bits_first() -> None:
    assert bytes(pack_bytes_to_4bit(bytes([1, 2, 15]))) == bytes([0x21, 0x0F])
    assert pack_bytes_to_4bit(b"") == bytearray()
