"""ir.graph.Model to the bytes of a ModelProto, and values to those of a TensorProto file.

The order of fields and the encodings are those of ONNX's own writers; constants are written as raw_data (strings as string_data).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument
from sardonyx.formats.onnx.read import DEVICE_CONFIGURATIONS
from sardonyx.formats.onnx.wire import Writer, encode_text, encode_varint
from sardonyx.formats.shared.link import QUANTIZATION
from sardonyx.formats.shared.naming import file_names
from sardonyx.formats.shared.records import DENOTATION, DIM_PARAM
from sardonyx.ir.dims import DimExpr
from sardonyx.ir.graph import UNKNOWN_VERSION, Attr, AttrKind, Function, Graph, Model, Node, SparseConstant, Value, walk
from sardonyx.ir.tensor import ExternalLocation, Tensor
from sardonyx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

Externalise = Callable[[Tensor], "ExternalLocation | None"]
Listed = Callable[[str], bool]
_EXTERNAL: Final = 1  # TensorProto.DataLocation


def keep_inside(tensor: Tensor) -> ExternalLocation | None:
    """The rule that no tensor goes to an external file."""
    return None


def list_none(name: str) -> bool:
    """The rule that no initializer is written as a list of numbers."""
    return False


def write_model(model: Model, externalise: Externalise = keep_inside, listed: Listed = list_none) -> Writer:
    """The message of a model; `externalise` says where the data of an initializer lies, if not in the model.

    `listed` names initializers of the main graph that are written as lists of numbers, as ONNX's own helpers write them.
    """
    out = Writer()
    out.integer(1, model.ir_version)
    out.text(2, model.producer_name)
    out.text(3, model.producer_version)
    out.text(4, model.domain)
    if model.model_version:
        out.integer(5, model.model_version)
    out.text(6, model.doc)
    out.message(7, _GraphWriter(file_names(model.graph), externalise, listed).graph(model.graph))
    used = {node.domain: node.version for node in walk(model.graph) if node.version != UNKNOWN_VERSION}
    _imports(out, 8, {**used, **model.opset_imports})  # a model that was read, or that passes changed, need not import all
    _entries(out, 14, model.metadata)
    for function in model.functions.values():
        out.message(25, _GraphWriter(file_names(function.graph), externalise).function(function))
    if model.unread:
        out.raw(model.unread)
    return out


def _imports(out: Writer, field: int, imports: Mapping[str, int]) -> None:
    for domain, version in imports.items():
        entry = Writer()
        entry.blob(1, encode_text(domain))
        entry.integer(2, version)
        out.message(field, entry)


def _entries(out: Writer, field: int, entries: Mapping[str, str]) -> None:
    for key, value in entries.items():
        entry = Writer()
        entry.blob(1, encode_text(key))
        entry.blob(2, encode_text(value))
        out.message(field, entry)


class _GraphWriter:
    """Writes the graphs whose values `names` names."""

    def __init__(self, names: dict[Value, str], externalise: Externalise, listed: Listed = list_none) -> None:
        self._names = names
        self._externalise = externalise
        self._listed = listed

    def _name(self, value: Value) -> str:
        name = self._names.get(value)
        if name is None:
            raise InvalidArgument(f"the graph cannot be written: it reads {value.name!r}, which is no value of it")
        return name

    def graph(self, graph: Graph) -> Writer:
        out = Writer()
        described = {*graph.inputs, *graph.outputs}
        rest: list[Value] = []
        for node in graph.nodes:
            out.message(1, self._node(node))
            rest.extend(value for value in node.outputs if value not in described and _has_description(value))
        out.text(2, graph.name)
        for value in graph.initializers.values():
            if isinstance(value.constant, SparseConstant):
                out.message(15, write_sparse(value.constant, self._name(value), value))
            elif value.constant is not None:
                out.message(5, self._initializer(value, value.constant))
        out.text(10, graph.doc)
        for field, values in ((11, graph.inputs), (12, graph.outputs), (13, rest)):
            for value in values:
                out.message(field, self._value_info(value))
        for value in (*graph.inputs, *graph.initializers.values(), *(value for node in graph.nodes for value in node.outputs)):
            self._annotation(out, value)
        _entries(out, 16, graph.metadata)
        return out

    def _annotation(self, out: Writer, value: Value) -> None:
        parameters = {key[len(QUANTIZATION) :]: text for key, text in value.metadata.items() if key.startswith(QUANTIZATION)}
        if parameters:
            entry = Writer()
            entry.text(1, self._name(value))
            _entries(entry, 2, parameters)
            out.message(14, entry)

    def _initializer(self, value: Value, tensor: Tensor) -> Writer:
        name = self._name(value)
        out = write_tensor(tensor, name, self._externalise(tensor), self._listed(name))
        out.text(12, value.doc)
        _entries(out, 16, _plain_metadata(value))
        return out

    def _value_info(self, value: Value) -> Writer:
        out = Writer()
        out.text(1, self._name(value))
        if value.type is not None:
            out.message(2, _type(value.type, value.metadata))
        out.text(3, value.doc)
        _entries(out, 4, _plain_metadata(value))
        return out

    def _node(self, node: Node) -> Writer:
        out = Writer()
        for value in node.inputs:
            out.blob(1, b"" if value is None else encode_text(self._name(value)))
        for value in node.outputs:
            out.blob(2, encode_text(self._name(value)))
        out.text(3, node.name)
        out.blob(4, encode_text(node.op_type))
        for attr in node.attrs.values():
            out.message(5, self._attr(attr))
        out.text(6, node.doc)
        out.text(7, node.domain)
        out.text(8, node.overload)
        _entries(out, 9, {key: text for key, text in node.metadata.items() if key != DEVICE_CONFIGURATIONS})
        if DEVICE_CONFIGURATIONS in node.metadata:
            out.raw(base64.b64decode(node.metadata[DEVICE_CONFIGURATIONS]))
        return out

    def _attr(self, attr: Attr) -> Writer:
        out = Writer()
        out.blob(1, encode_text(attr.name))
        if not attr.ref:
            self._attr_value(out, attr.kind, attr.value)
        out.text(13, attr.doc)
        out.integer(20, int(attr.kind))
        out.text(21, attr.ref)
        return out

    def _attr_value(self, out: Writer, kind: AttrKind, value: Any) -> None:
        if kind is AttrKind.FLOAT:
            out.float32(2, value)
        elif kind is AttrKind.INT:
            out.integer(3, value)
        elif kind is AttrKind.STRING:
            out.blob(4, encode_text(value))
        elif kind is AttrKind.TENSOR:
            out.message(5, write_tensor(value, value.name))
        elif kind is AttrKind.GRAPH:
            out.message(6, self.graph(value))
        elif kind is AttrKind.FLOATS:
            out.float32_list(7, value)
        elif kind is AttrKind.INTS:
            out.integer_list(8, value)
        elif kind is AttrKind.SPARSE_TENSOR:
            out.message(22, write_sparse(value, value.values.name))
        elif kind is AttrKind.TYPE_PROTO:
            out.message(14, _type(value))
        else:
            self._attr_list(out, kind, value)

    def _attr_list(self, out: Writer, kind: AttrKind, values: Iterable[Any]) -> None:
        for value in values:
            if kind is AttrKind.STRINGS:
                out.blob(9, encode_text(value))
            elif kind is AttrKind.TENSORS:
                out.message(10, write_tensor(value, value.name))
            elif kind is AttrKind.GRAPHS:
                out.message(11, self.graph(value))
            elif kind is AttrKind.SPARSE_TENSORS:
                out.message(23, write_sparse(value, value.values.name))
            else:
                out.message(15, _type(value))

    def function(self, function: Function) -> Writer:
        out = Writer()
        out.text(1, function.name)
        for value in function.graph.inputs:
            out.blob(4, encode_text(self._name(value)))
        for value in function.graph.outputs:
            out.blob(5, encode_text(self._name(value)))
        for name in function.attributes:
            out.blob(6, encode_text(name))
        for node in function.graph.nodes:
            out.message(7, self._node(node))
        out.text(8, function.doc)
        _imports(out, 9, function.opset_imports)
        out.text(10, function.domain)
        for attr in function.attribute_defaults:
            out.message(11, self._attr(attr))
        described = (*function.graph.inputs, *(value for node in function.graph.nodes for value in node.outputs))
        for value in described:
            if _has_description(value):
                out.message(12, self._value_info(value))
        out.text(13, function.overload)
        _entries(out, 14, function.metadata)
        return out


def _has_description(value: Value) -> bool:
    return value.type is not None or bool(value.doc) or bool(_plain_metadata(value))


def _plain_metadata(value: Value) -> dict[str, str]:
    """The metadata without what has a field of its own in the file."""
    return {key: text for key, text in value.metadata.items() if not key.startswith((DENOTATION, DIM_PARAM, QUANTIZATION))}


def _type(type_: Type, metadata: Mapping[str, str] | None = None) -> Writer:
    """The message of a type; `metadata`, for the type of a value, has what types.py puts aside."""
    metadata = metadata or {}
    out = Writer()
    inner = Writer()
    if isinstance(type_, (TensorType, SparseTensorType)):
        inner.integer(1, type_.dtype.onnx)
        if type_.shape is not None:
            shape = Writer()
            for axis, dim in enumerate(type_.shape):
                entry = Writer()
                if not isinstance(dim, DimExpr):
                    entry.integer(1, dim)
                else:
                    entry.text(2, metadata.get(f"{DIM_PARAM}.{axis}", "") if dim.is_anonymous else str(dim))
                entry.text(3, metadata.get(f"{DENOTATION}.{axis}", ""))
                shape.message(1, entry)
            inner.message(2, shape)
        out.message(1 if isinstance(type_, TensorType) else 8, inner)
    elif isinstance(type_, MapType):
        inner.integer(1, type_.key.onnx)
        inner.message(2, _type(type_.value))
        out.message(5, inner)
    elif isinstance(type_, (SequenceType, OptionalType)):
        inner.message(1, _type(type_.element))
        out.message(4 if isinstance(type_, SequenceType) else 9, inner)
    out.text(6, metadata.get(DENOTATION, ""))
    return out


def write_tensor(tensor: Tensor, name: str, external: ExternalLocation | None = None, listed: bool = False) -> Writer:
    """The message of a tensor; its bytes are not copied. `external` is where they lie, if not in the message.

    With `listed` the numbers of a float32 tensor, or of one whose elements have 16 bits or less, are written one by one.
    """
    out = Writer()
    for dim in tensor.shape:
        out.integer(1, dim)
    out.integer(2, tensor.dtype.onnx)
    out.text(8, name)
    if external is not None:
        location = {"location": external.location, "offset": str(external.offset), "length": str(external.length)}
        location.update({f"prepacked_{number}": packing for number, packing in enumerate(external.packings)})
        _entries(out, 13, location)
        out.integer(14, _EXTERNAL)
    elif tensor.dtype is dtypes.STRING:
        for text in tensor.numpy().reshape(-1):
            out.blob(6, encode_text(text))
    elif listed and tensor.dtype is dtypes.FLOAT32:
        out.blob(4, tensor.raw())
    elif listed and (tensor.dtype.bits <= 16 or tensor.dtype is dtypes.INT32):
        out.blob(5, b"".join(map(encode_varint, _numbers(tensor))))
    else:
        out.blob(9, tensor.raw())
    return out


def _numbers(tensor: Tensor) -> list[int]:
    """What a list of numbers has for a tensor: integers as they are, floats as their bits, packed elements as their bytes."""
    if tensor.dtype.is_packed:
        return list(tensor.raw())
    array = tensor.numpy().reshape(-1)
    if tensor.dtype.is_float:
        array = array.view(np.uint8 if tensor.dtype.bits == 8 else np.uint16)
    return [int(number) for number in array]


def write_sparse(constant: SparseConstant, name: str, value: Value | None = None) -> Writer:
    """The message of a sparse tensor; `value` is the initializer it belongs to, whose documentation it carries."""
    out = Writer()
    values = write_tensor(constant.values, name)
    if value is not None:
        values.text(12, value.doc)
        _entries(values, 16, _plain_metadata(value))
    out.message(1, values)
    out.message(2, write_tensor(constant.indices, constant.indices.name))
    for dim in constant.shape:
        out.integer(3, dim)
    return out
