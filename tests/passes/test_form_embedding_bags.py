"""Loops over bags of rows: the same results as by their definitions, in one kernel that stays inside of its buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_session import guarded_feeds, guarded_memory
from native_support import run_reference
from sardonyx import InferenceSession, explain_model
from sardonyx.errors import SardonyxError
from sardonyx.ir.tensor import Array

MODES = ("Sum", "Mean", "Max")


def traced(mode: str, index: str = "int64", *, weighted: bool = False, condition: str = "go") -> bytes:
    """As the exporter that traces writes it; every bound is fed."""
    reduced = "ReduceSum <keepdims = 0> (rows, zero1)" if mode == "Sum" else f"Reduce{mode} <axes = [0], keepdims = 0> (rows)"
    weights = "w_part = Slice(w, s1, e1, zero1)\n w_rows = Unsqueeze(w_part, one1)\n rows = Mul(found, w_rows)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[V,D] table, int64[B] starts, int64[B] ends, {index}[N] x{", float[N] w" if weighted else ""}, bool end)
        => (float[B2,D2] y) {{
      go = Constant <value: tensor = bool {{1}}>()
      zero = Constant <value: tensor = int64 {{0}}>()
      zero1 = Constant <value: tensor = int64[1] {{0}}>()
      one1 = Constant <value: tensor = int64[1] {{1}}>()
      sizes = Shape(ends)
      n = Gather(sizes, zero)
      y = Loop(n, go) <body = bag (int64 i, bool c) => (bool c2, float[D] r) {{
        s = Gather(starts, i)
        e = Gather(ends, i)
        s1 = Unsqueeze(s, zero1)
        e1 = Unsqueeze(e, zero1)
        part = Slice(x, s1, e1, zero1)
        {"found" if weighted else "rows"} = Gather(table, part)
        {weights if weighted else ""}
        r = {reduced}
        c2 = Identity({condition})
      }}>
    }}"""
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


