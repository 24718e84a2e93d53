"""Small models that the tests of quantization share, and readers for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from sardonyx.quantization import CalibrationDataReader

Array = NDArray[Any]


class Feeds(CalibrationDataReader):
    """Gives feeds one after another; can begin again."""

    def __init__(self, feeds: Sequence[Mapping[str, Array]]) -> None:
        self.feeds = feeds
        self.rewind()

    def get_next(self) -> Any:
        return next(self._left, None)

    def rewind(self) -> None:
        self._left = iter(self.feeds)


def model_of(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Sequence[str],
    constants: Mapping[str, Array],
    opset: int = 17,
) -> Any:
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(data, name) for name, data in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def convolutional(seed: int = 0) -> Any:
    """Conv, Relu, MaxPool, Conv, Add, Flatten, Gemm."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["c2"], name="conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "p1"], ["s"], name="add"),
        helper.make_node("Flatten", ["s"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], name="gemm", transB=1),
    ]
    constants = {"w1": normal(8, 3, 3, 3), "b1": normal(8), "w2": normal(8, 8, 3, 3), "w3": normal(5, 128), "b3": normal(5)}
    return model_of(nodes, {"x": ["N", 3, 8, 8]}, ["y"], constants)


def products(seed: int = 0, k: int = 48, n: int = 24) -> Any:
    """MatMul, Add, Relu, MatMul, Gemm."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return random.normal(size=shape).astype(np.float32)

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"], name="matmul1"),
        helper.make_node("Add", ["m1", "b1"], ["a1"], name="add1"),
        helper.make_node("Relu", ["a1"], ["r1"], name="relu1"),
        helper.make_node("MatMul", ["r1", "w2"], ["m2"], name="matmul2"),
        helper.make_node("Gemm", ["m2", "w3", "b3"], ["y"], name="gemm", transB=1),
    ]
    constants = {"w1": normal(k, n), "b1": normal(n), "w2": normal(n, k), "w3": normal(7, k), "b3": normal(7)}
    return model_of(nodes, {"x": ["N", k]}, ["y"], constants)


def feeds_for(model: Any, count: int = 4, seed: int = 1) -> Feeds:
    random = np.random.default_rng(seed)
    feeds = []
    for _ in range(count):
        feed = {}
        for value in model.graph.input:
            shape = [dim.dim_value or 2 for dim in value.type.tensor_type.shape.dim]
            feed[value.name] = random.normal(size=shape).astype(np.float32)
        feeds.append(feed)
    return Feeds(feeds)


def constants_of(path: Any) -> dict[str, Array]:
    return {each.name: numpy_helper.to_array(each) for each in onnx.load(str(path)).graph.initializer}


def operators_of(path: Any) -> list[str]:
    return sorted(f"{node.domain}:{node.op_type}" for node in onnx.load(str(path)).graph.node)
