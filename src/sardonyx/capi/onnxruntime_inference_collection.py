"""The classes ONNX Runtime defines in Python, in the module where it does."""

from __future__ import annotations

from sardonyx.capi import _pybind_state as C  # noqa: N812 - ONNX Runtime's name for it
from sardonyx.runtime.adapters import AdapterFormat
from sardonyx.runtime.binding import IOBinding
from sardonyx.runtime.devices import OrtDevice, OrtDeviceVendorId, get_ort_device_type, get_vendor_id_for_device_type
from sardonyx.runtime.sparse import SparseTensor
from sardonyx.runtime.values import OrtValue, copy_tensors
from sardonyx.session.inference_session import InferenceSession, check_and_normalize_provider_args
from sardonyx.session.model_compiler import InitializerLocation, ModelCompiler

Session = InferenceSession
GetInitializerLocationFunc = GetInitializerLocationWrapperFunc = InitializerLocation


def make_get_initializer_location_func_wrapper(get_initializer_location_func: InitializerLocation) -> InitializerLocation:
    """The function itself: what it is given are OrtValues already."""
    return get_initializer_location_func


__all__ = [
    "AdapterFormat", "C", "GetInitializerLocationFunc", "GetInitializerLocationWrapperFunc", "IOBinding", "InferenceSession",
    "ModelCompiler", "OrtDevice", "OrtDeviceVendorId", "OrtValue", "Session", "SparseTensor", "check_and_normalize_provider_args",
    "copy_tensors", "get_ort_device_type", "get_vendor_id_for_device_type", "make_get_initializer_location_func_wrapper",
]  # fmt: skip
