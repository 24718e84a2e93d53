"""TypeProto and ValueInfoProto to the types of the IR.

A dimension with a name is a symbol of that name, one without name or value an anonymous symbol of its own; negative values, which
some exporters write for "dynamic", count as the latter. A type without element type is unknown: None.

What the IR's types have no place for is kept in the value's metadata:

    onnx.denotation          the denotation ("IMAGE" ...) of the whole type
    onnx.denotation.<axis>   that of one dimension ("DATA_BATCH" ...) of a tensor
    onnx.dim_param.<axis>    the name of a dimension called "?" or the like, which names nothing: the dimension is anonymous
"""

from __future__ import annotations

from typing import Final

from sardonyx import dtypes
from sardonyx.dtypes import DType
from sardonyx.formats.onnx import schema, wire
from sardonyx.formats.onnx.context import ReadContext
from sardonyx.formats.onnx.schema import tags
from sardonyx.formats.onnx.tensors import check_rank, string_entry
from sardonyx.formats.onnx.wire import fields, signed, signed32
from sardonyx.formats.shared.records import DENOTATION, DIM_PARAM, ValueRecord
from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.types import MapType, OptionalType, SequenceType, Shape, SparseTensorType, TensorType, Type

_VALUE_INFO, _TYPE, _ELEMENT_TYPE = tags("ValueInfo"), tags("Type"), tags("ElementType")
_TENSOR_TYPE, _MAP_TYPE = tags("TensorType"), tags("MapType")
_SHAPE, _DIMENSION = tags("TensorShape"), tags("Dimension")
_CACHED_BELOW: Final = 128
_MAP_KEYS: Final = dtypes.INTEGERS | {dtypes.STRING}


