"""Tensors that loops make longer: the same results as by their definitions, without a value that grows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession
from sardonyx.errors import SardonyxError
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.stack_concats import StackConcats

SIZES = (3, 2, 5)
JOIN = "r = Concat <axis = {axis}> (v, element)"


def model(rank: int, axis: int, step: int, *, join: str = JOIN, more: str = "") -> bytes:
    """A loop that multiplies a state and appends a part of it, `step` elements along the axis; it ends where `limit` says."""
    shape = [*map(str, SIZES[:rank])]
    grown = [*shape]
    grown[axis] = "L"
    state, long = ",".join(shape), ",".join(grown)
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (int64 n, int64 limit, float[{state}] x, float[{long}] start) => (float y, float h) {{
      go = Constant <value: tensor = bool {{1}}>()
      one = Constant <value: tensor = int64 {{1}}>()
      from = Constant <value: tensor = int64[1] {{0}}>()
      upto = Constant <value: tensor = int64[1] {{{step}}}>()
      along = Constant <value: tensor = int64[1] {{{axis}}}>()
      h, y = Loop(n, go, x, start) <body = turn (int64 i, bool c, float[{state}] s, float v) => (bool c2, float s2, float r) {{
        s2 = Sin(s)
        element = Slice(s2, from, upto, along)
        {more}
        {join.format(axis=axis)}
        next = Add(i, one)
        c2 = Less(next, limit)
      }}>
    }}"""
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


def feeds(rank: int, axis: int, held: int, iterations: int, limit: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shape = list(SIZES[:rank])
    grown = [*shape]
    grown[axis] = held
    arrays = {name: rng.standard_normal(size).astype(np.float32) for name, size in (("x", shape), ("start", grown))}
    return {"n": np.array(iterations), "limit": np.array(limit), **arrays}


def carried(content: bytes) -> tuple[int, tuple[str, ...]]:
    """How many values the loop carries after the pass, and why they were left."""
    loaded = load(content)
    infer_from_inputs(loaded)
    reasons = StackConcats().run(loaded).reasons
    loop = next(node for node in loaded.graph.nodes if node.op_type == "Loop")
    body = loop.attr("body")
    assert isinstance(body, Graph)
    return len(body.inputs) - 2, reasons


@settings(deadline=None, max_examples=40)
@given(
    form=st.integers(1, 3).flatmap(lambda rank: st.tuples(st.just(rank), st.integers(0, rank - 1))),
    step=st.integers(1, 2),
    held=st.integers(0, 3),
    iterations=st.integers(0, 5),
    limit=st.integers(1, 6),
)
def test_what_a_loop_appends_stands_behind_what_was_there(
    form: tuple[int, int], step: int, held: int, iterations: int, limit: int
) -> None:
    content = model(*form, step)
    assert carried(content) == (1, ())
    given_values = feeds(*form, held, iterations, limit)
    expected = run_reference(content, given_values)
    peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, given_values)
    for actual, wanted, other in zip(InferenceSession(content).run(None, given_values), expected, peer, strict=True):
        assert actual.shape == wanted.shape == other.shape
        np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(actual, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("join", "more", "reason"),
    [
        (JOIN, "size = Shape(v)\n        found = Size(v)\n        unused = Add(found, size)", "read elsewhere"),
        ("r = Concat <axis = {axis}> (v, v)", "", None),
        ("r = Concat <axis = {axis}> (element, v)", "", None),
        ("r = Concat <axis = {axis}> (v, element, element)", "", None),
    ],
)
def test_other_ways_of_growing_are_left_alone(join: str, more: str, reason: str | None) -> None:
    content = model(2, 0, 1, join=join, more=more)
    count, reasons = carried(content)
    assert count == 2
    assert bool(reasons) is (reason is not None)
    assert all(reason is not None and reason in each for each in reasons)
    given_values = feeds(2, 0, 1, 3, 9)
    for actual, wanted in zip(InferenceSession(content).run(None, given_values), run_reference(content, given_values)):
        np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-6)


def test_elements_that_do_not_fit_are_still_refused() -> None:
    """The first has as many elements as fit, in another shape: joined after the loop it would be taken for them."""
    content = model(2, 0, 3, more="turned = Transpose(element)", join="r = Concat <axis = 0> (v, turned)")
    assert carried(content)[0] == 2
    with pytest.raises(SardonyxError):
        InferenceSession(content).run(None, feeds(2, 0, 1, 3, 9))
