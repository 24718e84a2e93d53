"""Devices and memory descriptions, and the functions of the module that describe the installation."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import numpy as np
import pytest

import sardonyx


@pytest.fixture(params=["onnxruntime", "sardonyx"])
def ort(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


@pytest.mark.parametrize(
    ("name", "number", "vendor", "expected"),
    [("cpu", 0, -1, (0, 0, 0)), ("cuda", 1, -1, (1, 1, 0x10DE)), ("gpu", 0, 0x8086, (1, 0, 0x8086)), ("npu", 2, 0, (3, 2, 0))],
)
def test_devices(ort: Any, name: str, number: int, vendor: int, expected: tuple[int, int, int]) -> None:
    device = ort.OrtDevice.make(name, number, vendor)
    assert (device.device_type(), device.device_id(), device.device_vendor_id()) == expected
    assert device.device_mem_type() == 0


def test_vendors(ort: Any) -> None:
    assert int(ort.OrtDeviceVendorId.NVIDIA) == 0x10DE


def test_memory_information(ort: Any) -> None:
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    assert (memory.name, memory.device_id, memory.device_vendor_id) == ("Cpu", 0, 0)
    assert memory.allocator_type == ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    assert memory.mem_type == ort.OrtMemType.DEFAULT
    assert memory.device_mem_type == ort.OrtDeviceMemoryType.DEFAULT
    with pytest.raises(RuntimeError, match=r"Specified device is not supported. Try CreateMemoryInfo_V2\."):
        ort.OrtMemoryInfo("Moon", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)


def test_memory_information_of_the_second_kind(ort: Any) -> None:
    memory = ort.OrtMemoryInfo.create_v2(
        "Test", ort.OrtMemoryInfoDeviceType.CPU, 1, 2, ort.OrtDeviceMemoryType.HOST_ACCESSIBLE, 512,
        ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )  # fmt: skip
    assert (memory.name, memory.device_id, memory.device_vendor_id) == ("Test", 2, 1)
    assert memory.device_mem_type == ort.OrtDeviceMemoryType.HOST_ACCESSIBLE
    assert memory.mem_type == ort.OrtMemType.CPU_OUTPUT


@pytest.mark.parametrize("kind", ["GPU", "NPU", "FPGA"])
def test_memory_of_a_device_that_is_not_there_is_refused(ort: Any, kind: str) -> None:
    memory = ort.OrtMemoryInfo.create_v2(
        "Bogus", ort.OrtMemoryInfoDeviceType.__members__[kind], 0xDEAD, 0, ort.OrtDeviceMemoryType.HOST_ACCESSIBLE, 0,
        ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="No shared allocator found"):
        ort.OrtValue.ortvalue_from_shape_and_type([2], np.float32, memory_info=memory)
    with pytest.raises(RuntimeError):
        ort.create_and_register_allocator(memory, None)


def test_a_value_in_memory_of_the_cpu() -> None:
    memory = sardonyx.get_ep_devices()[0].memory_info(sardonyx.OrtDeviceMemoryType.DEFAULT)
    assert sardonyx.OrtValue.ortvalue_from_shape_and_type_for_memory_info([2], np.float32, memory).shape() == [2]


def test_arena_settings(ort: Any) -> None:
    config = ort.OrtArenaCfg({"max_mem": 8 << 20, "arena_extend_strategy": 0, "max_dead_bytes_per_chunk": 3})
    assert (config.max_mem, config.arena_extend_strategy, config.max_dead_bytes_per_chunk) == (8 << 20, 0, 3)
    assert config.initial_growth_chunk_size_bytes == -1
    assert ort.OrtArenaCfg(5, 1, -1, -1).max_mem == 5
    with pytest.raises(RuntimeError, match="Invalid OrtArenaCfg option: colour"):
        ort.OrtArenaCfg({"colour": 1})
    memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(memory, config)
    with pytest.raises(TypeError):
        ort.create_and_register_allocator(3, config)
    with pytest.raises(TypeError):
        ort.create_and_register_allocator(memory, 3)
    with pytest.raises(TypeError):
        ort.OrtArenaCfg(1, 2)


def test_devices_with_their_providers(ort: Any) -> None:
    [cpu, *_] = ort.get_ep_devices()
    assert cpu.ep_name == "CPUExecutionProvider"
    assert cpu.device.type == ort.OrtHardwareDeviceType.CPU
    assert cpu.device.device_id == 0


def test_the_cpu_is_the_last_of_all_providers(ort: Any) -> None:
    assert ort.get_all_providers()[-1] == "CPUExecutionProvider"
    assert set(ort.get_available_providers()) <= set(ort.get_all_providers())


def test_a_cpu_has_no_streams() -> None:
    [cpu] = sardonyx.get_ep_devices()
    assert cpu.memory_info(sardonyx.OrtDeviceMemoryType.DEFAULT).name == "Cpu"
    with pytest.raises(RuntimeError, match="has no streams"):
        cpu.create_sync_stream()
    with pytest.raises(RuntimeError, match="no allocator can be registered for 'CUDAExecutionProvider'"):
        sardonyx.create_and_register_allocator_v2(
            "CUDAExecutionProvider", cpu.memory_info(sardonyx.OrtDeviceMemoryType.DEFAULT), {}, None
        )


def test_devices_compare_and_copy() -> None:
    cpu = sardonyx.OrtDevice.make("cpu", 0)
    assert sardonyx.OrtDevice(cpu) == cpu == sardonyx.OrtDevice(0, 0, 0)
    assert hash(cpu) == hash(sardonyx.OrtDevice(0, 0, 0, 0))
    assert cpu != sardonyx.OrtDevice.make("cuda", 0)
    assert repr(cpu) == "OrtDevice('cpu', 0)"
    with pytest.raises(ValueError, match=r"use OrtDevice\.make"):
        sardonyx.OrtDevice("cpu")  # type: ignore[arg-type]


def test_the_installation_is_described(ort: Any) -> None:
    assert "Build Info" in ort.get_build_info()
    assert ort.get_version_string() == ort.__version__
    assert ort.get_device() == "CPU"
    assert not ort.has_collective_ops()
    ort.enable_telemetry_events()
    ort.disable_telemetry_events()
    ort.set_seed(3)
    with pytest.raises(TypeError):
        ort.set_seed("three")


@pytest.mark.parametrize("severity", [-1, 5])
def test_severities_are_checked(ort: Any, severity: int) -> None:
    with pytest.raises(RuntimeError, match="Invalid logging severity"):
        ort.set_default_logger_severity(severity)


def test_severities_are_those_of_logging() -> None:
    logger = logging.getLogger("sardonyx")
    try:
        for severity, level in enumerate((logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)):
            sardonyx.set_default_logger_severity(severity)
            assert logger.level == level
        sardonyx.set_default_logger_verbosity(2)
    finally:
        sardonyx.set_default_logger_severity(2)


def test_sessions_log_under_their_own_severity(caplog: pytest.LogCaptureFixture) -> None:
    path = sardonyx.datasets.get_example("mul_1.onnx")
    sardonyx.InferenceSession(path)
    assert not caplog.records
    options = sardonyx.SessionOptions()
    options.log_severity_level, options.logid = 1, "mine"
    sardonyx.InferenceSession(path, options)
    [record] = caplog.records
    assert record.name == "sardonyx"
    assert record.getMessage() == f"[mine] model from {path}: 1 nodes, providers CPUExecutionProvider"
    options.log_severity_level = 3
    sardonyx.InferenceSession(path, options)
    assert len(caplog.records) == 1


def test_debug_information_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sardonyx.print_debug_info()
    sardonyx.preload_dlls()
    printed = capsys.readouterr().out
    assert sardonyx.__version__ in printed
    assert np.__version__ in printed
