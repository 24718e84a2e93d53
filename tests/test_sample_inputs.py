"""Made-up inputs: sizes and contents that a model's own graph demands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import sardonyx

ML = ("OneHotEncoder", "LabelEncoder", "LinearClassifier", "ArrayFeatureExtractor", "ZipMap")
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[Any] | None]],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    output: str = "y",
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """A model of these nodes; its one output is of a type that follows from them."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_value_info(output, helper.make_empty_tensor_value_info(output).type)],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    built = helper.make_model(graph, opset_imports=imports, ir_version=8)
    helper.set_model_props(built, dict(metadata or {}))
    data: bytes = built.SerializeToString()
    return data


def fitted(data: bytes, **options: Any) -> sardonyx.Fitted[list[Any]]:
    session = sardonyx.InferenceSession(data)
    return sardonyx.fitting_inputs(data, lambda feeds: session.run(None, feeds), **options)


def weight(*shape: int) -> np.ndarray[Any, Any]:
    return np.full(shape, 0.1, np.float32)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    domain = "ai.onnx.ml" if op_type in ML else ""
    return helper.make_node(op_type, inputs.split(), outputs.split(), domain=domain, **attributes)


def test_a_matrix_product_fixes_the_features() -> None:
    data = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["N", "F"])}, {"w": weight(13, 4)})
    assert fitted(data).shapes == {"x": (1, 13)}


def test_the_size_behind_a_flatten_fixes_the_picture() -> None:
    nodes = [
        node("Conv", "x k", "a", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", "a l", "b", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Flatten", "b", "c"),
        node("MatMul", "c w", "y"),
    ]
    weights = {"k": weight(8, 1, 3, 3), "l": weight(8, 8, 3, 3), "w": weight(8 * 7 * 7, 10)}
    assert fitted(model(nodes, {"x": (FLOAT, ["a", "b", "c", "d"])}, weights)).shapes == {"x": (1, 1, 28, 28)}


def test_branches_of_different_stride_meet_again() -> None:
    nodes = [
        node("MaxPool", "x", "a", kernel_shape=[32, 32], strides=[32, 32]),
        node("Resize", "a none scales", "b"),
        node("Concat", "x b", "y", axis=1),
    ]
    weights = {"scales": np.array([1, 1, 32, 32], np.float32), "none": np.zeros(0, np.float32)}
    assert fitted(model(nodes, {"x": (FLOAT, ["n", 3, "h", "w"])}, weights)).shapes == {"x": (1, 3, 224, 224)}


def test_the_metadata_of_a_detector_say_its_picture_size() -> None:
    data = model(
        [node("Relu", "images", "y")], {"images": (FLOAT, ["batch", 3, "height", "width"])}, metadata={"imgsz": "[96, 160]"}
    )
    assert fitted(data).shapes == {"images": (1, 3, 96, 160)}


def test_a_long_window_makes_a_sequence_long() -> None:
    nodes = [node("Unsqueeze", "x axis", "a"), node("Conv", "a k", "y")]
    weights = {"axis": np.array([1]), "k": weight(2, 1, 400)}
    assert fitted(model(nodes, {"x": (FLOAT, ["batch", "samples"])}, weights)).shapes == {"x": (1, 512)}


@pytest.mark.parametrize("kind", [INT64, FLOAT])
def test_indices_stay_within_the_table(kind: int) -> None:
    nodes = [node("Cast", "ids", "a", to=INT64), node("Gather", "table a", "y")]
    found = fitted(model(nodes, {"ids": (kind, ["batch", "seq"])}, {"table": weight(97, 4)}))
    assert found.shapes == {"ids": (1, 8)}
    assert 1 < found.feeds["ids"].max() < 97


def test_masks_are_ones_and_a_sum_of_names_is_a_sum_of_sizes() -> None:
    nodes = [
        node("Concat", "past ids", "all", axis=1),
        node("Mul", "all attention_mask", "y"),
    ]
    inputs = {
        "ids": (INT64, ["batch", "sequence"]),
        "past": (INT64, ["batch", "past_sequence"]),
        "attention_mask": (INT64, ["batch", "past_sequence + sequence"]),
    }
    found = fitted(model(nodes, inputs))
    assert found.shapes == {"ids": (1, 8), "past": (1, 0), "attention_mask": (1, 8)}
    assert found.feeds["attention_mask"].all()
    assert fitted(model(nodes, inputs), shapes={"past_sequence": (3,)}).shapes["attention_mask"] == (1, 11)


def test_each_column_has_its_own_categories() -> None:
    nodes = [
        node("ArrayFeatureExtractor", "x zero", "a"),
        node("ArrayFeatureExtractor", "x one", "b"),
        node("OneHotEncoder", "a", "c", cats_strings=["red", "blue"], zeros=0),
        node("OneHotEncoder", "b", "d", cats_strings=["big", "small"], zeros=0),
        node("Concat", "c d", "y", axis=1),
    ]
    found = fitted(model(nodes, {"x": (STRING, ["N", 2])}, {"zero": np.array([0]), "one": np.array([1])}), shapes={"N": (20,)})
    assert set(found.feeds["x"][:, 0]) == {"red", "blue"}
    assert set(found.feeds["x"][:, 1]) == {"big", "small"}


def test_a_number_that_is_compared_is_the_one_it_is_compared_with() -> None:
    nodes = [node("Equal", "rate wanted", "same"), node("Where", "same x other", "y")]
    weights = {"wanted": np.array(16000), "other": weight(2)}
    rate = fitted(model(nodes, {"x": (FLOAT, [2]), "rate": (INT64, [])}, weights)).feeds["rate"]
    assert rate == 16000
    assert isinstance(rate, np.ndarray)  # onnxruntime takes no NumPy scalars


