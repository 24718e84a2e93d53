"""Runs for arrays whose shapes change again and again: results, refusals, and the program's own way in between."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from model_text import model
from sardonyx.provider_names import REFERENCE_PROVIDER
from sardonyx.runtime import staged_run
from sardonyx.runtime.native_core import NativeCore
from sardonyx.runtime.segment_runner import SegmentRunner
from threads import at_once

F32 = np.float32
LAYERS = """(float[N,8] x, float[M,N] s) => (float[M,8] y, float[K,2] w) {
    a = Softmax(s) b = MatMul(a, x) c = Tanh(b) m = ReduceMean<axes=[1], keepdims=1>(c) y = Sub(c, m)
    z = NonZero(y) zt = Transpose<perm=[1,0]>(z) w = Cast<to=1>(zt)
}"""
SUMS = "(float[N,M] x, float[N,M] y, float[M] z) => (float[N,M] a, float[M,N] b) { s = Add(x, y) a = Mul(s, z) b = Transpose(a) }"


def sessions(text: str, threads: int = 0) -> tuple[Any, Any]:
    content, options = model(text), sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    return (
        sardonyx.InferenceSession(content, options, providers=["CPUExecutionProvider"]),
        sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER]),
    )


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(F32)


def assert_same(session: Any, reference: Any, feeds: dict[str, Any]) -> None:
    for found, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


SIZES = st.sampled_from((0, 1, 2, 3, 5, 8, 17, 40))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(SIZES, SIZES), min_size=12, max_size=30), st.sampled_from((1, 2)))
def test_every_run_is_as_the_definition_says(shapes: list[tuple[int, int]], threads: int) -> None:
    for text in (LAYERS, SUMS):
        session, reference = sessions(text, threads)
        for n, m in shapes:
            if text == SUMS:
                feeds = {"x": numbers(n, m), "y": numbers(n, m), "z": numbers(m)}
            else:
                feeds = {"x": numbers(n, 8), "s": numbers(m, max(n, 1))[:, :n]}
            assert_same(session, reference, feeds)


def test_shapes_that_change_again_and_again_are_not_set_up_for_in_python() -> None:
    for text in (LAYERS, SUMS):
        session, reference = sessions(text)

        def feeds(n: int, text: str = text) -> dict[str, Any]:
            two = {"x": numbers(n, 8), "s": numbers(3, n)}
            return two if text == LAYERS else {"x": numbers(n, 3), "y": numbers(n, 3), "z": numbers(3)}

        for n in range(2, 14):
            session.run(None, feeds(n))
        fit, run_arrays = patch.object(NativeCore, "fit"), patch.object(SegmentRunner, "run_arrays")
        with fit as fitted, run_arrays as ran:
            for n in (30, 2, 7, 1, 7):
                assert_same(session, reference, feeds(n))
        assert not fitted.called
        assert not ran.called
        for n in (7, 7, 7, 2, 7, 2, 2, 2, 3):
            assert_same(session, reference, feeds(n))


def test_contradictions_are_refused_and_leave_nothing_behind() -> None:
    session, reference = sessions(SUMS)
    for n in range(2, 30):
        assert_same(session, reference, {"x": numbers(n, 4), "y": numbers(n, 4), "z": numbers(4)})
        if n % 3 == 0:
            with pytest.raises(sardonyx.errors.SardonyxError):
                session.run(None, {"x": numbers(n, 4), "y": numbers(n, 4), "z": numbers(n + 5)})


def test_results_of_an_earlier_run_stay() -> None:
    session, _ = sessions(SUMS)
    kept = []
    for n in range(2, 30):
        results = session.run(None, {"x": numbers(n, 4), "y": numbers(n, 4), "z": numbers(4)})
        kept.append((results, [array.copy() for array in results]))
    for results, copies in kept:
        for found, expected in zip(results, copies, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_too_little_room_is_left_to_the_program() -> None:
    with patch.object(staged_run, "_ROOM", 1 << 12):
        session, reference = sessions(LAYERS)
        for n in [*range(2, 14), *(100, 900, 3, 901, 4, 902, 5, 903, 904, 905, 906, 907, 908), *range(2, 14)]:
            assert_same(session, reference, {"x": numbers(n, 8), "s": numbers(5, n)})


def test_arrays_in_another_order_and_of_other_types() -> None:
    session, reference = sessions(SUMS)
    for n in range(2, 30):
        feeds = {"x": numbers(n, 4), "y": numbers(4, n).T, "z": numbers(8)[::2]}
        assert_same(session, reference, feeds)
        if n % 5 == 0:
            with pytest.raises(sardonyx.errors.SardonyxError, match="y"):
                session.run(None, feeds | {"y": feeds["y"].astype(np.float64)})


def test_threads_have_their_own_shapes() -> None:
    session, reference = sessions(LAYERS)
    wanted = {}
    for n in range(1, 12):
        feeds = {"x": numbers(n, 8), "s": numbers(4, n)}
        wanted[n] = feeds, reference.run(None, feeds)

    def work(number: int) -> None:
        for turn in range(200):
            feeds, expected = wanted[1 + (3 * number + turn) % 11]
            for found, each in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(found, each, rtol=1e-5, atol=1e-6)

    at_once(work, range(3))


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_that_are_worth_sharing(threads: int) -> None:
    session, reference = sessions(SUMS, threads)
    for n in [*range(400, 420), *range(2, 12)]:
        assert_same(session, reference, {"x": numbers(n, 300), "y": numbers(n, 300), "z": numbers(300)})
