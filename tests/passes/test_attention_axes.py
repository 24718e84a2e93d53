"""Attention whose axes before time are grouped in other ways than batch and heads: the same numbers, still in one kernel."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.text import parse_graph

# Scores and weights in one axis of batch and heads; a mask in between, with all four axes.
FOLDED = """graph main(q: f32[B,2,S,4], k: f32[B,2,T,4], v: f32[B,2,T,3], m: f32[B,1,S,T]) -> (y: f32[C,S,3]) {
  const two: i64[1] = [2]
  const first: i64[1] = [0]
  const last: i64[2] = [2, 3]
  const size_k: i64[1] = [4]
  const size_v: i64[1] = [3]
  const at_s: i64[1] = [2]
  const at_t: i64[1] = [3]
  e = Shape(m) @17
  n = Gather(e, first) @17
  ns = Gather(e, at_s) @17
  nt = Gather(e, at_t) @17
  h = Mul(n, two) @17
  as_q = Concat(h, ns, size_k) {axis = 0} @17
  as_k = Concat(h, nt, size_k) {axis = 0} @17
  as_v = Concat(h, nt, size_v) {axis = 0} @17
  fq = Reshape(q, as_q) @17
  fk = Reshape(k, as_k) @17
  fv = Reshape(v, as_v) @17
  b = Transpose(fk) {perm = [0, 2, 1]} @17
  s = MatMul(fq, b) @17
  four = Concat(n, two, ns, nt) {axis = 0} @17
  three = Concat(h, ns, nt) {axis = 0} @17
  r = Reshape(s, four) @17
  a = Add(r, m) @17
  x = Reshape(a, three) @17
  p = Softmax(x) {axis = -1} @17
  y = MatMul(p, fv) @17
}"""
# A bias for keys added to products of all heads in one axis, truth values with four axes, weights in one axis again.
ALIBI = """graph main(q: f32[6,S,4], k: f32[6,4,T], v: f32[6,T,3], l: f32[6,1,T], c: bool[3,1,S,T]) -> (y: f32[6,S,3]) {
  const low: f32[] = -3.4028234663852886e+38
  const half: f32[] = 0.5
  d = Shape(c) @17
  const last: i64[2] = [2, 3]
  const outer: i64[2] = [3, 2]
  const six: i64[1] = [6]
  st = Gather(d, last) @17
  f = Concat(outer, st) {axis = 0} @17
  g = Concat(six, st) {axis = 0} @17
  s = MatMul(q, k) @17
  t = Mul(s, half) @17
  a = Add(t, l) @17
  r = Reshape(a, f) @17
  w = Where(c, low, r) @17
  p = Softmax(w) {axis = -1} @17
  x = Reshape(p, g) @17
  y = MatMul(x, v) @17
}"""
# One sequence: queries have an axis for it, keys and values do not.
FEWER = """graph main(q: f32[1,2,S,4], k: f32[2,T,4], v: f32[2,T,3], m: f32[1,1,S,T]) -> (y: f32[2,S,3]) {
  b = Transpose(k) {perm = [0, 2, 1]} @17
  s = MatMul(q, b) @17
  a = Add(s, m) @17
  d = Shape(m) @17
  const two: i64[1] = [2]
  const last: i64[2] = [2, 3]
  n = Gather(d, last) @17
  e = Concat(two, n) {axis = 0} @17
  x = Reshape(a, e) @17
  p = Softmax(x) {axis = -1} @17
  y = MatMul(p, v) @17
}"""
# Windows: a bias for heads, and a mask for the windows of an image.
WINDOWS = """graph main(q: f32[{count},2,9,4], k: f32[{count},2,9,4], v: f32[{count},2,9,3],
  h: f32[1,2,9,9], m: f32[1,4,1,9,9]) -> (y: f32[{count},2,9,3]) {{
  const five: i64[5] = [{images}, 4, 2, 9, 9]
  const four: i64[4] = [-1, 2, 9, 9]
  b = Transpose(k) {{perm = [0, 1, 3, 2]}} @17
  s = MatMul(q, b) @17
  a = Add(s, h) @17
  r = Reshape(a, five) @17
  w = Add(r, m) @17
  x = Reshape(w, four) @17
  p = Softmax(x) {{axis = -1}} @17
  y = MatMul(p, v) @17
}}"""
# Five axes, all of one size; and with one head of K and V for each group.
FIVE = """graph main(q: f32[B,3,{group},S,4], k: f32[B,3,{keys},T,4], v: f32[B,3,{keys},T,3],
  m: f32[{mask}]) -> (y: f32[B,3,{group},S,3]) {{
  b = Transpose(k) {{perm = [0, 1, 2, 4, 3]}} @17
  s = MatMul(q, b) @17
  x = Add(s, m) @17
  p = Softmax(x) {{axis = -1}} @17
  y = MatMul(p, v) @17
}}"""
# Heads repeated for groups of queries'.
REPEATED = """graph main(q: f32[B,6,S,4], k: f32[B,2,T,4], v: f32[B,2,T,3], m: f32[B,1,S,T]) -> (y: f32[B,6,S,3]) {
  const axis: i64[1] = [2]
  const times: i64[5] = [1, 1, 3, 1, 1]
  const four_v: i64[4] = [0, 6, -1, 3]
  ka = Unsqueeze(k, axis) @17
  kb = Expand(ka, times) @17
  const four_k: i64[4] = [0, 6, -1, 4]
  kc = Reshape(kb, four_k) @17
  va = Unsqueeze(v, axis) @17
  vb = Tile(va, times) @17
  vc = Reshape(vb, four_v) @17
  b = Transpose(kc) {perm = [0, 1, 3, 2]} @17
  s = MatMul(q, b) @17
  x = Add(s, m) @17
  p = Softmax(x) {axis = -1} @17
  y = MatMul(p, vc) @17
}"""
# The same, K being transposed with batch and heads in one axis.
SWAPPED = (
    REPEATED.replace(
        "b = Transpose(kc) {perm = [0, 1, 3, 2]} @17",
        """const three: i64[3] = [-1, {T}, 4]
  const four: i64[4] = [-1, 6, 4, {T}]
  kd = Reshape(kb, three) @17
  ke = Transpose(kd) {perm = [0, 2, 1]} @17
  b = Reshape(ke, four) @17""",
    )
    .replace("  const four_k: i64[4] = [0, 6, -1, 4]\n  kc = Reshape(kb, four_k) @17\n", "")
    .replace("{T}", "33")
    .replace(",T", ",33")
)
# A factor for each head, as the cosine attention of Swin V2 has it.
FACTORS = """graph main(q: f32[B,2,S,4], k: f32[B,2,T,4], v: f32[B,2,T,3], f: f32[2,1,1], m: f32[1,2,S,T]) -> (y: f32[B,2,S,3]) {
  b = Transpose(k) {perm = [0, 1, 3, 2]} @17
  s = MatMul(q, b) @17
  t = Mul(s, f) @17
  x = Add(t, m) @17
  p = Softmax(x) {axis = -1} @17
  y = MatMul(p, v) @17
}"""
GRAPHS = {
    "folded": FOLDED,
    "alibi": ALIBI,
    "fewer axes": FEWER,
    "windows": WINDOWS.format(count=4, images=1),
    "five axes": FIVE.format(group=2, keys=2, mask="S,T"),
    "five axes, heads differ": FIVE.format(group=2, keys=2, mask="1,1,2,S,T"),
    "groups": FIVE.format(group=2, keys=1, mask="S,T"),
    "groups, entries differ": FIVE.format(group=2, keys=1, mask="B,1,1,S,T"),
    "repeated": REPEATED,
    "repeated, keys swapped": SWAPPED,
    "factors": FACTORS,
}


def _content(text: str) -> bytes:
    return to_bytes(Model(parse_graph(text), 8, {"": 17, "com.microsoft": 1}))


def _feeds(text: str, sizes: dict[str, int], seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for name, kind, axes in re.findall(r"(\w+): (f32|bool)\[([^\]]*)\]", text.split("->", maxsplit=1)[0]):
        shape = [sizes[axis] if axis in sizes else int(axis) for axis in axes.split(",")]
        numbers = rng.standard_normal(shape).astype(np.float32)
        feeds[name] = numbers > 1 if kind == "bool" else numbers
    return feeds


@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_recognised(name: str) -> None:
    explained = explain_model(_content(GRAPHS[name]))
    assert not explained.host_steps
    assert "SoftmaxAttention" in {node.operator for node in explained.nodes}
    assert not {"Softmax", "MatMul", "FusedMatMul"} & {node.operator for node in explained.nodes}


@pytest.mark.parametrize("name", GRAPHS)
@given(st.integers(1, 3), st.integers(1, 40), st.integers(1, 300), st.integers(0, 1 << 20))
def test_answers_are_those_of_the_graph(name: str, batch: int, queries: int, keys: int, seed: int) -> None:
    text = GRAPHS[name]
    feeds = _feeds(text, {"B": batch, "S": queries, "T": keys}, seed)
    content = _content(text)
    [found] = sardonyx.InferenceSession(content).run(None, feeds)
    [wanted] = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GRAPHS)
def test_answers_of_known_sizes_are_those_of_the_graph(name: str) -> None:
    empty = () if name in ("folded", "alibi", "fewer axes") else ((1, 0, 4),)  # a Reshape of these takes 0 for another size
    for batch, queries, keys in ((2, 7, 33), (1, 1, 5), (1, 30, 30), *empty):
        sizes = {"B": batch, "S": queries, "T": keys}
        feeds = _feeds(GRAPHS[name], sizes, 0)
        known = GRAPHS[name].replace("[C,", f"[{2 * batch},")
        for letter, size in sizes.items():
            known = re.sub(rf"(?<=[\[,]){letter}(?=[,\]])", str(size), known)
        content = _content(known)
        [found] = sardonyx.InferenceSession(content).run(None, feeds)
        [wanted] = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_masks_of_several_images_stay_as_they_are() -> None:
    text = WINDOWS.format(count=12, images=3)
    assert "SoftmaxAttention" not in {node.operator for node in explain_model(_content(text)).nodes}
    feeds = _feeds(text, {}, 0)
    [found] = sardonyx.InferenceSession(_content(text)).run(None, feeds)
    [wanted] = sardonyx.InferenceSession(_content(text), providers=["SardonyxReferenceExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_repeated_heads_are_not_copied() -> None:
    steps = explain_model(
        _content(REPEATED), {"q": (1, 6, 1, 4), "k": (1, 2, 99, 4), "v": (1, 2, 99, 3), "m": (1, 1, 1, 99)}
    ).steps
    assert "copy" not in {step.label for step in steps}
