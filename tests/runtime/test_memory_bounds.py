"""A process that sees many shapes holds little more memory than one that sees the largest alone; dropped sessions hold none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.benchmarking import shapes_memory

F32 = np.float32
MOST = 1.2  # times the memory of the largest alone
SHAPES = 50


def saved(
    path: Path, nodes: Sequence[Any], inputs: dict[str, list[Any]], outputs: Sequence[str], weights: dict[str, Any]
) -> Path:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def picture_network(path: Path) -> Path:
    """Convolutions over a picture of any height and width, with a residual connection that lives long."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.normal(size=(16, 3, 3, 3), scale=0.2).astype(F32),
        "w1": rng.normal(size=(16, 16, 3, 3), scale=0.1).astype(F32),
        "w2": rng.normal(size=(16, 16, 3, 3), scale=0.1).astype(F32),
    }
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], **conv),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], **conv),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"], **conv),
        helper.make_node("Add", ["e", "b"], ["f"]),
        helper.make_node("Conv", ["f", "w1"], ["g"], **conv),
        helper.make_node("GlobalAveragePool", ["g"], ["y"]),
    ]
    return saved(path, nodes, {"x": [1, 3, "height", "width"]}, ["y"], weights)


def sequence_network(path: Path) -> Path:
    """A wide layer and a softmax over tokens, for any batch and length."""
    rng = np.random.default_rng(0)
    weights = {
        "up": rng.normal(size=(32, 2048), scale=0.1).astype(F32),
        "down": rng.normal(size=(2048, 32), scale=0.1).astype(F32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Softmax", ["b"], ["c"], axis=1),
        helper.make_node("MatMul", ["c", "down"], ["d"]),
        helper.make_node("Add", ["d", "x"], ["e"]),
        helper.make_node("ReduceMax", ["e"], ["y"], axes=[1]),
    ]
    return saved(path, nodes, {"x": ["batch", "tokens", 32]}, ["y"], weights)


def growing_network(path: Path) -> Path:
    """What came before grows by what is new, and is handed back whole."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["present"], axis=1),
        helper.make_node("Transpose", ["present"], ["turned"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["new", "turned"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["share"], axis=-1),
        helper.make_node("MatMul", ["share", "present"], ["y"]),
    ]
    return saved(path, nodes, {"past": [4, "before", 256], "new": [4, 1, 256]}, ["y", "present"], {})


def pictures(rng: np.random.Generator) -> list[dict[str, Any]]:
    sides = [(int(h), int(w)) for h, w in rng.integers(20, 641, (SHAPES, 2))]
    return [{"x": np.zeros((1, 3, *side), F32)} for side in sides]


def sequences(rng: np.random.Generator) -> list[dict[str, Any]]:
    sizes = zip(rng.integers(1, 13, SHAPES), rng.integers(4, 520, SHAPES))
    return [{"x": np.zeros((int(batch), int(tokens), 32), F32)} for batch, tokens in sizes]


def pasts(rng: np.random.Generator) -> list[dict[str, Any]]:
    lengths = np.sort(rng.integers(0, 6000, SHAPES))
    return [{"past": np.zeros((4, int(length), 256), F32), "new": np.zeros((4, 1, 256), F32)} for length in lengths]


@pytest.mark.parametrize(
    ("network", "feeds"),
    [(picture_network, pictures), (sequence_network, sequences), (growing_network, pasts)],
    ids=["pictures", "sequences", "growing"],
)
def test_many_shapes_take_little_more_memory_than_the_largest(network: Any, feeds: Any, tmp_path: Path) -> None:
    varied, alone = shapes_memory("sardonyx", network(tmp_path / "m.onnx"), feeds(np.random.default_rng(1)), 2)
    assert alone > 64 << 20  # else it would show nothing
    assert varied <= MOST * alone
