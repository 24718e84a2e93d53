"""Fused layers of transformers: the operators that come out, the same results here and in onnxruntime, and float16 of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.transformers.float16 import convert_float_to_float16
from sardonyx.transformers.fusion_options import AttentionOpType, FusionOptions
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.optimizer import get_fusion_statistics, main, optimize_by_onnxruntime, optimize_model

Array = np.ndarray[Any, Any]
WIDTH, HEADS, INNER, WORDS, ROOM = 16, 2, 24, 600, 12


class Layers:
    """Writes the layers of a BERT, node by node."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(3)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attrs))
        return name

    def constant(self, array: Any) -> str:
        name = f"constant{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant((self.random.standard_normal(shape) * 0.3).astype(np.float32))

    def dense(self, x: str, depth: int, columns: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.weight(depth, columns)), self.weight(columns))

    def norm(self, x: str) -> str:
        return self.add("LayerNormalization", x, self.weight(WIDTH), self.weight(WIDTH), axis=-1, epsilon=1e-5)

    def heads(self, x: str, perm: list[int]) -> str:
        split = self.add("Reshape", x, self.constant(np.array([0, 0, HEADS, WIDTH // HEADS], np.int64)))
        return self.add("Transpose", split, perm=perm)

    def attention(self, x: str, mask: str) -> str:
        q, k, v = (self.dense(x, WIDTH, WIDTH) for _ in range(3))
        scores = self.add("MatMul", self.heads(q, [0, 2, 1, 3]), self.heads(k, [0, 2, 3, 1]))
        scaled = self.add("Div", scores, self.constant(np.float32(np.sqrt(WIDTH // HEADS))))
        weights = self.add("Softmax", self.add("Add", scaled, mask) if mask else scaled, axis=-1)
        mixed = self.add("Transpose", self.add("MatMul", weights, self.heads(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
        return self.dense(self.add("Reshape", mixed, self.constant(np.array([0, 0, WIDTH], np.int64))), WIDTH, WIDTH)

    def gelu(self, x: str) -> str:
        inner = self.add("Erf", self.add("Div", x, self.constant(np.float32(np.sqrt(2)))))
        return self.add(
            "Mul", self.add("Mul", x, self.add("Add", inner, self.constant(np.float32(1)))), self.constant(np.float32(0.5))
        )

    def layer(self, x: str, mask: str) -> str:
        x = self.norm(self.add("Add", self.attention(x, mask), x))
        inner = self.dense(self.gelu(self.dense(x, WIDTH, INNER)), INNER, WIDTH)
        return self.norm(self.add("Add", inner, x))


def bert(*, has_segments: bool = True, has_mask: bool = True) -> onnx.ModelProto:
    w = Layers()
    embedded = w.add("Gather", w.weight(WORDS, WIDTH), "input_ids")
    if has_segments:
        embedded = w.add("Add", embedded, w.add("Gather", w.weight(2, WIDTH), "token_type_ids"))
    length = w.add("Gather", w.add("Shape", "input_ids"), w.constant(np.array([1], np.int64)))
    one = w.constant(np.array([1], np.int64))
    zero = w.constant(np.array([0], np.int64))
    positions = w.add("Slice", w.constant(np.arange(ROOM)[None]), zero, length, one)
    x = w.norm(w.add("Add", embedded, w.add("Gather", w.weight(ROOM, WIDTH), positions)))
    mask = ""
    if has_mask:
        floats = w.add("Cast", w.add("Unsqueeze", "attention_mask", w.constant(np.array([1, 2]))), to=TensorProto.FLOAT)
        mask = w.add("Mul", w.add("Sub", w.constant(np.float32(1)), floats), w.constant(np.float32(-10000)))
    for _ in range(2):
        x = w.layer(x, mask)
    w.nodes[-1].output[0] = "y"
    names = ["input_ids", *(["token_type_ids"] if has_segments else []), *(["attention_mask"] if has_mask else [])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in names]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", WIDTH])]
    graph = helper.make_graph(w.nodes, "bert", inputs, outputs, w.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def feeds_of(model: onnx.ModelProto) -> dict[str, Array]:
    ids = np.random.default_rng(0).integers(0, WORDS, (3, 7))
    every = {"input_ids": ids, "token_type_ids": ids % 2, "attention_mask": (np.arange(7) < [[7], [5], [3]]).astype(np.int64)}
    return {value.name: every[value.name] for value in model.graph.input}


def assert_same(model: onnx.ModelProto, changed: onnx.ModelProto, tolerance: float = 2e-5) -> None:
    feeds = feeds_of(model)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    content = changed.SerializeToString()
    for session in (onnxruntime.InferenceSession(content), sardonyx.InferenceSession(content)):
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted, atol=tolerance)


@pytest.mark.parametrize(("has_segments", "has_mask"), [(True, True), (False, True), (True, False)])
def test_all_layers_of_a_bert_are_fused(has_segments: bool, has_mask: bool) -> None:
    model = bert(has_segments=has_segments, has_mask=has_mask)
    optimized = optimize_model(model, "bert", HEADS, WIDTH)
    count = optimized.get_fused_operator_statistics()
    fused = {name: number for name, number in count.items() if number}
    assert fused == {"EmbedLayerNormalization": 1, "Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 4}
    assert optimized.is_fully_optimized()
    assert_same(model, optimized.model)


def test_options_leave_layers_as_they_are() -> None:
    model = bert()
    options = FusionOptions("bert")
    options.enable_embed_layer_norm = options.enable_skip_layer_norm = options.enable_bias_gelu = False
    options.set_attention_op_type(AttentionOpType.MultiHeadAttention)
    options.enable_gelu_approximation = True
    optimized = optimize_model(model, optimization_options=options)
    fused = {name: number for name, number in optimized.get_fused_operator_statistics().items() if number}
    assert fused == {"MultiHeadAttention": 2, "FastGelu": 2, "LayerNormalization": 5}
    assert_same(model, optimized.model, 5e-3)  # Gelu by tanh is another function


def test_files_and_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = bert()
    source, target = tmp_path / "bert.onnx", tmp_path / "out" / "fused.onnx"
    onnx.save(model, source)
    main(["--input", str(source), "--output", str(target), "--disable_attention", "--float16", "--use_external_data_format"])
    assert "BiasGelu" in capsys.readouterr().out
    assert get_fusion_statistics(str(target))["Attention"] == 0
    assert (tmp_path / "out" / "fused.onnx.data").exists()
    assert_same(model, onnx.load(target), 2e-2)
    path = optimize_by_onnxruntime(str(source), opt_level=1)
    assert_same(model, onnx.load(path))
    assert_same(model, optimize_model(str(source), opt_level=2, only_onnxruntime=True).model)
    with pytest.raises(ValueError, match="opt_level is 3"):
        optimize_model(model, opt_level=3)


@pytest.mark.parametrize("keeps", [True, False])
def test_float16_models_agree_with_float32_ones(keeps: bool) -> None:
    model = bert()
    narrow = convert_float_to_float16(model, keep_io_types=keeps)
    onnx.checker.check_model(narrow)
    weights = {tensor.data_type for tensor in narrow.graph.initializer}
    assert TensorProto.FLOAT not in weights
    kind = narrow.graph.output[0].type.tensor_type.elem_type
    assert kind == (TensorProto.FLOAT if keeps else TensorProto.FLOAT16)
    assert_same(model, narrow, 2e-2)


def test_nodes_on_lists_are_computed_in_float32() -> None:
    model = bert()
    norm = next(node.name for node in model.graph.node if node.op_type == "LayerNormalization")
    narrow = convert_float_to_float16(model, keep_io_types=True, op_block_list=["Softmax"], node_block_list=[norm])
    onnx.checker.check_model(narrow)
    types = {value.name: value.type.tensor_type.elem_type for value in onnx.shape_inference.infer_shapes(narrow).graph.value_info}
    made = {node.name: types[node.output[0]] for node in narrow.graph.node if node.op_type in ("Softmax", "LayerNormalization")}
    assert [name for name, kind in made.items() if kind == TensorProto.FLOAT] == [
        name for name in made if name == norm or name.startswith("Softmax")
    ]
    assert_same(model, narrow, 2e-2)


def test_numbers_that_float16_lacks_become_their_nearest() -> None:
    from sardonyx.transformers.float16 import convert_np_to_float16, convert_tensor_float_to_float16, float_to_float16_max_diff

    array = np.array([0, 1e-12, -1e-12, 1e9, -1e9, np.inf, np.nan, 1.5], np.float32)
    found = convert_np_to_float16(array)
    tiny = np.float16(5.96e-08)
    np.testing.assert_array_equal(found, np.array([0, tiny, -tiny, 65504, -65504, np.inf, np.nan, 1.5], np.float16))
    tensor = onnx.numpy_helper.from_array(array[7:], "w")
    assert float_to_float16_max_diff(tensor) == 0
    assert convert_tensor_float_to_float16(tensor).data_type == TensorProto.FLOAT16
    with pytest.raises(ValueError, match="Expected input type is an ONNX TensorProto"):
        convert_tensor_float_to_float16(array)
    with pytest.raises(ValueError, match="Expected an ONNX ModelProto or a path"):
        convert_float_to_float16(3)


def test_models_as_messages() -> None:
    model = OnnxModel(bert())
    softmax = model.get_nodes_by_op_type("Softmax")[0]
    path = model.match_parent_path(softmax, ["Add", "Div", "MatMul"], [0, 0, 0])
    assert path is not None
    assert [node.op_type for node in path] == ["Add", "Div", "MatMul"]
    assert model.match_parent_path(softmax, ["Mul"]) is None
    assert model.find_constant_input(path[1], float(np.sqrt(WIDTH // HEADS)), 1e-4) == 1
    assert model.find_first_child_by_type(softmax, "LayerNormalization").op_type == "LayerNormalization"
    assert model.find_first_parent_by_type(softmax, "Gather").op_type == "Gather"
    assert model.get_parent(softmax, 0) == path[0]
    assert [node.op_type for node in model.get_children(softmax)] == ["MatMul"]
    assert model.get_opset_version() == 17
    assert model.get_operator_statistics()["Softmax"] == 2
    name = model.create_node_name("Neg")
    model.add_node(helper.make_node("Neg", ["y"], ["z"], name))
    model.add_node(helper.make_node("Abs", ["unused"], ["nothing"], model.create_node_name("Abs")))
    model.add_initializer(onnx.numpy_helper.from_array(np.ones(3, np.float32), "unused"))
    model.model.graph.output.extend([helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", "length", WIDTH])])
    nodes = list(model.model.graph.node)
    del model.model.graph.node[:]
    model.model.graph.node.extend(reversed(nodes))
    model.topological_sort()
    model.prune_graph(["z"])
    assert model.get_initializer("unused") is None
    assert [value.name for value in model.model.graph.output] == ["z"]
    onnx.checker.check_model(model.model)


def test_float16_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sardonyx.cli.main import main as command

    model = bert()
    onnx.save(model, tmp_path / "bert.onnx")
    assert command(["convert", str(tmp_path / "bert.onnx"), "--float16", "--keep-io-types"]) == 0
    assert "bert.float16.onnx" in capsys.readouterr().out
    narrow = tmp_path / "bert.float16.onnx"
    assert narrow.stat().st_size < (tmp_path / "bert.onnx").stat().st_size * 0.7
    assert_same(model, onnx.load(narrow), 2e-2)
    assert command(["convert", str(tmp_path), "--keep-io-types"]) == 2
