"""Numbers that loops count as sizes: the same results as by their definitions, in native code from one iteration to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession, SessionOptions
from sardonyx.explanation import explain_model
from sardonyx.runtime.native_loop import NativeLoop

F32 = np.float32
quick = settings(deadline=None, max_examples=30)


@pytest.fixture(scope="module")
def native() -> Iterator[list[bool]]:
    """Whether loops ran natively, one after the other."""
    seen: list[bool] = []
    original = NativeLoop.run

    def run(self: NativeLoop, *args: Any) -> Any:
        results = original(self, *args)
        seen.append(results is not None)
        return results

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeLoop, "run", run)
        yield seen


def model(body: str, given: str = "", carried: str = "", start: str = "", results: str = "") -> bytes:
    """A loop that adds to `s` what `body` makes of `x`, the number `i` and constants."""
    content: bytes = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
    g (float[n,4] x, int64 k, int64 last{given}) => (float[4] y, float[m,4] all) {{
      zero = Constant <value = int64[1] {{0}}>()
      one = Constant <value = int64[1] {{1}}>()
      three = Constant <value = int64[1] {{3}}>()
      unit = Constant <value = int64 {{1}}>()
      two = Constant <value = int64 {{2}}>()
      begin = Constant <value = int64 {{1}}>()
      nothing = Constant <value = float[4] {{0.0, 0.0, 0.0, 0.0}}>()
      go = Constant <value = bool {{1}}>()
      y{results}, all = Loop(k, go, nothing{start}) <body = turn (int64 i, bool c, float[4] s{carried}) =>
          (bool goes, float[4] t{", int64 j2" if carried else ""}, float[4] kept) {{
        goes = Less(i, last)
        {body}
        t = Add(s, p)
        kept = Tanh(t)
      }}>
    }}""").SerializeToString()
    return content


def changes(content: bytes) -> int:
    (found,) = (each for each in explain_model(content).passes if each.name == "CountBySize")
    return int(found.changes)


def assert_same(content: bytes, feeds: dict[str, Any]) -> list[Any]:
    found = InferenceSession(content).run(None, feeds)
    for mine, wanted in zip(found, run_reference(content, feeds), strict=True):
        assert (mine.shape, mine.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)
    return list(found)


def feeds(rows: int, trips: int, last: int = 1 << 20) -> dict[str, Any]:
    x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(F32)
    return {"x": x, "k": np.array(trips), "last": np.array(last)}


BODIES = {
    "a prefix": "b = Reshape(i, one) e = Add(b, one) v = Slice(x, zero, e, zero) p = ReduceSum <keepdims = 0> (v, zero)",
    "what is left": "b = Reshape(i, one) v = Slice(x, b, three, zero) p = ReduceSum <keepdims = 0> (v, zero)",
    "a window that is shorter at the beginning": """b = Reshape(i, one) e = Add(b, one) f = Sub(e, three) h = Max(f, zero)
        v = Slice(x, h, e, zero) p = ReduceSum <keepdims = 0> (v, zero)""",
    "a window that reaches past the end": """b = Reshape(i, one) e = Add(b, three) v = Slice(x, b, e, zero)
        p = ReduceSum <keepdims = 0> (v, zero)""",
    "numbers up to it": """e = Add(i, unit) ramp = Range(i, e, unit) wide = Range(unit, e, unit) w = Cast <to = 1> (wide)
        f = ReduceSum <keepdims = 0> (w) p = Add(f, nothing)""",
    "zeros before it": """b = Reshape(i, one) w = ConstantOfShape <value = float[1] {2.0}> (b) f = ReduceSum <keepdims = 0> (w)
        p = Add(f, nothing)""",
    "the largest": """b = Reshape(i, one) e = Min(b, three)
        a, at = TopK <axis = 0> (x, e) p = ReduceSum <keepdims = 0> (a, zero)""",
}


