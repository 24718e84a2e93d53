"""Native programs whose sizes are known late, turn out empty, negative or too small for a window, or contradict the model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from guarded_session import guarded_feeds, guarded_memory
from sardonyx import errors
from session_agreement import REFERENCE, difference, session

F32 = np.float32
Node = Any


def model(nodes: list[Node], inputs: dict[str, list[Any]], outputs: list[str], constants: dict[str, Any] | None = None) -> bytes:
    """A model of float32 inputs; outputs have no types."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    return made


def ones(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(F32) + 3


def assert_same(content: bytes, runs: list[dict[str, Any]]) -> None:
    """One native session gives for all feeds in a row what NumPy gives, in guarded memory as well."""
    reference = session(content, providers=REFERENCE)
    with guarded_memory() as guard:
        guarded = session(content)
        plain = session(content, threads=2)
        for feeds in runs:
            expected = reference.run(None, feeds)
            for results in (plain.run(None, feeds), guarded.run(None, guarded_feeds(guard, feeds))):
                for actual, wanted in zip(results, expected, strict=True):
                    assert not difference(actual, wanted)


def test_memory_of_a_size_known_late_is_not_taken_before_it_is_known() -> None:
    nodes = [
        helper.make_node("NonZero", ["y"], ["few"]),  # tells one size while the other is still open
        helper.make_node("NonZero", ["x"], ["many"]),
        helper.make_node("Cast", ["many"], ["numbers"], to=1),
        helper.make_node("Pad", ["numbers", "pads"], ["padded"]),
        helper.make_node("Exp", ["padded"], ["e"]),
        helper.make_node("Transpose", ["e"], ["z"]),
        helper.make_node("Cast", ["few"], ["f"], to=1),
        helper.make_node("Neg", ["f"], ["w"]),
    ]
    content = model(nodes, {"x": ["N"], "y": ["M"]}, ["z", "w"], {"pads": np.array([0, 1, 0, 1])})
    assert_same(content, [{"x": ones(n) * (np.arange(n) < 9), "y": ones(m)} for n, m in ((500, 3), (2, 40), (0, 1), (7, 0))])


def test_a_run_whose_sizes_conflict_leaves_nothing_behind() -> None:
    nodes = [
        helper.make_node("Add", ["x", "y"], ["a"]),
        helper.make_node("Det", ["square"], ["d"]),  # no kernel: the program has a host step
        helper.make_node("Mul", ["a", "d"], ["z"]),
    ]
    content = model(nodes, {"x": ["N"], "y": ["M"], "square": [2, 2]}, ["z"])
    opened = session(content)
    square = np.array([[2, 0], [0, 2]], F32)
    for n, m in ((4, 4), (40, 1), (4, 4), (300, 300), (4, 1), (1, 4)):
        x, y = ones(n), ones(m)
        np.testing.assert_allclose(opened.run(None, {"x": x, "y": y, "square": square})[0], (x + y) * 4, rtol=1e-6)
        with pytest.raises(errors.InvalidArgument, match="Add"):
            opened.run(None, {"x": ones(3000), "y": ones(5), "square": square})


def found_twice() -> bytes:
    """How many of x are positive is known first, how many sums of those and y are positive after that."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
        helper.make_node("Compress", ["x", "positive"], ["some"], axis=0),
        helper.make_node("Exp", ["some"], ["e"]),
        helper.make_node("Add", ["e", "y"], ["sums"]),
        helper.make_node("Relu", ["sums"], ["r"]),
        helper.make_node("NonZero", ["r"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=1),
        helper.make_node("Softmax", ["numbers"], ["z"]),
        helper.make_node("ReduceSum", ["sums"], ["w"], keepdims=0),
    ]
    return model(nodes, {"x": ["N"], "y": ["M"]}, ["z", "w", "r"], {"zero": F32(0)})


def test_sizes_told_one_after_the_other_change_one_by_one() -> None:
    def feeds(size: int, positive: int, raised: float) -> dict[str, Any]:
        x = np.where(np.arange(size) < positive, F32(0.5), F32(-1)) * np.linspace(1, 3, size, dtype=F32)
        return {"x": x, "y": np.array([raised], F32)}

    rows = [(40, 9, 0), (40, 9, 0), (40, 9, -2), (40, 9, -9), (40, 9, 0), (40, 3, 0), (40, 0, 0), (40, 40, 0), (40, 40, -2)]
    rows += [(5, 5, 0), (5, 5, 0), (0, 0, 0), (40, 9, 0), (3000, 2500, 0), (3000, 2500, -2), (3000, 1, 0), (40, 9, 0)]
    assert_same(found_twice(), [feeds(*row) for row in rows])


def test_a_size_that_conflicts_in_the_middle_of_a_run_leaves_nothing_behind() -> None:
    opened = session(found_twice())
    x = np.array([1, -1, 2, 3], F32)
    for _ in range(4):
        for size in (3, 1, 3):
            y = ones(size)
            np.testing.assert_allclose(opened.run(None, {"x": x, "y": y})[2], np.exp(x[x > 0]) + y, rtol=1e-6)
        with pytest.raises(errors.InvalidArgument, match="Add"):
            opened.run(None, {"x": x, "y": ones(2)})


def test_runs_of_which_kernels_tell_sizes_take_the_short_way_on_many_threads() -> None:
    opened = session(found_twice(), threads=2)
    y = np.zeros(1, F32)
    inputs = [np.where(np.arange(60) < count, F32(1), F32(-1)) for count in range(60)]
    expected = [opened.run(None, {"x": x, "y": y}) for x in inputs]
    assert opened._opened.run_fast({"x": inputs[7], "y": y}) is not None

    def run_all(start: int) -> None:
        for number in (*range(start, 60), *range(start)):
            for actual, wanted in zip(opened.run(None, {"x": inputs[number], "y": y}), expected[number], strict=True):
                assert np.array_equal(actual, wanted)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(run_all, range(0, 60, 5)))


def test_a_body_takes_sizes_from_around_it() -> None:
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "cut"], ["s"]),
            helper.make_node("Tanh", ["s"], ["t"]),
            helper.make_node("Identity", ["c"], ["on"]),
            helper.make_node("Mul", ["t", "t"], ["kept"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, None),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("on", "t", "kept")],
    )
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis"], ["cut"]),  # min(3, N) rows
        helper.make_node("Loop", ["trips", "go", "cut"], ["last", "all"], body=body),
    ]
    constants = {"start": [0], "end": [3], "axis": [0], "trips": np.array(2), "go": np.array(True)}
    content = model(nodes, {"x": ["N", 5]}, ["last", "all"], constants)
    assert_same(content, [{"x": ones(n, 5)} for n in (7, 2, 7, 3, 1)])


def test_a_result_known_ahead_whose_size_is_not() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=numpy_helper.from_array(np.array([1.5], F32))),
        helper.make_node("NonZero", ["c"], ["places"]),
        helper.make_node("Transpose", ["places"], ["turned"], perm=[1, 0]),
        helper.make_node("GatherND", ["c", "turned"], ["found"]),
        helper.make_node("Add", ["found", "x"], ["z"]),
    ]
    content = model(nodes, {"x": [1]}, ["z"], {"s": [3, 2]})
    for level in sardonyx.GraphOptimizationLevel:
        assert session(content, level=level).run(None, {"x": np.ones(1, F32)})[0].tolist() == [2.5] * 6


def test_a_branch_reads_what_a_later_reduction_could_have_taken_in() -> None:
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["m"], [f"{name}_out"])], name, [], [helper.make_empty_tensor_value_info(f"{name}_out")]
        )
        for name, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Mul", ["e", "x"], ["m"]),
        helper.make_node("If", ["flag"], ["chosen"], **branches),
        helper.make_node("ReduceSum", ["m"], ["total"], keepdims=0),
        helper.make_node("Add", ["chosen", "total"], ["z"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("z")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    assert_same(content, [{"x": ones(n), "flag": np.array(flag)} for n in (4, 9) for flag in (True, False)])


def test_a_size_below_zero_is_an_error_that_names_the_node() -> None:
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["cut"], name="too much"),
        helper.make_node("Transpose", ["cut"], ["y"], perm=[1, 0]),
    ]
    opened = session(model(nodes, {"x": ["N", "M"]}, ["y"], {"pads": np.array([0, 0, -3, -3])}))
    assert opened.run(None, {"x": ones(4, 5)})[0].shape == (2, 1)
    for shape in ((2, 5), (5, 2), (2, 2)):
        with pytest.raises(errors.SardonyxError, match="Pad 'too much'"):
            opened.run(None, {"x": ones(*shape)})
    assert opened.run(None, {"x": ones(3, 5)})[0].shape == (2, 0)


@pytest.mark.parametrize(
    "node",
    [
        # Pools cut windows that miss less than a stride, and have none if they miss less than two.
        helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[4, 2], ceil_mode=1, name="window"),
        helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[4, 2], name="window"),
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[3, 1], name="window"),
    ],
    ids=lambda node: node.op_type,
)
@pytest.mark.parametrize("level", list(sardonyx.GraphOptimizationLevel), ids=lambda level: level.name)
def test_windows_larger_than_the_image_are_an_error(node: Node, level: Any) -> None:
    constants = {"w": np.ones((3, 3, 4, 2), F32)} if node.op_type == "Conv" else {}
    nodes = [node, helper.make_node("Relu", ["y"], ["z"])]
    opened = session(model(nodes, {"x": ["N", 3, "H", 6]}, ["z"], constants), level=level)
    assert opened.run(None, {"x": ones(1, 3, 4, 6)})[0].shape == (1, 3, 1, 5)
    with pytest.raises(errors.SardonyxError, match=f"{node.op_type} 'window'"):
        opened.run(None, {"x": ones(1, 3, 2, 6)})


def test_indices_into_empty_rows_are_looked_at() -> None:
    nodes = [helper.make_node("Cast", ["i"], ["index"], to=7), helper.make_node("Gather", ["x", "index"], ["y"], name="rows")]
    opened = session(model(nodes, {"x": [3, "M"], "i": ["K"]}, ["y"]))
    assert opened.run(None, {"x": ones(3, 0), "i": np.array([2, -3], F32)})[0].shape == (2, 0)
    for width in (0, 4):
        with pytest.raises(errors.InvalidArgument, match=r"Gather 'rows'.*index 3"):
            opened.run(None, {"x": ones(3, width), "i": np.array([0, 3], F32)})


@pytest.mark.parametrize("target", [[0, -1], [0, 2, -1], [-1, 0], [0, 0, -1], [0, 4, -1], [-1, 6]])
def test_reshape_of_an_empty_tensor_is_what_it_is_for_all_other_sizes(target: list[int]) -> None:
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    symbolic = model(nodes, {"x": ["N", 4, 6]}, ["z"], {"s": target})
    assert_same(symbolic, [{"x": ones(n, 4, 6)} for n in (3, 0, 1)])
    unnamed = model(nodes, {"x": [None, None, None]}, ["z"], {"s": target})
    expected = session(symbolic).run(None, {"x": ones(0, 4, 6)})[0].shape
    assert session(unnamed).run(None, {"x": ones(0, 4, 6)})[0].shape == expected


def test_a_computed_size_of_zero_copies_the_size_at_its_place() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "last"], ["size"]),
        helper.make_node("Concat", ["size", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    content = model(nodes, {"x": [4, "S"]}, ["z"], {"last": [1], "rest": [-1]})
    assert_same(content, [{"x": ones(4, size)} for size in (3, 0, 1)])


def test_a_computed_size_of_zero_that_is_the_inputs_own_leaves_the_rest_as_it_is() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["flat"]),
        helper.make_node("Shape", ["flat"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["size"]),
        helper.make_node("Concat", ["size", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["flat", "target"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    content = model(nodes, {"x": ["N", 3, "S", 10]}, ["z"], {"rows": [-1, 10], "first": [0], "rest": [-1]})
    assert_same(content, [{"x": ones(n, 3, size, 10)} for n, size in ((2, 5), (0, 3), (2, 0), (1, 1))])


def test_pools_of_any_size_open_and_run_at_once() -> None:
    signal = ones(1, 2, 30_000)
    inputs, outputs = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "L"])],
        [helper.make_empty_tensor_value_info("y")],
    )
    for width, step, dilation in ((500, 250, 1), (4000, 2, 1), (1, 9000, 1), (2, 1, 20_000)):
        for name in ("MaxPool", "AveragePool"):
            node = helper.make_node(name, ["x"], ["y"], kernel_shape=[width], strides=[step], dilations=[dilation])
            graph = helper.make_graph([node], "g", inputs, outputs)
            made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
            assert_same(made.SerializeToString(), [{"x": signal}])


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("indices", [False, True])
def test_windows_mostly_in_the_padding_take_no_time(name: str, indices: bool) -> None:
    if indices and name == "AveragePool":
        return
    size = 20_000
    outputs = ["y", "i"] if indices else ["y"]
    node = helper.make_node(name, ["x"], outputs, kernel_shape=[size, size], pads=[size // 2] * 4)
    x = ones(1, 1, 2, 2)
    results = session(model([node], {"x": [1, 1, 2, 2]}, outputs)).run(None, {"x": x})
    assert results[0].shape == (1, 1, 3, 3)
    expected = x.max() if name == "MaxPool" else x.mean()
    np.testing.assert_allclose(results[0][0, 0, 1, 1], expected, rtol=1e-6)
    if indices:
        assert results[1][0, 0, 1, 1] == x.argmax()


@pytest.mark.parametrize("ir_version", [3, 4])
def test_initializers_of_old_models_cannot_be_replaced(ir_version: int) -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, [2]), info("w", TensorProto.FLOAT, [2])],
        [info("y", TensorProto.FLOAT, [2])],
        [numpy_helper.from_array(np.ones(2, F32), "w")],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=ir_version).SerializeToString()
    for providers in (REFERENCE, ["CPUExecutionProvider"]):
        opened = session(content, providers=providers)
        assert [port.name for port in opened.get_inputs()] == ["x"]
        assert [port.name for port in opened.get_overridable_initializers()] == (["w"] if ir_version >= 4 else [])
        x = np.ones(2, F32)
        assert opened.run(None, {"x": x})[0].tolist() == [2, 2]
        if ir_version < 4:
            with pytest.raises(errors.InvalidArgument, match="Invalid input name: w"):
                opened.run(None, {"x": x, "w": x * 3})
        else:
            assert opened.run(None, {"x": x, "w": x * 3})[0].tolist() == [4, 4]
