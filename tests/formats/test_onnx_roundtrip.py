"""What is read and written again means the same to onnx's own parser."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import load, to_bytes
from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Node, Value
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.ir.types import TensorType

DATA = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
DEFAULTS = (("domain", "'ai.onnx'"), ("model_version", "0"))
DISK_MODELS = sorted(glob.glob(os.path.join(DATA, "*", "*", "*.onnx")) + glob.glob(os.path.join(DATA, "light", "*.onnx")))


def meaning(message: Any) -> Any:
    """A message as plain data, without what two files may differ in and mean the same."""
    if isinstance(message, TensorProto):
        array = numpy_helper.to_array(message)
        data = array.tolist() if array.dtype == object else np.ascontiguousarray(array).tobytes()
        return message.name, message.data_type, tuple(message.dims), data, message.doc_string
    if isinstance(message, onnx.TypeProto) and message.HasField("tensor_type") and not message.tensor_type.elem_type:
        return {}
    if not hasattr(message, "ListFields"):
        return repr(message)  # so that NaN equals itself
    result: dict[str, Any] = {}
    for field, value in message.ListFields():
        repeated = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
        if repeated and field.name == "value_info" and isinstance(message, onnx.GraphProto):
            inner = {name for node in message.node for name in node.output} - {info.name for info in message.output}
            content: Any = {info.name: meaning(info) for info in value if info.name in inner}
        elif repeated and field.name in ("opset_import", "metadata_props", "value_info"):
            content = {repr(meaning(item)) for item in value}
        elif repeated:
            content = [meaning(item) for item in value]
        else:
            content = meaning(value)
        if content not in ([], {}, set(), "''") and (field.name, content) not in DEFAULTS:
            result[field.name] = content
    return result


def assert_survives(proto: ModelProto) -> None:
    written = to_bytes(load(proto))
    again = ModelProto.FromString(written)
    assert meaning(again) == meaning(proto)
    assert to_bytes(load(written)) == written


@pytest.mark.parametrize("path", DISK_MODELS, ids=[os.path.relpath(path, DATA) for path in DISK_MODELS])
def test_the_models_of_the_onnx_suite_survive(path: str) -> None:
    assert_survives(onnx.load(path))


def node_cases() -> Iterator[Any]:
    from onnx.backend.test.case.node import collect_testcases

    yield from collect_testcases(None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_node_cases_of_the_onnx_suite_survive() -> None:
    for case in node_cases():
        assert_survives(case.model)


def test_a_model_with_everything_survives() -> None:
    text = """
    <ir_version: 11, opset_import: ["" : 21, "local" : 1, "ai.onnx.ml" : 3], producer_name: "p", producer_version: "v",
     domain: "d", model_version: 3, doc_string: "doc", metadata_props: ["a" : "b"]>
    g (bool c, float[N,?,3] x, seq(int64[K]) s, optional(float[2]) o, map(string, float[]) m, float[2] w) => (float[2] y, float z)
    <float[2] w = {1, 2}, float t>
    {
        t = local.F <alpha = 2.0> (w)
        y = If (c) <then_branch = a () => (float[2] p) { p = Add(t, w) }, else_branch = b () => (float[2] p) { p = Neg(t) }>
        z = Clip(x, , w)
    }
    <domain: "local", opset_import: ["" : 18]>
    F <alpha, beta: float = 0.5> (a) => (b) { c = Constant <value_float: float = @alpha> ()  b = Mul(a, c) }"""
    proto = parser.parse_model(text)
    proto.functions[0].overload = "o"
    proto.functions[0].doc_string = "function doc"
    proto.functions[0].metadata_props.add(key="k", value="v")
    proto.functions[0].value_info.append(helper.make_tensor_value_info("c", 1, []))
    proto.functions[0].node[0].attribute[0].doc_string = "attribute doc"
    graph = proto.graph
    graph.doc_string = "graph doc"
    for holder in (graph, graph.node[0], graph.value_info[0], graph.output[0]):
        holder.metadata_props.add(key="k", value="v")
    graph.input[1].type.denotation = "IMAGE"
    graph.input[1].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    graph.initializer.append(helper.make_tensor("packed", TensorProto.INT4, [3], [1, -2, 3]))
    graph.initializer[1].doc_string = "tensor doc"
    graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(np.array([1], np.float32), "sp"), numpy_helper.from_array(np.array([2], np.int64), "i"), [5]
        )
    )
    annotation = graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    training = proto.training_info.add()
    training.algorithm.name = "algorithm"
    training.update_binding.add(key="w", value="y")
    device = proto.configuration.add(name="two", num_devices=2)
    device.device.extend(["a", "b"])
    graph.node[2].device_configurations.add(configuration_id="two", pipeline_stage=1)
    assert_survives(proto)


def test_strings_complex_numbers_and_empty_tensors_survive() -> None:
    arrays = {
        "s": np.array([["a", "ü"], ["", "b\0"]], dtype=object),
        "c": np.array([[1 + 2j]], np.complex128),
        "e": np.empty((0, 3), np.float16),
        "scalar": np.float64(3).reshape(()),
    }
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(
        [], "g", [], [helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in tensors], tensors
    )
    assert_survives(helper.make_model(graph))


def graph_of(*values: Value) -> Model:
    graph = Graph("g")
    graph.inputs = list(values)
    return Model(graph, opset_imports={"": 21})


def test_values_of_one_name_are_told_apart() -> None:
    x = Value("x", TensorType(dtypes.FLOAT32, (2,)))
    model = graph_of(x)
    first = model.graph.append(Node("Abs", [x], [Value("t")], version=21)).outputs[0]
    second = model.graph.append(Node("Neg", [first], [Value("t")], version=21)).outputs[0]
    unnamed = model.graph.append(Node("Exp", [second], [Value("")], version=21)).outputs[0]
    result = model.graph.append(Node("Add", [unnamed, first], [Value("y"), Value("")], version=21)).outputs[0]
    inner = Graph("inner")
    inner.outputs = inner.append(Node("Add", [second, x], [Value("t")], version=21)).outputs
    model.graph.append(Node("If", [x], [Value("z")], [Attr("then_branch", AttrKind.GRAPH, inner)], version=21))
    model.graph.outputs = [result]
    again = load(to_bytes(model))
    abs_, neg, exp, add, branch = again.graph.nodes
    assert neg.inputs == (abs_.outputs[0],)
    assert exp.inputs == (neg.outputs[0],)
    assert add.inputs == (exp.outputs[0], abs_.outputs[0])
    assert [output.name for output in add.outputs] == ["y", ""]
    (body,) = branch.subgraphs()
    assert next(iter(body.nodes)).inputs == (neg.outputs[0], again.graph.inputs[0])


def test_two_inputs_of_one_name_cannot_be_written() -> None:
    with pytest.raises(InvalidArgument, match="graph 'g' cannot be written: two inputs are called 'x'"):
        to_bytes(graph_of(Value("x"), Value("x")))
    with pytest.raises(InvalidArgument, match="one of its inputs has no name"):
        to_bytes(graph_of(Value("")))


def test_a_value_from_elsewhere_cannot_be_written() -> None:
    model = graph_of(Value("x"))
    model.graph.append(Node("Abs", [Value("foreign")], [Value("y")]))
    with pytest.raises(InvalidArgument, match="it reads 'foreign', which is no value of it"):
        to_bytes(model)


def test_expressions_of_dimensions_are_written_as_names() -> None:
    from sardonyx.ir.dims import fresh, symbol

    shape = (symbol("N") * 2 + 1, fresh(), 3)
    proto = ModelProto.FromString(to_bytes(graph_of(Value("x", TensorType(dtypes.FLOAT32, shape)))))
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    assert [dim.WhichOneof("value") for dim in dims] == ["dim_param", None, "dim_value"]
    assert dims[0].dim_param == "2*N + 1"


def test_more_than_two_gigabytes_need_external_data(tmp_path: Path) -> None:
    data = np.memmap(tmp_path / "zeros", np.uint8, "w+", shape=(1 << 31,))  # a sparse file
    model = graph_of(Value("x"))
    model.graph.add_initializer("w", Tensor(dtypes.UINT8, (1 << 31,), lambda: data))
    with pytest.raises(InvalidArgument, match="an ONNX file holds 2147483647 at most\n  hint: save it with external_data"):
        to_bytes(model)


def test_constants_of_the_ir_are_written() -> None:
    model = graph_of()
    value = model.graph.add_initializer("w", from_numpy(np.arange(6, dtype=np.int16).reshape(2, 3)))
    model.graph.outputs = [value]
    proto = ModelProto.FromString(to_bytes(model))
    np.testing.assert_array_equal(numpy_helper.to_array(proto.graph.initializer[0]), [[0, 1, 2], [3, 4, 5]])
