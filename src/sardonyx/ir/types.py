"""The types of values: tensors with an element type and a shape, and the containers around them.

TensorType(FLOAT32, (symbol("N"), 3))   prints as  f32[N,3]
TensorType(FLOAT32, None)               prints as  f32[...]     (rank unknown)
SequenceType(TensorType(INT64, ()))     prints as  seq(i64[])
"""

from __future__ import annotations

from typing import Any, TypeAlias, Union

from sardonyx.dtypes import DType
from sardonyx.ir.dims import Dim
from sardonyx.records import dataclass

Shape: TypeAlias = tuple[Dim, ...]  # a missing shape (unknown rank) is None


def format_shape(shape: Shape | None) -> str:
    """`[N,3]`, or `[...]` where the rank is unknown."""
    return "[...]" if shape is None else f"[{','.join(str(dim) for dim in shape)}]"


@dataclass(frozen=True, slots=True)
class TensorType:
    """A dense tensor."""

    dtype: DType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype.name}{format_shape(self.shape)}"

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def ort(self) -> str:
        """ONNX Runtime's name for it."""
        return f"tensor({self.dtype.ort})"


@dataclass(frozen=True, slots=True)
class SparseTensorType:
    """A sparse tensor of a dense shape."""

    dtype: DType
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"sparse({self.dtype.name}{format_shape(self.shape)})"

    @property
    def ort(self) -> str:
        return f"sparse_tensor({self.dtype.ort})"


@dataclass(frozen=True, slots=True)
class SequenceType:
    """A list of values of one type."""

    element: Type

    def __str__(self) -> str:
        return f"seq({self.element})"

    @property
    def ort(self) -> str:
        return f"seq({self.element.ort})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    """A value that may be absent (None at run time)."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"

    @property
    def ort(self) -> str:
        return f"optional({self.element.ort})"


@dataclass(frozen=True, slots=True)
class MapType:
    """A dictionary from integers or strings to values of one type."""

    key: DType
    value: Type

    def __str__(self) -> str:
        return f"map({self.key.name},{self.value})"

    @property
    def ort(self) -> str:
        return f"map({self.key.ort},{self.value.ort})"


class PlainMaps(list[dict[Any, Any]]):
    """A sequence of maps whose keys and values are Python's own numbers and texts, made by the run: nothing in it is an array."""


Type: TypeAlias = Union[TensorType, SparseTensorType, SequenceType, OptionalType, MapType]


def is_tensor(type_: Type | None) -> bool:
    """Whether it is known to be a dense tensor."""
    return isinstance(type_, TensorType)
