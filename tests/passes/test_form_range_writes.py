"""Writes to a range of an axis: the same elements as by indices, wherever the range begins and ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_support import run_reference
from sardonyx import InferenceSession, errors, explain_model

# Each element type, with axis, shape and the index column's shape.
CASES = [
    ("float", 1, (2, 9, 4), "1, -1, 1"),
    ("int32", 1, (3, 9), "1, -1"),
    ("double", 0, (9, 2), "-1, 1"),
    ("bool", 0, (9,), "-1"),
]


def writing(kind: str, axis: int, shape: tuple[int, ...], column: str) -> bytes:
    rank = len(shape)
    sizes = [str(size) if number == axis else f"d{number}" for number, size in enumerate(shape)]
    one = ["1" if number == axis else size for number, size in enumerate(sizes)]
    full, thin = ",".join(sizes), ",".join(one)
    parts = ", ".join("unit" if number == axis else f"size{number}" for number in range(rank))
    measured = "\n".join(
        f"at{number} = Constant <value = int64[1] {{{number}}}>() size{number} = Gather(shape, at{number})"
        for number in range(rank)
        if number != axis
    )
    content: bytes = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 13]>
    g ({kind}[{full}] x, int64[1] s, int64[1] e, {kind}[{thin}] v) => ({kind}[{full}] y) {{
      axes = Constant <value = int64[1] {{{axis}}}>()
      unit = Constant <value = int64[1] {{1}}>()
      one = Constant <value = int64 {{1}}>()
      column = Constant <value = int64[{rank}] {{{column}}}>()
      taken = Slice(x, s, e, axes, unit)
      shape = Shape(taken)
      u = Expand(v, shape)
      first = Squeeze(s)
      end = Squeeze(e)
      numbers = Range(first, end, one)
      ramp = Reshape(numbers, column)
      {measured}
      times = Concat <axis = 0> ({parts})
      indices = Tile(ramp, times)
      y = ScatterElements <axis = {axis}> (x, indices, u)
    }}""").SerializeToString()
    return content


@pytest.mark.parametrize("case", CASES)
def test_the_choice_is_made(case: tuple[str, int, tuple[int, ...], str]) -> None:
    explained = explain_model(writing(*case))
    assert [each.changes for each in explained.passes if each.name == "FormRangeWrites"] == [1]
    assert explained.segments == ("native",)


@settings(deadline=None, max_examples=80)
@given(case=st.sampled_from(CASES), first=st.integers(-11, 11), end=st.integers(-11, 11), empty=st.booleans())
def test_any_range(case: tuple[str, int, tuple[int, ...], str], first: int, end: int, empty: bool) -> None:
    """The same elements, or the same refusal: of ranges that reach past an end, or from below 0 to above."""
    kind, axis, shape, _ = case
    sizes = tuple(0 if empty and number != axis else size for number, size in enumerate(shape))
    thin = tuple(1 if number == axis else size for number, size in enumerate(sizes))
    dtype = {"float": np.float32, "int32": np.int32, "double": np.float64, "bool": np.bool_}[kind]
    rng = np.random.default_rng(500 + first + 20 * end)
    feeds: dict[str, Any] = {"x": rng.integers(0, 2, sizes).astype(dtype), "v": rng.integers(0, 2, thin).astype(dtype)}
    feeds |= {"s": np.array([first]), "e": np.array([end])}
    content = writing(*case)
    session = InferenceSession(content)
    try:
        (wanted,) = run_reference(content, feeds)
    except errors.BadNodeInput:
        with pytest.raises(errors.BadNodeInput, match="ScatterElements"):
            session.run(None, feeds)
        return
    (found,) = session.run(None, feeds)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)
