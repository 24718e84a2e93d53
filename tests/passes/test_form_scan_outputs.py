"""Lists that loops append to: the same results as by their definitions, without a sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession, explain_model
from sardonyx.errors import SardonyxError


def model(rank: int, count: str, element: str, joined: str, *, length: str = "4") -> bytes:
    shape = ",".join(str(size) for size in (3, 2, 5)[:rank])
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[{shape}] x, float[{length},{shape}] xs) => (float y, float h) {{
      {count}
      go = Constant <value: tensor = bool {{1}}>()
      e = SequenceEmpty()
      h, s = Loop(n, go, x, e) <body = turn (int64 i, bool c, float[{shape}] g, seq(float[{shape}]) q)
          => (bool c2, float[{shape}] g2, seq(float[{shape}]) r) {{
        part = Gather(xs, i)
        half = Mul(g, part)
        g2 = Tanh(half)
        {element}
        r = SequenceInsert(q, appended)
        c2 = Identity(go)
      }}>
      {joined}
    }}"""
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


def feeds(rank: int, length: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shape = (3, 2, 5)[:rank]
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in (("x", shape), ("xs", (length, *shape)))}


ELEMENTS = {
    "carried": "appended = Identity(g2)",
    "own": "appended = Exp(part)",
    "given": "appended = Identity(g)",
    "outer": "appended = Identity(x)",
}


@settings(deadline=None, max_examples=40)
@given(
    rank=st.integers(1, 3),
    count=st.integers(1, 4),
    element=st.sampled_from(sorted(ELEMENTS)),
    new_axis=st.integers(0, 1),
    data=st.data(),
)
def test_lists_that_are_joined_behind_a_loop(rank: int, count: int, element: str, new_axis: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-rank - new_axis, rank + new_axis - 1))
    number = f"n = Constant <value: tensor = int64 {{{count}}}>()"
    joined = f"z = ConcatFromSequence <axis = {axis}, new_axis = {new_axis}> (s)\n y = Neg(z)"
    content = model(rank, number, ELEMENTS[element], joined)
    given_ = feeds(rank, 4)
    for found, wanted in zip(InferenceSession(content).run(None, given_), run_reference(content, given_), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert explain_model(content).host_steps == 0  # so few iterations are written out


@pytest.mark.parametrize("count", [0, 1, 3])
def test_numbers_of_iterations_that_are_known_at_run_time_only(count: int) -> None:
    number = "all = Shape(xs)\n zero = Constant <value: tensor = int64 {0}>()\n n = Gather(all, zero)"
    content = model(2, number, ELEMENTS["carried"], "y = ConcatFromSequence <axis = 1, new_axis = 1> (s)", length="N")
    given_ = feeds(2, count)
    session = InferenceSession(content)
    if count == 0:  # there is nothing to join
        with pytest.raises(SardonyxError):
            session.run(None, given_)
        with pytest.raises(SardonyxError):
            run_reference(content, given_)
        return
    for found, wanted in zip(session.run(None, given_), run_reference(content, given_), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_no_iterations_are_refused_as_before() -> None:
    content = model(2, "n = Constant <value: tensor = int64 {0}>()", ELEMENTS["own"], "y = ConcatFromSequence <axis = 0> (s)")
    with pytest.raises(SardonyxError):
        InferenceSession(content).run(None, feeds(2, 4))
