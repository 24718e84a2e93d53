"""Slices that move with the number of the iteration: the same elements, as Gathers where none of them can reach past the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession, explain_model

F32 = np.float32


def stepping(trips: str, offset: int, length: int, axis: int = 0, kind: int = 7) -> bytes:
    """Sums of slices, one in each iteration; `trips` is computed from n, the size of the axis."""
    shape = "n,4" if axis == 0 else "4,n"
    content: bytes = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
    g (float[{shape}] x, int64 k) => (float y, float[m] all) {{
      axes = Constant <value = int64[1] {{{axis}}}>()
      unit = Constant <value = int64[1] {{1}}>()
      sizes = Shape(x)
      n = Gather(sizes, axes)
      trips = {trips}
      zero = Constant <value = float {{0.0}}>()
      y, all = Loop(trips, , zero) <body = turn (int64 i, bool c, float s) => (bool c, float t, float p) {{
        flat = Constant <value = int64[1] {{1}}>()
        at = Reshape(i, flat)
        number = Cast <to = {kind}> (at)
        beginning = Constant <value = int64[1] {{{offset}}}>()
        stop = Constant <value = int64[1] {{{offset + length}}}>()
        a = Add(at, beginning)
        b = Add(at, stop)
        row = Slice(x, a, b, axes, unit)
        p = ReduceSum <keepdims = 0> (row)
        t = Add(s, p)
      }}>
    }}""").SerializeToString()
    return content


def gathering(content: bytes) -> Any:
    (found,) = (each for each in explain_model(content).passes if each.name == "FormCountedGathers")
    return found


def assert_same(content: bytes, feeds: dict[str, Any]) -> None:
    for found, wanted in zip(InferenceSession(content).run(None, feeds), run_reference(content, feeds), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


ENDS = {"Identity(n)": 0, "Sub(n, unit)": 1, "Add(n, unit)": -1, "Identity(k)": -9, "Add(unit, unit)": -9}


@settings(deadline=None, max_examples=40)
@given(
    trips=st.sampled_from(list(ENDS)),
    offset=st.integers(-1, 2),
    length=st.integers(0, 3),
    axis=st.integers(0, 1),
    size=st.integers(0, 20),
)
def test_any_slices(trips: str, offset: int, length: int, axis: int, size: int) -> None:
    """Those that may reach past the end stay and are cut there; the others need no look at the data."""
    content = stepping(trips, offset, length, axis)
    x = np.random.default_rng(size).standard_normal((size, 4) if axis == 0 else (4, size)).astype(F32)
    assert_same(content, {"x": x, "k": np.array(6)})
    is_inside = length > 0 and offset >= 0 and offset + length - 1 <= ENDS[trips]
    assert gathering(content).changes == is_inside


def test_a_slice_that_may_reach_past_the_end_says_why() -> None:
    assert "the axis may end before the last iteration's elements do" in gathering(stepping("Identity(n)", 0, 2)).reasons[0]


@pytest.mark.parametrize("length", [0, 1, 7])
def test_the_number_of_an_outer_loop(length: int) -> None:
    content = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
    g (float[n,4] x, int64 k) => (float[1,4] y) {
      axes = Constant <value = int64[1] {0}>()
      unit = Constant <value = int64[1] {1}>()
      sizes = Shape(x)
      n = Gather(sizes, axes)
      zero = Constant <value = float[1,4] {0.0, 0.0, 0.0, 0.0}>()
      y = Loop(n, , zero) <body = outer (int64 i, bool c, float[1,4] s) => (bool c, float[1,4] t) {
        t = Loop(k, , s) <body = inner (int64 j, bool d, float[1,4] q) => (bool d, float[1,4] r) {
          a = Reshape(i, unit)
          b = Add(a, unit)
          row = Slice(x, a, b, axes)
          w = Add(q, row)
          r = Tanh(w)
        }>
      }>
    }""").SerializeToString()
    x = np.random.default_rng(length).standard_normal((length, 4)).astype(F32)
    assert_same(content, {"x": x, "k": np.array(3)})
    assert gathering(content).changes == 1


def windows(first: int, step: int, length: int, waiting: int, operator: str) -> bytes:
    """Sums of windows that a script counts itself; iterations wait until `waiting` more elements than the number are there."""
    condition = {
        "LessOrEqual": "LessOrEqual({}, n)",
        "Less": "Less({}, n)",
        "Greater": "Greater(n, {})",
        "Not": "Not(over)",
        "And": "And(always, small)",
    }[operator]
    before = {"Not": "over = Greater({}, n)", "And": "small = Less({}, n)"}.get(operator, "")
    content: bytes = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
    g (float[n,4] x, bool always) => (float y, int64 last) {{
      axes = Constant <value = int64[1] {{0}}>()
      unit = Constant <value = int64[1] {{1}}>()
      zeroth = Constant <value = int64 {{0}}>()
      sizes = Shape(x)
      n = Gather(sizes, zeroth)
      start = Constant <value = int64 {{{first}}}>()
      room = Constant <value = int64 {{{waiting}}}>()
      needed = Add(start, room)
      {before.format("needed")}
      go = {condition.format("needed")}
      zero = Constant <value = float {{0.0}}>()
      y, last = Loop(, go, zero, start) <body = turn (int64 i, bool c, float s, int64 t) => (bool goes, float q, int64 u) {{
        length = Constant <value = int64[1] {{{length}}}>()
        a = Reshape(t, unit)
        b = Add(a, length)
        row = Slice(x, a, b, axes, unit)
        p = ReduceSum <keepdims = 0> (row)
        q = Add(s, p)
        step = Constant <value = int64 {{{step}}}>()
        u = Add(t, step)
        end = Add(u, room)
        {before.format("end").replace("over", "over2").replace("small", "small2")}
        goes = {condition.format("end").replace("over", "over2").replace("small", "small2")}
      }}>
    }}""").SerializeToString()
    return content


