"""The ONNX backend interface."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import sardonyx
from sardonyx import backend

Model = Callable[[str], str]
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


def test_a_model_is_prepared_and_run(model: Model) -> None:
    path = model("mul_1")
    for source in (path, Path(path).read_bytes(), onnx.load(path), sardonyx.InferenceSession(path)):
        prepared = backend.prepare(source)
        assert backend.prepare(prepared) is prepared
        for inputs in ([X], X):
            np.testing.assert_array_equal(prepared.run(inputs)[0], X * X)


def test_a_model_is_run_at_once(model: Model) -> None:
    for run in (backend.run, backend.run_model, backend.backend.OnnxRuntimeBackend.run_model):
        [y] = run(model("mul_1"), [X], device="CPU", only_execute_path_to_fetches=True)
        np.testing.assert_array_equal(y, X * X)


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    assert backend.is_compatible(None)
    assert not backend.is_compatible(None, "CUDA")


def test_a_device_that_is_not_there(model: Model) -> None:
    with pytest.raises(RuntimeError, match="Incompatible device expected 'CUDA', got 'CPU'"):
        backend.prepare(model("mul_1"), "CUDA")


@pytest.mark.parametrize("name", ["optimized_model_filepath", "profile_file_prefix", "enable_profiling"])
def test_options_that_write_files_are_refused(model: Model, name: str) -> None:
    with pytest.raises(RuntimeError, match=f"SessionOptions attribute '{name}' is not permitted via the backend API"):
        backend.prepare(model("mul_1"), **{name: "x"})


def test_options_of_runs_are_limited_too(model: Model) -> None:
    prepared = backend.prepare(model("mul_1"), graph_optimization_level=sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL)
    with pytest.raises(RuntimeError, match="RunOptions attribute 'terminate' is not permitted"):
        prepared.run([X], terminate=True)
    assert prepared.run([X], unknown_to_both=1)


def test_the_number_of_inputs_is_checked(model: Model) -> None:
    prepared = backend.prepare(model("logicaland"))
    with pytest.raises(RuntimeError, match="Model expect 2 inputs"):
        prepared.run(np.array([True, False]))
    with pytest.raises(RuntimeError, match="Model expect 2 inputs, got 3"):
        prepared.run([np.array([True, False])] * 3)


def test_one_node_is_run() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    [y] = backend.run_node(node, [np.array([1, 5], np.float32), None, np.array(3, np.float32)])
    assert y.tolist() == [1, 3]
    [y] = backend.run_node(helper.make_node("Clip", ["x"], ["y"], max=2.0), [np.array([1, 5], np.float32)], opset_version=6)
    assert y.tolist() == [1, 2]


def test_the_interface_does_without_the_onnx_package() -> None:
    program = "import sys, sardonyx.backend; assert not {'onnx', 'google.protobuf'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)


def test_examples_are_found() -> None:
    for name in ("mul_1.onnx", "sigmoid.onnx"):
        session = sardonyx.InferenceSession(sardonyx.datasets.get_example(name))
        feed: dict[str, Any] = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}
        assert session.run(None, feed)[0].dtype == np.float32
    with pytest.raises(FileNotFoundError, match=r"Unable to find example 'none\.onnx'"):
        sardonyx.datasets.get_example("none.onnx")


@pytest.mark.parametrize("name", ["mul_1.onnx", "sigmoid.onnx", "logreg_iris.onnx"])
def test_examples_have_the_inputs_and_outputs_of_onnxruntimes(name: str) -> None:
    from onnxruntime import InferenceSession, datasets

    def described(session: Any) -> Any:
        return [(each.name, each.type, each.shape) for each in (*session.get_inputs(), *session.get_outputs())]

    ours = sardonyx.InferenceSession(sardonyx.datasets.get_example(name))
    assert described(ours) == described(InferenceSession(datasets.get_example(name)))


def test_the_iris_example_recognises_a_setosa() -> None:
    session = sardonyx.InferenceSession(sardonyx.datasets.get_example("logreg_iris.onnx"))
    label, probabilities = session.run(None, {"float_input": np.array([[5.1, 3.5], [4.9, 3.1], [5.0, 3.6]], np.float32)})
    assert label.tolist() == [0, 0, 0]
    assert all(sum(each.values()) == pytest.approx(1) for each in probabilities)


def test_the_modules_of_the_interface_have_onnxruntimes_classes() -> None:
    prepared = backend.backend.OnnxRuntimeBackend.prepare(sardonyx.datasets.get_example("mul_1.onnx"))
    assert isinstance(prepared, backend.backend_rep.OnnxRuntimeBackendRep)
