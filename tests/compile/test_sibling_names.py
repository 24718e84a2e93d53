"""Branches of Ifs may use the same names for different things: weights, values, even inside one another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, TensorProto, helper, numpy_helper

from sardonyx.enums import GraphOptimizationLevel as Level
from session_agreement import session

node = helper.make_node
WEIGHTS = {name: np.random.default_rng(number).normal(size=(8, 8, 3, 3)).astype(np.float32) for number, name in enumerate("abcd")}
MATRICES = {name: np.random.default_rng(number).normal(size=(6, 6)).astype(np.float32) for number, name in enumerate("abcd")}


def _branch(which: str, operator: str, inner: tuple[GraphProto, GraphProto] | None = None) -> GraphProto:
    """`out` := operator(x, w), or what the If inside gives; names are the same in all branches."""
    data = (WEIGHTS if operator == "Conv" else MATRICES)[which]
    nodes = [node(operator, ["x", "w"], ["h"], **({"pads": [1] * 4} if operator == "Conv" else {})), node("Relu", ["h"], ["out"])]
    if inner is not None:
        nodes = [*nodes[:1], node("If", ["second"], ["out"], then_branch=inner[0], else_branch=inner[1])]
    made: GraphProto = helper.make_graph(
        nodes, "branch", [], [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)], [numpy_helper.from_array(data, "w")]
    )
    return made


def _expected(x: Any, which: str, operator: str) -> Any:
    if operator == "MatMul":
        return np.maximum(x @ MATRICES[which], 0)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, WEIGHTS[which], optimize=True), 0)


@pytest.mark.parametrize("operator", ["Conv", "MatMul"])
@pytest.mark.parametrize("level", [Level.ORT_DISABLE_ALL, Level.ORT_ENABLE_ALL], ids=lambda level: level.name)
def test_equal_names_in_sibling_branches_are_different_things(operator: str, level: Level) -> None:
    inner = (_branch("a", operator), _branch("b", operator))
    nodes = [
        node("If", ["first"], ["y"], then_branch=_branch("c", operator, inner), else_branch=_branch("d", operator)),
    ]
    graph = helper.make_graph(
        nodes,
        "main",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8, 6, 6]),
            helper.make_tensor_value_info("first", TensorProto.BOOL, []),
            helper.make_tensor_value_info("second", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    opened = session(model.SerializeToString(), level=level)
    x = np.random.default_rng(9).normal(size=(2, 8, 6, 6)).astype(np.float32)
    for _ in range(2):
        for first, second, which in ((True, True, "a"), (True, False, "b"), (False, True, "d"), (False, False, "d")):
            (found,) = opened.run(None, {"x": x, "first": np.array(first), "second": np.array(second)})
            np.testing.assert_allclose(found, _expected(x, which, operator), rtol=1e-4, atol=1e-4)
