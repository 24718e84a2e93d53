"""Sequences that are put together in the graph: the same results as by their definitions, in native code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from native_support import run_reference
from sardonyx import InferenceSession, explain_model
from sardonyx.errors import SardonyxError


def model(nodes: list[Any], inputs: dict[str, list[Any]], constants: dict[str, Any], outputs: list[str], version: int) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    content: bytes = made.SerializeToString()
    return content


@settings(deadline=None, max_examples=25)
@given(
    version=st.sampled_from((11, 13, 18)),
    axis=st.sampled_from((0, 1, -1)),
    split=st.sampled_from((None, 2, 4, [1, 3], [4], [0, 4])),
    keepdims=st.integers(0, 1),
    index=st.integers(-1, 0),
    new_axis=st.integers(0, 1),
    position=st.sampled_from((None, 0, -1, 1)),
)
def test_known_elements_are_taken_as_the_definitions_say(
    version: int, axis: int, split: Any, keepdims: int, index: int, new_axis: int, position: int | None
) -> None:
    positions = {} if position is None else {"position": position}
    sizes = {} if split is None else {"split": split}
    nodes = [
        helper.make_node("SplitToSequence", ["x", *sizes], ["s"], axis=axis, keepdims=keepdims),
        helper.make_node("SequenceAt", ["s", "index"], ["one"]),
        helper.make_node("SequenceInsert", ["s", "one", *positions], ["more"]),
        helper.make_node("SequenceLength", ["more"], ["length"]),
        helper.make_node("SequenceConstruct", ["one", "one"], ["pair"]),
        helper.make_node("ConcatFromSequence", ["pair"], ["joined"], axis=0, new_axis=new_axis),
        helper.make_node("Exp", ["joined"], ["y"]),
    ]
    content = model(nodes, {"x": [4, 4]}, {"index": index, **positions, **sizes}, ["one", "length", "y"], version)
    x = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
    for found, wanted in zip(InferenceSession(content).run(None, {"x": x}), run_reference(content, {"x": x}), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert explain_model(content).host_steps == 0


def test_elements_that_cannot_be_stacked_are_refused_as_ever() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "b"], ["s"]),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ]
    session = InferenceSession(model(nodes, {"a": ["N", 3], "b": ["M", 3]}, {}, ["y"], 17))
    a, b = np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)
    assert session.run(None, {"a": a, "b": a})[0].shape == (2, 2, 3)
    with pytest.raises(Exception, match="Concat"):
        session.run(None, {"a": a, "b": b})


def test_an_element_that_is_not_there_is_refused_as_ever() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["a", "a"], ["s"]),
        helper.make_node("SequenceAt", ["s", "index"], ["y"]),
    ]
    session = InferenceSession(model(nodes, {"a": [2]}, {"index": 5}, ["y"], 17))
    with pytest.raises(Exception, match="position 5 is out of range"):
        session.run(None, {"a": np.ones(2, np.float32)})


@settings(deadline=None, max_examples=25)
@given(
    version=st.sampled_from((11, 13, 18)),
    axis=st.sampled_from((0, 1, -1)),
    split=st.sampled_from((None, 1)),
    keepdims=st.integers(0, 1),
    index=st.integers(-4, 3),
    size=st.sampled_from(("N", 4)),
)
def test_single_elements_are_taken_by_indices_that_are_computed(
    version: int, axis: int, split: int | None, keepdims: int, index: int, size: Any
) -> None:
    """A split into lengths of 1 loses its axis without `keepdims`, as in ONNX Runtime, for which `unbind` is written so."""
    sizes = {} if split is None else {"split": split}
    nodes = [
        helper.make_node("SplitToSequence", ["x", *sizes], ["s"], axis=axis, keepdims=keepdims),
        helper.make_node("SequenceLength", ["s"], ["length"]),
        helper.make_node("Cast", ["i"], ["index"], to=TensorProto.INT64),
        helper.make_node("SequenceAt", ["s", "index"], ["one"]),
        helper.make_node("Exp", ["one"], ["y"]),
    ]
    content = model(nodes, {"x": [size, size], "i": []}, sizes, ["length", "y"], version)
    feeds = {"x": np.arange(16, dtype=np.float32).reshape(4, 4) / 8, "i": np.array(index, np.float32)}
    found, wanted = InferenceSession(content).run(None, feeds), run_reference(content, feeds)
    assert found[1].shape == ((4,) if not keepdims else (4, 1) if axis else (1, 4))
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-6)
    assert explain_model(content).host_steps == 0


def test_an_index_out_of_range_is_refused() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0),
        helper.make_node("Cast", ["i"], ["index"], to=TensorProto.INT64),
        helper.make_node("SequenceAt", ["s", "index"], ["y"]),
    ]
    content = model(nodes, {"x": ["N", 2], "i": []}, {}, ["y"], 13)
    session = InferenceSession(content)
    for index in (3, -4):
        with pytest.raises(SardonyxError):
            session.run(None, {"x": np.ones((3, 2), np.float32), "i": np.array(index, np.float32)})
