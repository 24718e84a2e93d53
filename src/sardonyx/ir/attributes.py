"""Attributes of nodes as Python and NumPy values."""

from __future__ import annotations

from typing import Any

from sardonyx.ir.graph import Attr, AttrKind
from sardonyx.ir.tensor import Array, Tensor


def attribute_value(attr: Attr) -> Any:
    """One attribute's value as an operator takes it."""
    if attr.kind is AttrKind.TENSOR:
        return _read_only(attr.value)
    if attr.kind is AttrKind.TENSORS:
        return tuple(map(_read_only, attr.value))
    if attr.kind in (AttrKind.FLOATS, AttrKind.INTS, AttrKind.STRINGS):
        return tuple(attr.value)
    return attr.value


def _read_only(tensor: Tensor) -> Array:
    """The data of an attribute; what leaves a program and is read-only is copied, so nobody can change it."""
    array = tensor.numpy()
    array.flags.writeable = False
    return array
