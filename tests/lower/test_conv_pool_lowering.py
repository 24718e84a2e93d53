"""Pools and transposed convolutions in the blocked layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import assert_blocked_agrees, model, numbers


def _after_a_convolution(node: Any, rank: int, channels: int, x: tuple[int, ...], named: bool) -> Any:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), node, helper.make_node("Relu", ["p"], ["y"])]
    shape: list[int | str] = list(x)
    if named:
        shape = ["N", x[1], *(f"S{axis}" for axis in range(rank))]
    return model(nodes, {"x": shape}, {"w": numbers(1, channels, x[1], *(1,) * rank)})


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_pool_gives_in_blocks_what_it_gives_in_numpy(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    kernel = [draw(st.sampled_from((1, 2, 3, 5))) for _ in range(rank)]
    pads = [min(draw(st.integers(0, 2)), kernel[axis % rank] - 1) for axis in range(2 * rank)]
    dilations = [draw(st.sampled_from((1, 1, 2))) for _ in range(rank)]
    spatial = [draw(st.integers(4, 17 if rank < 3 else 7)) for _ in range(rank)]
    for axis in range(rank):
        spatial[axis] = max(spatial[axis], (kernel[axis] - 1) * dilations[axis] + 1)
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "pads": pads,
        "dilations": dilations,
        "ceil_mode": draw(st.integers(0, 1)),
    }
    kind = draw(st.sampled_from(("MaxPool", "AveragePool")))
    if kind == "AveragePool":
        attrs["count_include_pad"] = draw(st.integers(0, 1))
    x = (draw(st.sampled_from((1, 2))), 5, *spatial)
    node = helper.make_node(kind, ["c"], ["p"], **attrs)
    content = _after_a_convolution(node, rank, draw(st.sampled_from((3, 16, 20))), x, draw(st.booleans()))
    values = numbers(0, *x)
    if draw(st.booleans()):
        values[0, 0, ..., draw(st.integers(0, spatial[-1] - 1))] = np.nan
    assert_blocked_agrees(content, {"x": values}, guard=True)


@pytest.mark.parametrize("kind", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("spatial", [(7, 7), (1, 1), (3, 5), (40,)])
def test_a_global_pool_sees_every_pixel_once(kind: str, spatial: tuple[int, ...]) -> None:
    node = helper.make_node(kind, ["c"], ["p"])
    x = (2, 5, *spatial)
    content = _after_a_convolution(node, len(spatial), 20, x, False)
    assert_blocked_agrees(content, {"x": numbers(0, *x)}, guard=True)
    assert_blocked_agrees(_after_a_convolution(node, len(spatial), 20, x, True), {"x": numbers(0, *x)})


@pytest.mark.parametrize(("opset", "axes"), [(13, (2, 3)), (18, (-1, -2))])
def test_a_mean_over_space_is_a_global_pool(opset: int, axes: tuple[int, ...]) -> None:
    constants = {"w": numbers(1, 20, 5, 1, 1)}
    if opset < 18:
        node = helper.make_node("ReduceMean", ["c"], ["p"], axes=list(axes), keepdims=1)
    else:
        constants["axes"] = np.array(axes, np.int64)
        node = helper.make_node("ReduceMean", ["c", "axes"], ["p"], keepdims=1)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), node, helper.make_node("Relu", ["p"], ["y"])]
    program = assert_blocked_agrees(model(nodes, {"x": (1, 5, 6, 7)}, constants, opset=opset), {"x": numbers(0, 1, 5, 6, 7)})
    assert "BlockedGlobalPool+Relu" in [step.label for step in program.plan.steps]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_transposed_convolution_gives_in_blocks_what_it_gives_in_numpy(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from((1, 2, 2, 3)))
    groups, inputs, outputs = draw(st.sampled_from(((1, 3, 2), (1, 16, 24), (1, 20, 16), (2, 16, 16))))
    kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "group": groups}
    named = False
    if draw(st.integers(0, 4)) == 0:
        attrs["auto_pad"] = draw(st.sampled_from(("SAME_UPPER", "SAME_LOWER")))
    else:
        attrs["pads"] = [min(draw(st.integers(0, 1)), kernel[axis % rank] - 1) for axis in range(2 * rank)]
        attrs["output_padding"] = [draw(st.integers(0, step - 1)) for step in strides]
        named = draw(st.booleans())
    x = (draw(st.sampled_from((1, 2))), groups * inputs, *(draw(st.integers(2, 9 if rank < 3 else 4)) for _ in range(rank)))
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **attrs),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Mul", ["c", "s"], ["y"]),
    ]
    constants = {"w": numbers(1, groups * inputs, outputs, *kernel), "b": numbers(2, groups * outputs)}
    shape: list[int | str] = ["N", x[1], *(f"S{axis}" for axis in range(rank))] if named else list(x)
    fed = {name: constants.pop(name) for name in ("w", "b") if draw(st.integers(0, 2)) == 0}
    shapes = {"x": shape, **{name: list(array.shape) for name, array in fed.items()}}
    assert_blocked_agrees(model(nodes, shapes, constants), {"x": numbers(0, *x), **fed}, guard=True)
