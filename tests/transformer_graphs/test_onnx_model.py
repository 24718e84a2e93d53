"""Models as messages: questions, changes, fusions of programs, profiles; compared with onnxruntime's classes."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.transformers import (
    dynamo_onnx_helper,
    fusion_base,
    fusion_utils,
    huggingface_models,
    import_utils,
    onnx_model,
    onnx_utils,
    profile_result_processor,
)
from sardonyx.transformers.onnx_model import OnnxModel

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def weight(name: str, array: Any) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(array), name)


def value(name: str, kind: int = FLOAT, shape: Any = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Any = (), opset: int = 17) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def diamond() -> onnx.ModelProto:
    """x -> Relu -> (Add w, Mul w) -> Sub -> y."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Add", ["a", "w"], ["b"], "add"),
        helper.make_node("Mul", ["w", "a"], ["c"], "mul"),
        helper.make_node("Sub", ["b", "c"], ["y"], "sub"),
    ]
    return model_of(nodes, [value("x")], [value("y")], [weight("w", np.ones(3, np.float32))])


def theirs() -> ModuleType:
    """onnxruntime's own module, which imports its neighbours by their bare names."""
    folder = str(Path(onnxruntime.__file__).parent / "transformers")
    known = {name: module for name, module in sys.modules.items() if "." not in name}
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("onnxruntime.transformers.onnx_model")
    finally:
        sys.path.remove(folder)
        for name in [name for name in sys.modules if "." not in name and name not in known]:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
                del sys.modules[name]


@pytest.fixture(params=["sardonyx", "onnxruntime"])
def engine(request: pytest.FixtureRequest) -> Any:
    return OnnxModel if request.param == "sardonyx" else theirs().OnnxModel


def names(nodes: Any) -> list[str]:
    return [node.name for node in nodes]


def test_every_method_of_onnxruntimes_model_is_there() -> None:
    wanted = {name for name in dir(theirs().OnnxModel) if not name.startswith("_")}
    assert wanted - set(dir(OnnxModel)) == set()


def test_neighbours_and_chains(engine: Any) -> None:
    model = engine(diamond())
    relu, add, mul, sub = model.nodes()
    makers, readers = model.output_name_to_node(), model.input_name_to_nodes()
    assert model.match_first_parent(sub, "Mul", makers) == (mul, 1)
    assert model.match_first_parent(sub, "Div", makers) == (None, None)
    paths = [(["Add", "Relu"], [0, 0]), (["Div"], [0]), (["Mul", "Relu"], [None, None])]
    numbers, found, taken = model.match_parent_paths_all(sub, paths, makers)
    assert (numbers, [names(each) for each in found], taken) == ([0, 2], [["add", "relu"], ["mul", "relu"]], [[], [1, 1]])
    assert model.match_parent_paths(sub, paths[1:], makers)[0] == 1
    assert names(model.match_child_path(relu, ["Mul", "Sub"])) == ["mul", "sub"]
    assert names(model.match_child_path(relu, ["Mul", "Sub"], [(0, 1), (0, 1)])) == ["mul", "sub"]
    assert model.match_child_path(relu, ["Mul", "Sub"], [(0, 0), (0, 1)]) is None
    assert sorted(names(model.get_children_subgraph_nodes(relu, [sub]))) == ["add", "mul"]
    assert sorted(names(model.get_parent_subgraph_nodes(sub, []))) == ["add", "mul", "relu"]
    assert model.get_graph_inputs(sub) == []
    assert model.get_graph_inputs(sub, recursive=True) == ["x"]
    assert (model.input_index("a", mul), model.input_index("z", mul)) == (1, -1)
    assert model.is_safe_to_fuse_nodes([add, mul, sub], ["y"], readers, makers)
    assert not model.is_safe_to_fuse_nodes([relu, add], ["b"], readers, makers)
    assert model.get_topological_insert_id(model.graph(), ["b"]) == 3
    assert model.get_topological_insert_id(model.graph(), ["y"]) == 4


