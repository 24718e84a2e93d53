"""Caches of keys and values in 8 or 4 bits, and caches that slide, of GroupQueryAttention."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from grouped_attention_model import model_of
from guarded import guarded
from guarded_session import guarded_feeds, guarded_memory
from native_support import assert_native_agrees, compile_native, run_native, run_reference
from sardonyx.ir.tensor import Array

_KEY_HEADS = 2


def _feeds(
    queries: int,
    room: int,
    lengths: list[int],
    *,
    bits: int = 0,
    per_channel: bool = False,
    size: int = 16,
    dtype: str = "float32",
) -> dict[str, Array]:
    draw = np.random.default_rng([queries, room, *lengths])

    def numbers(*shape: int) -> Array:
        return draw.standard_normal(shape).astype(dtype)

    batch = len(lengths)
    feeds = {
        "query": numbers(batch, queries, 4 * size),
        "key": numbers(batch, queries, _KEY_HEADS * size),
        "value": numbers(batch, queries, _KEY_HEADS * size),
    }
    for name in ("past_key", "past_value"):
        if bits == 8:
            feeds[name] = draw.integers(-128, 128, (batch, _KEY_HEADS, room, size)).astype(np.int8)
        elif bits == 4:
            feeds[name] = draw.integers(0, 256, (batch, _KEY_HEADS, room, size // 2)).astype(np.uint8)
        else:
            feeds[name] = numbers(batch, _KEY_HEADS, room, size)
    feeds |= {"seqlens_k": np.array(lengths, np.int32) - 1, "total": np.array([max(lengths)], np.int32)}
    if bits:
        count = _KEY_HEADS * size if per_channel else 1
        for name in ("k_scale", "v_scale"):
            feeds[name] = (draw.random(count) * 0.02 + 0.002).astype(np.float32)
        feeds["k_scale"][0] = feeds["k_scale"][0] if per_channel is False else 0.0  # stands for 1 where numbers are encoded
    return feeds


def _quantized(bits: int, per_channel: bool) -> dict[str, Any]:
    kind = "PER_CHANNEL" if per_channel else "PER_TENSOR"
    return {"kv_cache_bit_width": bits, "k_quant_type": kind, "v_quant_type": kind} if bits else {}


def _check(feeds: dict[str, Array], dtype: str = "float32", **attrs: Any) -> None:
    tolerance = 2e-5 if dtype == "float32" else 4e-3
    given_ = {name: guarded(array) for name, array in feeds.items() if name != "total"}
    assert_native_agrees(model_of(feeds, **attrs), given_, rtol=tolerance, atol=tolerance)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 80),
    st.integers(0, 70),
    st.sampled_from([4, 8]),
    st.booleans(),
    st.sampled_from([2, 6, 16, 34, 64]),
    st.sampled_from(["float32", "float32", "float16"]),
)
def test_caches_of_integers_agree(
    queries: int, past: int, more: int, bits: int, per_channel: bool, size: int, dtype: str
) -> None:
    lengths = [queries + past, queries + past // 2]
    feeds = _feeds(queries, queries + past + more, lengths, bits=bits, per_channel=per_channel, size=size, dtype=dtype)
    if past == 0:
        feeds["total"] += 1  # or it would be a prompt, which all entries begin at 0
    _check(feeds, dtype, **_quantized(bits, per_channel))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("per_channel", [False, True])
def test_caches_of_integers_agree_with_other_settings(bits: int, per_channel: bool) -> None:
    settings_: list[dict[str, Any]] = [{"local_window_size": 7}, {"softcap": 3.0}, {"smooth_softmax": 1}]
    for queries, room, lengths in ((30, 30, [30, 30]), (1, 90, [80, 3]), (9, 400, [300, 290])):
        feeds = _feeds(queries, room, lengths, bits=bits, per_channel=per_channel)
        draw = np.random.default_rng(0)
        turned = {name: draw.standard_normal((400, 8)).astype(np.float32) for name in ("cos", "sin")}
        for attrs in settings_:
            _check(feeds, **_quantized(bits, per_channel), **attrs)
        _check(feeds | turned, **_quantized(bits, per_channel), do_rotary=1)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 50),
    st.integers(1, 40),
    st.integers(0, 30),
    st.lists(st.integers(0, 300), min_size=2, max_size=2),
    st.sampled_from([0, 0, 4, 8]),
    st.sampled_from(["float32", "float32", "float16"]),
)
def test_sliding_caches_agree(queries: int, window: int, slack: int, past: list[int], bits: int, dtype: str) -> None:
    lengths = [queries + each for each in past]
    feeds = _feeds(queries, window + slack, lengths, bits=bits, dtype=dtype)
    _check(feeds, dtype, sliding_window_cache=1, local_window_size=window, **_quantized(bits, per_channel=False))


def test_sliding_caches_turn_by_positions_in_the_whole_sequence() -> None:
    draw = np.random.default_rng(0)
    turned = {name: draw.standard_normal((400, 8)).astype(np.float32) for name in ("cos", "sin")}
    for queries, lengths in ((1, [300, 17]), (5, [303, 5]), (60, [60, 60])):
        _check(_feeds(queries, 24, lengths) | turned, sliding_window_cache=1, local_window_size=20, do_rotary=1)


@pytest.mark.parametrize("bits", [0, 4, 8])
@pytest.mark.parametrize(("queries", "past"), [(1, 200), (1, 3), (20, 200), (150, 0)])
def test_sliding_caches_hold_what_onnxruntime_keeps(bits: int, queries: int, past: int) -> None:
    room, window = 48, 32
    feeds = _feeds(queries, room, [queries + past], bits=bits, size=32)
    content = model_of(feeds, sliding_window_cache=1, local_window_size=window, **_quantized(bits, per_channel=False))
    fed = {name: array for name, array in feeds.items() if name != "total"}
    ours = sardonyx.InferenceSession(content).run(None, fed)
    theirs = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, fed)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-5, atol=2e-5)
    step = room - window + 1
    over = queries + past - room
    held = queries + past if over <= 0 else queries + past - step * -(-over // step)
    for found, expected in zip(ours[1:], theirs[1:]):  # what lies behind these rows is left as it was by onnxruntime
        np.testing.assert_array_equal(found[:, :, :held], expected[:, :, :held])
        assert not found[:, :, held:].any()


@pytest.mark.parametrize("at_start", [False, True])
def test_nothing_outside_of_caches_is_touched(at_start: bool) -> None:
    cases: list[tuple[dict[str, Array], dict[str, Any]]] = [
        (_feeds(3, 37, [37, 5], bits=8), _quantized(8, per_channel=False)),
        (_feeds(1, 37, [30, 5], bits=4, per_channel=True, size=6), _quantized(4, per_channel=True)),
        (_feeds(7, 21, [90, 9]), {"sliding_window_cache": 1, "local_window_size": 19}),
        (_feeds(1, 37, [30, 5], dtype="float16"), {}),
    ]
    for feeds, attrs in cases:
        content = model_of(feeds, **attrs)
        graph, compiled = compile_native(content)
        with guarded_memory(at_start=at_start) as guard:
            results = run_native(graph, compiled, guarded_feeds(guard, {name: feeds[name] for name in feeds if name != "total"}))
            for found, expected in zip(results, run_reference(content, feeds)):
                np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("lengths", [[0, 9], [300, 9], [2, 9]])
def test_wrong_lengths_are_refused(lengths: list[int]) -> None:
    feeds = _feeds(4, 21, lengths, bits=8)
    fed = {name: array for name, array in feeds.items() if name != "total"}
    with pytest.raises(sardonyx.errors.SardonyxError):
        sardonyx.InferenceSession(model_of(feeds, **_quantized(8, per_channel=False))).run(None, fed)


def test_a_sliding_cache_smaller_than_its_window_is_refused() -> None:
    feeds = _feeds(1, 21, [40])
    fed = {name: array for name, array in feeds.items() if name != "total"}
    with pytest.raises(sardonyx.errors.SardonyxError):
        sardonyx.InferenceSession(model_of(feeds, sliding_window_cache=1, local_window_size=22)).run(None, fed)
