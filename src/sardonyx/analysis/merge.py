"""Two descriptions of one value's type, put together."""

from __future__ import annotations

from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from sardonyx.ops.infer import merge_shapes
from sardonyx.ops.signature import type_text


class TypeConflict(ValueError):
    """The two differ in more than their shapes."""


def merge_types(inferred: Type, declared: Type) -> Type:
    """What both say together: numbers win over symbols, names over anonymous symbols.

    Raises TypeConflict if the element types differ, ValueError if the shapes contradict each other.
    """
    if inferred == declared:
        return inferred
    if isinstance(inferred, TensorType) and isinstance(declared, TensorType) and inferred.dtype is declared.dtype:
        return TensorType(inferred.dtype, merge_shapes(inferred.shape, declared.shape))
    if isinstance(inferred, SparseTensorType) and isinstance(declared, SparseTensorType) and inferred.dtype is declared.dtype:
        return SparseTensorType(inferred.dtype, merge_shapes(inferred.shape, declared.shape))
    if isinstance(inferred, SequenceType) and isinstance(declared, SequenceType):
        return SequenceType(merge_types(inferred.element, declared.element))
    if isinstance(inferred, OptionalType) and isinstance(declared, OptionalType):
        return OptionalType(merge_types(inferred.element, declared.element))
    if isinstance(inferred, MapType) and isinstance(declared, MapType) and inferred.key is declared.key:
        return MapType(inferred.key, merge_types(inferred.value, declared.value))
    if isinstance(inferred, OptionalType):  # a value that is there is an optional one: the declaration may be the narrower
        return merge_types(inferred.element, declared)
    if isinstance(declared, OptionalType):
        return OptionalType(merge_types(inferred, declared.element))
    raise TypeConflict(f"the type is {type_text(inferred)}, but the model declares {type_text(declared)}")
