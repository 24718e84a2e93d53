"""Dozens of faults planted in one model: every one of them is listed, at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import sardonyx

WEIGHTS = {
    "w": np.zeros((6, 4, 3, 3), np.float32),
    "wt": np.zeros((4, 2, 3, 3), np.float32),
    "v5": np.zeros(5, np.float32),
    "v4": np.ones(4, np.float32),
    "v3": np.ones(3, np.float32),
    "m": np.zeros((5, 7), np.float32),
    "d": np.zeros((2, 2), np.float64),
    "q": np.zeros((2, 3), np.int8),
    "i0": np.array([0]),
    "i9": np.array([9]),
    "i99": np.array([99]),
    "i11": np.array([1, 1]),
    "i33": np.array([3, 3]),
    "i35": np.array([3, 5]),
    "open": np.array([-1, -1]),
    "lw": np.zeros((1, 8, 5), np.float32),
    "lr": np.zeros((1, 8, 2), np.float32),
    "rows": np.zeros((6, 1, 4), np.float32),
    "lw7": np.zeros((1, 8, 7), np.float32),
    "two": np.zeros(2, np.float32),
}

# Operator, inputs, attributes, and a part of what is said; x is f32[1,4,8,8].
FAULTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("Conv", "x w", {"kernel_shape": [3]}, "kernel_shape [3] has 1 elements, but there are 2 spatial axes"),
    ("Conv", "x w", {"kernel_shape": [5, 5]}, "kernel_shape is [5, 5], but W has kernels of [3, 3]"),
    ("Conv", "x w", {"strides": [1, 1, 1]}, "strides [1, 1, 1] has 3 elements"),
    ("Conv", "x w", {"strides": [0, 1]}, "strides [0, 1]: expected numbers from 1 up"),
    ("Conv", "x w", {"pads": [1, 1]}, "pads [1, 1] has 2 elements"),
    ("Conv", "x w", {"dilations": [1]}, "dilations [1] has 1 elements"),
    ("Conv", "x w", {"group": 3}, "X has 4 channels, but W has 4 in each of 3 groups"),
    ("Conv", "x w", {"group": 4}, "W makes 6 channels, which do not divide into 4 groups"),
    ("Conv", "x w", {"group": -1}, "group is -1"),
    ("Conv", "x w v5", {}, "B has 5 elements, expected 6"),
    ("Conv", "x w m", {}, "B is [5,7], expected rank 1"),
    ("Conv", "x w", {"auto_pad": "SOME"}, "auto_pad is 'SOME'"),
    ("Conv", "x m", {}, "their ranks differ"),
    ("ConvTranspose", "x wt", {"kernel_shape": [3]}, "kernel_shape [3] has 1 elements"),
    ("ConvTranspose", "x wt", {"output_padding": [1]}, "output_padding [1] has 1 elements"),
    ("ConvTranspose", "x w", {}, "X has 4 channels, but W is made for 6"),
    ("ConvTranspose", "x wt v5", {}, "B has 5 elements, expected 2"),
    ("ConvTranspose", "x wt", {"group": 3}, "do not divide into 3 groups"),
    ("MaxPool", "x", {"kernel_shape": [2]}, "kernel_shape [2] has 1 elements"),
    ("MaxPool", "x", {}, "attribute 'kernel_shape' (ints) is missing"),
    ("MaxPool", "x", {"kernel_shape": [2, 2], "strides": [2]}, "strides [2] has 1 elements"),
    ("MaxPool", "x", {"kernel_shape": [0, 2]}, "kernel_shape [0, 2]: expected numbers from 1 up"),
    ("AveragePool", "x", {"kernel_shape": [2, 2], "pads": [0, 0, 0]}, "pads [0, 0, 0] has 3 elements"),
    ("AveragePool", "x", {"kernel_shape": [99, 2]}, "does not fit spatial axis 0 of size 8"),
    ("Softmax", "x", {"axis": 7}, "axis 7 is out of range for rank 4"),
    ("Hardmax", "x", {"axis": -9}, "axis -9 is out of range for rank 4"),
    ("Concat", "x x", {"axis": 4}, "axis 4 is out of range"),
    ("Concat", "x", {}, "attribute 'axis' (int) is missing"),
    ("Concat", "x m", {"axis": 0}, "their ranks differ"),
    ("Flatten", "x", {"axis": 5}, "axis 5 is out of range"),
    ("Gather", "x i0", {"axis": -5}, "axis -5 is out of range"),
    ("Gather", "x v3", {}, "input 1 (indices) is f32"),
    ("GatherElements", "x i0", {}, "their ranks differ"),
    ("ScatterElements", "x i0 i0", {"reduction": "median"}, "input 2 (updates) is i64, but input 0 (data) is f32"),
    ("ScatterND", "x v3 x", {}, "input 1 (indices) is f32"),
    ("Transpose", "x", {"perm": [0, 1, 2]}, "perm (0, 1, 2) is not an order of 4 axes"),
    ("Transpose", "x", {"perm": [0, 0, 1, 2]}, "perm (0, 0, 1, 2) is not an order of 4 axes"),
    ("Reshape", "x i35", {}, "[1,4,8,8] has 256 elements but [3,5] has 15"),
    ("Reshape", "x open", {}, "has more than one -1"),
    ("MatMul", "x m", {}, "8 columns against 5 rows"),
    ("Gemm", "m m", {}, "A has 7 columns but B has 5 rows"),
    ("Gemm", "x m", {}, "A must be a matrix"),
    ("Add", "x d", {}, "input 1 (B) is f64, but input 0 (A) is f32"),
    ("Add", "x m", {}, "dimensions 8 and 5 do not broadcast"),
    ("Add", "x", {}, "has 1 input, ai.onnx Add-14 takes at least 2; missing: B"),
    ("Relu", "x x", {}, "has 2 inputs, ai.onnx Relu-14 takes at most 1"),
    ("Relu", "nowhere", {}, "input 0 is 'nowhere', which nothing produces"),
    ("Reluu", "x", {}, "ai.onnx has no operator Reluu"),
    ("Cast", "x", {}, "attribute 'to' (int) is missing"),
    ("Cast", "x", {"to": 99}, "99 is not a tensor element type"),
    ("Cast", "x", {"to": "float"}, "attribute 'to' is of kind string"),
    ("LeakyRelu", "x", {"alphaa": 0.1}, "has no attribute 'alphaa'"),
    ("LeakyRelu", "x", {"alpha": "big"}, "attribute 'alpha' is of kind string"),
    ("BatchNormalization", "x v4 v4 v4 v3", {}, "input_var has 3 elements, expected 4"),
    ("InstanceNormalization", "x v3 v4", {}, "scale has 3 elements, expected 4"),
    ("GroupNormalization", "x v4 v4", {"num_groups": 3}, "num_groups is 3, which does not divide 4 channels"),
    ("LayerNormalization", "x v4", {"axis": 9}, "axis 9 is out of range"),
    ("LayerNormalization", "x v3", {}, "dimensions 8 and 3 do not broadcast"),
    ("PRelu", "x v3", {}, "slope is [3], which does not broadcast to [1,4,8,8]"),
    ("Unsqueeze", "x i9", {}, "axis 9 is out of range"),
    ("Squeeze", "x i9", {}, "axis 9 is out of range"),
    ("Split", "x i33", {"axis": 1}, "split [3, 3] adds up to 6, but axis 1 has 4 elements"),
    ("ReduceSum", "x i9", {}, "axis 9 is out of range"),
    ("ReduceMax", "x", {"axes": [6]}, "has no attribute 'axes'"),
    ("ArgMax", "x", {"axis": 4}, "axis 4 is out of range"),
    ("CumSum", "x v4", {}, "input 1 (axis) is f32"),
    ("LSTM", "x lw lr", {"hidden_size": 2}, "input 0 (X) is [1,4,8,8], expected rank 3"),
    ("LSTM", "rows lw7 lr", {"hidden_size": 2}, "input 1 (W) is [1,8,7], expected [1,8,4]"),
    ("LSTM", "rows lw lr", {"hidden_size": 3}, "hidden_size is 3"),
    ("Resize", "x v3 v3", {}, "has 3 elements, expected 4"),
    ("Resize", "x v4 v4", {"mode": "bicubic"}, "mode is 'bicubic', expected one of nearest, linear, cubic"),
    ("Pad", "x i11", {}, "pads has 2 elements: expected 8"),
    ("Pad", "x i11", {"mode": "mirror"}, "mode is 'mirror'"),
    ("TopK", "x i99", {"axis": 1}, "K is 99, but axis 1 has 4 elements"),
    ("Einsum", "x", {"equation": "ij->ji"}, "does not fit the term 'ij'"),
    ("SpaceToDepth", "x", {"blocksize": 3}, "pictures of [8,8] do not divide into blocks of 3"),
    ("DepthToSpace", "x", {"blocksize": 3}, "4 channels do not divide into blocks of 3 x 3"),
    ("DepthToSpace", "x", {"blocksize": 2, "mode": "XYZ"}, "mode is 'XYZ'"),
    ("Tile", "x i0", {}, "repeats has 1 elements: expected 4"),
    ("Expand", "x i35", {}, "do not broadcast"),
    ("Where", "x x x", {}, "input 0 (condition) is f32; supported: bool"),
    ("OneHot", "i0 i0 v3", {}, "values is [3], expected [2]"),
    ("DequantizeLinear", "q v4", {"axis": 1}, "the scale has 4 elements but axis 1 of the tensor has 3"),
    ("Slice", "x i0 i11", {}, "ends has 2 elements, expected 1"),
    ("RoiAlign", "x m i0", {}, "rois is [5,7], expected four numbers a region"),
    ("Trilu", "v4", {}, "expected a rank of at least 2"),
    ("LRN", "x", {}, "attribute 'size' (int) is missing"),
    ("ConstantOfShape", "i11", {"value": numpy_helper.from_array(np.zeros(2, np.float32))}, "value has 2 elements, expected one"),
    ("Constant", "", {}, "has no value"),
    ("If", "x", {}, "attribute 'then_branch' (graph) is missing"),
]


def make_nodes() -> list[NodeProto]:
    return [
        helper.make_node(operator, inputs.split(), [f"o{number}"], name=f"n{number}", **attributes)
        for number, (operator, inputs, attributes, _) in enumerate(FAULTS)
    ]


def make_model(nodes: list[NodeProto], **options: Any) -> bytes:
    """A model of nodes over x: f32[1,4,8,8]; each first result is an output."""
    outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])]
    initializers = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    imports = options.pop("imports", [helper.make_opsetid("", 21)])
    data: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10, **options).SerializeToString()
    return data


@pytest.fixture(scope="module")
def findings() -> dict[str, list[str]]:
    """What is said about each node of the model that holds all faults."""
    problems = [str(problem) for problem in sardonyx.check_model(make_model(make_nodes())) if problem.severity != "info"]
    return {f"n{number}": [text for text in problems if f"'n{number}'" in text] for number in range(len(FAULTS))}


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[f"{operator}: {said}" for operator, _, _, said in FAULTS])
def test_every_fault_is_listed_among_all_others(findings: dict[str, list[str]], number: int) -> None:
    said = FAULTS[number][3]
    assert any(said in text for text in findings[f"n{number}"]), findings[f"n{number}"]


def test_all_faults_of_one_node_are_listed() -> None:
    node = helper.make_node("Conv", ["x", "w", "v5"], ["y"], kernel_shape=[3], strides=[0], pads=[1], auto_pad="NO")
    said = "\n".join(problem.text for problem in sardonyx.check_model(make_model([node])) if problem.severity == "error")
    for part in ("kernel_shape", "strides [0]: expected", "strides [0] has 1", "pads", "auto_pad", "B has 5"):
        assert part in said


def test_faults_of_the_graph_do_not_hide_those_of_nodes() -> None:
    nodes = [
        helper.make_node("Relu", ["nowhere"], ["a"], name="undefined"),
        helper.make_node("Relu", ["x"], ["a2"], name="twin"),
        helper.make_node("Neg", ["x"], ["a2"], name="other twin"),
        helper.make_node("Relu", ["c"], ["b"], name="first of a cycle"),
        helper.make_node("Softmax", ["b"], ["c"], name="second of a cycle", axis="no number"),
        helper.make_node("Relu", ["x"], ["f"], name="stranger", domain="far.away"),
        helper.make_node("Softmax", ["x"], ["g"], name="wrong axis", axis=4),
    ]
    said = "\n".join(str(problem) for problem in sardonyx.check_model(make_model(nodes)) if problem.severity == "error")
    for part in (
        "Relu 'undefined': input 0 is 'nowhere', which nothing produces",
        "Neg 'other twin': output 'a2' is also an output of Relu 'twin'",
        "form a cycle",
        "its domain 'far.away' is not in the opset imports (ai.onnx 21)",
        "attribute 'axis' is of kind string",
        "Softmax 'wrong axis': axis 4 is out of range",
    ):
        assert part in said
    assert said.count("far.away") == 2  # the node's label and the domain, and no second complaint


def test_a_model_without_opset_is_checked_all_the_same() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=4)]
    said = [str(problem) for problem in sardonyx.check_model(make_model(nodes, imports=[helper.make_opsetid("ai.onnx.ml", 3)]))]
    assert any("ai.onnx is not in the opset imports: its operators are taken as those of version 26" in text for text in said)
    assert any("axis 4 is out of range" in text for text in said)


def test_a_session_names_all_faults_too() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=4), helper.make_node("Conv", ["x", "w"], ["z"], kernel_shape=[3])]
    with pytest.raises(sardonyx.InvalidGraph) as caught:
        sardonyx.InferenceSession(make_model(nodes))
    assert "axis 4" in str(caught.value)
    assert "kernel_shape [3]" in str(caught.value)


def test_what_is_behind_a_fault_is_checked_by_its_declared_shape() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["a"], axis=9), helper.make_node("Transpose", ["a"], ["y"], perm=[0, 1])]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])],
        [helper.make_empty_tensor_value_info("y")],
        value_info=[helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 4, 8, 8])],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    said = [problem.text for problem in sardonyx.check_model(data)]
    assert any("axis 9" in text for text in said)
    assert any("perm (0, 1) is not an order of 4 axes" in text for text in said)
