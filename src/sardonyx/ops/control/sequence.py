"""Sequences and optional values.

A sequence is a Python list, an empty optional is None. In a type `seq(f32[N,?1])` a named dimension is the same in every element,
an anonymous one may differ from element to element: whoever takes an element out renews it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.types import OptionalType, SequenceType, TensorType, Type
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, common_shape, normalize_axis

Array = NDArray[Any]


def common_type(a: Type | None, b: Type | None) -> Type | None:
    """What two types have in common; None if they are of different kinds."""
    if isinstance(a, TensorType) and isinstance(b, TensorType) and a.dtype is b.dtype:
        return TensorType(a.dtype, common_shape(a.shape, b.shape))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        element = common_type(a.element, b.element)
        return None if element is None else SequenceType(element)
    if (isinstance(a, OptionalType) and b is not None) or (isinstance(b, OptionalType) and a is not None):
        # A value where an optional is expected is an optional that holds it.
        inner = [type_.element if isinstance(type_, OptionalType) else type_ for type_ in (a, b)]
        element = common_type(*inner)
        return None if element is None else OptionalType(element)
    return a if a == b else None


def renewed(type_: Type | None) -> Type | None:
    """The type with new symbols for its anonymous dimensions: another value, of which no more is known."""
    if isinstance(type_, TensorType) and type_.shape is not None:
        shape = (dim if isinstance(dim, int) or not dim.is_anonymous else dims.fresh() for dim in type_.shape)
        return TensorType(type_.dtype, tuple(shape))
    return type_


def _index(position: Array | int, low: int, high: int, count: int) -> int:
    """A position counted from the front; `low` to `high` are allowed."""
    index = int(np.asarray(position).reshape(()))
    if not low <= index <= high:
        allowed = f"expected {low} to {high}" if low <= high else "there is no element"
        raise IndexError(f"position {index} is out of range for a sequence of {count}: {allowed}")
    return index + count if index < 0 else index


def _at(sequence: list[Any], position: Array) -> Any:
    return sequence[_index(position, -len(sequence), len(sequence) - 1, len(sequence))]


def _same_dtypes(tensors: list[Any]) -> None:
    found = {dtypes.from_numpy(tensor.dtype) for tensor in tensors}
    if len(found) > 1:
        listed = " and ".join(sorted(dtype.name for dtype in found))
        raise ValueError(f"a sequence holds tensors of one element type, found {listed}")


def _construct(*tensors: Any) -> list[Any]:
    _same_dtypes(list(tensors))
    return list(tensors)


def _empty() -> list[Any]:
    return []


def _erase(sequence: list[Any], position: Array | None = None) -> list[Any]:
    count = len(sequence)
    index = _index(-1 if position is None else position, -count, count - 1, count)
    return sequence[:index] + sequence[index + 1 :]


def _insert(sequence: list[Any], tensor: Any, position: Array | None = None) -> list[Any]:
    count = len(sequence)
    _same_dtypes([*sequence[:1], tensor])
    index = count if position is None else _index(position, -count, count, count)
    return [*sequence[:index], tensor, *sequence[index:]]


def _length(sequence: list[Any]) -> Array:
    return np.asarray(len(sequence), np.int64)


def _chunks(size: int, split: Array | None) -> list[int]:
    """The lengths of the parts an axis of this size is split into."""
    if split is None or split.ndim == 0:
        length = 1 if split is None else int(split)
        if length < 1:
            raise ValueError(f"split is {length}; a length must be positive")
        return [min(length, size - start) for start in range(0, size, length)]
    lengths = [int(length) for length in split.reshape(-1)]
    if any(length < 0 for length in lengths) or sum(lengths) != size:
        raise ValueError(f"split is {lengths}, of sum {sum(lengths)}; expected lengths whose sum is {size}, the size of the axis")
    return lengths


def _split_to_sequence(x: Array, split: Array | None = None, *, axis: int, keepdims: int) -> list[Array]:
    axis = normalize_axis(axis, x.ndim)
    lengths = _chunks(x.shape[axis], split)
    parts = [np.asarray(part) for part in np.split(x, np.cumsum(lengths)[:-1], axis)] if lengths else []
    if _are_single(split) and not keepdims:
        return [part.squeeze(axis) for part in parts]
    return parts


def _are_single(split: Array | None) -> bool:
    """Whether parts are single elements, from which `keepdims` may take the axis.

    The operator's text says that `keepdims` counts for nothing if a split is given. ONNX Runtime heeds it for a length of 1, and
    exporters of PyTorch write `unbind` like that.
    """
    return split is None or (split.ndim == 0 and int(split) == 1)


def _concat_from_sequence(sequence: list[Array], *, axis: int, new_axis: int) -> Array:
    if not sequence:
        raise ValueError("the sequence is empty: there is nothing to concatenate")
    rank = sequence[0].ndim + (1 if new_axis else 0)
    axis = normalize_axis(axis, rank)
    return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)


def _infer_construct(ctx: InferContext) -> InferResult:
    element = ctx.type(0)
    for type_ in ctx.inputs[1:]:
        element = common_type(element, type_)
    return None if element is None else SequenceType(element)


def _infer_empty(ctx: InferContext) -> InferResult:
    code = ctx.attr("dtype")
    return SequenceType(TensorType(dtypes.FLOAT32 if code is None else dtypes.from_onnx(code), None))


def _infer_insert(ctx: InferContext) -> InferResult:
    element = common_type(ctx.element(0), ctx.type(1))
    return ctx.type(0) if element is None else SequenceType(element)


def _infer_split(ctx: InferContext) -> InferResult:
    type_ = ctx.type(0)
    if not isinstance(type_, TensorType):
        return None
    if type_.shape is None:
        return SequenceType(type_)
    axis = normalize_axis(ctx.attr("axis"), len(type_.shape))
    size = type_.shape[axis]
    before, after = type_.shape[:axis], type_.shape[axis + 1 :]
    split = ctx.constant(1) if ctx.has(1) else None
    if not ctx.has(1) or (split is not None and _are_single(split)):
        middle: tuple[Dim, ...] = (1,) if ctx.attr("keepdims") else ()
        return SequenceType(TensorType(type_.dtype, before + middle + after))
    given = ctx.type(1)
    if split is None and not ctx.attr("keepdims") and not (isinstance(given, TensorType) and given.shape):
        return SequenceType(TensorType(type_.dtype, None))  # a length of 1 would take the axis away
    lengths: set[int] = set(_chunks(size, split)) if isinstance(size, int) and split is not None else set()
    length: Dim = lengths.pop() if len(lengths) == 1 else ctx.fresh()
    return SequenceType(TensorType(type_.dtype, (*before, length, *after)))


def _infer_concat(ctx: InferContext) -> InferResult:
    element = ctx.element(0)
    if not isinstance(element, TensorType) or element.shape is None:
        return element if isinstance(element, TensorType) else None
    shape = list(element.shape)
    new_axis = bool(ctx.attr("new_axis"))
    axis = normalize_axis(ctx.attr("axis"), len(shape) + new_axis)
    shape[axis : axis + (not new_axis)] = [ctx.fresh()]
    return renewed(TensorType(element.dtype, tuple(shape)))


op("SequenceAt", since=11, eval=_at, infer=lambda ctx: renewed(ctx.element(0)))
op("SequenceConstruct", since=11, eval=_construct, infer=_infer_construct, traits=Trait.QUIET)
op("SequenceEmpty", since=11, eval=_empty, infer=_infer_empty)
op("SequenceErase", since=11, eval=_erase, infer=lambda ctx: ctx.type(0))
op("SequenceInsert", since=11, eval=_insert, infer=_infer_insert)
op("SequenceLength", since=11, eval=_length, infer=lambda ctx: ())
op("SplitToSequence", since=11, eval=_split_to_sequence, infer=_infer_split)
op("ConcatFromSequence", since=11, eval=_concat_from_sequence, infer=_infer_concat)


def _optional(value: Any = None) -> Any:
    return (value,)  # a tuple, so that None is the value of the output and not its absence


def _infer_optional(ctx: InferContext) -> InferResult:
    if ctx.has(0):
        held = ctx.type(0)
        return None if held is None else OptionalType(held)
    declared: Type | None = ctx.attr("type")
    if declared is None:
        raise ValueError("an Optional without input needs the attribute type")
    return declared if isinstance(declared, OptionalType) else OptionalType(declared)


def _has_element(value: Any = None) -> Array:
    return np.asarray(value is not None)


def _get_element(value: Any) -> Any:
    if value is None:
        raise ValueError("the optional value is empty: it has no element to get")
    return value


def _infer_get_element(ctx: InferContext) -> InferResult:
    type_ = ctx.type(0)
    return type_.element if isinstance(type_, OptionalType) else type_


op("Optional", since=15, eval=_optional, infer=_infer_optional)
op("OptionalHasElement", since=15, eval=_has_element, infer=lambda ctx: ())
op("OptionalGetElement", since=15, eval=_get_element, infer=_infer_get_element)
