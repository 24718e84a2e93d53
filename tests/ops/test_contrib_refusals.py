"""What the com.microsoft operators say when their inputs do not fit, and which types they give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from contrib_oracle import evaluate, normal, quantized
from op_case import Array

from sardonyx.ops import registry, signature

RNG = np.random.default_rng(0)


def f32(*shape: int) -> Array:
    return normal(RNG, *shape)


def i32(*values: int) -> Array:
    return np.array(values, np.int32)


def u8(*shape: int) -> Array:
    return quantized(RNG, shape, np.uint8)


ONE = np.array(1, np.float32)
GQA: dict[str, Any] = {"num_heads": 2, "kv_num_heads": 1}

REFUSALS: list[tuple[str, list[Array | None], dict[str, Any], str]] = [
    ("Attention", [f32(1, 2, 4), f32(4, 12)], {"num_heads": 2, "do_rotary": 1}, "do_rotary=1 is not supported"),
    ("Attention", [f32(1, 2, 4), f32(4, 15)], {"num_heads": 2}, "cannot be divided into 2 heads"),
    ("Attention", [f32(1, 2, 4), f32(4, 12), None, i32(-1)], {"num_heads": 2}, r"negative key lengths: \[-1\]"),
    ("MultiHeadAttention", [f32(1, 2, 4)], {"num_heads": 2}, "key is missing"),
    ("MultiHeadAttention", [f32(1, 2, 4), f32(1, 2, 4)], {"num_heads": 2}, "value is missing"),
    ("MultiHeadAttention", [*[f32(1, 2, 4)] * 3, f32(5)], {"num_heads": 2}, r"bias is \(5,\), expected \(12,\)"),
    (
        "MultiHeadAttention",
        [*[f32(1, 1, 4)] * 3, None, None, None, *[f32(1, 2, 3, 2)] * 2, i32(3)],
        {"num_heads": 2},
        "the past buffer has room for 3 positions, 4 are needed",
    ),
    ("DecoderMaskedMultiHeadAttention", [*[f32(1, 2, 4)] * 3], {"num_heads": 2}, "decodes one at a time"),
    (
        "DecoderMaskedMultiHeadAttention",
        [*[f32(1, 1, 4)] * 3, *[None] * 5, i32(2)],
        {"num_heads": 2},
        "a beam_width above 1 needs cache_indirection",
    ),
    ("GroupQueryAttention", [f32(1, 2, 4), f32(1, 2, 2), f32(1, 2, 2)], GQA, "seqlens_k and total_sequence_length are required"),
    (
        "GroupQueryAttention",
        [f32(1, 2, 6), *[f32(1, 2, 4)] * 2, None, None, i32(1), i32(2)],
        {"num_heads": 3, "kv_num_heads": 2},
        r"num_heads \(3\) is not a multiple of kv_num_heads \(2\)",
    ),
    ("GroupQueryAttention", [f32(1, 2, 4), *[f32(1, 2, 2)] * 2, None, None, i32(1, 1), i32(2)], GQA, "seqlens_k has 2 elements"),
    (
        "GroupQueryAttention",
        [f32(1, 2, 4), *[f32(1, 2, 2)] * 2, None, None, i32(1), i32(2)],
        {**GQA, "do_rotary": 1},
        "needs cos_cache and sin_cache",
    ),
    (
        "GroupQueryAttention",
        [f32(1, 2, 4), *[f32(1, 2, 2)] * 2, None, None, i32(1), i32(2)],
        {**GQA, "kv_cache_bit_width": 3},
        "kv_cache_bit_width is 3; expected 0, 4 or 8",
    ),
    ("RotaryEmbedding", [f32(1, 2), i32(0), f32(4, 1), f32(4, 1)], {}, "the input has rank 2"),
    ("RotaryEmbedding", [f32(1, 3, 4), np.zeros((2, 2), np.int64), f32(4, 2), f32(4, 2)], {}, r"position_ids is \(2, 2\)"),
    (
        "RotaryEmbedding",
        [f32(1, 3, 4), i32(0), f32(4, 1), f32(4, 1)],
        {"num_heads": 4, "rotary_embedding_dim": 4},
        "rotate 2 dim",
    ),
    (
        "MRotaryEmbedding",
        [f32(1, 3, 4), np.zeros((3, 1, 3), np.int64), f32(4, 2), f32(4, 2)],
        {"mrope_section": [1, 1, 1]},
        "sum 2",
    ),
    ("FusedMatMul", [f32(2, 3), f32(3, 2)], {"transBatchA": 1}, "needs a rank of at least 3, found 2"),
    ("FusedConv", [f32(1, 1, 3, 3), f32(1, 1, 1, 1)], {"activation": "Clip"}, "Clip takes two"),
    (
        "FusedConv",
        [f32(1, 1, 3, 3), f32(1, 1, 1, 1)],
        {"activation": "LeakyRelu", "activation_params": [1.0, 2.0]},
        "LeakyRelu takes 1",
    ),
    (
        "FusedConv",
        [f32(1, 1, 3, 3), f32(1, 1, 1, 1), None, f32(1, 1, 2, 2)],
        {},
        r"Z is \(1, 1, 2, 2\), but the convolution gives",
    ),
    ("BiasSplitGelu", [f32(2, 3), f32(3)], {}, "even size"),
    ("SkipLayerNormalization", [f32(2, 3, 4), f32(2, 2, 4), f32(4)], {}, "of which the last two agree"),
    (
        "GroupNorm",
        [f32(1, 2, 2, 3), f32(3), f32(3)],
        {"groups": 2, "activation": 0},
        "3 channels cannot be divided into 2 groups",
    ),
    ("GatedRMSNorm", [f32(2, 4), f32(3), f32(2, 4)], {}, "runs as long as scale must fill rows"),
    (
        "MatMulNBits",
        [f32(1, 16), u8(1, 1, 8), f32(1, 1)],
        {"K": 16, "N": 1, "block_size": 16, "weight_prepacked": 1},
        "another device",
    ),
    (
        "MatMulNBits",
        [f32(1, 16), u8(1, 1, 8), f32(1, 2)],
        {"K": 16, "N": 1, "block_size": 16},
        r"scales is \(1, 2\), expected \(1, 1\)",
    ),
    ("MatMulNBits", [f32(1, 16), u8(1, 1, 8), f32(1, 1), u8(3)], {"K": 16, "N": 1, "block_size": 16}, r"zero_points is \(3,\)"),
    (
        "MatMulNBits",
        [f32(1, 16), u8(1, 1, 8), f32(1, 1), None, i32(0, 0)],
        {"K": 16, "N": 1, "block_size": 16},
        r"g_idx is \(2,\), expected the block of each of the 16 columns",
    ),
    (
        "MatMulNBits",
        [f32(1, 16), u8(1, 1, 8), f32(1, 1), None, None, f32(3)],
        {"K": 16, "N": 1, "block_size": 16},
        r"bias is \(3,\), expected \(1,\)",
    ),
    (
        "GatherBlockQuantized",
        [u8(4, 8), i32(0), f32(4, 1), u8(3, 1)],
        {"block_size": 16, "quantize_axis": 1},
        r"zero_points is \(3, 1\), data \(4, 8\): they may differ along axis 1 only",
    ),
    ("GatherBlockQuantized", [u8(4, 8), i32(0), f32(4, 1), u8(4, 0)], {"block_size": 16, "quantize_axis": 1}, "not one for each"),
    (
        "MatMulNBits",
        [f32(1, 16), u8(1, 1, 6), f32(1, 1)],
        {"K": 16, "N": 1, "block_size": 16, "bits": 3},
        "bits is 3; expected 2, 4 or 8",
    ),
    ("MatMulBnb4", [f32(1, 16), u8(8), f32(1)], {"K": 16, "N": 1, "block_size": 16, "quant_type": 2}, "quant_type is 2"),
    ("MatMulBnb4", [f32(1, 16), u8(7), f32(1)], {"K": 16, "N": 1, "block_size": 16, "quant_type": 1}, r"B is \(7,\)"),
    ("GatherBlockQuantized", [u8(4, 8), i32(0), f32(4)], {"block_size": 16}, "data has 2 axes, scales 1"),
    (
        "GatherBlockQuantized",
        [u8(4, 8), i32(0), f32(4, 2)],
        {"block_size": 16},
        "scales has 2 blocks along axis 1, expected 1 of 16",
    ),
    ("GatherBlockQuantized", [u8(4, 8), i32(0), f32(4, 1)], {"quantize_axis": 0}, "packed along its last axis"),
    ("MoE", [f32(2, 4), f32(2, 3), f32(3, 6, 4), None, f32(3, 4, 6)], {"k": 4}, "k is 4; expected 1 to 3"),
    ("MoE", [f32(2, 4), f32(2, 3), f32(3, 6, 4), None, f32(3, 4, 6)], {"activation_type": "tanh"}, "activation_type is 'tanh'"),
    ("MoE", [f32(2, 4), f32(2, 3), f32(3, 6, 4), None, f32(3, 4, 6)], {"use_sparse_mixer": 1, "k": 2}, "use_sparse_mixer"),
    (
        "MoE",
        [f32(2, 4), f32(2, 3), f32(3, 5, 4), None, f32(3, 4, 6)],
        {},
        r"fc1_experts_weights has the shape \(3, 5, 4\); expected 6 x 4 weights for each of 3 experts",
    ),
    ("MoE", [f32(2, 4), f32(2, 3), f32(2, 6, 4), None, f32(3, 4, 6)], {}, r"fc1_experts_weights has the shape \(2, 6, 4\)"),
    ("MoE", [f32(2, 4), f32(2, 3), f32(3, 6, 4), f32(3, 5), f32(3, 4, 6)], {}, r"fc1_experts_bias has the shape \(3, 5\)"),
    (
        "MoE",
        [f32(2, 4), f32(2, 2), f32(3, 6, 4), None, f32(3, 4, 6)],
        {},
        r"router_probs has the shape \(2, 2\); expected \(2, 3\)",
    ),
    (
        "MoE",
        [f32(2, 4), f32(5, 3), f32(3, 6, 4), None, f32(3, 4, 6)],
        {},
        r"router_probs has the shape \(5, 3\); expected \(2, 3\)",
    ),
    ("MoE", [f32(2, 4), f32(2, 3), f32(6, 4), None, f32(3, 4, 6)], {}, "expected three axes"),
    (
        "MoE",
        [f32(2, 4), f32(2, 3), f32(3, 6, 4), None, f32(3, 4, 6)],
        {"activation_type": "swiglu"},
        "swiglu_fusion is 0 without fc3_experts_weights",
    ),
    (
        "QMoE",
        [f32(2, 4), f32(2, 3), u8(3, 6, 2), f32(3, 6), None, u8(3, 4, 3), f32(3, 4)],
        {"expert_weight_bits": 3},
        "weights of 3 bits; expected 2, 4 or 8",
    ),
    ("QMoE", [f32(2, 4), f32(2, 3), u8(3, 6, 2), None, None, u8(3, 4, 3)], {}, "quantized experts need scales"),
    ("QMoE", [f32(2, 4), f32(2, 3), u8(3, 6, 2), None, None, u8(3, 4, 3)], {"weights_prepacked": 1}, "weights_prepacked=1"),
    ("CDist", [f32(2, 3), f32(2, 4)], {}, "equally long rows"),
    ("CDist", [f32(2, 3), f32(2, 3)], {"metric": "cosine"}, "metric is 'cosine'"),
    ("UnfoldTensor", [f32(2, 3)], {"size": 4}, "axis 1 has 3 elements"),
    ("DynamicTimeWarping", [f32(2, 3, 4)], {}, "expected a matrix"),
    ("IsAllFinite", [f32(2)], {"isinf_only": 1, "isnan_only": 1}, "cannot both be set"),
    ("CropAndResize", [f32(1, 1, 2, 2), f32(1, 4), i32(1), i32(2, 2)], {}, "batch_indices must lie from 0 to 0"),
    ("CropAndResize", [f32(1, 1, 2, 2), f32(1, 4), i32(0), i32(2, 2)], {"mode": "cubic"}, "mode is 'cubic'"),
    ("CropAndResize", [f32(1, 1, 2, 2), f32(1, 3), i32(0), i32(2, 2)], {}, r"rois is \(1, 3\)"),
    ("MaxpoolWithMask", [f32(1, 1, 4), np.ones((1, 1, 4), np.int32)], {}, "kernel_shape is required"),
    ("NGramRepeatBlock", [np.array([[5, 5]]), f32(1, 3)], {"ngram_size": 2}, "tokens outside 0 to 2"),
    ("NGramRepeatBlock", [np.array([[1, 1]]), f32(2, 3)], {"ngram_size": 2}, "one row of scores per sequence"),
    (
        "BifurcationDetector",
        [np.array([1, 2]), np.array([1]), np.array([0]), np.array([1])],
        {},
        "pred_tokens has 1 elements, expected 3",
    ),
    ("WordConvEmbedding", [np.ones((1, 2), np.int32), f32(4, 1, 3, 2), f32(4), f32(5, 2)], {}, "the window must fit a word"),
    ("LinearAttention", [f32(1, 1, 4)] * 3, {"q_num_heads": 1, "kv_num_heads": 1, "state_window": 2}, "state_window is 2"),
    ("CausalConvWithState", [f32(1, 2, 3), f32(2, 1, 2)], {"activation": "gelu"}, "activation is 'gelu'"),
    (
        "CausalConvWithState",
        [f32(1, 2, 3), f32(2, 1, 2), None, f32(1, 2, 4)],
        {},
        r"past_state is \(1, 2, 4\), expected \(1, 2, 1\)",
    ),
    ("CausalConvWithState", [f32(1, 2, 3), f32(2, 1, 2)], {"ndim": 2}, "ndim is 2"),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "message"), REFUSALS, ids=[f"{row[0]}-{i}" for i, row in enumerate(REFUSALS)]
)
def test_a_misfit_is_refused_with_what_was_found(
    name: str, inputs: list[Array | None], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(name, inputs, **attrs)


OLD_REFUSALS: list[tuple[str, list[Array], dict[str, Any], str]] = [
    ("Crop", [f32(1, 1, 4, 4)], {"border": [1, 1]}, "expected left, top, right, bottom"),
    ("Crop", [f32(1, 1, 4, 4)], {"border": [0, 3, 0, 2]}, "do not fit a height of 4"),
    ("Crop", [f32(4, 4)], {"border": [0, 0, 0, 0]}, r"expected \(N, C, H, W\)"),
    ("ImageScaler", [f32(1, 2, 4, 4)], {"bias": [1.0]}, "bias has 1 elements"),
    ("ScaledTanh", [f32(2)], {"alpha": 1.0}, "the attribute beta is missing"),
    ("MeanVarianceNormalization", [f32(2, 3)], {}, r"expected \(N, C, H, W\)"),
]


@pytest.mark.parametrize(
    ("name", "inputs", "attrs", "message"), OLD_REFUSALS, ids=[f"{row[0]}-{i}" for i, row in enumerate(OLD_REFUSALS)]
)
def test_old_operators_refuse_misfits_too(name: str, inputs: list[Array], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(name, inputs, domain="", version=7, **attrs)


BFLOAT16_CASES: list[tuple[str, list[Array | None], dict[str, Any]]] = [
    ("FusedMatMul", [f32(2, 3), f32(3, 4)], {"alpha": 0.5}),
    ("Gelu", [f32(2, 3)], {}),
    ("FastGelu", [f32(2, 3), f32(3)], {}),
    ("SkipLayerNormalization", [f32(2, 3, 4), f32(2, 3, 4), f32(4)], {}),
    ("MatMulNBits", [f32(2, 16), u8(3, 1, 8), f32(3, 1)], {"K": 16, "N": 3, "block_size": 16}),
    ("MultiHeadAttention", [f32(1, 2, 4)] * 3, {"num_heads": 2}),
    ("GroupQueryAttention", [f32(1, 2, 4), *[f32(1, 2, 2)] * 2, None, None, i32(1), i32(2)], GQA),
    ("RotaryEmbedding", [f32(1, 2, 4), np.array([0]), f32(4, 2), f32(4, 2)], {}),
    ("GatherBlockQuantized", [u8(4, 8), i32(0, 2), f32(4, 1)], {"block_size": 16}),
    ("MoE", [f32(2, 4), f32(2, 3), f32(3, 6, 4), None, f32(3, 4, 6)], {"k": 2}),
]


@pytest.mark.parametrize(("name", "inputs", "attrs"), BFLOAT16_CASES, ids=[row[0] for row in BFLOAT16_CASES])
def test_bfloat16_is_computed_in_float32_and_rounded_once(name: str, inputs: list[Array | None], attrs: dict[str, Any]) -> None:
    narrow = [x.astype(ml_dtypes.bfloat16) if x is not None and x.dtype == np.float32 else x for x in inputs]
    wide = [x.astype(np.float32) if x is not None and x.dtype == ml_dtypes.bfloat16 else x for x in narrow]
    result = evaluate(name, narrow, **attrs)[0]
    assert result.dtype == ml_dtypes.bfloat16
    expected = evaluate(name, wide, **attrs)[0].astype(ml_dtypes.bfloat16)
    if name != "GroupQueryAttention":  # its keys and values are rounded into the cache first
        np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))
    else:
        np.testing.assert_allclose(result.astype(np.float32), expected.astype(np.float32), rtol=0.02)


def test_every_contrib_definition_has_a_signature_and_a_shape_rule() -> None:
    domains = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc")
    for definition in registry.definitions():
        if definition.domain in domains:
            versions = signature.versions(definition.domain, definition.name)
            assert versions, f"{definition.label} has no signature"
            form = signature.signature(definition.domain, definition.name, max(versions[-1], definition.since))
            assert form is not None
            assert definition.infer is not None, f"{definition.label} has no shape rule"
            if definition.domain == "com.microsoft":
                unknown = set(definition.attr_names) - set(form.attributes)
                assert not unknown, f"{definition.label} reads {unknown}, which its signature lacks"
    for domain in domains:
        for name in signature.names(domain):
            assert registry.lookup(domain, name, 100) is not None, f"{domain}::{name} has a signature but no definition"
