"""Quantization against onnxruntime, the evaluator of onnx, and exact integer arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, by_reference, f32, known_shape, run, seeds

from sardonyx import dtypes
from sardonyx.ops.quant.quant import dequantize, dynamic_parameters, quantize

quick = settings(max_examples=25, deadline=None)
INTEGERS = (np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.int2)
FLOAT8 = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)
SMALL_FLOATS = (ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn)


def granular(rng: np.random.Generator, shape: tuple[int, ...], kind: str, axis: int, block: int) -> tuple[int, ...]:
    """The shape of a scale for one number, one per slice of the axis, or one per block."""
    if kind == "tensor":
        return () if rng.random() < 0.5 else (1,)
    if kind == "axis":
        return (shape[axis],)
    return tuple(-(-size // block) if position == axis else size for position, size in enumerate(shape))


def points(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Array:
    limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    low, high = max(int(limits.min), -20), min(int(limits.max), 20)
    return np.asarray(rng.integers(low, high + 1, shape)).astype(np.int64).astype(dtype)


@quick
@given(seed=seeds, kind=st.sampled_from(("tensor", "axis", "blocked")), dtype=st.sampled_from(INTEGERS), given_zero=st.booleans())
def test_quantizing_to_integers_agrees_with_the_onnx_evaluator(seed: int, kind: str, dtype: Any, given_zero: bool) -> None:
    rng = np.random.default_rng(seed)
    shape, axis, block = (3, int(rng.integers(1, 7)), 2), 1, int(rng.integers(1, 4))
    sizes = granular(rng, shape, kind, axis, block)
    x = (rng.integers(-40, 40, shape) / 4).astype(np.float32)
    scale = (rng.integers(1, 5, sizes) / 2).astype(np.float32)  # quotients are often halfway between two integers
    attrs: dict[str, Any] = {"axis": axis - 3 if rng.random() < 0.5 else axis}
    if kind == "blocked":
        attrs["block_size"] = block
    inputs: list[Any] = [x, np.asarray(scale)]
    if given_zero:
        inputs.append(points(rng, dtype, sizes))
    else:
        attrs["output_dtype"] = dtypes.from_numpy(dtype).onnx
    result = run("QuantizeLinear", *inputs, version=25, **attrs)
    expected = by_reference("QuantizeLinear", *inputs, version=25, **attrs)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.astype(np.int64), expected.astype(np.int64))
    back = [result, inputs[1], *inputs[2:]]
    attrs.pop("output_dtype", None)
    restored = run("DequantizeLinear", *back, version=25, **attrs)
    np.testing.assert_array_equal(restored, by_reference("DequantizeLinear", *back, version=25, **attrs))


@quick
@given(
    seed=seeds, dtype=st.sampled_from((np.uint8, np.int8, np.uint16, np.int16)), source=st.sampled_from((np.float32, np.float16)),
    kind=st.sampled_from(("tensor", "axis")),
)  # fmt: skip
def test_quantizing_agrees_with_onnxruntime(seed: int, dtype: Any, source: Any, kind: str) -> None:
    rng = np.random.default_rng(seed)
    shape = (2, 5, 3)
    sizes = granular(rng, shape, kind, 1, 1)
    x = (rng.normal(size=shape) * 40).astype(source)
    scale = np.asarray(rng.random(sizes) + 0.05).astype(source)
    zero = points(rng, dtype, sizes)
    result = run("QuantizeLinear", x, scale, zero, version=21)
    (expected,) = by_onnxruntime("QuantizeLinear", x, scale, zero, like=[result], version=21)
    np.testing.assert_array_equal(result, expected)
    restored = run("DequantizeLinear", result, scale, zero, version=21)
    (expected,) = by_onnxruntime("DequantizeLinear", result, scale, zero, like=[restored], version=21)
    np.testing.assert_array_equal(restored, expected)


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8_saturates_or_overflows(dtype: Any, saturate: int) -> None:
    x = np.array([0.0, 1.7, -300.0, 1e6, -1e6, np.nan, np.inf], np.float32)
    scale, zero = np.asarray(np.float32(2)), np.zeros((), dtype)
    result = run("QuantizeLinear", x, scale, zero, version=19, saturate=saturate).astype(np.float32)
    expected = by_reference("QuantizeLinear", x, scale, zero, version=19, saturate=saturate).astype(np.float32)
    np.testing.assert_array_equal(result, expected)
    largest = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    assert (result[3] == largest) == bool(saturate)


@pytest.mark.parametrize("dtype", SMALL_FLOATS)
def test_small_floats_always_saturate(dtype: Any) -> None:
    x = np.linspace(-40, 40, 33, dtype=np.float32)
    scale, zero = np.asarray(np.float32(0.5)), np.zeros((), dtype)
    result = run("QuantizeLinear", x, scale, zero, version=28)
    np.testing.assert_array_equal(result.astype(np.float32), (x / np.float32(0.5)).astype(dtype).astype(np.float32))
    np.testing.assert_array_equal(run("DequantizeLinear", result, scale, version=28), result.astype(np.float32) / 2)


def test_infinite_and_missing_numbers_become_limits() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 5.0], np.float32)
    assert run("QuantizeLinear", x, np.asarray(np.float32(1)), np.asarray(np.int8(3))).tolist() == [127, -128, -128, 8]
    assert run("QuantizeLinear", x, np.asarray(np.float32(0))).tolist() == [255, 0, 0, 255]


def test_precision_says_in_which_type_to_divide() -> None:
    x, scale = np.array([2049.0], np.float32), np.asarray(np.float32(2))
    exact = run("QuantizeLinear", x, scale, np.asarray(np.int16(0)), version=23)
    rounded = run("QuantizeLinear", x, scale, np.asarray(np.int16(0)), version=23, precision=dtypes.BFLOAT16.onnx)
    assert (exact.tolist(), rounded.tolist()) == ([1024], [1024])
    x = np.array([1001.0], np.float32)
    assert run("QuantizeLinear", x, scale, np.asarray(np.int16(0)), version=23, precision=dtypes.BFLOAT16.onnx).tolist() == [500]


def test_output_dtype_of_dequantize_wins_over_the_scale() -> None:
    x, scale = np.array([3, 200], np.uint8), np.asarray(np.float32(0.5))
    result = run("DequantizeLinear", x, scale, version=23, output_dtype=dtypes.FLOAT16.onnx)
    assert (result.dtype, result.tolist()) == (np.float16, [1.5, 100.0])


def test_power_of_two_scales() -> None:
    x = np.array([[1.0, 2.0], [6.0, 8.0]], np.float32)
    scale = np.array([2.0, 4.0]).astype(ml_dtypes.float8_e8m0fnu)
    result = run("QuantizeLinear", x, scale, axis=0, output_dtype=dtypes.INT8.onnx, version=24)
    assert result.tolist() == [[0, 1], [2, 2]]
    assert run("DequantizeLinear", result, scale, axis=0, output_dtype=1, version=24).tolist() == [[0, 2], [8, 8]]


def test_int32_dequantizes_without_losing_digits_before_the_product() -> None:
    x, zero = np.array([2**30 + 1, -(2**31)], np.int32), np.array(2**30, np.int32)
    assert run("DequantizeLinear", x, np.asarray(np.float32(1)), zero, version=13).tolist() == [1.0, float(-(2**31) - 2**30)]


def test_a_scalar_tensor_with_a_scale_of_one_element_stays_a_scalar() -> None:
    assert run("QuantizeLinear", np.asarray(np.float32(3)), np.array([2.0], np.float32)).shape == ()


@pytest.mark.parametrize(
    ("version", "inputs", "attrs", "message"),
    [
        (10, [np.zeros(2), np.ones(2)], {}, r"the scale has shape \(2,\); before opset 13 it must be a scalar"),
        (13, [np.zeros((2, 3)), np.ones(2)], {}, r"the scale has 2 elements but axis 1 of the tensor \(2, 3\) has 3"),
        (13, [np.zeros((2, 3)), np.ones((2, 3))], {}, r"without block_size it must be a scalar or have one axis"),
        (21, [np.zeros((2, 3)), np.ones((2, 3))], {"block_size": 2}, r"the scale has shape \(2, 3\), expected \(2, 2\)"),
        (
            21,
            [np.zeros(2), np.ones(()), np.zeros((), np.int8)],
            {"output_dtype": 2},
            "the output type is u8 but the zero point is i8",
        ),
        (21, [np.zeros((2, 2)), np.ones(2), np.zeros((), np.int8)], {}, r"the zero point has shape \(\) but the scale \(2,\)"),
        (21, [np.zeros(2), np.ones(())], {"output_dtype": 9}, "cannot quantize to bool; possible are i8, u8"),
        (13, [np.zeros((2, 3)), np.ones(2)], {"axis": 5}, "axis 5 is out of range for rank 2"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(version: int, inputs: list[Any], attrs: dict[str, Any], message: str) -> None:
    floats = [array.astype(np.float32) if array.dtype == np.float64 else array for array in inputs]
    with pytest.raises(ValueError, match=message):
        run("QuantizeLinear", *floats, version=version, **attrs)


def test_dequantize_wants_a_zero_point_of_its_own_type() -> None:
    with pytest.raises(ValueError, match="the zero point is i8 but the tensor is u8: they must agree"):
        run("DequantizeLinear", np.zeros(2, np.uint8), np.ones((), np.float32), np.zeros((), np.int8))


def test_shape_rules_find_scales_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="the scale has 4 elements but axis 1 of the tensor has 3"):
        known_shape("QuantizeLinear", [f32("N", 3), f32(4)], version=13)
    with pytest.raises(ValueError, match="the zero point has 3 elements where the scale has 2"):
        known_shape("QuantizeLinear", [f32("N", 2), f32(2), np.zeros(3, np.uint8)], version=13)
    assert str(known_shape("QuantizeLinear", [f32("N", 3), f32()], output_dtype=22)) == "i4[N,3]"


@quick
@given(seed=seeds, shape=st.lists(st.integers(0, 5), max_size=3))
def test_dynamic_quantization_agrees_with_onnxruntime(seed: int, shape: list[int]) -> None:
    rng = np.random.default_rng(seed)
    x = np.asarray(rng.normal(rng.normal() * 3, 2, shape)).astype(np.float32)
    results = run("DynamicQuantizeLinear", x, outputs=3, version=11)
    if x.size:
        for result, expected in zip(results, by_onnxruntime("DynamicQuantizeLinear", x, like=results, version=11), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_dynamic_quantization_of_nothing_or_zeros_has_scale_1() -> None:
    for x in (np.zeros(3, np.float32), np.empty(0, np.float32)):
        y, scale, zero = run("DynamicQuantizeLinear", x, outputs=3, version=11)
        assert (y.tolist(), scale.tolist(), zero.tolist()) == ([0] * x.size, 1.0, 0)


def test_dynamic_parameters_of_signed_bytes_hold_the_range() -> None:
    x = np.array([-1.0, 3.0], np.float32)
    scale, zero = dynamic_parameters(x, dtypes.INT8)
    np.testing.assert_allclose(dequantize(quantize(x, scale, zero), scale, zero), x, atol=float(scale) / 2)


EIGHT_BITS = (np.uint8, np.int8)


def whole_range(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    limits = np.iinfo(dtype)
    return np.asarray(rng.integers(limits.min, limits.max + 1, shape)).astype(dtype)


@quick
@given(
    seed=seeds, a_dtype=st.sampled_from(EIGHT_BITS), b_dtype=st.sampled_from(EIGHT_BITS), per=st.booleans(),
    batch=st.sampled_from(((), (2,), (3, 1))), points_given=st.booleans(),
)  # fmt: skip
def test_integer_products_are_exact(
    seed: int, a_dtype: Any, b_dtype: Any, per: bool, batch: tuple[int, ...], points_given: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows, inner, columns = (int(size) for size in rng.integers(1, 6, 3))
    a, b = whole_range(rng, a_dtype, *batch, rows, inner), whole_range(rng, b_dtype, inner, columns)
    a_zero = whole_range(rng, a_dtype, *((rows,) if per else ())) if points_given else None
    b_zero = whole_range(rng, b_dtype, *((columns,) if per else ())) if points_given else None
    result = run("MatMulInteger", *(array for array in (a, b, a_zero, b_zero) if array is not None), version=10)
    left = a.astype(np.int64) - (0 if a_zero is None else a_zero.astype(np.int64).reshape(-1, 1))
    right = b.astype(np.int64) - (0 if b_zero is None else b_zero.astype(np.int64))
    np.testing.assert_array_equal(result, (left @ right).astype(np.int32))


def test_integer_products_of_vectors_are_shaped_like_matmul() -> None:
    a, b = np.array([1, 2], np.uint8), np.array([[3, 4], [5, 6]], np.int8)
    assert run("MatMulInteger", a, b, version=10).tolist() == [13, 16]
    assert run("MatMulInteger", a, a, version=10).tolist() == 5


@quick
@given(
    seed=seeds, a_dtype=st.sampled_from(EIGHT_BITS), rank=st.integers(2, 3), scales=st.sampled_from((np.float32, np.float16)),
    y_dtype=st.sampled_from(EIGHT_BITS),
)  # fmt: skip
def test_quantized_products_follow_the_formula(seed: int, a_dtype: Any, rank: int, scales: Any, y_dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    a, b = whole_range(rng, a_dtype, *(2, 3, 4)[3 - rank :]), whole_range(rng, np.int8, 4, 3)
    a_scale, b_scale, y_scale = (np.asarray(scales(value)) for value in rng.random(3) + 0.1)
    y_scale = y_scale * scales(400)
    zeros = whole_range(rng, a_dtype), whole_range(rng, np.int8), whole_range(rng, y_dtype)
    y_scale = np.asarray(y_scale)
    result = run("QLinearMatMul", a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zeros[2], version=21)
    product = (a.astype(np.int64) - int(zeros[0])) @ (b.astype(np.int64) - int(zeros[1]))
    factor = np.float32(a_scale) * np.float32(b_scale) / np.float32(y_scale)
    limits = np.iinfo(y_dtype)
    expected = np.clip(np.rint(product.astype(np.float32) * factor) + int(zeros[2]), limits.min, limits.max)
    np.testing.assert_array_equal(result, expected.astype(y_dtype))
    if scales is np.float32 and a_dtype is np.int8 and y_dtype is np.int8:
        inputs = a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zeros[2]
        theirs = by_onnxruntime("QLinearMatMul", *inputs, like=[result], version=21)[0]
        assert np.abs(result.astype(int) - theirs.astype(int)).max() <= 1


def test_quantized_products_scale_rows_and_columns() -> None:
    a, b = np.array([[1, 2], [3, 4]], np.uint8), np.array([[1, 0], [0, 1]], np.uint8)
    no = np.zeros(2, np.uint8)
    scales = np.array([1.0, 10.0], np.float32), np.array([1.0, 2.0], np.float32)
    one, zero = np.asarray(np.float32(1)), np.asarray(np.uint8(0))
    assert run("QLinearMatMul", a, scales[0], no, b, scales[1], no, one, zero, version=10).tolist() == [[1, 4], [30, 80]]
    assert run("QLinearMatMul", a, scales[0], no, b[0], one, zero, one, zero, version=10).tolist() == [1, 30]


def test_products_of_float8() -> None:
    e4m3 = ml_dtypes.float8_e4m3fn
    a, b = np.array([[1.5, 2]], e4m3), np.array([[4], [0.5]], e4m3)
    one, zero = np.asarray(np.float32(1)), np.zeros((), e4m3)
    result = run("QLinearMatMul", a, one, zero, b, one, zero, one, zero, version=21)
    assert (result.dtype, result.astype(np.float32).tolist()) == (np.dtype(e4m3), [[7.0]])


@quick
@given(
    seed=seeds, x_dtype=st.sampled_from(EIGHT_BITS), w_dtype=st.sampled_from(EIGHT_BITS), per=st.booleans(),
    group=st.sampled_from((1, 2)), pad=st.integers(0, 1),
)  # fmt: skip
def test_quantized_convolutions_follow_the_formula(
    seed: int, x_dtype: Any, w_dtype: Any, per: bool, group: int, pad: int
) -> None:
    rng = np.random.default_rng(seed)
    x, w = whole_range(rng, x_dtype, 1, 2, 4, 5), whole_range(rng, w_dtype, 4, 2 // group, 2, 3)
    x_zero, w_zero = whole_range(rng, x_dtype), whole_range(rng, w_dtype, *((4,) if per else ()))
    attrs: dict[str, Any] = {"group": group, "pads": (pad,) * 4, "strides": (1, 2)}
    total = run("ConvInteger", x, w, x_zero, w_zero, version=10, **attrs)
    padded = np.pad(x.astype(np.int64) - int(x_zero), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kernels = w.astype(np.int64) - w_zero.astype(np.int64).reshape(-1, 1, 1, 1)
    expected = np.zeros(total.shape, np.int64)
    for (n, m, i, j), _ in np.ndenumerate(expected):
        first = m // (4 // group) * (2 // group)
        expected[n, m, i, j] = (padded[n, first : first + 2 // group, i : i + 2, 2 * j : 2 * j + 3] * kernels[m]).sum()
    np.testing.assert_array_equal(total, expected)
    x_scale, y_scale, y_zero = np.asarray(np.float32(0.02)), np.asarray(np.float32(5)), np.asarray(np.uint8(100))
    w_scale = (rng.random(4 if per else ()) + 0.1).astype(np.float32) if per else np.asarray(np.float32(0.3))
    bias = rng.integers(-1000, 1000, 4).astype(np.int32)
    result = run("QLinearConv", x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias, version=10, **attrs)
    factor = (x_scale * w_scale / y_scale).reshape(-1, 1, 1)
    real = np.rint((expected + bias.reshape(-1, 1, 1)).astype(np.float32) * factor) + 100
    np.testing.assert_array_equal(result, np.clip(real, 0, 255).astype(np.uint8))
