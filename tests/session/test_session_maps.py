"""Maps and sequences: dictionaries and lists in and out, as ONNX Runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sardonyx

ML = "ai.onnx.ml"


def _session(ort: Any, node: Any, inputs: Any, outputs: Any) -> Any:
    graph = helper.make_graph([node], "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(ML, 1)]
    return ort.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _scores() -> Any:
    return helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 3])


def _maps(key: int) -> Any:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    return helper.make_value_info("Z", helper.make_sequence_type_proto(helper.make_map_type_proto(key, value)))


@pytest.mark.parametrize(
    ("labels", "key", "type_"),
    [
        ({"classlabels_strings": ["a", "b", "c"]}, TensorProto.STRING, "seq(map(string,tensor(float)))"),
        ({"classlabels_int64s": [10, 20, 30]}, TensorProto.INT64, "seq(map(int64,tensor(float)))"),
    ],
    ids=["strings", "numbers"],
)
def test_scores_come_out_as_dictionaries(ort: Any, labels: Any, key: int, type_: str) -> None:
    session = _session(ort, helper.make_node("ZipMap", ["X"], ["Z"], domain=ML, **labels), [_scores()], [_maps(key)])
    assert session.get_outputs()[0].type == type_
    x = np.array([[1.5, 0, 3], [44, 23, 11]], np.float32)
    [maps] = session.run(None, {"X": x})
    [names] = labels.values()
    assert maps == [dict(zip(names, row)) for row in x.tolist()]
    assert all(type(value) is float for each in maps for value in each.values())
    assert all(type(name) is type(names[0]) for each in maps for name in each)


def test_a_dictionary_goes_in(ort: Any) -> None:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    taken = helper.make_value_info("X", helper.make_map_type_proto(TensorProto.INT64, value))
    node = helper.make_node("CastMap", ["X"], ["Y"], domain=ML, cast_to="TO_FLOAT", map_form="DENSE")
    session = _session(ort, node, [taken], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, "n"])])
    assert session.get_inputs()[0].type == "map(int64,tensor(float))"
    assert session.run(None, {"X": {0: 1.5, 1: 2.5}})[0].tolist() == [[1.5, 2.5]]


def test_text_is_counted(ort: Any) -> None:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    taken = helper.make_value_info("X", helper.make_map_type_proto(TensorProto.STRING, value))
    node = helper.make_node("DictVectorizer", ["X"], ["Y"], domain=ML, string_vocabulary=["a", "b", "c"])
    session = _session(ort, node, [taken], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 3])])
    assert session.run(None, {"X": {"c": 2.0, "a": 1.0}})[0].tolist() == [[1, 0, 2]]


def test_dictionaries_that_do_not_fit_are_runtime_errors(ort: Any) -> None:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    taken = helper.make_value_info("X", helper.make_map_type_proto(TensorProto.INT64, value))
    node = helper.make_node("DictVectorizer", ["X"], ["Y"], domain=ML, int64_vocabulary=[0, 1])
    session = _session(ort, node, [taken], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 2])])
    text = "Unexpected key type  <class 'str'>, it cannot be linked to C type int64_t for input 'X'"
    with pytest.raises(RuntimeError, match=text):
        session.run(None, {"X": {0: 1.0, "a": 2.0}})
    for wrong in ({0.5: 1.0}, {0: "text"}, {0: None}):
        with pytest.raises(RuntimeError):
            session.run(None, {"X": wrong})


def test_keys_of_the_wrong_type_are_refused() -> None:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    taken = helper.make_value_info("X", helper.make_map_type_proto(TensorProto.STRING, value))
    node = helper.make_node("DictVectorizer", ["X"], ["Y"], domain=ML, string_vocabulary=["a"])
    session = _session(sardonyx, node, [taken], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 1])])
    with pytest.raises(sardonyx.InvalidArgument, match="key type  <class 'int'>, it cannot be linked to C type std::string"):
        session.run(None, {"X": {3: 1.0}})
    with pytest.raises(
        sardonyx.InvalidArgument, match=r"Actual: \(tensor\(float\)\) , expected: \(map\(string,tensor\(float\)\)\)"
    ):
        session.run(None, {"X": np.ones(3, np.float32)})


def _vectorizer(engine: Any, element: int) -> Any:
    value = helper.make_tensor_type_proto(element, [1])
    taken = helper.make_value_info("X", helper.make_map_type_proto(TensorProto.STRING, value))
    node = helper.make_node("DictVectorizer", ["X"], ["Y"], domain=ML, string_vocabulary=["a", "b"])
    return _session(engine, node, [taken], [helper.make_tensor_value_info("Y", element, [1, 2])])


NUMBERS = [1, 2.5, True, np.int32(3), np.float16(0.5), np.float64(0.1), np.bool_(True), np.array(2), np.array(0.25)]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_any_number_goes_into_a_map_of_floats(ort: Any, number: Any) -> None:
    [found] = _vectorizer(ort, TensorProto.FLOAT).run(None, {"X": {"b": number}})
    assert found.dtype == np.float32
    assert found.tolist() == [[0, np.float32(number)]]


def test_numbers_take_the_type_of_the_map() -> None:
    for element, dtype in ((TensorProto.INT64, np.int64), (TensorProto.DOUBLE, np.float64)):
        for number in (2, np.int8(2), np.array(2)):
            [found] = _vectorizer(sardonyx, element).run(None, {"X": {"a": number}})
            assert (found.dtype, found.tolist()) == (dtype, [[2, 0]])


@pytest.mark.parametrize(
    ("element", "wrong"),
    [
        (TensorProto.INT64, 1.5),
        (TensorProto.INT64, np.array(1.0)),
        (TensorProto.INT64, 1 << 70),
        (TensorProto.FLOAT, "text"),
        (TensorProto.FLOAT, np.ones(2)),
    ],
    ids=str,
)
def test_values_of_another_type_are_refused(element: int, wrong: Any) -> None:
    with pytest.raises(
        sardonyx.InvalidArgument, match=r"Unexpected value type .* of key 'a' for input 'X': .* is no value of map"
    ):
        _vectorizer(sardonyx, element).run(None, {"X": {"a": wrong}})


@pytest.mark.parametrize("declared", [None, [2], [2, 2]], ids=str)
def test_elements_of_a_sequence_need_not_have_the_stated_shape(ort: Any, declared: list[int] | None) -> None:
    taken = helper.make_tensor_sequence_value_info("X", TensorProto.FLOAT, declared)
    nodes = [
        helper.make_node("SequenceAt", ["X", "I"], ["element"]),
        helper.make_node("Neg", ["element"], ["negative"]),
        helper.make_node("Exp", ["negative"], ["Y"]),
    ]
    place = helper.make_tensor_value_info("I", TensorProto.INT64, [])
    graph = helper.make_graph(nodes, "g", [taken, place], [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    elements = [np.arange(2, dtype=np.float32), np.arange(4, dtype=np.float32), np.ones((1, 3), np.float32)]
    for index, element in enumerate(elements):
        [found] = session.run(None, {"X": elements, "I": np.array(index)})
        np.testing.assert_allclose(found, np.exp(-element), rtol=1e-6)


def test_results_with_the_same_maps_do_not_share_them() -> None:
    node = helper.make_node("ZipMap", ["X"], ["Z"], domain=ML, classlabels_int64s=[1, 2, 3])
    session = _session(sardonyx, node, [_scores()], [helper.make_empty_tensor_value_info("Z")])
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    first, second = session.run(["Z", "Z"], {"X": x})
    assert type(first) is type(second) is list
    assert first == second == [{1: float(a), 2: float(b), 3: float(c)} for a, b, c in x]
    first[0][1] = -1.0
    assert second[0][1] == 0.0
