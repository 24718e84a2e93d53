"""Quantized layers and mixtures of experts of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import check, evaluate, normal, quantized, quantized_weights
from op_case import Array


@pytest.mark.parametrize("input_type", [np.uint8, np.int8])
@pytest.mark.parametrize("weight_type", [np.uint8, np.int8])
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_qattention(input_type: Any, weight_type: Any, unidirectional: int, past: int) -> None:
    rng = np.random.default_rng(0)
    batch, length, hidden, heads = 2, 4, 16, 2
    inputs: list[Array | None] = [
        quantized(rng, (batch, length, 12), input_type),
        quantized_weights(rng, (12, 3 * hidden), weight_type),
        normal(rng, 3 * hidden),
        np.array(0.01, np.float32),
        np.array(0.02, np.float32),
        rng.integers(1, length + past + 1, batch).astype(np.int32),
        np.array(3, input_type),
        np.array(5, weight_type),
        normal(rng, 2, batch, heads, past, hidden // heads) if past else None,
    ]
    attrs: dict[str, Any] = {"outputs": 2, "num_heads": heads, "unidirectional": unidirectional}
    if input_type == np.uint8:
        check("QAttention", inputs, tolerance=1e-4, **attrs)
        return
    signed = evaluate("QAttention", inputs, **attrs)  # onnxruntime takes no signed input: the same values shifted
    for index in (0, 6):
        part = inputs[index]
        assert part is not None
        inputs[index] = (part.astype(np.int16) + 128).astype(np.uint8)
    for one, other in zip(signed, evaluate("QAttention", inputs, **attrs), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("segments", [False, True])
def test_qembed_layer_normalization(segments: bool) -> None:
    rng = np.random.default_rng(1)
    kinds = [(20, 8), (9, 8), (2, 8), (8,), (8,)]
    tables: list[Array | None] = [quantized(rng, shape, np.uint8) for shape in kinds]
    scales: list[Array | None] = [np.array(0.01 + 0.01 * index, np.float32) for index in range(5)]
    points: list[Array | None] = [np.array(100 + index, np.uint8) for index in range(5)]
    if not segments:
        tables[2] = scales[2] = points[2] = None
    ids = rng.integers(0, 20, (2, 5)).astype(np.int32)
    segment_ids = rng.integers(0, 2, (2, 5)).astype(np.int32) if segments else None
    mask = rng.integers(0, 2, (2, 5)).astype(np.int32)
    check("QEmbedLayerNormalization", [ids, segment_ids, *tables, mask, *scales, *points], outputs=2, tolerance=1e-4)


def _experts(rng: np.random.Generator, activation: str, fused: bool) -> list[Array | None]:
    experts, hidden, inner = 4, 8, 6
    outer = 2 * inner if fused else inner
    return [
        normal(rng, 5, hidden),
        normal(rng, 5, experts),
        normal(rng, experts, outer, hidden),
        normal(rng, experts, outer),
        normal(rng, experts, hidden, inner),
        normal(rng, experts, hidden),
    ]


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("normalize", [0, 1])
def test_mixture_of_experts(activation: str, k: int, normalize: int) -> None:
    inputs = _experts(np.random.default_rng(2), activation, False)
    check("MoE", inputs, activation_type=activation, k=k, normalize_routing_weights=normalize, tolerance=1e-4)


def test_mixture_of_experts_with_gates_between_the_layers() -> None:
    inputs = _experts(np.random.default_rng(3), "swiglu", True)
    attrs: dict[str, Any] = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7, "k": 2}
    y = check("MoE", inputs, activation_type="swiglu", swiglu_fusion=1, tolerance=1e-4, **attrs)[0]
    apart = list(inputs)  # the same weights with gates and linear parts in halves, then in two matrices
    for index in (2, 3):
        part = inputs[index]
        assert part is not None
        apart[index] = np.concatenate([part[:, 0::2], part[:, 1::2]], axis=1)
    np.testing.assert_allclose(evaluate("MoE", apart, activation_type="swiglu", swiglu_fusion=2, **attrs)[0], y, rtol=1e-4)
    halves = [np.split(part, 2, axis=1) for part in apart[2:4] if part is not None]
    split = [*apart[:2], halves[0][0], halves[1][0], *apart[4:], halves[0][1], halves[1][1]]
    np.testing.assert_allclose(evaluate("MoE", split, activation_type="swiglu", **attrs)[0], y, rtol=1e-4)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("with_points", [False, True])
def test_quantized_mixture_of_experts(bits: int, block: int, with_points: bool) -> None:
    rng = np.random.default_rng(4)
    experts, hidden, inner, pack = 4, 32, 32, 8 // bits
    weights, scales, points = [], [], []
    for outputs, inputs in ((2 * inner, hidden), (hidden, inner)):
        weights.append(quantized(rng, (experts, outputs, inputs // pack), np.uint8))
        shape = (experts, outputs, inputs // block) if block else (experts, outputs)
        scales.append((np.abs(normal(rng, *shape)) * 0.02 + 0.01).astype(np.float32))
        packed = (*shape[:-1], -(-shape[-1] // pack))
        points.append(quantized(rng, packed, np.uint8) if with_points else None)
    inputs_all: list[Array | None] = [
        normal(rng, 5, hidden),
        normal(rng, 5, experts),
        weights[0],
        scales[0],
        normal(rng, experts, 2 * inner),
        weights[1],
        scales[1],
        normal(rng, experts, hidden),
        None,
        None,
        None,
        points[0],
        points[1],
    ]
    attrs: dict[str, Any] = {"k": 2, "expert_weight_bits": bits, "activation_type": "swiglu", "swiglu_fusion": 1}
    if block:
        attrs["block_size"] = block
    check("QMoE", inputs_all, tolerance=2e-2, normalize_routing_weights=1, **attrs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("weight_type", [np.uint8, np.int8])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(direction: str, weight_type: Any, per_column: bool) -> None:
    rng = np.random.default_rng(5)
    directions = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = 4, 2, 6, 5
    parameters = (directions, 4 * hidden) if per_column else (directions,)
    low = np.zeros(parameters, weight_type) if weight_type == np.int8 else np.full(parameters, 128, weight_type)
    inputs: list[Array | None] = [
        normal(rng, steps, batch, width),
        quantized_weights(rng, (directions, width, 4 * hidden), weight_type),
        quantized_weights(rng, (directions, hidden, 4 * hidden), weight_type),
        normal(rng, directions, 8 * hidden),
        None,
        normal(rng, directions, batch, hidden) * 0.3,
        normal(rng, directions, batch, hidden) * 0.3,
        None,
        (np.abs(normal(rng, *parameters)) * 0.005 + 0.002).astype(np.float32),
        low,
        (np.abs(normal(rng, *parameters)) * 0.005 + 0.002).astype(np.float32),
        low,
    ]
    check("DynamicQuantizeLSTM", inputs, outputs=3, direction=direction, hidden_size=hidden, tolerance=1e-4)
