"""LoRA adapters: named tensors in a file, fed to the inputs of the same names when an adapter is active in a run.

The file is ONNX Runtime's adapter format, a FlatBuffer with the identifier "TORT":

    Adapter    format_version, adapter_version, model_version: int32; parameters: [Parameter]
    Parameter  name: string; dims: [int64]; data_type: int32 (ONNX number); raw_data: [uint8], aligned to 8
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.ir.tensor import Tensor, from_numpy
from sardonyx.runtime.values import OrtValue

_IDENTIFIER: Final = b"TORT"
_FORMAT_VERSION: Final = 1
_ADAPTER_FIELDS: Final = 4
_PARAMETER_FIELDS: Final = 4


class _Table:
    """A table of a FlatBuffer; every access is checked against the buffer's end."""

    def __init__(self, buffer: memoryview, position: int) -> None:
        self._buffer = buffer
        self._position = position
        self._vtable = position - self._number("<i", position)
        self._vsize = self._number("<H", self._vtable)

    def _number(self, code: str, position: int) -> int:
        if position < 0 or position + struct.calcsize(code) > len(self._buffer):
            raise errors.InvalidProtobuf(f"the adapter file refers to byte {position}, it has {len(self._buffer)}")
        found: int = struct.unpack_from(code, self._buffer, position)[0]
        return found

    def _field(self, index: int) -> int | None:
        entry = 4 + 2 * index
        offset = self._number("<H", self._vtable + entry) if entry + 2 <= self._vsize else 0
        return self._position + offset if offset else None

    def integer(self, index: int) -> int:
        """A scalar field; 0 if it is absent."""
        offset = self._field(index)
        return 0 if offset is None else self._number("<i", offset)

    def vector(self, index: int, width: int) -> memoryview:
        """The elements of a vector or string field; empty if it is absent."""
        offset = self._field(index)
        if offset is None:
            return self._buffer[:0]
        start = offset + self._number("<I", offset)
        length = self._number("<I", start) * width
        if start + 4 + length > len(self._buffer):
            raise errors.InvalidProtobuf(f"the adapter file ends inside the {length} bytes at {start + 4}")
        return self._buffer[start + 4 : start + 4 + length]

    def tables(self, index: int) -> list[_Table]:
        """The tables of a vector of tables."""
        offset = self._field(index)
        if offset is None:
            return []
        start = offset + self._number("<I", offset)
        count = len(self.vector(index, 4)) // 4
        offsets = [start + 4 + 4 * position for position in range(count)]
        return [_Table(self._buffer, each + self._number("<I", each)) for each in offsets]


class _Writer:
    """Lays a FlatBuffer out from front to back; references are filled in when their target is placed."""

    def __init__(self) -> None:
        self.data = bytearray(struct.pack("<I4s", 0, _IDENTIFIER))

    def align(self, boundary: int, ahead: int = 0) -> int:
        self.data += bytes(-(len(self.data) + ahead) % boundary)
        return len(self.data)

    def table(self, fields: int) -> int:
        """A table of `fields` four-byte fields, its description in front; the first field is 4 further."""
        self.align(4)
        vtable = len(self.data)
        self.data += struct.pack(f"<HH{fields}H", 4 + 2 * fields, 4 + 4 * fields, *(4 + 4 * index for index in range(fields)))
        position = self.align(4)
        self.data += struct.pack("<i", position - vtable) + bytes(4 * fields)
        return position

    def refer(self, offset: int, target: int) -> None:
        struct.pack_into("<I", self.data, offset, target - offset)

    def vector(self, offset: int, content: bytes | memoryview, count: int, boundary: int, terminator: bytes = b"") -> None:
        start = self.align(boundary, ahead=4)
        self.refer(offset, start)
        self.data += struct.pack("<I", count)
        self.data += content
        self.data += terminator


