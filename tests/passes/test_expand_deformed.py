"""Deformable convolutions as samples and a product: the numbers of the definition and of onnxruntime, and the same refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import sardonyx
from sardonyx.explanation import explain_model


def _model(feeds: dict[str, Any], attrs: dict[str, Any], dims: dict[str, list[Any]], opset: int = 19) -> bytes:
    names = [name if name in feeds else "" for name in ("x", "w", "o", "b", "m")]
    while not names[-1]:
        names.pop()
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims.get(name, feeds[name].shape)) for name in feeds]
    node = helper.make_node("DeformConv", names, ["y"], **attrs)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()
    return content


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    sizes = st.integers(1, 3)
    kernel, strides, dilations = ([draw(sizes), draw(sizes)] for _ in range(3))
    pads = [draw(st.integers(0, 2)) for _ in range(4)]
    group, parts = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4]))
    batch, channels, outputs = draw(st.integers(1, 2)), 4 * draw(sizes), 2 * draw(sizes)
    image = [dilations[axis] * (kernel[axis] - 1) + 1 + draw(st.integers(0, 6)) for axis in (0, 1)]
    out = [
        (image[axis] + pads[axis] + pads[2 + axis] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis] + 1
        for axis in (0, 1)
    ]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shapes = {
        "x": (batch, channels, *image),
        "w": (outputs, channels // group, *kernel),
        "o": (batch, parts * 2 * kernel[0] * kernel[1], *out),
        "b": (outputs,),
        "m": (batch, parts * kernel[0] * kernel[1], *out),
    }
    left_out = {name for name in "bm" if draw(st.booleans())}
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items() if name not in left_out}
    feeds["o"] *= draw(st.sampled_from([0.0, 1.0, 5.0]))
    attrs = {"pads": pads, "strides": strides, "dilations": dilations, "group": group, "offset_group": parts}
    return feeds, attrs


@given(cases(), st.sampled_from([19, 22]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_numbers_are_those_of_the_definition_and_of_onnxruntime(
    case: tuple[dict[str, Any], dict[str, Any]], opset: int, symbolic: bool
) -> None:
    feeds, attrs = case
    dims = {name: ["N", *feeds[name].shape[1:]] for name in "xom" if name in feeds} if symbolic else {}
    content = _model(feeds, attrs, dims, opset)
    assert explain_model(content).host_steps == 0
    (actual,) = sardonyx.InferenceSession(content).run(None, feeds)
    peers = (
        sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]),
        onnxruntime.InferenceSession(content),
    )
    for peer in peers:
        (expected,) = peer.run(None, feeds)
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=2e-4)


def test_sizes_that_may_contradict_each_other_are_left_to_the_definition() -> None:
    feeds = {
        name: np.zeros(shape, np.float32) for name, shape in {"x": (1, 2, 6, 6), "w": (2, 2, 3, 3), "o": (1, 18, 4, 4)}.items()
    }
    content = _model(feeds, {}, {"o": ["N", 18, "H", "W"]})
    assert explain_model(content).host_steps == 1
    session = sardonyx.InferenceSession(content)
    assert session.run(None, feeds)[0].shape == (1, 2, 4, 4)
    with pytest.raises(sardonyx.SardonyxError, match="offset has shape"):
        session.run(None, {**feeds, "o": np.zeros((1, 18, 5, 4), np.float32)})