def test_an_index_without_dimensions_is_an_array() -> None:
    index = fitted(model([node("Gather", "table index", "y")], {"index": (INT64, [])}, {"table": weight(5, 2)})).feeds["index"]
    assert isinstance(index, np.ndarray)
    assert index.shape == ()
    assert 0 <= index < 5


@pytest.mark.parametrize(
    ("operator", "inputs", "shape", "expected"),
    [
        ("Reshape", "x shape", [2], [2, 6]),
        ("Reshape", "x shape", [3], [-1, 1, 1]),
        ("Expand", "x shape", [3], [1, 2, 6]),
        ("Tile", "x shape", [2], [1, 1]),
        ("Unsqueeze", "x shape", [2], [0, 1]),
        ("Split", "x shape", [1], [2]),
    ],
)
def test_an_input_that_is_a_shape_fits_what_it_shapes(operator: str, inputs: str, shape: list[int], expected: list[int]) -> None:
    found = fitted(model([node(operator, inputs, "y")], {"x": (FLOAT, [2, 6]), "shape": (INT64, shape)}))
    assert found.feeds["shape"].tolist() == expected


def test_states_of_a_recurrent_layer_fit_its_weights() -> None:
    inputs = {"x": (FLOAT, ["t", "b", "f"]), "h": (FLOAT, ["l", "bb", "u"]), "c": (FLOAT, ["ll", "bbb", "uu"])}
    weights = {"w": weight(1, 24, 5), "r": weight(1, 24, 6), "none": weight(1, 48)}
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "none", "", "h", "c"], ["", "y"], hidden_size=6)]
    shapes = fitted(model(nodes, inputs, weights)).shapes
    assert shapes["x"][2] == 5
    assert shapes["h"] == shapes["c"] == (1, shapes["x"][1], 6)


def test_features_of_a_linear_model_are_those_it_was_fitted_on() -> None:
    attributes = {"coefficients": [0.5] * 8, "intercepts": [0.0, 0.0], "classlabels_ints": [0, 1]}
    data = model([node("LinearClassifier", "x", "y scores", **attributes)], {"x": (FLOAT, [None, None])})
    assert fitted(data).shapes == {"x": (1, 4)}


def test_an_input_of_unknown_rank_gets_one_that_fits() -> None:
    data = model([node("Conv", "x k", "y")], {"x": (FLOAT, None)}, {"k": weight(2, 3, 5, 5)})
    assert len(fitted(data).shapes["x"]) == 4


def test_given_inputs_fix_the_named_dimensions_of_the_others() -> None:
    data = model([node("Add", "a b", "y")], {"a": (FLOAT, ["N", 3]), "b": (FLOAT, ["N", 3])})
    found = fitted(data, given={"a": weight(7, 3)})
    assert found.shapes == {"b": (7, 3)}


def test_a_shape_that_does_not_fit_is_refused_with_one_that_does() -> None:
    data = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["N", "F"])}, {"w": weight(13, 4)})
    with pytest.raises(sardonyx.SardonyxError, match="--shape x=1x13"):
        fitted(data, shapes={"x": (1, 12)})


def test_a_model_that_accepts_nothing_says_what_was_tried() -> None:
    nodes = [node("Add", "x a", "b"), node("Add", "b c", "y")]
    data = model(nodes, {"x": (FLOAT, ["N"])}, {"a": weight(5), "c": weight(7)})
    with pytest.raises(sardonyx.SardonyxError):
        fitted(data)


def test_more_than_memory_is_refused_before_it_is_asked_for() -> None:
    data = model([node("Relu", "x", "y")], {"x": (FLOAT, ["N"])})
    with pytest.raises(sardonyx.InvalidArgument, match=r"input 'x' of shape 1000000000000 would need 4,000\.0 GB"):
        fitted(data, shapes={"N": (10**12,)})


def test_the_shapes_can_be_had_without_a_run() -> None:
    data = model([node("MatMul", "x w", "y")], {"x": (FLOAT, ["N", "F"])}, {"w": weight(13, 4)})
    assert sardonyx.fitting_shapes(data) == {"x": (1, 13)}
    assert sardonyx.fitting_shapes(sardonyx.load_model(data), {"N": (3,)}) == {"x": (3, 13)}


def test_positions_stay_within_their_table() -> None:
    nodes = [
        node("Shape", "ids", "sizes"),
        node("Gather", "sizes one", "length"),
        node("Range", "zero length one", "positions"),
        node("Gather", "table positions", "a"),
        node("Gather", "words ids", "b"),
        node("Add", "a b", "y"),
    ]
    weights = {"one": np.array(1), "zero": np.array(0), "table": weight(4, 3), "words": weight(9, 3)}
    shapes = fitted(model(nodes, {"ids": (INT64, ["batch", "seq"])}, weights)).shapes
    assert shapes["ids"][1] <= 4


def test_weights_that_are_inputs_fix_sizes_too() -> None:
    inputs: dict[str, tuple[int, list[Any]]] = {"x": (FLOAT, ["N", "F"]), "w": (FLOAT, [500, 784])}
    assert fitted(model([node("Gemm", "x w", "y", transB=1)], inputs)).shapes["x"] == (1, 784)


@pytest.mark.parametrize("rank", [5, 6, 9])
def test_many_open_axes_stay_small(rank: int) -> None:
    data = model([node("Relu", "x", "y")], {"x": (FLOAT, [f"d{axis}" for axis in range(rank)])})
    assert np.prod(fitted(data).shapes["x"]) <= 3 * 32**3


def test_a_map_of_scores_has_a_column_for_each_class() -> None:
    data = model([node("ZipMap", "x", "y", classlabels_int64s=[4, 5, 6])], {"x": (FLOAT, [None, None])})
    assert fitted(data).shapes == {"x": (1, 3)}