class AdapterFormat:
    """The parameters of a LoRA adapter, and the file they are kept in."""

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._parameters: dict[str, OrtValue] = dict(adapter._parameters) if adapter is not None else {}
        self._adapter_version: int = adapter.get_adapter_version() if adapter is not None else 0
        self._model_version: int = adapter.get_model_version() if adapter is not None else 0

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """Read an adapter; parameters are views of the file's bytes."""
        try:
            with open(file_path, "rb") as file:
                content = memoryview(file.read())
        except OSError as error:
            raise errors.MissingData(f"the adapter {os.fspath(file_path)!r} cannot be read: {error}") from error
        if len(content) < 8 or content[4:8].tobytes() != _IDENTIFIER:
            raise errors.InvalidProtobuf(f"{os.fspath(file_path)!r} is not an adapter file: it lacks the mark {_IDENTIFIER!r}")
        root = _Table(content, struct.unpack_from("<I", content)[0])
        if root.integer(0) != _FORMAT_VERSION:
            raise errors.NotImplemented(f"the adapter's format version is {root.integer(0)}, expected {_FORMAT_VERSION}")
        adapter = AdapterFormat()
        adapter._adapter_version, adapter._model_version = root.integer(1), root.integer(2)
        for table in root.tables(3):
            name = bytes(table.vector(0, 1)).decode("utf-8", "surrogateescape")
            adapter._parameters[name] = _parameter(name, table)
        return adapter

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write the parameters and versions to a file, which has no place for strings."""
        for name, value in self._parameters.items():
            if value.element_type() == dtypes.STRING.onnx:
                raise errors.InvalidArgument(f"parameter {name!r} is of type STRING: an adapter's file holds numbers only")
        writer = _Writer()
        root = writer.table(_ADAPTER_FIELDS)
        writer.refer(0, root)
        struct.pack_into("<iii", writer.data, root + 4, _FORMAT_VERSION, self._adapter_version, self._model_version)
        count = len(self._parameters)
        writer.vector(root + 16, bytes(4 * count), count, 4)
        offsets = [len(writer.data) - 4 * count + 4 * index for index in range(count)]
        for offset, (name, value) in zip(offsets, self._parameters.items()):
            array = value.numpy()
            constant = from_numpy(array, name)
            table = writer.table(_PARAMETER_FIELDS)
            writer.refer(offset, table)
            text = name.encode("utf-8", "surrogateescape")
            writer.vector(table + 4, text, len(text), 4, b"\0")
            writer.vector(table + 8, struct.pack(f"<{array.ndim}q", *array.shape), array.ndim, 8)
            struct.pack_into("<i", writer.data, table + 12, constant.dtype.onnx)
            writer.vector(table + 16, constant.raw(), constant.nbytes, 8)
        writer.align(8)
        try:
            with open(file_path, "wb") as file:
                file.write(writer.data)
        except OSError as error:
            raise errors.Fail(f"the adapter cannot be written to {os.fspath(file_path)!r}: {error}") from error

    def get_format_version(self) -> int:
        """Version of the file format."""
        return _FORMAT_VERSION

    def set_adapter_version(self, adapter_version: int) -> None:
        """Set the version of the adapter itself."""
        self._adapter_version = adapter_version

    def get_adapter_version(self) -> int:
        """Version of the adapter itself."""
        return self._adapter_version

    def set_model_version(self, model_version: int) -> None:
        """Set the version of the model the adapter was made for."""
        self._model_version = model_version

    def get_model_version(self) -> int:
        """Version of the model the adapter was made for."""
        return self._model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Take these tensors as the parameters; those of strings cannot be exported."""
        for name, value in params.items():
            if not isinstance(value, OrtValue) or not value.is_tensor():
                raise errors.InvalidArgument(f"parameter {name!r}: expected an OrtValue with a tensor, got {value!r}")
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        """The parameters by name."""
        return dict(self._parameters)

    # ONNX Runtime's compiled module has the same as attributes.
    format_version = property(get_format_version)
    adapter_version = property(get_adapter_version, set_adapter_version)
    model_version = property(get_model_version, set_model_version)
    parameters = property(get_parameters, set_parameters)


def _parameter(name: str, table: _Table) -> OrtValue:
    try:
        dtype = dtypes.from_onnx(table.integer(2))
    except ValueError as error:
        raise errors.InvalidProtobuf(f"parameter {name!r} of the adapter: {error}") from None
    shape = tuple(np.frombuffer(table.vector(1, 8), np.int64).tolist())
    data = table.vector(3, 1)
    tensor = Tensor(dtype, shape, lambda: data, name=name)
    if dtype is dtypes.STRING or any(size < 0 for size in shape) or tensor.nbytes != len(data):
        raise errors.InvalidProtobuf(f"parameter {name!r} of the adapter: {len(data)} bytes for {dtype.ort}{list(shape)}")
    return OrtValue.of(tensor.numpy())


class LoraAdapter:
    """An adapter that runs can use: `options.add_active_adapter(adapter)`."""

    def __init__(self) -> None:
        self._format = AdapterFormat()

    def Load(self, file_path: str | os.PathLike[str]) -> None:  # noqa: N802 - ONNX Runtime's name
        """Read the adapter from a file."""
        self._format = AdapterFormat.read_adapter(file_path)

    @property
    def parameters(self) -> dict[str, Any]:
        """The tensors by name."""
        return self._format.get_parameters()