def test_types_shapes_and_constants(engine: Any) -> None:
    model = engine(diamond())
    assert model.get_dtype("w") == FLOAT
    assert model.get_dtype("a") is None
    assert list(model.get_shape("x")) == [2, 3]
    assert model.get_shape("a") is None
    assert model.tensor_shape_to_list(value("z", FLOAT, [2, "n", None]).type.tensor_type) == [2, "n", "?"]
    assert model.is_constant_with_specified_dimension("w", 1, "weight")
    assert not model.is_constant_with_specified_dimension("w", 2, "weight")
    assert not model.is_constant_with_specified_dimension("a", 1, "weight")
    assert not model.use_float16()
    model.add_initializer(weight("h", np.ones(2, np.float16)))
    assert model.use_float16()
    same, other = weight("p", np.ones(3, np.float32)), weight("q", np.full(3, 1 + 1e-7, np.float32))
    assert model.to_data_hash(same) == model.to_data_hash(model.get_initializer("w"))
    assert model.has_same_value(same, other)
    assert not model.has_same_value(same, weight("r", np.ones((1, 3), np.float32)))
    assert not model.has_same_value(same, weight("r", np.zeros(3, np.float32)))


def test_shapes_at_run_time() -> None:
    model = OnnxModel(diamond())
    model.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    helper_ = model.infer_runtime_shape({"n": 5})
    assert helper_ is not None
    assert helper_.get_edge_shape("a") == [5, 3]
    assert model.get_dtype("a", helper_) == FLOAT
    assert model.get_shape("a", helper_) == [5, 3]
    model.disable_shape_inference()
    assert model.infer_runtime_shape() is None


def test_names(engine: Any) -> None:
    model = engine(diamond())
    model.model.graph.node[0].name = "Relu_7"
    assert [model.create_node_name("Relu"), model.create_node_name("Relu"), model.create_node_name("Add", "mine")] == [
        "Relu_8", "Relu_9", "mine_0",
    ]  # fmt: skip
    model.rename_graph_output("y", "z")
    model.add_prefix_to_names("m_")
    assert [list(node.input) for node in model.nodes()] == [["x"], ["m_a", "m_w"], ["m_w", "m_a"], ["m_b", "m_c"]]
    assert model.graph().output[0].name == "z"
    with pytest.raises(RuntimeError):
        model.rename_graph_output("z", "m_a")


def test_duplicated_weights(engine: Any) -> None:
    proto = diamond()
    proto.graph.initializer.append(weight("v", np.ones(3, np.float32)))
    proto.graph.node[2].input[0] = "v"
    model = engine(proto)
    model.remove_duplicated_initializer({})
    assert [tensor.name for tensor in model.graph().initializer] == ["w"]
    assert list(model.nodes()[2].input) == ["w", "a"]


def casts() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], "first", to=FLOAT),
        helper.make_node("Cast", ["a"], ["b"], "second", to=TensorProto.DOUBLE),
        helper.make_node("Cast", ["b"], ["c"], "third", to=FLOAT),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    return model_of(nodes, [value("x")], [value("y")])


def test_casts(engine: Any) -> None:
    model = engine(casts())
    model.remove_useless_cast_nodes()
    assert names(model.nodes()) == ["second", "third", "relu"]
    model.remove_cascaded_cast_nodes()
    assert names(model.nodes()) == ["third", "relu"]
    model.remove_useless_cast_nodes()
    assert [list(node.input) for node in model.nodes()] == [["x"]]
    model.clean_shape_infer()
    assert not model.graph().value_info


