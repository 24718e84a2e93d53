"""Optimisations that are saved with a model in the ORT format, and replayed when it is loaded, here and by ONNX Runtime."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.errors import Fail
from sardonyx.formats import ort
from sardonyx.options import DISABLED_OPTIMIZERS_KEY
from sardonyx.passes.runtime_optimisations import replay_optimisations

onnxruntime.set_default_logger_severity(3)
IMAGE = [1, 1, 4, 4]


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any]) -> bytes:
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())


def quantized(op: str, shapes: list[list[int]], **settings: Any) -> bytes:
    """Inputs dequantized, the operator, its results quantized, if `sinks`."""
    weights: set[int] = settings.pop("weights", set())
    sinks, outputs = settings.pop("sinks", True), settings.pop("outputs", 1)
    nodes, inputs, constants, names = [], [], {}, []
    for index, shape in enumerate(shapes):
        kind: Any = np.int32 if index == 2 and op in ("Conv", "Gemm") else np.int8 if index in weights else np.uint8
        scale = 0.25 if kind is np.int32 else 0.5
        constants.update({f"s{index}": np.float32(scale), f"z{index}": kind(0)})
        if index in weights:
            constants[f"q{index}"] = np.random.default_rng(index).integers(0, 4, shape).astype(kind)
        else:
            inputs.append(helper.make_tensor_value_info(f"q{index}", TensorProto.UINT8, shape))
        nodes.append(helper.make_node("DequantizeLinear", [f"q{index}", f"s{index}", f"z{index}"], [f"d{index}"]))
        names.append(f"d{index}")
    for name, array in settings.pop("constants", {}).items():
        constants[name] = array
        names.append(name)
    if op == "Where":
        inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, shapes[0]))
        names.insert(0, "c")
    nodes.append(helper.make_node(op, names, [f"m{index}" for index in range(outputs)], **settings))
    results = []
    for index in range(outputs):
        if sinks:
            constants.update({f"so{index}": np.float32(0.5), f"zo{index}": np.uint8(0)})
            nodes.append(helper.make_node("QuantizeLinear", [f"m{index}", f"so{index}", f"zo{index}"], [f"y{index}"]))
            results.append(helper.make_tensor_value_info(f"y{index}", TensorProto.UINT8, None))
        else:
            kind = TensorProto.INT64 if op == "ArgMax" else TensorProto.FLOAT
            results.append(helper.make_tensor_value_info(f"m{index}", kind, None))
    return model_of(nodes, inputs, results, constants)


def convolution(activation: str, **attributes: Any) -> bytes:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None if name == "y" else IMAGE) for name in "xy"]
    nodes = [helper.make_node("Conv", ["x", "w"], ["m"]), helper.make_node(activation, ["m"], ["y"], **attributes)]
    return model_of(nodes, info[:1], info[1:], {"w": np.ones((2, 1, 3, 3), np.float32)})


def clipped() -> bytes:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None if name == "y" else IMAGE) for name in "xy"]
    nodes = [helper.make_node("Conv", ["x", "w"], ["m"]), helper.make_node("Clip", ["m", "", "top"], ["y"])]
    constants = {"w": np.ones((2, 1, 3, 3), np.float32), "top": np.float32(1.5)}
    return model_of(nodes, info[:1], info[1:], constants)


CASES: dict[str, tuple[bytes, list[str]]] = {
    "relu": (convolution("Relu"), ["FusedConv"]),
    "leaky": (convolution("LeakyRelu", alpha=0.3), ["FusedConv"]),
    "clip": (clipped(), ["FusedConv"]),
    "q_add": (quantized("Add", [[2, 4], [2, 4]]), ["QLinearAdd"]),
    "q_mul": (quantized("Mul", [[2, 4], [2, 4]]), ["QLinearMul"]),
    "q_concat": (quantized("Concat", [[2, 4], [2, 4], [1, 4]], axis=0), ["QLinearConcat"]),
    "q_conv": (quantized("Conv", [IMAGE, [1, 1, 3, 3]], weights={1}), ["QLinearConv"]),
    "q_conv_bias": (quantized("Conv", [IMAGE, [1, 1, 3, 3], [1]], weights={1, 2}), ["QLinearConv"]),
    "q_matmul": (quantized("MatMul", [[2, 4], [4, 3]], weights={1}), ["QLinearMatMul"]),
    "q_gemm": (quantized("Gemm", [[2, 4], [4, 3], [3]], weights={1, 2}), ["QGemm"]),
    "q_reshape": (quantized("Reshape", [[2, 4]], constants={"to": np.array([4, 2])}), ["Reshape"]),
    "q_maxpool": (quantized("MaxPool", [IMAGE], kernel_shape=[2, 2]), ["MaxPool"]),
    "q_average": (quantized("AveragePool", [IMAGE], kernel_shape=[2, 2]), ["QLinearAveragePool"]),
    "q_global": (quantized("GlobalAveragePool", [IMAGE]), ["QLinearGlobalAveragePool"]),
    "q_sigmoid": (quantized("Sigmoid", [[2, 4]]), ["QLinearSigmoid"]),
    "q_softmax": (quantized("Softmax", [[2, 4]]), ["QLinearSoftmax"]),
}
THEIRS: dict[str, tuple[bytes, list[str]]] = {  # found by ONNX Runtime only
    "q_where": (quantized("Where", [[2, 4], [2, 4]]), ["QLinearWhere"]),
    "q_split": (quantized("Split", [[2, 4]], outputs=2, axis=1), ["Split"]),
    "q_argmax": (quantized("ArgMax", [[2, 4]], sinks=False, axis=1), ["ArgMax"]),
    "q_product": (quantized("MatMul", [[2, 4], [4, 3]], weights={1}, sinks=False), ["MatMulIntegerToFloat"]),
}


def saved_by(engine: Any, content: bytes, path: Path, how: str = "save") -> str:
    options = engine.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("optimization.minimal_build_optimizations", how)
    engine.InferenceSession(content, options)
    return str(path)


def replayed(engine: Any, path: str, feeds: dict[str, Any], folder: Path, replay: str = "1") -> tuple[list[str], list[Any]]:
    """The operators a session has after loading, and its results."""
    options = engine.SessionOptions()
    options.add_session_config_entry("session.enable_saved_runtime_optimizations", replay)
    if engine is sardonyx:
        options.add_session_config_entry("session.disable_quant_qdq", "1")  # passes would find the same without a record
        options.add_session_config_entry(
            DISABLED_OPTIMIZERS_KEY, "ExpandFused,ExpandQuantized"
        )  # and take apart what was replayed
    options.optimized_model_filepath = str(folder / "loaded.ort")
    options.graph_optimization_level = engine.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    results = engine.InferenceSession(path, options).run(None, feeds)
    return [node.op_type for node in ort.load(options.optimized_model_filepath).graph.nodes], results


def agree(wanted: list[Any], found: list[Any]) -> None:
    for a, b in zip(wanted, found, strict=True):
        assert np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).max() <= (1 if a.dtype == np.uint8 else 1e-4)


@pytest.mark.parametrize("name", sorted(CASES))
def test_what_is_found_here_is_replayed_here_and_by_onnxruntime(name: str, tmp_path: Path) -> None:
    content, operators = CASES[name]
    path = saved_by(sardonyx, content, tmp_path / "m.ort")
    feeds = sardonyx.random_inputs(sardonyx.InferenceSession(content).get_inputs())
    wanted = onnxruntime.InferenceSession(content).run(None, feeds)
    plain, results = replayed(sardonyx, path, feeds, tmp_path, "0")  # off by default, and if it is said so
    assert len(plain) > len(operators)
    agree(wanted, results)
    found, results = replayed(sardonyx, path, feeds, tmp_path)
    assert found == operators
    agree(wanted, results)
    theirs, results = replayed(onnxruntime, path, feeds, tmp_path)
    assert [each for each in theirs if each not in ("Transpose", "ReorderInput", "ReorderOutput")] == operators
    agree(wanted, results)


@pytest.mark.parametrize("name", sorted({**CASES, **THEIRS}))
def test_what_onnxruntime_has_found_is_replayed_here(name: str, tmp_path: Path) -> None:
    content, operators = {**CASES, **THEIRS}[name]
    path = saved_by(onnxruntime, content, tmp_path / "m.ort")
    feeds = sardonyx.random_inputs(sardonyx.InferenceSession(content).get_inputs())
    if not ort.load(path).saved_optimisations:
        pytest.skip("ONNX Runtime has not found it")
    found, results = replayed(sardonyx, path, feeds, tmp_path)
    assert found == operators
    agree(onnxruntime.InferenceSession(content).run(None, feeds), results)


def test_they_can_be_applied_instead_of_saved(tmp_path: Path) -> None:
    content, operators = CASES["q_conv"]
    model = ort.load(saved_by(sardonyx, content, tmp_path / "m.ort", "apply"))
    assert [node.op_type for node in model.graph.nodes] == operators
    assert not model.saved_optimisations
    with pytest.raises(sardonyx.errors.InvalidArgument, match="expected 'save', 'apply' or ''"):
        saved_by(sardonyx, content, tmp_path / "m.ort", "keep")


def test_a_bias_joins_its_product(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8])]
    nodes = [
        helper.make_node("MatMulNBits", ["x", "w", "s"], ["m"], domain="com.microsoft", K=32, N=8, bits=4, block_size=32),
        helper.make_node("Add", ["m", "b"], ["y"]),
    ]
    constants = {
        "w": rng.integers(0, 255, (8, 1, 16)).astype(np.uint8),
        "s": rng.random(8).astype(np.float32),
        "b": rng.random(8).astype(np.float32),
    }
    content = model_of(nodes, inputs, outputs, constants)
    feeds = {"x": rng.normal(size=(2, 32)).astype(np.float32)}
    found, results = replayed(sardonyx, saved_by(sardonyx, content, tmp_path / "m.ort"), feeds, tmp_path)
    assert found == ["MatMulNBits"]
    np.testing.assert_allclose(results[0], sardonyx.InferenceSession(content).run(None, feeds)[0], rtol=1e-4, atol=1e-4)


def test_records_of_nodes_that_are_gone_or_others_are_passed_over_and_unknown_actions_refused(tmp_path: Path) -> None:
    path = saved_by(sardonyx, CASES["relu"][0], tmp_path / "m.ort")
    model = ort.load(path)
    (record,) = model.saved_optimisations
    gone = dataclasses.replace(record, nodes=(record.nodes[0], None))
    other = dataclasses.replace(record, nodes=record.nodes[::-1])
    assert replay_optimisations(model, [other]) == 0
    with pytest.raises(Fail, match="saved optimisation 'Frobnicate' of ConvActivationFusion, which is not known"):
        replay_optimisations(model, [dataclasses.replace(record, action="Frobnicate")])
    assert replay_optimisations(model, [record, record]) == 1
    assert replay_optimisations(ort.load(path), [gone]) == 0
