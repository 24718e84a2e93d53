"""Resizing in the blocked layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from conv_support import assert_blocked_agrees, blocked, model, numbers


def _resized(attrs: dict[str, Any], constants: dict[str, Any], inputs: list[str], shape: list[int | str]) -> Any:
    rank = len(shape) - 2
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Resize", ["c", *inputs], ["r"], **attrs),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    return model(nodes, {"x": shape}, {"w": numbers(1, 20, 3, *(1,) * rank), **constants})


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_known_sizes_are_resized_as_in_numpy(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from((1, 2, 2)))
    spatial = [draw(st.integers(1, 9)) for _ in range(rank)]
    attrs = {
        "mode": draw(st.sampled_from(("nearest", "linear"))),
        "coordinate_transformation_mode": draw(
            st.sampled_from(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"))
        ),
        "nearest_mode": draw(st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))),
    }
    if draw(st.booleans()):
        constants = {"sizes": np.array([1, 20, *(draw(st.integers(1, 20)) for _ in range(rank))], np.int64)}
        inputs = ["", "", "sizes"]
    else:
        scales = [draw(st.sampled_from((1.0, 2.0, 1.5, 0.5, 3.0))) for _ in range(rank)]
        spatial = [max(size, 2) for size in spatial]
        constants = {"scales": np.array([1, 1, *scales], np.float32)}
        inputs = ["", "scales"]
    content = _resized(attrs, constants, inputs, [1, 3, *spatial])
    program = assert_blocked_agrees(content, {"x": numbers(0, 1, 3, *spatial)}, guard=True)
    assert "BlockedResize+Relu" in [step.label for step in program.plan.steps]


@pytest.mark.parametrize("attrs", [{"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}, {}])
def test_pixels_are_repeated_in_images_of_any_size(attrs: dict[str, Any]) -> None:
    constants = {"scales": np.array([1, 1, 2, 4], np.float32)}
    content = _resized({"mode": "nearest", **attrs}, constants, ["", "scales"], ["N", 3, "H", "W"])
    program = assert_blocked_agrees(content, {"x": numbers(0, 2, 3, 5, 7)}, guard=True)
    assert "BlockedResize+Relu" in [step.label for step in program.plan.steps]


def test_what_cannot_be_resized_in_blocks_is_named() -> None:
    constants = {"scales": np.array([1, 1, 2, 2], np.float32)}
    graph, result = blocked(_resized({"mode": "cubic"}, constants, ["", "scales"], [1, 3, 5, 5]))
    assert any("no blocked kernel for cubic" in reason for reason in result.reasons)
    graph, result = blocked(_resized({"mode": "linear"}, constants, ["", "scales"], ["N", 3, "H", "W"]))
    assert any("the sizes are not known" in reason for reason in result.reasons)
    assert "Resize" in [node.op_type for node in graph.nodes]


def test_infinity_with_no_part_in_a_blend_stays_out_of_it() -> None:
    constants = {"sizes": np.array([1, 20, 5, 5], np.int64)}
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    x = numbers(0, 1, 3, 3, 3)
    x[0, :, 1, 1] = np.inf
    content = _resized(attrs, constants, ["", "", "sizes"], [1, 3, 3, 3])
    assert_blocked_agrees(content, {"x": np.abs(x)})


def test_old_upsampling_repeats_pixels() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Upsample", ["c", "scales"], ["u"], mode="nearest"),
        helper.make_node("Relu", ["u"], ["y"]),
    ]
    constants = {"w": numbers(1, 20, 3, 1, 1), "scales": np.array([1, 1, 2, 3], np.float32)}
    content = model(nodes, {"x": (1, 3, 4, 5)}, constants, opset=9)
    program = assert_blocked_agrees(content, {"x": numbers(0, 1, 3, 4, 5)})
    assert "BlockedResize+Relu" in [step.label for step in program.plan.steps]


@pytest.mark.parametrize(("sizes", "plain"), [((8, 10), True), ((4, 10), True), ((4, 9), False), ((2, 3), False)])
def test_a_result_that_gets_larger_is_put_in_plain_order_before(sizes: tuple[int, int], plain: bool) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Resize", ["c", "", "", "sizes"], ["y"], mode="linear"),
    ]
    constants = {"w": numbers(1, 20, 3, 1, 1), "sizes": np.array([1, 20, *sizes], np.int64)}
    program = assert_blocked_agrees(model(nodes, {"x": (1, 3, 4, 5)}, constants), {"x": numbers(0, 1, 3, 4, 5)}, guard=True)
    assert ("BlockedResize" not in [step.label for step in program.plan.steps]) is plain
