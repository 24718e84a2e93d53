"""What is left out of a kernel never reaches the image: results stay what they are, whatever the window."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from lowering_case import onnx_type
from native_support import run_reference
from sardonyx.formats.onnx import load
from sardonyx.formats.onnx.save import model_to_bytes
from sardonyx.passes.fold_shape_values import infer_from_inputs
from sardonyx.passes.trim_kernels import TrimKernels

axes = st.tuples(
    st.integers(1, 7), st.integers(1, 5), st.integers(1, 3), st.integers(1, 9), st.integers(0, 12), st.integers(0, 12)
)


def model(x: Any, w: Any, **attrs: Any) -> Any:
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", onnx_type(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@given(window=st.lists(axes, min_size=1, max_size=2), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_results_stay_the_same(window: list[tuple[int, ...]], seed: int) -> None:
    sizes, kernel, strides, dilations, before, after = zip(*window)
    if any(n + b + a < d * (k - 1) + 1 for n, k, d, b, a in zip(sizes, kernel, dilations, before, after)):
        return
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-4, 5, (2, 3, *each)).astype(np.float32) for each in (sizes, kernel))
    content = model(x, w, strides=strides, dilations=dilations, pads=(*before, *after)).SerializeToString()
    trimmed = load(content)
    infer_from_inputs(trimmed)
    TrimKernels().run(trimmed)
    np.testing.assert_array_equal(run_reference(model_to_bytes(trimmed), {"x": x})[0], run_reference(content, {"x": x})[0])


def test_taps_that_see_padding_alone_are_left_out() -> None:
    x, w = np.ones((1, 1, 16, 1), np.float32), np.ones((1, 1, 3, 3), np.float32)
    made = load(model(x, w, dilations=[24, 1], pads=[24, 1, 24, 1]).SerializeToString())
    infer_from_inputs(made)
    assert TrimKernels().run(made).changes == 1
    (node,) = made.graph.nodes
    assert node.inputs[1] is not None
    assert node.inputs[1].shape == (1, 1, 1, 1)
    assert node.attr("pads") == (0, 0, 0, 0)


def test_weights_that_are_not_finite_stay() -> None:
    x, w = np.ones((1, 1, 1, 1), np.float32), np.full((1, 1, 3, 3), np.inf, np.float32)
    made = load(model(x, w, pads=[1, 1, 1, 1]).SerializeToString())
    infer_from_inputs(made)
    assert TrimKernels().run(made).reasons == ("Conv '-> y': weights that are not finite",)
