"""Fused products and activations of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import check, evaluate, infer, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.ir.dims import symbol


@pytest.mark.parametrize("alpha", [1.0, 0.25])
@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((2, 3, 4), (2, 4, 5), {}),
        ((2, 4, 3), (2, 4, 5), {"transA": 1}),
        ((2, 3, 4), (5, 4), {"transB": 1}),
        ((4, 3), (5, 4), {"transA": 1, "transB": 1}),
        ((3, 2, 4), (2, 4, 5), {"transBatchA": 1}),
        ((4, 2, 6, 3), (5, 2, 6, 4), {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
        ((4,), (4, 5), {}),
        ((2, 3, 4), (4,), {}),
        ((3, 0), (0, 5), {}),
    ],
)
def test_fused_matmul_arranges_its_operands(a: tuple[int, ...], b: tuple[int, ...], attrs: dict[str, Any], alpha: float) -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        check("FusedMatMul", [normal(rng, *a, dtype=dtype), normal(rng, *b, dtype=dtype)], alpha=alpha, **attrs)


def test_transpose_matmul() -> None:
    rng = np.random.default_rng(0)
    check("TransposeMatMul", [normal(rng, 4, 3), normal(rng, 5, 4)], transA=1, transB=1, alpha=2.0)


def test_sparse_to_dense_matmul() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-2, 3, (4, 3)), rng.integers(-9, 9, (5, 4))
    for dtype in (np.float32, np.float64, np.int32, np.int64):
        y = evaluate("SparseToDenseMatMul", [a.astype(dtype), b.astype(dtype)], transA=1, transB=1, alpha=2.0)[0]
        np.testing.assert_array_equal(y, (a.T @ b.T * 2).astype(dtype))


def test_fused_matmul_rounds_float16_once() -> None:
    rng = np.random.default_rng(0)
    a, b = normal(rng, 8, 64, dtype=np.float16), normal(rng, 64, 8, dtype=np.float16)
    wide = np.matmul(a.astype(np.float32), b.astype(np.float32)) * np.float32(0.3)
    np.testing.assert_array_equal(evaluate("FusedMatMul", [a, b], alpha=0.3)[0], wide.astype(np.float16))


def test_fused_matmul_with_activation_is_the_two_operators() -> None:
    rng = np.random.default_rng(0)
    a, b = normal(rng, 3, 4), normal(rng, 4, 5)
    product = a @ b
    np.testing.assert_allclose(evaluate("FusedMatMulActivation", [a, b], activation="Relu")[0], np.maximum(product, 0), rtol=1e-6)
    weights = evaluate("FusedMatMulActivation", [a, b], activation="Softmax", activation_axis=0)[0]
    np.testing.assert_allclose(weights, np.exp(product) / np.exp(product).sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
        {"activation": "HardSigmoid", "activation_alpha": 0.1, "activation_beta": 0.4},
        {"activation": "Elu", "activation_alpha": 0.7},
        {"activation": "Tanh"},
    ],
    ids=lambda attrs: attrs.get("activation", "none"),
)
def test_fused_gemm(attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    inputs = [normal(rng, 3, 4), normal(rng, 5, 4), normal(rng, 5)]
    if attrs:
        check("FusedGemm", inputs, transB=1, alpha=0.5, beta=0.25, **attrs)
    else:
        np.testing.assert_allclose(evaluate("FusedGemm", inputs, transB=1)[0], inputs[0] @ inputs[1].T + inputs[2], rtol=1e-5)


def test_fused_gemm_names_the_activations_it_knows() -> None:
    with pytest.raises(ValueError, match=r"activation is 'Sine'; known are Celu, Clip, Elu"):
        evaluate("FusedGemm", [np.ones((2, 2), np.float32)] * 2, activation="Sine")


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        {"activation": "Clip", "activation_params": [-0.5, 0.5], "strides": [2, 2]},
        {"activation": "LeakyRelu", "activation_params": [0.1], "auto_pad": "SAME_UPPER"},
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.5], "dilations": [2, 2]},
        {"activation": "HardSwish"},
        {"activation": "Sigmoid", "group": 2},
        {"activation": "Tanh"},
    ],
    ids=lambda attrs: attrs.get("activation", "none"),
)
def test_fused_conv(attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    w = normal(rng, 6, 4 // attrs.get("group", 1), 3, 3) * 0.3
    y = check("FusedConv", [normal(rng, 2, 4, 9, 8), w, normal(rng, 6)], **attrs)[0]
    check("FusedConv", [normal(rng, 2, 4, 9, 8), w, normal(rng, 6), normal(rng, *y.shape)], **attrs)


@given(
    st.sampled_from(["Gelu", "FastGelu", "QuickGelu"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_gelu_family(name: str, shape: list[int], dtype: Any, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)
    if dtype == np.float64:  # no kernel in onnxruntime: compare with float32
        wide, plain = evaluate(name, [np.asarray(x)])[0], evaluate(name, [np.asarray(x.astype(np.float32))])[0]
        assert wide.dtype == np.float64
        np.testing.assert_allclose(wide, plain, rtol=1e-4, atol=1e-5)
    else:
        check(name, [np.asarray(x)], tolerance=1e-5)


def test_gelu_of_extreme_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30], np.float32)
    with np.errstate(all="ignore"):
        for name in ("Gelu", "FastGelu"):
            y = evaluate(name, [x])[0]
            assert np.isnan(y[0])
            assert y[1] == np.inf
            np.testing.assert_array_equal(y[3:5], 0)
            assert y[5] == x[5]


def test_gelu_with_bias() -> None:
    rng = np.random.default_rng(3)
    x, bias = normal(rng, 2, 3, 8), normal(rng, 8)
    check("BiasGelu", [x, bias])
    check("FastGelu", [x, bias])
    check("QuickGelu", [x], alpha=0.7)
    gelu = evaluate("Gelu", [x + bias])[0]
    np.testing.assert_array_equal(evaluate("BiasSplitGelu", [x, bias])[0], (x + bias)[..., :4] * gelu[..., 4:])
    np.testing.assert_array_equal(evaluate("BiasAdd", [x, bias, x])[0], x + bias + x)
    np.testing.assert_allclose(
        evaluate("GemmFastGelu", [x, np.eye(8, dtype=np.float32), bias])[0], evaluate("FastGelu", [x, bias])[0], rtol=1e-6
    )


def test_bias_softmax_covers_all_axes_from_axis_on() -> None:
    rng = np.random.default_rng(4)
    x, bias = normal(rng, 2, 3, 4), normal(rng, 1, 3, 4)
    y = evaluate("BiasSoftmax", [x, bias], axis=1, is_inner_broadcast=0)[0]
    np.testing.assert_allclose(y.reshape(2, -1).sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(y / y[:, :1, :1], np.exp(x + bias - (x + bias)[:, :1, :1]), rtol=1e-4)


def test_bias_dropout_only_drops_in_training() -> None:
    rng = np.random.default_rng(5)
    x, bias = normal(rng, 50, 20), normal(rng, 20)
    y, mask = evaluate("BiasDropout", [x, bias, x], outputs=2)
    np.testing.assert_array_equal(y, x + bias + x)
    assert mask.all()
    y, mask = evaluate("BiasDropout", [x, bias, x, np.array(0.5, np.float32), np.array(True)], outputs=2, seed=1)
    assert 0.4 < mask.mean() < 0.6
    np.testing.assert_allclose(y, np.where(mask, (x + bias) * 2, 0) + x, rtol=1e-6)


def test_gated_add() -> None:
    rng = np.random.default_rng(6)
    for dtype in (np.float32, np.float16):
        check(
            "GatedAdd", [normal(rng, 2, 3, 4, dtype=dtype), normal(rng, 2, 3, 4, dtype=dtype), normal(rng, 2, 3, 1, dtype=dtype)]
        )


def test_fused_matmul_shape_is_symbolic() -> None:
    n = symbol("N")

    class Shaped:
        def __init__(self, *shape: Any) -> None:
            self.shape, self.dtype, self.size = shape, np.dtype(np.float32), 0

    shapes = infer("FusedMatMul", [Shaped(4, n, 3), Shaped(n, 4, 5)], transBatchA=1, transA=1)  # type: ignore[list-item]
    assert shapes == [(n, 3, 5)]
