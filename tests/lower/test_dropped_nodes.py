"""Nodes of which only the shape is read are never computed, yet what they expect of sizes holds: native code refuses where the
NumPy definitions (and ONNX Runtime, which computes them) do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from contradictions import with_open_sizes
from lowering_case import Array, model
from native_support import compile_native
from sardonyx.enums import GraphOptimizationLevel
from sardonyx.errors import SardonyxError
from sardonyx.program.steps import KernelStep
from session_agreement import REFERENCE, session

LEVELS = [GraphOptimizationLevel.ORT_DISABLE_ALL, GraphOptimizationLevel.ORT_ENABLE_BASIC, GraphOptimizationLevel.ORT_ENABLE_ALL]


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


# operator, attributes, inputs that fit, inputs that contradict each other
CASES: dict[str, tuple[str, dict[str, Any], list[Array], list[Array]]] = {
    "matrix product": ("MatMul", {}, [ones(4, 5), ones(5, 6)], [ones(4, 3), ones(5, 6)]),
    "batches of matrices": ("MatMul", {}, [ones(2, 4, 5), ones(2, 5, 6)], [ones(3, 4, 5), ones(2, 5, 6)]),
    "addition": ("Add", {}, [ones(4, 5), ones(4, 5)], [ones(4, 5), ones(4, 3)]),
    "choice": ("Where", {}, [ones(4, 5) > 0, ones(4, 5), ones(5)], [ones(3, 5) > 0, ones(4, 5), ones(5)]),
    "concatenation": ("Concat", {"axis": 0}, [ones(4, 5), ones(2, 5)], [ones(4, 5), ones(2, 3)]),
    "convolution": ("Conv", {}, [ones(1, 3, 8, 8), ones(4, 3, 3, 3)], [ones(1, 2, 8, 8), ones(4, 3, 3, 3)]),
    "image smaller than its window": ("Conv", {}, [ones(1, 3, 8, 8), ones(4, 3, 3, 3)], [ones(1, 3, 1, 8), ones(4, 3, 3, 3)]),
    "pool larger than its image": ("MaxPool", {"kernel_shape": [3, 3]}, [ones(1, 3, 8, 8)], [ones(1, 3, 8, 1)]),
    "general product": ("Gemm", {}, [ones(4, 5), ones(5, 6), ones(6)], [ones(4, 5), ones(5, 6), ones(3)]),
    "normalisation": ("LayerNormalization", {}, [ones(4, 5), ones(5)], [ones(4, 5), ones(3)]),
    "sums of products": ("Einsum", {"equation": "ij,jk->ik"}, [ones(4, 5), ones(5, 6)], [ones(4, 5), ones(3, 6)]),
}


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("reader", ["Shape", "Size"])
@pytest.mark.parametrize("name", CASES)
def test_a_node_whose_shape_alone_is_read_refuses_sizes_that_contradict(
    name: str, reader: str, level: GraphOptimizationLevel
) -> None:
    op_type, attrs, fitting, contradicting = CASES[name]
    names = [f"x{number}" for number in range(len(fitting))]
    nodes = [
        helper.make_node(op_type, names, ["made"], name="the_node", **attrs),
        helper.make_node("Relu", ["made"], ["behind"]),
        helper.make_node(reader, ["behind"], ["size"]),
        helper.make_node("Add", ["size", "size"], ["y"]),
    ]
    feeds = dict(zip(names, fitting))
    made = model(nodes, feeds, {"y": np.int64}).SerializeToString()
    axes = {given: frozenset(range(array.ndim)) for given, array in feeds.items()}
    content = with_open_sizes(made, feeds, axes, set(), shared=False)
    native, reference = session(content, level=level), session(content, providers=REFERENCE)
    for _ in range(2):
        assert native.run(None, feeds)[0].tolist() == reference.run(None, feeds)[0].tolist()
        for opened in (reference, native):
            with pytest.raises(SardonyxError, match="the_node"):
                opened.run(None, dict(zip(names, contradicting)))


def product_of_open_matrices(*nodes: Any, outputs: dict[str, Any]) -> tuple[bytes, dict[str, Array]]:
    feeds = {"a": ones(4, 5), "b": ones(5, 6)}
    product = helper.make_node("MatMul", ["a", "b"], ["made"], name="the_node")
    content = model([product, *nodes], feeds, outputs).SerializeToString()
    return with_open_sizes(content, feeds, {name: frozenset((0, 1)) for name in feeds}, set(), shared=False), feeds


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_one_size_of_a_product_says_nothing_about_the_other_and_both_are_checked(level: GraphOptimizationLevel) -> None:
    """The first size of the product is that of `a`: the passes read it there."""
    nodes = [
        helper.make_node("Shape", ["made"], ["rows"], start=0, end=1),
        helper.make_node("Shape", ["a"], ["same"], start=0, end=1),
        helper.make_node("Concat", ["rows", "same"], ["y"], axis=0),
    ]
    content, feeds = product_of_open_matrices(*nodes, outputs={"y": np.int64})
    opened = session(content, level=level)
    assert opened.run(None, feeds)[0].tolist() == [4, 4]
    with pytest.raises(SardonyxError, match="the_node"):
        opened.run(None, {**feeds, "b": ones(7, 6)})


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_node_nobody_reads_refuses_nothing(level: GraphOptimizationLevel) -> None:
    """ONNX Runtime takes such nodes out, too."""
    content, feeds = product_of_open_matrices(helper.make_node("Relu", ["a"], ["y"]), outputs={"y": np.float32})
    contradicting = {**feeds, "b": ones(7, 6)}
    for opened in (session(content, level=level), session(content, providers=REFERENCE)):
        assert opened.run(None, contradicting)[0].tolist() == feeds["a"].tolist()


def test_only_what_the_fetched_values_depend_on_is_checked() -> None:
    nodes = [helper.make_node("Shape", ["made"], ["y"]), helper.make_node("Relu", ["a"], ["z"])]
    content, feeds = product_of_open_matrices(*nodes, outputs={"y": np.int64, "z": np.float32})
    opened = session(content)
    contradicting = {**feeds, "b": ones(7, 6)}
    assert opened.run(["z"], contradicting)[0].tolist() == feeds["a"].tolist()
    for names in (["y"], ["y", "z"]):
        with pytest.raises(SardonyxError, match="the_node"):
            opened.run(names, contradicting)


def branches(then: list[Any], otherwise: list[Any]) -> Any:
    graphs = [
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("result", TensorProto.INT64, None)])
        for name, nodes in (("then", then), ("else", otherwise))
    ]
    return helper.make_node("If", ["taken"], ["y"], then_branch=graphs[0], else_branch=graphs[1])


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_side_that_is_not_taken_refuses_nothing(level: GraphOptimizationLevel) -> None:
    then = [
        helper.make_node("MatMul", ["a", "b"], ["made"], name="the_node"),
        helper.make_node("Shape", ["made"], ["result"]),
    ]
    feeds = {"a": ones(4, 5), "b": ones(5, 6), "taken": np.array(True)}
    content = model([branches(then, [helper.make_node("Shape", ["a"], ["result"])])], feeds, {"y": np.int64}).SerializeToString()
    axes = {name: frozenset(range(array.ndim)) for name, array in feeds.items()}
    opened = session(with_open_sizes(content, feeds, axes, set(), shared=False), level=level)
    contradicting = {**feeds, "b": ones(7, 6)}
    assert opened.run(None, feeds)[0].tolist() == [4, 6]
    assert opened.run(None, {**contradicting, "taken": np.array(False)})[0].tolist() == [4, 5]
    with pytest.raises(SardonyxError, match="the_node"):
        opened.run(None, contradicting)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_the_body_of_a_loop_refuses_sizes_that_contradict(level: GraphOptimizationLevel) -> None:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["a", "b"], ["made"], name="the_node"),
            helper.make_node("Shape", ["made"], ["sizes"]),
            helper.make_node("Add", ["sum", "sizes"], ["sum_out"]),
            helper.make_node("Identity", ["going"], ["going_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("going_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum_out", TensorProto.INT64, [2]),
        ],
    )
    feeds = {"a": ones(4, 5), "b": ones(5, 6)}
    loop = helper.make_node("Loop", ["trips", "", "start"], ["y"], body=body)
    constants = {"trips": np.array(3), "start": np.zeros(2, np.int64)}
    content = model([loop], feeds, {"y": np.int64}, constants=constants).SerializeToString()
    axes = {name: frozenset((0, 1)) for name in feeds}
    opened = session(with_open_sizes(content, feeds, axes, set(), shared=False), level=level)
    assert opened.run(None, feeds)[0].tolist() == [12, 18]
    with pytest.raises(SardonyxError, match="the_node"):
        opened.run(None, {**feeds, "b": ones(7, 6)})


def test_a_dropped_node_costs_no_step_and_keeps_no_memory() -> None:
    content, _ = product_of_open_matrices(helper.make_node("Shape", ["made"], ["y"]), outputs={"y": np.int64})
    _, compiled = compile_native(content)
    assert [step.label for step in compiled.lowered.steps if isinstance(step, KernelStep)] == ["sizes"]
    assert {"a_1", "b_0"} in [{str(size), str(other)} for size, other in compiled.lowered.equalities]


def test_sizes_known_when_the_model_is_opened_leave_nothing_to_check() -> None:
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["made"]),
        helper.make_node("Shape", ["made"], ["y"]),
    ]
    _, compiled = compile_native(model(nodes, {"a": ones(4, 5), "b": ones(5, 6)}, {"y": np.int64}).SerializeToString())
    assert not compiled.lowered.equalities
    assert not compiled.lowered.checks


# operator, attributes, inputs that fit, inputs of the same shapes that are refused
DATA_CASES: dict[str, tuple[str, dict[str, Any], list[Array], list[Array]]] = {
    "rows of a table": ("Gather", {}, [ones(4, 5), np.array([0, 3])], [ones(4, 5), np.array([0, 4])]),
    "elements": ("GatherElements", {}, [ones(4, 5), np.array([[0, 3]])], [ones(4, 5), np.array([[0, 4]])]),
    "pieces": ("GatherND", {}, [ones(4, 5), np.array([[0, 3]])], [ones(4, 5), np.array([[0, 5]])]),
    "changed rows": (
        "ScatterND", {}, [ones(4, 5), np.array([[3]]), ones(1, 5)], [ones(4, 5), np.array([[-5]]), ones(1, 5)],
    ),
    "lengths": (
        "ReverseSequence", {"time_axis": 0, "batch_axis": 1}, [ones(4, 2), np.array([4, 1])], [ones(4, 2), np.array([5, 1])],
    ),
}  # fmt: skip


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "fixed"])
@pytest.mark.parametrize("name", DATA_CASES)
def test_a_node_whose_shape_alone_is_read_refuses_what_its_data_say(
    name: str, is_open: bool, level: GraphOptimizationLevel
) -> None:
    """Only its run tells, so it runs."""
    op_type, attrs, fitting, refused = DATA_CASES[name]
    names = [f"x{number}" for number in range(len(fitting))]
    nodes = [
        helper.make_node(op_type, names, ["made"], name="the_node", **attrs),
        helper.make_node("Relu", ["made"], ["behind"]),
        helper.make_node("Shape", ["behind"], ["size"]),
        helper.make_node("Add", ["size", "size"], ["y"]),
    ]
    feeds = dict(zip(names, fitting))
    content = model(nodes, feeds, {"y": np.int64}).SerializeToString()
    if is_open:
        axes = {given: frozenset(range(array.ndim)) for given, array in feeds.items()}
        content = with_open_sizes(content, feeds, axes, set(), shared=False)
    native, reference = session(content, level=level), session(content, providers=REFERENCE)
    for _ in range(2):
        assert native.run(None, feeds)[0].tolist() == reference.run(None, feeds)[0].tolist()
        for opened in (reference, native):
            with pytest.raises(SardonyxError, match="the_node"):
                opened.run(None, dict(zip(names, refused)))


def test_a_node_that_may_refuse_runs_only_if_an_output_depends_on_it() -> None:
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["unread"], name="the_node"),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    feeds = {"x": ones(4, 5), "i": np.array([9])}
    opened = session(model(nodes, feeds, {"y": np.float32}).SerializeToString())
    assert opened.run(None, feeds)[0].tolist() == ones(4, 5).tolist()
