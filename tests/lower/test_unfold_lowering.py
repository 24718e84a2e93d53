"""UnfoldTensor natively against its NumPy meaning: windows that overlap, are apart, of open sizes, or do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from guarded_session import guarded_feeds, guarded_memory
from lowering_case import onnx_type
from native_support import assert_native_agrees, compile_native, run_native, run_reference
from sardonyx import InferenceSession, errors


def model(shape: Any, **attrs: Any) -> bytes:
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),  # memory that results might be written into
        helper.make_node("UnfoldTensor", ["size"], ["windows"], domain="com.microsoft", **attrs),
        helper.make_node("Neg", ["windows"], ["y"]),
    ]
    ports = [[helper.make_tensor_value_info("x", onnx_type(np.float32), shape)], [helper.make_empty_tensor_value_info("y")]]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made: bytes = helper.make_model(helper.make_graph(nodes, "g", *ports), opset_imports=opsets, ir_version=8).SerializeToString()
    return made


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_windows_of_any_axis(data: st.DataObject) -> None:
    draw = data.draw
    shape = [draw(st.integers(1, 9)) for _ in range(draw(st.integers(1, 3)))]
    axis = draw(st.integers(0, len(shape) - 1))
    size, step = draw(st.integers(1, shape[axis])), draw(st.integers(1, 10))
    content = model(
        [f"D{number}" if draw(st.booleans()) else each for number, each in enumerate(shape)], dim=axis, size=size, step=step
    )
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    assert_native_agrees(content, feeds, rtol=0.0, atol=0.0)
    graph, compiled = compile_native(content, 2)
    with guarded_memory(draw(st.booleans())) as guard:
        found = run_native(graph, compiled, guarded_feeds(guard, feeds))
        np.testing.assert_array_equal(found[0], run_reference(content, feeds)[0])


def test_a_window_that_does_not_fit_is_refused() -> None:
    session = InferenceSession(model(["L"], dim=0, size=5, step=2))
    assert session.run(None, {"x": np.ones(5, np.float32)})[0].shape == (1, 5)
    for length in (4, 0):
        with pytest.raises(errors.InvalidArgument, match="UnfoldTensor"):
            session.run(None, {"x": np.ones(length, np.float32)})
