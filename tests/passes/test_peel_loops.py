"""Loops whose carried values change their rank in the first iteration: the same results, and native iterations behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession, explain_model
from sardonyx.explanation import PassExplanation
from sardonyx.runtime.native_loop import NativeLoop

few = settings(deadline=None, max_examples=40)
F32 = np.float32


def model(graph: str, opset: int = 19) -> bytes:
    content: bytes = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}').SerializeToString()
    return content


def assert_same(content: bytes, feeds: dict[str, Any]) -> None:
    for found, wanted in zip(InferenceSession(content).run(None, feeds), run_reference(content, feeds), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def peeling(content: bytes) -> PassExplanation:
    (found,) = (each for each in explain_model(content).passes if each.name == "PeelLoops")
    return found


def changing(trips: str, begins: str, *, stacked: str = "", stops: bool = True) -> str:
    """A flag and a sum without axes that have one from the second iteration on; `stacked` is a result for each iteration."""
    result = ", all" if stacked else ""
    kinds = {"": ("", ""), "w": (", float[n,4] all", ", float[4] w"), "row": (", float[n,m] all", ", float[m] row")}
    outside, inside = kinds[stacked]
    condition = "Less(count2, most)" if stops else "Identity(c)"
    return f"""g (int64 n, bool go, float s, int64 most, float[m] v) => (float[k] total, int64[j] count{outside}) {{
      {trips}
      {begins}
      zero = Constant <value = int64 {{0}}>()
      total, count{result} = Loop(trips, begins, s, zero) <body = turn (int64 i, bool c, float sum, int64 number)
          => (bool c2, float[1] sum2, int64[1] count2{inside}) {{
        one = Constant <value = int64[1] {{1}}>()
        count2 = Add(number, one)
        four = Constant <value = float[4] {{1.0, 2.0, 3.0, 4.0}}>()
        place = Cast <to = 1> (i)
        w = Mul(four, place)
        row = Add(v, place)
        some = ReduceSum <keepdims = 0> (w)
        flat = Constant <value = int64[1] {{1}}>()
        more = Reshape(some, flat)
        sum2 = Add(sum, more)
        c2 = {condition}
      }}>
    }}"""


@few
@given(
    trips=st.integers(0, 5),
    most=st.integers(0, 4),
    begins=st.booleans(),
    literal=st.booleans(),
    stacked=st.sampled_from(("", "w", "row")),
    stops=st.booleans(),
    opset=st.sampled_from((13, 19)),
)
def test_any_number_of_iterations(
    trips: int, most: int, begins: bool, literal: bool, stacked: str, stops: bool, opset: int
) -> None:
    """Fed or literal, ended by the number or by the condition, without an iteration, with stacked results of any size."""
    count = f"trips = Constant <value = int64 {{{trips}}}>()" if literal else "trips = Identity(n)"
    condition = f"begins = Constant <value = bool {{{int(begins)}}}>()" if literal else "begins = Identity(go)"
    feeds = {"n": trips, "go": begins, "s": F32(2.5), "most": most, "v": np.arange(3, dtype=F32)}
    content = model(changing(count, condition, stacked=stacked, stops=stops), opset)
    assert_same(content, {name: np.asarray(value) for name, value in feeds.items()})


def test_iterations_behind_the_first_are_native(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = NativeLoop.run

    def run(self: NativeLoop, *args: Any) -> Any:
        seen.append(original(self, *args))
        return seen[-1]

    monkeypatch.setattr(NativeLoop, "run", run)
    feeds = {"n": 40, "go": True, "s": F32(0), "most": 30, "v": np.ones(2, F32)}
    for trips, begins in (("Constant <value = int64 {40}>()", "Constant <value = bool {1}>()"), ("Identity(n)", "Identity(go)")):
        content = model(changing(f"trips = {trips}", f"begins = {begins}"))
        assert_same(content, {name: np.asarray(value) for name, value in feeds.items()})
    assert len(seen) == 2
    assert None not in seen


def test_an_if_of_several_ranks_in_the_body_has_one_rank_behind_it() -> None:
    """The flag is a literal without axes on one side, and what was carried with an axis on the other."""
    content = model("""g (float[4] x) => (float[4] y, bool[k] flag) {
      n = Constant <value = int64 {20}>()
      go = Constant <value = bool {1}>()
      no = Constant <value = bool {0}>()
      y, flag = Loop(n, go, x, no) <body = turn (int64 i, bool c, float[4] s, bool f) => (bool c2, float[4] s2, bool[1] f2) {
        one = Constant <value = float {1.0}>()
        s2 = Add(s, one)
        top = ReduceMax <keepdims = 0> (s2)
        limit = Constant <value = float {9.5}>()
        over = Less(limit, top)
        found = If(over) <
          then_branch = a () => (bool p) { p = Constant <value = bool {1}>() },
          else_branch = b () => (bool[1] q) {
            z = Constant <value = int64[1] {0}>() m = Cast <to = 7> (f) k = Add(m, z) q = Cast <to = 9> (k)
          }
        >
        z2 = Constant <value = int64[1] {0}>()
        m2 = Cast <to = 7> (found)
        k2 = Add(m2, z2)
        f2 = Cast <to = 9> (k2)
        c2 = Not(f2)
      }>
    }""")
    assert_same(content, {"x": np.arange(4, dtype=F32)})
    assert peeling(content).changes == 1


def test_ranks_that_never_stay_are_left_and_said_so() -> None:
    content = model("""g (int64 n, float[2] x) => (float[2] y) {
      go = Constant <value = bool {1}>()
      z = Loop(n, go, x) <body = turn (int64 i, bool c, float[2] s) => (bool c, float[2] t) {
        axis = Constant <value = int64[1] {0}>() t = Unsqueeze(s, axis) }>
      flat = Constant <value = int64[1] {-1}>()
      y = Reshape(z, flat)
    }""")
    for trips in (0, 1, 3):
        assert_same(content, {"n": np.array(trips), "x": np.ones(2, F32)})
    assert "carried values have no ranks that stay" in peeling(content).reasons[0]


@pytest.mark.parametrize("trips", [0, 1, 2, 4])
def test_values_that_change_places_and_a_loop_in_a_loop(trips: int) -> None:
    content = model("""g (int64 n, float a, float[2] b, float[3] v) => (float[k] y, float[j] z, float[p,3] all) {
      go = Constant <value = bool {1}>()
      y, z, all = Loop(n, go, a, b) <body = turn (int64 i, bool c, float s, float[2] t)
          => (bool c, float[2] t2, float[1] s2, float[3] u) {
        on = Constant <value = bool {1}>()
        three = Constant <value = int64 {3}>()
        one = Constant <value = float[1] {1.0}>()
        m = Loop(three, on, s) <body = inner (int64 j, bool d, float q) => (bool d, float[1] r) {
          place = Cast <to = 1> (j)
          p = Add(q, place)
          r = Add(p, one)
        }>
        s2 = ReduceSum <keepdims = 1> (m)
        sum = ReduceSum <keepdims = 0> (t)
        two = Constant <value = float[2] {1.0, 2.0}>()
        t2 = Add(two, sum)
        u = Add(v, sum)
      }>
    }""")
    assert_same(content, {"n": np.array(trips), "a": F32(1), "b": np.ones(2, F32), "v": np.ones(3, F32)})


def test_random_numbers_keep_their_order() -> None:
    content = model("""g (float s) => (float[k] y) {
      n = Constant <value = int64 {5}>()
      y = Loop(n, , s) <body = turn (int64 i, bool c, float t) => (bool c, float[1] u) {
        r = RandomNormal <shape = [1], seed = 3.0> () u = Add(t, r) }>
    }""")
    assert "draws random numbers" in peeling(content).reasons[0]
