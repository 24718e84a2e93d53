"""Loops whose carried values change their sizes: native iterations give what the definition gives, for any growth and any end."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from guarded import guarded
from native_support import run_reference
from sardonyx.runtime import growing_loop, native_loop
from sardonyx.runtime.native_loop import NativeLoop

Array = np.ndarray[Any, Any]
F32 = np.float32


def model(graph: str) -> bytes:
    content: bytes = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {graph}').SerializeToString()
    return content


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each loop that ran, whether its iterations followed each other in native code."""
    seen: list[bool] = []
    original = NativeLoop.run

    def run(self: NativeLoop, *args: Any) -> Any:
        results = original(self, *args)
        seen.append(results is not None)
        return results

    monkeypatch.setattr(NativeLoop, "run", run)
    return seen


def assert_same(session: sardonyx.InferenceSession, content: bytes, feeds: dict[str, Any]) -> list[Any]:
    actual, expected = session.run(None, feeds), run_reference(content, feeds)
    for mine, other in zip(actual, expected, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)
    return list(actual)


# A value that grows in front or behind, its last part alone, one that keeps its size and is stacked, a sum over all of it.
DECODER = """g (float[B,k,3] x, float[B,3] h, int64 n, int64 last)
  => (float[B,m,3] tokens, float[B,3] state, float all, float sums) {
  tokens, state, all, sums = Loop(LIMIT, , x, h) <body =
    turn (int64 i, bool c, float[b,q,3] u, float[b,3] s)
      => (bool goes, float[b,r,3] v, float[b,3] t, float[b,3] t, float[b,3] p) {
      goes = Less(i, last)
      axis = Constant<value = int64[1] {1}>()
      p = ReduceSum<keepdims = 0>(u, axis)
      a = Add(s, p)
      t = Tanh(a)
      e = Unsqueeze(t, axis)
      v = Concat<axis = 1>(ORDER)
    }>
}"""


@settings(max_examples=25, deadline=None)
@given(
    order=st.sampled_from(["u, e", "e, u", "u, e, e"]),
    limited=st.booleans(),
    calls=st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 90), st.integers(0, 70)), min_size=1, max_size=4
    ),
    first=st.sampled_from([1, 3, 32]),
    seed=st.integers(0, 99),
)
def test_a_value_that_grows_is_what_its_turns_give(
    order: str, limited: bool, calls: list[tuple[int, int, int, int]], first: int, seed: int
) -> None:
    content = model(DECODER.replace("ORDER", order).replace("LIMIT", "n" if limited else ""))
    session = sardonyx.InferenceSession(content)
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_loop, "_FIRST", first)
        patch.setattr(growing_loop, "_ROOM", 64 * first)
        patch.setattr(native_loop, "_FIRST_ROUND", 7)
        for rows, length, trips, last in calls:
            x = rng.standard_normal((rows, length, 3)).astype(F32)
            h = rng.standard_normal((rows, 3)).astype(F32)
            assert_same(session, content, {"x": x, "h": h, "n": np.array(trips), "last": np.array(last)})


def test_iterations_stay_in_native_code(native: list[bool]) -> None:
    content = model(DECODER.replace("ORDER", "u, e").replace("LIMIT", "n"))
    session = sardonyx.InferenceSession(content)
    for rows, length, trips, last in ((2, 1, 70, 99), (2, 1, 20, 99), (2, 1, 90, 40), (1, 5, 3, 99)):
        x, h = np.ones((rows, length, 3), F32), np.zeros((rows, 3), F32)
        tokens, *_ = assert_same(session, content, {"x": x, "h": h, "n": np.array(trips), "last": np.array(last)})
        assert tokens.shape == (rows, length + min(trips, last + 1), 3)
    assert native == [True] * 4


DOUBLING = """g (float[k] x, int64 n) => (float[m] y) {
  y = Loop(n, , x) <body = turn (int64 i, bool c, float[q] u) => (bool c, float[r] v) { v = Concat <axis = 0> (u, u) }>
}"""


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_value_that_doubles(native: list[bool], length: int) -> None:
    session = sardonyx.InferenceSession(model(DOUBLING))
    (y,) = assert_same(session, model(DOUBLING), {"x": np.arange(length, dtype=F32), "n": np.array(12)})
    assert y.shape == (length << 12,)
    assert native == [True]


def test_memory_is_in_proportion_to_the_iterations_there_are() -> None:
    # 2^60 elements, if the loop did not end: nothing is planned that far ahead.
    content = model("""g (float[k] x, int64 last) => (float[m] y) {
      y = Loop(, , x) <body = turn (int64 i, bool c, float[q] u) => (bool goes, float[r] v) {
        goes = Less(i, last)
        v = Concat <axis = 0> (u, u)
      }>
    }""")
    (y,) = sardonyx.InferenceSession(content).run(None, {"x": np.ones(1, F32), "last": np.array(4)})
    assert y.shape == (32,)


