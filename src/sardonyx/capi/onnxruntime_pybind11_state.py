"""The names programs import from ONNX Runtime's native module: exceptions above all."""

from __future__ import annotations

from sardonyx.build_info import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    set_seed,
)
from sardonyx.capi.block_quantization import (
    quantize_matmul_2bits,
    quantize_matmul_4bits,
    quantize_matmul_8bits,
    quantize_matmul_bnb4,
    quantize_qdq_matmul_4bits,
)
from sardonyx.capi.ep_compatibility import (
    OrtCompiledModelCompatibility,
    OrtDeviceEpIncompatibilityReason,
    get_compatibility_info_from_model,
    get_compatibility_info_from_model_bytes,
    get_hardware_device_ep_incompatibility_details,
    get_model_compatibility_for_ep_devices,
)
from sardonyx.enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from sardonyx.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,  # noqa: A004 - the name users of ONNX Runtime catch
    RuntimeException,
)
from sardonyx.options import RunOptions, SessionOptions, set_global_thread_pool_sizes
from sardonyx.runtime.adapters import AdapterFormat, LoraAdapter
from sardonyx.runtime.binding import SessionIOBinding
from sardonyx.runtime.devices import (
    ArenaExtendStrategy,
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtEpDevice,
    OrtHardwareDevice,
    OrtHardwareDeviceType,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSyncStream,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    get_ep_devices,
    get_hardware_devices,
    register_execution_provider_library,
    unregister_execution_provider_library,
)
from sardonyx.runtime.logs import set_default_logger_severity, set_default_logger_verbosity
from sardonyx.runtime.ports import ModelMetadata, NodeArg, OrtEpAssignedNode, OrtEpAssignedSubgraph
from sardonyx.runtime.sparse import OrtSparseFormat, SparseBlockSparseView, SparseCooView, SparseCsrView, SparseTensor
from sardonyx.runtime.values import OrtValue, OrtValueVector, copy_tensors
from sardonyx.session.inner_session import InnerSession as InferenceSession
from sardonyx.session.model_compiler import ModelCompiler, OrtCompileApiFlags, OrtExternalInitializerInfo


def get_default_session_options() -> SessionOptions:
    """Options as a session has them that is given none."""
    return SessionOptions()


def is_dlpack_uint8_tensor(capsule: object) -> bool:
    """Whether a DLPack capsule holds unsigned bytes; the capsule stays unused."""
    from sardonyx.runtime.dlpack import holds_uint8  # lazy: few programs look into capsules

    return holds_uint8(capsule)


kNextPowerOfTwo, kSameAsRequested = ArenaExtendStrategy  # noqa: N816 - also names of the module itself

__all__ = [
    "AdapterFormat", "ArenaExtendStrategy", "DeviceReset", "EPFail", "EngineError", "ExecutionMode", "ExecutionOrder", "Fail",
    "GraphOptimizationLevel", "InferenceSession", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "LoraAdapter",
    "ModelCompiler", "ModelLoadCanceled", "ModelLoaded", "ModelMetadata", "ModelRequiresCompilation", "NoModel", "NoSuchFile",
    "NodeArg", "NotFound", "NotImplemented", "OrtAllocatorType", "OrtArenaCfg", "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility", "OrtDevice", "OrtDeviceEpIncompatibilityReason", "OrtDeviceMemoryType",
    "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpDevice", "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo", "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType", "OrtSparseFormat", "OrtSyncStream", "OrtValue", "OrtValueVector", "RunOptions",
    "RuntimeException", "SessionIOBinding", "SessionOptions", "SparseBlockSparseView", "SparseCooView", "SparseCsrView",
    "SparseTensor", "copy_tensors", "create_and_register_allocator", "create_and_register_allocator_v2",
    "disable_telemetry_events", "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info",
    "get_compatibility_info_from_model", "get_compatibility_info_from_model_bytes", "get_default_session_options",
    "get_device", "get_ep_devices", "get_hardware_device_ep_incompatibility_details", "get_hardware_devices",
    "get_model_compatibility_for_ep_devices", "get_version_string", "has_collective_ops", "is_dlpack_uint8_tensor",
    "kNextPowerOfTwo", "kSameAsRequested", "quantize_matmul_2bits", "quantize_matmul_4bits", "quantize_matmul_8bits",
    "quantize_matmul_bnb4", "quantize_qdq_matmul_4bits", "register_execution_provider_library", "set_default_logger_severity",
    "set_default_logger_verbosity", "set_global_thread_pool_sizes", "set_seed", "unregister_execution_provider_library",
]  # fmt: skip
