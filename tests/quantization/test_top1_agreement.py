"""Quantized models choose the class that their NumPy meaning chooses, on more than 99.5 % of random inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from quantization.small_models import Array, Feeds, model_of
from sardonyx.quantization import QuantFormat, QuantType, quantize_static
from session_agreement import REFERENCE, session

INPUTS = 1000
AGREEMENT = 0.995


def _scaled(random: np.random.Generator, *shape: int, fan_in: int) -> Array:
    return random.normal(0, (2 / fan_in) ** 0.5, shape).astype(np.float32)


def _image_classifier(random: np.random.Generator) -> Any:
    """Convolutions (dense, depthwise, pointwise) with a residual, a pool, 10 classes."""
    constants = {
        "w1": _scaled(random, 16, 3, 3, 3, fan_in=27),
        "w2": _scaled(random, 16, 1, 3, 3, fan_in=9),
        "w3": _scaled(random, 16, 16, 1, 1, fan_in=16),
        "w4": _scaled(random, 32, 16, 3, 3, fan_in=144),
        "w5": _scaled(random, 10, 288, fan_in=288),
        **{
            f"b{number}": random.normal(0, 0.1, size).astype(np.float32)
            for number, size in ((1, 16), (2, 16), (3, 16), (4, 32), (5, 10))
        },
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4, name="conv1"),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1] * 4, group=16, name="conv2"),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], name="conv3"),
        helper.make_node("Add", ["c3", "r1"], ["s"], name="add"),
        helper.make_node("Conv", ["s", "w4", "b4"], ["c4"], pads=[1] * 4, strides=[2, 2], name="conv4"),
        helper.make_node("Relu", ["c4"], ["r4"], name="relu4"),
        helper.make_node("MaxPool", ["r4"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w5", "b5"], ["y"], transB=1, name="gemm"),
    ]
    return model_of(nodes, {"x": ["N", 3, 12, 12]}, ["y"], constants)


def _sequence_classifier(random: np.random.Generator) -> Any:
    """A transformer's layer of 4 heads with norms, and a classifier of 10 classes on the mean of its tokens."""
    width, heads = 32, 4
    constants: dict[str, Array] = {name: _scaled(random, width, width, fan_in=width) for name in ("q", "k", "v", "o")}
    constants |= {"up": _scaled(random, width, 64, fan_in=width), "down": _scaled(random, 64, width, fan_in=64)}
    constants |= {"head": _scaled(random, width, 10, fan_in=width), "bias": random.normal(0, 0.1, 10).astype(np.float32)}
    constants |= {"gain": np.ones(width, np.float32), "shift": np.zeros(width, np.float32)}
    constants |= {"apart": np.array([0, 0, heads, width // heads]), "joined": np.array([0, 0, width])}
    constants |= {"scale": np.array((width // heads) ** -0.5, np.float32)}
    nodes = [helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["n1"], name="norm1")]
    for name, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["n1", name], [f"{name}1"], name=f"project_{name}"),
            helper.make_node("Reshape", [f"{name}1", "apart"], [f"{name}2"], name=f"split_{name}"),
            helper.make_node("Transpose", [f"{name}2"], [f"{name}3"], perm=axes, name=f"turn_{name}"),
        ]
    nodes += [
        helper.make_node("MatMul", ["q3", "k3"], ["scores"], name="scores"),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"], name="scale"),
        helper.make_node("Softmax", ["scaled"], ["shares"], axis=-1, name="softmax"),
        helper.make_node("MatMul", ["shares", "v3"], ["mixed"], name="mix"),
        helper.make_node("Transpose", ["mixed"], ["turned"], perm=[0, 2, 1, 3], name="turn"),
        helper.make_node("Reshape", ["turned", "joined"], ["flat"], name="join"),
        helper.make_node("MatMul", ["flat", "o"], ["out"], name="project_o"),
        helper.make_node("Add", ["out", "x"], ["h"], name="add1"),
        helper.make_node("LayerNormalization", ["h", "gain", "shift"], ["n2"], name="norm2"),
        helper.make_node("MatMul", ["n2", "up"], ["u1"], name="up"),
        helper.make_node("Sigmoid", ["u1"], ["u2"], name="sigmoid"),
        helper.make_node("Mul", ["u1", "u2"], ["u3"], name="gate"),
        helper.make_node("MatMul", ["u3", "down"], ["u4"], name="down"),
        helper.make_node("Add", ["u4", "h"], ["last"], name="add2"),
        helper.make_node("ReduceMean", ["last"], ["mean"], axes=[1], keepdims=0, name="mean"),
        helper.make_node("Gemm", ["mean", "head", "bias"], ["y"], name="classify"),
    ]
    return model_of(nodes, {"x": ["N", 8, width]}, ["y"], constants)


MODELS = {"convolutions": (_image_classifier, (3, 12, 12)), "transformer": (_sequence_classifier, (8, 32))}
FORMS: list[dict[str, Any]] = [
    {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8, "per_channel": True},
    {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8},
]


@pytest.mark.parametrize("form", FORMS, ids=["u8s8 per channel", "s8s8"])
@pytest.mark.parametrize("name", MODELS)
def test_top1_agrees_with_the_meaning(name: str, form: dict[str, Any], tmp_path: Path) -> None:
    make, shape = MODELS[name]
    random = np.random.default_rng(7)
    plain, quantized = tmp_path / "plain.onnx", tmp_path / "quantized.onnx"
    onnx.save(make(random), str(plain))
    feeds = Feeds([{"x": random.standard_normal((16, *shape)).astype(np.float32)} for _ in range(8)])
    quantize_static(str(plain), str(quantized), feeds, quant_format=QuantFormat.QDQ, **form)
    content = quantized.read_bytes()
    feed = {"x": random.standard_normal((INPUTS, *shape)).astype(np.float32)}
    (found,), (expected,) = (session(content, providers=each).run(None, feed) for each in (["CPUExecutionProvider"], REFERENCE))
    chosen, wanted = found.argmax(-1), expected.argmax(-1)
    assert len(np.unique(wanted)) > 3, "the classes are no choice"
    agreement = float((chosen == wanted).mean())
    assert agreement > AGREEMENT, f"{agreement:.2%} of {INPUTS} inputs"
