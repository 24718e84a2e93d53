"""Runs whose sizes become known in stages: their instructions, the memory of what lies between, and what is left to Python."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from model_text import model
from sardonyx.codegen import blocks
from sardonyx.compile.assemble import library
from sardonyx.program import sizes as table
from sardonyx.provider_names import REFERENCE_PROVIDER
from sardonyx.runtime import staged_run
from sardonyx.runtime.native_core import address_of
from sardonyx.runtime.segment_runner import SegmentRunner
from threads import at_once

# Two sizes are told, the second by what the first has led to; a result is written before, between and behind.
TWICE = """(float[N] x, float[M] y) => (float[N] a, float[K] some, float[L] more, float[L,1] last) {
    a = Abs(x) zero = Constant<value_float=0.0>() two = Constant<value_float=2.0>()
    p = Greater(x, zero) some = Compress<axis=0>(x, p) e = Exp(some) m = ReduceMax<keepdims=0>(y)
    s = Add(e, m) q = Greater(s, two) f = Compress<axis=0>(s, q) g = Neg(f) h = Sqrt(f) more = Add(g, h)
    i = Constant<value_ints=[1]>() last = Unsqueeze(h, i)
}"""
STAGES = """(float[N] x, int64[1] n) => (float[N] a, int64[1,M] b, float[K] c, float[P] d) {
    a = Abs(x) b = NonZero(x) s = ConstantOfShape<value=float[1] {2.0}>(n) t = Neg(s)
    m = Shape(b) i = Constant<value_ints=[1]>() z = Gather(m, i) r = ConstantOfShape<value=float[1] {1.0}>(z)
    c = Exp(r) d = Exp(t)
}"""
WORDS = st.text(alphabet="+-0", min_size=0, max_size=40)


def sessions(text: str, threads: int = 0) -> tuple[Any, Any]:
    content, options = model(text), sardonyx.SessionOptions()
    options.intra_op_num_threads = threads
    return (
        sardonyx.InferenceSession(content, options, providers=["CPUExecutionProvider"]),
        sardonyx.InferenceSession(content, providers=[REFERENCE_PROVIDER]),
    )


def numbers(signs: str) -> np.ndarray[Any, Any]:
    return np.array(
        [{"+": 1.0, "-": -1.0, "0": 0.0}[sign] * (0.1 + place % 7 / 3) for place, sign in enumerate(signs)], np.float32
    )


def assert_same(session: Any, reference: Any, feeds: dict[str, Any]) -> None:
    for found, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=2e-6)


@settings(max_examples=40, deadline=None)
@given(st.lists(WORDS.map(lambda word: word.ljust(40, "-")), min_size=3, max_size=12), st.sampled_from((1, 2)))
def test_every_run_is_as_the_definition_says(words: list[str], threads: int) -> None:
    session, reference = sessions(TWICE, threads)
    for number, word in enumerate(words):
        assert_same(session, reference, {"x": numbers(word), "y": np.array([number % 3], np.float32)})


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("+--", "-+-", "++0", "000")), st.sampled_from((0, 2, 3, 70, -1))), min_size=3, max_size=12
    )
)
def test_what_the_definition_refuses_is_refused(runs: list[tuple[str, int]]) -> None:
    session, reference = sessions(STAGES)
    for signs, size in runs:
        feeds = {"x": numbers(signs), "n": np.array([size])}
        if size < 0:
            with pytest.raises(sardonyx.errors.SardonyxError):
                session.run(None, feeds)
        else:
            assert_same(session, reference, feeds)


def test_other_sizes_need_no_python_between_stages() -> None:
    session, reference = sessions(TWICE)
    y = np.ones(3, np.float32)
    for _ in range(3):
        session.run(None, {"x": numbers("+-+-+-+-"), "y": y})
    with patch.object(SegmentRunner, "run_arrays", side_effect=AssertionError):
        for word in ("++++++++", "--------", "+-------", "00++00++"):
            assert_same(session, reference, {"x": numbers(word), "y": y})


def test_shapes_and_sizes_in_turns() -> None:
    session, reference = sessions(TWICE)
    for word in ("+-+-", "+-+-", "++--", "++", "+-", "+-", "----", "++++", "+++-", "", "", "+-+-"):
        assert_same(session, reference, {"x": numbers(word), "y": np.ones(2, np.float32)})


def test_results_of_an_earlier_run_stay() -> None:
    session, _ = sessions(TWICE)
    feeds = {"x": numbers("++-+"), "y": np.ones(1, np.float32)}
    for _ in range(3):
        session.run(None, feeds)
    first = session.run(None, feeds)
    copies = [array.copy() for array in first]
    session.run(None, {"x": numbers("-+++"), "y": np.zeros(1, np.float32)})
    for found, expected in zip(first, copies):
        np.testing.assert_array_equal(found, expected)


def test_bound_results_and_others_in_turns() -> None:
    """Runs into a caller's arrays set sizes up in Python: what native code had set up does not count afterwards."""
    session, reference = sessions(TWICE)
    y = np.ones(1, np.float32)
    for turn, word in enumerate(("+++-", "+++-", "++--", "+---", "+++-", "++++", "----", "++--", "++--", "+-+-") * 2):
        feeds = {"x": numbers(word), "y": y}
        if turn % 3 != 2:
            assert_same(session, reference, feeds)
            continue
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        expected = reference.run(None, feeds)
        target = np.empty_like(expected[1])
        binding.bind_output("some", "cpu", 0, np.float32, target.shape, target.ctypes.data)
        binding.bind_output("more")
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(target, expected[1])
        np.testing.assert_allclose(binding.copy_outputs_to_cpu()[1], expected[2], rtol=2e-6)


