"""What is behind an If of several ranks is computed on its sides: the same numbers, natively; everything else stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser

import sardonyx
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Model
from sardonyx.ir.verify import verify
from sardonyx.passes.sink_into_branches import SinkIntoBranches

SEVERAL_RANKS = """g (bool c, float[N,3] x) => (float[N] y, float[N,3] z) {
  s, t = If(c) <
    then_branch = a () => (float[N,3,1] p, float[N,3] q) {
      ax = Constant<value = int64[1] {2}>() p = Unsqueeze(x, ax) q = Neg(x)
    },
    else_branch = b () => (float[N,3] u, float[N,3] v) { u = Identity(x) v = Abs(x) }
  >
  flat = Constant<value = int64[2] {0, -1}>()
  f = Exp(s)
  r = Reshape(f, flat)
  e = Exp(r)
  last = Constant<value = int64[1] {1}>()
  y = ReduceSum<keepdims=0>(e, last)
  z = Add(t, x)
}"""
ONE_RANK = """g (bool c, float[N,3] x) => (float[N,3] y) {
  s = If(c) <then_branch = a () => (float[N,3] p) { p = Neg(x) }, else_branch = b () => (float[N,3] q) { q = Abs(x) }>
  y = Exp(s)
}"""
BODY_BEHIND = """g (bool c, float[N,3] x) => (float[M] y) {
  s = If(c) <
    then_branch = a () => (float[N,3,1] p) { ax = Constant<value = int64[1] {2}>() p = Unsqueeze(x, ax) },
    else_branch = b () => (float[N,3] u) { u = Identity(x) }
  >
  y = If(c) <
    then_branch = d () => (float[M] i) { m = Constant<value = int64[1] {-1}>() i = Reshape(s, m) },
    else_branch = e () => (float[M] j) { m2 = Constant<value = int64[1] {-1}>() j = Reshape(s, m2) }
  >
}"""


def loaded(text: str) -> tuple[bytes, Model]:
    content = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}').SerializeToString()
    model = load(content)
    infer_shapes(model)
    return content, model


def assert_same(content: bytes, feeds: dict[str, Any]) -> None:
    reference = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
    session = sardonyx.InferenceSession(content)
    for condition in (True, False, True):
        given = {"c": np.array(condition), **feeds}
        for actual, expected in zip(session.run(None, given), reference.run(None, given), strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_the_tail_is_on_both_sides_until_ranks_are_the_same() -> None:
    content, model = loaded(SEVERAL_RANKS)
    assert SinkIntoBranches().run(model).changes == 1
    assert not verify(model)
    assert [node.op_type for node in model.graph.nodes if node.op_type != "Constant"] == ["If", "Exp", "ReduceSum", "Add"]
    assert [value.name for value in model.graph.outputs] == ["y", "z"]
    assert [len(value.shape or ()) for value in model.graph.outputs] == [1, 2]
    assert not SinkIntoBranches().run(model).modified
    assert_same(content, {"x": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)})


def test_sides_of_one_rank_stay() -> None:
    content, model = loaded(ONE_RANK)
    assert not SinkIntoBranches().run(model).modified
    assert_same(content, {"x": np.ones((2, 3), np.float32)})


def test_a_tail_with_a_body_stays_and_says_why() -> None:
    content, model = loaded(BODY_BEHIND)
    result = SinkIntoBranches().run(model)
    assert not result.modified
    assert len(result.reasons) == 1
    assert "which has a body, needs a result" in result.reasons[0]
    assert_same(content, {"x": np.ones((2, 3), np.float32)})


BETWEEN = """g (bool c, float[N,3] x, float[M] w) => (float[M] y, float[M] z, bool[M] q) {
  s, t = If(c) <
    then_branch = a () => (float[N,3,1] p, float[M] i) { ax = Constant<value = int64[1] {2}>() p = Unsqueeze(x, ax) i = Neg(w) },
    else_branch = b () => (float[N,3] u, float[M] j) { u = Identity(x) j = Abs(w) }
  >
  z = Exp(t)
  m = Constant<value = int64[1] {-1}>()
  v = Add(w, w)
  r = Reshape(s, m)
  b = ReduceMax<keepdims=0>(s)
  y = Add(r, v)
  f = Sub(z, b)
  q = Less(f, y)
}"""


def test_what_stands_between_the_if_and_its_tail_stays_if_it_can() -> None:
    """Results of one rank are read behind the If, whatever order the nodes had."""
    content, model = loaded(BETWEEN)
    assert SinkIntoBranches().run(model).changes == 1
    assert not verify(model)
    assert [node.op_type for node in model.graph.nodes if node.op_type != "Constant"] == [
        "Add",
        "If",
        "Exp",
        "Add",
        "Sub",
        "Less",
    ]
    assert_same(content, {"x": np.ones((2, 3), np.float32), "w": np.arange(6, dtype=np.float32)})


def test_a_node_that_leads_into_the_tail_moves_with_it() -> None:
    text = BETWEEN.replace(
        "b = ReduceMax<keepdims=0>(s)", "k = ReduceMax<keepdims=0>(z) n = Add(s, k) b = ReduceMax<keepdims=0>(n)"
    )
    content, model = loaded(text)
    assert SinkIntoBranches().run(model).changes == 1
    assert not verify(model)
    assert [node.op_type for node in model.graph.nodes if node.op_type != "Constant"] == ["Add", "If", "Add", "Sub", "Less"]
    assert_same(content, {"x": np.ones((2, 3), np.float32), "w": np.arange(6, dtype=np.float32)})


def test_a_long_tail_stays_and_says_why() -> None:
    links = "\n".join(f"  e{number + 1} = Neg(e{number})" for number in range(101))
    text = SEVERAL_RANKS.replace("  f = Exp(s)\n", f"  e0 = Exp(s)\n{links}\n  f = Neg(e101)\n")
    _, model = loaded(text)
    result = SinkIntoBranches().run(model)
    assert result.reasons == ("If '-> s': 104 nodes behind it would be there twice",)
    assert not result.modified