def test_types_of_inputs_and_outputs() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], "cast", to=TensorProto.INT32),
        helper.make_node("Cast", ["a"], ["b"], to=INT64),
        helper.make_node("Add", ["x", "b"], ["y"], "add"),
    ]
    model = OnnxModel(model_of(nodes, [value("x", INT64)], [value("y", INT64)]))
    cast, removed = model.change_graph_input_type(model.graph().input[0], TensorProto.INT32)
    assert (cast.input[0], names(removed)) == ("x", ["cast"])
    assert model.change_graph_input_type(model.graph().input[0], TensorProto.INT32) == (None, [])
    assert model.change_graph_output_type(model.graph().output[0], INT64) is None
    assert model.change_graph_output_type(model.graph().output[0], FLOAT).output[0] == "y"
    model.topological_sort()
    onnx.checker.check_model(model.model, full_check=True)
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    (found,) = sardonyx.InferenceSession(model.model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(found, (2 * x).astype(np.float32))


def test_order_by_name(engine: Any) -> None:
    model = engine(diamond())
    nodes = list(reversed(model.model.graph.node))
    del model.model.graph.node[:]
    model.model.graph.node.extend(nodes)
    model.topological_sort(is_deterministic=True)
    assert names(model.model.graph.node) == ["relu", "sub", "add", "mul"] or names(model.model.graph.node) == [
        "relu", "add", "mul", "sub",
    ]  # fmt: skip
    onnx.checker.check_model(model.model)
    model.model.graph.node[0].input[0] = "y"
    with pytest.raises(RuntimeError, match="Graph is not a DAG"):
        model.topological_sort()


class FuseDouble(fusion_base.Fusion):
    """Add of a value and itself becomes a product with 2."""

    def __init__(self, model: OnnxModel) -> None:
        super().__init__(model, "Mul", "Add", "double")

    def fuse(self, node: Any, input_name_to_nodes: Any, output_name_to_node: Any) -> None:
        if node.input[0] == node.input[1]:
            self.add_initializer("two", FLOAT, [], [2.0])
            made = helper.make_node("Mul", [node.input[0], "two"], list(node.output), self.model.create_node_name("Mul"))
            self.add_nodes_to_remove([node, node])
            self.nodes_to_add.append(made)
            self.node_name_to_graph_name[made.name] = self.this_graph_name or ""
            self.increase_counter("Mul")


def test_fusions_of_programs() -> None:
    proto = model_of([helper.make_node("Add", ["x", "x"], ["y"], "add")], [value("x")], [value("y")])
    model = OnnxModel(proto)
    FuseDouble(model).apply()
    assert [node.op_type for node in model.nodes()] == ["Mul"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = sardonyx.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(found, 2 * x)
    with pytest.raises(NotImplementedError):
        fusion_base.Fusion(OnnxModel(diamond()), "Mul", ["Add"]).apply()


def test_helpers_of_fusions() -> None:
    model = OnnxModel(
        model_of([helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])], [value("x")], [value("y")])
    )
    utils = fusion_utils.FusionUtils(model)
    utils.remove_identity_nodes()
    assert [node.op_type for node in model.nodes()] == ["Relu"]
    assert utils.cast_graph_input_to_int32("x") == (True, "x_int32")
    assert utils.cast_graph_input_to_int32("q") == (False, "q")
    name, node = utils.cast_input("x_int32", "float16")
    assert (name, list(node.input)) == ("x_int32_float16", ["x"])
    with pytest.raises(ValueError, match="expected one of int32"):
        utils.cast_input("x", "int3")
    utils.remove_cast_int32("x")
    assert [node.op_type for node in model.nodes()] == ["Relu", "Cast"]
    axes = helper.make_node("Unsqueeze", ["x"], ["z"], axes=[1, 2])
    assert list(utils.get_squeeze_or_unsqueeze_axes(axes)) == [1, 2]
    assert utils.check_node_attribute(axes, "axes", [1, 2])
    assert utils.check_node_attribute(axes, "keepdims", 1, default_value=1)
    model.add_initializer(weight("s", np.float32(0.5)))
    model.add_initializer(weight("z8", np.int8(0)))
    assert utils.check_node_input_value(helper.make_node("Mul", ["x", "s"], ["q"]), 1, 0.5)
    assert utils.check_qdq_node_for_fusion(helper.make_node("QuantizeLinear", ["x", "s", "z8"], ["q"]), model)
    assert not utils.check_qdq_node_for_fusion(helper.make_node("QuantizeLinear", ["x", "x"], ["q"]), model)
    turned = utils.transpose_2d_int8_tensor(weight("t", np.arange(6, dtype=np.int8).reshape(2, 3)))
    assert list(turned.raw_data) == [0, 3, 1, 4, 2, 5]
    with pytest.raises(ValueError, match="expected an int8 matrix"):
        utils.transpose_2d_int8_tensor(weight("t", np.arange(6, dtype=np.int8)))
    assert (
        fusion_utils.NumpyHelper.to_array(weight("t", np.ones((2, 3), np.float32)), fill_zeros=True).tolist() == [[0.0] * 3] * 2
    )