def test_too_little_room_is_left_to_python() -> None:
    with patch.object(staged_run, "_ROOM", 1 << 12):
        session, reference = sessions(TWICE)
        y = np.ones(1, np.float32)
        for word in ("+" * 10, "-" * 10) * 3:
            assert_same(session, reference, {"x": numbers(word * 300), "y": y})
        for word in ("+" * 10,) * 20:
            assert_same(session, reference, {"x": numbers(word * 300), "y": y})


def test_bad_data_is_named_and_leaves_nothing_behind() -> None:
    text = """(float[N] x, float[5] t) => (float[K] y, float[K] z) {
        i = NonZero(x) a = Constant<value_ints=[0]>() j = Squeeze(i, a) c = Gather(x, j) k = Cast<to=7>(c)
        y = Gather(t, k) z = Neg(y)
    }"""
    session, reference = sessions(text)
    t = np.arange(5, dtype=np.float32)
    for values in ((1, 0, 2), (0, 4, 0), (1, 1, 1), (0, 9, 1), (3, 3, 0), (0, 0, 0), (7, 0, 0), (2, 2, 2)):
        feeds = {"x": np.array(values, np.float32), "t": t}
        if max(values) > 4:
            with pytest.raises(sardonyx.errors.SardonyxError, match="Gather"):
                session.run(None, feeds)
        else:
            assert_same(session, reference, feeds)


def test_threads_have_their_own_sizes() -> None:
    session, _ = sessions("(float[N] x) => (float[K] y) { i = NonZero(x) j = Squeeze(i) k = Cast<to=1>(j) y = Neg(k) }")

    def work(number: int) -> None:
        for turn in range(200):
            signs = "+" * (1 + (number + turn) % 5)
            (found,) = session.run(None, {"x": numbers(signs.ljust(6, "0"))})
            np.testing.assert_array_equal(found, -np.arange(len(signs), dtype=np.float32))

    at_once(work, range(3))


# Instructions

_NATIVE = {
    code: staged_run._CODES[code]
    for code in (table.ADD, table.MUL, table.FLOORDIV, table.MOD, table.BROADCAST, table.MAX, table.MIN)
}


def follow(code: list[tuple[int, int, int, int]], values: list[int]) -> tuple[int, list[int]]:
    """What a run of instructions says, and the values it leaves."""
    instructions, cells = np.array(code, np.int64), np.array(values, np.int64)
    block = np.zeros(blocks.STAGED_ENTRIES, np.int64)
    block[blocks.STAGED_CODE], block[blocks.STAGED_VALUES] = address_of(instructions), address_of(cells)
    block[blocks.STAGED_CHANGED], block[blocks.STAGED_ROOM] = 1, 1 << 20
    staged_run._FUNCTION(library(None).driver().functions["staged"])(address_of(block))
    return int(block[blocks.STAGED_STATE]), cells.tolist()


@given(
    st.sampled_from(sorted(_NATIVE)),
    st.one_of(st.integers(-50, 50), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.one_of(st.integers(-9, 9), st.integers(-(1 << 63), (1 << 63) - 1)),
)
def test_operations_are_those_of_the_table_of_sizes(op: int, a: int, b: int) -> None:
    rows = [(table.SYMBOL, 0, 0), (table.SYMBOL, 1, 0), (op, 0, 1)]
    (expected,) = table.SizeTable(rows, [2], 2)(a, b)
    state, values = follow([(_NATIVE[op], 0, 1, 2), (blocks.STAGED_END, 0, 0, 0)], [a, b, 0])
    if state == blocks.STAGED_DONE:
        assert values == [a, b, expected]
    else:
        assert state == blocks.STAGED_REFUSED
        assert abs(expected) >= 1 << 62 or b == -1


@given(st.integers(-3, 3), st.integers(-3, 3))
def test_rules_of_sizes(a: int, b: int) -> None:
    for code, holds in ((blocks.STAGED_CHECK, a in (1, b)), (blocks.STAGED_EQUAL, a == b)):
        state, _ = follow([(code, 0, 1, 0), (blocks.STAGED_END, 0, 0, 0)], [a, b])
        assert state == (blocks.STAGED_DONE if holds else blocks.STAGED_REFUSED)


def test_an_unknown_instruction_is_refused() -> None:
    assert follow([(99, 0, 0, 0)], [0])[0] == blocks.STAGED_REFUSED
