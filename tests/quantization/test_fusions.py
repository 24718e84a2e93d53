"""Nodes that are one operator: the fused model says the same, and what is read elsewhere is not fused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import sardonyx
from quantization.small_models import feeds_for, model_of
from sardonyx.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model
from sardonyx.quantization.fusions import (
    Fusion,
    FusionGelu,
    FusionLayerNormalization,
    FusionLpNormalization,
    FusionSpaceToDepth,
)
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.quantization.types import QuantType

HALF, ONE, TWO, ROOT = (np.array(number, np.float32) for number in (0.5, 1.0, 2.0, 1.4142135))


def _node(op_type: str, inputs: str, output: str, **attrs: Any) -> Any:
    return helper.make_node(op_type, inputs.split(), [output], **attrs)


GELUS = {
    "halved root": "Mul x half h;Div x root d;Erf d e;Add e one a;Mul h a y",
    "halved last": "Div x root d;Erf d e;Add one e a;Mul x a m;Mul m half y",
    "halved first": "Div x root d;Erf d e;Add e one a;Mul a half m;Mul m x y",
}


def _sequence(text: str) -> list[Any]:
    return [_node(op_type, " ".join(inputs), output) for op_type, *inputs, output in (line.split() for line in text.split(";"))]


def _check(model: Any, fusion: type[Fusion], operators: list[str]) -> None:
    feed = feeds_for(model).feeds[0]
    [before] = sardonyx.InferenceSession(model.SerializeToString()).run(None, feed)
    held = ONNXModel(model)
    assert fusion(held).apply()
    assert [node.op_type for node in held.nodes()] == operators
    [after] = sardonyx.InferenceSession(held.model.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    assert not fusion(held).apply()


@pytest.mark.parametrize("form", GELUS)
def test_gelu(form: str) -> None:
    constants = {"half": HALF, "one": ONE, "root": ROOT}
    _check(model_of(_sequence(GELUS[form]), {"x": [3, 4]}, ["y"], constants), FusionGelu, ["Gelu"])


def test_what_is_read_elsewhere_is_not_fused() -> None:
    constants = {"half": HALF, "one": ONE, "root": ROOT}
    model = model_of(_sequence(GELUS["halved root"]), {"x": [3, 4]}, ["y", "e"], constants)
    assert not FusionGelu(ONNXModel(model)).apply()


@pytest.mark.parametrize("square", ["Pow d two q", "Mul d d q"])
def test_layer_normalization(square: str) -> None:
    nodes = [
        _node("ReduceMean", "x", "m", axes=[-1]),
        _node("Sub", "x m", "d"),
        *_sequence(square),
        _node("ReduceMean", "q", "v", axes=[-1]),
        *_sequence("Add v epsilon t;Sqrt t r;Div d r n;Mul n scale s;Add s bias y"),
    ]
    scale, bias = np.linspace(1, 2, 4, dtype=np.float32), np.linspace(-1, 1, 4, dtype=np.float32)
    constants = {"two": TWO, "epsilon": np.array(1e-5, np.float32), "scale": scale, "bias": bias}
    _check(model_of(nodes, {"x": [2, 3, 4]}, ["y"], constants), FusionLayerNormalization, ["LayerNormalization"])


def test_lp_normalization() -> None:
    nodes = [_node("ReduceL2", "x", "l", axes=[-1]), *_sequence("Clip l epsilon c;Expand c shape w;Div x w y")]
    constants = {"epsilon": np.array(1e-12, np.float32), "shape": np.array([2, 3, 4])}
    _check(model_of(nodes, {"x": [2, 3, 4]}, ["y"], constants), FusionLpNormalization, ["LpNormalization"])


def test_space_to_depth() -> None:
    shapes = [[1, 3, 2, 2, 3, 2], [1, 3, 6, 4], [1, 3, 4, 2, 3], [1, 12, 2, 3]]
    orders = [[0, 1, 2, 4, 3, 5], [0, 1, 3, 2], [0, 2, 1, 3, 4]]
    nodes, value = [], "x"
    for index, _ in enumerate(shapes):
        nodes.append(_node("Reshape", f"{value} shape{index}", f"r{index}" if index < 3 else "y"))
        if index < 3:
            nodes.append(_node("Transpose", f"r{index}", f"t{index}", perm=orders[index]))
            value = f"t{index}"
    constants = {f"shape{index}": np.array(shape) for index, shape in enumerate(shapes)}
    _check(model_of(nodes, {"x": [1, 3, 4, 6]}, ["y"], constants), FusionSpaceToDepth, ["SpaceToDepth"])


def test_channels_last(tmp_path: Any) -> None:
    model = model_of([_node("Relu", "x", "y")], {"x": [1, 2, 3, 4]}, ["y"], {})
    path = tmp_path / "model.onnx"
    assert qnn_preprocess_model(model, path, inputs_to_make_channel_last=["x"], outputs_to_make_channel_last=["y"])
    data = np.random.default_rng(0).normal(size=(1, 3, 4, 2)).astype(np.float32)
    [found] = sardonyx.InferenceSession(str(path)).run(None, {"x": data})
    np.testing.assert_array_equal(found, np.maximum(data, 0))
    with pytest.raises(ValueError, match="z is not a graph input"):
        qnn_preprocess_model(model, path, inputs_to_make_channel_last=["z"])


def test_types_around_a_wide_tensor_are_converted() -> None:
    nodes = [
        helper.make_node(kind, [a], [b], name=b) for kind, a, b in (("Sin", "x", "a"), ("Cos", "a", "b"), ("Relu", "b", "y"))
    ]
    model = model_of(nodes, {"x": [2, 3]}, ["y"], {})
    config = get_qnn_qdq_config(model, feeds_for(model), init_overrides={"b": [{"quant_type": QuantType.QUInt16}]})
    overrides = config.extra_options["TensorQuantOverrides"]
    assert overrides["a"] == [{"quant_type": QuantType.QUInt8, "convert": {"quant_type": QuantType.QUInt16, "recv_nodes": {"b"}}}]
    assert overrides["b"] == [{"quant_type": QuantType.QUInt16}]
