"""Small models that ONNX Runtime's own tests use, built here, and the two runtimes the same test runs on."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

W = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.fixture(params=["onnxruntime", "sardonyx"])
def ort(request: pytest.FixtureRequest) -> Any:
    """The runtime under test: what holds for one must hold for the other."""
    return importlib.import_module(request.param)


def _tensor(name: str, kind: int, shape: Any) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes: Any, inputs: Any, outputs: Any, initializers: Any = (), opset: int = 13, **fields: Any) -> Any:
    graph = helper.make_graph(nodes, fields.pop("graph_name", "graph"), inputs, outputs, list(initializers))
    graph.doc_string = fields.pop("graph_doc", "")
    metadata = fields.pop("metadata", None)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **fields)
    if metadata:
        helper.set_model_props(model, metadata)
    return model


def _float_sequence(name: str) -> Any:
    return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)


def _denoted() -> Any:
    model = _model(
        [helper.make_node("Abs", ["x"], ["y"])],
        [_tensor("x", TensorProto.FLOAT, ["Dim1", "Dim2", 5])],
        [_tensor("y", TensorProto.FLOAT, ["Dim1", "Dim2", 5])],
    )
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].denotation, dims[1].denotation = "DATA_BATCH", "DATA_CHANNEL"
    return model


def _optional() -> Any:
    kind = helper.make_optional_type_proto(helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [5])))
    return _model(
        [helper.make_node("Identity", ["opt_in"], ["opt_out"])],
        [helper.make_value_info("opt_in", kind)],
        [helper.make_value_info("opt_out", kind)],
        opset=16,
    )


def _sparse_output() -> Any:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("values", TensorProto.FLOAT, [3], [1.5, 2.5, 3.5]),
        helper.make_tensor("indices", TensorProto.INT64, [3], [3, 5, 7]),
        [3, 3],
    )
    sparse.values.name = "values"
    graph = helper.make_graph([], "sparse", [], [helper.make_sparse_tensor_value_info("values", TensorProto.FLOAT, [3, 3])])
    graph.sparse_initializer.append(sparse)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def build() -> dict[str, Any]:
    """All models by name."""
    node, tensor, array = helper.make_node, _tensor, numpy_helper.from_array
    number, integer, boolean, text = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
    weight, column = array(W, "W"), array(np.array([[1], [2]], np.float32), "W")
    config = '{"session_options": {"intra_op_num_threads": 2, "inter_op_num_threads": 5, "enable_profiling": 0, '
    config += '"graph_optimization_level": 1}}'
    x32 = [tensor("X", number, [3, 2])]
    add_mul = [node("Add", ["X", "X"], ["T"], name="add_1"), node("Mul", ["T", "W"], ["Y"], name="mul_1")]
    return {
        "mul_1": _model([node("Mul", ["X", "W"], ["Y"], name="mul_1")], x32, [tensor("Y", number, [3, 2])], [weight]),
        "matmul_2": _model(
            [node("MatMul", ["X", "W"], ["Y"])], [tensor("X", number, ["None", 2])], [tensor("Y", number, ["None", 1])], [column]
        ),
        "logicaland": _model(
            [node("And", ["input1:0", "input:0"], ["output:0"])],
            [tensor("input1:0", boolean, [2]), tensor("input:0", boolean, [2])],
            [tensor("output:0", boolean, [2])],
        ),
        "identity_string": _model(
            [node("Identity", ["input:0"], ["output:0"])], [tensor("input:0", text, [2, 2])], [tensor("output:0", text, [2, 2])]
        ),
        "identity": _model([node("Identity", ["X"], ["Y"])], [tensor("X", number, ["n"])], [tensor("Y", number, ["n"])]),
        "add_mul": _model(add_mul, [tensor("X", number, ["a", "b"])], [tensor("Y", number, ["a", "b"])], [weight]),
        "two_outputs": _model(add_mul, x32, [tensor("Y", number, [3, 2]), tensor("T", number, [3, 2])], [weight]),
        "weight_as_output": _model(
            [node("Add", ["X", "W"], ["Y"])], x32, [tensor("Y", number, [3, 2]), tensor("W", number, [3, 2])], [weight]
        ),
        "overridable": _model(
            [node("Add", ["X", "W"], ["Y"])], [*x32, tensor("W", number, [3, 2])], [tensor("Y", number, [3, 2])], [weight]
        ),
        "sequence_length": _model([node("SequenceLength", ["X"], ["Y"])], [_float_sequence("X")], [tensor("Y", integer, [])]),
        "sequence_construct": _model(
            [node("SequenceConstruct", ["tensor1", "tensor2"], ["out"])],
            [tensor("tensor1", integer, [2, 3]), tensor("tensor2", integer, [2, 3])],
            [helper.make_tensor_sequence_value_info("out", integer, None)],
        ),
        "sequence_insert": _model(
            [node("SequenceInsert", ["input_seq", "tensor", "pos"], ["output_sequence"])],
            [
                helper.make_tensor_sequence_value_info("input_seq", integer, None),
                tensor("tensor", integer, [2, 3]),
                tensor("pos", integer, []),
            ],
            [helper.make_tensor_sequence_value_info("output_sequence", integer, None)],
        ),
        "identity_opt": _optional(),
        "abs_free_dimensions": _denoted(),
        "sparse_initializer_as_output": _sparse_output(),
        "with_config": _model(
            [node("Identity", ["X"], ["Y"])],
            [tensor("X", number, [2])],
            [tensor("Y", number, [2])],
            metadata={"ort_config": config},
        ),
        "described": _model(
            [node("Identity", ["X"], ["Y"])],
            [tensor("X", number, [None, "n", 3])],
            [tensor("Y", number, None)],
            producer_name="maker",
            domain="org.example",
            doc_string="a model",
            model_version=7,
            graph_name="main",
            graph_doc="its graph",
            metadata={"author": "somebody"},
        ),
        "long": _model(
            [node("Sin", [f"v{i}"], [f"v{i + 1}"], name=f"sin_{i}") for i in range(200)],
            [tensor("v0", number, ["n"])],
            [tensor("v200", number, ["n"])],
        ),
        "no_shape": _model([node("Relu", ["X"], ["Y"])], [tensor("X", number, None)], [tensor("Y", number, None)]),
        "scalar": _model([node("Abs", ["X"], ["Y"])], [tensor("X", integer, [])], [tensor("Y", integer, [])]),
        "bfloat16": _model(
            [node("Abs", ["X"], ["Y"])], [tensor("X", TensorProto.BFLOAT16, ["n"])], [tensor("Y", TensorProto.BFLOAT16, ["n"])]
        ),
        "bytes": _model(
            [node("Cast", ["X"], ["Y"], to=integer)], [tensor("X", TensorProto.UINT8, ["n"])], [tensor("Y", integer, ["n"])]
        ),
    }


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all the models."""
    place = tmp_path_factory.mktemp("models")
    for name, model in build().items():
        onnx.save(model, place / f"{name}.onnx")
    return place


@pytest.fixture
def model(folder: Path) -> Callable[[str], str]:
    """The path of a model by its name."""
    return lambda name: str(folder / f"{name}.onnx")
