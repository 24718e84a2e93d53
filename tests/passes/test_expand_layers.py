"""Whole layers of onnxruntime's transformer tools, taken apart: the same numbers, and the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.text import parse_graph

HIDDEN, WORDS, POSITIONS = 8, 30, 16
EMBEDDING = """graph main(
  ids: i32[B,S], segments: i32[B,S], mask: i32[B,S], {more}
  words: f32[30,8], positions: f32[16,8], kinds: f32[2,8], g: f32[8], b: f32[8]
) -> (y: f32[B,S,8], m: i32[B], t: f32[B,S,8]) {{
  y, m, t = com.microsoft::EmbedLayerNormalization(
    ids, segments, words, positions, kinds, g, b, mask{given}
  ) {{epsilon = 0.001}} @1
}}"""
QUANTIZED_EMBEDDING = """graph main(
  ids: i32[B,S], segments: i32[B,S], mask: i32[B,S], words: u8[30,8], positions: u8[16,8], kinds: u8[2,8], g: u8[8], b: u8[8],
  sw: f32[], sp: f32[], sk: f32[], sg: f32[], sb: f32[], zw: u8[], zp: u8[], zk: u8[], zg: u8[], zb: u8[]
) -> (y: f32[B,S,8], m: i32[B]) {{
  y, m = com.microsoft::QEmbedLayerNormalization(
    ids, {segments}, words, positions, {kinds}, g, b, mask, sw, sp, {sk}, sg, sb, zw, zp, {zk}, zg, zb
  ) {{epsilon = 0.001}} @1
}}"""
ATTENTION = """graph main(
  x: {kind}[B,S,8], w: i8[8,24], b: f32[24], sx: f32[], sw: f32[24], mask: i32[{mask}], zx: {kind}[], zw: i8[24]
) -> (y: f32[B,S,8]) {{
  y = com.microsoft::QAttention(x, w, b, sx, sw, mask, zx, zw) {{num_heads = 2, unidirectional = {causal}}} @1
}}"""


def _model(text: str, opset: int = 17) -> bytes:
    return to_bytes(Model(parse_graph(text), 8, {"": opset, "com.microsoft": 1}))


def _runs(content: bytes, feeds: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    reference = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
    return sardonyx.InferenceSession(content).run(None, feeds), reference.run(None, feeds)


def _embedding_feeds(rng: np.random.Generator, batch: int, length: int) -> dict[str, Any]:
    return {
        "ids": rng.integers(0, WORDS, (batch, length), np.int32),
        "segments": rng.integers(0, 2, (batch, length), np.int32),
        "mask": rng.integers(0, 2, (batch, length), np.int32),
        "words": rng.standard_normal((WORDS, HIDDEN)).astype(np.float32),
        "positions": rng.standard_normal((POSITIONS, HIDDEN)).astype(np.float32),
        "kinds": rng.standard_normal((2, HIDDEN)).astype(np.float32),
        "g": rng.standard_normal(HIDDEN).astype(np.float32),
        "b": rng.standard_normal(HIDDEN).astype(np.float32),
    }


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("placed", [False, True])
def test_embeddings_are_the_same_and_native(opset: int, placed: bool) -> None:
    more, given_ = ("places: i32[B,S], ", ", places") if placed else ("", "")
    content = _model(EMBEDDING.format(more=more, given=given_), opset)
    rng = np.random.default_rng(3)
    for batch, length in ((1, 1), (2, 5), (3, POSITIONS), (1, 7)):
        feeds = _embedding_feeds(rng, batch, length)
        if placed:
            feeds["places"] = rng.integers(0, POSITIONS, (batch, length), np.int32)
        found, wanted = _runs(content, feeds)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert explain_model(content).host_steps == 0


def test_embeddings_in_float16_are_rounded_once() -> None:
    content = _model(EMBEDDING.format(more="", given="").replace("f32", "f16"))
    feeds = _embedding_feeds(np.random.default_rng(3), 3, 9)
    feeds = {name: feed.astype(np.float16) if feed.dtype == np.float32 else feed for name, feed in feeds.items()}
    found, wanted = _runs(content, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)  # the last bit
    assert explain_model(content).host_steps == 0


@pytest.mark.parametrize("given_", [False, True])
def test_embeddings_of_bytes_are_the_same_and_native(given_: bool) -> None:
    parts = ("segments", "kinds", "sk", "zk")
    content = _model(QUANTIZED_EMBEDDING.format(**{name: name if given_ else "_" for name in parts}))
    rng = np.random.default_rng(3)
    for batch, length in ((1, 1), (2, 5), (3, POSITIONS), (1, 7)):
        feeds = _embedding_feeds(rng, batch, length)
        for name, letter in zip(("words", "positions", "kinds", "g", "b"), "wpkgb", strict=True):
            feeds[name] = rng.integers(0, 256, feeds[name].shape).astype(np.uint8)
            feeds[f"s{letter}"], feeds[f"z{letter}"] = (
                np.float32(rng.uniform(0.01, 0.1)),
                np.array(rng.integers(90, 160), np.uint8),
            )
        found, wanted = _runs(content, feeds)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert explain_model(content).host_steps == 0


@pytest.mark.parametrize(("name", "value"), [("ids", -1), ("ids", WORDS), ("segments", 2), ("segments", -2)])
def test_ids_outside_of_a_table_are_refused(name: str, value: int) -> None:
    content = _model(EMBEDDING.format(more="", given=""))
    feeds = _embedding_feeds(np.random.default_rng(4), 2, 5)
    feeds[name][1, 3] = value
    with pytest.raises(sardonyx.errors.SardonyxError):
        sardonyx.InferenceSession(content).run(None, feeds)


def test_more_positions_than_the_table_has_are_refused() -> None:
    content = _model(EMBEDDING.format(more="", given=""))
    with pytest.raises(sardonyx.errors.SardonyxError):
        sardonyx.InferenceSession(content).run(None, _embedding_feeds(np.random.default_rng(4), 2, POSITIONS + 1))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from(["B", "B,S"]),
    st.sampled_from(["u8", "i8"]),
    st.booleans(),
)
def test_quantized_attention_is_the_same(seed: int, batch: int, length: int, mask: str, kind: str, causal: bool) -> None:
    rng = np.random.default_rng(seed)
    content = _model(ATTENTION.format(kind=kind, mask=mask, causal=int(causal)))
    low, high = (0, 256) if kind == "u8" else (-128, 128)
    dtype = np.uint8 if kind == "u8" else np.int8
    shape = (batch,) if mask == "B" else (batch, length)
    feeds = {
        "x": rng.integers(low, high, (batch, length, 8)).astype(dtype),
        "w": rng.integers(-128, 128, (8, 24)).astype(np.int8),
        "b": rng.standard_normal(24).astype(np.float32),
        "sx": np.float32(0.02),
        "sw": rng.uniform(0.001, 0.02, 24).astype(np.float32),
        "mask": rng.integers(0, length + 1 if mask == "B" else 2, shape, np.int32),
        "zx": np.array(rng.integers(low, high), dtype),
        "zw": rng.integers(-5, 6, 24).astype(np.int8),
    }
    [found], [wanted] = _runs(content, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 + _softmax_rounding(feeds))


def _softmax_rounding(feeds: dict[str, Any]) -> float:
    """How far apart two results may be whose scores differ by a few roundings of the largest of them.

    Scores reach thousands, and -10000 is added to masked ones: where a whole row is masked, or its largest scores are close,
    the spacing of floats of that size is seen behind the exponential.
    """
    x = (feeds["x"].astype(np.float64) - feeds["zx"]) * feeds["sx"]
    q, k, v = np.split(x @ ((feeds["w"].astype(np.float64) - feeds["zw"]) * feeds["sw"]) + feeds["b"], 3, axis=-1)
    head_size = HIDDEN // 2
    scores = np.abs(q).max() * np.abs(k).max() * head_size / np.sqrt(head_size) + 10000 * (feeds["mask"] == 0).any()
    return float(np.spacing(np.float32(scores)) * np.abs(v).max())


def test_quantized_attention_is_native() -> None:
    assert explain_model(_model(ATTENTION.format(kind="u8", mask="B", causal=0))).host_steps == 0
