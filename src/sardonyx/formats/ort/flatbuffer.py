"""The FlatBuffers encoding: tables out of bytes, without a copy of the data.

A table begins with the distance back to its *vtable*, which says where each field lies in the table (0: it is left out). Numbers
stand in the table itself, everything else (tables, strings, vectors) lies further back in the file, and the field holds the
distance to it. So nothing can contain itself. But the bytes of one object may be referred to many times: what is read out of a
file is counted, and may not be more than the file has room for.

Whatever does not fit raises FlatBufferError with the offset.
"""

from __future__ import annotations

import struct
from typing import Any, Final

MAX_DEPTH: Final = 64  # tables inside tables; what FlatBuffers' own verifier takes
IDENTIFIER_AT: Final = 4
_HEADER: Final = 8  # the distance to the root table, and the identifier
_OFFSET: Final = struct.Struct("<I")
_BACK: Final = struct.Struct("<i")
_VTABLE: Final = struct.Struct("<HH")
_SLOT: Final = struct.Struct("<H")
_SCALARS: Final = {code: struct.Struct(f"<{code}") for code in "bBiIqf?"}
_SHARING: Final = 4  # how many times over the bytes of a file may be read: writers share equal strings, and little else
_SPARE: Final = 4096


class FlatBufferError(Exception):
    """The bytes break the format at `offset`."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text, offset)
        self.text = text
        self.offset = offset


class FlatBuffer:
    """The bytes of one file."""

    __slots__ = ("_left", "_texts", "buf", "size")

    def __init__(self, buf: memoryview) -> None:
        self.buf = buf
        self.size = len(buf)
        self._left = _SHARING * self.size + _SPARE
        self._texts: dict[int, str] = {}

    def root(self) -> FlatTable:
        """The outermost table."""
        if self.size < _HEADER:
            raise FlatBufferError(f"it ends after {self.size} bytes, expected at least {_HEADER}", 0)
        return self.table_at(0)

    def spend(self, count: int, offset: int) -> None:
        """Count bytes that are read into objects; an error if objects share them so often that it must be on purpose."""
        self._left -= count
        if self._left < 0:
            raise FlatBufferError("its parts share so much of the file that it cannot be meant", offset)

    def target(self, offset: int) -> int:
        """Where the object lies whose distance stands at an offset."""
        if not 0 <= offset <= self.size - 4:
            raise FlatBufferError("the file ends before this", offset)
        distance: int = _OFFSET.unpack_from(self.buf, offset)[0]
        if not distance or offset + distance > self.size - 4:
            raise FlatBufferError(f"a distance of {distance} leads nowhere in a file of {self.size} bytes", offset)
        return offset + distance

    def table_at(self, offset: int) -> FlatTable:
        """The table whose distance stands at an offset."""
        return FlatTable(self, self.target(offset))

    def vector_at(self, offset: int, width: int) -> tuple[int, int]:
        """First byte and number of elements of the vector whose distance stands at an offset."""
        start = self.target(offset)
        count: int = _OFFSET.unpack_from(self.buf, start)[0]
        if count * width > self.size - start - 4:
            raise FlatBufferError(f"a vector of {count} elements of {width} bytes is longer than the file", start)
        return start + 4, count

    def text_at(self, offset: int) -> str:
        """The string whose distance stands at an offset; bytes that are not UTF-8 are kept as surrogate escapes."""
        start, length = self.vector_at(offset, 1)
        known = self._texts.get(start)
        if known is None:
            self.spend(length, start)
            known = self._texts[start] = str(self.buf[start : start + length], "utf-8", "surrogateescape")
        return known


class FlatTable:
    """One table; fields are named by their slots. A field that is left out has its default."""

    __slots__ = ("_end", "_file", "_slots_end", "_vtable", "pos")

    def __init__(self, file: FlatBuffer, pos: int) -> None:
        self._file = file
        self.pos = pos
        file.spend(4, pos)
        vtable = pos - _BACK.unpack_from(file.buf, pos)[0]
        if not 0 <= vtable <= file.size - 4:
            raise FlatBufferError(f"the vtable of a table lies at {vtable}, outside of the file", pos)
        length, size = _VTABLE.unpack_from(file.buf, vtable)
        if length < 4 or length % 2 or vtable + length > file.size or size < 4 or pos + size > file.size:
            raise FlatBufferError(f"a table of {size} bytes with a vtable of {length} bytes at {vtable} makes no sense", pos)
        self._vtable = vtable
        self._slots_end = vtable + length
        self._end = pos + size

    def _field(self, slot: int, width: int) -> int:
        """Where a field lies; 0 if it is left out."""
        at = self._vtable + 4 + 2 * slot
        if at >= self._slots_end:
            return 0
        distance: int = _SLOT.unpack_from(self._file.buf, at)[0]
        if not distance:
            return 0
        if distance < 4 or self.pos + distance + width > self._end:
            raise FlatBufferError(f"field {slot} of a table lies outside of it", self.pos)
        return self.pos + distance

    def has(self, slot: int) -> bool:
        """Whether a field is there."""
        return bool(self._field(slot, 1))

    def number(self, slot: int, code: str, default: Any = 0) -> Any:
        """A number, `code` as the struct module has it."""
        scalar = _SCALARS[code]
        at = self._field(slot, scalar.size)
        return scalar.unpack_from(self._file.buf, at)[0] if at else default

    def text(self, slot: int, default: str = "") -> str:
        """A string."""
        at = self._field(slot, 4)
        return self._file.text_at(at) if at else default

    def table(self, slot: int) -> FlatTable | None:
        """A table; None if it is left out."""
        at = self._field(slot, 4)
        return self._file.table_at(at) if at else None

    def tables(self, slot: int) -> list[FlatTable]:
        """A vector of tables."""
        start, count = self._vector(slot, 4)
        self._file.spend(4 * count, start)
        return [self._file.table_at(start + 4 * index) for index in range(count)]

    def texts(self, slot: int) -> list[str]:
        """A vector of strings."""
        start, count = self._vector(slot, 4)
        self._file.spend(4 * count, start)
        return [self._file.text_at(start + 4 * index) for index in range(count)]

    def numbers(self, slot: int, code: str) -> tuple[Any, ...]:
        """A vector of numbers."""
        width = _SCALARS[code].size
        start, count = self._vector(slot, width)
        self._file.spend(width * count, start)
        return struct.unpack_from(f"<{count}{code}", self._file.buf, start) if count else ()

    def records(self, slot: int, layout: struct.Struct) -> list[tuple[Any, ...]]:
        """A vector of structs."""
        start, count = self._vector(slot, layout.size)
        self._file.spend(layout.size * count, start)
        return list(layout.iter_unpack(self._file.buf[start : start + layout.size * count])) if count else []

    def raw(self, slot: int) -> memoryview | None:
        """A vector of bytes as a part of the file; None if it is left out."""
        at = self._field(slot, 4)
        if not at:
            return None
        start, count = self._file.vector_at(at, 1)
        return self._file.buf[start : start + count]

    def _vector(self, slot: int, width: int) -> tuple[int, int]:
        at = self._field(slot, 4)
        return self._file.vector_at(at, width) if at else (0, 0)
