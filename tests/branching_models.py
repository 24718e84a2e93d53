"""A model that sessions specialise: its results have different ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnx import TensorProto, helper


def branching_model(path: Path) -> Path:
    """By a number that is fed, twice the input with one more axis, or its sum: results of different rank, so Python decides."""

    def side(name: str, node: Any) -> Any:
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    double = side("double", helper.make_node("Unsqueeze", ["twice", "axes"], ["double_y"]))
    total = side("total", helper.make_node("ReduceSum", ["x"], ["total_y"], keepdims=0))
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Equal", ["mode", "wanted"], ["is_double"]),
        helper.make_node("If", ["is_double"], ["y"], then_branch=double, else_branch=total),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
            helper.make_tensor_value_info("mode", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [
            helper.make_tensor("axes", TensorProto.INT64, [1], [0]),
            helper.make_tensor("wanted", TensorProto.INT64, [], [2]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path
