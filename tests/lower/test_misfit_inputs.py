"""Inputs whose sizes do not fit their operator: the error that NumPy gives, and no kernel that reads past their end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from guarded_session import guarded_feeds, guarded_memory
from lowering_case import Array, onnx_type
from sardonyx.errors import SardonyxError
from session_agreement import NATIVE, REFERENCE, session

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def quantized(bias: Array) -> list[Array]:
    image, kernels = RNG.integers(0, 255, (2, 18, 19)).astype(np.uint8), RNG.integers(-9, 9, (20, 18, 3)).astype(np.int8)
    one, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    return [image, one, zero, kernels, one, np.array(1, np.int8), one, zero, bias]


CASES: dict[str, tuple[str, list[Array]]] = {
    **{f"Conv, bias of {size}": ("Conv", [floats(2, 18, 19), floats(20, 18, 3), floats(size)]) for size in (0, 3, 100)},
    "ConvTranspose, short bias": ("ConvTranspose", [floats(2, 18, 19), floats(18, 20, 3), floats(3)]),
    "ConvTranspose, long bias": ("ConvTranspose", [floats(2, 18, 19), floats(18, 20, 3), floats(100)]),
    **{f"QLinearConv, bias of {size}": ("QLinearConv", quantized(np.ones(size, np.int32))) for size in (0, 3, 100)},
    "Conv, bias of two axes": ("Conv", [floats(2, 18, 19), floats(20, 18, 3), floats(20, 1)]),
    "Compress, long condition": ("Compress", [floats(37, 5), np.ones(38, np.bool_)]),
}  # fmt: skip


@pytest.mark.parametrize("sizes", ["fed", "named", "constant"])
@pytest.mark.parametrize("case", CASES)
def test_the_error_is_that_of_numpy_and_names_the_node(case: str, sizes: str) -> None:
    op_type, arrays = CASES[case]
    names = [f"x{number}" for number in range(len(arrays))]
    last = names[-1]
    kept = names[:-1] if sizes == "constant" else names
    given = dict(zip(names, arrays))
    inputs: list[Any] = []
    for name in kept:
        shape = [f"{name}_{axis}" for axis in range(given[name].ndim)] if sizes == "named" and name == last else given[name].shape
        inputs.append(helper.make_tensor_value_info(name, onnx_type(given[name].dtype), list(shape)))
    attrs = {"axis": 0} if op_type == "Compress" else {}
    nodes = [helper.make_node(op_type, names, ["y"], name="the_node", **attrs)]
    if sizes == "constant":
        value = helper.make_tensor("v", onnx_type(arrays[-1].dtype), arrays[-1].shape, arrays[-1].reshape(-1).tolist())
        nodes.insert(0, helper.make_node("Constant", [], [last], value=value))
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    feeds = {name: given[name] for name in kept}
    for providers in (REFERENCE, NATIVE):
        with guarded_memory() as guard, pytest.raises(SardonyxError, match="the_node"):
            session(content, providers=providers).run(None, guarded_feeds(guard, feeds))


@pytest.mark.parametrize("shape", [(2, 10), (3, 1, 5), (), (1, 1)])
def test_the_condition_of_compress_is_read_in_order_whatever_its_rank(shape: tuple[int, ...]) -> None:
    x, condition = floats(20, 5), RNG.random(shape) < 0.7
    values = [
        helper.make_tensor_value_info(name, onnx_type(array.dtype), array.shape) for name, array in (("x", x), ("c", condition))
    ]
    node = helper.make_node("Compress", ["x", "c"], ["y"], axis=0)
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("y")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    with guarded_memory() as guard:
        (actual,) = session(content).run(None, guarded_feeds(guard, {"x": x, "c": condition}))
        np.testing.assert_array_equal(actual, x[np.flatnonzero(condition)])
