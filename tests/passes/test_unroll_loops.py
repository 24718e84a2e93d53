"""Loops that are written out: the same results as iteration by iteration, in one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession, errors, explain_model

few = settings(deadline=None, max_examples=30)


def model(graph: str, opset: int = 19) -> bytes:
    content: bytes = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}').SerializeToString()
    return content


def assert_same(content: bytes, feeds: dict[str, Any]) -> None:
    for found, wanted in zip(InferenceSession(content).run(None, feeds), run_reference(content, feeds), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@few
@given(seed=st.integers(0, 1000), trips=st.integers(1, 16), opset=st.sampled_from((11, 13, 19)), handed_on=st.booleans())
def test_loops_of_known_length(seed: int, trips: int, opset: int, handed_on: bool) -> None:
    """Carried values change places, are stacked, and one is what the loop was given if `handed_on`."""
    content = model(
        f"""g (float[B,4] a, float[B,4] b, float[16,4] w) => (float[B,4] x, float[B,4] y, float[n,B,4] all, int64[n] numbers) {{
      n = Constant <value = int64 {{{trips}}}>()
      go = Constant <value = bool {{1}}>()
      x, y, all, numbers = Loop(n, go, a, b) <body = turn (int64 i, bool c, float[B,4] s, float[B,4] t)
          => (bool c2, float[B,4] s2, float[B,4] t2, float[B,4] o, int64 number) {{
        row = Gather(w, i)
        sum = Add(s, t)
        half = Mul(sum, row)
        s2 = Tanh(half)
        t2 = Identity({"t" if handed_on else "s"})
        o = Sub(s2, t)
        two = Constant <value = int64 {{2}}>()
        number = Mul(i, two)
        c2 = Identity(c)
      }}>
    }}""",
        opset,
    )
    assert_same(content, {"a": floats(seed, 3, 4), "b": floats(seed + 1, 3, 4), "w": floats(seed + 2, 16, 4)})
    assert explain_model(content).host_steps == (trips > 12)  # eight nodes in each iteration


@few
@given(
    seed=st.integers(0, 1000),
    trips=st.integers(1, 12),
    axes=st.tuples(st.integers(-3, 2), st.integers(-3, 2)),
    backwards=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    is_known=st.booleans(),
)
def test_scans(seed: int, trips: int, axes: tuple[int, int], backwards: tuple[int, int], is_known: bool) -> None:
    shape = [2, 3]
    shape.insert(axes[0] % 3, trips)
    sizes = ["2", "3"]
    sizes.insert(axes[0] % 3, str(trips) if is_known else "t")
    content = model(f"""g (float[2,3] h, float[{",".join(sizes)}] xs) => (float[2,3] y, float[a,b,c] all) {{
      y, all = Scan(h, xs) <num_scan_inputs = 1, scan_input_axes = [{axes[0]}], scan_input_directions = [{backwards[0]}],
          scan_output_axes = [{axes[1]}], scan_output_directions = [{backwards[1]}],
          body = turn (float[2,3] s, float[2,3] x) => (float[2,3] s2, float[2,3] o) {{
        sum = Add(s, x)
        s2 = Tanh(sum)
        o = Mul(s2, x)
      }}>
    }}""")
    assert_same(content, {"h": floats(seed, 2, 3), "xs": floats(seed + 1, *shape)})
    if is_known:
        assert explain_model(content).host_steps == 0


@pytest.mark.parametrize("lengths", [(3, 5, 1, 2, 7, 5, 20, 3)])
def test_lengths_that_change_from_run_to_run(lengths: tuple[int, ...]) -> None:
    """Those of the first runs are written out, the others are loops: both give what the definition does."""
    content = model("""g (float[3] h, float[t,3] xs) => (float[3] y, float[t,3] all) {
      y, all = Scan(h, xs) <num_scan_inputs = 1, body = turn (float[3] s, float[3] x) => (float[3] s2, float[3] o) {
        s2 = Add(s, x)
        o = Mul(s2, x)
      }>
    }""")
    session = InferenceSession(content)
    for length in lengths * 2:
        feeds = {"h": floats(length, 3), "xs": floats(length + 1, length, 3)}
        for found, wanted in zip(session.run(None, feeds), run_reference(content, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_loops_that_slice_by_data_or_grow_stay() -> None:
    content = model("""g (float[N] x, int64[3] ends) => (float[3] y, float[m] z) {
      n = Constant <value = int64 {3}>()
      go = Constant <value = bool {1}>()
      zero = Constant <value = int64[1] {0}>()
      z, y = Loop(n, go, x) <body = turn (int64 i, bool c, float[m] s) => (bool c2, float[k] s2, float o) {
        end = Gather(ends, i)
        last = Unsqueeze(end, zero)
        part = Slice(x, zero, last)
        o = ReduceSum <keepdims = 0> (part)
        last_float = CastLike(last, x)
        s2 = Concat <axis = 0> (s, last_float)
        c2 = Identity(c)
      }>
    }""")
    assert explain_model(content).host_steps > 0
    assert_same(content, {"x": floats(0, 5), "ends": np.array([0, 3, 9])})


def test_a_body_that_takes_fewer_values_is_refused_by_name() -> None:
    content = model(
        """g (float[2] a, float[2] b) => (float[2] x, float[2] y) {
      n = Constant <value = int64 {3}>()
      go = Constant <value = bool {1}>()
      x, y = Loop(n, go, a, b) <body = turn (int64 i, bool c, float[2] s) => (bool c2, float[2] s2, float[2] t2) {
        s2 = Add(s, s)
        t2 = Mul(s, s)
        c2 = Identity(c)
      }>
    }"""
    )
    with pytest.raises(errors.BadNodeInput, match=r"Loop '-> x': body 'turn' takes 3 inputs, was given 4"):
        InferenceSession(content).run(None, {"a": floats(1, 2), "b": floats(2, 2)})
