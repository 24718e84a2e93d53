"""What a program chooses: element types, formats, modes and calibration methods of a quantization.

QuantType.QInt8.tensor_type   3, TensorProto.INT8
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from sardonyx import dtypes
from sardonyx.dtypes import DType

_Choice = TypeVar("_Choice", bound="_NamedChoice")


class _NamedChoice(Enum):
    """An enumeration whose members print as their names."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls: type[_Choice], name: str) -> _Choice:
        """The member of this name; ValueError if there is none."""
        try:
            return cls[name]
        except KeyError:
            raise ValueError(f"{name!r} is no {cls.__name__}; there are {', '.join(cls.__members__)}") from None


class QuantizationMode(_NamedChoice):
    """Which operators compute: those that quantize their activations at run time, or those with fixed scales."""

    IntegerOps = 0
    QLinearOps = 1


class QuantizedValueType(_NamedChoice):
    """Whether a quantized value comes out of a node (or is fed), or is a constant."""

    Input = 0
    Initializer = 1


class QuantType(_NamedChoice):
    """Element types of quantized tensors."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @property
    def dtype(self) -> DType:
        """The element type."""
        return _DTYPES[self]

    @property
    def tensor_type(self) -> int:
        """The number of the element type in ONNX, a TensorProto.DataType."""
        return self.dtype.onnx


_DTYPES = {
    QuantType.QInt8: dtypes.INT8,
    QuantType.QUInt8: dtypes.UINT8,
    QuantType.QFLOAT8E4M3FN: dtypes.FLOAT8E4M3FN,
    QuantType.QInt16: dtypes.INT16,
    QuantType.QUInt16: dtypes.UINT16,
    QuantType.QInt4: dtypes.INT4,
    QuantType.QUInt4: dtypes.UINT4,
}


class QuantFormat(_NamedChoice):
    """How a quantized model is written: with operators on integers, or with QuantizeLinear and DequantizeLinear pairs."""

    QOperator = 0
    QDQ = 1


class CalibrationMethod(Enum):
    """How the range of an activation follows from what was seen of it."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


def element_type(given: QuantType | DType | int) -> DType:
    """The element type that a QuantType, or ONNX's number of a type, stands for."""
    if isinstance(given, QuantType):
        return given.dtype
    return given if isinstance(given, DType) else dtypes.from_onnx(int(given))
