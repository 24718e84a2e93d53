"""Small versions of the architectures that models live on, made in code with fixed weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.dtypes import FLOAT32, INT64
from sardonyx.formats.onnx import to_bytes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.ir.types import TensorType

Feeds = dict[str, Any]
VERSION = 20


class Net:
    """A graph in the making and the feeds it is run with."""

    def __init__(self, seed: int = 0) -> None:
        self.g = GraphBuilder(Graph("net"), VERSION)
        self.random = np.random.default_rng(seed)
        self.feeds: Feeds = {}

    def input(self, name: str, shape: tuple[int | str, ...], **sizes: int) -> Value:
        actual = tuple(sizes[size] if isinstance(size, str) else size for size in shape)
        self.feeds[name] = self.random.normal(size=actual).astype(np.float32)
        dims = tuple(symbol(size) if isinstance(size, str) else size for size in shape)
        return self.g.input(name, TensorType(FLOAT32, dims))

    def weights(self, *shape: int) -> Any:
        fan = int(np.prod(shape[1:])) or 1
        return (self.random.normal(size=shape) / np.sqrt(fan)).astype(np.float32)

    def conv(self, x: Value, inputs: int, outputs: int, width: int = 3, *, stride: int = 1, group: int = 1) -> Value:
        """Convolution and batch normalization."""
        y = self.g.op(
            "Conv",
            x,
            self.weights(outputs, inputs // group, width, width),
            pads=[width // 2] * 4,
            strides=[stride] * 2,
            group=group,
        )
        scale, shift, mean = (self.weights(outputs) for _ in range(3))
        return self.g.op("BatchNormalization", y, scale, shift, mean, np.abs(self.weights(outputs)) + np.float32(0.5))

    def linear(self, x: Value, inputs: int, outputs: int) -> Value:
        return self.g.Add(self.g.MatMul(x, self.weights(outputs, inputs).T.copy()), self.weights(outputs))

    def norm(self, x: Value, width: int) -> Value:
        return self.g.op(
            "LayerNormalization", x, np.abs(self.weights(width)) + np.float32(0.5), self.weights(width), epsilon=1e-3
        )

    def heads(self, x: Value, count: int, width: int) -> Value:
        shaped = self.g.Reshape(x, np.array([0, 0, count, width // count], np.int64))
        return self.g.op("Transpose", shaped, perm=[0, 2, 1, 3])

    def done(self, *outputs: Value) -> tuple[bytes, Feeds]:
        for number, value in enumerate(outputs):
            self.g.output(value, f"out{number}")
        return to_bytes(Model(self.g.graph, opset_imports={"": VERSION})), self.feeds


def residual_net() -> tuple[bytes, Feeds]:
    net = Net()
    x = net.input("x", ("N", 3, 32, 32), N=2)
    y = net.g.Relu(net.conv(x, 3, 32, 7, stride=2))
    y = net.g.op("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for inputs, outputs, stride in ((32, 32, 1), (32, 48, 2)):
        z = net.conv(net.g.Relu(net.conv(y, inputs, outputs, stride=stride)), outputs, outputs)
        y = net.g.Relu(net.g.Add(z, y if stride == 1 else net.conv(y, inputs, outputs, 1, stride=stride)))
    pooled = net.g.op("Flatten", net.g.op("GlobalAveragePool", y), axis=1)
    return net.done(net.g.op("Gemm", pooled, net.weights(10, 48), net.weights(10), transB=1))


def mobile_net() -> tuple[bytes, Feeds]:
    net = Net(1)
    x = net.input("x", ("N", 3, 24, 24), N=1)
    y = net.g.op("HardSwish", net.conv(x, 3, 16, stride=2))
    for inputs, wide, outputs in ((16, 40, 16), (16, 40, 24)):
        z = net.g.op("HardSwish", net.conv(y, inputs, wide, 1))
        z = net.g.op("HardSwish", net.conv(z, wide, wide, 5, group=wide))
        gate = net.g.op("Conv", net.g.op("GlobalAveragePool", z), net.weights(wide, wide, 1, 1))
        z = net.conv(net.g.Mul(z, net.g.op("HardSigmoid", gate, alpha=1 / 6, beta=0.5)), wide, outputs, 1)
        y = net.g.Add(z, y) if inputs == outputs else z
    return net.done(y)


def u_net() -> tuple[bytes, Feeds]:
    net = Net(2)
    x = net.input("x", ("N", 3, "H", "W"), N=1, H=20, W=28)
    high = net.g.Relu(net.conv(x, 3, 16))
    low = net.g.op("MaxPool", high, kernel_shape=[2, 2], strides=[2, 2])
    low = net.g.op("Sigmoid", net.conv(low, 16, 24))
    up = net.g.op("ConvTranspose", low, net.weights(24, 16, 2, 2), net.weights(16), strides=[2, 2])
    grown = net.g.op("Resize", low, None, np.array([1, 1, 2, 2], np.float32), mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric")  # fmt: skip
    y = net.g.op("Concat", high, up, grown, axis=1)
    return net.done(net.conv(y, 56, 2, 1), net.g.op("Softmax", net.conv(y, 56, 5), axis=1))


def transformer() -> tuple[bytes, Feeds]:
    net, width, heads = Net(3), 48, 4
    x = net.input("x", ("N", "S", width), N=2, S=11)
    y = x
    for _ in range(2):
        z = net.norm(y, width)
        q, k, v = (net.heads(net.linear(z, width, width), heads, width) for _ in range(3))
        scores = net.g.Mul(net.g.MatMul(q, net.g.op("Transpose", k, perm=[0, 1, 3, 2])), np.float32(0.28867513))
        mixed = net.g.op("Transpose", net.g.MatMul(net.g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        y = net.g.Add(y, net.linear(net.g.Reshape(mixed, np.array([0, 0, width], np.int64)), width, width))
        z = net.linear(net.norm(y, width), width, 4 * width)
        erf = net.g.Add(net.g.Erf(net.g.Div(z, np.float32(1.4142135))), np.float32(1))
        y = net.g.Add(y, net.linear(net.g.Mul(net.g.Mul(z, erf), np.float32(0.5)), 4 * width, width))
    return net.done(net.norm(y, width))


def decoder() -> tuple[bytes, Feeds]:
    """One step with what earlier steps kept: past and present grow by the length of the input."""
    net, width, heads = Net(4), 32, 2
    tokens = net.g.input("tokens", TensorType(INT64, (symbol("N"), symbol("S"))))
    net.feeds["tokens"] = net.random.integers(0, 50, (2, 3))
    past = [net.input(name, ("N", heads, "P", width // heads), N=2, P=5) for name in ("past_k", "past_v")]
    x = net.g.op("Gather", net.weights(50, width), tokens)
    q, k, v = (net.heads(net.linear(x, width, width), heads, width) for _ in range(3))
    keys, values = (net.g.op("Concat", old, new, axis=2) for old, new in zip(past, (k, v)))
    scores = net.g.MatMul(q, net.g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    mixed = net.g.op("Transpose", net.g.MatMul(net.g.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3])
    y = net.linear(net.g.Reshape(mixed, np.array([0, 0, width], np.int64)), width, 50)
    return net.done(y, keys, values)


def recurrent_nets() -> tuple[bytes, Feeds]:
    net = Net(5)
    x = net.input("x", ("S", "N", 12), S=7, N=3)
    outputs = []
    for op_type, gates in (("LSTM", 4), ("GRU", 3)):
        given = (x, net.weights(2, gates * 20, 12), net.weights(2, gates * 20, 20), net.weights(2, 2 * gates * 20))
        outputs += net.g.node(op_type, given, 2, attrs={"hidden_size": 20, "direction": "bidirectional"})
    return net.done(*outputs)


def perceptron() -> tuple[bytes, Feeds]:
    net = Net(6)
    x = net.input("x", ("N", 64), N=5)
    y = net.g.Relu(net.linear(x, 64, 96))
    return net.done(net.g.op("Softmax", net.linear(net.g.Relu(net.linear(y, 96, 96)), 96, 10), axis=-1))


def chain() -> tuple[bytes, Feeds]:
    net = Net(7)
    x = y = net.input("x", ("N",), N=64)
    for number in range(40):
        y = net.g.Tanh(y) if number % 5 == 4 else net.g.Add(net.g.Mul(y, np.float32(0.9)), x if number % 3 else np.float32(0.1))
    return net.done(y)


def audio_net() -> tuple[bytes, Feeds]:
    net = Net(8)
    x = net.input("x", ("N", 1, 400), N=2)
    y = net.g.op("Conv", x, net.weights(24, 1, 64), strides=[16])
    y = net.g.op("LeakyRelu", net.g.op("Conv", y, net.weights(24, 24, 3), net.weights(24), pads=[1, 1]), alpha=0.1)
    y = net.g.op("AveragePool", y, kernel_shape=[3], strides=[2])
    y = net.g.op("InstanceNormalization", y, net.weights(24), net.weights(24), epsilon=1e-2)
    return net.done(net.g.op("ReduceMax", y, np.array([2], np.int64), keepdims=0), y)


NETS: dict[str, Callable[[], tuple[bytes, Feeds]]] = {
    made.__name__: made
    for made in (residual_net, mobile_net, u_net, transformer, decoder, recurrent_nets, perceptron, chain, audio_net)
}
