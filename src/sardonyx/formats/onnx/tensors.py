"""TensorProto and SparseTensorProto to constants, without copying their bytes.

The data of a tensor is in one of these places:

    raw_data        the packed little-endian elements: a slice of the file
    float_data ...  typed fields. Packed floats are raw bytes in all but name, so these are slices, too; integers are varints and
                    must be decoded. int32_data carries every type of up to 32 bits but float32: f16 and bf16 as their
                    bits, int4 and int2 as the packed bytes, float6 one element a number
    external_data   another file: see external.py

Sizes are checked while reading, so that a tensor never claims data it does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.errors import Fail
from sardonyx.formats.onnx import schema, wire
from sardonyx.formats.onnx.context import ReadContext
from sardonyx.formats.onnx.external import Refused
from sardonyx.formats.onnx.packings import read_packings
from sardonyx.formats.onnx.schema import tags
from sardonyx.formats.onnx.wire import WireError, fields, signed, signed32
from sardonyx.formats.shared.dense import (
    MAX_RANK,
    Unfit,
    check_extent,
    check_sparse,
    loader_of,
    raw_tensor,
    string_tensor,
    type_text,
)
from sardonyx.formats.shared.source import as_memoryview
from sardonyx.ir.graph import SparseConstant
from sardonyx.ir.tensor import ExternalLocation, Tensor, pack

_TENSOR, _SPARSE, _ENTRY = tags("Tensor"), tags("SparseTensor"), tags("StringStringEntry")
_SMALL_CHUNK: Final = 64
_RUN: Final = 32  # after so many equal tags in a row the rest is decoded in bulk

_FLOAT_FIELDS: Final = {4: 4, 10: 8}  # field number: bytes an element
_INT32_DATA: Final = 5
_INTEGER_FIELDS: Final = (_INT32_DATA, 7, 11)
_FLOAT6_BITS: Final = 6
_FIELD_NAMES: Final = {4: "float_data", 5: "int32_data", 6: "string_data", 7: "int64_data", 10: "double_data", 11: "uint64_data"}
_FIELD_OF: Final = {
    dtypes.FLOAT32: 4, dtypes.COMPLEX64: 4, dtypes.FLOAT64: 10, dtypes.COMPLEX128: 10, dtypes.INT64: 7,
    dtypes.UINT32: 11, dtypes.UINT64: 11, dtypes.STRING: 6,
}  # fmt: skip


class TensorRecord:
    """The fields of one TensorProto, not yet checked.

    `typed` has, by field number, the chunks of the typed data fields: bytes for floats; arrays or lists for integers.
    """

    __slots__ = (
        "data_type", "dims", "doc", "external", "is_external", "metadata", "name", "offset", "raw", "segmented",
        "strings", "typed",
    )  # fmt: skip

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.dims: list[int] = []
        self.data_type = 0
        self.name = ""
        self.doc = ""
        self.metadata: dict[str, str] = {}
        self.raw: memoryview | None = None
        self.typed: dict[int, list[Any]] = {}
        self.strings: list[str] = []
        self.external: dict[str, str] = {}
        self.is_external = False
        self.segmented = False


def string_entry(ctx: ReadContext, pos: int, end: int, into: dict[str, str]) -> None:
    """One StringStringEntryProto, as an item of a dictionary."""
    key = value = ""
    for tag, start, stop in fields(ctx.buf, pos, end):
        if tag == _ENTRY.key:
            key = wire.text(ctx.buf, start, stop)
        elif tag == _ENTRY.value:
            value = wire.text(ctx.buf, start, stop)
        else:
            schema.check_skipped("StringStringEntry", tag, stop - 1)
    into[key] = value


def _dims(ctx: ReadContext, start: int, stop: int) -> list[int]:
    """Packed dimensions."""
    if stop - start > MAX_RANK * 10:
        raise WireError(f"more than {MAX_RANK} dimensions", start)
    values: list[int] = wire.packed_varints(ctx.buf, start, stop).view(np.int64).tolist()
    return values


def check_rank(dims: Sequence[object], offset: int) -> None:
    """WireError if there are more dimensions than an array can have."""
    if len(dims) > MAX_RANK:
        raise WireError(f"more than {MAX_RANK} dimensions", offset)


def read_record(ctx: ReadContext, pos: int, end: int) -> TensorRecord:
    """The fields of the TensorProto in [pos, end)."""
    buf = ctx.buf
    record = TensorRecord(pos)
    stream = fields(buf, pos, end)
    for tag, start, stop in stream:
        if tag == _TENSOR.dims:
            record.dims.append(signed(start))
            check_rank(record.dims, stop - 1)
        elif tag == _TENSOR.data_type:
            record.data_type = signed32(start)
        elif tag == _TENSOR.raw_data:
            record.raw = ctx.view[start:stop]
        elif tag == _TENSOR.name:
            record.name = wire.text(buf, start, stop)
        elif tag == _TENSOR.dims_packed:
            record.dims.extend(_dims(ctx, start, stop))
            check_rank(record.dims, stop - 1)
        elif tag == _TENSOR.string_data:
            record.strings.append(wire.text(buf, start, stop))
        elif tag == _TENSOR.doc_string:
            record.doc = wire.text(buf, start, stop)
        elif tag == _TENSOR.external_data:
            string_entry(ctx, start, stop, record.external)
        elif tag == _TENSOR.data_location:
            record.is_external = start == 1
        elif tag == _TENSOR.metadata_props:
            string_entry(ctx, start, stop, record.metadata)
        elif tag == _TENSOR.segment:
            record.segmented = True
        elif not _typed_field(ctx, record, stream, tag, start, stop, end):
            schema.check_skipped("Tensor", tag, stop - 1)
    return record


def _typed_field(ctx: ReadContext, record: TensorRecord, stream: Any, tag: int, start: int, stop: int, end: int) -> bool:
    """Take one of the typed data fields, packed or not; False if the field is none."""
    number, wire_type = tag >> 3, tag & 7
    width = _FLOAT_FIELDS.get(number)
    if width is not None and wire_type == 2:
        if (stop - start) % width:
            raise WireError(f"{_FIELD_NAMES[number]} has {stop - start} bytes, not a multiple of {width}", start)
        _add_bytes(record.typed.setdefault(number, []), ctx.view[start:stop])
    elif width is not None and wire_type == (5 if width == 4 else 1):
        chunks = record.typed.setdefault(number, [])
        _add_bytes(chunks, ctx.view[start:stop])
        if isinstance(chunks[-1], bytearray) and len(chunks[-1]) % (_RUN * width) == 0:
            run, at = wire.fixed_run(ctx.buf, tag, stop, end, width)
            chunks[-1] += run.data
            stream.send(at)
    elif number in _INTEGER_FIELDS and wire_type == 2:
        chunks = record.typed.setdefault(number, [])
        if stop - start < _SMALL_CHUNK and chunks:
            _numbers(chunks).extend(wire.packed_varints(ctx.buf, start, stop).tolist())
        else:
            chunks.append(wire.packed_varints(ctx.buf, start, stop))
    elif number in _INTEGER_FIELDS and wire_type == 0:
        numbers = _numbers(record.typed.setdefault(number, []))
        numbers.append(start)
        if len(numbers) % _RUN == 0:
            more, at = wire.varint_run(ctx.buf, tag, stop, end)
            numbers.extend(more.tolist())
            stream.send(at)
    else:
        return False
    return True


def _add_bytes(chunks: list[Any], view: memoryview) -> None:
    """Add to the chunks; small ones are gathered in one, for an object each would be many times their size."""
    if not chunks or len(view) >= _SMALL_CHUNK:
        chunks.append(view)
        return
    if not isinstance(chunks[-1], bytearray):
        chunks.append(bytearray())
    chunks[-1] += view


def _numbers(chunks: list[Any]) -> list[int]:
    """The list at the end of the chunks that takes single numbers."""
    if not chunks or not isinstance(chunks[-1], list):
        chunks.append([])
    numbers: list[int] = chunks[-1]
    return numbers


def read_tensor(ctx: ReadContext, pos: int, end: int) -> Tensor | None:
    """The constant in [pos, end); None, after noting the problem, if it makes no sense."""
    return make_tensor(ctx, read_record(ctx, pos, end))


def read_sparse(ctx: ReadContext, pos: int, end: int) -> tuple[SparseConstant | None, TensorRecord | None]:
    """The sparse constant in [pos, end) and the record of its values, which has its name; None where it makes no sense."""
    values = indices = None
    dims: list[int] = []
    for tag, start, stop in fields(ctx.buf, pos, end):
        if tag == _SPARSE.values:
            values = read_record(ctx, start, stop)
        elif tag == _SPARSE.indices:
            indices = read_record(ctx, start, stop)
        elif tag == _SPARSE.dims:
            dims.append(signed(start))
            check_rank(dims, stop - 1)
        elif tag == _SPARSE.dims_packed:
            dims.extend(_dims(ctx, start, stop))
            check_rank(dims, stop - 1)
        else:
            schema.check_skipped("SparseTensor", tag, stop - 1)
    if values is None or indices is None:
        ctx.problem(f"sparse tensor ({ctx.location(pos - 1)}): its {'values' if values is None else 'indices'} are missing")
        return None, values
    value_tensor, index_tensor = make_tensor(ctx, values), make_tensor(ctx, indices)
    if value_tensor is None or index_tensor is None:
        return None, values
    try:
        check_sparse(value_tensor, index_tensor, dims)
    except Unfit as unfit:
        ctx.problem(f"sparse tensor {values.name!r} ({ctx.location(pos - 1)}): {unfit}")
        return None, values
    return SparseConstant(value_tensor, index_tensor, tuple(dims)), values


def make_tensor(ctx: ReadContext, record: TensorRecord) -> Tensor | None:
    """The constant a record describes; None, after noting the problem, if it makes no sense."""
    try:
        return _make(ctx, record)
    except (Unfit, Refused) as unfit:
        text = f"External data path validation failed: {unfit}" if isinstance(unfit, Refused) else str(unfit)
        ctx.problem(f"tensor {record.name!r} ({ctx.location(record.offset - 1)}): {text}")
        return None


def _make(ctx: ReadContext, record: TensorRecord) -> Tensor:
    if record.segmented:
        raise Unfit("it is one segment of a tensor cut into several, which no runtime reads")
    if record.data_type == 0:
        raise Unfit("its element type is missing")
    try:
        dtype = dtypes.from_onnx(record.data_type)
    except ValueError as error:
        raise Unfit(str(error)) from None
    dims = record.dims
    check_extent(dtype, dims)
    count = prod(dims)
    if record.is_external:
        return _external(ctx, record, dtype, count)
    if dtype is dtypes.STRING:
        if record.raw:
            raise Unfit("it is a string tensor with raw_data; strings must be in string_data")
        return string_tensor(dims, record.strings, record.name)
    if record.raw is not None:
        return raw_tensor(dtype, dims, record.raw, record.name)
    decoded = _typed_bytes(record, dtype, dims, count)
    return Tensor(dtype, dims, loader_of(dtype, lambda: decoded), name=record.name)


def _typed_bytes(record: TensorRecord, dtype: DType, dims: list[int], count: int) -> memoryview:
    """The packed bytes out of the typed field of this element type."""
    number = _FIELD_OF.get(dtype, _INT32_DATA)
    chunks = record.typed.get(number, [])
    if number in _FLOAT_FIELDS:
        need = dtype.nbytes(count)
        have = sum(map(len, chunks))
        if have != need:
            width = _FLOAT_FIELDS[number]
            raise Unfit(_wrong_count(dtype, dims, number, need // width, have // width, record))
        if len(chunks) == 1:
            return as_memoryview(chunks[0])
        return memoryview(b"".join(chunks))
    arrays = [np.array(chunk, np.uint64) if isinstance(chunk, list) else chunk for chunk in chunks]
    numbers = np.concatenate(arrays) if len(arrays) > 1 else arrays[0] if arrays else np.empty(0, np.uint64)
    one_each = not dtype.is_packed or dtype.bits == _FLOAT6_BITS
    need = count if one_each else dtype.nbytes(count)
    if numbers.size != need:
        raise Unfit(_wrong_count(dtype, dims, number, need, numbers.size, record))
    if dtype is dtypes.BOOL:
        return memoryview((numbers != 0).view(np.uint8))
    if dtype.is_packed:
        codes = numbers.astype(np.uint8)
        return as_memoryview(pack(codes & np.uint8(0x3F), dtype) if one_each else codes)
    return as_memoryview(numbers.astype(f"<u{dtype.numpy.itemsize}"))


def _wrong_count(dtype: DType, dims: list[int], number: int, need: int, have: int, record: TensorRecord) -> str:
    text = f"{type_text(dtype, dims)} needs {need} numbers in {_FIELD_NAMES[number]}, which has {have}"
    others = [_FIELD_NAMES[other] for other in sorted(record.typed) if other != number]
    return f"{text} (there is data in {', '.join(others)})" if others else text


def _external(ctx: ReadContext, record: TensorRecord, dtype: DType, count: int) -> Tensor:
    if dtype is dtypes.STRING:
        raise Unfit("it is a string tensor with external data; strings must be in the model")
    location = record.external.get("location", "")
    offset = _whole_number(record.external, "offset", 0)
    need = dtype.nbytes(count)
    length = _whole_number(record.external, "length", need)
    if length != need:
        raise Unfit(f"{type_text(dtype, record.dims)} needs {need} bytes, its external data has length {length}")
    if record.name in ctx.replaced:
        return Tensor(dtype, record.dims, partial(_absent, record.name), name=record.name)
    file = ctx.external.find(location, record.name)
    if offset + need > file.size:
        raise Unfit(f"its external data is bytes {offset} to {offset + need} of {location!r}, which has {file.size}")
    where = ExternalLocation(location, offset, need)
    load = loader_of(dtype, lambda: file.view()[offset : offset + need])
    made = Tensor(dtype, record.dims, load, name=record.name, external=where)
    made.packings = read_packings(record.external, file, record.name)
    return made


def _absent(name: str) -> memoryview:
    raise Fail(f"the external data of tensor {name!r} was to be replaced, and was not")


def _whole_number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Unfit(f"the {key} of its external data is {text!r}, expected a number that is not negative")
    return int(text)
