"""The classes ONNX Runtime defines in Python, in the module where it does."""

from __future__ import annotations

from sardonyx.model_compiler import ModelCompiler
from sardonyx.runtime.adapters import AdapterFormat
from sardonyx.runtime.binding import IOBinding
from sardonyx.runtime.devices import OrtDevice, OrtDeviceVendorId
from sardonyx.runtime.sparse import SparseTensor
from sardonyx.runtime.values import OrtValue, copy_tensors
from sardonyx.session import InferenceSession, check_and_normalize_provider_args

Session = InferenceSession

__all__ = [
    "AdapterFormat", "IOBinding", "InferenceSession", "ModelCompiler", "OrtDevice", "OrtDeviceVendorId", "OrtValue", "Session",
    "SparseTensor", "check_and_normalize_provider_args", "copy_tensors",
]  # fmt: skip
