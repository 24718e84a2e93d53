"""Runs of programs whose sizes are told in the middle: the same sizes again, others, refusals in between, several threads."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from guarded_session import assert_run_agrees, guarded_memory
from model_text import model
from sardonyx.provider_names import REFERENCE_PROVIDER
from sardonyx.runtime.segment_runner import SegmentRunner
from threads import at_once

# Sizes are told twice, one result is written before, one between, and two behind.
STAGES = """(float[N] x, int64[1] n) => (float[N] a, int64[1,M] b, float[K] c, float[P] d) {
    a = Abs(x) b = NonZero(x) s = ConstantOfShape<value=float[1] {2.0}>(n) t = Neg(s)
    m = Shape(b) i = Constant<value_ints=[1]>() z = Gather(m, i) r = ConstantOfShape<value=float[1] {1.0}>(z)
    c = Exp(r) d = Exp(t)
}"""


def sessions(text: str) -> tuple[Any, Any]:
    content = model(text)
    return (
        sardonyx.InferenceSession(content, providers=["CPUExecutionProvider"]),
        sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER]),
    )


def numbers(chosen: str) -> np.ndarray[Any, Any]:
    """Elements that are not zero where there is an x."""
    return np.array([index + 1.5 if each == "x" else 0.0 for index, each in enumerate(chosen)], np.float32)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("x--", "-x-", "xx-", "---", "xxxx")), st.sampled_from((0, 2, 2, 3, -1))), max_size=12))
def test_every_run_is_as_the_definition_says(runs: list[tuple[str, int]]) -> None:
    for at_start in (False, True):
        with guarded_memory(at_start) as guard:
            session, reference = sessions(STAGES)
            for chosen, size in runs:
                feeds = {"x": numbers(chosen), "n": np.array([size])}
                assert_run_agrees(session, reference, guard, feeds, rtol=1e-6)


def test_a_run_that_finds_the_same_sizes_sets_nothing_up() -> None:
    session, _ = sessions(STAGES)
    feeds = {"x": numbers("xx-"), "n": np.array([2])}
    for _ in range(3):
        session.run(None, feeds)
    with patch.object(SegmentRunner, "run_arrays", side_effect=AssertionError):
        session.run(None, {"x": numbers("-xx"), "n": np.array([2])})


def test_other_sizes_go_on_where_they_are_found() -> None:
    session, reference = sessions(STAGES)
    feeds = {"x": numbers("xx-"), "n": np.array([2])}
    for _ in range(3):
        session.run(None, feeds)
    other = {"x": numbers("x--"), "n": np.array([2])}
    with patch.object(SegmentRunner, "run_arrays", side_effect=AssertionError):
        results = session.run(None, other)
    for found, expected in zip(results, reference.run(None, other)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_results_of_an_earlier_run_stay() -> None:
    session, _ = sessions(STAGES)
    feeds = {"x": numbers("xx-"), "n": np.array([2])}
    for _ in range(3):
        session.run(None, feeds)
    first = session.run(None, feeds)
    copies = [array.copy() for array in first]
    session.run(None, {"x": -numbers("-xx"), "n": np.array([2])})
    for found, expected in zip(first, copies):
        np.testing.assert_array_equal(found, expected)


def test_threads_have_their_own_sizes() -> None:
    session, _ = sessions("(float[N] x) => (float[K] y) { i = NonZero(x) j = Squeeze(i) k = Cast<to=1>(j) y = Neg(k) }")

    def work(number: int) -> None:
        chosen = "x" * (number + 1) + "-" * (5 - number)
        for _ in range(200):
            (found,) = session.run(None, {"x": numbers(chosen)})
            np.testing.assert_array_equal(found, -np.arange(number + 1, dtype=np.float32))

    at_once(work, range(3))
