"""Attention, rotary embeddings and linear attention against their formulas and the onnx reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_case import Array, by_onnxruntime, by_reference, f32, i64, known_shape, random_array, run, seeds

from sardonyx.ir.dims import symbol
from sardonyx.ops import registry
from sardonyx.ops.attention import attention

quick = settings(max_examples=25, deadline=None)


def heads(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@quick
@given(
    seed=seeds, batch=st.integers(1, 2), group=st.integers(1, 3), queries=st.integers(1, 4), keys=st.integers(1, 5),
    causal=st.integers(0, 1), softcap=st.sampled_from([0.0, 1.5]), past=st.booleans(),
    mask=st.sampled_from(["none", "bool", "float", "per head", "short"]), mode=st.integers(1, 3), packed=st.booleans(),
)  # fmt: skip
def test_attention_is_the_references(
    seed: int,
    batch: int,
    group: int,
    queries: int,
    keys: int,
    causal: int,
    softcap: float,
    past: bool,
    mask: str,
    mode: int,
    packed: bool,
) -> None:
    kv, size, value_size = 2, 4, 3
    q, k, v = (
        heads(seed, batch, kv * group, queries, size),
        heads(seed + 1, batch, kv, keys, size),
        heads(seed + 2, batch, kv, keys, value_size),
    )
    before = (heads(seed + 3, batch, kv, 2, size), heads(seed + 4, batch, kv, 2, value_size)) if past else (None, None)
    total = keys + (2 if past else 0)
    attn_mask: Array | None = None
    if mask == "bool":
        attn_mask = np.random.default_rng(seed).random((queries, total)) < 0.7
    elif mask == "float":
        attn_mask = heads(seed + 5, batch, 1, queries, total)
    elif mask == "per head":
        attn_mask = heads(seed + 5, kv * group, queries, total)
    elif mask == "short":
        attn_mask = heads(seed + 5, queries, max(total - 1, 1))
    attrs: dict[str, Any] = {"is_causal": causal, "softcap": softcap, "qk_matmul_output_mode": mode}
    if packed:
        q, k, v = (x.swapaxes(1, 2).reshape(batch, x.shape[2], -1) for x in (q, k, v))
        attrs |= {"q_num_heads": kv * group, "kv_num_heads": kv}
    if mode == 1 and not softcap:
        attrs["qk_matmul_output_mode"] = 0
    expected = by_reference("Attention", q, k, v, attn_mask, *before, outputs=4, **attrs)
    for ours, theirs in zip(run("Attention", q, k, v, attn_mask, *before, outputs=4, **attrs), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@quick
@given(seed=seeds, left=st.integers(-1, 3), right=st.integers(-1, 3), causal=st.integers(0, 1), cached=st.booleans())
def test_windows_limit_what_a_query_sees(seed: int, left: int, right: int, causal: int, cached: bool) -> None:
    q, k, v = (heads(seed + i, 2, 2, 4 if i else 3, 4) for i in range(3))
    filled = i64(2, 4) if cached else None
    attrs: dict[str, Any] = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    y = run("Attention", q, k, v, None, None, None, filled, **attrs)
    place = np.arange(3)[:, None] + (np.array([2, 4]) - 3 if cached else np.zeros(2, int)).reshape(2, 1, 1, 1)
    key = np.arange(4)
    seen = np.ones((2, 1, 3, 4), bool)
    if causal:
        seen &= key <= place
    if left >= 0:
        seen &= key >= place - left
    if right >= 0:
        seen &= key <= place + right
    if cached:
        seen = seen & (key < np.array([2, 4]).reshape(2, 1, 1, 1))
    scores = np.where(seen, np.exp(q @ k.swapaxes(2, 3) / 2), 0.0)
    total = scores.sum(-1, keepdims=True)
    np.testing.assert_allclose(y, (scores / np.where(total == 0, 1, total)) @ v, rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing_has_a_zero_answer_whatever_its_score() -> None:
    q, k, v = np.full((1, 1, 1, 2), np.inf, np.float32), np.ones((1, 1, 3, 2), np.float32), np.ones((1, 1, 3, 2), np.float32)
    y, *_, shares = run("Attention", q, k, v, np.zeros((1, 3), bool), outputs=4, qk_matmul_output_mode=3)
    assert not y.any()
    assert not shares.any()


def test_blocks_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = heads(1, 2, 6, 7, 4), heads(2, 2, 3, 9, 4), heads(3, 2, 3, 9, 5)
    mask = heads(4, 2, 6, 7, 9)
    whole = run("Attention", q, k, v, mask, outputs=4, is_causal=1, qk_matmul_output_mode=3)
    for size in (1, 100, 300, 1000):
        monkeypatch.setattr(attention, "BLOCK_BYTES", size)
        for ours, expected in zip(
            run("Attention", q, k, v, mask, outputs=4, is_causal=1, qk_matmul_output_mode=3), whole, strict=True
        ):
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_types_are_computed_in_float32(dtype: Any) -> None:
    q, k, v = (heads(seed, 1, 2, 3, 4, dtype=dtype) for seed in range(3))
    exact = run("Attention", *(x.astype(np.float32) for x in (q, k, v)))
    np.testing.assert_array_equal(run("Attention", q, k, v), exact.astype(dtype))


def test_the_softmax_may_have_a_precision_of_its_own() -> None:
    q, k, v = (heads(seed, 1, 2, 3, 4) for seed in range(3))
    plain = run("Attention", q, k, v)
    np.testing.assert_allclose(run("Attention", q, k, v, softmax_precision=11), plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run("Attention", q, k, v, softmax_precision=16), plain, rtol=3e-2, atol=3e-2)


def test_no_keys_and_no_queries_are_legal() -> None:
    q, v = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 0, 5), np.float32)
    assert run("Attention", q, np.ones((1, 2, 0, 4), np.float32), v).tolist() == np.zeros((1, 2, 3, 5)).tolist()
    assert run("Attention", q[:, :, :0], q, q).shape == (1, 2, 0, 4)
    assert run("Attention", q[:0], q[:0], q[:0]).shape == (0, 2, 3, 4)


def test_what_attention_cannot_do_is_named() -> None:
    x = np.ones((1, 3, 8), np.float32)
    with pytest.raises(ValueError, match="cannot be divided into 3 heads"):
        run("Attention", x, x, x, q_num_heads=3, kv_num_heads=2)
    four = x.reshape(1, 2, 3, 4)
    with pytest.raises(ValueError, match="must be given together"):
        run("Attention", four, four, four, None, four)
    with pytest.raises(ValueError, match="does not broadcast"):
        run("Attention", four, four, four, np.zeros((2, 3), np.float32))


def test_attention_keeps_symbols() -> None:
    n, t, past = symbol("N"), symbol("T"), symbol("P")
    x = f32("N", "T", 64)
    cache = f32("N", 2, "P", 16)
    shapes = known_shape(
        "Attention", [x, f32("N", "T", 32), f32("N", "T", 32), None, cache, cache], outputs=4, q_num_heads=4, kv_num_heads=2
    )
    assert shapes == [[n, t, 64], [n, 2, t + past, 16], [n, 2, t + past, 16], [n, 4, t, t + past]]


@pytest.mark.parametrize("group", [1, 2])
def test_flex_attention_runs_its_graphs_on_scores_and_probabilities(group: int) -> None:
    definition = registry.lookup("ai.onnx.preview", "FlexAttention", 1)
    assert definition is not None
    q, k, v = heads(1, 1, 2 * group, 3, 4), heads(2, 1, 2, 5, 4), heads(3, 1, 2, 5, 6)
    mask = np.tril(np.ones((3, 5), bool))
    seen: list[Any] = []

    def score_mod(scores: Array) -> list[Array]:
        seen.append((scores.shape, scores.dtype))
        return [np.where(mask, scores, -np.inf).astype(scores.dtype)]

    given_ = {"prob_mod": lambda shares: [shares * 2], "scale": None, "score_mod": score_mod, "softmax_precision": None}
    (result,) = registry.call(definition, [q, k, v], given_, registry.EvalContext(1, (True,)))
    expected = run("Attention", q, k, v, mask) * 2
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert seen == [((1, 2 * group, 3, 5), np.float32)]
    given_ = {"prob_mod": None, "scale": None, "score_mod": lambda scores: [scores[:, :1]], "softmax_precision": None}
    with pytest.raises(ValueError, match="score_mod made the shape"):
        registry.call(definition, [q, k, v], given_, registry.EvalContext(1, (True,)))


@quick
@given(
    seed=seeds, interleaved=st.integers(0, 1), partial=st.booleans(), positions=st.booleans(), packed=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float16]),
)  # fmt: skip
def test_rotary_embedding_turns_pairs(
    seed: int, interleaved: int, partial: bool, positions: bool, packed: bool, dtype: Any
) -> None:
    batch, count, steps, size = 2, 3, 4, 8
    x = heads(seed, batch, count, steps, size, dtype=dtype)
    half = 2 if partial else 4
    angles = np.random.default_rng(seed).uniform(0, 6, (7, half) if positions else (batch, steps, half))
    where = np.random.default_rng(seed).integers(0, 7, (batch, steps)) if positions else None
    used = angles[where] if where is not None else angles
    rotation = np.exp(1j * used)[:, None]
    wide = x.astype(np.float64)
    first, second = (
        (wide[..., 0 : 2 * half : 2], wide[..., 1 : 2 * half : 2])
        if interleaved
        else (wide[..., :half], wide[..., half : 2 * half])
    )
    rotated = (first + 1j * second) * rotation
    expected = wide.copy()
    if interleaved:
        expected[..., 0 : 2 * half : 2], expected[..., 1 : 2 * half : 2] = rotated.real, rotated.imag
    else:
        expected[..., :half], expected[..., half : 2 * half] = rotated.real, rotated.imag
    attrs: dict[str, Any] = {"interleaved": interleaved, "rotary_embedding_dim": 2 * half if partial else 0}
    if packed:
        x, expected = (y.swapaxes(1, 2).reshape(batch, steps, count * size) for y in (x, expected))
        attrs["num_heads"] = count
    result = run("RotaryEmbedding", x, np.cos(angles).astype(dtype), np.sin(angles).astype(dtype), where, **attrs)
    tolerance = 1e-2 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_caches_of_a_wrong_size_are_named() -> None:
    x, cache = np.ones((1, 2, 3, 8), np.float32), np.ones((1, 3, 3), np.float32)
    with pytest.raises(ValueError, match=r"expected \(N, time, 4\)"):
        run("RotaryEmbedding", x, cache, cache)


@quick
@given(
    seed=seeds, rule=st.sampled_from(["linear", "gated", "delta", "gated_delta"]), group=st.integers(1, 2), past=st.booleans(),
    per_key=st.booleans(), shared_rate=st.booleans(),
)  # fmt: skip
def test_linear_attention_is_its_recurrence(
    seed: int, rule: str, group: int, past: bool, per_key: bool, shared_rate: bool
) -> None:
    batch, steps, kv, size, value_size = 2, 3, 2, 4, 3
    q, k, v = (
        heads(seed, batch, steps, kv * group * size),
        heads(seed + 1, batch, steps, kv * size),
        heads(seed + 2, batch, steps, kv * value_size),
    )
    state = heads(seed + 3, batch, kv, size, value_size) if past else None
    decay = -np.abs(heads(seed + 4, batch, steps, kv * (size if per_key else 1))) if "gated" in rule else None
    beta = np.abs(heads(seed + 5, batch, steps, 1 if shared_rate else kv)) if "delta" in rule else None
    y, last = run(
        "LinearAttention", q, k, v, state, decay, beta, outputs=2, q_num_heads=kv * group, kv_num_heads=kv, update_rule=rule
    )
    for b in range(batch):
        for h in range(kv):
            s = np.zeros((size, value_size)) if state is None else state[b, h].astype(np.float64)
            for t in range(steps):
                key, value = k[b, t].reshape(kv, size)[h], v[b, t].reshape(kv, value_size)[h]
                if decay is not None:
                    s = s * np.exp(decay[b, t].reshape(kv, -1)[h])[:, None]
                rate = 1.0 if beta is None else float(np.broadcast_to(beta[b, t], kv)[h])
                s = s + np.outer(key, rate * (value - s.T @ key) if beta is not None else value)
                for g in range(group):
                    query = q[b, t].reshape(kv, group, size)[h, g]
                    got = y[b, t].reshape(kv, group, value_size)[h, g]
                    np.testing.assert_allclose(got, query @ s / 2, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(last[b, h], s, rtol=1e-3, atol=1e-4)


def test_a_rule_without_its_gate_is_named() -> None:
    x = np.ones((1, 2, 4), np.float32)
    with pytest.raises(ValueError, match="update_rule 'gated' needs the input decay"):
        run("LinearAttention", x, x, x, q_num_heads=1, kv_num_heads=1, update_rule="gated", outputs=2)


def test_attention_of_opset_23_is_onnxruntimes() -> None:
    q, k, v = heads(1, 2, 4, 5, 8), heads(2, 2, 2, 6, 8), heads(3, 2, 2, 6, 8)
    mask = random_array(4, (5, 6), np.float32, special=False)
    (expected,) = by_onnxruntime("Attention", q, k, v, mask, like=[q], version=23)
    np.testing.assert_allclose(run("Attention", q, k, v, mask, version=23), expected, rtol=1e-4, atol=1e-5)


def test_a_key_that_may_not_be_seen_takes_no_part_whatever_its_score() -> None:
    """As in PyTorch's causal attention, and in ONNX Runtime where minus infinity is added."""
    q = np.full((1, 1, 1, 1), np.inf, np.float32)
    k, v = np.array([-1, 1], np.float32).reshape(1, 1, 2, 1), np.ones((1, 1, 2, 1), np.float32)
    hidden, added = np.array([[True, False]]), np.array([[0, -np.inf]], np.float32)
    assert run("Attention", q, k, v, is_causal=1) == 0
    assert run("Attention", q, k, v, hidden) == 0
    assert run("Attention", q, k, v, added) == 0
