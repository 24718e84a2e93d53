"""Sardonyx runs ONNX models with the API of ONNX Runtime: `import sardonyx as ort`.

    session = sardonyx.InferenceSession("model.onnx")
    [y] = session.run(None, {"x": x})

Names are imported when they are first used, so that `import sardonyx` itself costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sardonyx import forks as _forks

if TYPE_CHECKING:
    from sardonyx import backend, benchmarking, capi, datasets, generation, minimal, providers, quantization, training
    from sardonyx.analysis.problems import Problem
    from sardonyx.as_onnxruntime import install_as_onnxruntime
    from sardonyx.build_info import (
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        set_seed,
    )
    from sardonyx.conversion import Conversion, Simplification, convert_models, simplify_model
    from sardonyx.conversion.float16 import convert_to_float16
    from sardonyx.enums import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtExecutionProviderDevicePolicy,
    )
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
        RuntimeException,
        SardonyxError,
    )
    from sardonyx.errors import (
        NotImplemented as NotImplemented,  # noqa: A004 - the name users of ONNX Runtime catch
    )
    from sardonyx.explanation import Explanation, OrderMemory, explain_memory, explain_model
    from sardonyx.inspection import (
        ModelSummary,
        OperatorInfo,
        check_model,
        load_model,
        load_value,
        object_cache,
        operators,
        program_cache,
        summarize_model,
    )
    from sardonyx.options import RunOptions, SessionOptions, set_global_thread_pool_sizes
    from sardonyx.provider_names import register_provider, unregister_provider
    from sardonyx.runtime.adapters import AdapterFormat, LoraAdapter
    from sardonyx.runtime.binding import IOBinding, SessionIOBinding
    from sardonyx.runtime.devices import (
        OrtAllocatorType,
        OrtArenaCfg,
        OrtDevice,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
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
        register_execution_provider_library,
        unregister_execution_provider_library,
    )
    from sardonyx.runtime.logs import set_default_logger_severity, set_default_logger_verbosity
    from sardonyx.runtime.ports import ModelMetadata, NodeArg, OrtEpAssignedNode, OrtEpAssignedSubgraph
    from sardonyx.runtime.sparse import OrtSparseFormat, SparseTensor
    from sardonyx.runtime.values import OrtValue, OrtValueVector, copy_tensors
    from sardonyx.runtime.weight_store import PrepackedWeightsContainer
    from sardonyx.sample_inputs import Fitted, fitting_inputs, fitting_shapes, random_inputs
    from sardonyx.session.bundling import CompiledBundle, CompiledTarget, compile_bundle
    from sardonyx.session.inference_session import InferenceSession
    from sardonyx.session.model_compiler import ModelCompiler, OrtCompileApiFlags, OrtExternalInitializerInfo

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - grouped by what they are for
    # running models
    "InferenceSession", "SessionOptions", "RunOptions", "IOBinding", "SessionIOBinding", "ModelCompiler",
    "NodeArg", "ModelMetadata", "PrepackedWeightsContainer",
    # values
    "OrtValue", "OrtValueVector", "SparseTensor", "OrtSparseFormat", "copy_tensors",
    # choices
    "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder", "OrtExecutionProviderDevicePolicy", "OrtCompileApiFlags",
    "OrtExternalInitializerInfo",
    # adapters
    "AdapterFormat", "LoraAdapter",
    # providers, devices and memory
    "register_provider", "unregister_provider", "providers",
    "get_available_providers", "get_all_providers", "get_device", "get_ep_devices", "OrtEpDevice", "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph", "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtDevice", "OrtDeviceVendorId",
    "OrtDeviceMemoryType", "OrtMemoryInfo", "OrtMemoryInfoDeviceType", "OrtMemType", "OrtAllocatorType", "OrtArenaCfg",
    "OrtSyncStream", "create_and_register_allocator", "create_and_register_allocator_v2",
    "register_execution_provider_library", "unregister_execution_provider_library", "set_global_thread_pool_sizes",
    # looking at models and operators
    "load_model", "check_model", "summarize_model", "operators", "load_value", "random_inputs", "fitting_inputs",
    "fitting_shapes", "Fitted", "Problem", "ModelSummary",
    "OperatorInfo", "explain_model", "Explanation", "explain_memory", "OrderMemory", "object_cache", "program_cache",
    "convert_models", "Conversion", "convert_to_float16",
    "simplify_model", "Simplification", "compile_bundle", "CompiledBundle", "CompiledTarget",
    # language models
    "generation",
    # about Sardonyx
    "__version__", "get_version_string", "get_build_info", "print_debug_info", "preload_dlls", "has_collective_ops",
    "set_default_logger_severity", "set_default_logger_verbosity", "set_seed", "enable_telemetry_events",
    "disable_telemetry_events", "install_as_onnxruntime", "backend", "capi", "datasets", "benchmarking", "minimal",
    "quantization", "training",
    # errors; NotImplemented is here, too, but `from sardonyx import *` must not hide Python's own
    "SardonyxError", "Fail", "InvalidArgument", "NoSuchFile", "NoModel", "EngineError", "RuntimeException", "InvalidProtobuf",
    "ModelLoaded", "InvalidGraph", "EPFail", "ModelLoadCanceled", "ModelRequiresCompilation", "NotFound", "DeviceReset",
]  # fmt: skip

_MODULES = {
    "analysis.problems": ("Problem",),
    "as_onnxruntime": ("install_as_onnxruntime",),
    "build_info": (
        "disable_telemetry_events", "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_build_info",
        "get_device", "get_version_string", "has_collective_ops", "preload_dlls", "print_debug_info", "set_seed",
    ),
    "conversion.float16": ("convert_to_float16",),
    "conversion": ("Conversion", "Simplification", "convert_models", "simplify_model"),
    "enums": ("ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtExecutionProviderDevicePolicy"),
    "errors": (
        "SardonyxError", "Fail", "InvalidArgument", "NoSuchFile", "NoModel", "EngineError", "RuntimeException", "InvalidProtobuf",
        "ModelLoaded", "NotImplemented", "InvalidGraph", "EPFail", "ModelLoadCanceled", "ModelRequiresCompilation", "NotFound",
        "DeviceReset",
    ),
    "explanation": ("Explanation", "OrderMemory", "explain_memory", "explain_model"),
    "inspection": (
        "ModelSummary", "OperatorInfo", "check_model", "load_model", "load_value", "object_cache", "operators", "program_cache",
        "summarize_model",
    ),
    "session.bundling": ("CompiledBundle", "CompiledTarget", "compile_bundle"),
    "session.model_compiler": ("ModelCompiler", "OrtCompileApiFlags", "OrtExternalInitializerInfo"),
    "options": ("RunOptions", "SessionOptions", "set_global_thread_pool_sizes"),
    "provider_names": ("register_provider", "unregister_provider"),
    "runtime.adapters": ("AdapterFormat", "LoraAdapter"),
    "runtime.binding": ("IOBinding", "SessionIOBinding"),
    "runtime.devices": (
        "OrtAllocatorType", "OrtArenaCfg", "OrtDevice", "OrtDeviceMemoryType", "OrtDeviceVendorId", "OrtEpDevice",
        "OrtHardwareDevice", "OrtHardwareDeviceType", "OrtMemoryInfo", "OrtMemoryInfoDeviceType", "OrtMemType", "OrtSyncStream",
        "create_and_register_allocator", "create_and_register_allocator_v2", "get_ep_devices",
        "register_execution_provider_library", "unregister_execution_provider_library",
    ),
    "runtime.logs": ("set_default_logger_severity", "set_default_logger_verbosity"),
    "runtime.ports": ("ModelMetadata", "NodeArg", "OrtEpAssignedNode", "OrtEpAssignedSubgraph"),
    "runtime.sparse": ("OrtSparseFormat", "SparseTensor"),
    "runtime.values": ("OrtValue", "OrtValueVector", "copy_tensors"),
    "runtime.weight_store": ("PrepackedWeightsContainer",),
    "sample_inputs": ("Fitted", "fitting_inputs", "fitting_shapes", "random_inputs"),
    "session.inference_session": ("InferenceSession",),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SMALL = ("enums", "errors", "options", "session.inference_session")  # what a small program needs; they import no `logging`
_SUBMODULES = ("backend", "benchmarking", "capi", "datasets", "generation", "minimal", "providers", "quantization", "training")


def __getattr__(name: str) -> Any:
    home = name if name in _SUBMODULES else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _forks.importing if home in _SMALL else _forks.held_off:
        module = importlib.import_module(f"{__name__}.{home}")
    if name in _SUBMODULES:
        return module
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
