"""Ifs that are part of the program around them: one side runs, the other does nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from guarded import guarded
from native_support import compile_native, host_nodes, run_native, run_reference

F32 = np.float32


def model(graph: str, opset: int = 19) -> bytes:
    text = f'<ir_version: 9, opset_import: ["" : {opset}]> {graph}'
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


def assert_native(content: bytes, *all_feeds: dict[str, Any], host: tuple[str, ...] = ()) -> None:
    """All feeds, in any order, give on one native program what NumPy gives."""
    graph, compiled = compile_native(content)
    assert tuple(host_nodes(compiled)) == host
    for feeds in (*all_feeds, *reversed(all_feeds)):
        actual, expected = run_native(graph, compiled, feeds), run_reference(content, feeds)
        for mine, other in zip(actual, expected, strict=True):
            assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def both(**feeds: Any) -> list[dict[str, Any]]:
    return [{**feeds, "c": np.array(value)} for value in (True, False)]


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def test_one_side_runs() -> None:
    content = model("""g (bool c, float[5] x, float[5] y) => (float[5] a, float[5] b) {
      s = Add(x, y)
      p, q = If(c) <
        then_branch = t () => (float[5] u, float[5] v) { u = Mul(s, x) v = Sub(u, y) },
        else_branch = e () => (float[5] u2, float[5] v2) { u2 = Neg(s) v2 = Exp(x) }>
      a = Add(p, s)
      b = Mul(q, q)
    }""")
    assert_native(content, *both(x=guarded(random(5)), y=guarded(random(5, seed=1))))


def test_what_is_handed_through_is_copied() -> None:
    content = model("""g (bool c, float[5] x, float[5] y) => (float[5] a, float[5] b, float[5] z) {
      z = Relu(x)
      a, b = If(c) <
        then_branch = t () => (float[5] z, float[5] y) { },
        else_branch = e () => (float[5] w, float[5] w) { w = Constant<value = float[5] {1, 2, 3, 4, 5}>() }>
    }""")
    assert_native(content, *both(x=random(5), y=random(5, seed=1)))


def test_a_side_may_give_a_result_twice() -> None:
    content = model("""g (bool c, float[5] x) => (float[5] a, float[5] b) {
      a, b = If(c) <
        then_branch = t () => (float[5] u, float[5] u) { u = Abs(x) },
        else_branch = e () => (float[5] v, float[5] w) { v = Neg(x) w = Add(v, x) }>
    }""")
    assert_native(content, *both(x=random(5)))


def test_copies_one_side_makes_are_its_own() -> None:
    content = model("""g (bool c, float[7,33] x, float[7,20] w, float[33,40] k) => (float[33,20] a, float[33,20] b) {
      t = Transpose(x)
      a = If(c) <
        then_branch = yes () => (float[33,20] u) { m = MatMul(t, w) u = Softmax(m) },
        else_branch = no () => (float[33,20] v) { m2 = MatMul(t, w) v = Tanh(m2) }>
      s = Softmax(t)
      m3 = MatMul(t, w)
      d = ReduceMax(s)
      b = Add(m3, d)
    }""")
    assert_native(content, *both(x=random(7, 33), w=random(7, 20, seed=1), k=random(33, 40, seed=2)))


def test_sizes_one_side_reads_are_its_own() -> None:
    content = model("""g (bool c, float[n,3] x) => (int64[2] a, int64[2] b) {
      s = Shape(x)
      a = If(c) <
        then_branch = yes () => (int64[2] u) { u = Add(s, s) },
        else_branch = no () => (int64[2] v) { v = Mul(s, s) }>
      b = Identity(s)
    }""")
    assert_native(content, *both(x=random(5, 3)), *both(x=random(2, 3)))


def test_ifs_inside_ifs() -> None:
    content = model("""g (bool c, bool d, float[6] x) => (float[6] y) {
      y = If(c) <
        then_branch = t () => (float[6] u) {
          u = If(d) <
            then_branch = tt () => (float[6] p) { p = Add(x, x) },
            else_branch = te () => (float[6] q) { q0 = Exp(x) q = Mul(q0, x) }>
        },
        else_branch = e () => (float[6] v) {
          w = Neg(x)
          v = If(d) <
            then_branch = et () => (float[6] r) { r = Abs(w) },
            else_branch = ee () => (float[6] w) { }>
        }>
    }""")
    feeds = [{**each, "d": np.array(d)} for each in both(x=random(6)) for d in (True, False)]
    assert_native(content, *feeds, *feeds[::2])


def test_a_side_that_is_not_taken_cannot_fail() -> None:
    content = model("""g (bool c, float[6] x, int64[2] i) => (float[2] y) {
      y = If(c) <
        then_branch = t () => (float[2] u) { u = Gather(x, i) },
        else_branch = e () => (float[2] v) { f = Cast<to = 1>(i) v = Neg(f) }>
    }""")
    session = sardonyx.InferenceSession(content)
    x, bad = random(6), np.array([1, 6])
    (y,) = session.run(None, {"c": np.array(False), "x": x, "i": bad})
    assert y.tolist() == [-1, -6]
    with pytest.raises(sardonyx.InvalidArgument, match="Gather"):
        session.run(None, {"c": np.array(True), "x": x, "i": bad})
    (y,) = session.run(None, {"c": np.array(True), "x": x, "i": np.array([1, 5])})
    assert y.tolist() == [x[1], x[5]]


@pytest.mark.parametrize(
    "side",
    [
        pytest.param("l = NonZero(x) m = ReduceMax<keepdims = 0>(l) u = Unsqueeze(m, ax)", id="it finds sizes out"),
        pytest.param(
            "l = RandomUniformLike<seed = 1.0>(y) m = Floor(l) n = ReduceMax<keepdims = 1>(m, ax) u = Cast<to = 7>(n)",
            id="it needs Python",
        ),
        pytest.param("a = Add(x, y) m = ReduceMax<keepdims = 1>(a, ax) u = Cast<to = 7>(m)", id="it holds for some sizes only"),
    ],
)
def test_ifs_that_stay_whole(side: str) -> None:
    content = model(
        """g (bool c, float[n] x, float[m] y) => (int64[k] r) {
      r = If(c) <
        then_branch = t () => (int64[k] u) { ax = Constant<value = int64[1] {0}>() SIDE },
        else_branch = e () => (int64[k] v) { v = Shape(y) }>
    }""".replace("SIDE", side)
    )
    x = np.array([1, 0, 2], F32)
    assert_native(content, *both(x=x, y=random(3)), host=("If",))
    graph, compiled = compile_native(content)
    (r,) = run_native(graph, compiled, {"c": np.array(False), "x": x, "y": random(4)})
    assert r.tolist() == [4]


def test_sizes_of_the_side_not_taken_need_not_fit() -> None:
    content = model("""g (float[n] x, float[m] y) => (float[1] r) {
      p = Shape(x)
      q = Shape(y)
      e = Equal(p, q)
      r = If(e) <
        then_branch = t () => (float[1] u) { a = Add(x, y) ax = Constant<value = int64[1] {0}>() u = ReduceSum(a, ax) },
        else_branch = f () => (float[1] v) { ay = Constant<value = int64[1] {0}>() v = ReduceSum(x, ay) }>
    }""")
    assert_native(content, {"x": random(3), "y": random(3)}, {"x": random(3), "y": random(4)}, host=("If",))


def test_a_condition_that_is_known_beforehand() -> None:
    content = model("""g (float[4] x) => (float[4] r) {
      c = Constant<value = bool {0}>()
      r = If(c) <then_branch = t () => (float[4] u) { u = Abs(x) }, else_branch = e () => (float[4] v) { v = Neg(x) }>
    }""")
    assert_native(content, {"x": random(4)}, host=("If",))


def test_results_of_different_shapes_stay_whole() -> None:
    content = model("""g (bool c, float[4] x) => (float[k] r) {
      r = If(c) <
        then_branch = t () => (float[8] u) { u = Concat<axis = 0>(x, x) },
        else_branch = e () => (float[4] v) { v = Neg(x) }>
    }""")
    assert_native(content, *both(x=random(4)), host=("If",))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    content = model("""g (bool c, float[200,160] x, float[160,160] w, int64 n) => (float[200,160] y) {
      y = Loop(n, , x) <body = turn (int64 i, bool g, float[200,160] s) => (bool g, float[200,160] r) {
        two = Constant<value = int64 {2}>()
        zero = Constant<value = int64 {0}>()
        m = Mod(i, two)
        even = Equal(m, zero)
        take = Xor(even, c)
        r = If(take) <
          then_branch = t () => (float[200,160] u) { p = MatMul(s, w) u = Tanh(p) },
          else_branch = e () => (float[200,160] v) { a = Softmax(s) v = Add(a, s) }>
      }>
    }""")
    feeds = both(x=random(200, 160), w=random(160, 160, seed=1) / 12, n=np.array(7))
    expected = [run_reference(content, each)[0] for each in feeds]
    seen = set()
    for threads in (1, 2, 4):
        options = sardonyx.SessionOptions()
        options.intra_op_num_threads = threads
        session = sardonyx.InferenceSession(content, options)
        for _ in range(3):
            results = [session.run(None, each)[0] for each in feeds]
            seen.add(b"".join(result.tobytes() for result in results))
            for mine, other in zip(results, expected):
                np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    assert len(seen) == 1


def test_a_saved_program_decides_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    content = model("""g (bool c, float[5] x) => (float[5] y) {
      y = If(c) <then_branch = t () => (float[5] u) { u = Add(x, x) }, else_branch = e () => (float[5] v) { v = Neg(x) }>
    }""")
    x = random(5)
    for _ in range(2):
        session = sardonyx.InferenceSession(content)
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": x})[0], x + x)
            np.testing.assert_array_equal(session.run(None, {"c": np.array(False), "x": x})[0], -x)


class Writer:
    """Random graphs of elementwise nodes, transpositions, sums and Ifs over values of one shape."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def nodes(self, known: list[str], depth: int) -> tuple[str, list[str]]:
        text, here = "", list(known)
        for _ in range(self.data.draw(st.integers(0 if depth else 1, 4))):
            one, other = (self.data.draw(st.sampled_from(here)) for _ in range(2))
            made = self.name()
            kind = self.data.draw(st.sampled_from(("Add", "Sub", "Neg", "Transpose", "Sum", "Concat", "If")))
            if kind in ("Add", "Sub"):
                text += f"{made} = {kind}({one}, {other})\n"
            elif kind in ("Neg", "Transpose"):
                text += f"{made} = {kind}({one})\n"
            elif kind == "Sum":
                text += f"{made}s = ReduceMean<keepdims = 1>({one}, axis) {made} = Sub({other}, {made}s)\n"
            elif kind == "Concat":
                text += f"{made}c = Concat<axis = 0>({one}, {other}) {made} = Slice({made}c, from, to)\n"
            elif depth < 3:
                text += self.choice(made, here, depth)
            else:
                continue
            here.append(made)
        return text, here

    def choice(self, made: str, known: list[str], depth: int) -> str:
        parts = []
        for attribute in ("then_branch", "else_branch"):
            inner, values = self.nodes(known, depth + 1)
            parts.append(
                f"{attribute} = {self.name()} () => (float[3,3] {self.data.draw(st.sampled_from(values))}) {{ {inner} }}"
            )
        condition = self.data.draw(st.sampled_from(("c", "d")))
        return f"{made} = If({condition}) <{', '.join(parts)}>\n"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_nest_of_ifs(data: st.DataObject) -> None:
    writer = Writer(data)
    text, values = writer.nodes(["x", "y"], 0)
    wanted = [value for value in values if value not in ("x", "y")][-3:] or ["last"]
    listed = ", ".join(f"float[3,3] {value}" for value in wanted)
    content = model(f"""g (bool c, bool d, float[3,3] x, float[3,3] y) => ({listed}) {{
      axis = Constant<value = int64[1] {{1}}>()
      from = Constant<value = int64[2] {{2, 0}}>()
      to = Constant<value = int64[2] {{5, 3}}>()
      {text}
      last = Add(x, y)
    }}""")
    given_ = {"x": random(3, 3), "y": random(3, 3, seed=1)}
    assert_native(content, *({**each, "d": np.array(d)} for each in both(**given_) for d in (True, False)))
