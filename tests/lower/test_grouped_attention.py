"""Attention of grouped heads behind a cache: sinks, positions of one's own, normalized heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from grouped_attention_model import model_of
from guarded import guarded
from native_support import assert_native_agrees
from sardonyx.explanation import explain_model
from sardonyx.ir.tensor import Array


def _feeds(queries: int, room: int, lengths: list[int], total: int, dtype: str = "float32") -> dict[str, Array]:
    draw = np.random.default_rng(queries + 7 * room)

    def numbers(*shape: int) -> Array:
        return draw.standard_normal(shape).astype(dtype)

    feeds = {"query": numbers(2, queries, 64), "key": numbers(2, queries, 32), "value": numbers(2, queries, 32)}
    if room:
        feeds |= {"past_key": numbers(2, 2, room, 16), "past_value": numbers(2, 2, room, 16)}
    return feeds | {"seqlens_k": np.array(lengths, np.int32) - 1, "total": np.array([total], np.int32)}


_CASES = [(5, 0, [5, 3], 5), (5, 12, [5, 4], 5), (1, 12, [8, 3], 8), (30, 64, [50, 31], 50), (3, 300, [300, 290], 300)]
_NAMES = ["prompt", "prompt with room", "one more", "many more", "several parts"]


def _check(feeds: dict[str, Array], dtype: str = "float32", **attrs: Any) -> None:
    """Nothing is left to Python, and answers are those of the definition."""
    tolerance = 2e-5 if dtype == "float32" else 4e-3
    given_ = {name: guarded(array) for name, array in feeds.items() if name != "total"}
    assert_native_agrees(model_of(feeds, **attrs), given_, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("queries", "room", "lengths", "total"), _CASES, ids=_NAMES)
def test_sinks_agree(queries: int, room: int, lengths: list[int], total: int, dtype: str) -> None:
    feeds = _feeds(queries, room, lengths, total, dtype)
    _check(feeds, dtype, smooth_softmax=1)
    _check(feeds | {"head_sink": np.array([0.5, -2, 30, -30], dtype)}, dtype, local_window_size=3)


@given(st.lists(st.sampled_from([0.0, 1.5, -3.0, 80.0, -80.0, -np.inf, np.inf]), min_size=4, max_size=4))
def test_any_sinks_agree(sinks: list[float]) -> None:
    feeds = _feeds(3, 8, [7, 4], 7)
    _check(feeds | {"head_sink": np.array(sinks, np.float32)})


@pytest.mark.parametrize(("queries", "room", "lengths", "total"), _CASES, ids=_NAMES)
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotation_by_given_positions_agrees(queries: int, room: int, lengths: list[int], total: int, interleaved: int) -> None:
    draw = np.random.default_rng(1)
    feeds = _feeds(queries, room, lengths, total) | {
        "cos": draw.standard_normal((400, 8)).astype(np.float32),
        "sin": draw.standard_normal((400, 8)).astype(np.float32),
        "position_ids": draw.integers(0, 90, (2, queries)),
    }
    _check(feeds, do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.parametrize(("queries", "room", "lengths", "total"), _CASES, ids=_NAMES)
def test_normalized_heads_agree(queries: int, room: int, lengths: list[int], total: int) -> None:
    draw = np.random.default_rng(2)
    feeds = _feeds(queries, room, lengths, total)
    feeds["q_norm_weight"] = draw.standard_normal(16).astype(np.float32)
    settings: list[dict[str, Any]] = [{}, {"qk_norm_epsilon": 1e-3}]
    for attrs in settings:
        content = model_of(feeds, **attrs)
        given_ = {name: array for name, array in feeds.items() if name != "total"}
        compiled = sardonyx.InferenceSession(content)
        reference = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
        for actual, expected in zip(compiled.run(None, given_), reference.run(None, given_), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)
        feeds["k_norm_weight"] = draw.standard_normal(16).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("queries", "room", "lengths", "total"), _CASES, ids=_NAMES)
def test_a_total_length_that_is_fed_is_native(queries: int, room: int, lengths: list[int], total: int, dtype: str) -> None:
    feeds = _feeds(queries, room, lengths, total, dtype)
    model = model_of(feeds, feeds_total=True)
    assert not explain_model(model).host_steps
    ours, meaning = (
        sardonyx.InferenceSession(model, providers=[f"{name}ExecutionProvider"]) for name in ("CPU", "SardonyxReference")
    )
    tolerance = 2e-5 if dtype == "float32" else 4e-3
    for found, expected in zip(ours.run(None, {name: guarded(array) for name, array in feeds.items()}), meaning.run(None, feeds)):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_one_program_serves_all_total_lengths() -> None:
    feeds = _feeds(1, 6, [6, 3], 6)
    model = model_of(feeds, feeds_total=True)
    ours, meaning = (
        sardonyx.InferenceSession(model, providers=[f"{name}ExecutionProvider"]) for name in ("CPU", "SardonyxReference")
    )
    for total in (6, 7, 2, 6, 0, -1):
        one = feeds | {"total": np.array([total], np.int32)}
        results = zip(ours.run(None, one), meaning.run(None, one))
        for found, expected in results:
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("lengths", "total"), [([6, 8], 6), ([0, 3], 6), ([6, -1], 6), ([8, 3], 7)])
def test_lengths_that_do_not_fit_a_total_that_is_fed_are_refused(lengths: list[int], total: int) -> None:
    feeds = _feeds(1, 6, lengths, total)
    with pytest.raises(sardonyx.InvalidArgument, match="seqlens_k"):
        sardonyx.InferenceSession(model_of(feeds, feeds_total=True)).run(None, feeds)


@pytest.mark.parametrize("attrs", [{}, {"local_window_size": 3}, {"softcap": 5.0}])
@pytest.mark.parametrize("opens", [1, 2], ids=["compiled", "opened from the cache"])
def test_past_and_present_may_be_one_buffer_where_the_total_length_is_fed(attrs: dict[str, Any], opens: int) -> None:
    feeds = _feeds(1, 40, [17, 5], 17)
    model = model_of(feeds, feeds_total=True, **attrs)
    for _ in range(opens):
        session = sardonyx.InferenceSession(model)
        caches = {name: sardonyx.OrtValue.ortvalue_from_numpy(feeds[name].copy()) for name in ("past_key", "past_value")}
        binding = session.io_binding()
        for name, array in feeds.items():
            if name in caches:
                binding.bind_ortvalue_input(name, caches[name])
            else:
                binding.bind_cpu_input(name, array)
        binding.bind_output("Y")
        for name, cache in caches.items():
            binding.bind_ortvalue_output(name.replace("past", "present"), cache)
        session.run_with_iobinding(binding)
        [answer, *_] = binding.copy_outputs_to_cpu()
    [expected, *presents] = session.run(None, feeds)
    np.testing.assert_array_equal(answer, expected)
    for (name, cache), present in zip(caches.items(), presents):
        held, before = cache.numpy(), feeds[name]
        for entry, length in enumerate((17, 5)):
            np.testing.assert_array_equal(held[entry, :, :length], present[entry, :, :length])
            np.testing.assert_array_equal(held[entry, :, length:], before[entry, :, length:])  # nothing else is touched
