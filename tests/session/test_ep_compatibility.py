"""Compatibility of compiled models and devices, as ONNX Runtime's compiled module tells it; on both runtimes."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
from onnx import helper

import sardonyx
from sardonyx.capi import ep_compatibility


@pytest.fixture
def native(ort: Any) -> Any:
    return importlib.import_module(f"{ort.__name__}.capi._pybind_state")


def model_with(metadata: dict[str, str]) -> bytes:
    model = helper.make_model(helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    helper.set_model_props(model, metadata)
    return bytes(model.SerializeToString())


def test_the_text_for_a_provider_is_read_from_the_metadata(native: Any, tmp_path: Path) -> None:
    content = model_with({"ep_compatibility_info.SomeEP": "driver 7"})
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for kind in (bytes, bytearray, memoryview):
        assert native.get_compatibility_info_from_model_bytes(kind(content), "SomeEP") == "driver 7"
    assert native.get_compatibility_info_from_model(str(path), "SomeEP") == "driver 7"
    assert native.get_compatibility_info_from_model(str(path), "OtherEP") is None


def test_what_cannot_be_read_is_a_runtime_error(native: Any) -> None:
    for data, name in ((b"this is not a model", "EP"), (b"", "EP"), (b"x", "")):
        with pytest.raises(RuntimeError):
            native.get_compatibility_info_from_model_bytes(data, name)
    for path, name in (("nowhere.onnx", "EP"), ("", "EP"), ("nowhere.onnx", "")):
        with pytest.raises(RuntimeError):
            native.get_compatibility_info_from_model(path, name)


def test_no_provider_judges_compiled_models(ort: Any, native: Any) -> None:
    cpu = [device for device in ort.get_ep_devices() if device.ep_name == "CPUExecutionProvider"]
    verdict = native.get_model_compatibility_for_ep_devices(cpu, "anything")
    assert verdict == native.OrtCompiledModelCompatibility.EP_NOT_APPLICABLE
    with pytest.raises(RuntimeError):
        native.get_model_compatibility_for_ep_devices([], "anything")
    with pytest.raises(TypeError):
        native.get_model_compatibility_for_ep_devices(cpu, None)
    with pytest.raises(TypeError):
        native.get_model_compatibility_for_ep_devices([3], "anything")


def test_the_cpu_suits_its_provider(native: Any) -> None:
    cpu = next(device for device in native.get_hardware_devices() if device.type.value == 0)
    found = native.get_hardware_device_ep_incompatibility_details("CPUExecutionProvider", cpu)
    assert found == {"reasons_bitmask": 0, "notes": None, "error_code": 0}
    with pytest.raises(native.InvalidArgument, match="No valid factory found for execution provider 'CUDAExecutionProvider'"):
        native.get_hardware_device_ep_incompatibility_details("CUDAExecutionProvider", cpu)


def test_another_device_does_not_suit_it() -> None:
    gpu = sardonyx.OrtHardwareDevice(sardonyx.OrtHardwareDeviceType.GPU, "somebody")
    found = ep_compatibility.get_hardware_device_ep_incompatibility_details("CPUExecutionProvider", gpu)
    assert found["reasons_bitmask"] == ep_compatibility.OrtDeviceEpIncompatibilityReason.DEVICE_INCOMPATIBLE
    assert "CPU" in found["notes"]


def test_the_enumerations_are_onnxruntimes() -> None:
    theirs = importlib.import_module("onnxruntime.capi._pybind_state")
    for name in ("OrtCompiledModelCompatibility", "OrtDeviceEpIncompatibilityReason"):
        expected = {member: value.value for member, value in getattr(theirs, name).__members__.items()}
        assert {member: value.value for member, value in getattr(ep_compatibility, name).__members__.items()} == expected
