"""Looking at models and operators, and made-up inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import dtypes

FLOATS = (TensorProto.FLOAT, ["N", 3])


def model_with_everything() -> Any:
    """A function, a subgraph, an overridable initializer, a constant node and a sparse initializer."""
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "inner"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", *FLOATS)],
        [numpy_helper.from_array(np.ones(3, np.float32), "inner")],
    )
    nodes = [
        helper.make_node("Double", ["x"], ["d"], domain="local"),
        helper.make_node("If", ["cond"], ["chosen"], then_branch=branch, else_branch=branch),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.zeros((4, 3), np.float16))),
        helper.make_node("Mul", ["chosen", "weight"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "everything",
        [
            helper.make_tensor_value_info("x", *FLOATS),
            helper.make_tensor_value_info("cond", TensorProto.BOOL, []),
            helper.make_tensor_value_info("weight", TensorProto.FLOAT, [3]),
        ],
        [helper.make_tensor_value_info("y", *FLOATS)],
        [numpy_helper.from_array(np.ones(3, np.float32), "weight")],
        sparse_initializer=[
            helper.make_sparse_tensor(
                helper.make_tensor("s", TensorProto.FLOAT, [2], [1, 2]),
                helper.make_tensor("i", TensorProto.INT64, [2], [0, 3]),
                [5],
            )
        ],
    )
    double = helper.make_function(
        "local", "Double", ["v"], ["w"], [helper.make_node("Add", ["v", "v"], ["w"])], [helper.make_opsetid("", 17)]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(
        graph, opset_imports=opsets, functions=[double], ir_version=9, producer_name="tests", producer_version="2"
    )


def test_a_summary_counts_subgraphs_functions_and_all_kinds_of_weights() -> None:
    summary = sardonyx.summarize_model(model_with_everything())
    assert summary.opsets == {"ai.onnx": 17, "local": 1}
    assert [port.name for port in summary.inputs] == ["x", "cond"]
    assert [port.name for port in summary.overridable] == ["weight"]
    assert [(port.name, port.type, port.onnx_type) for port in summary.outputs] == [("y", "f32[N,3]", "tensor(float)")]
    assert (summary.subgraphs, summary.functions, summary.producer) == (2, ("local::Double",), "tests 2")
    assert summary.weights_by_type == {"f16": 12, "f32": 3 + 3 + 3 + 2}
    assert summary.parameters == 23
    assert summary.weight_bytes == 24 + 4 * 9 + (8 + 16)
    assert summary.largest_weights[0].name in ("c", "s")
    uses = {use.name: (use.count, use.execution) for use in summary.operators}
    assert uses == {
        "Add": (3, "native"),
        "Double": (1, "function"),
        "If": (1, "control"),
        "Constant": (1, "known"),
        "Mul": (1, "native"),
    }
    assert summary.nodes == 7


def test_a_summary_of_a_file_knows_its_size(tmp_path: Path) -> None:
    onnx.save(model_with_everything(), str(tmp_path / "m.onnx"))
    summary = sardonyx.summarize_model(tmp_path / "m.onnx")
    assert summary.file_bytes == (tmp_path / "m.onnx").stat().st_size
    assert summary.path.endswith("m.onnx")


def test_load_model_accepts_what_it_returned() -> None:
    model = sardonyx.load_model(model_with_everything().SerializeToString())
    assert sardonyx.load_model(model) is model
    assert model.graph.name == "everything"


def test_check_model_puts_errors_first() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["m"], name="fine"), helper.make_node("Nope", ["m"], ["y"], name="bad")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    problems = sardonyx.check_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert problems[0].severity == "error"
    assert "Nope" in problems[0].text
    assert "bad" in problems[0].where


def test_check_model_lists_what_the_reader_refuses() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    problems = sardonyx.check_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert any(problem.severity == "error" and "y" in str(problem) for problem in problems)


def test_operators_lists_each_name_once_per_domain() -> None:
    known = sardonyx.operators()
    keys = [(operator.domain, operator.name) for operator in known]
    assert len(keys) == len(set(keys))
    [conv] = [operator for operator in sardonyx.operators("ai.onnx") if operator.name == "Conv"]
    assert conv.versions == (1, 11, 22)
    assert conv.inputs == ("X: T", "W: T", "B?: T")
    assert sardonyx.operators("") == sardonyx.operators("ai.onnx")
    assert sardonyx.operators("com.nobody") == []


@pytest.mark.parametrize(
    ("message", "onnx_type", "expected"),
    [
        (numpy_helper.from_array(np.array([1, 2])), "tensor(int64)", [1, 2]),
        (numpy_helper.from_list([np.array([1]), np.array([2])]), "seq(tensor(int64))", [[1], [2]]),
        (numpy_helper.from_dict({1: np.array([3])}), "map(int64,tensor(int64))", {1: [3]}),
        (numpy_helper.from_optional(None, dtype=1), "optional(tensor(float))", None),
    ],
)
def test_values_are_read_from_files(tmp_path: Path, message: Any, onnx_type: str, expected: Any) -> None:
    (tmp_path / "value.pb").write_bytes(message.SerializeToString())
    value = sardonyx.load_value(tmp_path / "value.pb", onnx_type)
    plain = {key: np.asarray(item).tolist() for key, item in value.items()} if isinstance(value, dict) else value
    assert (plain if isinstance(plain, dict) or plain is None else [np.asarray(item).tolist() for item in plain]) == expected


def test_a_type_that_is_none_is_refused() -> None:
    with pytest.raises(sardonyx.InvalidArgument, match="is not a type"):
        sardonyx.load_value(b"", "vector(float)")


def argument(name: str, type_: str, shape: list[Any]) -> Any:
    return SimpleNamespace(name=name, type=type_, shape=shape)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_a_tensor_of_every_type_can_be_made_up(dtype: dtypes.DType) -> None:
    value = sardonyx.random_inputs([argument("x", f"tensor({dtype.ort})", [2, "N", None])])["x"]
    assert value.dtype == dtype.numpy
    assert value.shape == (2, 1, 1)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_a_scalar_of_every_type_is_an_array(dtype: dtypes.DType) -> None:
    value = sardonyx.random_inputs([argument("x", f"tensor({dtype.ort})", [])])["x"]
    assert isinstance(value, np.ndarray)
    assert value.shape == ()


def test_containers_can_be_made_up() -> None:
    made = sardonyx.random_inputs(
        [
            argument("s", "seq(tensor(float))", [2]),
            argument("o", "optional(tensor(int64))", [1]),
            argument("m", "map(string,tensor(float))", []),
            argument("n", "seq(map(int64,tensor(float)))", []),
        ]
    )
    assert [item.shape for item in made["s"]] == [(2,), (2,)]
    assert made["o"].dtype == np.int64
    assert list(made["m"]) == ["red", "green"]
    assert isinstance(made["n"][0][0], float)


def test_a_sparse_tensor_cannot_be_made_up() -> None:
    with pytest.raises(sardonyx.InvalidArgument, match="no value can be made up"):
        sardonyx.random_inputs([argument("x", "sparse_tensor(float)", [2])])


@given(st.integers(0, 4), st.integers(0, 4))
def test_a_named_dimension_has_one_size_in_all_inputs(rows: int, columns: int) -> None:
    arguments = [argument("a", "tensor(float)", ["R", "C"]), argument("b", "tensor(float)", ["C", "R"])]
    made = sardonyx.random_inputs(arguments, {"a": (rows, columns)})
    assert made["b"].shape == (columns, rows)
    by_name = sardonyx.random_inputs(arguments, {"R": (rows,)})
    assert (by_name["a"].shape, by_name["b"].shape) == ((rows, 1), (1, rows))
