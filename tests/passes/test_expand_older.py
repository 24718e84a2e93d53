"""Operators of onnxruntime that ONNX has by now: the numbers of their own definitions, without Python, or left as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.explanation import explain_model

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 6, 7)).astype(np.float32)
GRID = RNG.uniform(-1.2, 1.2, (1, 4, 3, 2)).astype(np.float32)

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("Trilu", {"x": X}, {"k": np.array(1)}, {"upper": 0}),
    ("Trilu", {"x": X > 0}, {}, {}),
    ("Pad", {"x": X}, {"p": np.array([1, 0, 2, 3]), "v": np.array([2.5], np.float32)}, {}),
    ("Pad", {"x": X}, {"p": np.array([1, 2, 0, 1])}, {"mode": "reflect"}),
    ("GridSample", {"x": IMAGE, "g": GRID}, {}, {"mode": "bilinear", "padding_mode": "border"}),
    ("GridSample", {"x": IMAGE, "g": GRID}, {}, {"mode": "bicubic", "align_corners": 1}),
    ("GatherND", {"x": X, "i": np.array([[0, 1], [2, -1]])}, {}, {}),
    ("GatherND", {"x": X, "i": np.array([[1], [2]], np.int32)}, {}, {}),
    ("ExpandDims", {"x": X}, {"a": np.array(-2, np.int32)}, {}),
    ("SampleOp", {"x": X}, {}, {}),
    ("CDist", {"a": X, "b": RNG.standard_normal((4, 5)).astype(np.float32)}, {}, {"metric": "euclidean"}),
    ("CDist", {"a": X.astype(np.float64)}, {"b": RNG.standard_normal((4, 5))}, {"metric": "sqeuclidean"}),
]


def _model(op: str, feeds: dict[str, Any], constants: dict[str, Any], attrs: dict[str, Any], opset: int) -> bytes:
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in feeds.items()]
    node = helper.make_node(op, [*feeds, *constants], ["y"], domain="com.microsoft", **attrs)
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", next(iter(kinds.values())), None)], weights
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    content: bytes = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    return content


@pytest.mark.parametrize("opset", [12, 17, 21])
@pytest.mark.parametrize(("op", "feeds", "constants", "attrs"), CASES)
def test_the_numbers_are_those_of_the_definition(
    op: str, feeds: dict[str, Any], constants: dict[str, Any], attrs: dict[str, Any], opset: int
) -> None:
    content = _model(op, feeds, constants, attrs, opset)
    if opset > 12:
        assert explain_model(content).host_steps == 0
    (expected,) = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(None, feeds)
    (actual,) = sardonyx.InferenceSession(content).run(None, feeds)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


def test_distances_of_rows_of_different_lengths_are_refused() -> None:
    content = _model("CDist", {"a": X, "b": X}, {}, {}, 17)
    model = onnx.load_from_string(content)
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[1].dim_param = value.name
    with pytest.raises(sardonyx.SardonyxError, match=r"expected two matrices|MatMul"):
        sardonyx.InferenceSession(model.SerializeToString()).run(None, {"a": X, "b": X[:, :4]})
