"""A refused feed says what to do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx

FLOAT = TensorProto.FLOAT


def session(**inputs: tuple[int, list[Any]]) -> sardonyx.InferenceSession:
    """A model that passes its inputs on; those of one name in their shapes must fit each other."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_empty_tensor_value_info(f"{name}_out") for name in inputs]
    values = [helper.make_tensor_value_info(name, *described) for name, described in inputs.items()]
    graph = helper.make_graph(nodes, "graph", values, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return sardonyx.InferenceSession(model.SerializeToString())


def hint(session: sardonyx.InferenceSession, feed: dict[str, Any]) -> str:
    with pytest.raises(sardonyx.InvalidArgument) as caught:
        session.run(None, feed)
    assert caught.value.hint == "" or f"hint: {caught.value.hint}" in str(caught.value)
    return caught.value.hint


@pytest.mark.parametrize(
    ("declared", "fed", "expected"),
    [
        (FLOAT, np.zeros(2), "x.astype(np.float32)"),
        (FLOAT, np.zeros(2, np.int64), "x.astype(np.float32)"),
        (TensorProto.INT64, np.zeros(2, np.int32), "x.astype(np.int64)"),
        (TensorProto.BFLOAT16, np.zeros(2, np.float32), "x.astype(ml_dtypes.bfloat16)"),
        (FLOAT, np.zeros(2, ml_dtypes.bfloat16), "x.astype(np.float32)"),
        (FLOAT, np.array(["1", "2"]), "convert the text to numbers of float32 first"),
        (TensorProto.STRING, np.zeros(2, np.float32), "feed an array of str"),
    ],
)
def test_another_element_type_is_converted(declared: int, fed: Any, expected: str) -> None:
    assert expected in hint(session(x=(declared, [2])), {"x": fed})


@pytest.mark.parametrize(
    ("declared", "fed", "expected"),
    [
        (["N", 3, 224, 224], (1, 224, 224, 3), "x.transpose(0, 3, 1, 2)"),
        ([1, 3, 8, 6], (1, 8, 6, 3), "x.transpose(0, 3, 1, 2)"),
        (["N", "H", "W", 3], (1, 3, 8, 8), "x.transpose(0, 2, 3, 1)"),
        (["N", 3, 224, 224], (3, 224, 224), "add the batch axis: x[None]"),
        (["N", 3, "H", "W"], (9, 8, 3), "transpose it and add the batch axis: x.transpose(2, 0, 1)[None]"),
        ([3, 4], (1, 3, 4), "remove the first axis: x[0]"),
        ([3, 4], (4, 3), "x.transpose(1, 0)"),
        ([1, 1], (), "np.reshape(x, (1, 1))"),
        ([3, 4], (5, 6), "the model declares [3,4]"),
        ([3, 4], (3, 4, 5, 6), "the model declares [3,4]"),
    ],
)
def test_another_shape_is_brought_into_the_declared_one(declared: list[Any], fed: tuple[int, ...], expected: str) -> None:
    assert expected in hint(session(x=(FLOAT, declared)), {"x": np.zeros(fed, np.float32)})


def test_a_misspelt_name_is_guessed() -> None:
    opened = session(image=(FLOAT, [2]), scale=(FLOAT, [2]))
    good = np.zeros(2, np.float32)
    assert hint(opened, {"imgae": good, "scale": good}) == "did you mean 'image' by 'imgae'?"
    assert hint(opened, {"image": good, "scale": good, "scales": good}).startswith("did you mean 'scale'?")
    assert hint(opened, {"image": good, "scale": good, "zzz": good}) == "the inputs are: image, scale"
    assert hint(opened, {"image": good}) == ""


@pytest.mark.parametrize("provider", ["CPUExecutionProvider", "SardonyxReferenceExecutionProvider"])
def test_inputs_that_give_one_dimension_two_sizes_are_both_named(provider: str) -> None:
    shape = ["N", 3]
    values = [helper.make_tensor_value_info(name, FLOAT, shape) for name in "ab"]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])], "graph", values, [helper.make_tensor_value_info("y", FLOAT, shape)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    opened = sardonyx.InferenceSession(model, providers=[provider])
    feed = {"a": np.zeros((2, 3), np.float32), "b": np.zeros((4, 3), np.float32)}
    for _ in range(2):
        assert hint(opened, feed) == "dimension N is 2 in 'a', but 4 in 'b'"
    feed["b"] = feed["b"][:2]
    assert opened.run(None, feed)[0].shape == (2, 3)


def test_a_name_that_is_no_variable_is_not_used_as_one() -> None:
    opened = session(**{"onnx::Flatten_0": (FLOAT, [2])})
    assert hint(opened, {"onnx::Flatten_0": np.zeros(2)}) == "convert it: x.astype(np.float32)"
