"""Convolutions between QuantizeLinear and DequantizeLinear whose results several nodes read, node by node.

The sums of a convolution may be added up in another order than NumPy's. Where one lies on a rounding tie of the QuantizeLinear
behind it, that moves the result by one step, and every later node sees it; so whole networks differ in some numbers. Each node
alone, given what native code gave it, must mean what NumPy means: exactly, but for the sums. That is so while floats are computed
as floats (`session.disable_quant_qdq`); integers round once, and may be a step apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.ir.tensor import Array
from session_agreement import REFERENCE, session

BLOCKS = 3


def network(blocks: int = BLOCKS) -> tuple[list[NodeProto], dict[str, Array]]:
    """Blocks of x + conv(x), every value on the way quantized; the dequantized x has two readers."""
    random = np.random.default_rng(5)
    constants: dict[str, Array] = {"zero": np.array(128, np.uint8), "none": np.array(0, np.int8)}
    nodes: list[NodeProto] = []

    def quantized(name: str, scale: float) -> str:
        constants[f"{name}_scale"] = np.array(scale, np.float32)
        nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_scale", "zero"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_scale", "zero"], [f"{name}_d"]))
        return f"{name}_d"

    x = quantized("x", 0.05)
    for block in range(blocks):
        constants[f"w{block}"] = random.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8)
        constants[f"s{block}"] = np.array(0.004, np.float32)
        nodes.append(helper.make_node("DequantizeLinear", [f"w{block}", f"s{block}", "none"], [f"v{block}"]))
        nodes.append(helper.make_node("Conv", [x, f"v{block}"], [f"c{block}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Add", [quantized(f"c{block}", 0.07), x], [f"a{block}"]))
        x = quantized(f"a{block}", 0.1)
    return nodes, constants


def model(nodes: list[NodeProto], feeds: dict[str, Array], constants: dict[str, Array], outputs: list[str]) -> bytes:
    used = {name for node in nodes for name in node.input}
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in feeds.items()}
    quantized = {node.output[0] for node in nodes if node.op_type == "QuantizeLinear"}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in feeds.items()],
        [
            helper.make_tensor_value_info(name, TensorProto.UINT8 if name in quantized else TensorProto.FLOAT, None)
            for name in outputs
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    return content


@pytest.mark.parametrize("seed", range(3))
def test_every_node_means_what_numpy_means(seed: int) -> None:
    nodes, constants = network()
    feeds: dict[str, Any] = {"x": np.random.default_rng(seed).standard_normal((1, 16, 20, 20)).astype(np.float32)}
    names = [node.output[0] for node in nodes]
    opened = session(model(nodes, feeds, constants, [names[-1], *names[:-1]]))
    found = {**feeds, **dict(zip(names, opened.run(names, feeds)))}
    alone = model(nodes, feeds, constants, [names[-1]])
    (whole,) = session(alone, disabled=["QDQSelectorActionTransformer"]).run(None, feeds)
    np.testing.assert_array_equal(whole, found[names[-1]])
    for node in nodes:
        given = {name: found[name] for name in node.input if name not in constants}
        (expected,) = session(model([node], given, constants, [node.output[0]]), providers=REFERENCE).run(None, given)
        actual = found[node.output[0]]
        if node.op_type == "Conv":
            assert np.abs(actual - expected).max() <= 1e-6 * np.abs(expected).max()
        else:
            np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("seed", range(3))
def test_integers_are_within_a_step_of_it(seed: int) -> None:
    nodes, constants = network(1)  # later blocks see what differs before them
    feeds: dict[str, Any] = {"x": np.random.default_rng(seed).standard_normal((1, 16, 20, 20)).astype(np.float32)}
    alone = model(nodes, feeds, constants, [nodes[-1].output[0]])
    (integers,), (expected,) = session(alone).run(None, feeds), session(alone, providers=REFERENCE).run(None, feeds)
    steps = np.abs(integers - expected) / constants[nodes[-1].input[1]]
    assert steps.max() < 1.5
    assert (steps > 0.5).mean() < 0.003
