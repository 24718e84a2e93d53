"""Small models to train without PyTorch, and their artifacts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model, Value
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import TensorType
from sardonyx.training import artifacts

OPSET = 17


class Net:
    """Collects the weights of a model under construction."""

    def __init__(self, shape: tuple[Any, ...], seed: int = 0) -> None:
        self.g = GraphBuilder(Graph("net"), OPSET)
        self.random = np.random.default_rng(seed)
        dims = tuple(symbol(size) if isinstance(size, str) else size for size in shape)
        self.x = self.g.input("x", TensorType(dtypes.FLOAT32, dims))

    def weight(self, name: str, *shape: int, fill: float | None = None) -> Value:
        values = self.random.normal(size=shape) * 0.3 if fill is None else np.full(shape, fill)
        return self.g.graph.add_initializer(name, from_numpy(values.astype(np.float32)))

    def model(self, output: Value) -> Model:
        self.g.output(output, "y")
        return Model(self.g.graph, ir_version=8, opset_imports={"": OPSET})


def dense(inputs: int = 4, hidden: int = 16, classes: int = 3) -> Model:
    """Two dense layers."""
    net = Net(("N", inputs))
    h = net.g.Relu(net.g.Gemm(net.x, net.weight("w1", inputs, hidden), net.weight("b1", hidden)))
    return net.model(net.g.Gemm(h, net.weight("w2", hidden, classes), net.weight("b2", classes)))


def normalised() -> Model:
    """A convolution, batch normalisation in training mode, dropout and a dense layer."""
    net = Net(("N", 2, 6, 6))
    g = net.g
    c = g.op("Conv", net.x, net.weight("conv", 5, 2, 3, 3), pads=[1, 1, 1, 1])
    scales = [net.weight("scale", 5, fill=1.0), net.weight("bias", 5, fill=0.0)]
    running = [net.weight("mean", 5, fill=0.0), net.weight("var", 5, fill=1.0)]
    normal = g.node("BatchNormalization", [c, *scales, *running], ["n", "mean_out", "var_out"], attrs={"training_mode": 1})[0]
    dropped = g.node("Dropout", [g.Relu(normal), np.array(0.0, np.float32), np.array(True)], 1)[0]
    pooled = g.op("Reshape", g.op("GlobalAveragePool", dropped), np.array([0, 5], np.int64))
    return net.model(g.MatMul(pooled, net.weight("w", 5, 3)))


def dropped() -> Model:
    """A weight for each column, and half of the products dropped."""
    net = Net(("N", 64))
    products = net.g.Mul(net.x, net.weight("w", 64))
    return net.model(net.g.node("Dropout", [products, np.array(0.5, np.float32), np.array(True)], 1)[0])


def write(model: Model, folder: Path, **options: Any) -> Path:
    """Artifacts of a model: all weights are trained, unless options say so."""
    chosen = {
        "requires_grad": [name for name in model.graph.initializers if not name.startswith(("mean", "var", "constant"))],
        "loss": artifacts.LossType.CrossEntropyLoss,
        "optimizer": artifacts.OptimType.AdamW,
        **options,
    }
    artifacts.generate_artifacts(model, artifact_directory=folder, **chosen)
    return folder
