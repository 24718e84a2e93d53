"""Normalizations of ONNX Runtime against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import check, evaluate, normal
from op_case import Array


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_normalization_before_opset_17(dtype: Any, axis: int) -> None:
    rng = np.random.default_rng(0)
    tail = (3, 8) if axis == 1 else (8,)
    inputs = [normal(rng, 2, 3, 8, dtype=dtype), normal(rng, *tail, dtype=dtype), normal(rng, *tail, dtype=dtype)]
    outputs = 3 if dtype == np.float32 else 1  # the only type onnxruntime gives the statistics for
    check("LayerNormalization", inputs, domain="", version=13, axis=axis, outputs=outputs, epsilon=1e-3)
    check("LayerNormalization", inputs[:2], domain="", version=1, axis=axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_simplified_layer_normalization(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    inputs = [normal(rng, 2, 3, 8, dtype=dtype), normal(rng, 8, dtype=dtype)]
    check("SimplifiedLayerNormalization", inputs, domain="", version=14)
    if dtype == np.float32:
        check("SimplifiedLayerNormalization", inputs, domain="", version=21, outputs=2)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
def test_skip_layer_normalization(dtype: Any, skip: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    inputs: list[Array | None] = [normal(rng, 2, 3, 8, dtype=dtype), normal(rng, *skip, dtype=dtype)]
    inputs += [normal(rng, 8, dtype=dtype) for _ in range(3)]
    check("SkipLayerNormalization", inputs)
    check("SkipLayerNormalization", [*inputs[:3], None, inputs[4]])
    check("SkipSimplifiedLayerNormalization", inputs[:4])
    for name, count in (("SkipLayerNormalization", 5), ("SkipSimplifiedLayerNormalization", 4)):
        total = evaluate(name, inputs[:count], outputs=4)[3]
        parts = [part.astype(np.float32) for part in (inputs[0], inputs[1], inputs[count - 1]) if part is not None]
        np.testing.assert_array_equal(total, (parts[0] + parts[1] + parts[2]).astype(dtype))


def test_skip_layer_normalization_of_two_axes_and_its_statistics() -> None:
    rng = np.random.default_rng(3)
    x, skip, gamma = normal(rng, 5, 8), normal(rng, 5, 8), normal(rng, 8)
    check("SkipLayerNormalization", [x, skip, gamma])
    _, mean, inverse, total = evaluate("SkipLayerNormalization", [x, skip, gamma], outputs=4)
    np.testing.assert_allclose(mean[:, 0], total.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inverse[:, 0], 1 / total.std(1), rtol=1e-5)


def test_skip_layer_normalization_refuses_a_gamma_of_another_size() -> None:
    x = np.ones((2, 3, 8), np.float32)
    with pytest.raises(ValueError, match=r"gamma is \(7,\), expected \(8,\)"):
        evaluate("SkipLayerNormalization", [x, x, np.ones(7, np.float32)])


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [None, 1, 2])
def test_embed_layer_normalization(segments: bool, positions: int | None) -> None:
    rng = np.random.default_rng(4)
    inputs: list[Array | None] = [
        rng.integers(0, 20, (2, 5)).astype(np.int32),
        rng.integers(0, 2, (2, 5)).astype(np.int32) if segments else None,
        normal(rng, 20, 8),
        normal(rng, 9, 8),
        normal(rng, 2, 8) if segments else None,
        normal(rng, 8),
        normal(rng, 8),
        rng.integers(0, 2, (2, 5)).astype(np.int32),
        None if positions is None else rng.integers(0, 9, (positions, 5)).astype(np.int32),
    ]
    check("EmbedLayerNormalization", inputs, outputs=3, epsilon=1e-5)


def test_embed_layer_normalization_refuses_ids_outside_the_table() -> None:
    ids = np.array([[3, 20]], np.int32)
    table = np.ones((20, 4), np.float32)
    with pytest.raises(ValueError, match="input_ids run from 3 to 20, but the embedding has 20 rows"):
        evaluate("EmbedLayerNormalization", [ids, None, table, table, None, table[0], table[0]])


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm_in_both_layouts(channels_last: int, activation: int) -> None:
    rng = np.random.default_rng(5)
    x, gamma, beta = normal(rng, 2, 6, 4, 5), normal(rng, 6), normal(rng, 6)
    plain = evaluate("GroupNormalization", [x, gamma, beta], domain="", version=21, num_groups=3)[0]
    expected = plain / (1 + np.exp(-plain)) if activation else plain
    attrs: dict[str, Any] = {"channels_last": channels_last, "activation": activation, "groups": 3}
    given = np.moveaxis(x, 1, -1) if channels_last else x
    wanted = np.moveaxis(expected, 1, -1) if channels_last else expected
    np.testing.assert_allclose(evaluate("GroupNorm", [given, gamma, beta], **attrs)[0], wanted, rtol=1e-5, atol=1e-6)
    skip, bias = normal(rng, 2, 6), normal(rng, 6)
    channel_shape = (2, 1, 1, 6) if channels_last else (2, 6, 1, 1)
    channels = bias if channels_last else bias[:, None, None]
    y, total = evaluate("SkipGroupNorm", [given, gamma, beta, skip, bias], outputs=2, **attrs)
    np.testing.assert_allclose(total, given + skip.reshape(channel_shape) + channels, rtol=1e-6)
    np.testing.assert_allclose(y, evaluate("GroupNorm", [total, gamma, beta], **attrs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gated_rms_norm(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    check("GatedRMSNorm", [normal(rng, 2, 3, 12, dtype=dtype), normal(rng, 4, dtype=dtype), normal(rng, 2, 3, 12, dtype=dtype)])
