"""Wrong calls: the exceptions are ONNX Runtime's, the texts name the input, what came and what is expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx

Model = Callable[[str], str]
X = np.ones((3, 2), np.float32)


def _error(ort: Any, name: str) -> type[Exception]:
    found: type[Exception] = getattr(ort.capi.onnxruntime_pybind11_state, name)
    return found


@pytest.mark.parametrize(
    ("feed", "missing"),
    [({}, "(['X']) are missing from input feed ([])"), ({"Q": X}, "(['X']) are missing from input feed (['Q'])")],
)
def test_a_missing_input_is_named_in_exactly_onnxruntimes_words(ort: Any, model: Model, feed: Any, missing: str) -> None:
    session = ort.InferenceSession(model("mul_1"))
    with pytest.raises(ValueError, match="Required inputs") as raised:
        session.run(None, feed)
    assert str(raised.value) == f"Required inputs {missing}."


@pytest.mark.parametrize(
    ("feed", "text"),
    [
        ({"X": X, "Q": X}, "Invalid input name: Q"),
        ({"X": X.astype(np.float64)}, "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))"),
        ({"X": X.astype(np.int64)}, "Unexpected input data type. Actual: (tensor(int64)) , expected: (tensor(float))"),
        ({"X": X.astype(np.float16)}, "Unexpected input data type. Actual: (tensor(float16)) , expected: (tensor(float))"),
        ({"X": np.array([["a"]])}, "Unexpected input data type. Actual: (tensor(string)) , expected: (tensor(float))"),
        ({"X": X[0]}, "Invalid rank for input: X Got: 1 Expected: 2 Please fix either the inputs/outputs or the model."),
        ({"X": X[:2]}, "Got invalid dimensions for input: X for the following indices\n index: 0 Got: 2 Expected: 3\n"),
        ({"X": X[:2, :1]}, " index: 0 Got: 2 Expected: 3\n index: 1 Got: 1 Expected: 2\n Please fix"),
    ],
    ids=["extra", "double", "int64", "half", "string", "rank", "dimension", "dimensions"],
)
def test_a_feed_that_does_not_fit(ort: Any, model: Model, feed: Any, text: str) -> None:
    session = ort.InferenceSession(model("mul_1"))
    with pytest.raises(_error(ort, "InvalidArgument")) as raised:
        session.run(None, feed)
    assert text in str(raised.value)


def test_a_wrong_type_names_the_input(model: Model) -> None:
    with pytest.raises(sardonyx.InvalidArgument, match="for input: X"):
        sardonyx.InferenceSession(model("mul_1")).run(None, {"X": X.astype(np.float64)})


def test_the_same_symbol_may_have_two_sizes_in_different_runs(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("matmul_2"))
    for rows in (1, 5, 2):
        assert session.run(None, {"X": np.ones((rows, 2), np.float32)})[0].shape == (rows, 1)


def test_an_unknown_output_is_an_invalid_argument(ort: Any, model: Model) -> None:
    with pytest.raises(_error(ort, "InvalidArgument"), match="nope"):
        ort.InferenceSession(model("mul_1")).run(["nope"], {"X": X})


@pytest.mark.parametrize("names", ["Y", [3]])
def test_output_names_must_be_a_list_of_names(ort: Any, model: Model, names: Any) -> None:
    with pytest.raises(TypeError):
        ort.InferenceSession(model("mul_1")).run(names, {"X": X})


def test_run_options_must_be_run_options(ort: Any, model: Model) -> None:
    with pytest.raises(TypeError):
        ort.InferenceSession(model("mul_1")).run(None, {"X": X}, "fast")


def test_a_run_that_was_terminated_fails(ort: Any, model: Model) -> None:
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(_error(ort, "Fail"), match="Exiting due to terminate flag being set to true"):
        ort.InferenceSession(model("mul_1")).run(None, {"X": X}, options)


@pytest.mark.parametrize("source", [3, None, ["mul_1.onnx"]])
def test_what_is_no_model_is_a_type_error(ort: Any, source: Any) -> None:
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(source)


def test_a_missing_file(ort: Any, tmp_path: Any) -> None:
    with pytest.raises(_error(ort, "NoSuchFile"), match="there_is_none"):
        ort.InferenceSession(str(tmp_path / "there_is_none.onnx"))


@pytest.mark.parametrize("content", [b"garbage", b"\0" * 100])
def test_bytes_that_are_no_model(ort: Any, content: bytes) -> None:
    with pytest.raises(_error(ort, "InvalidProtobuf")):
        ort.InferenceSession(content)


def test_options_must_be_session_options(ort: Any, model: Model) -> None:
    with pytest.raises(TypeError):
        ort.InferenceSession(model("mul_1"), "options")


def test_a_cancelled_load(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(_error(ort, "ModelLoadCanceled"), match="canceled due to user request"):
        ort.InferenceSession(model("mul_1"), options)


def test_ort_values_are_required_where_they_are_asked_for(ort: Any, model: Model) -> None:
    with pytest.raises((TypeError, AttributeError)):
        ort.InferenceSession(model("mul_1")).run_with_ort_values(None, {"X": X})


def test_a_feed_must_be_a_dictionary(ort: Any, model: Model) -> None:
    with pytest.raises((TypeError, AttributeError)):
        ort.InferenceSession(model("mul_1")).run(None, [X])


@pytest.mark.parametrize(
    ("name", "fed", "text"),
    [
        ("mul_1", None, "Actual: (None) , expected: (tensor(float)) for input: X"),
        ("mul_1", {"a": 1.0}, "Actual: (map(string,tensor(float))) , expected: (tensor(float)) for input: X"),
        ("mul_1", "abc", "Actual: (tensor(string)) , expected: (tensor(float)) for input: X"),
        ("mul_1", 3.0, "Invalid rank for input: X Got: 0 Expected: 2"),
        ("mul_1", [[1, 2], [3]], "input 'X': Could not create tensor from given input list"),
        ("mul_1", object(), "input 'X': Unable to handle object of type"),
        ("scalar", 1.5, "Actual: (tensor(double)) , expected: (tensor(int64)) for input: X"),
        ("bytes", [1, 300], "input 'X': 1 to 300 does not fit tensor(uint8), expected 0 to 255"),
        ("bytes", [-1], "input 'X': -1 to -1 does not fit tensor(uint8), expected 0 to 255"),
        ("sequence_length", X, "Actual: (tensor(float)) , expected: (seq(tensor(float))) for input: X"),
        ("sequence_length", [X, X.astype(np.float64)], "expected: (tensor(float)) for input: X[1]"),
    ],
)
def test_python_values_that_do_not_fit(model: Model, name: str, fed: Any, text: str) -> None:
    with pytest.raises(sardonyx.InvalidArgument) as raised:
        sardonyx.InferenceSession(model(name)).run(None, {"X": fed})
    assert text in str(raised.value)
