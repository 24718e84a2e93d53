"""The FlatBuffers encoding: objects to bytes. Weights are not copied: the file is a row of parts.

Tables come first, outer ones before those inside them, then strings (equal ones once), then the large data: all distances lead
forward, as the encoding demands.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sardonyx.errors import InvalidArgument

MAX_SIZE: Final = (1 << 31) - 1  # bytes; the encoding's own limit
_HEADER: Final = 8
_WIDTHS: Final = {"b": 1, "B": 1, "?": 1, "i": 4, "I": 4, "f": 4, "q": 8, "o": 4}
_OFFSET: Final = "o"  # a field that holds the distance to an object
_RAW_ALIGNMENT: Final = 64
_LARGE: Final = 64  # bytes from which on data is aligned so far


class TableOut:
    """A table to be written."""

    __slots__ = ("_fields", "position")

    def __init__(self) -> None:
        self._fields: list[tuple[int, str, Any]] = []
        self.position = 0

    def number(self, slot: int, code: str, value: Any, default: Any = 0) -> None:
        """A number, `code` as the struct module has it; one that is the field's default is left out."""
        if value != default:
            self._fields.append((slot, code, value))

    def text(self, slot: int, value: str) -> None:
        """A string."""
        self._fields.append((slot, _OFFSET, _Text(value.encode("utf-8", "surrogateescape"))))

    def table(self, slot: int, value: TableOut) -> None:
        """A table."""
        self._fields.append((slot, _OFFSET, value))

    def tables(self, slot: int, values: Iterable[TableOut]) -> None:
        """A vector of tables."""
        self._fields.append((slot, _OFFSET, _References(list(values))))

    def texts(self, slot: int, values: Iterable[str]) -> None:
        """A vector of strings."""
        texts = [_Text(value.encode("utf-8", "surrogateescape")) for value in values]
        self._fields.append((slot, _OFFSET, _References(texts)))

    def numbers(self, slot: int, code: str, values: Sequence[Any]) -> None:
        """A vector of numbers."""
        content = struct.pack(f"<{len(values)}{code}", *values)
        self._fields.append((slot, _OFFSET, _Vector(len(values), content, _WIDTHS[code])))

    def records(self, slot: int, layout: struct.Struct, values: Sequence[tuple[Any, ...]]) -> None:
        """A vector of structs of 4-byte numbers."""
        content = b"".join(layout.pack(*value) for value in values)
        self._fields.append((slot, _OFFSET, _Vector(len(values), content, 4)))

    def raw(self, slot: int, content: memoryview) -> None:
        """A vector of bytes, which are not copied."""
        self._fields.append((slot, _OFFSET, _Raw(content)))

    def layout(self) -> tuple[bytes, int, int, list[tuple[int, str, Any]]]:
        """The vtable, the size of the table, its alignment, and its fields with their positions in it."""
        offset, alignment = 4, 4
        slots = [0] * (1 + max((slot for slot, _, _ in self._fields), default=-1))
        placed = []
        for slot, code, value in sorted(self._fields, key=lambda field: -_WIDTHS[field[1]]):
            width = _WIDTHS[code]
            alignment = max(alignment, width)
            offset = -(-offset // width) * width
            slots[slot] = offset
            placed.append((offset, code, value))
            offset += width
        size = -(-offset // 4) * 4
        return struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), size, *slots), size, alignment, placed


class _Text:
    __slots__ = ("content",)

    def __init__(self, content: bytes) -> None:
        self.content = content


class _References:
    """A vector of distances to tables or strings."""

    __slots__ = ("items", "position")

    def __init__(self, items: Sequence[TableOut | _Text]) -> None:
        self.items = items
        self.position = 0


class _Vector:
    __slots__ = ("alignment", "content", "count", "position")

    def __init__(self, count: int, content: bytes, alignment: int) -> None:
        self.count = count
        self.content = content
        self.alignment = alignment
        self.position = 0