def appended(mode: str, width: int, *, list_first: bool = False, sizes: tuple[int, int] | None = None) -> bytes:
    """As the exporter built on Dynamo writes it: a list, and Ifs for bags without rows and for the last one.

    The list may be carried before the number of the bag; `sizes` are the numbers of bags and of elements, if they are known.
    """
    plain = f"z_row = Reduce{mode}(part, zero1)"
    last = """tail = Equal(i, last)
          z_row = If(tail) <then_branch = at_end () => (float[1,D] a) {
            total = ReduceSum(part, zero1)
            left = Sub(count1, start)
            some = Greater(left, zero)
            a = If(some) <then_branch = divided () => (float[1,D] b) {
              divisor = Cast <to = 1> (left)
              b = Div(total, divisor)
            }, else_branch = whole () => (float[1,D] b2) { b2 = Identity(total) }>
          }, else_branch = before () => (float[1,D] a2) { a2 = ReduceMean(part, zero1) }>"""
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g (float[N,{width}] table, int64[B] offsets, int64[N] x) => (float[B2,D2] y) {{
      zero = Constant <value: tensor = int64 {{0}}>()
      one = Constant <value: tensor = int64 {{1}}>()
      two = Constant <value: tensor = int64 {{2}}>()
      zero1 = Constant <value: tensor = int64[1] {{0}}>()
      all = Constant <value: tensor = int64[1] {{-1}}>()
      none = Constant <value: tensor = float[1,{width}] {{{",".join("0" * width)}}}>()
      count1 = Shape(x)
      n = Size(offsets)
      last = Sub(n, one)
      bounds = Concat <axis = 0> (offsets, count1)
      e = SequenceEmpty()
      first = Less(zero, n)
      i_end, list = Loop(, first, zero, e) <body = bag (int64 t, bool c, int64 i, seq(float[1,D]) q)
          => (bool c2, int64 i2, seq(float[1,D]) q2) {{
        at = Reshape(i, all)
        at_next = Add(at, one)
        at_second = Add(at, two)
        start = Slice(bounds, at, at_next)
        end = Slice(bounds, at_next, at_second)
        nothing = Equal(start, end)
        row = If(nothing) <then_branch = empty () => (float[1,{width}] z) {{ z = Identity(none) }},
          else_branch = rows () => (float[1,D] z_row) {{
          part = Slice(table, start, end)
          {last if mode == "Mean" else plain}
        }}>
        q2 = SequenceInsert(q, row)
        i2 = Add(i, one)
        c2 = Less(i2, n)
      }}>
      y = ConcatFromSequence <axis = 0> (list)
    }}"""
    if list_first:
        for old, new in (
            ("i_end, list = Loop(, first, zero, e)", "list, i_end = Loop(, first, e, zero)"),
            ("bool c, int64 i, seq(float[1,D]) q)", "bool c, seq(float[1,D]) q, int64 i)"),
            ("bool c2, int64 i2, seq(float[1,D]) q2)", "bool c2, seq(float[1,D]) q2, int64 i2)"),
        ):
            assert old in text
            text = text.replace(old, new)
    if sizes is not None:
        text = text.replace("int64[B] offsets, int64[N] x", f"int64[{sizes[0]}] offsets, int64[{sizes[1]}] x")
    content: bytes = onnx.parser.parse_model(text).SerializeToString()
    return content


def floats(rng: np.random.Generator, *shape: int) -> Array:
    """Some of them infinite, some not numbers."""
    made = rng.standard_normal(shape).astype(np.float32)
    made[rng.random(shape) < 0.02] = rng.choice([np.inf, -np.inf, np.nan])
    return made


def assert_same(content: bytes, feeds: dict[str, Any], *, at_start: bool) -> None:
    session = InferenceSession(content)
    with guarded_memory(at_start) as guard:
        found = np.array(session.run(None, guarded_feeds(guard, feeds))[0])
    (wanted,) = run_reference(content, feeds)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(MODES),
    index=st.sampled_from(("int32", "int64")),
    weighted=st.booleans(),
    width=st.sampled_from((1, 3, 16, 37, 64, 150)),
    bags=st.integers(1, 9),
    at_start=st.booleans(),
)
def test_bags_with_any_bounds(seed: int, mode: str, index: str, weighted: bool, width: int, bags: int, at_start: bool) -> None:
    rng = np.random.default_rng(seed)
    elements, rows = int(rng.integers(0, 40)), int(rng.integers(1, 50))
    far = elements + 5
    feeds = {
        "table": floats(rng, rows, width),
        "starts": rng.integers(-far, far, bags),
        "ends": rng.integers(-far, far, bags),
        "x": rng.integers(-rows, rows, elements).astype(index),
        **({"w": floats(rng, elements)} if weighted else {}),
        "end": np.array(True),
    }
    feeds["starts"][: bags // 3], feeds["ends"][: bags // 3] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert_same(traced(mode, index, weighted=weighted), feeds, at_start=at_start)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    mode=st.sampled_from(MODES),
    width=st.sampled_from((1, 5, 33)),
    bags=st.integers(1, 9),
    list_first=st.booleans(),
    known=st.booleans(),
)
def test_bags_that_are_appended_to_a_list(seed: int, mode: str, width: int, bags: int, list_first: bool, known: bool) -> None:
    rng = np.random.default_rng(seed)
    elements = int(rng.integers(1, 40))
    offsets = np.sort(np.append(0, rng.integers(0, elements, bags - 1)))
    feeds = {"table": floats(rng, elements, width), "offsets": offsets, "x": np.zeros(elements, np.int64)}
    sizes = (bags, elements) if known else None
    assert_same(appended(mode, width, list_first=list_first, sizes=sizes), feeds, at_start=False)


@pytest.mark.parametrize(
    "content",
    [
        traced("Mean"),
        traced("Sum", weighted=True),
        *(appended(mode, 3) for mode in MODES),
        *(appended(mode, 3, list_first=True, sizes=(4, 9)) for mode in MODES),
    ],
)
def test_no_loop_is_left(content: bytes) -> None:
    assert explain_model(content).host_steps == 0


def test_a_loop_that_may_end_early_stays() -> None:
    content = traced("Sum", condition="end")
    assert explain_model(content).host_steps == 1
    feeds = {"table": np.ones((4, 3), np.float32), "starts": np.zeros(2, np.int64), "ends": np.full(2, 2), "x": np.arange(3)}
    (found,) = InferenceSession(content).run(None, {**feeds, "end": np.array(False)})
    assert found.shape == (1, 3)


@pytest.mark.parametrize("bad", [7, -8, 1 << 40])
def test_an_index_that_is_out_of_range(bad: int) -> None:
    session = InferenceSession(traced("Sum"))
    feeds = {"table": np.ones((7, 3), np.float32), "starts": np.array([0, 2]), "ends": np.array([2, 4]), "end": np.array(True)}
    with pytest.raises(SardonyxError, match=f"index {bad} is out of range for axis 0 of size 7"):
        session.run(None, {**feeds, "x": np.array([1, 2, bad, 3])})
    assert session.run(None, {**feeds, "x": np.array([1, 2, 3, 4, bad])})[0].tolist() == [[2, 2, 2], [2, 2, 2]]  # in no bag
