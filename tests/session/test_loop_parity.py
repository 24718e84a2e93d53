"""Loop bodies are handed what they declare, and loops without iterations give the shapes that ONNX Runtime gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx

onnxruntime = pytest.importorskip("onnxruntime")
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
Sizes = list[Any] | None


def outcomes(content: bytes, feeds: dict[str, Any]) -> list[list[Any]]:
    """What onnxruntime, the NumPy definitions and native code give; the second run is of a specialisation that came before."""
    sessions = [onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])]
    sessions += [
        sardonyx.InferenceSession(content, providers=[name])
        for name in ("SardonyxReferenceExecutionProvider", "CPUExecutionProvider")
    ]
    results = []
    for session in sessions:
        for _ in range(3):
            results.append(session.run(None, feeds))
    return results


def assert_alike(content: bytes, feeds: dict[str, Any]) -> list[Any]:
    first, *others = outcomes(content, feeds)
    for other in others:
        for expected, actual in zip(first, other):
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(actual, expected)
    return first


def loop(nodes: list[Any], control: list[Any], carried: Sizes, stacked: list[Any], condition: Sizes) -> bytes:
    """A Loop of a fed number of iterations that carries `v` and stacks some values."""
    outputs = [info("going", BOOL, condition), info("next", FLOAT, carried), *stacked]
    body = helper.make_graph(nodes, "body", [*control, info("v", FLOAT, carried)], outputs)
    names = [f"y{number}" for number in range(1 + len(stacked))]
    types = [FLOAT, *(value.type.tensor_type.elem_type for value in stacked)]
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "start", "first"], names, body=body)],
        "g",
        [info("trips", INT, []), info("start", BOOL, condition), info("first", FLOAT, carried)],
        [info(name, dtype, None) for name, dtype in zip(names, types)],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


COUNTING = [
    helper.make_node("Identity", ["c"], ["going"]),
    helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
    helper.make_node("Add", ["v", "number"], ["next"]),
    helper.make_node("Shape", ["i"], ["shape"]),
    helper.make_node("Shape", ["c"], ["condition_shape"]),
    helper.make_node("Identity", ["i"], ["same"]),
]


@pytest.mark.parametrize("iteration", [[], [1], ["n"]], ids=str)
@pytest.mark.parametrize("condition", [[], [1]], ids=str)
@pytest.mark.parametrize("trips", [1, 3])
def test_a_body_gets_its_iteration_number_and_condition_as_it_declares_them(
    iteration: Sizes, condition: Sizes, trips: int
) -> None:
    stacked = [info("shape", INT, None), info("condition_shape", INT, None), info("same", INT, iteration)]
    content = loop(COUNTING, [info("i", INT, iteration), info("c", BOOL, condition)], [1], stacked, condition)
    start = np.full([1] * len(condition or ()), True)
    first = assert_alike(content, {"trips": np.array(trips), "start": start, "first": np.zeros(1, np.float32)})
    assert first[1].shape == (trips, len(iteration or ()))


@pytest.mark.parametrize("carried", [[5], ["n"]], ids=str)
@pytest.mark.parametrize("declared", [None, [5], ["n"]], ids=str)
@pytest.mark.parametrize("going", [True, False])
@pytest.mark.parametrize("trips", [0, 2])
def test_a_loop_without_iterations_stacks_what_the_model_says(carried: Sizes, declared: Sizes, going: bool, trips: int) -> None:
    nodes = [
        helper.make_node("Identity", ["c"], ["going"]),
        helper.make_node("Identity", ["v"], ["next"]),
        helper.make_node("Relu", ["v"], ["s"]),
    ]
    content = loop(nodes, [info("i", INT, []), info("c", BOOL, [])], carried, [info("s", FLOAT, declared)], [])
    assert_alike(content, {"trips": np.array(trips), "start": np.array(going), "first": np.ones(5, np.float32)})


@pytest.mark.parametrize("width", [4, "w"])
def test_a_scan_without_steps_stacks_what_the_model_says(width: Any) -> None:
    nodes = [helper.make_node("Add", ["s", "x"], ["sum"]), helper.make_node("Relu", ["sum"], ["r"])]
    inputs = [info("s", FLOAT, [width]), info("x", FLOAT, [width])]
    body = helper.make_graph(nodes, "body", inputs, [info("sum", FLOAT, [width]), info("r", FLOAT, [width])])
    graph = helper.make_graph(
        [helper.make_node("Scan", ["first", "xs"], ["last", "all"], body=body, num_scan_inputs=1)],
        "g",
        [info("first", FLOAT, [width]), info("xs", FLOAT, ["t", width])],
        [info("last", FLOAT, None), info("all", FLOAT, None)],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    assert_alike(content, {"first": np.zeros(4, np.float32), "xs": np.ones((3, 4), np.float32)})
    nothing = {"first": np.zeros(4, np.float32), "xs": np.ones((0, 4), np.float32)}  # onnxruntime fails on these
    for name in ("SardonyxReferenceExecutionProvider", "CPUExecutionProvider"):
        session = sardonyx.InferenceSession(content, providers=[name])
        for _ in range(3):
            last, stacked = session.run(None, nothing)
            assert last.shape == (4,)
            assert stacked.shape == (0, 4 if width == 4 else 0)
