"""Where data lies and who allocates it: the device and memory descriptions of ONNX Runtime's API.

Everything lives in the memory of the host, so these classes describe; they allocate nothing. Asking for memory on another
device is an error that says so.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from sardonyx import errors
from sardonyx.enums import OrtEnum
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.records import dataclass
from sardonyx.target.machine import processor_name

_DEVICE_TYPES: Final = {"cpu": 0, "cuda": 1, "gpu": 1, "dml": 1, "webgpu": 1, "npu": 3, "cann": 3}
# Names of memory and the kind of device it belongs to, in lower case. Pinned memory is the host's, but a GPU's driver gives it.
_MEMORY_DEVICES: Final = {
    "cpu": 0, "openvino_cpu": 0, "cuda": 1, "cudapinned": 1, "dml": 1, "webgpu_buffer": 1, "qnnhtpshared": 3,
}  # fmt: skip
_NO_DEVICE: Final = "Can't allocate memory on the device {!r}: Sardonyx computes on the CPU"


class OrtDeviceVendorId(OrtEnum):
    """PCI vendor ids of device makers."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_ALIAS_VENDORS: Final = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
    "webgpu": OrtDeviceVendorId.NONE,
}


class OrtAllocatorType(OrtEnum):
    """How memory is handed out."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class ArenaExtendStrategy(OrtEnum):
    """How an arena grows."""

    kNextPowerOfTwo = 0  # noqa: N815 - ONNX Runtime's name
    kSameAsRequested = 1  # noqa: N815


class OrtMemType(OrtEnum):
    """What memory is used for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(OrtEnum):
    """Whether the host can reach a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtHardwareDeviceType(OrtEnum):
    """Kinds of processors."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtMemoryInfoDeviceType(OrtEnum):
    """Kinds of processors, as memory descriptions number them."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDevice:
    """A device by kind and number; made with `OrtDevice.make("cpu", 0)`."""

    _key: tuple[int, int, int, int]  # device type, memory type, vendor, number

    def __init__(self, device_type: OrtDevice | int, *numbers: int) -> None:
        """Another OrtDevice, or the numbers: device type, memory type, (vendor id,) device id."""
        if isinstance(device_type, OrtDevice) and not numbers:
            self._key = device_type._key
        elif isinstance(device_type, int) and len(numbers) in (2, 3):
            self._key = (int(device_type), numbers[0], numbers[1] if len(numbers) == 3 else 0, numbers[-1])
        else:
            raise ValueError("expected an OrtDevice, or device type, memory type, (vendor id,) device id; use OrtDevice.make")

    def __repr__(self) -> str:
        return f"OrtDevice({self.name!r}, {self.device_id()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OrtDevice) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of this name: cpu, cuda, gpu, npu, dml, cann, webgpu."""
        if ort_device_name not in _DEVICE_TYPES:
            # ONNX Runtime raises a bare Exception here; RuntimeError is one.
            raise RuntimeError(f"Unsupported device type: {ort_device_name}")
        vendor = _ALIAS_VENDORS.get(ort_device_name, OrtDeviceVendorId.NONE) if vendor_id < 0 else vendor_id
        return OrtDevice(_DEVICE_TYPES[ort_device_name], 0, int(vendor), operator.index(device_id))

    @property
    def name(self) -> str:
        """cpu, gpu or npu."""
        return {0: "cpu", 1: "gpu", 2: "fpga", 3: "npu"}.get(self._key[0], "unknown")

    def device_type(self) -> int:
        """0 for the CPU, 1 for GPUs, 3 for NPUs."""
        return self._key[0]

    def device_mem_type(self) -> int:
        """0 for the device's ordinary memory."""
        return self._key[1]

    def device_vendor_id(self) -> int:
        """PCI id of the vendor, 0 if it does not matter."""
        return self._key[2]

    def device_id(self) -> int:
        """Which of several devices of the kind."""
        return self._key[3]

    mem_type = device_mem_type
    vendor_id = device_vendor_id

    def _get_c_device(self) -> OrtDevice:
        return self

    @staticmethod
    def cpu() -> int:
        """The number of the CPU kind."""
        return 0

    @staticmethod
    def gpu() -> int:
        """The number of the GPU kind."""
        return 1

    @staticmethod
    def npu() -> int:
        """The number of the NPU kind."""
        return 3

    @staticmethod
    def fpga() -> int:
        """The number of the FPGA kind."""
        return 2

    cuda = dml = webgpu = gpu
    cann = npu

    @staticmethod
    def default_memory() -> int:
        """The number of ordinary memory."""
        return 0


def get_ort_device_type(device_type: str) -> int:
    """The number of a kind of device by its name."""
    return OrtDevice.make(device_type, 0).device_type()


def get_vendor_id_for_device_type(device_type: str) -> OrtDeviceVendorId | None:
    """The maker of devices that have a name of their own: cuda, dml, cann, webgpu; None for the others."""
    return _ALIAS_VENDORS.get(device_type)


