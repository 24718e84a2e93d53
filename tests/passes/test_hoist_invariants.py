"""What is the same in every iteration is computed once, and loops without iterations refuse nothing that they did not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest

from native_support import run_reference
from sardonyx import InferenceSession, explain_model

F32 = np.float32


def model(graph: str) -> bytes:
    content: bytes = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 19]> {graph}').SerializeToString()
    return content


def moved(content: bytes) -> int:
    return sum(each.changes for each in explain_model(content).passes if each.name == "HoistInvariants")


def assert_same(content: bytes, feeds: dict[str, Any]) -> None:
    for found, wanted in zip(InferenceSession(content).run(None, feeds), run_reference(content, feeds), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_in_a_loop(trips: int) -> None:
    """What the inner one need not compute leaves both; what depends on the outer one leaves the inner one alone."""
    content = model("""g (int64 n, float[3,3] x, float[3,4] a, float[4,3] b) => (float[3,3] y) {
      y = Loop(n, , x) <body = outer (int64 i, bool c, float[3,3] s) => (bool c, float[3,3] t) {
        twenty = Constant <value = int64 {20}>()
        t = Loop(twenty, , s) <body = inner (int64 j, bool d, float[3,3] q) => (bool d, float[3,3] r) {
          w = MatMul(a, b)
          v = MatMul(s, w)
          k = Tanh(v)
          z = Add(q, k)
          e = Mul(z, w)
          r = Tanh(e)
        }>
      }>
    }""")
    rng = np.random.default_rng(trips)
    feeds = {name: rng.standard_normal(shape).astype(F32) / 4 for name, shape in (("x", (3, 3)), ("a", (3, 4)), ("b", (4, 3)))}
    assert moved(content) == 4
    assert_same(content, {"n": np.array(trips), **feeds})


def test_scans_read_slices_and_compute_the_rest_once() -> None:
    content = model("""g (float[2] h, float[2] k, float[m,2] xs) => (float[2] y, float[m,2] all) {
      y, all = Scan(h, xs) <num_scan_inputs = 1, body = turn (float[2] s, float[2] x) => (float[2] s2, float[2] o) {
        e = Exp(k)
        p = Mul(s, e)
        s2 = Add(p, x)
        o = Identity(s2)
      }>
    }""")
    assert moved(content) == 1
    for length in (0, 1, 30):
        assert_same(content, {"h": np.ones(2, F32), "k": -np.ones(2, F32), "xs": np.ones((length, 2), F32)})


def test_a_loop_that_may_have_no_iteration_keeps_what_may_refuse_data() -> None:
    content = model("""g (int64 n, float[3] x, float[5,3] table, int64 number) => (float[3] y) {
      y = Loop(n, , x) <body = turn (int64 i, bool c, float[3] s) => (bool c, float[3] t) {
        row = Gather(table, number)
        t = Add(s, row)
      }>
    }""")
    feeds = {"x": np.ones(3, F32), "table": np.ones((5, 3), F32)}
    assert moved(content) == 0
    assert_same(content, {"n": np.array(0), "number": np.array(77), **feeds})
    assert_same(content, {"n": np.array(4), "number": np.array(2), **feeds})


def test_random_numbers_are_drawn_in_every_iteration() -> None:
    content = model("""g (int64 n, float[3] x) => (float[3] y, float[n,3] all) {
      y, all = Loop(n, , x) <body = turn (int64 i, bool c, float[3] s) => (bool c, float[3] t, float[3] r) {
        r = RandomNormalLike (x)
        t = Add(s, r)
      }>
    }""")
    rows = InferenceSession(content).run(None, {"n": np.array(3), "x": np.ones(3, F32)})[1]
    assert len({row.tobytes() for row in rows}) == 3
