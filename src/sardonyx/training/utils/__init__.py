"""ONNX Runtime's `onnxruntime.training.utils`: element types of PyTorch and ONNX, and flattening."""

from __future__ import annotations

from typing import Any, Final

import torch

_CODES: Final = {
    torch.float32: 1,
    torch.uint8: 2,
    torch.int8: 3,
    torch.int16: 5,
    torch.int32: 6,
    torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10,
    torch.float64: 11,
    torch.complex64: 14,
    torch.complex128: 15,
    torch.bfloat16: 16,
}
_SCALAR_TYPES: Final = {
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Half": torch.float16,
    "Float": torch.float32,
    "Double": torch.float64,
    "ComplexFloat": torch.complex64,
    "ComplexDouble": torch.complex128,
    "Bool": torch.bool,
    "BFloat16": torch.bfloat16,
}


def pytorch_scalar_type_to_pytorch_dtype(dtype: str) -> Any:
    """The element type that TorchScript calls by this name."""
    if dtype not in _SCALAR_TYPES:
        raise RuntimeError(f"Unsupported dtype {dtype}")
    return _SCALAR_TYPES[dtype]


def pytorch_type_to_onnx_dtype(dtype_or_scalar_type: Any) -> int:
    """ONNX's number of an element type, which may be given as TorchScript's name of it."""
    dtype = dtype_or_scalar_type
    if isinstance(dtype, str):
        dtype = pytorch_scalar_type_to_pytorch_dtype(dtype)
    if dtype not in _CODES:
        raise RuntimeError(f"Unsupported dtype {dtype}")
    return _CODES[dtype]


def onnx_dtype_to_pytorch_dtype(dtype: int) -> Any:
    """The element type that has this number in ONNX."""
    for found, code in _CODES.items():
        if code == int(dtype):
            return found
    raise RuntimeError(f"Unsupported dtype {dtype}")
