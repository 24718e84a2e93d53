"""Tables of integers, texts and bytes in one checked piece: the outside of program files.

    header      magic, version, number of tables, lengths of record and file, checksums of record and header
    record      directory ── tables of 64-bit integers ── texts ── bytes
    contents    large pieces, aligned, which the record's tables tell the positions of

Everything is little-endian, every position counts from the beginning of the part it lies in. A reader gets the tables with all
their integers within the limits that the schema states, or `FormatError` with the reason; it never reads outside of the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Columns = tuple[str, ...]
Schema = Mapping[str, tuple[int, Columns]]  # name of a table -> its number in files, what each column counts or points to

MAGIC: Final = b"\x89SDX\r\n\x1a\n"  # damaged by whoever takes it for text
ALIGNMENT: Final = 64  # of the contents
_HEADER: Final = struct.Struct("<8sIIQQII24x")  # magic, version, tables, length of the record, of the file, two checksums
_HEADER_SUM_AT: Final = 36
_ENTRY: Final = struct.Struct("<IIQQ")  # a table's number, columns (0: bytes), position in the record, rows
_TEXT_ENDS: Final = 1  # tables that every file has: where each text ends, all texts, other bytes
_TEXTS: Final = 2
_BYTES: Final = 3
_MOST_TABLES: Final = 256
_INTEGER: Final = np.dtype("<i8")
LARGEST_RECORD: Final = 256 << 20  # bytes
_FEW: Final = 48  # integers

ANY: Final = "any"  # a column of any integers
COUNT: Final = "count"  # of integers that are not negative
OPTIONAL: Final = "?"  # behind what a column points to: -1 is nothing
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


class FormatError(ValueError):
    """A file is not what the format demands; the text says where and why."""


class Texts:
    """Texts under construction; equal ones are one."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    def encoded(self) -> list[bytes]:
        """All texts in order. Names of models are any Unicode, with surrogates that stand for nothing."""
        return [text.encode("utf-8", "surrogatepass") for text in self._numbers]


def pack(
    version: int,
    schema: Schema,
    tables: Mapping[str, Sequence[Any] | Array],
    texts: Texts,
    content: Sequence[bytes] = (),
    behind: int = 0,
) -> list[bytes]:
    """A file but for its contents, which have `behind` bytes; `content` are the record's bytes.

    OverflowError: a number does not fit into 64 bits, or the record is too large.
    """
    encoded = texts.encoded()
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64) if encoded else np.empty(0, np.int64)
    parts: list[tuple[int, int, int, bytes]] = [(_TEXT_ENDS, 1, len(encoded), ends.astype("<i8").tobytes())]
    for name, (number, columns) in schema.items():
        table = np.asarray(tables.get(name, ()), np.int64).reshape(-1, len(columns))
        parts.append((number, len(columns), len(table), table.astype("<i8").tobytes()))
    parts += [(_TEXTS, 0, sum(map(len, encoded)), b"".join(encoded)), (_BYTES, 0, sum(map(len, content)), b"".join(content))]
    position = len(parts) * _ENTRY.size
    entries = []
    for number, width, rows, part in parts:
        entries.append(_ENTRY.pack(number, width, position, rows))
        position += len(part)
    record = b"".join((*entries, *(part for *_, part in parts)))
    if len(record) > LARGEST_RECORD:
        raise OverflowError(f"a record of {len(record)} bytes")
    gap = -(_HEADER.size + len(record)) % ALIGNMENT
    size = _HEADER.size + len(record) + gap + behind
    header = _HEADER.pack(MAGIC, version, len(parts), len(record), size, zlib.crc32(record), 0)
    checksum = struct.pack("<I", zlib.crc32(header[:_HEADER_SUM_AT]))
    return [header[:_HEADER_SUM_AT], checksum, header[_HEADER_SUM_AT + 4 :], record, bytes(gap)]


