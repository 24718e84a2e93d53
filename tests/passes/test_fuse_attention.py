"""Attention exported as products and a softmax: the same numbers in one kernel, masked rows and odd sizes included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.graph import Model
from sardonyx.ir.text import parse_graph

HEADS = """graph main(q: f32[B,S,2,4], k: f32[B,T,2,4], v: f32[B,T,2,3], m: f32[{mask}], c: bool[1,1,S,T]) -> (y: f32[B,S,6]) {{
  const low: f32[] = {low}
  const flat: i64[3] = [0, 0, 6]
  const scale: f32[] = 0.5
  a = Transpose(q) {{perm = [0, 2, 1, 3]}} @17
  b = Transpose(k) {{perm = [0, 2, 3, 1]}} @17
  d = Transpose(v) {{perm = [0, 2, 1, 3]}} @17
  s = MatMul(a, b) @17
  t = Mul(s, scale) @17
  w = Where(c, t, low) @17
  x = Add(w, m) @17
  p = Softmax(x) {{axis = -1}} @17
  o = MatMul(p, d) @17
  r = Transpose(o) {{perm = [0, 2, 1, 3]}} @17
  y = Reshape(r, flat) @17
}}"""
ROWS = """graph main(q: f32[B,S,4], k: f32[B,T,4], v: f32[B,T,3], m: f32[{mask}]) -> (y: f32[B,S,3]) {{
  b = Transpose(k) {{perm = [0, 2, 1]}} @12
  s = MatMul(q, b) @12
  x = Add(m, s) @12
  p = Softmax(x) {{axis = 2}} @12
  y = MatMul(p, v) @12
}}"""
PIXELS = """graph main(q: f32[B,2,4,S], k: f32[B,2,4,T], v: f32[B,2,3,T], m: f32[1,2,S,T]) -> (y: f32[B,2,3,S]) {
  const scale: f32[] = 0.5
  a = Transpose(q) {perm = [0, 1, 3, 2]} @17
  s = MatMul(a, k) @17
  t = Mul(s, scale) @17
  x = Add(t, m) @17
  p = Softmax(x) {axis = -1} @17
  b = Transpose(p) {perm = [0, 1, 3, 2]} @17
  y = MatMul(v, b) @17
}"""
CHOSEN = """graph main(q: f32[B,3,S,4], k: f32[B,{heads},T,4], v: f32[B,{heads},T,3], c: bool[{mask}]) -> (y: f32[B,3,S,3]) {{
  const low: f32[] = {low}
  const cap: f32[] = 2.5
  const zero: f32[] = 0.0
  b = Transpose(k) {{perm = [0, 1, 3, 2]}} @17
  s = MatMul(q, b) @17
  {capped}
  w = Where({sides}) @17
  p = Softmax(w) {{axis = -1}} @17
  {cleared}
  y = MatMul(a, v) @17
}}"""
LETTERS = """graph main(q: f32[{q}], k: f32[{k}], v: f32[{v}]) -> (y: f32[{y}]) {{
  s = Einsum({scores} @17
  p = Softmax(s) {{axis = -1}} @17
  y = Einsum({mixed} @17
}}"""
LOWEST = float(np.finfo(np.float32).min)


def _model(text: str, opset: int) -> bytes:
    return to_bytes(Model(parse_graph(text), 8, {"": opset, "com.microsoft": 1}))


def _agree(content: bytes, feeds: dict[str, Any]) -> None:
    [found] = sardonyx.InferenceSession(content).run(None, feeds)
    reference = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"])
    [wanted] = reference.run(None, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


SIZES = st.integers(1, 20)


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3),
    SIZES,
    SIZES,
    st.sampled_from(["B,1,1,T", "B,1,S,T", "S,T", "1,T"]),
    st.booleans(),
)
@example(1, 1, 1, 512, "B,1,1,T", True)
@example(2, 1, 40, 40, "S,T", False)
def test_heads_and_masks(seed: int, batch: int, queries: int, keys: int, mask: str, lowest: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"B": batch, "S": queries, "T": keys, "1": 1}
    low = LOWEST if lowest else -np.inf
    shape = [sizes[name] for name in mask.split(",")]
    feeds: dict[str, Any] = {
        "q": rng.standard_normal((batch, queries, 2, 4)),
        "k": rng.standard_normal((batch, keys, 2, 4)),
        "v": rng.standard_normal((batch, keys, 2, 3)),
        "m": np.where(rng.random(shape) < 0.2, -1e4, rng.standard_normal(shape)),
    }
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    feeds["c"] = rng.random((1, 1, queries, keys)) < 0.7
    _agree(_model(HEADS.format(mask=mask, low=low), 17), feeds)


@pytest.mark.parametrize("low", [LOWEST, -np.inf])
def test_a_row_without_keys_is_what_the_softmax_makes_of_it(low: float) -> None:
    rng = np.random.default_rng(5)
    feeds: dict[str, Any] = {
        name: rng.standard_normal((1, 8, 2, size)).astype(np.float32) for name, size in (("q", 4), ("k", 4), ("v", 3))
    }
    feeds["m"] = np.zeros((1, 1, 1, 8), np.float32)
    feeds["c"] = np.tril(np.ones((1, 1, 8, 8), bool))
    feeds["c"][0, 0, 3] = False
    _agree(_model(HEADS.format(mask="B,1,1,T", low=low), 17), feeds)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), SIZES, SIZES, st.sampled_from(["B,S,T", "1,S,T", "S,T"]))
def test_one_head(seed: int, batch: int, queries: int, keys: int, mask: str) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"B": batch, "S": queries, "T": keys, "1": 1}
    shapes = {
        "q": (batch, queries, 4),
        "k": (batch, keys, 4),
        "v": (batch, keys, 3),
        "m": [sizes[name] for name in mask.split(",")],
    }
    _agree(
        _model(ROWS.format(mask=mask), 12),
        {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()},
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), SIZES, SIZES, st.booleans())
@example(0, 1, 17, 40, True)
def test_channels_before_pixels(seed: int, batch: int, queries: int, keys: int, special: bool) -> None:
    """V times the transposed weights, as attention over images is written."""
    rng = np.random.default_rng(seed)
    shapes = {"q": (batch, 2, 4, queries), "k": (batch, 2, 4, keys), "v": (batch, 2, 3, keys), "m": (1, 2, queries, keys)}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    if special:
        feeds["m"][0, 1, 0, 0] = -np.inf if keys > 1 else 0.0
        feeds["q"][0, 0, 0, 0] = np.nan
    content = _model(PIXELS, 17)
    _agree(content, feeds)
    assert "SoftmaxAttention" in {step.label for step in explain_model(content, {"B": (1,), "S": (16,), "T": (16,)}).steps}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), SIZES, SIZES, st.permutations("bhnd"), st.permutations("bhmd"), st.permutations("bhme"),
    st.permutations("bhne").filter(lambda letters: letters.index("b") < letters.index("h")), st.booleans(), st.booleans(),
)  # fmt: skip
def test_products_in_letters_in_any_order(
    seed: int, queries: int, keys: int, q: list[str], k: list[str], v: list[str], y: list[str], first: bool, second: bool
) -> None:
    rng = np.random.default_rng(seed)
    sizes = {"b": 2, "h": 3, "n": queries, "m": keys, "d": 4, "e": 5}
    names = {"b": "2", "h": "3", "n": "S", "m": "T", "d": "4", "e": "5"}

    def product(a: tuple[str, str], b: tuple[str, str], out: str, swapped: bool) -> str:
        (one, left), (other, right) = (b, a) if swapped else (a, b)
        return f'{one}, {other}) {{equation = "{left}, {right} -> {out}"}}'

    texts = {name: "".join(letters) for name, letters in (("q", q), ("k", k), ("v", v), ("y", y))}
    text = LETTERS.format(
        **{name: ",".join(names[letter] for letter in letters) for name, letters in texts.items()},
        scores=product(("q", texts["q"]), ("k", texts["k"]), "bhnm", first),
        mixed=product(("p", "bhnm"), ("v", texts["v"]), texts["y"], second),
    )
    feeds = {name: rng.standard_normal([sizes[each] for each in texts[name]]).astype(np.float32) for name in "qkv"}
    content = _model(text, 17)
    _agree(content, feeds)
    assert "SoftmaxAttention" in {step.label for step in explain_model(content, {"S": (16,), "T": (16,)}).steps}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1), SIZES, st.integers(1, 300), st.sampled_from([1, 3]), st.sampled_from(["B,1,1,T", "1,3,S,T", "T"]),
    st.sampled_from([-np.inf, LOWEST, -1e9, -1e4, -3.0]), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
@example(0, 12, 300, 1, "1,3,S,T", -np.inf, True, True, True, True)
@example(0, 3, 20, 3, "1,3,S,T", -np.inf, True, False, True, True)
def test_truth_values_choose_scores(
    seed: int,
    queries: int,
    keys: int,
    heads: int,
    mask: str,
    low: float,
    cleared: bool,
    capped: bool,
    swapped: bool,
    special: bool,
) -> None:
    """Any number stands for a score that a mask takes out; then zeros for weights that are NaN, as exporters write them."""
    rng = np.random.default_rng(seed)
    sizes = {"B": 2, "S": queries, "T": keys, "1": 1, "3": 3}
    text = CHOSEN.format(
        heads=heads,
        mask=mask,
        low=low,
        capped="d = Div(s, cap) @17\n  e = Tanh(d) @17\n  t = Mul(e, cap) @17" if capped else "t = Mul(s, cap) @17",
        sides="c, low, t" if swapped else "c, t, low",
        cleared="n = IsNaN(p) @17\n  a = Where(n, zero, p) @17" if cleared else "a = Identity(p) @17",
    )
    shapes = {"q": (2, 3, queries, 4), "k": (2, heads, keys, 4), "v": (2, heads, keys, 3)}
    feeds: dict[str, Any] = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["c"] = rng.random([sizes[name] for name in mask.split(",")]) < 0.5
    if special:
        feeds["c"][..., :1] = swapped == (keys % 2 == 0)
        feeds["q"][0, 0, 0, 0] = np.nan
        feeds["k"][1, 0, keys - 1, 0] = np.inf
        feeds["v"][1, heads - 1, keys // 2, 1] = -np.inf
        if mask == "1,3,S,T":
            feeds["c"][0, 1, queries // 2] = swapped
    content = _model(text, 17)
    _agree(content, feeds)
    assert "SoftmaxAttention" in {step.label for step in explain_model(content, {"B": (2,), "S": (16,), "T": (16,)}).steps}


def test_the_scores_take_no_memory_and_nothing_is_copied_behind() -> None:
    steps = explain_model(_model(HEADS.format(mask="B,1,1,T", low=LOWEST), 17), {"B": (1,), "S": (256,), "T": (256,)}).steps
    labels = {step.label for step in steps}
    assert "SoftmaxAttention" in labels
    assert not labels & {"Softmax", "MatMul", "FusedMatMul", "Transpose", "Reshape"}
