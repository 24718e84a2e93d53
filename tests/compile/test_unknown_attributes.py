"""Attributes that an operator does not have in its version are ignored by everybody: by its meaning, passes and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx

STALE: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {  # of older versions: attributes, and what inputs say now
    **{f"Reduce{name}": ({"axes": [0, 2]}, ()) for name in ("Sum", "Max", "Mean", "L2", "LogSumExp", "Prod")},
    "Squeeze": ({"axes": [0]}, ()),
    "Clip": ({"min": 0.5, "max": 0.7}, ()),
    "Pad": ({"pads": [1, 1, 1, 1, 1, 1, 1, 1]}, ("pads",)),
    "Slice": ({"starts": [0], "ends": [1], "axes": [1]}, ("starts", "ends")),
    "Unsqueeze": ({"axes": [0, 1, 2]}, ("axes",)),
    "Split": ({"split": [1, 1]}, ("split",)),
    "TopK": ({"k": 1}, ("k",)),
    "Relu": ({"axes": [0], "alpha": 3.0, "_of_a_framework": 1}, ()),
    "Softmax": ({"axes": [0, 1]}, ()),
}
INPUTS = {
    "pads": [0, 1, 0, 0, 0, 0, 0, 2], "starts": [0, 1, 0, 0], "ends": [1, 4, 3, 9], "axes": [0], "split": [3, 6], "k": [2],
}  # fmt: skip


def _model(name: str, attributes: dict[str, Any], inputs: tuple[str, ...]) -> bytes:
    outputs = ["y", "z"] if name in ("Split", "TopK") else ["y"]
    extra = {"axis": 3} if name == "Split" else {}
    node = helper.make_node(name, ["x", *inputs], outputs, **attributes, **extra)
    kinds = [TensorProto.FLOAT, TensorProto.INT64 if name == "TopK" else TensorProto.FLOAT]
    graph = helper.make_graph(
        [node],
        "stale",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 7, 3, 9])],
        [helper.make_tensor_value_info(each, kind, None) for each, kind in zip(outputs, kinds)],
        [helper.make_tensor(each, TensorProto.INT64, [len(INPUTS[each])], INPUTS[each]) for each in inputs],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", STALE)
def test_attributes_of_other_versions(name: str, level: str) -> None:
    attributes, inputs = STALE[name]
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = getattr(sardonyx.GraphOptimizationLevel, level)
    x = np.random.default_rng(0).standard_normal((1, 7, 3, 9)).astype(np.float32)
    found, expected = (
        sardonyx.InferenceSession(_model(name, each, inputs), options).run(None, {"x": x}) for each in (attributes, {})
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
