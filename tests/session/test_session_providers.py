"""Execution providers: names that are not there are dropped with a warning, as ONNX Runtime does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.session.inference_session import check_and_normalize_provider_args

Model = Callable[[str], str]
CPU = "CPUExecutionProvider"


def test_the_cpu_is_available_and_the_default(ort: Any, model: Model) -> None:
    assert CPU in ort.get_available_providers()
    assert CPU in ort.get_all_providers()
    assert "CUDAExecutionProvider" in ort.get_all_providers()
    assert ort.get_device() == "CPU"
    session = ort.InferenceSession(model("mul_1"))
    assert session.get_providers() == [CPU]
    assert session.get_provider_options() == {CPU: {}}


def test_a_provider_that_is_not_there_is_dropped(ort: Any, model: Model) -> None:
    with pytest.warns(UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in available provider names"):
        session = ort.InferenceSession(model("mul_1"), providers=["CUDAExecutionProvider", CPU])
    assert session.get_providers() == [CPU]


def test_an_unknown_provider_falls_back_to_the_cpu(ort: Any, model: Model) -> None:
    with pytest.warns(UserWarning, match="'FooExecutionProvider' is not in available"):
        session = ort.InferenceSession(model("mul_1"), providers=["FooExecutionProvider"])
    assert session.get_providers() == [CPU]


def test_an_unknown_provider_is_an_error_without_fallback(ort: Any, model: Model) -> None:
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: Foo"):  # noqa: PT030
        ort.InferenceSession(model("mul_1"), providers=["Foo"], enable_fallback=0)
    session = ort.InferenceSession(model("mul_1"))
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: Foo"):  # noqa: PT030
        session.set_providers(["Foo"])


def test_a_session_survives_providers_that_cannot_be_set(model: Model) -> None:
    session = sardonyx.InferenceSession(model("mul_1"))
    with pytest.warns(UserWarning), pytest.raises(RuntimeError):  # noqa: PT030
        session.set_providers(["Foo"])
    assert session.run(None, {"X": np.ones((3, 2), np.float32)})[0].shape == (3, 2)


def test_a_provider_named_twice_counts_once(ort: Any, model: Model) -> None:
    with pytest.warns(UserWarning, match="Duplicate provider 'CPUExecutionProvider' encountered, ignoring"):
        assert ort.InferenceSession(model("mul_1"), providers=[CPU, CPU]).get_providers() == [CPU]


def test_providers_are_set_again(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    session.set_providers([CPU])
    assert session.get_providers() == [CPU]
    session.set_providers([(CPU, {})])
    session.set_providers([CPU], [{}])
    np.testing.assert_array_equal(session.run(None, {"X": np.ones((3, 2), np.float32)})[0], [[1, 2], [3, 4], [5, 6]])


def test_one_name_may_stand_alone(model: Model) -> None:
    assert sardonyx.InferenceSession(model("mul_1"), providers=CPU).get_providers() == [CPU]


@pytest.mark.parametrize(
    ("providers", "options", "text"),
    [
        (3, None, "'providers' should be a sequence"),
        ([CPU], 3, "'provider_options' should be a sequence"),
        ([CPU], [{}, {}], "should be the same length"),
        ([(CPU, {})], [{}], "Only string values for 'providers' are supported if 'provider_options' is given"),
        ([CPU], ["a"], "'provider_options' values must be dicts"),
        ([3], None, "'providers' values must be either strings or"),
        ([(CPU,)], None, "'providers' values must be either strings or"),
        ([(CPU, 3)], None, "'providers' values must be either strings or"),
    ],
)
def test_arguments_that_make_no_sense(ort: Any, providers: Any, options: Any, text: str) -> None:
    check = ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args
    with pytest.raises(ValueError, match=text):
        check(providers, options, [CPU])


def test_arguments_are_normalised(ort: Any) -> None:
    check = ort.capi.onnxruntime_inference_collection.check_and_normalize_provider_args
    assert check(None, None, [CPU]) == ([], [])
    assert check([], None, [CPU]) == ([], [])
    assert check([CPU], None, [CPU]) == ([CPU], [{}])
    assert check([("a", {1: 2}), "b"], None, ["a", "b"]) == (["a", "b"], [{"1": "2"}, {}])
    assert check(["a", "b"], [{"x": True}, {}], ["a", "b"]) == (["a", "b"], [{"x": "True"}, {}])


def test_providers_on_the_options(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    assert not options.has_providers()
    options.add_provider(CPU, {})
    assert options.has_providers()
    with pytest.raises(RuntimeError, match="Unknown Provider Type: Foo"):
        options.add_provider("Foo", {})
    assert ort.InferenceSession(model("mul_1"), options).get_providers() == [CPU]
    with pytest.warns(UserWarning, match="SessionOptions has already been configured with providers"):
        ort.InferenceSession(model("mul_1"), options, providers=[CPU])


def test_providers_chosen_by_device_or_policy(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.add_provider_for_devices(ort.get_ep_devices()[:1], {})
    assert options.has_providers()
    assert ort.InferenceSession(model("mul_1"), options).get_providers() == [CPU]
    options = ort.SessionOptions()
    options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    assert options.has_providers()
    assert ort.InferenceSession(model("mul_1"), options).get_providers() == [CPU]


def test_devices_of_several_providers_or_none_are_refused() -> None:
    with pytest.raises(sardonyx.InvalidArgument, match="must belong to one execution provider, got none"):
        sardonyx.SessionOptions().add_provider_for_devices([], {})


def test_the_reference_provider_computes_the_same(model: Model) -> None:
    x = np.ones((3, 2), np.float32)
    reference = sardonyx.InferenceSession(model("add_mul"), providers=["SardonyxReferenceExecutionProvider"])
    assert reference.get_providers() == ["SardonyxReferenceExecutionProvider", CPU]
    np.testing.assert_array_equal(
        reference.run(None, {"X": x})[0], sardonyx.InferenceSession(model("add_mul")).run(None, {"X": x})[0]
    )


def test_who_computes_which_node(ort: Any, model: Model) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    info = ort.InferenceSession(model("add_mul"), options).get_provider_graph_assignment_info()
    nodes = [(part.ep_name, node.name, node.domain, node.op_type) for part in info for node in part.get_nodes()]
    assert nodes == [(CPU, "add_1", "", "Add"), (CPU, "mul_1", "", "Mul")]


def test_who_computes_which_node_must_be_recorded(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("add_mul"))
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match=r"session\.record_ep_graph_assignment_info"):
        session.get_provider_graph_assignment_info()


def test_calls_without_effect_on_a_cpu_are_accepted(ort: Any, model: Model) -> None:
    session = ort.InferenceSession(model("mul_1"))
    session.disable_fallback()
    session.enable_fallback()
    assert session.get_tuning_results() == []
    session.set_tuning_results([])
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"})
    [memory] = session.get_input_memory_infos()
    assert (memory.name, memory.device_id) == ("Cpu", 0)
    assert len(session.get_output_memory_infos()) == len(session.get_input_epdevices()) == 1
    value = session.create_ortvalue_from_shape_and_type([2, 3], np.float32, "cpu")
    assert (value.shape(), value.data_type()) == ([2, 3], "tensor(float)")


def test_the_function_is_public_where_onnxruntime_has_it() -> None:
    assert sardonyx.capi.onnxruntime_inference_collection.check_and_normalize_provider_args is check_and_normalize_provider_args
