"""Running models: the same calls on onnxruntime and on Sardonyx give the same results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from threads import at_once

Model = Callable[[str], str]
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
SQUARES = np.array([[1, 4], [9, 16], [25, 36]], np.float32)


def test_a_model_runs_from_a_path(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"), providers=["CPUExecutionProvider"])
    assert [argument.name for argument in session.get_inputs()] == ["X"]
    np.testing.assert_array_equal(session.run(["Y"], {"X": X})[0], SQUARES)


def test_a_model_runs_from_bytes_and_from_a_path_object(ort: Any, model: Model) -> None:
    path = Path(model("mul_1"))
    for source in (path, path.read_bytes()):
        np.testing.assert_array_equal(ort.InferenceSession(source).run(None, {"X": X})[0], SQUARES)


@pytest.mark.parametrize("names", [None, [], ["Y"], ("Y",)])
def test_no_names_mean_all_outputs(ort: Any, model: Model, names: Any) -> None:
    results = ort.InferenceSession(model("mul_1")).run(names, {"X": X})
    assert len(results) == 1
    np.testing.assert_array_equal(results[0], SQUARES)


def test_outputs_come_in_the_order_asked_for_and_may_repeat(ort: Any, model: Model) -> None:
    y, t, again = ort.InferenceSession(model("two_outputs")).run(["Y", "T", "Y"], {"X": X})
    np.testing.assert_array_equal(t, 2 * X)
    np.testing.assert_array_equal(y, 2 * SQUARES)
    np.testing.assert_array_equal(again, y)


def test_arguments_are_described(ort: Any, model: Model) -> None:
    [x] = ort.InferenceSession(model("matmul_2")).get_inputs()
    assert (x.name, x.type, x.shape) == ("X", "tensor(float)", ["None", 2])
    assert str(x) == "NodeArg(name='X', type='tensor(float)', shape=['None', 2])"
    [described] = ort.InferenceSession(model("described")).get_inputs()
    assert described.shape == [None, "n", 3]


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("sequence_length", "seq(tensor(float))"),
        ("identity_opt", "optional(seq(tensor(float)))"),
        ("identity_string", "tensor(string)"),
        ("no_shape", "tensor(float)"),
        ("scalar", "tensor(int64)"),
    ],
)
def test_types_are_named_as_onnxruntime_names_them(ort: Any, model: Model, name: str, type_: str) -> None:
    argument = ort.InferenceSession(model(name)).get_inputs()[0]
    assert argument.type == type_
    assert argument.shape == ([2, 2] if name == "identity_string" else [])


def test_metadata_of_the_model(ort: Any, model: Model) -> None:
    meta = ort.InferenceSession(model("described")).get_modelmeta()
    assert (meta.producer_name, meta.domain, meta.description, meta.version) == ("maker", "org.example", "a model", 7)
    assert (meta.graph_name, meta.graph_description, meta.custom_metadata_map) == ("main", "its graph", {"author": "somebody"})


def test_a_model_without_version_reports_the_largest_number(ort: Any, model: Model) -> None:
    assert ort.InferenceSession(model("mul_1")).get_modelmeta().version == 2**63 - 1


def test_arrays_that_are_not_contiguous_are_fed_as_they_are(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    wide = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)
    for fed in (np.asfortranarray(X), wide[::2, ::3]):
        np.testing.assert_array_equal(session.run(None, {"X": fed})[0], SQUARES)


def test_lists_take_the_type_of_the_input(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    for fed in (X.tolist(), [[1, 2], [3, 4], [5, 6]]):
        [y] = session.run(None, {"X": fed})
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, SQUARES)


def test_lists_of_text_are_string_tensors(ort: Any, model: Model) -> None:
    [y] = ort.InferenceSession(model("identity_string")).run(None, {"input:0": [["a", "b"], ["c", "d"]]})
    assert y.tolist() == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    "fed",
    [
        np.array([["this", "is"], ["déjà", "vu"]]),
        np.array([["this", "is"], ["déjà", "vu"]], object),
        np.array([["this", "is"], ["déjà", "vu"]]).astype("U10"),
    ],
    ids=["unicode", "object", "wide"],
)
def test_every_kind_of_string_array_is_taken(ort: Any, model: Model, fed: Any) -> None:
    [y] = ort.InferenceSession(model("identity_string")).run(None, {"input:0": fed})
    assert y.dtype == object
    assert y.tolist() == [["this", "is"], ["déjà", "vu"]]


def test_void_arrays_keep_their_zeros(ort: Any, model: Model) -> None:
    fed = np.array([[b"this", b"is"], [b"a", b"test"]]).astype(np.void)
    [y] = ort.InferenceSession(model("identity_string")).run(None, {"input:0": fed})
    assert y.tolist() == [["this", "is\0\0"], ["a\0\0\0", "test"]]


def test_bytes_are_utf8(model: Model) -> None:
    session = sardonyx.InferenceSession(model("identity_string"))
    fed = np.array([["this", "is"], ["déjà", "vu"]])
    for array in (np.char.encode(fed, "utf-8"), np.char.encode(fed, "utf-8").astype(object)):
        assert session.run(None, {"input:0": array})[0].tolist() == fed.tolist()


def test_objects_that_are_no_text_are_printed(ort: Any, model: Model) -> None:
    fed = np.array([["a", 3], [None, 2.5]], object)
    assert ort.InferenceSession(model("identity_string")).run(None, {"input:0": fed})[0].tolist() == [["a", "3"], ["None", "2.5"]]


def test_booleans_and_the_order_of_inputs(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("logicaland"))
    assert [argument.name for argument in session.get_inputs()] == ["input1:0", "input:0"]
    [y] = session.run(None, {"input:0": np.array([True, True]), "input1:0": np.array([True, False])})
    assert y.dtype == np.bool_
    assert y.tolist() == [True, False]


def test_sequences_go_in_as_lists(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("sequence_length"))
    for length in (0, 1, 3):
        [y] = session.run(None, {"X": [X] * length})
        assert y.dtype == np.int64
        assert y.shape == ()
        assert y == length


def test_sequences_come_out_as_lists(ort: Any, model: Model) -> None:
    first, second = np.arange(6).reshape(2, 3), np.ones((2, 3), np.int64)
    [made] = ort.InferenceSession(model("sequence_construct")).run(None, {"tensor1": first, "tensor2": second})
    assert isinstance(made, list)
    np.testing.assert_array_equal(made, [first, second])
    feed = {"input_seq": made, "tensor": first + 1, "pos": np.array(-1)}
    [longer] = ort.InferenceSession(model("sequence_insert")).run(None, feed)
    np.testing.assert_array_equal(longer, [first, first + 1, second])


def test_optional_inputs_may_be_absent(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("identity_opt"))
    values = [np.arange(5, dtype=np.float32)] * 2
    np.testing.assert_array_equal(session.run(None, {"opt_in": values})[0], values)
    assert session.run(None, {"opt_in": None}) == [None]
    assert session.run(None, {}) == [None]


def test_a_result_shares_no_memory_with_its_input(ort: Any, model: Model) -> None:
    x = np.arange(4, dtype=np.float32)
    [y] = ort.InferenceSession(model("identity")).run(None, {"X": x})
    assert not np.shares_memory(x, y)
    assert y.flags.writeable
    y[:] = 0
    assert x.tolist() == [0, 1, 2, 3]


def test_a_weight_that_is_an_output_cannot_be_changed_through_it(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("weight_as_output"))
    session.run(["W"], {"X": X})[0][:] = 99
    np.testing.assert_array_equal(session.run(["Y"], {"X": X})[0], 2 * X)


def test_an_initializer_that_is_an_input_may_be_fed(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("overridable"))
    assert [argument.name for argument in session.get_inputs()] == ["X"]
    assert [argument.name for argument in session.get_overridable_initializers()] == ["W"]
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], 2 * X)
    np.testing.assert_array_equal(session.run(None, {"X": X, "W": 0 * X})[0], X)


def test_arrays_without_elements_run(ort: Any, model: Model) -> None:
    [y] = ort.InferenceSession(model("matmul_2")).run(None, {"X": np.zeros((0, 2), np.float32)})
    assert y.shape == (0, 1)


@pytest.mark.parametrize("kind", ["initializer", "sparse_value", "value"])
@pytest.mark.parametrize("declared", ["sparse", "dense"])
def test_a_sparse_constant_is_sparse_as_an_output(ort: Any, kind: str, declared: str) -> None:
    values, places = np.array([1.5, 2.5], np.float32), np.array([1, 2])
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(values, "c"), numpy_helper.from_array(places, "places"), [2, 2])
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    if kind != "initializer":
        nodes.insert(0, helper.make_node("Constant", [], ["c"], **{kind: sparse}))
    make = helper.make_sparse_tensor_value_info if declared == "sparse" else helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2]), make("c", TensorProto.FLOAT, [2, 2])],
        sparse_initializer=[sparse] if kind == "initializer" else [],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    for _ in range(2):
        negative, given = session.run(None, {"x": np.ones((2, 2), np.float32)})
        assert negative.tolist() == [[-1, -1], [-1, -1]]
        assert given.values().tolist() == [1.5, 2.5]
        assert list(given.dense_shape()) == [2, 2]


def test_a_sparse_initializer_comes_out_as_a_sparse_tensor(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("sparse_initializer_as_output"))
    [value] = session.run_with_ort_values(["values"], {})
    assert value.is_sparse_tensor()
    assert value.data_type() == "sparse_tensor(float)"
    sparse = value.as_sparse_tensor()
    assert sparse.format() == ort.OrtSparseFormat.ORT_SPARSE_COO
    assert list(sparse.dense_shape()) == [3, 3]
    assert sparse.values().tolist() == [1.5, 2.5, 3.5]
    assert sparse.as_coo_view().indices().reshape(-1).tolist() == [3, 5, 7]
    assert session.run(None, {})[0].values().tolist() == [1.5, 2.5, 3.5]


def test_ort_values_are_fed_and_returned(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    value = ort.OrtValue.ortvalue_from_numpy(X)
    np.testing.assert_array_equal(session.run(None, {"X": value})[0], SQUARES)
    [result] = session.run_with_ort_values(["Y"], {"X": value})
    assert isinstance(result, ort.OrtValue)
    np.testing.assert_array_equal(result.numpy(), SQUARES)


def test_vectors_of_ort_values(ort: Any, model: Model) -> None:
    state = ort.capi.onnxruntime_pybind11_state
    feeds, fetches = state.OrtValueVector(), state.OrtValueVector()
    feeds.push_back(ort.OrtValue.ortvalue_from_numpy(X)._ortvalue)
    device = ort.OrtDevice.make("cpu", 0)._get_c_device()
    session = ort.InferenceSession(model("mul_1"))
    session.run_with_ortvaluevector(ort.RunOptions(), ["X"], feeds, ["Y"], fetches, [device])
    assert len(fetches) == 1
    np.testing.assert_array_equal(fetches[0].numpy(), SQUARES)


def test_an_asynchronous_run_calls_back(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model("mul_1"), options)
    done, seen = threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        seen.append((results, user_data, error))
        done.set()

    session.run_async(["Y"], {"X": X.copy()}, callback, "mine")
    assert done.wait(10)
    [(results, user_data, error)] = seen
    assert (user_data, error) == ("mine", "")
    np.testing.assert_array_equal(results[0], SQUARES)


def test_an_asynchronous_run_reports_what_failed(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(model("mul_1"), options)
    done, seen = threading.Event(), []

    def callback(results: Any, user_data: Any, error: str) -> None:
        seen.append((list(results), error))
        done.set()

    session.run_async(None, {"X": X[:1]}, callback, None)
    assert done.wait(10)
    [(results, error)] = seen
    assert results == []
    assert error.startswith("Got invalid dimensions for input: X")


def test_several_threads_run_one_session(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("matmul_2"))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=(50, 2)).astype(np.float32)
        expected = x @ np.array([[1], [2]], np.float32)
        for _ in range(50):
            if not np.allclose(session.run(None, {"X": x})[0], expected, atol=1e-5):
                wrong.append(seed)

    at_once(work, range(8))
    assert not wrong