@settings(deadline=None, max_examples=50)
@given(
    first=st.integers(-2, 3),
    step=st.integers(1, 3),
    length=st.integers(1, 4),
    waiting=st.integers(0, 4),
    operator=st.sampled_from(("LessOrEqual", "Less", "Greater", "Not", "And")),
    size=st.integers(0, 15),
    always=st.booleans(),
)
def test_numbers_that_a_script_counts(
    first: int, step: int, length: int, waiting: int, operator: str, size: int, always: bool
) -> None:
    """What iterations wait for tells where the last of them ends."""
    content = windows(first, step, length, waiting, operator)
    x = np.random.default_rng(size).standard_normal((size, 4)).astype(F32)
    assert_same(content, {"x": x, "always": np.array(always)})
    room = waiting + (operator not in ("LessOrEqual", "Not"))
    assert gathering(content).changes == (first >= 0 and length <= room)


@pytest.mark.parametrize("size", [0, 5, 8, 40, 47])
@pytest.mark.parametrize(("length", "is_inside"), [(8, True), (3, True), (9, False)])
def test_chunks(size: int, length: int, is_inside: bool) -> None:
    """As many chunks as there are whole ones."""
    content = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
    g (float[n] x) => (float y, float[m] all) {{
      axes = Constant <value = int64[1] {{0}}>()
      unit = Constant <value = int64[1] {{1}}>()
      eight = Constant <value = int64[1] {{8}}>()
      length = Constant <value = int64[1] {{{length}}}>()
      n = Shape(x)
      trips = Div(n, eight)
      zero = Constant <value = float {{0.0}}>()
      y, all = Loop(trips, , zero) <body = turn (int64 i, bool c, float s) => (bool c, float t, float p) {{
        at = Reshape(i, unit)
        a = Mul(at, eight)
        b = Add(a, length)
        row = Slice(x, a, b, axes, unit)
        p = ReduceSum <keepdims = 0> (row)
        t = Add(s, p)
      }}>
    }}""").SerializeToString()
    assert_same(content, {"x": np.arange(size, dtype=F32)})
    assert gathering(content).changes == is_inside