class _Raw:
    __slots__ = ("content", "position")

    def __init__(self, content: memoryview) -> None:
        self.content = content
        self.position = 0


def encode(root: TableOut, identifier: bytes) -> list[bytes | memoryview]:
    """The parts of a file with this root table; InvalidArgument if it would be larger than the encoding can express."""
    writer = _Writer()
    return writer.file(root, identifier)


class _Writer:
    def __init__(self) -> None:
        self._head = bytearray(_HEADER)
        self._vtables: dict[bytes, int] = {}
        self._patches: list[tuple[int, Any]] = []  # where a distance stands, and the object it leads to
        self._texts: dict[bytes, int] = {}
        self._raws: list[_Raw] = []

    def file(self, root: TableOut, identifier: bytes) -> list[bytes | memoryview]:
        self._head[4:8] = identifier
        self._patches.append((0, root))
        queue: list[Any] = [root]
        at = 0
        while at < len(queue):
            each = queue[at]
            queue[at] = None  # let go of what has been written
            at += 1
            if isinstance(each, TableOut):
                queue.extend(self._table(each))
            elif isinstance(each, _References):
                queue.extend(self._references(each))
            else:
                self._vector(each)
        for text in self._texts:
            self._align(4)
            self._texts[text] = len(self._head)
            self._head += struct.pack("<I", len(text)) + text + b"\0"
        parts = self._data()
        for where, target in self._patches:
            position = self._texts[target.content] if isinstance(target, _Text) else target.position
            struct.pack_into("<I", self._head, where, position - where)
        return [bytes(self._head), *parts]

    def _align(self, alignment: int, ahead: int = 0) -> None:
        """Fill up until what comes after the next `ahead` bytes is aligned."""
        self._head += bytes(-(len(self._head) + ahead) % alignment)

    def _table(self, table: TableOut) -> list[Any]:
        vtable, size, alignment, fields = table.layout()
        known = self._vtables.get(vtable)
        if known is None:
            self._align(2)
            known = self._vtables[vtable] = len(self._head)
            self._head += vtable
        self._align(alignment)
        table.position = start = len(self._head)
        self._head += bytes(size)
        struct.pack_into("<i", self._head, start, start - known)
        inside: list[Any] = []
        for offset, code, value in fields:
            if code != _OFFSET:
                struct.pack_into(f"<{code}", self._head, start + offset, value)
            else:
                self._refer(start + offset, value, inside)
        return inside

    def _refer(self, where: int, target: Any, inside: list[Any]) -> None:
        self._patches.append((where, target))
        if isinstance(target, _Text):
            self._texts.setdefault(target.content, 0)
        elif isinstance(target, _Raw):
            self._raws.append(target)
        else:
            inside.append(target)

    def _references(self, vector: _References) -> list[Any]:
        self._align(4)
        vector.position = len(self._head)
        self._head += struct.pack("<I", len(vector.items)) + bytes(4 * len(vector.items))
        inside: list[Any] = []
        for index, item in enumerate(vector.items):
            self._refer(vector.position + 4 + 4 * index, item, inside)
        return inside

    def _vector(self, vector: _Vector) -> None:
        self._align(4)
        self._align(max(4, vector.alignment), 4)
        vector.position = len(self._head)
        self._head += struct.pack("<I", vector.count) + vector.content

    def _data(self) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = []
        end = len(self._head)
        for raw in self._raws:
            count = len(raw.content)
            gap = -(end + 4) % (_RAW_ALIGNMENT if count >= _LARGE else 8)
            raw.position = end + gap
            parts += [bytes(gap) + struct.pack("<I", count), raw.content]
            end = raw.position + 4 + count
            if end > MAX_SIZE:
                raise InvalidArgument(
                    f"the model would have more than {MAX_SIZE} bytes, which a model in the ORT format cannot have",
                    hint="save it as ONNX with its weights in a file of their own",
                )
        parts.append(bytes(-end % 16))
        return parts