def test_reshapes_that_change_nothing_go() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    model = OnnxModel(model_of(nodes, [value("x")], [value("y")], [weight("shape", np.array([2, 3]))]))
    fusion_utils.FusionUtils(model).remove_useless_reshape_nodes()
    assert [list(node.input) for node in model.nodes()] == [["x"]]


def test_edges_and_their_dictionary() -> None:
    model = OnnxModel(diamond())
    relu, add, mul, _ = model.nodes()
    readers = model.input_name_to_nodes()
    assert not fusion_utils.FusionUtils.skip_parent(model, add, relu, readers)
    assert fusion_utils.FusionUtils.skip_parent(model, mul, relu, readers, 1)
    assert names(readers["x"]) == ["relu", "add", "mul"]


def test_weights_apart_from_their_model() -> None:
    proto = diamond()
    assert not onnx_utils.has_external_data(proto)
    found, values = onnx_utils.extract_raw_data_from_model(proto)
    assert (list(found), values[0].numpy().tolist()) == (["w"], [1.0, 1.0, 1.0])
    assert onnx_utils.has_external_data(proto)
    options = sardonyx.SessionOptions()
    options.add_external_initializers(list(found), list(values))
    session = sardonyx.InferenceSession(proto.SerializeToString(), options)
    assert session.run(None, {"x": np.ones((2, 3), np.float32)})[0].tolist() == [[1.0] * 3] * 2


def test_models_of_torchs_exporter() -> None:
    function = helper.make_function(
        "f", "Twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], "constant", value=weight("", np.ones(3, np.float32))),
        helper.make_node("Twice", ["x"], ["a"], domain="f"),
        helper.make_node("MyDropout", ["a"], ["b"]),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    proto = model_of(nodes, [value("x")], [value("y")])
    proto.functions.append(function)
    changed = dynamo_onnx_helper.DynamoOnnxHelper(proto)
    changed.convert_constants_to_initializers()
    changed.remove_dropout_layer()
    changed.unroll_function("Twice")
    changed.clear_metadata()
    changed.add_initializer("extra", FLOAT, [2], [1, 2])
    with pytest.raises(ValueError, match="is there 0 times"):
        changed.unroll_function("Twice")
    changed.model.topological_sort()
    (fed,) = changed.model.get_graph_inputs_excluding_initializers()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (found,) = sardonyx.InferenceSession(proto.SerializeToString()).run(None, {fed.name: x})
    np.testing.assert_array_equal(found, 2 * x + 1)


def test_tables_of_a_profile(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = sardonyx.InferenceSession(diamond().SerializeToString(), options, providers=["SardonyxReferenceExecutionProvider"])
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    path = session.end_profiling()
    args = profile_result_processor.parse_arguments(["--input", path, "--threshold", "0"])
    lines = profile_result_processor.process_results(args.input, args)
    assert lines[0] == "No kernel record found!"
    assert any(line.endswith("\tRelu") for line in lines[lines.index("Grouped by operator") :])
    device = [
        {"cat": "Session", "name": "session_initialization", "dur": 3},
        {"cat": "Kernel", "name": "gemm", "dur": 30, "args": {"op_name": "MatMul"}},
        {"cat": "Kernel", "name": "gemm", "dur": 10, "args": {"op_name": "MatMul"}},
        {"cat": "Kernel", "name": "loop", "dur": 99, "args": {"op_name": "Loop"}},
    ]
    assert profile_result_processor.parse_kernel_results(device)[3].split() == ["40", "100.00", "2", "20.0", "gemm"]


def test_what_else_programs_import() -> None:
    assert import_utils.is_installed("numpy")
    assert not import_utils.is_installed("no.such.package")
    assert huggingface_models.MODELS["roberta-base"] == (["input_ids", "attention_mask"], 16, False, "bert")
    assert "AutoModelForCausalLM" in huggingface_models.MODEL_CLASSES
    assert onnx_model.OnnxModel is OnnxModel
