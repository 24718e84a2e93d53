"""What we write is what ONNX Runtime's own tools write, and gives the same results there and here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import onnxruntime.quantization as theirs
import pytest

import sardonyx
import sardonyx.quantization as ours
from quantization.small_models import constants_of, convolutional, feeds_for, model_of, operators_of, products

STATIC: list[dict[str, Any]] = [
    {"quant_format": "QDQ", "activation_type": "QUInt8"},
    {"quant_format": "QDQ", "per_channel": True},
    {"quant_format": "QDQ", "extra_options": {"ActivationSymmetric": True, "QuantizeBias": False, "DedicatedQDQPair": True}},
    {"quant_format": "QDQ", "activation_type": "QUInt16", "weight_type": "QInt8"},
    {"quant_format": "QDQ", "extra_options": {"AddQDQPairToWeight": True, "QDQKeepRemovableActivations": True}},
    {"quant_format": "QOperator", "activation_type": "QUInt8", "reduce_range": True},
    {"quant_format": "QOperator", "activation_type": "QUInt8", "per_channel": True, "calibrate_method": "Entropy"},
    {"quant_format": "QDQ", "calibrate_method": "Percentile", "nodes_to_exclude": ["conv2", "matmul2"]},
]


def _arguments(module: Any, given: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        "quant_format": module.QuantFormat,
        "activation_type": module.QuantType,
        "weight_type": module.QuantType,
        "calibrate_method": module.CalibrationMethod,
    }
    return {name: kinds[name][value] if name in kinds else value for name, value in given.items()}


def _same(left: Path, right: Path) -> None:
    """The same operators and the same constants."""
    assert operators_of(left) == operators_of(right)
    mine, other = constants_of(left), constants_of(right)
    assert set(mine) == set(other)
    for name, data in mine.items():
        assert data.dtype == other[name].dtype, name
        if data.dtype.kind == "f":
            np.testing.assert_allclose(data, other[name], rtol=1e-6, err_msg=name)
        else:  # a range that differs in its last bit may round a number the other way
            difference = data.astype(np.int64) - other[name].astype(np.int64)
            assert np.abs(difference).max(initial=0) <= 1, name
            assert np.count_nonzero(difference) <= 1 + data.size // 50, name


def _agree(path: Path, feed: Any, step: float) -> None:
    """The model gives the same in both engines, but for the rounding of a quantization step."""
    [mine] = sardonyx.InferenceSession(str(path)).run(None, feed)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # sums of u8 x i8 that do not overflow without VNNI
    [other] = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feed)
    assert np.abs(mine - other).max() <= step * np.abs(other).max()


@pytest.mark.parametrize("given", STATIC, ids=lambda given: "-".join(map(str, given.values())))
@pytest.mark.parametrize("make", [convolutional, products])
def test_static(tmp_path: Path, make: Any, given: dict[str, Any]) -> None:
    model = make()
    onnx.save(model, str(tmp_path / "model.onnx"))
    reader = feeds_for(model)
    for module, name in ((ours, "ours.onnx"), (theirs, "theirs.onnx")):
        reader.rewind()
        arguments = _arguments(module, given)
        module.quantize_static(str(tmp_path / "model.onnx"), str(tmp_path / name), reader, **arguments)
    _same(tmp_path / "ours.onnx", tmp_path / "theirs.onnx")
    _agree(tmp_path / "ours.onnx", reader.feeds[0], 0.03)


@pytest.mark.parametrize("given", [{}, {"per_channel": True}, {"weight_type": "QUInt8", "reduce_range": True}])
@pytest.mark.parametrize("make", [convolutional, products])
def test_dynamic(tmp_path: Path, make: Any, given: dict[str, Any]) -> None:
    model = make()
    onnx.save(model, str(tmp_path / "model.onnx"))
    arguments = {"weight_type": "QUInt8", **given} if make is convolutional else given  # ConvInteger has no weights with sign
    for module, name in ((ours, "ours.onnx"), (theirs, "theirs.onnx")):
        module.quantize_dynamic(str(tmp_path / "model.onnx"), str(tmp_path / name), **_arguments(module, arguments))
    _same(tmp_path / "ours.onnx", tmp_path / "theirs.onnx")
    _agree(tmp_path / "ours.onnx", feeds_for(model).feeds[0], 0.01)


def test_a_message_is_quantized_like_a_file(tmp_path: Path) -> None:
    model = products()
    onnx.save(model, str(tmp_path / "model.onnx"))
    ours.quantize_dynamic(model, tmp_path / "message.onnx")
    ours.quantize_dynamic(tmp_path / "model.onnx", tmp_path / "file.onnx")
    assert (tmp_path / "message.onnx").read_bytes() == (tmp_path / "file.onnx").read_bytes()


def test_an_old_model_is_raised_to_the_version_its_types_need(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Squeeze", ["x"], ["s"], axes=[1]),
        onnx.helper.make_node("ReduceMean", ["s"], ["m"], axes=[1], keepdims=1),
        onnx.helper.make_node("Sub", ["s", "m"], ["d"]),
        onnx.helper.make_node("Clip", ["d"], ["c"], min=-1.0, max=1.0),
        onnx.helper.make_node("MatMul", ["c", "w"], ["p"], name="product"),
        onnx.helper.make_node("Softmax", ["p"], ["y"]),
    ]
    weight = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    model = model_of(nodes, {"x": [3, 1, 6]}, ["y"], {"w": weight}, opset=10)
    reader = feeds_for(model)
    kinds: dict[str, Any] = {"activation_type": ours.QuantType.QUInt16, "weight_type": ours.QuantType.QInt16}
    ours.quantize_static(model, tmp_path / "raised.onnx", reader, **kinds)
    written = onnx.load(str(tmp_path / "raised.onnx"))
    onnx.checker.check_model(written, full_check=True)
    assert [entry.version for entry in written.opset_import if not entry.domain] == [21]
    [exact] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, reader.feeds[0]
    )
    for engine in (sardonyx, onnxruntime):
        [found] = engine.InferenceSession(str(tmp_path / "raised.onnx"), providers=["CPUExecutionProvider"]).run(
            None, reader.feeds[0]
        )
        np.testing.assert_allclose(found, exact, atol=1e-3)


@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("opset", [10, 11, 12, 13])
def test_convolutions_of_old_models_are_computed_in_integers(tmp_path: Path, opset: int, kind: str) -> None:
    model = convolutional()
    model.opset_import[0].version = opset
    onnx.save(model, str(tmp_path / "model.onnx"))
    reader = feeds_for(model)
    settings = _arguments(theirs, {"quant_format": "QDQ", "activation_type": kind, "weight_type": "QInt8"})
    theirs.quantize_static(str(tmp_path / "model.onnx"), str(tmp_path / "old.onnx"), reader, **settings)
    written = onnx.load(str(tmp_path / "old.onnx"))
    assert [entry.version for entry in written.opset_import if not entry.domain] == [opset]
    _agree(tmp_path / "old.onnx", reader.feeds[0], 0.03)
    steps = {step.label for step in sardonyx.explain_model(str(tmp_path / "old.onnx")).steps}
    assert any("QLinearConv" in label for label in steps), steps


def test_names_of_nodes_stay_unique(tmp_path: Path) -> None:
    model = products()
    model.graph.node[1].name = "x_QuantizeLinear"  # the name that a new node would have
    reader = feeds_for(model)
    for form in ours.QuantFormat:
        reader.rewind()
        ours.quantize_static(model, tmp_path / "out.onnx", reader, quant_format=form, activation_type=ours.QuantType.QUInt8)
        names = [node.name for node in onnx.load(str(tmp_path / "out.onnx")).graph.node if node.name]
        assert len(names) == len(set(names))
        assert "x_QuantizeLinear_1" in names
        _agree(tmp_path / "out.onnx", reader.feeds[0], 0.03)


@pytest.mark.parametrize("form", ours.QuantFormat)
def test_what_reaches_to_infinity_is_not_quantized(tmp_path: Path, form: Any) -> None:
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"], name="matmul"),
        onnx.helper.make_node("Add", ["m", "mask"], ["a"], name="add"),
        onnx.helper.make_node("Reshape", ["a", "shape"], ["r"], name="reshape"),
        onnx.helper.make_node("Softmax", ["r"], ["y"], name="softmax"),
    ]
    weight = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    mask = np.array([0, 0, -np.inf, 0], np.float32)
    model = model_of(nodes, {"x": [3, 6], "mask": [4]}, ["y"], {"w": weight, "shape": np.array([3, 4])})
    feed = {"x": np.random.default_rng(1).normal(size=(3, 6)).astype(np.float32), "mask": mask}
    reader = ours.CalibrationFeeds([feed])
    ours.quantize_static(model, tmp_path / "out.onnx", reader, quant_format=form, activation_type=ours.QuantType.QUInt8)
    [exact] = sardonyx.InferenceSession(model.SerializeToString()).run(None, feed)
    [found] = sardonyx.InferenceSession(str(tmp_path / "out.onnx")).run(None, feed)
    np.testing.assert_allclose(found, exact, atol=0.03)