@pytest.mark.parametrize("kind", BODIES)
@quick
@given(rows=st.integers(3, 9), trips=st.integers(0, 9), last=st.integers(0, 12))
def test_sizes_that_follow_from_the_number_of_the_iteration(
    native: list[bool], kind: str, rows: int, trips: int, last: int
) -> None:
    content = model(BODIES[kind])
    native.clear()
    assert_same(content, feeds(rows, trips, last))
    assert False not in native or not trips


@pytest.mark.parametrize("kind", BODIES)
def test_one_session_serves_all_sizes(native: list[bool], kind: str) -> None:
    content = model(BODIES[kind])
    assert changes(content) == 1
    session = InferenceSession(content)
    native.clear()
    for rows, trips, last in ((70, 68, 99), (5, 4, 9), (5, 4, 9), (8, 7, 3), (3, 2, 9), (5, 5, 9), (70, 69, 40), (5, 4, 9)):
        given = feeds(rows, trips, last)
        for mine, wanted in zip(session.run(None, given), run_reference(content, given), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)
    assert native[0]
    assert False not in native


@quick
@given(rows=st.integers(3, 9), trips=st.integers(0, 6))
def test_a_number_that_a_script_counts_itself(native: list[bool], rows: int, trips: int) -> None:
    body = "b = Reshape(j, one) v = Slice(x, zero, b, zero) p = ReduceSum <keepdims = 0> (v, zero) j2 = Add(j, two)"
    content = model(body, carried=", int64 j", start=", begin", results=", end")
    native.clear()
    assert_same(content, feeds(rows, trips))
    assert changes(content) == 1
    assert False not in native or not trips


def test_the_number_itself_may_be_a_result(native: list[bool]) -> None:
    content = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
    g (float[n,4] x, int64 k) => (float[4] y, int64[m] numbers) {
      zero = Constant <value = int64[1] {0}>()
      one = Constant <value = int64[1] {1}>()
      nothing = Constant <value = float[4] {0.0, 0.0, 0.0, 0.0}>()
      y, numbers = Loop(k, , nothing) <body = turn (int64 i, bool c, float[4] s) => (bool c, float[4] t, int64 i) {
        b = Reshape(i, one)
        v = Slice(x, zero, b, zero)
        p = ReduceSum <keepdims = 0> (v, zero)
        t = Add(s, p)
      }>
    }""").SerializeToString()
    native.clear()
    given = feeds(6, 5)
    del given["last"]
    _, numbers = assert_same(content, given)
    assert numbers.tolist() == [0, 1, 2, 3, 4]
    assert False not in native


def test_on_a_side_of_an_if(native: list[bool]) -> None:
    body = """none = Equal(i, begin)
        p = If(none) <then_branch = th () => (p1) { p1 = Identity(nothing) }, else_branch = el () => (p2) {
          b = Reshape(i, one) v = Slice(x, zero, b, zero) p2 = ReduceSum <keepdims = 0> (v, zero) }>"""
    content = model(body)
    native.clear()
    assert_same(content, feeds(6, 5))
    assert changes(content) == 1


def test_any_number_of_threads_gives_the_same_bits() -> None:
    content = model(BODIES["a prefix"])
    given = feeds(3000, 2500)
    one, two = (InferenceSession(content, _threads(number)).run(None, given) for number in (1, 2))
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, other)


def _threads(number: int) -> SessionOptions:
    options = SessionOptions()
    options.intra_op_num_threads = number
    return options


@pytest.mark.parametrize(
    "body",
    [
        "b = Reshape(last, one) v = Slice(x, zero, b, zero) p = ReduceSum <keepdims = 0> (v, zero)",
        """l = Gather(lengths, i) a = Add(l, i) b = Reshape(a, one) v = Slice(x, zero, b, zero)
           p = ReduceSum <keepdims = 0> (v, zero)""",
        "b = Gather(x, i) p = Tanh(b)",
    ],
)
def test_sizes_that_depend_on_other_data_are_left_alone(body: str) -> None:
    content = model(body, given=", int64[n] lengths")
    assert changes(content) == 0
    assert_same(content, {**feeds(5, 4, 3), "lengths": np.array([0, 1, 2, 1, 0])})