def require_cpu(device: str | OrtDevice, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
    """The device asked for, if it is the CPU; RuntimeError otherwise."""
    found = device if isinstance(device, OrtDevice) else OrtDevice.make(device.lower(), device_id, vendor_id)
    if found.device_type() != OrtDevice.cpu():
        raise RuntimeError(_NO_DEVICE.format(device if isinstance(device, str) else found.name))
    return found


class OrtMemoryInfo:
    """Describes memory: whose it is, on which device, how it is allocated."""

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        if name.lower() not in _MEMORY_DEVICES:
            raise RuntimeError("Specified device is not supported. Try CreateMemoryInfo_V2.")
        self.name = name
        self._device_type = OrtMemoryInfoDeviceType(_MEMORY_DEVICES[name.lower()])
        self.allocator_type = OrtAllocatorType(allocator_type)
        self.device_id = operator.index(device_id)
        self.mem_type = OrtMemType(mem_type)
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """A description of memory on any device."""
        if alignment < 0 or alignment & (alignment - 1):
            raise ValueError(f"alignment must be a power of two, got {alignment}")
        made = OrtMemoryInfo("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        made.name = name
        made._device_type = OrtMemoryInfoDeviceType(device_type)
        made.device_mem_type = OrtDeviceMemoryType(device_mem_type)
        if made.device_mem_type is OrtDeviceMemoryType.HOST_ACCESSIBLE:
            made.mem_type = OrtMemType.CPU_OUTPUT
        made.device_vendor_id = vendor_id
        return made

    def require_cpu(self) -> None:
        """RuntimeError unless it is the memory of the CPU, which is the only one there is."""
        if self._device_type is not OrtMemoryInfoDeviceType.CPU:
            raise RuntimeError(f"No shared allocator found for: {self!r}: Sardonyx computes on the CPU")

    def __repr__(self) -> str:
        return (
            f"OrtMemoryInfo(name={self.name!r}, device={self._device_type}, device_id={self.device_id}, "
            f"allocator_type={self.allocator_type})"
        )


CPU_MEMORY: Final = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)


class OrtArenaCfg:
    """Limits of an arena; -1 leaves a value to Sardonyx. Takes four numbers or a dictionary of any of the attributes."""

    _NAMES: Final = (
        "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
    )  # fmt: skip

    def __init__(self, *config: int | Mapping[str, int]) -> None:
        if len(config) == 1 and isinstance(config[0], Mapping):
            given = dict(config[0])
        elif len(config) == 4:
            given = dict(zip(self._NAMES, config))  # type: ignore[arg-type]
        else:
            raise TypeError("OrtArenaCfg takes a dictionary, or max_mem, strategy, initial chunk size and dead bytes per chunk")
        for name in given:
            if name not in self._NAMES:
                raise RuntimeError(f"Invalid OrtArenaCfg option: {name}")
        self.max_mem = operator.index(given.get("max_mem", 0))
        self.arena_extend_strategy = operator.index(given.get("arena_extend_strategy", -1))
        self.initial_chunk_size_bytes = operator.index(given.get("initial_chunk_size_bytes", -1))
        self.max_dead_bytes_per_chunk = operator.index(given.get("max_dead_bytes_per_chunk", -1))
        self.initial_growth_chunk_size_bytes = operator.index(given.get("initial_growth_chunk_size_bytes", -1))
        self.max_power_of_two_extend_bytes = operator.index(given.get("max_power_of_two_extend_bytes", -1))


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Accepted for compatibility: memory is planned per program, there is no shared allocator to configure."""
    if not isinstance(memory_info, OrtMemoryInfo):
        raise TypeError(f"expected an OrtMemoryInfo, got {memory_info!r}")
    memory_info.require_cpu()
    if arena_cfg is not None and not isinstance(arena_cfg, OrtArenaCfg):
        raise TypeError(f"expected an OrtArenaCfg, got {arena_cfg!r}")


def create_and_register_allocator_v2(
    provider_type: str, memory_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None
) -> None:
    """Accepted for compatibility, see `create_and_register_allocator`; only for the CPU."""
    if provider_type != CPU_PROVIDER:
        raise RuntimeError(f"no allocator can be registered for {provider_type!r}, only for {CPU_PROVIDER}")
    create_and_register_allocator(memory_info, arena_cfg)


@dataclass(frozen=True, eq=False)
class OrtHardwareDevice:
    """A processor of this machine."""

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


class OrtSyncStream:
    """A queue of work on a device; the CPU has none."""

    def get_handle(self) -> int:
        """The native handle; always 0."""
        return 0


@dataclass(frozen=True, eq=False)
class OrtEpDevice:
    """A processor together with the execution provider that uses it."""

    ep_name: str
    ep_vendor: str
    device: OrtHardwareDevice
    ep_metadata: Mapping[str, str] = field(default_factory=dict)
    ep_options: Mapping[str, str] = field(default_factory=dict)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Where this device keeps its data."""
        OrtDeviceMemoryType(memory_type)
        return CPU_MEMORY

    def create_sync_stream(self) -> OrtSyncStream:
        """Not possible on the CPU."""
        raise RuntimeError(f"{self.ep_name} computes in the calling thread and has no streams")


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The processors that can be used: this machine's CPU."""
    return [OrtHardwareDevice(OrtHardwareDeviceType.CPU, processor_name())]


def get_ep_devices() -> list[OrtEpDevice]:
    """The devices on which models can run: this machine's CPU."""
    return [OrtEpDevice(CPU_PROVIDER, "Sardonyx", device) for device in get_hardware_devices()]


def register_execution_provider_library(registration_name: str, library_path: Any) -> None:
    """Not possible: such a library holds machine code for ONNX Runtime's C interface."""
    raise errors.Fail(f"Failed to load library {library_path}: execution provider libraries need ONNX Runtime's C interface")


def unregister_execution_provider_library(registration_name: str) -> None:
    """There is never one registered."""
    raise errors.Fail(f"Execution provider library: {registration_name} was not registered.")
