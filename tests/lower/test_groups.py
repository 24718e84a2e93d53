"""Which nodes share a kernel, and why others do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper

from lowering_case import Array, model
from native_support import compile_native
from sardonyx.lower.groups import MOST_NODES, Grouping

X = np.ones((4, 6), np.float32)
AXES = {"axes": np.array([1], np.int64)}


def grouping(nodes: list[NodeProto], outputs: list[str], feeds: dict[str, Array] | None = None) -> Grouping:
    made: Any = model(nodes, feeds or {"x": X}, dict.fromkeys(outputs, np.float32), constants=AXES)
    _, compiled = compile_native(made.SerializeToString())
    return compiled.grouping


def labels(nodes: list[NodeProto], outputs: list[str], feeds: dict[str, Array] | None = None) -> list[str]:
    return [group.label for group in grouping(nodes, outputs, feeds).groups]


def test_elementwise_nodes_of_one_shape_share_a_kernel() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    assert labels(nodes, ["y"]) == ["Neg+Exp+Add"]


def test_a_node_of_another_shape_starts_a_kernel_and_the_reason_is_kept() -> None:
    feeds = {"x": X, "z": np.ones((3, 4, 6), np.float32)}
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Add", ["a", "z"], ["y"])]
    found = grouping(nodes, ["y"], feeds)
    assert [group.label for group in found.groups] == ["Neg", "Add"]
    reasons = {node.op_type: why for node, why in found.refusals.items()}
    assert reasons["Neg"] == "all inputs come from outside"
    assert reasons["Add"] == "works on [3,4,6], the kernel of Neg on [4,6]"


def test_a_reduction_takes_what_computes_its_input_and_what_uses_its_result() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("ReduceSum", ["a", "axes"], ["b"], keepdims=1),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    (group,) = grouping(nodes, ["y", "a"]).groups
    assert group.label == "Neg+ReduceSum+Exp"
    assert group.root is not None
    assert [node.op_type for node in group.before] == ["Neg"]
    assert [node.op_type for node in group.after] == ["Exp"]


@pytest.mark.parametrize(("rows", "axis", "expected"), [
    (8, 1, ["ReduceSum+Sqrt+Sin"]),
    (100, 1, ["ReduceSum+Sqrt", "Sin"]),
    (100, 0, ["ReduceSum+Sqrt+Sin"]),
])  # fmt: skip
def test_functions_of_many_sums_are_computed_in_vectors(rows: int, axis: int, expected: list[str]) -> None:
    nodes = [
        helper.make_node("Constant", [], ["along"], value_ints=[axis]),
        helper.make_node("ReduceSum", ["x", "along"], ["a"], keepdims=1),
        helper.make_node("Sqrt", ["a"], ["b"]),
        helper.make_node("Sin", ["b"], ["y"]),
    ]
    found = grouping(nodes, ["y"], {"x": np.ones((rows, 6), np.float32)})
    assert [group.label for group in found.groups if group.root is None or group.root.op_type != "Constant"] == expected
    if len(expected) > 1:
        why = "the kernel of ReduceSum+Sqrt makes one result at a time, a function takes as long for a vector of them"
        assert why in found.refusals.values()


def test_a_reduction_widens_what_a_template_stores() -> None:
    feeds = {"x": X, "w": np.ones((6, 6), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["wide"], to=11),
        helper.make_node("ReduceSum", ["wide", "axes"], ["total"], keepdims=1),
        helper.make_node("Cast", ["total"], ["y"], to=1),
    ]
    assert labels(nodes, ["y"], feeds) == ["MatMul+Neg", "Cast+ReduceSum+Cast"]
    assert labels(nodes[:3], ["wide"], feeds) == ["MatMul+Neg+Cast"]  # nothing is reduced


def test_a_second_reduction_of_the_same_value_reads_what_the_first_stored() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("ReduceMax", ["a", "axes"], ["b"]),
        helper.make_node("ReduceMin", ["a", "axes"], ["c"]),
    ]
    assert labels(nodes, ["b", "c"]) == ["Neg+ReduceMax", "ReduceMin"]


def test_nodes_that_another_kernel_in_between_needs_are_not_moved() -> None:
    feeds = {"x": X, "w": np.ones((6, 6), np.float32)}
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("ReduceMax", ["a", "axes"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    assert labels(nodes, ["y"], feeds)[:3] == ["Neg", "MatMul", "ReduceMax"]


def test_a_long_chain_is_cut_and_the_parts_of_one_that_repeats_itself_share_a_kernel() -> None:
    count = 2 * MOST_NODES + 4
    names = ["x", *(f"t{number}" for number in range(1, count)), "y"]
    operators = ("Neg", "Sigmoid", "Abs", "Tanh")
    nodes = [helper.make_node(operators[number % 4], [names[number]], [names[number + 1]]) for number in range(count)]
    made: Any = model(nodes, {"x": X}, {"y": np.float32}, constants=AXES)
    _, compiled = compile_native(made.SerializeToString())
    assert [len(group.nodes) for group in compiled.grouping.groups] == [MOST_NODES, MOST_NODES, 4]
    assert compiled.plan.steps[0].kernel.key == compiled.plan.steps[1].kernel.key
    reasons = set(compiled.grouping.refusals.values())
    assert f"the kernel before it has {MOST_NODES} nodes already" in reasons


def test_a_sum_of_thousands_of_inputs_is_no_kernel() -> None:
    """LLVM walks down such an expression on its stack."""
    count = 5000
    nodes = [helper.make_node("Neg", ["x"], [f"a{number}"]) for number in range(count)]
    nodes.append(helper.make_node("Sum", [f"a{number}" for number in range(count)], ["y"]))
    found = grouping(nodes, ["y"])
    assert found.groups[-1].kind == "host"
    assert found.refusals[found.groups[-1].nodes[0]] == f"{count} inputs are more than a kernel takes"


def test_what_computes_another_input_of_a_node_joins_its_kernel_too() -> None:
    """exp(x) is read by nobody but the kernel of tanh(z): both are one kernel."""
    feeds = {"x": X, "z": X}
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Neg", ["a"], ["b"]),
        helper.make_node("Tanh", ["z"], ["c"]),
        helper.make_node("Mul", ["b", "c"], ["y"]),
    ]
    assert labels(nodes, ["y"], feeds) == ["Exp+Neg+Tanh+Mul"]
    assert labels(nodes, ["y", "b"], feeds) == ["Exp+Neg+Tanh+Mul"]


def test_a_kernel_that_another_one_in_between_reads_stays_before_both() -> None:
    feeds = {"x": X, "z": X}
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("ReduceSum", ["a", "axes"], ["s"], keepdims=1),
        helper.make_node("Sqrt", ["s"], ["r"]),
        helper.make_node("Expand", ["r", "sizes"], ["wide"]),
        helper.make_node("Tanh", ["z"], ["c"]),
        helper.make_node("Mul", ["wide", "c"], ["d"]),
        helper.make_node("Add", ["d", "a"], ["y"]),
    ]
    made: Any = model(nodes, feeds, {"y": np.float32}, constants={**AXES, "sizes": np.array([4, 6], np.int64)})
    _, compiled = compile_native(made.SerializeToString())
    groups = [group.label for group in compiled.grouping.groups]
    assert not any("Exp" in label.split("+") and "Tanh" in label for label in groups), groups
