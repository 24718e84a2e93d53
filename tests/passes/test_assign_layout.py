"""The layout pass: what it brings into blocks, where it converts, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from conv_support import assert_blocked_agrees, blocked, model, numbers
from sardonyx.ir.graph import Graph
from sardonyx.ir.verify import verify
from sardonyx.passes.assign_layout import AssignLayout
from targets import described

node = helper.make_node


def _operators(graph: Graph) -> list[str]:
    return [each.op_type for each in graph.nodes]


def _conv(x: str, y: str, weights: str = "w", **attrs: Any) -> Any:
    return node("Conv", [x, weights], [y], **attrs)


def _check(content: Any, x: Any, block: int = 8) -> Graph:
    """The blocked graph, which is valid and computes the same."""
    assert_blocked_agrees(content, {"x": x}, native=False)
    graph, _ = blocked(content, described(block))
    assert not list(verify(graph))
    return graph


def test_a_region_is_converted_at_its_borders_only() -> None:
    nodes = [
        _conv("x", "a"),
        node("Relu", ["a"], ["b"]),
        _conv("b", "c", "v"),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2]),
        node("Add", ["d", "d"], ["e"]),
        node("Flatten", ["e"], ["y"]),
    ]
    content = model(nodes, {"x": (1, 16, 6, 6)}, {"w": numbers(1, 12, 16, 1, 1), "v": numbers(2, 8, 12, 3, 3)})
    graph = _check(content, numbers(0, 1, 16, 6, 6))
    assert _operators(graph) == [
        "ToBlocked",
        "BlockedConv",
        "Relu",
        "BlockedConv",
        "BlockedPool",
        "Add",
        "FromBlocked",
        "Flatten",
    ]


def test_a_first_layer_with_few_channels_reads_plain_input() -> None:
    content = model([_conv("x", "y")], {"x": (1, 3, 6, 6)}, {"w": numbers(1, 8, 3, 3, 3)})
    graph = _check(content, numbers(0, 1, 3, 6, 6))
    assert _operators(graph) == ["BlockedConv", "FromBlocked"]
    assert next(iter(graph.nodes)).attr("plain") == 1


def test_outputs_keep_their_names_and_order() -> None:
    nodes = [_conv("x", "a"), node("Relu", ["a"], ["b"]), node("Sigmoid", ["x"], ["s"])]
    content = model(nodes, {"x": (1, 3, 6, 6)}, {"w": numbers(1, 8, 3, 3, 3)}, ["b", "s", "a"])
    graph = _check(content, numbers(0, 1, 3, 6, 6))
    assert [output.name for output in graph.outputs] == ["b", "s", "a"]


def test_a_value_that_is_read_plain_and_blocked_is_converted_once() -> None:
    nodes = [_conv("x", "a"), _conv("a", "b", "v"), node("Transpose", ["a"], ["t"]), node("ReduceSum", ["a"], ["r"], keepdims=0)]
    content = model(nodes, {"x": (1, 3, 6, 6)}, {"w": numbers(1, 8, 3, 1, 1), "v": numbers(2, 8, 8, 1, 1)}, ["b", "t", "r"])
    graph = _check(content, numbers(0, 1, 3, 6, 6))
    assert _operators(graph).count("FromBlocked") == 2  # of a, and of the output b


@pytest.mark.parametrize(
    "shape", [(12, 1, 1), (1, 12, 1, 1), (1,), (), (1, 1, 1, 1), (1, 1, 6, 6), (6, 6), (6,), (1, 12, 6, 6), (12, 6, 1)]
)
def test_constants_are_reordered_whatever_they_vary_along(shape: tuple[int, ...]) -> None:
    nodes = [_conv("x", "a"), node("Mul", ["a", "k"], ["b"]), node("Add", ["k", "b"], ["y"])]
    content = model(nodes, {"x": (1, 3, 7, 7)}, {"w": numbers(1, 12, 3, 2, 2), "k": numbers(2, *shape)})
    graph = _check(content, numbers(0, 1, 3, 7, 7))
    assert _operators(graph) == ["BlockedConv", "Mul", "Add", "FromBlocked"]


def test_a_gate_of_one_channel_is_repeated_in_all_lanes() -> None:
    nodes = [_conv("x", "a"), _conv("a", "g", "one"), node("Sigmoid", ["g"], ["s"]), node("Mul", ["a", "s"], ["y"])]
    content = model(nodes, {"x": (1, 3, 6, 6)}, {"w": numbers(1, 12, 3, 1, 1), "one": numbers(2, 1, 12, 1, 1)})
    graph = _check(content, numbers(0, 1, 3, 6, 6))
    assert "Unsqueeze" in _operators(graph)


def test_a_squeeze_and_excite_gate_stays_blocked() -> None:
    nodes = [_conv("x", "a"), node("GlobalAveragePool", ["a"], ["p"]), _conv("p", "q", "v"), node("Sigmoid", ["q"], ["s"]),
             node("Mul", ["s", "a"], ["y"])]  # fmt: skip
    content = model(nodes, {"x": (2, 3, 6, 6)}, {"w": numbers(1, 12, 3, 1, 1), "v": numbers(2, 12, 12, 1, 1)})
    graph = _check(content, numbers(0, 2, 3, 6, 6))
    assert _operators(graph) == ["BlockedConv", "BlockedGlobalPool", "BlockedConv", "Sigmoid", "Mul", "FromBlocked"]


def test_a_plain_tensor_of_the_same_shape_joins_a_region() -> None:
    nodes = [_conv("x", "a", pads=[1] * 4), node("Exp", ["x"], ["e"]), node("Add", ["a", "e"], ["y"])]
    content = model(nodes, {"x": (1, 12, 6, 6)}, {"w": numbers(1, 12, 12, 3, 3)})
    graph = _check(content, numbers(0, 1, 12, 6, 6))
    assert _operators(graph).count("ToBlocked") == 2


def test_batch_normalization_becomes_a_product_and_a_sum() -> None:
    nodes = [
        _conv("x", "a"),
        node("MaxPool", ["a"], ["m"], kernel_shape=[2, 2]),
        node("BatchNormalization", ["m", "s", "b", "e", "v"], ["y"]),
    ]
    constants = {"w": numbers(1, 12, 3, 1, 1), "s": numbers(2, 12), "b": numbers(3, 12), "e": numbers(4, 12)}
    content = model(nodes, {"x": (1, 3, 6, 6)}, {**constants, "v": np.abs(numbers(5, 12)) + 0.5})
    graph = _check(content, numbers(0, 1, 3, 6, 6))
    assert _operators(graph) == ["BlockedConv", "BlockedPool", "Mul", "Add", "FromBlocked"]


@pytest.mark.parametrize(("opset", "keepdims"), [(13, 0), (18, 0), (18, 1)])
def test_a_mean_over_space_may_drop_its_axes(opset: int, keepdims: int) -> None:
    constants = {"w": numbers(1, 12, 3, 1, 1), "v": numbers(2, 12, 4)}
    inputs, attrs = ["a"], {}
    if opset < 18:
        attrs["axes"] = [2, 3]
    else:
        inputs.append("axes")
        constants["axes"] = np.array([-2, -1], np.int64)
    nodes = [_conv("x", "a"), node("ReduceMean", inputs, ["m"], keepdims=keepdims, **attrs)]
    nodes += [node("MatMul", ["m", "v"], ["y"])] if not keepdims else [node("Relu", ["m"], ["y"])]
    graph = _check(model(nodes, {"x": (2, 3, 6, 6)}, constants, opset=opset), numbers(0, 2, 3, 6, 6))
    assert "BlockedGlobalPool" in _operators(graph)


def test_instance_normalization_stays_blocked() -> None:
    nodes = [_conv("x", "a"), node("InstanceNormalization", ["a", "s", "b"], ["n"], epsilon=1e-3), node("Relu", ["n"], ["y"])]
    constants = {"w": numbers(1, 12, 3, 1, 1), "s": numbers(2, 12), "b": numbers(3, 12)}
    graph = _check(model(nodes, {"x": ("N", 3, "H", 6)}, constants), numbers(0, 2, 3, 6, 6))
    assert _operators(graph).count("FromBlocked") == 1


@pytest.mark.parametrize(
    ("opset", "mode", "pads", "axes"),
    [
        (19, "reflect", [0, 0, 1, 2, 0, 0, 2, 1], None),
        (19, "constant", [1, 2, 0, 1], [-1, 2]),
        (19, "edge", [2, 2, 2, 2], [2, 3]),
        (13, "constant", [0, 0, 1, 1, 0, 0, 1, 1], None),
    ],
)
def test_padding_of_space_stays_blocked(opset: int, mode: str, pads: list[int], axes: list[int] | None) -> None:
    constants = {"w": numbers(1, 12, 3, 1, 1), "pads": np.array(pads, np.int64), "fill": np.array(2.5, np.float32)}
    inputs = ["a", "pads", "fill" if mode == "constant" else ""]
    if axes is not None:
        constants["axes"] = np.array(axes, np.int64)
        inputs.append("axes")
    nodes = [_conv("x", "a"), node("Pad", inputs, ["p"], mode=mode), node("Relu", ["p"], ["y"])]
    graph = _check(model(nodes, {"x": (1, 3, 6, 6)}, constants, opset=opset), numbers(0, 1, 3, 6, 6))
    assert _operators(graph) == ["BlockedConv", "Pad", "Relu", "FromBlocked"]


def test_a_part_of_space_is_cut_out_in_blocks() -> None:
    constants = {"w": numbers(1, 12, 3, 1, 1), "from": np.array([1, 0], np.int64), "to": np.array([-1, 6], np.int64)}
    constants |= {"axes": np.array([-1, 2], np.int64), "steps": np.array([1, 2], np.int64)}
    nodes = [_conv("x", "a"), node("Slice", ["a", "from", "to", "axes", "steps"], ["p"]), node("Relu", ["p"], ["y"])]
    graph = _check(model(nodes, {"x": (1, 3, 6, 6)}, constants), numbers(0, 1, 3, 6, 6))
    assert _operators(graph) == ["BlockedConv", "Slice", "Relu", "FromBlocked"]


def test_whole_blocks_are_joined_and_divided_in_place() -> None:
    nodes = [
        _conv("x", "a"),
        _conv("x", "b", "v"),
        node("Concat", ["a", "b"], ["c"], axis=1),
        node("Split", ["c", "parts"], ["d", "e"], axis=-3),
        node("Relu", ["d"], ["y"]),
        node("Relu", ["e"], ["z"]),
    ]
    constants = {"w": numbers(1, 16, 3, 1, 1), "v": numbers(2, 20, 3, 1, 1), "parts": np.array([16, 20], np.int64)}
    content = model(nodes, {"x": (1, 3, 5, 5)}, constants, ["y", "z"])
    graph = _check(content, numbers(0, 1, 3, 5, 5))
    kinds = _operators(graph)
    assert kinds.count("FromBlocked") == 2
    assert {"Concat", "Split"} <= set(kinds)


@pytest.mark.parametrize("channels", [(1, 32), (24, 24, 24), (3, 5, 7, 16), (20, 12, 40), (16, 1)])
def test_channels_that_fill_no_blocks_are_shifted_together(channels: tuple[int, ...]) -> None:
    parts = [_conv("x", f"a{number}", f"w{number}") for number in range(len(channels))]
    names = [f"a{number}" for number in range(len(channels))]
    nodes = [*parts, node("Concat", names, ["c"], axis=1), node("Relu", ["c"], ["y"])]
    constants = {f"w{number}": numbers(number, count, 3, 1, 1) for number, count in enumerate(channels)}
    content = model(nodes, {"x": ("N", 3, "H", 5)}, constants)
    assert_blocked_agrees(content, {"x": numbers(0, 2, 3, 7, 5)}, guard=True)
    graph = _check(content, numbers(0, 2, 3, 7, 5))
    assert _operators(graph).count("FromBlocked") == 1


def test_refusals_say_why() -> None:
    cases = {
        "the size of its kernels is not known": (model([_conv("x", "y")], {"x": (1, 3, 6, 6), "w": (8, "I", 3, 3)}, {}), 8),
        "do not fit blocks of 8": (model([_conv("x", "y", group=2)], {"x": (1, 6, 6, 6)}, {"w": numbers(1, 8, 3, 3, 3)}), 8),
        "its channels are not known": (model([_conv("x", "y")], {"x": (1, "C", 6, 6)}, {"w": numbers(1, 8, 3, 3, 3)}), 8),
    }
    for reason, (content, block) in cases.items():
        graph, result = blocked(content, described(block))
        assert not result.modified
        assert any(reason in each for each in result.reasons), (reason, result.reasons)
        assert _operators(graph) == ["Conv"]


def test_bodies_of_branches_are_rewritten_too() -> None:
    body = helper.make_graph(
        [_conv("x", "inner")], "then", [], [helper.make_tensor_value_info("inner", 1, None)]
    )  # fmt: skip
    other = helper.make_graph(
        [node("Neg", ["n"], ["negative"])], "else", [], [helper.make_tensor_value_info("negative", 1, None)]
    )
    nodes = [
        _conv("x", "n"),
        node("ReduceSum", ["n"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["positive"]),
        node("If", ["positive"], ["y"], then_branch=body, else_branch=other),
    ]
    constants = {"w": numbers(1, 8, 3, 2, 2), "zero": np.array(0, np.float32)}
    content = model(nodes, {"x": (1, 3, 4, 4)}, constants)
    for seed in range(3):
        graph = _check(content, numbers(seed, 1, 3, 4, 4))
    inner = next(each for each in graph.nodes if each.op_type == "If").attrs["then_branch"].value
    assert _operators(inner) == ["BlockedConv", "FromBlocked"]


def test_the_pass_has_a_name_of_its_own_and_onnxruntimes() -> None:
    assert AssignLayout(described(8)).name == "AssignLayout"
    assert "NchwcTransformer" in AssignLayout(described(8)).ort_names


_WIDE_SUM = [
    node("Cast", ["c"], ["wide"], to=11),
    node("ReduceSum", ["wide", "axes"], ["total"], keepdims=1),
    node("Cast", ["total"], ["sum"], to=1),
    node("Sub", ["c", "sum"], ["y"]),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("squared", [False, True])
def test_sums_of_channels_in_64_bits_stay_in_blocks(named: bool, squared: bool) -> None:
    before = [node("Mul", ["a", "a"], ["c"])] if squared else [node("Identity", ["a"], ["c"])]
    constants = {"w": numbers(1, 21, 3, 3, 3), "axes": np.array([0, 2, 3])}
    shape = ("N", 3, "H", "W") if named else (3, 3, 6, 7)
    content = model([_conv("x", "a"), *before, *_WIDE_SUM], {"x": shape}, constants, ["y", "a"])
    graph = _check(content, numbers(0, 3, 3, 6, 7))
    assert _operators(graph).count("FromBlocked") == 2  # of both outputs
    assert _operators(graph).count("ReduceSum") == 1
    assert_blocked_agrees(content, {"x": numbers(0, 3, 3, 6, 7)}, guard=True)


def test_sums_in_64_bits_that_are_read_as_such_are_computed_plain_too() -> None:
    nodes = [_conv("x", "c"), *_WIDE_SUM[:3], node("Sqrt", ["total"], ["root"]), node("Cast", ["root"], ["narrow"], to=1)]
    constants = {"w": numbers(1, 12, 3, 3, 3), "axes": np.array([0, 2, 3])}
    content = model(nodes, {"x": (2, 3, 6, 7)}, constants, ["sum", "narrow"])
    graph = _check(content, np.abs(numbers(0, 2, 3, 6, 7)))
    assert "Sqrt" in _operators(graph)
