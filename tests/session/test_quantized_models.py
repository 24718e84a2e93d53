"""Models that onnxruntime's quantization tools write: what they mean, computed in integers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, load, numpy_helper, save

import sardonyx
from sardonyx.ir.tensor import Array
from session_agreement import NATIVE, REFERENCE, session

quantization: Any = pytest.importorskip("onnxruntime.quantization")
DEPTH, HEADS, WIDE = 48, 4, 100


class Net:
    """Nodes and weights in the making."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: dict[str, Array] = {}

    def weight(self, *shape: int, scale: float = 0.3, around: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (self.random.standard_normal(shape) * scale + around).astype(np.float32)
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def op(self, kind: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attrs))
        return name

    def model(self, shape: list[Any], output: str, rank: int) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_tensor_value_info(output, 1, [None] * rank)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def encoder() -> ModelProto:
    """A layer of a transformer's encoder."""
    net = Net()

    def linear(x: str, inside: int, outside: int) -> str:
        return net.op("Add", net.op("MatMul", x, net.weight(inside, outside)), net.weight(outside))

    def heads(x: str, perm: list[int]) -> str:
        split = net.op("Reshape", linear(x, DEPTH, DEPTH), net.constant(np.array([0, 0, HEADS, DEPTH // HEADS], np.int64)))
        return net.op("Transpose", split, perm=perm)

    def norm(x: str) -> str:
        return net.op("LayerNormalization", x, net.weight(DEPTH, around=1.0), net.weight(DEPTH))

    q, k, v = heads("x", [0, 2, 1, 3]), heads("x", [0, 2, 3, 1]), heads("x", [0, 2, 1, 3])
    scores = net.op("Mul", net.op("MatMul", q, k), net.constant(np.float32(0.3)))
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    joined = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]), net.constant(np.array([0, 0, DEPTH], np.int64)))
    first = norm(net.op("Add", linear(joined, DEPTH, DEPTH), "x"))
    inner = net.op("Relu", linear(first, DEPTH, WIDE))
    return net.model(["B", "S", DEPTH], norm(net.op("Add", linear(inner, WIDE, DEPTH), first)), 3)


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Some inputs to calibrate with."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(1)
        self.inputs: Iterator[dict[str, Array]] = iter(
            [{"x": random.standard_normal(shape).astype(np.float32)} for _ in range(4)]
        )

    def get_next(self) -> dict[str, Array] | None:
        return next(self.inputs, None)


def dynamic(model: ModelProto, folder: Path, **settings: Any) -> bytes:
    save(model, folder / "model.onnx")
    quantization.quantize_dynamic(folder / "model.onnx", folder / "quantized.onnx", **settings)
    return (folder / "quantized.onnx").read_bytes()


def static(model: ModelProto, folder: Path, shape: tuple[int, ...], **settings: Any) -> bytes:
    save(model, folder / "model.onnx")
    quantization.quantize_static(folder / "model.onnx", folder / "quantized.onnx", Reader(shape), **settings)
    return (folder / "quantized.onnx").read_bytes()


def step_share(actual: Array, expected: Array) -> float:
    """The largest difference as a share of the range, where a step of quantization is 1/255."""
    return float(np.abs(actual - expected).max() / (expected.max() - expected.min()))


def operators(content: bytes, folder: Path, **config: str) -> set[str]:
    """The operators of a model after optimization."""
    options = sardonyx.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(f"session.{key}", value)
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    sardonyx.InferenceSession(content, options, providers=NATIVE)
    return {node.op_type for node in load(folder / "optimized.onnx").graph.node}


@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_an_encoder_quantized_at_run_time(weights: str, per_channel: bool, tmp_path: Path) -> None:
    kind = getattr(quantization.QuantType, weights)
    content = dynamic(encoder(), tmp_path, weight_type=kind, per_channel=per_channel)
    native, reference = session(content), session(content, providers=REFERENCE)
    for batch, length in ((1, 1), (2, 7), (1, 33)):
        feeds = {"x": np.random.default_rng(100 + length).standard_normal((batch, length, DEPTH)).astype(np.float32)}
        (actual,), (expected,) = native.run(None, feeds), reference.run(None, feeds)
        assert step_share(actual, expected) < 1 / 255
    assert {"MatMulIntegerToFloat"} <= operators(content, tmp_path)
    assert "MatMulInteger" not in operators(content, tmp_path)


@pytest.mark.parametrize("activations", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_an_encoder_between_quantize_and_dequantize(activations: str, per_channel: bool, tmp_path: Path) -> None:
    kinds = quantization.QuantType
    shape = (2, 9, DEPTH)
    content = static(
        encoder(), tmp_path, shape, activation_type=getattr(kinds, activations), weight_type=kinds.QInt8, per_channel=per_channel
    )
    native, reference = session(content), session(content, providers=REFERENCE)
    feeds = {"x": np.random.default_rng(5).standard_normal(shape).astype(np.float32)}
    (actual,), (expected,) = native.run(None, feeds), reference.run(None, feeds)
    assert step_share(actual, expected) < 3 / 255
    found = operators(content, tmp_path)
    assert "MatMul" not in found
    assert "MatMulIntegerToFloat" in found


def test_floats_are_computed_where_that_is_asked_for(tmp_path: Path) -> None:
    content = static(encoder(), tmp_path, (2, 9, DEPTH))
    assert "MatMulIntegerToFloat" not in operators(content, tmp_path, disable_quant_qdq="1")


def residual_net() -> ModelProto:
    """Convolutions of all kinds with residual connections, pools, a Concat and a classifier."""
    net = Net()

    def conv(x: str, inside: int, outside: int, width: int, stride: int = 1, group: int = 1) -> str:
        weights = net.weight(outside, inside // group, width, width, scale=(2 / (inside // group * width * width)) ** 0.5)
        pads = [width // 2] * 4
        return net.op("Conv", x, weights, net.weight(outside), strides=[stride, stride], pads=pads, group=group)

    x = net.op("Relu", conv("x", 3, 20, 7, 2))
    x = net.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for _ in range(2):
        inner = net.op("Relu", conv(net.op("Relu", conv(x, 20, 8, 1)), 8, 8, 3))
        x = net.op("Relu", net.op("Add", conv(inner, 8, 20, 1), x))
    deep = net.op(
        "Relu", conv(net.op("Clip", conv(x, 20, 20, 3, 2, 20), *(net.constant(np.float32(n)) for n in (0, 6))), 20, 24, 1)
    )
    grouped = net.op("Sigmoid", conv(deep, 24, 24, 3, 1, 4))
    joined = net.op("Concat", deep, net.op("Mul", grouped, deep), axis=1)
    pooled = net.op("Flatten", net.op("GlobalAveragePool", net.op("Relu", conv(joined, 48, 32, 3))))
    return net.model([1, 3, 40, 44], net.op("Gemm", pooled, net.weight(10, 32), net.weight(10), transB=1), 2)


@pytest.mark.parametrize("activations", ["QInt8", "QUInt8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_residual_net(activations: str, per_channel: bool, form: str, tmp_path: Path) -> None:
    kinds, shape = quantization.QuantType, (1, 3, 40, 44)
    content = static(
        residual_net(),
        tmp_path,
        shape,
        quant_format=getattr(quantization.QuantFormat, form),
        activation_type=getattr(kinds, activations),
        weight_type=kinds.QInt8,
        per_channel=per_channel,
    )
    native, reference = session(content), session(content, providers=REFERENCE)
    agreed = []
    for seed in range(8):
        feeds = {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}
        (actual,), (expected,) = native.run(None, feeds), reference.run(None, feeds)
        (threads,) = session(content, threads=3).run(None, feeds) if seed == 0 else (actual,)
        assert threads.tobytes() == actual.tobytes()
        agreed.append(actual.argmax() == expected.argmax() or step_share(actual, expected) < 3 / 255)
        assert step_share(actual, expected) < 6 / 255
    assert all(agreed)
    if form == "QDQ":
        found = operators(content, tmp_path)
        assert not found & {"Conv", "Gemm", "Add", "GlobalAveragePool"}
