"""Files that hold one value: TensorProto, SparseTensorProto, SequenceProto, MapProto, OptionalProto.

Test data comes in such files (input_0.pb ...). A file does not say which of the messages it holds; the type of the value does.
A tensor becomes an array, a sequence a list, a map a dict, an absent optional None.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx import schema, wire
from sardonyx.formats.onnx.context import ReadContext
from sardonyx.formats.onnx.schema import tags
from sardonyx.formats.onnx.tensors import read_sparse, read_tensor
from sardonyx.formats.onnx.wire import WireError, Writer, encode_text, fields, signed, signed32
from sardonyx.formats.onnx.write import write_sparse, write_tensor
from sardonyx.ir.graph import SparseConstant
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, Type

_MAP_TAGS: Final = tags("Map")
_KIND_BASE: Final = 2  # what the field number of an element exceeds its elem_type by
_TENSOR, _SPARSE, _SEQUENCE, _MAP, _OPTIONAL = 3, 4, 5, 6, 7  # the same field numbers in SequenceProto and OptionalProto


def root_message(type_: Type | None) -> str:
    """The message a file with a value of this type holds."""
    if isinstance(type_, SequenceType):
        return "Sequence"
    if isinstance(type_, OptionalType):
        return "Optional"
    if isinstance(type_, MapType):
        return "Map"
    return "SparseTensor" if isinstance(type_, SparseTensorType) else "Tensor"


def read_value(ctx: ReadContext) -> Any:
    """The value in the context's buffer, which holds the message `ctx.root`."""
    value = _READERS[ctx.root](ctx, 0, len(ctx.buf), 0)
    ctx.raise_problems()
    return value


def _tensor(ctx: ReadContext, pos: int, end: int, depth: int) -> NDArray[Any] | None:
    tensor = read_tensor(ctx, pos, end)
    return None if tensor is None else tensor.numpy()


def _sparse(ctx: ReadContext, pos: int, end: int, depth: int) -> SparseConstant | None:
    return read_sparse(ctx, pos, end)[0]


def _sequence(ctx: ReadContext, pos: int, end: int, depth: int) -> list[Any]:
    ctx.check_depth(depth, pos)
    items: list[Any] = []
    kinds: set[int] = set()
    for tag, start, stop in fields(ctx.buf, pos, end):
        read = _BY_FIELD.get(tag >> 3) if tag & 7 == 2 else None
        if read is not None:
            items.append(read(ctx, start, stop, depth + 1))
            kinds.add(tag >> 3)
            if len(kinds) > 1:
                raise WireError("a sequence holds elements of different kinds", start)
        else:
            schema.check_skipped("Sequence", tag, stop - 1)
    return items


def _optional(ctx: ReadContext, pos: int, end: int, depth: int) -> Any:
    ctx.check_depth(depth, pos)
    value = None
    for tag, start, stop in fields(ctx.buf, pos, end):
        read = _BY_FIELD.get(tag >> 3) if tag & 7 == 2 else None
        if read is not None:
            value = read(ctx, start, stop, depth + 1)
        else:
            schema.check_skipped("Optional", tag, stop - 1)
    return value


def _map(ctx: ReadContext, pos: int, end: int, depth: int) -> dict[Any, Any]:
    ctx.check_depth(depth, pos)
    key_type = 0
    numbers: list[int] = []
    strings: list[str] = []
    values: list[Any] = []
    for tag, start, stop in fields(ctx.buf, pos, end):
        if tag == _MAP_TAGS.key_type:
            key_type = signed32(start)
        elif tag == _MAP_TAGS.keys:
            numbers.append(signed(start))
        elif tag == _MAP_TAGS.keys_packed:
            numbers.extend(wire.packed_varints(ctx.buf, start, stop).view(np.int64).tolist())
        elif tag == _MAP_TAGS.string_keys:
            strings.append(wire.text(ctx.buf, start, stop))
        elif tag == _MAP_TAGS.values:
            values = _sequence(ctx, start, stop, depth + 1)
        else:
            schema.check_skipped("Map", tag, stop - 1)
    keys: list[Any] = list(strings) if key_type == dtypes.STRING.onnx else list(numbers)
    if len(keys) != len(values):
        ctx.problem(f"a map ({ctx.location(pos - 1)}) has {len(keys)} keys and {len(values)} values")
        return {}
    return dict(zip(keys, values))


_BY_FIELD: Final = {_TENSOR: _tensor, _SPARSE: _sparse, _SEQUENCE: _sequence, _MAP: _map, _OPTIONAL: _optional}
_READERS: Final = {"Tensor": _tensor, "SparseTensor": _sparse, "Sequence": _sequence, "Map": _map, "Optional": _optional}


def write_value(value: Any, name: str = "") -> Writer:
    """The message of a value: an array, a list, a dict, a SparseConstant, or None (an absent optional)."""
    if isinstance(value, SparseConstant):
        return write_sparse(value, name)
    out = Writer()
    if value is None:
        out.text(1, name)
        out.integer(2, 0)
    elif isinstance(value, dict):
        _write_map(out, value, name)
    elif isinstance(value, list):
        out.text(1, name)
        fields_used = {_field_of(item) for item in value}
        if len(fields_used) > 1:
            raise InvalidArgument("a sequence cannot be written: its elements are of different kinds")
        out.integer(2, max(fields_used, default=_TENSOR) - _KIND_BASE)
        for item in value:
            out.message(_field_of(item), write_value(item))
    else:
        return write_tensor(from_numpy(value), name)
    return out


def write_optional(value: Any, name: str = "") -> Writer:
    """The message of an optional that holds `value`, or of an absent one for None."""
    if value is None:
        return write_value(None, name)
    out = Writer()
    out.text(1, name)
    out.integer(2, _field_of(value) - _KIND_BASE)
    out.message(_field_of(value), write_value(value))
    return out


def _write_map(out: Writer, value: dict[Any, Any], name: str) -> None:
    out.text(1, name)
    if all(isinstance(key, str) for key in value):
        out.integer(2, dtypes.STRING.onnx)
        for key in value:
            out.blob(4, encode_text(key))
    else:
        out.integer(2, dtypes.INT64.onnx)
        out.integer_list(3, [int(key) for key in value])
    out.message(5, write_value([np.asarray(item) if isinstance(item, (int, float, str)) else item for item in value.values()]))


def _field_of(value: Any) -> int:
    """The field that holds a value in SequenceProto and OptionalProto."""
    if isinstance(value, SparseConstant):
        return _SPARSE
    if isinstance(value, list):
        return _SEQUENCE
    if isinstance(value, dict):
        return _MAP
    if value is None:
        return _OPTIONAL
    if isinstance(value, (np.ndarray, np.generic)):
        return _TENSOR
    raise InvalidArgument(f"a {type(value).__name__} cannot be written; expected an array, a list, a dict or None")
