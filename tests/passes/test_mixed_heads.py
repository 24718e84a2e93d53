"""Attention whose heads are mixed by small products around the softmax, and softmaxes of rows that lie apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import model, numbers
from sardonyx.ir.tensor import Array
from session_agreement import REFERENCE, difference, outcome, session

node = helper.make_node


def _assert_agrees(content: bytes, x: Array) -> None:
    """With the definitions of the operators."""
    expected = outcome(session(content, providers=REFERENCE), {"x": x})
    assert expected is not None
    assert difference(outcome(session(content), {"x": x}), expected) == ""


@pytest.mark.parametrize("heads", [1, 4, 12, 16])
def test_heads_mixed_before_and_after_the_softmax(heads: int) -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]),
        node("MatMul", ["a", "w"], ["b"]),
        node("Add", ["b", "c"], ["d"]),
        node("Transpose", ["d"], ["e"], perm=[0, 3, 1, 2]),
        node("Softmax", ["e"], ["f"], axis=-1),
        node("Transpose", ["f"], ["g"], perm=[0, 2, 3, 1]),
        node("MatMul", ["g", "v"], ["h"]),
        node("Transpose", ["h"], ["y"], perm=[0, 3, 1, 2]),
    ]
    weights = {"w": numbers(1, heads, heads), "c": numbers(2, heads), "v": numbers(3, heads, heads)}
    content = model(nodes, {"x": ("N", heads, 17, 19)}, weights).SerializeToString()
    x = numbers(4, 2, heads, 17, 19)
    _assert_agrees(content, x)
    x[0, 0, 3, 5] = np.nan
    _assert_agrees(content, x)


@settings(max_examples=12)
@given(
    rows=st.integers(15, 18),
    behind=st.sampled_from([(2,), (3,), (7,), (2, 3), (15,), (1, 5)]),
    name=st.sampled_from(["Softmax", "LogSoftmax"]),
    special=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
def test_softmax_of_rows_that_lie_apart(rows: int, behind: tuple[int, ...], name: str, special: float | None) -> None:
    shape = (2, rows, *behind)
    x = numbers(rows, *shape)
    if special is not None:
        x.flat[7] = special
    content = model([node(name, ["x"], ["y"], axis=1)], {"x": ("N", *shape[1:])}, {})
    _assert_agrees(content.SerializeToString(), x)
