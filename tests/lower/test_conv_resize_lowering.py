"""Resizing in the blocked layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

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
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Cast", ["fed"], ["sizes"], to=TensorProto.INT64),
        helper.make_node("Resize", ["c", "", "", "sizes"], ["r"], mode="linear", axes=[2, 3]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    graph, result = blocked(model(nodes, {"x": ["N", 3, "H", "W"], "fed": [2]}, {"w": numbers(1, 20, 3, 1, 1)}))
    assert any("its sizes are known only when it runs" in reason for reason in result.reasons)
    assert "Resize" in [node.op_type for node in graph.nodes]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_images_of_any_size_are_resized_as_in_numpy(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.sampled_from((1, 2, 2)))
    spatial = [draw(st.integers(1, 9)) for _ in range(rank)]
    attrs = {
        "mode": draw(st.sampled_from(("nearest", "linear", "linear"))),
        "coordinate_transformation_mode": draw(
            st.sampled_from(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"))
        ),
        "nearest_mode": draw(st.sampled_from(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))),
    }
    names: list[int | str] = ["N", 3, *("H", "W")[:rank]]
    weights = {"w": numbers(1, 20, 3, *(1,) * rank)}
    if draw(st.booleans()):  # the sizes of another image
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["c"]),
            helper.make_node("Shape", ["z"], ["all"]),
            helper.make_node("Slice", ["all", "two", "end"], ["own"]),
            helper.make_node("Shape", ["c"], ["mine"]),
            helper.make_node("Slice", ["mine", "zero", "two"], ["first"]),
            helper.make_node("Concat", ["first", "own"], ["sizes"], axis=0),
            helper.make_node("Resize", ["c", "", "", "sizes"], ["r"], **attrs),
            helper.make_node("Relu", ["r"], ["y"]),
        ]
        ends = {"zero": np.array([0], np.int64), "two": np.array([2], np.int64), "end": np.array([9], np.int64)}
        content = model(nodes, {"x": names, "z": ["N", 1, *("K", "L")[:rank]]}, {**weights, **ends})
        feeds = {"x": numbers(0, 2, 3, *spatial), "z": numbers(1, 2, 1, *(draw(st.integers(1, 20)) for _ in range(rank)))}
    else:
        scales = [draw(st.sampled_from((1.0, 2.0, 1.5, 0.5, 3.0))) for _ in range(rank)]
        content = _resized(attrs, {"scales": np.array([1, 1, *scales], np.float32)}, ["", "scales"], names)
        feeds = {"x": numbers(0, 2, 3, *(max(size, 2) for size in spatial))}
    program = assert_blocked_agrees(content, feeds, guard=True)
    assert "BlockedResize+Relu" in [step.label for step in program.plan.steps]


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
