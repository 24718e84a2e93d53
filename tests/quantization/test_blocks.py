"""Weights in blocks of few bits: as ONNX Runtime's kernels quantize them, and as they are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.capi import _pybind_state as native

import sardonyx
from quantization.small_models import feeds_for, operators_of, products
from sardonyx.quantization import QuantFormat, blocks
from sardonyx.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 70),
    columns=st.integers(1, 9),
    bits=st.sampled_from(blocks.BITS),
    size=st.sampled_from([16, 32]),
    symmetric=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_as_onnxruntime_quantizes(rows: int, columns: int, bits: int, size: int, symmetric: bool, seed: int) -> None:
    weight = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    count = -(-rows // size)
    function = {2: native.quantize_matmul_2bits, 4: native.quantize_matmul_4bits, 8: native.quantize_matmul_8bits}[bits]
    found = []
    for fill in (function, lambda *arrays: blocks.quantize_into(bits, *arrays)):
        packed = np.zeros((columns, count, size * bits // 8), np.uint8)
        scales, zeros = np.zeros((columns, count), np.float32), np.zeros((columns, -(-count * bits // 8)), np.uint8)
        fill(packed, weight, scales, zeros, size, columns, rows, symmetric)
        found.append((packed, scales, zeros))
    (theirs, their_scales, _), (ours, our_scales, _) = found
    np.testing.assert_allclose(our_scales, their_scales, rtol=1e-6)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = [
        (each[..., None] >> shifts & ((1 << bits) - 1)).reshape(columns, -1)[:, :rows].astype(int) for each in (ours, theirs)
    ]
    difference = np.abs(codes[0] - codes[1])  # a number between two codes may be rounded the other way
    assert difference.max() <= 1
    assert np.count_nonzero(difference) <= 1 + rows * columns // 50


@pytest.mark.parametrize("bits", blocks.BITS)
@pytest.mark.parametrize("method", ["round", "k_quant", "hqq"])
def test_errors_of_the_methods(bits: int, method: str) -> None:
    weight = np.random.default_rng(1).normal(size=(64, 40)).astype(np.float32)
    found = blocks.quantize_blocks(weight, bits, 32, False, method)
    error = np.abs(blocks.dequantize_blocks(found, bits, 64) - weight).mean()
    assert error < {2: 0.5, 4: 0.12, 8: 0.01}[bits]


def test_least_squares_lose_less_where_it_counts() -> None:
    weight = np.random.default_rng(2).normal(size=(512, 64)).astype(np.float32)

    def error(method: str) -> float:
        real = blocks.dequantize_blocks(blocks.quantize_blocks(weight, 4, 32, False, method), 4, 512)
        return float(np.mean((1 + np.abs(weight)) * (real - weight) ** 2))

    assert error("k_quant") < 0.95 * error("round")


QDQ = [":DequantizeLinear"] * 2 + [":MatMul"] * 2
CONFIGS: list[tuple[str, Any, list[str]]] = [
    ("default", DefaultWeightOnlyQuantConfig(block_size=16), ["com.microsoft:MatMulNBits"] * 2),
    ("symmetric", DefaultWeightOnlyQuantConfig(16, True, 4), ["com.microsoft:MatMulNBits"] * 2),
    ("8 bits", DefaultWeightOnlyQuantConfig(16, bits=8), ["com.microsoft:MatMulNBits"] * 2),
    ("2 bits", DefaultWeightOnlyQuantConfig(16, bits=2), ["com.microsoft:MatMulNBits"] * 2),
    ("QDQ", DefaultWeightOnlyQuantConfig(16, quant_format=QuantFormat.QDQ), QDQ),
    (
        "symmetric QDQ",
        DefaultWeightOnlyQuantConfig(16, True, quant_format=QuantFormat.QDQ),
        [":DequantizeLinear"] * 2 + [":MatMul"] * 2,
    ),
    ("RTN", RTNWeightOnlyQuantConfig(), ["com.microsoft:MatMulNBits"] * 2),
    ("k-quant", KQuantWeightOnlyQuantConfig(), ["com.microsoft:MatMulNBits"] * 2),
    ("HQQ", HQQWeightOnlyQuantConfig(16), ["com.microsoft:MatMulNBits"] * 2),
]


@pytest.mark.parametrize(("name", "config", "operators"), CONFIGS, ids=[name for name, _, _ in CONFIGS])
def test_models_agree_in_both_engines(tmp_path: Path, name: str, config: Any, operators: list[str]) -> None:
    model = products()
    onnx.save(model, str(tmp_path / "model.onnx"))
    quantizer = MatMulNBitsQuantizer(str(tmp_path / "model.onnx"), block_size=16, algo_config=config)
    quantizer.process()
    assert quantizer.quantized == ["matmul1", "matmul2"]
    out = tmp_path / "out.onnx"
    quantizer.model.save_model_to_file(out, use_external_data_format=True)
    assert [each for each in operators_of(out) if each not in (":Add", ":Relu", ":Gemm")] == operators
    feed = feeds_for(model).feeds[0]
    [exact] = sardonyx.InferenceSession(str(tmp_path / "model.onnx")).run(None, feed)
    [mine] = sardonyx.InferenceSession(str(out)).run(None, feed)
    [other] = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"]).run(None, feed)
    # At accuracy level 4, which is the default for QDQ, activations are rounded to 8 bits.
    step = 0.05 if name == "symmetric" or "QDQ" in name else 1e-3
    assert np.abs(mine - other).max() <= step * np.abs(other).max()
    assert np.abs(mine - exact).max() <= (1.5 if name == "2 bits" else 0.3) * np.abs(exact).max()


def test_a_message_can_be_looked_at_and_saved_again(tmp_path: Path) -> None:
    quantizer = MatMulNBitsQuantizer(products(), block_size=16)
    quantizer.process()
    message = quantizer.model.model
    names = {each.name for each in message.graph.initializer}
    assert {"w1_Q4", "w1_scales", "w1_zero_points"} <= names
    quantizer.model.save_model_to_file(tmp_path / "out.onnx")
    assert {each.name for each in onnx.load(str(tmp_path / "out.onnx")).graph.initializer} == names
