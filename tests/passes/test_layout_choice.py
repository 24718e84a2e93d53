"""Pointwise convolutions that stand alone are products where that is estimated to take less time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import assert_blocked_agrees, blocked, model, numbers
from sardonyx.passes.layout_choice import blocked_time, product_time
from targets import described

node = helper.make_node


def _operators(nodes: list[Any], shape: tuple[int | str, ...], weights: tuple[int, ...], **others: Any) -> list[str]:
    content = model(nodes, {"x": shape}, {"w": numbers(1, *weights), **others})
    graph, _ = blocked(content, described(16))
    return [each.op_type for each in graph.nodes]


def test_a_head_with_few_classes_is_a_product() -> None:
    nodes = [node("Conv", ["x", "w", "b"], ["a"]), node("Relu", ["a"], ["r"]), node("Flatten", ["r"], ["y"])]
    wanted = ["Reshape", "MatMul", "Add", "Reshape", "Relu", "Flatten"]
    assert _operators(nodes, ("N", 64, 8, 8), (21, 64, 1, 1), b=numbers(2, 21)) == wanted


@pytest.mark.parametrize(
    ("attrs", "shape", "weights", "why"),
    [
        ({"strides": [2, 2]}, (1, 64, 8, 8), (21, 64, 1, 1), "not every pixel is read"),
        ({"pads": [0, 1, 0, 1]}, (1, 64, 8, 8), (21, 64, 1, 1), "a border is added"),
        ({"group": 2}, (1, 64, 8, 8), (32, 32, 1, 1), "groups are several products"),
        ({}, (1, 64, 8, 8), (21, 64, 1, 3), "windows have more than a pixel"),
        ({}, (1, 64, "H", "W"), (21, 64, 1, 1), "the number of pixels is not known"),
    ],
)
def test_others_stay_convolutions(attrs: dict[str, Any], shape: tuple[Any, ...], weights: tuple[int, ...], why: str) -> None:
    operators = _operators([node("Conv", ["x", "w"], ["y"], **attrs)], shape, weights)
    assert "BlockedConv" in operators, why
    assert "MatMul" not in operators, why


def test_a_convolution_in_or_before_a_region_stays_there() -> None:
    """The layout is paid for by what is around it."""
    ends = [node("Conv", ["x", "v"], ["a"], pads=[1] * 4), node("Sigmoid", ["a"], ["s"]), node("Conv", ["s", "w"], ["y"])]
    assert "MatMul" not in _operators(ends, (1, 64, 8, 8), (21, 64, 1, 1), v=numbers(2, 64, 64, 3, 3))
    begins = [node("Conv", ["x", "w"], ["a"]), node("Sigmoid", ["a"], ["s"]), node("Conv", ["s", "v"], ["y"], pads=[1] * 4)]
    assert "MatMul" not in _operators(begins, (1, 64, 8, 8), (21, 64, 1, 1), v=numbers(2, 21, 21, 3, 3))


def test_weights_that_are_fed_stay_weights_of_a_convolution() -> None:
    content = model([node("Conv", ["x", "w"], ["y"])], {"x": (1, 64, 8, 8), "w": (21, 64, 1, 1)}, {})
    graph, _ = blocked(content, described(16))
    assert "MatMul" not in [each.op_type for each in graph.nodes]


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("outputs", [1, 2, 17, 21, 64])
def test_estimates_count_conversions_and_lanes(lanes: int, outputs: int) -> None:
    target = described(lanes)
    assert product_time(4096, (outputs, 64, 1, 1), target) < blocked_time(4096, (outputs, 64, 1, 1), target)
    assert blocked_time(4096, (1, 64, 1, 1), target) == blocked_time(4096, (lanes, 64, 1, 1), target)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.sampled_from((0, 1, 3)),
    inputs=st.integers(1, 40),
    outputs=st.integers(1, 40),
    size=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    bias=st.booleans(),
    after=st.sampled_from(("Neg", "Relu", "Softmax")),
    special=st.sampled_from((0.0, np.nan, np.inf)),
)
def test_any_of_them_agrees(
    batch: int, inputs: int, outputs: int, size: list[int], bias: bool, after: str, special: float
) -> None:
    constants = {"w": numbers(1, outputs, inputs, *(1 for _ in size))}
    if bias:
        constants["b"] = numbers(2, outputs)
    content = model([node("Conv", ["x", *constants], ["c"]), node(after, ["c"], ["y"])], {"x": ("N", inputs, *size)}, constants)
    x = numbers(0, batch, inputs, *size)
    if x.size and special:
        x.reshape(-1)[x.size // 2] = special
    assert_blocked_agrees(content, {"x": x}, guard=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lanes", [8, 16])
def test_pixels_that_do_not_fill_vectors_are_counted(lanes: int) -> None:
    """7 x 7 pixels are columns of a product, which fill up: in blocks, pixels do not have to."""
    target, weights = described(lanes), (512, 512, 1, 1)
    assert product_time(49, weights, target) == product_time(-(-49 // lanes) * lanes, weights, target)
    assert blocked_time(49, weights, target) < product_time(49, weights, target)
    assert product_time(784, weights, target) < blocked_time(784, weights, target)
    assert product_time(1, weights, target) < product_time(lanes, weights, target)  # a sum along the channels
