"""What ONNX Runtime keeps below its Python classes, private but used: the session and the binding of its compiled module."""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx

X = np.ones((3, 2), np.float32)
CPU = ["CPUExecutionProvider"]
Paths = Callable[[str], str]


def native(ort: Any) -> Any:
    return importlib.import_module(f"{ort.__name__}.capi._pybind_state")


def test_the_inner_session_runs_by_the_arguments_of_the_compiled_module(ort: Any, model: Paths) -> None:
    session = ort.InferenceSession(model("mul_1"), providers=CPU)
    inner, below = session._sess, native(ort)
    assert isinstance(inner, below.InferenceSession)
    assert inner is session._sess
    [y] = inner.run(["Y"], {"X": X}, None)
    vector = inner.run_with_ort_values({"X": ort.OrtValue.ortvalue_from_numpy(X)._get_c_value()}, ["Y"], ort.RunOptions())
    assert isinstance(vector, below.OrtValueVector)
    np.testing.assert_array_equal(vector[0].numpy(), y)
    with pytest.raises(below.InvalidArgument, match="At least one output"):
        inner.run([], {"X": X}, None)


def test_the_inner_session_describes_the_model(ort: Any, model: Paths) -> None:
    session = ort.InferenceSession(model("overridable"), providers=CPU)
    inner = session._sess
    assert [each.name for each in inner.inputs_meta] == ["X"]
    assert [each.name for each in inner.outputs_meta] == ["Y"]
    assert [each.name for each in inner.overridable_initializers] == ["W"]
    assert inner.model_meta.graph_name == session.get_modelmeta().graph_name
    assert inner.get_providers() == CPU
    assert inner.get_provider_options() == session.get_provider_options()
    assert inner.get_profiling_start_time_ns == 0
    assert isinstance(inner.session_options, ort.SessionOptions)


def test_an_inner_session_can_be_made_by_hand(ort: Any, model: Paths) -> None:
    below = native(ort)
    inner = below.InferenceSession(ort.SessionOptions(), model("mul_1"), True, False)
    with pytest.raises(below.Fail, match="Session not initialized"):
        inner.run(["Y"], {"X": X}, None)
    inner.initialize_session([], [], set())
    assert inner.get_providers()[-1] == "CPUExecutionProvider"
    assert inner.run(["Y"], {"X": X}, None)[0].shape == (3, 2)


def test_an_inner_session_of_bytes(ort: Any, model: Paths) -> None:
    with open(model("mul_1"), "rb") as file:
        inner = native(ort).InferenceSession(ort.SessionOptions(), file.read(), False, False)
    inner.initialize_session(CPU, [{}], set())
    assert inner.run(["Y"], {"X": X}, None)[0].shape == (3, 2)


def test_the_inner_binding_takes_addresses_and_arrays(ort: Any, model: Paths) -> None:
    session, below = ort.InferenceSession(model("mul_1"), providers=CPU), native(ort)
    device = below.OrtDevice(below.OrtDevice.cpu(), below.OrtDevice.default_memory(), 0)
    result = np.zeros((3, 2), np.float32)
    binding = below.SessionIOBinding(session._sess)
    binding.bind_input("X", device, np.float32, X.shape, X.ctypes.data)
    binding.bind_output("Y", device, np.float32, result.shape, result.ctypes.data)
    session._sess.run_with_iobinding(binding, None)
    np.testing.assert_array_equal(result, session.run(None, {"X": X})[0])
    binding.clear_binding_inputs()
    binding.clear_binding_outputs()
    binding.bind_input("X", 2 * X)
    binding.bind_output("Y", device)
    session._sess.run_with_iobinding(binding, None)
    assert isinstance(binding.get_outputs(), below.OrtValueVector)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 2 * result)


def test_a_binding_shows_the_one_below_it(ort: Any, model: Paths) -> None:
    session = ort.InferenceSession(model("mul_1"), providers=CPU)
    binding = session.io_binding()
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    assert isinstance(binding._iobinding, native(ort).SessionIOBinding)
    np.testing.assert_array_equal(binding._iobinding.get_outputs()[0].numpy(), binding.get_outputs()[0].numpy())


def test_the_path_of_the_model_is_the_one_given(ort: Any, model: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, name = os.path.split(model("mul_1"))
    monkeypatch.chdir(folder)
    assert ort.InferenceSession(name, providers=CPU)._model_path == name
    with open(name, "rb") as file:
        content = file.read()
    session = ort.InferenceSession(content, providers=CPU)
    assert (session._model_path, session._model_bytes) == (None, content)


def test_other_providers_give_another_inner_session(model: Paths) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    before = session._sess
    session.set_providers(["SardonyxReferenceExecutionProvider"])
    assert session._sess is not before
    assert session._sess.get_providers()[0] == "SardonyxReferenceExecutionProvider"


def test_a_session_whose_inner_one_was_used_can_be_pickled(model: Paths) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    assert session._sess.get_providers() == CPU
    again = pickle.loads(pickle.dumps(session))
    assert again._model_path == session._model_path
    assert again._sess.run(["Y"], {"X": X}, None)[0].shape == (3, 2)