def test_a_session_that_is_dropped_leaves_no_loop_behind(native: list[bool]) -> None:
    def loops() -> int:
        return sum(type(each) is NativeLoop for each in gc.get_objects())

    gc.collect()
    before = loops()
    session = sardonyx.InferenceSession(model(DOUBLING))
    session.run(None, {"x": np.ones(3, F32), "n": np.array(4)})
    assert native == [True]
    assert loops() > before
    gc.collect()
    gc.disable()  # what a session holds does not wait for a search for cycles
    try:
        del session
        assert loops() == before
    finally:
        gc.enable()


SHRINKING = """g (float[k] x, int64 n, int64 at) => (float[m] y, float[t] firsts) {
  one = Constant<value = int64[1] {1}>()
  many = Constant<value = int64[1] {1000}>()
  y, firsts = Loop(n, , x) <body = turn (int64 i, bool c, float[q] u) => (bool c, float[r] v, float f) {
    v = Slice(u, one, many)
    f = Gather(u, at)
  }>
}"""


def test_a_value_that_shrinks(native: list[bool]) -> None:
    content = model(SHRINKING)
    session = sardonyx.InferenceSession(content)
    for trips in (1, 5, 9):
        assert_same(session, content, {"x": np.arange(9, dtype=F32), "n": np.array(trips), "at": np.array(0)})
    assert native == [True] * 3


def test_bad_data_names_the_iteration() -> None:
    session = sardonyx.InferenceSession(model(SHRINKING))
    for _ in range(2):
        with pytest.raises(sardonyx.InvalidArgument, match=r"iteration 7: .*Gather"):
            session.run(None, {"x": np.arange(9, dtype=F32), "n": np.array(11), "at": np.array(2)})
        y, firsts = session.run(None, {"x": np.arange(9, dtype=F32), "n": np.array(4), "at": np.array(2)})
        assert y.tolist() == [4, 5, 6, 7, 8]
        assert firsts.tolist() == [2, 3, 4, 5]


def test_sizes_that_do_not_fit_are_refused_as_the_definition_does() -> None:
    content = model("""g (float[k] x, float[4] w, int64 n) => (float[m] y) {
      one = Constant<value = float[1] {1.0}>()
      y = Loop(n, , x) <body = turn (int64 i, bool c, float[q] u) => (bool c, float[r] v) {
        s = Add(u, w)
        v = Concat<axis = 0>(s, one)
      }>
    }""")
    session = sardonyx.InferenceSession(content)
    feeds = {"x": np.ones(4, F32), "w": np.ones(4, F32)}
    (y,) = session.run(None, {**feeds, "n": np.array(1)})
    assert y.tolist() == [2, 2, 2, 2, 1]
    with pytest.raises(sardonyx.InvalidArgument, match="broadcast"):
        session.run(None, {**feeds, "n": np.array(3)})


def test_slices_of_changing_sizes_cannot_be_stacked() -> None:
    content = model("""g (float[k] x, int64 n) => (float[m] y, float all) {
      y, all = Loop(n, , x) <body = turn (int64 i, bool c, float[q] u) => (bool c, float[r] v, float[r] v) {
        v = Concat <axis = 0> (u, u)
      }>
    }""")
    with pytest.raises(sardonyx.SardonyxError, match="changes its shape"):
        sardonyx.InferenceSession(content).run(None, {"x": np.ones(2, F32), "n": np.array(3)})


def test_nothing_outside_of_the_buffers_is_touched(monkeypatch: pytest.MonkeyPatch, native: list[bool]) -> None:
    monkeypatch.setattr(native_loop, "_memory", lambda shape, dtype: guarded(np.zeros(shape, dtype)))
    content = model(DECODER.replace("ORDER", "u, e").replace("LIMIT", "n"))
    session = sardonyx.InferenceSession(content)
    for length in (0, 1, 13):
        x, h = guarded(np.ones((2, length, 3), F32)), guarded(np.zeros((2, 3), F32))
        assert_same(session, content, {"x": x, "h": h, "n": np.array(50), "last": np.array(99)})
    assert native == [True] * 3


ATTENTION = """g (float[1,k,64] x, float[64,64] w, int64 n) => (float[1,m,64] y) {
  from = Constant<value = int64[1] {-1}>()
  to = Constant<value = int64[1] {100000}>()
  axis = Constant<value = int64[1] {1}>()
  y = Loop(n, , x) <body = turn (int64 i, bool c, float[1,q,64] u) => (bool c, float[1,r,64] v) {
    last = Slice(u, from, to, axis)
    query = MatMul(last, w)
    keys = Transpose<perm = [0, 2, 1]>(u)
    scores = MatMul(query, keys)
    shares = Softmax<axis = -1>(scores)
    mixed = MatMul(shares, u)
    next = Tanh(mixed)
    v = Concat<axis = 1>(u, next)
  }>
}"""


def test_any_number_of_threads_gives_the_same_bits(native: list[bool]) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 300, 64)).astype(F32),
        "w": rng.standard_normal((64, 64)).astype(F32),
        "n": np.array(80),
    }
    results = []
    for threads in (1, 2, 3):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        results.append(sardonyx.InferenceSession(model(ATTENTION), options).run(None, feeds)[0])
    np.testing.assert_allclose(results[0], run_reference(model(ATTENTION), feeds)[0], rtol=1e-4, atol=1e-4)
    assert all((result == results[0]).all() for result in results)
    assert native == [True] * 3
