"""Memory shared with other libraries: DLPack capsules in and out, and arrays over raw addresses.

NumPy moves the capsules and owns their lifetime. It knows no bfloat16 or float8, so for these the element type in the
capsule's header is set to unsigned integers of the same width before NumPy sees it, and back after it made one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.dtypes import DType

Array = NDArray[Any]

_CPU_DEVICES: Final = (1, 3, 11)  # kDLCPU, and pinned host memory of CUDA and ROCm
_UINT: Final = 1
_CODES: Final = {  # DLDataTypeCode of the types NumPy has no name for
    dtypes.BFLOAT16: 4,
    dtypes.FLOAT8E4M3FN: 10,
    dtypes.FLOAT8E4M3FNUZ: 11,
    dtypes.FLOAT8E5M2: 12,
    dtypes.FLOAT8E5M2FNUZ: 13,
    dtypes.FLOAT8E8M0: 14,
}
_TYPES: Final = {(code, dtype.bits): dtype for dtype, code in _CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class _VersionedTensor(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class _Capsule:
    """A capsule with the methods through which NumPy asks for it."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def array_at(address: int, dtype: DType, shape: Sequence[int], owner: Any = None) -> Array:
    """An array over memory somebody else allocated; `owner` is kept alive as long as the array."""
    shape = tuple(shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {list(shape)} has a negative size")
    count = prod(shape)
    if count == 0:
        return np.empty(shape, dtype.numpy)
    if address == 0:
        raise ValueError(f"address 0 given for {count} elements of {dtype.ort}")
    buffer: Any = (ctypes.c_uint8 * (count * dtype.numpy.itemsize)).from_address(address)
    buffer._owner = owner
    array: Array = np.frombuffer(buffer, dtype.numpy)
    return array.reshape(shape)


def _header(capsule: Any) -> _Tensor:
    """The part of a capsule that says what it holds; TypeError if it is no capsule, or one that was used already."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_IsValid.restype = ctypes.c_int
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    if type(capsule).__name__ == "PyCapsule":
        if api.PyCapsule_IsValid(capsule, b"dltensor"):
            return _Tensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
        if api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
            tensor: _Tensor = _VersionedTensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor_versioned")).tensor
            return tensor
    raise TypeError(f"from_dlpack expected a valid DLPack capsule named 'dltensor', got {capsule!r}")


def _capsule_of(data: Any) -> Any:
    if not hasattr(data, "__dlpack__"):
        return data
    device = data.__dlpack_device__() if hasattr(data, "__dlpack_device__") else (1, 0)
    if int(device[0]) not in _CPU_DEVICES:
        raise RuntimeError(f"the tensor is on DLPack device {tuple(map(int, device))}, expected the CPU (1, 0): copy it first")
    try:
        return data.__dlpack__()
    except BufferError:  # read-only memory can only be described by newer capsules
        return data.__dlpack__(max_version=(1, 0))


def from_dlpack(data: Any) -> Array:
    """The array over the memory of a DLPack capsule, or of anything with `__dlpack__`; nothing is copied."""
    is_bool = str(getattr(getattr(data, "dtype", None), "name", getattr(data, "dtype", ""))) in ("bool", "bool_", "torch.bool")
    capsule = _capsule_of(data)
    header = _header(capsule)
    if header.device_type not in _CPU_DEVICES:
        raise RuntimeError(f"the tensor is on DLPack device {header.device_type}, expected the CPU: copy it first")
    found: DType | None = _TYPES.get((header.code, header.bits))
    if found is not None:
        header.code = _UINT
    elif header.bits < 8 or header.lanes != 1:
        raise TypeError(f"DLPack type code {header.code} with {header.bits} bits and {header.lanes} lanes is not supported")
    array: Array = np.from_dlpack(_Capsule(capsule))
    if found is not None:
        array = array.view(found.numpy)
    elif is_bool and array.dtype == np.uint8:  # how libraries exported bool before DLPack had it
        array = array.view(np.bool_)
    return array


def writable(array: Array) -> Array:
    """The same memory without NumPy's read-only mark, which it puts on everything out of an unversioned capsule."""
    if array.flags.writeable or not array.flags.c_contiguous:
        return array
    return array_at(array.ctypes.data, dtypes.from_numpy(array.dtype), array.shape, owner=array)


def to_dlpack(array: Array, max_version: tuple[int, int] | None = None) -> Any:
    """A capsule over an array's memory; BufferError if the array is read-only and the consumer cannot be told so."""
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is dtypes.STRING:
        raise BufferError("strings cannot be exported through DLPack")
    if dtype.is_packed:
        raise BufferError(
            f"tensor({dtype.ort}) cannot be exported through DLPack: it is kept one element a byte here, packed there"
        )
    code = _CODES.get(dtype)
    plain = array if code is None else array.view(f"u{array.dtype.itemsize}")
    capsule = plain.__dlpack__() if max_version is None else plain.__dlpack__(max_version=max_version)
    if code is not None:
        _header(capsule).code = code
    return capsule


def holds_uint8(capsule: Any) -> bool:
    """Whether a capsule's elements are unsigned bytes; the capsule stays unused."""
    header = _header(capsule)
    return bool(header.code == _UINT and header.bits == 8)
