"""Nets of bytes whose weights have 4 bits are computed in integers, and which convolutions have to be exact for what follows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from conv_support import blocked, model, numbers
from sardonyx.explanation import explain_model
from sardonyx.ir.tensor import Array

node = helper.make_node
INTEGERS = {TensorProto.INT4: (-8, 8, ml_dtypes.int4), TensorProto.UINT4: (0, 16, ml_dtypes.uint4)}


def _quantized_net(kind: int, domain: str, opset: int) -> bytes:
    """A convolution and a product, both between QuantizeLinear and DequantizeLinear."""
    rng = np.random.default_rng(3)
    low, high, numpy_type = INTEGERS[kind]
    held: dict[str, Array] = {
        "s": np.array(0.05, np.float32), "p": np.array(120, np.uint8), "ws": (rng.random(16) * 0.1 + 0.02).astype(np.float32),
        "w": rng.integers(low, high, (16, 8, 3, 3)).astype(numpy_type), "wp": rng.integers(low, high, 16).astype(numpy_type),
        "v": rng.integers(low, high, (4, 24)).astype(numpy_type),
    }  # fmt: skip
    if domain:
        held["wp"] = np.zeros(16, numpy_type)  # onnxruntime takes no others there
    nodes = [
        node("QuantizeLinear", ["x", "s", "p"], ["q"]),
        node("DequantizeLinear", ["q", "s", "p"], ["d"]),
        node("DequantizeLinear", ["w", "ws", "wp"], ["k"], axis=0, domain=domain),
        node("Conv", ["d", "k"], ["c"], pads=[1] * 4),
        node("QuantizeLinear", ["c", "s", "p"], ["cq"]),
        node("DequantizeLinear", ["cq", "s", "p"], ["cd"]),
        node("DequantizeLinear", ["v", "s"], ["vk"], domain=domain),
        node("MatMul", ["d", "vk"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 8, 4, 4))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("cd", "y")],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@pytest.mark.parametrize("kind", INTEGERS, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize(("domain", "opset"), [("", 21), ("com.microsoft", 17)])
def test_weights_of_4_bits_are_multiplied_in_integers(kind: int, domain: str, opset: int) -> None:
    content = _quantized_net(kind, domain, opset)
    feeds = {"x": numbers(0, 2, 8, 4, 4)}
    reference = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(None, feeds)
    found = sardonyx.InferenceSession(content).run(None, feeds)
    assert np.abs(found[0] - reference[0]).max() <= 0.0501  # one step
    np.testing.assert_allclose(found[1], reference[1], atol=1e-5, rtol=1e-5)
    kernels = " ".join(each.kernel for each in explain_model(content).nodes)
    assert "QLinearConv" in kernels
    assert "MatMulInteger" in kernels


@pytest.mark.parametrize(("kind", "exact"), [(np.uint8, [1, None]), (np.int16, [None, None])])
def test_only_convolutions_before_bytes_are_exact(kind: type, exact: list[int | None]) -> None:
    constants = {"w": numbers(1, 16, 16, 3, 3), "s": np.array(0.1, np.float32), "p": np.array(3, kind)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("QuantizeLinear", ["a", "s", "p"], ["q"]),
        node("DequantizeLinear", ["q", "s", "p"], ["d"]),
        node("Relu", ["d"], ["r"]),
        node("Conv", ["r", "w"], ["y"], pads=[1] * 4),
    ]
    graph, _ = blocked(model(nodes, {"x": (1, 16, 8, 8)}, constants, opset=21))
    assert [each.attr("exact") for each in graph.nodes if each.op_type == "BlockedConv"] == exact


def test_convolutions_are_exact_if_a_branch_makes_bytes_of_them() -> None:
    inner = [node("QuantizeLinear", ["a", "s", "p"], ["q"]), node("DequantizeLinear", ["q", "s", "p"], ["then"])]
    other = [node("Neg", ["x"], ["else"])]
    sides = [
        helper.make_graph(part, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])
        for part, name in ((inner, "then"), (other, "else"))
    ]
    constants = {"w": numbers(1, 16, 16, 3, 3), "s": np.array(0.1, np.float32), "p": np.array(3, np.uint8)}
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        node("Conv", ["x", "w"], ["b"], pads=[1] * 4, dilations=[1, 1]),
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Cast", ["sum"], ["whether"], to=TensorProto.BOOL),
        node("If", ["whether"], ["i"], then_branch=sides[0], else_branch=sides[1]),
        node("Add", ["i", "b"], ["y"]),
    ]
    graph, _ = blocked(model(nodes, {"x": (1, 16, 8, 8)}, constants, ["y"]))
    assert [each.attr("exact") for each in graph.nodes if each.op_type == "BlockedConv"] == [1, None]
