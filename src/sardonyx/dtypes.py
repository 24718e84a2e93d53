"""The element types of tensors: one table with every name a type goes by.

    FLOAT32.onnx == 1, .name == "f32", .ort == "float", .numpy == np.dtype("float32"), .bits == 32

Types NumPy does not have (bfloat16, float8, float6, float4, int4, int2 ...) are ml_dtypes types, which are imported when one of
them is first asked for: most models have none. Their arrays hold one element a byte; only the bytes in a file are packed (`bits`
says how wide an element is there).
Strings are arrays of dtype object that hold `str`.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from sardonyx.forks import importing


class DType:
    """One element type; compare with `is` or `==` (each type exists once). Nobody changes it."""

    __slots__ = ("_numpy_name", "bits", "name", "numpy", "onnx", "ort")

    numpy: np.dtype[Any]

    def __init__(self, name: str, onnx: int, ort: str, numpy: str | type, bits: int) -> None:
        self.name: Final = name  # our short name, in the text form and the signature tables
        self.onnx: Final = onnx  # TensorProto.DataType
        self.ort: Final = ort  # what ONNX Runtime prints: tensor(<ort>)
        self.bits: Final = bits  # width of one element in a file
        if isinstance(numpy, str):
            self._numpy_name = numpy
        else:
            self.numpy = np.dtype(numpy)

    def __getattr__(self, name: str) -> Any:
        """`numpy` of a type of ml_dtypes, once."""
        if name != "numpy":
            raise AttributeError(f"an element type has no attribute {name!r}", name=name, obj=self)
        with importing:
            import ml_dtypes  # lazy: most models have none of its types

        self.numpy = np.dtype(getattr(ml_dtypes, self._numpy_name))
        return self.numpy

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return from_name, (self.name,)

    @property
    def is_float(self) -> bool:
        """Any binary floating point type, of 4 to 64 bits."""
        return self in FLOATS

    @property
    def is_integer(self) -> bool:
        """A signed or unsigned integer of 2 to 64 bits; bool is not one."""
        return self in INTEGERS

    @property
    def is_packed(self) -> bool:
        """Whether a file stores several elements in one byte."""
        return 0 < self.bits < 8

    def nbytes(self, count: int) -> int:
        """Size in a file of `count` elements."""
        return (count * self.bits + 7) // 8


FLOAT32: Final = DType("f32", 1, "float", np.float32, 32)
UINT8: Final = DType("u8", 2, "uint8", np.uint8, 8)
INT8: Final = DType("i8", 3, "int8", np.int8, 8)
UINT16: Final = DType("u16", 4, "uint16", np.uint16, 16)
INT16: Final = DType("i16", 5, "int16", np.int16, 16)
INT32: Final = DType("i32", 6, "int32", np.int32, 32)
INT64: Final = DType("i64", 7, "int64", np.int64, 64)
STRING: Final = DType("str", 8, "string", object, 0)
BOOL: Final = DType("bool", 9, "bool", np.bool_, 8)
FLOAT16: Final = DType("f16", 10, "float16", np.float16, 16)
FLOAT64: Final = DType("f64", 11, "double", np.float64, 64)
UINT32: Final = DType("u32", 12, "uint32", np.uint32, 32)
UINT64: Final = DType("u64", 13, "uint64", np.uint64, 64)
COMPLEX64: Final = DType("c64", 14, "complex64", np.complex64, 64)
COMPLEX128: Final = DType("c128", 15, "complex128", np.complex128, 128)
BFLOAT16: Final = DType("bf16", 16, "bfloat16", "bfloat16", 16)
FLOAT8E4M3FN: Final = DType("f8e4m3fn", 17, "float8e4m3fn", "float8_e4m3fn", 8)
FLOAT8E4M3FNUZ: Final = DType("f8e4m3fnuz", 18, "float8e4m3fnuz", "float8_e4m3fnuz", 8)
FLOAT8E5M2: Final = DType("f8e5m2", 19, "float8e5m2", "float8_e5m2", 8)
FLOAT8E5M2FNUZ: Final = DType("f8e5m2fnuz", 20, "float8e5m2fnuz", "float8_e5m2fnuz", 8)
UINT4: Final = DType("u4", 21, "uint4", "uint4", 4)
INT4: Final = DType("i4", 22, "int4", "int4", 4)
FLOAT4E2M1: Final = DType("f4e2m1", 23, "float4e2m1", "float4_e2m1fn", 4)
FLOAT8E8M0: Final = DType("f8e8m0", 24, "float8e8m0", "float8_e8m0fnu", 8)
UINT2: Final = DType("u2", 25, "uint2", "uint2", 2)
INT2: Final = DType("i2", 26, "int2", "int2", 2)
FLOAT6E2M3: Final = DType("f6e2m3", 27, "float6e2m3", "float6_e2m3fn", 6)
FLOAT6E3M2: Final = DType("f6e3m2", 28, "float6e3m2", "float6_e3m2fn", 6)

ALL: Final[tuple[DType, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, DType))
FLOATS: Final = frozenset(
    {FLOAT32, FLOAT16, FLOAT64, BFLOAT16, FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ}
    | {FLOAT4E2M1, FLOAT8E8M0, FLOAT6E2M3, FLOAT6E3M2}
)
SIGNED: Final = frozenset((INT8, INT16, INT32, INT64, INT4, INT2))
UNSIGNED: Final = frozenset((UINT8, UINT16, UINT32, UINT64, UINT4, UINT2))
INTEGERS: Final = SIGNED | UNSIGNED

_BY_ONNX: Final = {dtype.onnx: dtype for dtype in ALL}
_BY_NAME: Final = {dtype.name: dtype for dtype in ALL}
_BY_ORT: Final = {dtype.ort: dtype for dtype in ALL}
_BY_NUMPY: Final = {dtype.numpy: dtype for dtype in ALL if not hasattr(dtype, "_numpy_name")}  # others: see `from_numpy`


def from_onnx(code: int) -> DType:
    """The type with this TensorProto.DataType number; ValueError if there is none."""
    try:
        return _BY_ONNX[code]
    except KeyError:
        raise ValueError(f"{code} is not a tensor element type; ONNX defines 1 to {max(_BY_ONNX)}") from None


def from_name(name: str) -> DType:
    """The type with this short name (f32, i64 ...); ValueError if there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ValueError(f"{name!r} is not an element type; known: {', '.join(_BY_NAME)}") from None


def from_ort(name: str) -> DType:
    """The type ONNX Runtime calls by this name (float, int64 ...)."""
    try:
        return _BY_ORT[name]
    except KeyError:
        raise ValueError(f"{name!r} is not an element type; known: {', '.join(_BY_ORT)}") from None


def from_numpy(dtype: np.dtype[Any] | type[Any]) -> DType:
    """The type of an array's dtype; every NumPy string kind is STRING; ValueError if ONNX has no such type."""
    dtype = np.dtype(dtype)
    found = _BY_NUMPY.get(dtype)
    if found is None and len(_BY_NUMPY) < len(ALL) and "ml_dtypes" in sys.modules:
        _BY_NUMPY.update({each.numpy: each for each in ALL})
        found = _BY_NUMPY.get(dtype)
    if found is not None:
        return found
    if dtype.kind in "USOVT":  # fixed-width text, bytes, objects, void and numpy 2's StringDType
        return STRING
    found = _BY_NUMPY.get(dtype.newbyteorder("="))
    if found is not None:
        return found
    raise ValueError(f"NumPy dtype {dtype} has no ONNX element type")
