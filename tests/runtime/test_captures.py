"""What branches capture is read where it lies: its content is that of the run, whatever runs and sizes came before."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

import sardonyx
from sardonyx.explanation import explain_model
from sardonyx.program.segments import CONSTANT, SegmentOperand
from sardonyx.runtime.captures import Captures


def branching_content() -> bytes:
    """If the sum of x is positive, exp(x) twice as long, else its largest element: sizes that only the run tells."""
    twice = helper.make_graph(
        [helper.make_node("Concat", ["e", "e"], ["long"], axis=0)], "twice", [], [helper.make_tensor_value_info("long", 1, None)]
    )
    largest = helper.make_graph(
        [helper.make_node("ReduceMax", ["e"], ["short"], keepdims=1)],
        "largest",
        [],
        [helper.make_tensor_value_info("short", 1, None)],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["chosen"], then_branch=twice, else_branch=largest),
        helper.make_node("Neg", ["chosen"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString()  # type: ignore[no-any-return]


def test_branches_see_the_values_of_their_run() -> None:
    content = branching_content()
    assert "branch" in explain_model(content).segments
    session = sardonyx.InferenceSession(content)
    rng = np.random.default_rng(0)
    for number in range(60):  # more sizes than have programs of their own, each of them several times
        x = rng.normal(size=(3, 500, 7, 40, 2, 1000)[rng.integers(6)], loc=number % 3 - 1).astype(np.float32)
        expected = np.tile(np.exp(x), 2) if x.sum() > 0 else np.exp(x).max(keepdims=True)
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, -expected, rtol=1e-5)


def test_captures_are_read_when_they_are_asked_for() -> None:
    asked: list[int] = []

    def read(operand: SegmentOperand) -> int:
        asked.append(operand.number)
        return operand.number * 10

    context: Any = None
    captures = Captures(context, [SegmentOperand(CONSTANT, number) for number in range(4)], read, read, [])  # type: ignore[arg-type]
    assert len(captures) == 4
    assert captures[2] == 20
    assert asked == [2]
    assert captures[1:3] == [10, 20]
    assert list(captures) == [0, 10, 20, 30]
