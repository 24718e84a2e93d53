"""Optimizer steps as arithmetic: native, and equal to the operators' NumPy definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import sardonyx
from sardonyx.explanation import explain_model

TRAINING = "ai.onnx.preview.training"
CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("Adagrad", 3, {"decay_factor": 0.1, "epsilon": 1e-5, "norm_coefficient": 0.01}),
    ("Adam", 4, {"alpha": 0.9, "beta": 0.99, "epsilon": 1e-3, "norm_coefficient": 0.01, "norm_coefficient_post": 0.02}),
    ("Adam", 4, {"epsilon": 1e-3}),
    ("Momentum", 3, {"alpha": 0.9, "beta": 0.8, "mode": "standard", "norm_coefficient": 0.0}),
    ("Momentum", 3, {"alpha": 0.9, "beta": 0.8, "mode": "nesterov", "norm_coefficient": 0.1}),
]


def assert_native(model: ModelProto, feeds: dict[str, Any], tolerance: float = 0.0) -> None:
    """A session computes what NumPy does, without its help."""
    content = model.SerializeToString()
    assert explain_model(content).host_steps == 0
    names = [output.name for output in model.graph.output]
    found = sardonyx.InferenceSession(content).run(names, feeds)
    expected = sardonyx.InferenceSession(content, providers=["SardonyxReferenceExecutionProvider"]).run(names, feeds)
    for name, one, other in zip(names, found, expected):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance, err_msg=name)


def model_of(name: str, kinds: int, attributes: dict[str, Any], shapes: list[tuple[Any, ...]], kind: int) -> ModelProto:
    inputs = [f"{letter}{number}" for letter in "xgmv"[:kinds] for number in range(len(shapes))]
    outputs = [f"{letter}{number}" for letter in "XMV"[: kinds - 1] for number in range(len(shapes))]
    node = helper.make_node(name, ["R", "T", *inputs], outputs, domain=TRAINING, **attributes)
    graph = helper.make_graph(
        [node],
        "step",
        [
            helper.make_tensor_value_info("R", kind, []),
            helper.make_tensor_value_info("T", TensorProto.INT64, [1]),
            *(helper.make_tensor_value_info(each, kind, shapes[at % len(shapes)]) for at, each in enumerate(inputs)),
        ],
        [helper.make_tensor_value_info(each, kind, None) for each in outputs],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(TRAINING, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize(("name", "kinds", "attributes"), CASES)
@pytest.mark.parametrize("count", [0, 1, 1000])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_steps_are_native_and_agree(name: str, kinds: int, attributes: dict[str, Any], count: int, kind: int) -> None:
    dtype: type[Any] = np.float32 if kind == TensorProto.FLOAT else np.float64
    sizes = [(3, 5), (), (17,)]
    random = np.random.default_rng(1)
    feeds: dict[str, Any] = {"R": np.array(0.1, dtype), "T": np.array([count])}
    for letter in "xgmv"[:kinds]:
        for number, shape in enumerate(sizes):
            feeds[f"{letter}{number}"] = np.abs(random.normal(size=shape)).astype(dtype)
    tolerance = 2e-6 if dtype is np.float32 else 1e-12
    assert_native(model_of(name, kinds, attributes, [("N", 5), (), (17,)], kind), feeds, tolerance)


def test_tensors_that_might_broadcast_stay_as_they_are() -> None:
    model = model_of("Momentum", 3, CASES[3][2], [("N", "M")], TensorProto.FLOAT)
    model.graph.input[3].type.tensor_type.shape.dim[0].dim_param = "K"
    session = sardonyx.InferenceSession(model.SerializeToString())
    feeds = {"R": np.float32(0.1), "T": np.array([1]), "x0": np.ones((2, 3), np.float32), "m0": np.ones((2, 3), np.float32)}
    with pytest.raises(sardonyx.SardonyxError, match="gradient of tensor 0 has shape"):
        session.run(None, {**feeds, "g0": np.ones((1, 3), np.float32)})


@pytest.mark.parametrize("reset", [True, False, None])
def test_accumulators_are_native_and_agree(reset: bool | None) -> None:
    inputs = ["b", "g", *(["reset"] if reset is not None else [])]
    graph = helper.make_graph(
        [helper.make_node("InPlaceAccumulatorV2", inputs, ["flag", "sum"], domain="com.microsoft")],
        "accumulate",
        [
            *(helper.make_tensor_value_info(each, TensorProto.FLOAT, ["N", 3]) for each in ("b", "g")),
            *([helper.make_tensor_value_info("reset", TensorProto.BOOL, [1])] if reset is not None else []),
        ],
        [
            helper.make_tensor_value_info("flag", TensorProto.BOOL, [1]),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["N", 3]),
        ],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    feeds = {"b": np.full((4, 3), 2.0, np.float32), "g": np.full((4, 3), np.nan, np.float32)}
    if reset is not None:
        feeds["reset"] = np.array([reset])
    assert_native(helper.make_model(graph, opset_imports=imports, ir_version=8), feeds)