class TypeReader:
    """Reads types; equal bytes give the same object, unless they hold an anonymous dimension."""

    def __init__(self, ctx: ReadContext) -> None:
        self._ctx = ctx
        self._cache: dict[bytes, Type | None] = {}
        self._symbols: dict[str, Dim] = {}
        self._unique = False  # whether the type being read must not be shared
        self._aside: dict[str, str] = {}  # metadata of the value being read

    def value_info(self, pos: int, end: int) -> ValueRecord:
        """What the ValueInfoProto in [pos, end) says."""
        buf = self._ctx.buf
        name = doc = ""
        type_: Type | None = None
        metadata: dict[str, str] = {}
        self._aside = {}
        for tag, start, stop in fields(buf, pos, end):
            if tag == _VALUE_INFO.name:
                name = wire.text(buf, start, stop)
            elif tag == _VALUE_INFO.type:
                type_ = self.type(start, stop)
            elif tag == _VALUE_INFO.doc_string:
                doc = wire.text(buf, start, stop)
            elif tag == _VALUE_INFO.metadata_props:
                string_entry(self._ctx, start, stop, metadata)
            else:
                schema.check_skipped("ValueInfo", tag, stop - 1)
        metadata.update(self._aside)
        return ValueRecord(name, type_, doc, metadata or None)

    def type(self, pos: int, end: int, depth: int = 0) -> Type | None:
        """The type in [pos, end); None if the file leaves it open."""
        if end - pos >= _CACHED_BELOW:
            return self._type(pos, end, depth)
        key = bytes(self._ctx.buf[pos:end])
        if key in self._cache:
            return self._cache[key]
        self._unique = False
        type_ = self._type(pos, end, depth)
        if not self._unique:
            self._cache[key] = type_
        return type_

    def _type(self, pos: int, end: int, depth: int) -> Type | None:
        self._ctx.check_depth(depth, pos)
        buf = self._ctx.buf
        type_: Type | None = None
        for tag, start, stop in fields(buf, pos, end):
            if tag == _TYPE.tensor_type:
                dtype, shape = self._tensor(start, stop, depth)
                type_ = None if dtype is None else TensorType(dtype, shape)
            elif tag == _TYPE.sequence_type:
                element = self._element(start, stop, depth)
                type_ = None if element is None else SequenceType(element)
            elif tag == _TYPE.map_type:
                type_ = self._map(start, stop, depth)
            elif tag == _TYPE.denotation:
                self._put_aside(DENOTATION, wire.text(buf, start, stop), depth)
            elif tag == _TYPE.sparse_tensor_type:
                dtype, shape = self._tensor(start, stop, depth)
                type_ = None if dtype is None else SparseTensorType(dtype, shape)
            elif tag == _TYPE.optional_type:
                element = self._element(start, stop, depth)
                type_ = None if element is None else OptionalType(element)
            else:  # an opaque type among others: nobody can compute with one
                schema.check_skipped("Type", tag, stop - 1)
        return type_

    def _put_aside(self, key: str, text: str, depth: int) -> None:
        if depth == 0:
            self._aside[key] = text
        self._unique = True

    def _element(self, pos: int, end: int, depth: int) -> Type | None:
        element = None
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == _ELEMENT_TYPE.elem_type:
                element = self._type(start, stop, depth + 2)
            else:
                schema.check_skipped("ElementType", tag, stop - 1)
        return element

    def _map(self, pos: int, end: int, depth: int) -> Type | None:
        key: DType | None = None
        value: Type | None = None
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == _MAP_TYPE.key_type:
                key = self._dtype(start, stop)
            elif tag == _MAP_TYPE.value_type:
                value = self._type(start, stop, depth + 2)
            else:
                schema.check_skipped("MapType", tag, stop - 1)
        if key is not None and key not in _MAP_KEYS:
            self._ctx.problem(f"{self._ctx.location(pos)}: the keys of a map are {key.name}, expected integers or str")
            return None
        return None if key is None or value is None else MapType(key, value)

    def _dtype(self, value: int, offset: int) -> DType | None:
        code = signed32(value)
        if code == 0:
            return None
        try:
            return dtypes.from_onnx(code)
        except ValueError as error:
            self._ctx.problem(f"{self._ctx.location(offset - 1)}: {error}")
            return None

    def _tensor(self, pos: int, end: int, depth: int) -> tuple[DType | None, Shape | None]:
        dtype = shape = None
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == _TENSOR_TYPE.elem_type:
                dtype = self._dtype(start, stop)
            elif tag == _TENSOR_TYPE.shape:
                shape = self._shape(start, stop, depth)
            else:
                schema.check_skipped("TensorType", tag, stop - 1)
        return dtype, shape

    def _shape(self, pos: int, end: int, depth: int) -> Shape:
        shape: list[Dim] = []
        for tag, start, stop in fields(self._ctx.buf, pos, end):
            if tag == _SHAPE.dim:
                shape.append(self._dim(start, stop, depth, len(shape)))
                check_rank(shape, stop - 1)
            else:
                schema.check_skipped("TensorShape", tag, stop - 1)
        return tuple(shape)

    def _dim(self, pos: int, end: int, depth: int, axis: int) -> Dim:
        buf = self._ctx.buf
        name, size = "", -1
        for tag, start, stop in fields(buf, pos, end):
            if tag == _DIMENSION.dim_value:
                size, name = signed(start), ""
            elif tag == _DIMENSION.dim_param:
                size, name = -1, wire.text(buf, start, stop)
            elif tag == _DIMENSION.denotation:
                self._put_aside(f"{DENOTATION}.{axis}", wire.text(buf, start, stop), depth)
            else:
                schema.check_skipped("Dimension", tag, stop - 1)
        if size >= 0:
            return size
        if name.startswith("?"):  # this marks symbols nobody named; a file must not forge them
            self._put_aside(f"{DIM_PARAM}.{axis}", name, depth)
        elif name:
            known = self._symbols.get(name)
            if known is None:
                known = self._symbols[name] = dims.symbol(name)
            return known
        self._unique = True
        return dims.fresh()
