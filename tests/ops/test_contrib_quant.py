"""Quantized operators of com.microsoft against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from contrib_oracle import check, evaluate, infer, normal, optimized, quantized, quantized_weights, run_model
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from op_case import Array

from sardonyx.ir.dims import symbol

EIGHT_BIT = [np.uint8, np.int8]


def scalar(value: float) -> Array:
    return np.array(value, np.float32)


def point(rng: np.random.Generator, dtype: Any) -> Array:
    return np.array(int(rng.integers(100, 150)) - (128 if dtype == np.int8 else 0), dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_linear_and_back(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = normal(rng, 3, 4, 5) * 10
    zero_point = np.array([1, 2, 3, 4], dtype)
    scale = (np.abs(normal(rng, 4)) + 0.05).astype(np.float32)
    y = check("QuantizeLinear", [x, scale, zero_point], axis=1)[0]
    check("DequantizeLinear", [y, scale, zero_point], axis=1)
    check("QuantizeLinear", [x, scalar(0.1), zero_point[:1].reshape(())])
    check("DequantizeLinear", [y, scalar(0.1), zero_point[:1].reshape(())])


def test_quantize_linear_without_zero_point_gives_bytes() -> None:
    check("QuantizeLinear", [np.array([-1.0, 0.25, 0.75, 300.0], np.float32), scalar(0.5)])
    check("DequantizeLinear", [np.array([-5, 7], np.int32), scalar(0.5)])


@pytest.mark.parametrize("dtype", EIGHT_BIT)
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((), (3,)), ((2, 1, 4), (3, 1))])
def test_qlinear_arithmetic_broadcasts(dtype: Any, name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    a, b = (np.asarray(quantized(rng, shape, dtype)) for shape in shapes)
    inputs = [a, scalar(0.03), point(rng, dtype), b, scalar(0.05), point(rng, dtype), scalar(0.09), point(rng, dtype)]
    check(name, inputs, apart=1)  # onnxruntime folds scales and zero points together before it rounds
    zero = np.zeros((), dtype)
    omitted = evaluate(name, [a, scalar(0.03), None, b, scalar(0.05), None, scalar(0.09)])[0]
    given = evaluate(name, [a, scalar(0.03), zero, b, scalar(0.05), zero, scalar(0.09), zero])[0]
    np.testing.assert_array_equal(omitted, given)


@pytest.mark.parametrize("dtype", EIGHT_BIT)
def test_qlinear_activations_agree_for_every_byte(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    x = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype).reshape(16, 16)
    inputs = [x, scalar(0.05), point(rng, dtype), scalar(1 / 256), np.array(np.iinfo(dtype).min, dtype)]
    check("QLinearSigmoid", inputs)
    check("QLinearLeakyRelu", [*inputs[:3], scalar(0.07), point(rng, dtype)], alpha=0.2)
    zero = np.zeros((), dtype)
    given = check("QLinearLeakyRelu", [x, scalar(0.05), zero, scalar(0.07), zero])[0]
    np.testing.assert_array_equal(evaluate("QLinearLeakyRelu", [x, scalar(0.05), None, scalar(0.07)])[0], given)


@pytest.mark.parametrize("dtype", EIGHT_BIT)
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (1, 12), (2, 12)])
def test_qlinear_softmax(dtype: Any, axis: int, opset: int) -> None:
    rng = np.random.default_rng(3)
    x = quantized(rng, (2, 5, 7), dtype)
    low = np.array(np.iinfo(dtype).min, dtype)
    check("QLinearSoftmax", [x, scalar(0.04), point(rng, dtype), scalar(1 / 256), low], axis=axis, opset=opset, apart=1)


@pytest.mark.parametrize("dtype", EIGHT_BIT)
def test_qlinear_where(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    x, y = quantized(rng, (2, 3, 4), dtype), quantized(rng, (3, 1), dtype)
    condition = rng.integers(0, 2, (2, 1, 4)).astype(bool)
    inputs = [condition, x, scalar(0.03), point(rng, dtype), y, scalar(0.05), point(rng, dtype), scalar(0.04), point(rng, dtype)]
    check("QLinearWhere", inputs)


@pytest.mark.parametrize("dtype", EIGHT_BIT)
def test_qlinear_concat_requantizes_what_differs(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    zero_point = point(rng, dtype)
    inputs: list[Array | None] = [scalar(0.04), zero_point]
    for width, scale, zero in ((3, 0.04, zero_point), (2, 0.07, point(rng, dtype)), (1, 0.01, point(rng, dtype))):
        inputs += [quantized(rng, (2, width, 4), dtype), scalar(scale), zero]
    check("QLinearConcat", inputs, axis=1)
    with pytest.raises(ValueError, match="4 inputs behind the output's scale and zero point"):
        evaluate("QLinearConcat", inputs[:6], axis=1)


@pytest.mark.parametrize("dtype", EIGHT_BIT)
@pytest.mark.parametrize("channels_last", [0, 1])
def test_qlinear_average_pools(dtype: Any, channels_last: int) -> None:
    rng = np.random.default_rng(6)
    x = quantized(rng, (2, 6, 7, 3) if channels_last else (2, 3, 6, 7), dtype)
    inputs = [x, scalar(0.05), point(rng, dtype), scalar(0.04), point(rng, dtype)]
    check("QLinearAveragePool", inputs, kernel_shape=[3, 2], channels_last=channels_last, apart=1)
    check(
        "QLinearAveragePool", inputs, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1,
        channels_last=channels_last, apart=1,
    )  # fmt: skip
    check("QLinearGlobalAveragePool", inputs, channels_last=channels_last, apart=1)


@pytest.mark.parametrize("x_type", EIGHT_BIT)
@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("group", [1, 2])
def test_qlinear_conv_in_both_layouts(x_type: Any, channels_last: int, group: int) -> None:
    rng = np.random.default_rng(7)
    x = quantized(rng, (2, 7, 6, 4) if channels_last else (2, 4, 7, 6), x_type)
    w = quantized(rng, (6, 4 // group, 3, 3), np.int8) // 2
    w_scale = (np.abs(normal(rng, 6)) * 0.01 + 0.005).astype(np.float32)
    inputs = [x, scalar(0.05), point(rng, x_type), w, w_scale, np.zeros(6, np.int8), scalar(0.5), point(rng, x_type)]
    inputs.append(rng.integers(-500, 500, 6).astype(np.int32))
    check("QLinearConv", inputs, channels_last=channels_last, group=group, pads=[1, 1, 1, 1], strides=[2, 1], apart=1)


def test_qlinear_reduce_mean() -> None:
    rng = np.random.default_rng(8)
    x = quantized(rng, (2, 3, 4), np.uint8)
    y = evaluate("QLinearReduceMean", [x, scalar(1), None, scalar(1)], axes=[1, -1], keepdims=0)[0]
    np.testing.assert_array_equal(y, np.rint(x.mean((1, 2))))


def _packed_nibbles(values: Array, bits: int) -> Array:
    """Numbers along the last axis, packed into bytes from the lowest bits on."""
    per = 8 // bits
    padded = np.zeros((*values.shape[:-1], -(-values.shape[-1] // per) * per), np.uint8)
    padded[..., : values.shape[-1]] = values
    groups = padded.reshape(*padded.shape[:-1], -1, per)
    return np.asarray(np.bitwise_or.reduce(groups << (np.arange(per, dtype=np.uint8) * bits), axis=-1).astype(np.uint8))


def _packed_weight(rng: np.random.Generator, n: int, k: int, bits: int, block: int) -> tuple[Array, int]:
    blocks = -(-k // block)
    return _packed_nibbles(rng.integers(0, 1 << bits, (n, blocks, block)).astype(np.uint8), bits), blocks


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", ["default", "packed", "float"])
@pytest.mark.parametrize(("k", "block"), [(64, 16), (48, 32), (40, 32)])
def test_matmul_nbits(bits: int, points: str, k: int, block: int) -> None:
    rng = np.random.default_rng(9)
    n = 5
    b, blocks = _packed_weight(rng, n, k, bits, block)
    scales = (normal(rng, n, blocks) * 0.1).astype(np.float32)
    zero_points: Array | None = None
    if points == "packed":
        zero_points = _packed_nibbles(rng.integers(0, 1 << bits, (n, blocks)).astype(np.uint8), bits)
    elif points == "float":
        zero_points = (rng.random((n, blocks)) * (1 << bits)).astype(np.float32)
    inputs = [normal(rng, 2, 3, k), b, scales, zero_points, None, normal(rng, n)]
    if (bits, points) == (8, "float") and zero_points is not None:  # no such kernel in onnxruntime
        inputs[3] = np.rint(zero_points).astype(np.uint8)
        packed = evaluate("MatMulNBits", inputs, K=k, N=n, bits=bits, block_size=block)[0]
        inputs[3] = np.rint(zero_points) % 256
        np.testing.assert_allclose(evaluate("MatMulNBits", inputs, K=k, N=n, bits=bits, block_size=block)[0], packed, rtol=1e-6)
    else:
        check("MatMulNBits", inputs, K=k, N=n, bits=bits, block_size=block, tolerance=5e-5)


def test_matmul_nbits_with_flat_parameters_group_index_and_half_precision() -> None:
    rng = np.random.default_rng(10)
    b, blocks = _packed_weight(rng, 6, 64, 4, 16)
    scales = (normal(rng, 6 * blocks) * 0.1).astype(np.float32)
    x = normal(rng, 3, 64)
    check("MatMulNBits", [x, b, scales], K=64, N=6, bits=4, block_size=16)
    group_index = rng.integers(0, blocks, 64).astype(np.int32)
    check("MatMulNBits", [x, b, scales.reshape(6, -1), None, group_index], K=64, N=6, bits=4, block_size=16)
    half = [x.astype(np.float16), b, scales.reshape(6, -1).astype(np.float16)]
    check("MatMulNBits", half, K=64, N=6, bits=4, block_size=16, tolerance=2e-2)


def test_matmul_nbits_says_what_shape_it_expects() -> None:
    with pytest.raises(ValueError, match=r"B is \(2, 2, 8\), expected \(2, 3, 8\): 2 rows of 48 weights of 4 bits"):
        evaluate(
            "MatMulNBits",
            [np.ones((1, 48), np.float32), np.ones((2, 2, 8), np.uint8), np.ones((2, 3), np.float32)],
            K=48,
            N=2,
            block_size=16,
        )


@pytest.mark.parametrize("quant_type", [0, 1])
def test_matmul_bnb4(quant_type: int) -> None:
    rng = np.random.default_rng(11)
    k, n, block = 32, 6, 16
    b = quantized(rng, ((k * n + 1) // 2,), np.uint8)
    absmax = np.abs(normal(rng, k * n // block))
    check("MatMulBnb4", [normal(rng, 2, k), b, absmax], K=k, N=n, block_size=block, quant_type=quant_type)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("with_points", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gather_block_quantized_from_bytes(bits: int, with_points: bool, dtype: Any) -> None:
    rng = np.random.default_rng(12)
    rows, width, block = 7, 48, 16
    data = _packed_nibbles(rng.integers(0, 1 << bits, (rows, width)).astype(np.uint8), bits)
    scales = normal(rng, rows, width // block, dtype=dtype)
    points = _packed_nibbles(rng.integers(0, 1 << bits, (rows, width // block)).astype(np.uint8), bits) if with_points else None
    indices = rng.integers(-rows, rows, (2, 3))
    check("GatherBlockQuantized", [data, indices, scales, points], bits=bits, block_size=block)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("gather_axis", "quantize_axis"), [(0, 1), (1, 0), (0, 2), (2, 1), (1, 1)])
def test_gather_block_quantized_from_four_bit_types(dtype: Any, gather_axis: int, quantize_axis: int) -> None:
    rng = np.random.default_rng(13)
    shape = (32, 48, 6)
    low = -8 if dtype == ml_dtypes.int4 else 0
    data = rng.integers(low, low + 16, shape).astype(np.int8).astype(dtype)
    parameters = list(shape)
    parameters[quantize_axis] = -(-shape[quantize_axis] // 16)
    scales = normal(rng, *parameters)
    points = rng.integers(low, low + 16, parameters).astype(np.int8).astype(dtype)
    indices = rng.integers(0, shape[gather_axis], 4)
    attrs: dict[str, Any] = {"gather_axis": gather_axis, "quantize_axis": quantize_axis, "block_size": 16}
    y = evaluate("GatherBlockQuantized", [data, indices, scales, points], **attrs)[0]
    broadcast = [np.repeat(part.astype(np.float32), 16, quantize_axis) for part in (scales, points)]
    broadcast = [part[tuple(slice(size) for size in shape)] for part in broadcast]
    expected = (data.astype(np.float32) - broadcast[1]) * broadcast[0]
    np.testing.assert_allclose(y, np.take(expected, indices, gather_axis), rtol=1e-6)


@pytest.mark.parametrize("a_type", EIGHT_BIT)
@pytest.mark.parametrize("b_type", EIGHT_BIT)
@pytest.mark.parametrize("per_column", [False, True])
def test_matmul_integer_to_float(a_type: Any, b_type: Any, per_column: bool) -> None:
    rng = np.random.default_rng(14)
    a, b = quantized(rng, (2, 4, 8), a_type), quantized_weights(rng, (8, 5), b_type)
    count = 5 if per_column else 1
    b_scale = (np.abs(normal(rng, count)) * 0.1).astype(np.float32)
    b_point = quantized(rng, (count,), b_type)
    inputs = [a, b, scalar(0.02), b_scale, point(rng, a_type), b_point, normal(rng, 5)]
    if a_type == np.int8 and b_type == np.uint8:  # no such kernel in onnxruntime: the same values shifted
        shifted = [(a.astype(np.int16) + 128).astype(np.uint8), *inputs[1:4], (inputs[4].astype(np.int16) + 128).astype(np.uint8)]
        expected = evaluate("MatMulIntegerToFloat", [*shifted, *inputs[5:]])[0]
        np.testing.assert_array_equal(evaluate("MatMulIntegerToFloat", inputs)[0], expected)
    else:
        check("MatMulIntegerToFloat", inputs)
        check("MatMulIntegerToFloat", inputs[:4])


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 6), st.sampled_from(EIGHT_BIT), st.booleans(), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_dynamic_quantize_matmul(m: int, k: int, n: int, b_type: Any, biased: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = normal(rng, m, k), quantized_weights(rng, (k, n), b_type)
    inputs = [
        a,
        b,
        (np.abs(normal(rng, n)) * 0.1).astype(np.float32),
        quantized(rng, (n,), b_type),
        normal(rng, n) if biased else None,
    ]
    check("DynamicQuantizeMatMul", inputs, tolerance=1e-4)


def test_matmul_integer16() -> None:
    rng = np.random.default_rng(15)
    a, b = rng.integers(-3000, 3000, (3, 8)).astype(np.int16), rng.integers(-3000, 3000, (8, 4)).astype(np.int16)
    check("MatMulInteger16", [a, b])


@pytest.mark.parametrize("a_type", EIGHT_BIT)
@pytest.mark.parametrize("transposed", [0, 1])
def test_qgemm(a_type: Any, transposed: int) -> None:
    rng = np.random.default_rng(16)
    a = quantized(rng, (8, 3) if transposed else (3, 8), a_type)
    b = quantized_weights(rng, (5, 8) if transposed else (8, 5), np.int8)
    b_scale = (np.abs(normal(rng, 5)) * 0.1).astype(np.float32)
    inputs: list[Array | None] = [a, scalar(0.02), point(rng, a_type), b, b_scale, np.zeros(5, np.int8)]
    inputs.append(rng.integers(-200, 200, 5).astype(np.int32))
    attrs: dict[str, Any] = {"transA": transposed, "transB": transposed, "alpha": 0.5}
    check("QGemm", inputs, **attrs)
    check("QGemm", [*inputs, scalar(0.3), point(rng, a_type)], **attrs, apart=1)


def test_gather_block_quantized_shape_is_symbolic() -> None:
    n = symbol("N")

    class Shaped:
        def __init__(self, dtype: Any, *shape: Any) -> None:
            self.shape, self.dtype, self.size = shape, np.dtype(dtype), 99

    inputs: list[Any] = [Shaped(np.uint8, 100, 24), Shaped(np.int64, n, 3), Shaped(np.float32, 100, 3)]
    assert infer("GatherBlockQuantized", inputs, bits=4, block_size=16) == [(n, 3, 48)]


def test_a_quantized_model_optimized_by_onnxruntime_gives_the_same_result(tmp_path: Path) -> None:
    rng = np.random.default_rng(17)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Array] = {"zero": np.array(128, np.uint8), "none": np.array(0, np.int8), "nothing": np.array(0, np.int32)}

    def rounded(name: str, scale: float) -> str:
        """The value after quantization, as float again."""
        weights[f"{name}_s"] = scalar(scale)
        nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_s", "zero"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", "zero"], [f"{name}_d"]))
        return f"{name}_d"

    def weight(name: str, *shape: int) -> str:
        weights[name], weights[f"{name}_s"] = quantized(rng, shape, np.int8), scalar(0.002)
        nodes.append(helper.make_node("DequantizeLinear", [name, f"{name}_s", "none"], [f"{name}_d"]))
        return f"{name}_d"

    def node(kind: str, inputs: list[str], output: str, scale: float, **attrs: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attrs))
        return rounded(output, scale)

    x = rounded("x", 0.03)
    first = node("Conv", [x, weight("w0", 8, 3, 3, 3)], "c0", 0.04, pads=[1, 1, 1, 1])
    second = node("Sigmoid", [first], "s0", 1 / 256)
    third = node("LeakyRelu", [first], "l0", 0.04, alpha=0.1)
    fourth = node("Add", [second, third], "a0", 0.04)
    fifth = node("Mul", [fourth, third], "m0", 0.05)
    joined = node("Concat", [fifth, fourth], "k0", 0.05, axis=1)
    pooled = node("AveragePool", [joined], "p0", 0.05, kernel_shape=[2, 2], strides=[2, 2])
    final = node("GlobalAveragePool", [pooled], "g0", 0.03)
    flat = node("Flatten", [final], "f0", 0.03)
    logits = node("Gemm", [flat, weight("w1", 16, 5)], "e0", 0.02)
    nodes.append(helper.make_node("Identity", [logits], ["y"]))
    data = normal(rng, 2, 3, 8, 8)
    model, expected = optimized(nodes, weights, data, tmp_path)
    found = {entry.op_type for entry in model.graph.node}
    assert {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QGemm"} <= found
    np.testing.assert_allclose(run_model(model, {"x": data})[0], expected, atol=0.041)  # two steps of the last scale


@pytest.mark.parametrize("block", [-32, 0, 8, 24])
def test_blocks_are_powers_of_two(block: int) -> None:
    matrix, weights, scales = np.zeros((2, 64), np.float32), np.zeros((48, 2, 16), np.uint8), np.zeros((48, 2), np.float32)
    with pytest.raises(ValueError, match=f"block_size is {block}; expected a power of two, 16 or more"):
        infer("MatMulNBits", [matrix, weights, scales], K=64, N=48, bits=4, block_size=block)
    with pytest.raises(ValueError, match=f"block_size is {block}; expected a power of two, 16 or more"):
        infer("GatherBlockQuantized", [np.zeros((10, 16), np.uint8), np.zeros(3, np.int64), scales], bits=4, block_size=block)
