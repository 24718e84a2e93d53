"""Attention operators of com.microsoft against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import as_onnxruntime, check, evaluate, normal
from op_case import Array


def _mask(kind: str, rng: np.random.Generator, batch: int, queries: int, keys: int) -> Array | None:
    if kind == "none":
        return None
    if kind == "length":
        return rng.integers(1, keys + 1, batch).astype(np.int32)
    if kind == "start and end":
        return np.concatenate([rng.integers(3, keys + 1, batch), rng.integers(0, 3, batch)]).astype(np.int32)
    if kind == "keys":
        return rng.integers(0, 2, (batch, keys)).astype(np.int32)
    if kind == "dummy":
        return np.ones((batch, 1), np.int32)
    return rng.integers(0, 2, (batch, queries, keys)).astype(np.int32)


MASKS = ["none", "length", "start and end", "keys", "dummy", "scores"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_attention_applies_every_form_of_mask(mask: str, unidirectional: int, past: int) -> None:
    rng = np.random.default_rng(past)
    batch, length, heads, size = 2, 4, 2, 8
    hidden = heads * size
    inputs: list[Array | None] = [
        normal(rng, batch, length, 12),
        normal(rng, 12, 3 * hidden) * 0.3,
        normal(rng, 3 * hidden),
        _mask(mask, rng, batch, length, length + past),
        normal(rng, 2, batch, heads, past, size) if past else None,
    ]
    check("Attention", inputs, outputs=2, num_heads=heads, unidirectional=unidirectional)


def test_attention_takes_value_heads_of_another_size_and_a_score_bias() -> None:
    rng = np.random.default_rng(1)
    inputs = [normal(rng, 2, 5, 12), normal(rng, 12, 40) * 0.3, normal(rng, 40), None, None, normal(rng, 2, 2, 5, 5)]
    check("Attention", inputs, num_heads=2, qkv_hidden_sizes=[16, 16, 8], scale=0.2)
    inputs[5] = normal(rng, 1, 1, 5, 5)
    check("Attention", inputs, num_heads=2, qkv_hidden_sizes=[16, 16, 8], mask_filter_value=-50.0)


def test_attention_writes_into_a_shared_past_buffer() -> None:
    rng = np.random.default_rng(2)
    x, w, b, past = normal(rng, 1, 1, 8), normal(rng, 8, 24), normal(rng, 24), normal(rng, 2, 1, 2, 3, 4)
    apart = evaluate("Attention", [x, w, b, None, past], outputs=2, num_heads=2)
    buffer = np.zeros((2, 1, 2, 6, 4), np.float32)
    buffer[:, :, :, :3] = past
    length = np.array([3], np.int32)
    shared = evaluate("Attention", [x, w, b, None, buffer, None, length], outputs=2, num_heads=2, past_present_share_buffer=1)
    np.testing.assert_allclose(shared[0], apart[0], rtol=1e-6)
    np.testing.assert_array_equal(shared[1][:, :, :, :4], apart[1])
    assert shared[1].shape == buffer.shape
    assert not buffer[:, :, :, 3:].any()


def test_attention_refuses_a_mask_of_another_shape() -> None:
    rng = np.random.default_rng(2)
    with pytest.raises(ValueError, match=r"the mask is \(7,\); expected \(2,\), \(4,\), \(2, 3\)"):
        evaluate("Attention", [normal(rng, 2, 3, 4), normal(rng, 4, 12), normal(rng, 12), np.ones(7, np.int32)], num_heads=2)


@pytest.mark.parametrize("mask", ["none", "length", "keys", "scores"])
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("past", [0, 3])
def test_multi_head_attention_with_separate_inputs(mask: str, unidirectional: int, past: int) -> None:
    rng = np.random.default_rng(past)
    batch, queries, keys, heads = 2, 4, 4 if unidirectional else 5, 2
    v_size = 8 if past else 6  # onnxruntime wants heads of one size where there is a past
    inputs: list[Array | None] = [
        normal(rng, batch, queries, 16),
        normal(rng, batch, keys, 16),
        normal(rng, batch, keys, heads * v_size),
        normal(rng, 32 + heads * v_size),
        _mask(mask, rng, batch, queries, keys + past),
        normal(rng, 1, heads, queries, keys + past),
        normal(rng, batch, heads, past, 8) if past else None,
        normal(rng, batch, heads, past, v_size) if past else None,
    ]
    check("MultiHeadAttention", inputs, outputs=4, num_heads=heads, unidirectional=unidirectional)


def test_multi_head_attention_with_projected_keys_of_an_encoder() -> None:
    rng = np.random.default_rng(4)
    inputs = [normal(rng, 2, 3, 16), normal(rng, 2, 2, 5, 8), normal(rng, 2, 2, 5, 8), normal(rng, 48)]
    inputs[3][16:] = 0
    check("MultiHeadAttention", inputs, num_heads=2, scale=0.3)


def test_multi_head_attention_unpacks_keys_and_values() -> None:
    rng = np.random.default_rng(5)
    q, k, v = (normal(rng, 2, 4, 16) for _ in range(3))
    expected = evaluate("MultiHeadAttention", [q, k, v], num_heads=2)[0]
    heads = [part.reshape(2, 4, 2, 8) for part in (q, k, v)]
    np.testing.assert_array_equal(evaluate("MultiHeadAttention", [np.stack(heads, axis=3)], num_heads=2)[0], expected)
    np.testing.assert_array_equal(evaluate("MultiHeadAttention", [q, np.stack(heads[1:], axis=3)], num_heads=2)[0], expected)


def test_multi_head_attention_in_float16_rounds_once() -> None:
    rng = np.random.default_rng(6)
    q, k, v = (normal(rng, 1, 4, 16, dtype=np.float16) for _ in range(3))
    wide = evaluate("MultiHeadAttention", [part.astype(np.float32) for part in (q, k, v)], num_heads=2)[0]
    np.testing.assert_array_equal(evaluate("MultiHeadAttention", [q, k, v], num_heads=2)[0], wide.astype(np.float16))


def test_decoder_masked_attention_follows_the_beams() -> None:
    rng = np.random.default_rng(7)
    batch, beams, heads, size, room, past = 2, 3, 2, 4, 8, 5
    rows = batch * beams
    inputs: list[Array | None] = [
        *(normal(rng, rows, 1, heads * size) for _ in range(3)),
        rng.integers(0, 2, (rows, past + 1)).astype(np.int32),
        None,
        normal(rng, rows, heads, room, size),
        normal(rng, rows, heads, room, size),
        np.array([past], np.int32),
        np.array([beams], np.int32),
        rng.integers(0, beams, (batch, beams, room)).astype(np.int32),
        normal(rng, 3 * heads * size),
    ]
    check("DecoderMaskedMultiHeadAttention", inputs, outputs=3, num_heads=heads, past_present_share_buffer=1)


def _grouped(rng: np.random.Generator, batch: int, length: int, past: int, room: int, packed: bool) -> dict[str, Any]:
    heads, kv_heads, size = 4, 2, 16
    lengths = np.full(batch, past + length - 1, np.int32)
    if past and length == 1:
        lengths = rng.integers(1, past + 1, batch).astype(np.int32)
    elif not past:
        lengths = rng.integers(0, length, batch).astype(np.int32)
        lengths[0] = length - 1
    parts = [normal(rng, batch, length, count * size) for count in (heads, kv_heads, kv_heads)]
    cache: list[Array | None] = [None, None]
    if room:
        cache = [normal(rng, batch, kv_heads, room, size) for _ in range(2)]
    return {
        "inputs": [
            *([np.concatenate(parts, axis=-1), None, None] if packed else parts),
            *cache,
            lengths,
            np.array(past + length, np.int32),
            normal(rng, 64, size // 2),
            normal(rng, 64, size // 2),
        ],
        "num_heads": heads,
        "kv_num_heads": kv_heads,
        "outputs": 3,
    }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("length", "past", "room"), [(6, 0, 0), (6, 0, 10), (1, 7, 12), (1, 7, 7), (4, 5, 16)])
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"do_rotary": 1},
        {"do_rotary": 1, "rotary_interleaved": 1, "softcap": 5.0},
        {"local_window_size": 3, "scale": 0.4},
        {"smooth_softmax": 1},
        {"causal": 0},
    ],
    ids=",".join,
)
def test_group_query_attention(packed: bool, length: int, past: int, room: int, attrs: dict[str, Any]) -> None:
    batch = 1 if past and length > 1 else 3
    case = _grouped(np.random.default_rng(length + past + room), batch, length, past, room, packed)
    if not attrs.get("do_rotary"):
        case["inputs"] = case["inputs"][:7]
    if not past and (case["inputs"][5] != length - 1).any():  # padded prompts: compare what belongs to real positions
        _compare_prompts(case, length, attrs)
    else:
        check("GroupQueryAttention", **case, **attrs)


def _compare_prompts(case: dict[str, Any], length: int, attrs: dict[str, Any]) -> None:
    inputs = case.pop("inputs")
    ours = evaluate("GroupQueryAttention", inputs, **case, **attrs)
    theirs = as_onnxruntime("GroupQueryAttention", inputs, **case, **attrs)
    for entry, last in enumerate(inputs[5]):
        np.testing.assert_allclose(ours[0][entry, : last + 1], theirs[0][entry, : last + 1], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ours[2], theirs[2])


def test_group_query_attention_with_sink_bias_and_scores() -> None:
    rng = np.random.default_rng(9)
    case = _grouped(rng, 2, 5, 0, 0, False)
    case["inputs"][5][:] = 4
    case["inputs"] += [None, normal(rng, 1, 4, 5, 5), normal(rng, 4)]
    case["outputs"] = 4
    for qk_output in (1, 2):
        check("GroupQueryAttention", **case, do_rotary=1, qk_output=qk_output)


def test_group_query_attention_rotates_by_given_positions() -> None:
    rng = np.random.default_rng(10)
    case = _grouped(rng, 3, 1, 7, 12, False)
    case["inputs"].append(rng.integers(0, 64, (3, 1)))
    check("GroupQueryAttention", **case, do_rotary=1)


@pytest.mark.parametrize("dtype", [np.float16])
def test_group_query_attention_in_half_precision(dtype: Any) -> None:
    case = _grouped(np.random.default_rng(11), 2, 1, 7, 12, True)
    case["inputs"] = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in case["inputs"]]
    check("GroupQueryAttention", **case, do_rotary=1)


@pytest.mark.parametrize(("bits", "dtype"), [(8, np.int8), (4, np.uint8)])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_group_query_attention_keeps_a_quantized_cache(bits: int, dtype: Any, kind: str) -> None:
    rng = np.random.default_rng(12)
    case = _grouped(rng, 2, 1, 7, 12, False)
    width = 16 * bits // 8
    for index in (3, 4):
        case["inputs"][index] = rng.integers(0, 256, (2, 2, 12, width)).astype(np.uint8).view(dtype)
    scale = (np.abs(normal(rng, 1 if kind == "PER_TENSOR" else 32)) + 0.5).astype(np.float32) / (1 << bits - 2)
    case["inputs"] += [None, None, None, scale, scale * 2]
    check(
        "GroupQueryAttention", **case, tolerance=2e-2, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits, do_rotary=1
    )


@pytest.mark.parametrize(("past", "length"), [(3, 1), (12, 1), (13, 1), (14, 3), (10, 6)])
def test_group_query_attention_slides_a_small_cache(past: int, length: int) -> None:
    rng = np.random.default_rng(13)
    case = _grouped(rng, 1, length, past, 9, False)
    case["inputs"][5] = np.array([past + length - 1], np.int32)
    attrs: dict[str, Any] = {"do_rotary": 1, "local_window_size": 5, "sliding_window_cache": 1}
    inputs = case.pop("inputs")
    ours = evaluate("GroupQueryAttention", inputs, **case, **attrs)
    theirs = as_onnxruntime("GroupQueryAttention", inputs, **case, **attrs)
    held = int(np.count_nonzero(ours[1].any(axis=(0, 1, 3))))  # what lies behind is whatever the buffer held before
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(ours[1][:, :, :held], theirs[1][:, :, :held], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ours[2][:, :, :held], theirs[2][:, :, :held])
    assert 5 <= held <= 9 or held == past + length


def test_group_query_attention_normalizes_heads_before_rotating() -> None:
    rng = np.random.default_rng(14)
    case = _grouped(rng, 1, 3, 0, 0, False)
    case["inputs"][5][:] = 2
    weights = [np.abs(normal(rng, 16)) for _ in range(2)]
    plain = list(case["inputs"])
    for index, heads in ((0, 4), (1, 2)):
        x = plain[index].reshape(1, 3, heads, 16)
        plain[index] = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weights[index]).reshape(1, 3, -1).astype(np.float32)
    case["inputs"] += [None] * 5 + weights
    ours = evaluate("GroupQueryAttention", case.pop("inputs"), **case, do_rotary=1)
    expected = evaluate("GroupQueryAttention", plain, **case, do_rotary=1)
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_group_query_attention_refuses_more_positions_than_the_cache_holds() -> None:
    case = _grouped(np.random.default_rng(15), 1, 1, 7, 7, False)
    case["inputs"][5][:] = 9
    with pytest.raises(ValueError, match="must lie from 0 to 7: the cache has room for 8 positions"):
        evaluate("GroupQueryAttention", case.pop("inputs"), **case)


def test_sparse_attention_sees_only_its_blocks() -> None:
    rng = np.random.default_rng(16)
    heads, kv_heads, size, block, room, length = 4, 2, 16, 16, 64, 40
    rows = np.array([[0, 1, 3, 5, 7], [0, 1, 3, 6, 10]], np.int32)
    columns = np.array([[0, 0, 1, 1, 2, 2, 3, -1, -1, -1], [0, 0, 1, 0, 1, 2, 0, 1, 2, 3]], np.int32)
    inputs = [
        *(normal(rng, 1, length, count * size) for count in (heads, kv_heads, kv_heads)),
        *(np.zeros((1, kv_heads, room, size), np.float32) for _ in range(2)),
        rows,
        columns,
        np.array([length], np.int32),
        np.array([length], np.int32),
        normal(rng, room, size // 2),
        normal(rng, room, size // 2),
    ]
    common: dict[str, Any] = {
        "num_heads": heads,
        "kv_num_heads": kv_heads,
        "sparse_block_size": block,
        "outputs": 3,
        "in_place": {1: 3, 2: 4},
    }
    check("SparseAttention", inputs, **common, do_rotary=1)
    # decoding one position more
    inputs[:3] = [normal(rng, 1, 1, count * size) for count in (heads, kv_heads, kv_heads)]
    inputs[3:5] = [normal(rng, 1, kv_heads, room, size) for _ in range(2)]
    inputs[7:9] = [np.array([length + 1], np.int32)] * 2
    check("SparseAttention", inputs, **common, do_rotary=1, rotary_interleaved=1)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    rng = np.random.default_rng(17)
    caches = [normal(rng, 10, 4), normal(rng, 10, 4)]
    positions = rng.integers(0, 10, (2, 5))
    check("RotaryEmbedding", [normal(rng, 2, 5, 24), positions, *caches], interleaved=interleaved)
    check("RotaryEmbedding", [normal(rng, 2, 3, 5, 8), positions, *caches], interleaved=interleaved)
    check("RotaryEmbedding", [normal(rng, 2, 3, 5, 8), np.array([4]), *caches], interleaved=interleaved)
    partial: dict[str, Any] = {"num_heads": 2, "rotary_embedding_dim": 8, "interleaved": interleaved}
    check("RotaryEmbedding", [normal(rng, 2, 5, 24), positions, *caches], **partial)
    half = [part.astype(np.float16) for part in (normal(rng, 2, 5, 24), *caches)]
    check("RotaryEmbedding", [half[0], positions, half[1], half[2]], interleaved=interleaved)


def test_rotary_embedding_refuses_positions_outside_the_cache() -> None:
    rng = np.random.default_rng(18)
    with pytest.raises(ValueError, match="positions from 4 to 8, but the cosine cache holds 8 of them"):
        evaluate("RotaryEmbedding", [normal(rng, 1, 5, 8), np.array([4]), normal(rng, 8, 4), normal(rng, 8, 4)])


@pytest.mark.parametrize("layout", [0, 1])
def test_rotary_embedding_with_three_position_axes(layout: int) -> None:
    rng = np.random.default_rng(19)
    inputs = [normal(rng, 2, 5, 32), rng.integers(0, 10, (3, 2, 5)), normal(rng, 10, 8), normal(rng, 10, 8)]
    check("MRotaryEmbedding", inputs, mrope_section=[4, 2, 2], mrope_layout=layout, num_heads=2, scale=0.5)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule: str) -> None:
    rng = np.random.default_rng(20)
    batch, steps, heads, kv_heads, size = 2, 4, 4, 2, 8
    inputs: list[Array | None] = [
        normal(rng, batch, steps, heads * size),
        *(normal(rng, batch, steps, kv_heads * size) * 0.3 for _ in range(2)),
        normal(rng, batch, kv_heads, size, size),
        -np.abs(normal(rng, batch, steps, kv_heads)) if "gated" in rule else None,
        np.abs(normal(rng, batch, steps, kv_heads)) * 0.3 if "delta" in rule else None,
    ]
    check("LinearAttention", inputs, outputs=2, q_num_heads=heads, kv_num_heads=kv_heads, update_rule=rule)


def test_linear_attention_gate() -> None:
    rng = np.random.default_rng(21)
    check("LinearAttentionGate", [normal(rng, 2, 3, 4), normal(rng, 4), normal(rng, 4), normal(rng, 2, 3, 4)], outputs=2)


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolution_carries_its_state(activation: str) -> None:
    rng = np.random.default_rng(22)
    x, w, bias = normal(rng, 2, 3, 6), normal(rng, 3, 1, 4), normal(rng, 3)
    whole = check("CausalConvWithState", [x, w, bias, normal(rng, 2, 3, 3)], outputs=2, activation=activation)
    first, state = evaluate("CausalConvWithState", [x[:, :, :2], w, bias], outputs=2, activation=activation)
    second, last = evaluate("CausalConvWithState", [x[:, :, 2:], w, bias, state], outputs=2, activation=activation)
    together, end = evaluate("CausalConvWithState", [x, w, bias], outputs=2, activation=activation)
    np.testing.assert_allclose(np.concatenate([first, second], axis=2), together, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(last, end)
    np.testing.assert_array_equal(whole[1], end)
