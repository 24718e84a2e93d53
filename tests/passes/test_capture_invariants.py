"""Carried values that never change are read from outside, at any depth; everything else stays."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Model, captured_values
from sardonyx.ir.verify import verify
from sardonyx.passes.capture_invariants import CaptureInvariants

F32 = np.float32
LOOP = """g (int64 n, float[2,2] x, float[2,2] w, float[2,2] z) => (float[2,2] y, float[2,2] w2, float[2,2] z2) {
  y, w2, z2 = Loop(n, , x, w, z) <body = turn (int64 i, bool c, float[2,2] s, float[2,2] v, float[2,2] u)
      => (bool c, float[2,2] p, float[2,2] v, float[2,2] q) {
    q = If(c) <then_branch = t () => (float[2,2] a) { a = Add(u, v) }, else_branch = e () => (float[2,2] b) { b = Sub(u, v) }>
    p = MatMul(s, v)
  }>
}"""
SCAN = """g (float[2] h, float[2] k, float[5,2] xs) => (float[2] y, float[2] k2, float[5,2] all) {
  y, k2, all = Scan(h, k, xs) <num_scan_inputs = 1, body = turn (float[2] s, float[2] v, float[2] x)
      => (float[2] s2, float[2] v, float[2] x) {
    p = Mul(s, v)
    s2 = Add(p, x)
  }>
}"""


def loaded(text: str) -> tuple[bytes, Model]:
    content = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {text}').SerializeToString()
    model = load(content)
    infer_shapes(model)
    return content, model


def body_of(model: Model) -> Graph:
    (node,) = model.graph.nodes
    body = node.attr("body")
    assert isinstance(body, Graph)
    return body


@pytest.mark.parametrize(("text", "expected"), [(LOOP, {"w"}), (SCAN, {"k"})])
def test_what_is_handed_on_unchanged_is_captured(text: str, expected: set[str]) -> None:
    _, model = loaded(text)
    assert CaptureInvariants().run(model).modified
    verify(model)
    assert {value.name for value in captured_values(body_of(model))} == expected
    assert not CaptureInvariants().run(model).modified


def test_results_are_the_same() -> None:
    rng = np.random.default_rng(0)
    square = {name: rng.standard_normal((2, 2)).astype(F32) for name in ("x", "w", "z")}
    row = {name: rng.standard_normal(shape).astype(F32) for name, shape in (("h", 2), ("k", 2), ("xs", (5, 2)))}
    for text, feeds in ((LOOP, {**square, "n": np.array(3)}), (LOOP, {**square, "n": np.array(0)}), (SCAN, row)):
        content, _ = loaded(text)
        native = sardonyx.InferenceSession(content).run(None, feeds)
        plain = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(None, feeds)
        for mine, other in zip(native, plain, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_values_that_swap_places_are_no_invariants() -> None:
    _, model = loaded("""g (int64 n, float[2] x, float[2] y) => (float[2] a, float[2] b) {
      a, b = Loop(n, , x, y) <body = turn (int64 i, bool c, float[2] s, float[2] t) => (bool c, float[2] t, float[2] s) { }>
    }""")
    assert not CaptureInvariants().run(model).modified