class Container:
    """A file that was read: its tables, texts and bytes. `contents` is where the contents begin."""

    def __init__(self, data: memoryview, version: int, schema: Schema) -> None:
        self.data = data
        record, entries = _checked_record(data, version)
        self.contents = -(-(_HEADER.size + len(record)) // ALIGNMENT) * ALIGNMENT
        integers = np.frombuffer(record, _INTEGER, len(record) // 8)
        positions = {}
        for number, width, position, rows in entries:
            size = rows * width * 8 if width else rows
            if position + size > len(record) or position % 8 * width or width > _MOST_TABLES:
                raise FormatError(f"a table of {rows} rows with {width} columns at {position} of {len(record)} bytes")
            positions[number] = (width, position, rows)
        if len(positions) != len(entries):
            raise FormatError("a table is there twice")

        def table(number: int, width: int) -> Any:
            """A table as an array of its rows, or bytes as they are."""
            found, position, rows = positions.get(number, ("no", 0, 0))
            if found != width:
                raise FormatError(f"table {number} has {found} columns, expected {width}")
            if not width:
                return record[position : position + rows]
            first = position // 8
            return integers[first : first + rows * width].reshape(rows, width)

        self._directory, self._read = positions, table
        self.bytes: memoryview = table(_BYTES, 0)
        self._texts: memoryview = table(_TEXTS, 0)
        self._ends: list[int] = table(_TEXT_ENDS, 1)[:, 0].tolist()
        before = 0
        for end in self._ends:
            if end < before:
                raise FormatError(f"a text ends at {end}, before it begins")
            before = end
        if before != len(self._texts):
            raise FormatError(f"the texts end at {before} of {len(self._texts)}")
        self._tables: dict[str, Array] = {name: table(number, len(columns)) for name, (number, columns) in schema.items()}

    def __getitem__(self, name: str) -> Array:
        return self._tables[name]

    def has(self, number: int) -> bool:
        """Whether the file has a table of this number."""
        return number in self._directory

    def add(self, schema: Schema) -> None:
        """Look for further tables; FormatError if not all of them are there."""
        for name, (number, columns) in schema.items():
            self._tables[name] = self._read(number, len(columns))

    def check(self, schema: Schema, limits: Mapping[str, int]) -> None:
        """Whether all integers are within what their columns count or point to; `limits` tells how many there are of each."""
        last = {name: count - 1 for name, count in limits.items()}
        last.update({"text": len(self._ends) - 1, ANY: _HIGHEST, COUNT: _HIGHEST})
        for name, (_, columns) in schema.items():
            table = self._tables[name]
            if not len(table):
                continue
            lows = [_LOWEST if kind == ANY else -1 if kind[-1] == OPTIONAL else 0 for kind in columns]
            highs = [last[kind.removesuffix(OPTIONAL)] for kind in columns]
            if table.size <= _FEW:  # where NumPy takes longer to begin than Python to end
                inside = all(low <= value <= high for row in table.tolist() for low, value, high in zip(lows, row, highs))
            else:
                inside = not ((table < lows).any() or (table > highs).any())
            if not inside:
                row, column = np.argwhere((table < lows) | (table > highs))[0].tolist()
                found, kind = table[row, column], columns[column]
                raise FormatError(f"{name}: row {row} has {kind} {found}, expected {lows[column]} up to {highs[column]}")

    @property
    def text_count(self) -> int:
        """How many texts there are."""
        return len(self._ends)

    def text(self, number: int) -> str:
        """A text, by a number that was checked."""
        start = self._ends[number - 1] if number else 0
        try:
            return str(self._texts[start : self._ends[number]], "utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FormatError(f"text {number} is not UTF-8: {error}") from None

    def texts(self, numbers: Sequence[int]) -> list[str]:
        """Some texts."""
        return [self.text(number) for number in numbers]


def _checked_record(data: memoryview, version: int) -> tuple[memoryview, list[tuple[int, int, int, int]]]:
    """The record and its directory; the positions in that are still to be checked."""
    if len(data) < _HEADER.size:
        raise FormatError(f"the file has {len(data)} bytes, fewer than a header")
    magic, found, count, length, size, record_sum, header_sum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"it begins with {magic!r}: this is no program file")
    if found != version:
        raise FormatError(f"it is of version {found}, expected {version}")
    if zlib.crc32(data[:_HEADER_SUM_AT]) != header_sum:
        raise FormatError("the checksum of its header is wrong")
    if size != len(data):
        raise FormatError(f"it has {len(data)} bytes, its header says {size}")
    if length > min(size - _HEADER.size, LARGEST_RECORD) or count > _MOST_TABLES or count * _ENTRY.size > length:
        raise FormatError(f"its header tells of a record of {length} bytes and {count} tables")
    record = data[_HEADER.size : _HEADER.size + length]
    if zlib.crc32(record) != record_sum:
        raise FormatError("the checksum of its record is wrong")
    return record, list(_ENTRY.iter_unpack(record[: count * _ENTRY.size]))
