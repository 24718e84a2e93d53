"""MultiHeadAttention and its decoding form with a past in a buffer with room; masks of ends, starts and the lowest number."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import sardonyx
from guarded import guarded
from native_support import assert_native_agrees
from sardonyx.ir.tensor import Array

_MULTI_HEAD = ("query", "key", "value", "bias", "mask", "added", "past_key", "past_value", "length")
_DECODING = ("query", "key", "value", "mask", "added", "past_key", "past_value", "length", "beam_width", "beams", "bias")
_PRESENT = ["Y", "present_key", "present_value"]


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def model(op: str, order: tuple[str, ...], feeds: dict[str, Array], outputs: list[str], domain: str, **attrs: Any) -> bytes:
    names = [name if name in feeds else "" for name in order]
    while not names[-1]:
        names.pop()
    codes = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node(op, names, outputs, domain=domain, name="attention", **attrs)],
        "buffered",
        [helper.make_tensor_value_info(name, codes[name], array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info(name, codes[names[0]], None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return content


def check(
    op: str, order: tuple[str, ...], feeds: dict[str, Array], outputs: list[str], domain: str = "com.microsoft", **attrs: Any
) -> bytes:
    content = model(op, order, feeds, outputs, domain, **attrs)
    tolerance = 3e-5 if feeds[order[0]].dtype == np.float32 else 4e-3
    assert_native_agrees(content, {name: guarded(array) for name, array in feeds.items()}, rtol=tolerance, atol=tolerance)
    return content


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(0, 300),
    st.integers(1, 30),
    st.sampled_from(["", "keys", "added", "both", "lengths"]),
    st.booleans(),
    st.sampled_from(["float32", "float16"]),
)
def test_a_past_with_room_agrees(batch: int, past: int, more: int, masked: str, biased: bool, dtype: str) -> None:
    heads, size, total = 2, 9, past + 1
    feeds = {name: numbers(batch, 1, heads * size, seed=seed, dtype=dtype) for seed, name in enumerate(("query", "key", "value"))}
    for seed, name in enumerate(("past_key", "past_value")):
        feeds[name] = numbers(batch, heads, past + more, size, seed=seed, dtype=dtype)
    feeds["length"] = np.array([past], np.int32)
    if masked in ("keys", "both"):
        feeds["mask"] = (numbers(batch, total) > -1).astype(np.int32)
    if masked == "lengths":
        feeds["mask"] = np.arange(1, batch + 1, dtype=np.int32)
    if masked in ("added", "both"):
        feeds["added"] = numbers(1, heads, 1, total, dtype=dtype)
    if biased:
        feeds["bias"] = numbers(3 * heads * size, dtype=dtype)
    check("DecoderMaskedMultiHeadAttention", _DECODING, feeds, _PRESENT, num_heads=heads, past_present_share_buffer=1)
    check("MultiHeadAttention", _MULTI_HEAD, feeds, _PRESENT, num_heads=heads)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(("queries", "past", "room"), [(5, 0, 5), (5, 30, 64), (40, 200, 300)])
def test_several_queries_behind_a_past_with_room_agree(queries: int, past: int, room: int, causal: int) -> None:
    feeds = {name: numbers(2, queries, 32, seed=seed) for seed, name in enumerate(("query", "key", "value"))}
    feeds |= {"past_key": numbers(2, 4, room, 8), "past_value": numbers(2, 4, room, 8), "length": np.array([past], np.int32)}
    check("MultiHeadAttention", _MULTI_HEAD, feeds, _PRESENT, num_heads=4, unidirectional=causal)


@pytest.mark.parametrize("given_", [{"length": -1}, {"length": 64}, {"length": 30, "mask": 30}, {"length": 30, "added": 32}])
def test_lengths_that_do_not_fit_are_refused(given_: dict[str, int]) -> None:
    feeds = {name: numbers(1, 1, 32, seed=seed) for seed, name in enumerate(("query", "key", "value"))}
    feeds |= {"past_key": numbers(1, 4, 64, 8), "past_value": numbers(1, 4, 64, 8)}
    feeds["length"] = np.array([given_["length"]], np.int32)
    if "mask" in given_:
        feeds["mask"] = np.ones((1, given_["mask"]), np.int32)
    if "added" in given_:
        feeds["added"] = numbers(1, 4, 1, given_["added"])
    content = model("DecoderMaskedMultiHeadAttention", _DECODING, feeds, _PRESENT, "com.microsoft", num_heads=4)
    for provider in ("CPUExecutionProvider", "SardonyxReferenceExecutionProvider"):
        with pytest.raises(sardonyx.errors.SardonyxError):
            sardonyx.InferenceSession(content, providers=[provider]).run(None, feeds)


def test_keys_of_a_cross_attention_agree() -> None:
    feeds = {"query": numbers(2, 1, 32), "key": numbers(2, 4, 70, 8), "value": numbers(2, 4, 70, 8)}
    for mask in (None, np.array([[1] * 40 + [0] * 30, [0] * 10 + [1] * 60], np.int32)):
        more = {} if mask is None else {"mask": mask}
        check("DecoderMaskedMultiHeadAttention", _DECODING, feeds | more, ["Y"], num_heads=4)


@pytest.mark.parametrize("mask", [[20, 13], [20, 13, 2, 5], [20, 13, 0, 20, 33, 0, 20, 33]], ids=["ends", "starts", "sums"])
def test_masks_of_ends_and_starts_agree(mask: list[int]) -> None:
    feeds = {name: numbers(2, 20, 32, seed=seed) for seed, name in enumerate(("query", "key", "value"))}
    feeds["mask"] = np.array(mask, np.int32)
    check("MultiHeadAttention", _MULTI_HEAD, feeds, ["Y"], num_heads=4)
    packed = {"input": numbers(2, 20, 32), "weights": numbers(32, 96), "mask": np.array(mask, np.int32)}
    check("Attention", ("input", "weights", "bias", "mask"), packed, ["Y"], num_heads=4, unidirectional=1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("lowest", [True, False])
@pytest.mark.parametrize("causal", [0, 1])
def test_keys_below_the_lowest_number_take_no_part(dtype: str, lowest: bool, causal: int) -> None:
    """Not even one that is NaN; and a query that sees none has zeros, as in ONNX Runtime."""
    feeds = {name: numbers(1, 2, 30, 16, seed=seed, dtype=dtype) for seed, name in enumerate("qkv")}
    mask = np.zeros((30, 30), dtype)
    mask[:, 20:] = np.finfo(dtype).min if lowest else -np.inf
    mask[3], mask[5, :29] = mask[3, -1], mask[3, -1]
    feeds |= {"mask": mask}
    content = check("Attention", ("q", "k", "v", "mask"), feeds, ["Y"], "", is_causal=causal)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    ours = sardonyx.InferenceSession(content).run(None, feeds)[0]
    np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=4e-3, atol=4e-3)
    feeds["k"][:, :, 25] = np.nan
    check("Attention", ("q", "k", "v", "mask"), feeds, ["Y"], "", is_causal=causal)
    assert np.isfinite(sardonyx.InferenceSession(content).run(None, feeds)[0][:, :, :3]).all()


@pytest.mark.parametrize("precision", [1, 10, 11, 16])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_softmax_in_another_type_is_computed_as_all_are(precision: int, dtype: str) -> None:
    feeds = {name: numbers(1, 2, 30, 16, seed=seed, dtype=dtype) for seed, name in enumerate("qkv")}
    content = model("Attention", ("q", "k", "v"), feeds, ["Y"], "", softmax_precision=precision)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    ours = sardonyx.InferenceSession(content).run(None, feeds)[0]
    tolerance = 2e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=tolerance, atol=tolerance)
