"""The protobuf wire format: fields out of bytes, and bytes out of fields.

A message is a row of fields, each a tag (field number * 8 + wire type) and its content:

    wire type 0   varint: 7 bits a byte, least significant first        08 96 01           field 1 = 150
    wire type 1   8 bytes, wire type 5   4 bytes                        15 00 00 80 3f     field 2 = 1.0f
    wire type 2   a length, then that many bytes                        22 02 6f 6b        field 4 = "ok"
    wire type 3   a group up to the matching wire type 4; nobody writes them any more, they are skipped

Reading makes no objects but numbers: `fields` gives the range of each content in the one buffer all messages lie in. Whatever
does not fit raises WireError with the offset; `schema.locate` turns the offset into a path of field names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Sequence
from typing import Final, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from sardonyx.formats.shared.source import Buffer

Part: TypeAlias = Union[bytes, memoryview]

MAX_DEPTH: Final = 100  # messages inside messages; the limit of protobuf's own readers
_MAX_VARINT: Final = 10  # bytes of a 64-bit number
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_MAX_TAG: Final = 1 << 32
_FEW_BYTES: Final = 16  # below this a loop is faster than NumPy
_FEW_NUMBERS: Final = 32  # likewise for encoding
_RUN_CHUNK: Final = 4096
_DECODE_CHUNK: Final = 1 << 20  # bounds the temporaries of decoding, about 30 bytes a byte
_JOIN_BELOW: Final = 1 << 16


class WireError(Exception):
    """The bytes break the format at `offset`; readers turn this into errors.InvalidProtobuf."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text, offset)
        self.text = text
        self.offset = offset


def varint(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """The unsigned 64-bit number at `pos`, and where it ends."""
    result = shift = 0
    at = pos
    while at < end:
        byte = buf[at]
        at += 1
        if byte < 0x80:
            return (result | byte << shift) & _MASK, at
        result |= (byte & 0x7F) << shift
        shift += 7
        if shift == 7 * _MAX_VARINT:
            raise WireError(f"a number of more than {_MAX_VARINT} bytes", pos)
    raise WireError("the data ends inside a number", pos)


def signed(value: int) -> int:
    """An unsigned 64-bit number read as two's complement."""
    return value - (1 << 64) if value & _SIGN else value


def signed32(value: int) -> int:
    """The low 32 bits of a number read as two's complement, as protobuf reads an int32."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def fields(buf: Buffer, pos: int, end: int) -> Generator[tuple[int, int, int], int | None, None]:
    """The fields of the message in buf[pos:end], each as (tag, start, stop).

    For a varint `start` is its unsigned value and `stop` the place after it; otherwise buf[start:stop] is the content.
    Sending a position makes the walk go on there (answered by a field with tag 0).
    """
    while pos < end:
        begin = pos
        tag = buf[pos]
        pos += 1
        if tag > 0x7F:
            tag, pos = varint(buf, begin, end)
        kind = tag & 7
        start = pos
        if kind == 2:
            if pos < end and (size := buf[pos]) < 0x80:
                pos += 1
            else:
                size, pos = varint(buf, pos, end)
            start = pos
            pos += size
            if pos > end:
                raise WireError(f"a field claims {size} bytes, {end - start} are left", begin)
        elif kind == 0:
            if pos < end and (start := buf[pos]) < 0x80:
                pos += 1
            else:
                start, pos = varint(buf, pos, end)
        elif kind in (1, 5):
            pos += 4 if kind == 5 else 8
            if pos > end:
                raise WireError(f"a field of {pos - start} bytes, {end - start} are left", begin)
        elif kind == 3:
            pos = _skip_group(buf, pos, end, tag >> 3)
        else:
            raise WireError("the end of a group that never began" if kind == 4 else f"wire type {kind} does not exist", begin)
        if tag < 8 or tag >= _MAX_TAG:
            raise WireError(f"field number {tag >> 3} is not allowed", begin)
        jump = yield tag, start, pos
        if jump is not None:
            pos = jump
            yield 0, 0, pos


def _skip_group(buf: Buffer, pos: int, end: int, number: int) -> int:
    """Where the group that begins before `pos` ends."""
    begin = pos
    open_groups = [number]
    while open_groups:
        tag, pos = varint(buf, pos, end)
        kind = tag & 7
        if kind == 3:
            open_groups.append(tag >> 3)
            if len(open_groups) > MAX_DEPTH:
                raise WireError(f"groups nested more than {MAX_DEPTH} deep", begin)
        elif kind == 4:
            if open_groups.pop() != tag >> 3:
                raise WireError("a group ends with another field number than it began", pos - 1)
        elif kind == 0:
            _, pos = varint(buf, pos, end)
        elif kind == 2:
            size, pos = varint(buf, pos, end)
            pos += size
        elif kind in (1, 5):
            pos += 8 if kind == 1 else 4
        else:
            raise WireError(f"wire type {kind} does not exist", pos - 1)
        if pos > end:
            raise WireError("the data ends inside a group", begin)
    return pos


def text(buf: Buffer, start: int, stop: int) -> str:
    """A string; bytes that are not UTF-8 become surrogate escapes, so that they can be written back."""
    return str(buf[start:stop], "utf-8", "surrogateescape")


def float32(buf: Buffer, start: int) -> float:
    """The 4-byte float at `start`."""
    return float(struct.unpack_from("<f", buf, start)[0])


def _decode(data: NDArray[np.uint8], ends: NDArray[np.intp]) -> NDArray[np.uint64]:
    """The varints in `data` whose last bytes are at `ends`; none may be longer than 10 bytes."""
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    sizes = ends - starts
    result = (data[starts] & 0x7F).astype(np.uint64)
    for index in range(1, int(sizes.max()) + 1):
        longer = np.flatnonzero(sizes >= index)
        result[longer] |= (data[starts[longer] + index] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * index)
    return result


def packed_varints(buf: Buffer, start: int, stop: int) -> NDArray[np.uint64]:
    """All numbers of a packed repeated field (view the result as int64 for signed ones)."""
    if stop - start < _FEW_BYTES:
        few = []
        while start < stop:
            number, start = varint(buf, start, stop)
            few.append(number)
        return np.array(few, np.uint64)
    data = np.frombuffer(buf, np.uint8, stop - start, start)
    if not data.size:
        return np.empty(0, np.uint64)
    if data[-1] >= 0x80:
        raise WireError("the data ends inside a number", stop - 1)
    if int(data.max()) < 0x80:
        return data.astype(np.uint64)
    result = np.empty(np.count_nonzero(data < 0x80), np.uint64)
    filled = at = 0
    while at < data.size:
        chunk = data[at : at + _DECODE_CHUNK]
        ends = np.flatnonzero(chunk < 0x80)
        longest = int(np.diff(ends, prepend=-1).max()) if ends.size else chunk.size
        if longest > _MAX_VARINT:
            raise WireError(f"a packed field holds a number of {longest} bytes; the longest are {_MAX_VARINT}", start + at)
        result[filled : filled + ends.size] = _decode(chunk, ends)
        filled += ends.size
        at += int(ends[-1]) + 1
    return result


def varint_run(buf: Buffer, tag: int, pos: int, end: int) -> tuple[NDArray[np.uint64], int]:
    """The values of the unbroken row of varint fields `tag` that begins at `pos` (none, if another field stands there)."""
    found: list[NDArray[np.uint64]] = []
    size = _RUN_CHUNK
    while pos < end and (found or tag > 0x7F or buf[pos] == tag):
        data = np.frombuffer(buf, np.uint8, min(size, end - pos), pos)
        ends = np.flatnonzero(data < 0x80)
        too_long = np.flatnonzero(np.diff(ends, prepend=-1) > _MAX_VARINT)
        if too_long.size:
            ends = ends[: too_long[0]]
        ends = ends[: ends.size // 2 * 2]  # a tag is a varint too: they come in pairs
        if not ends.size:
            break
        numbers = _decode(data, ends)
        other = np.flatnonzero(numbers[::2] != tag)
        count = int(other[0]) if other.size else ends.size // 2
        if not count:
            break
        found.append(numbers[1 : 2 * count : 2])
        pos += int(ends[2 * count - 1]) + 1
        if other.size:
            break
        size = min(size * 2, _DECODE_CHUNK)
    return (np.concatenate(found) if found else np.empty(0, np.uint64)), pos


def fixed_run(buf: Buffer, tag: int, pos: int, end: int, width: int) -> tuple[NDArray[np.uint8], int]:
    """The contents, `width` bytes each, of the unbroken row of fields with the one-byte `tag` that begins at `pos`."""
    found: list[NDArray[np.uint8]] = []
    size = _RUN_CHUNK
    while pos < end and (found or buf[pos] == tag):
        count = min(size, end - pos) // (width + 1)
        rows = np.frombuffer(buf, np.uint8, count * (width + 1), pos).reshape(count, width + 1)
        other = np.flatnonzero(rows[:, 0] != tag)
        same = int(other[0]) if other.size else count
        if not same:
            break
        found.append(rows[:same, 1:])
        pos += same * (width + 1)
        if other.size:
            break
        size = min(size * 2, _DECODE_CHUNK)
    return (np.concatenate(found).reshape(-1) if found else np.empty(0, np.uint8)), pos


def text_run(buf: Buffer, tag: int, pos: int, end: int, known: Sequence[str]) -> tuple[list[str], int]:
    """The strings of the unbroken row of fields with the one-byte `tag` that begins at `pos`, as far as they are known ones.

    A million nodes of trees have two or three kinds between them. Fields begin with their lengths, so none begins another.
    """
    contents = {text: text.encode("utf-8", "surrogateescape") for text in known}
    whole = {bytes((tag,)) + encode_varint(len(content)) + content: text for text, content in contents.items()}
    one = b"|".join(map(re.escape, whole))
    found: list[str] = []
    while pos < end:
        piece = bytes(buf[pos : min(pos + _DECODE_CHUNK, end)])
        row = re.match(b"(?:%b)*" % one, piece)
        if row is None or not row.end():
            break
        found.extend(map(whole.__getitem__, re.findall(one, piece[: row.end()])))
        pos += row.end()
        if row.end() + max(map(len, whole)) <= len(piece):  # what comes then is another one
            break
    return found, pos


def encode_varint(value: int) -> bytes:
    """A number as a varint; negative ones as 64-bit two's complement."""
    if 0 <= value < 0x80:
        return _ONE_BYTE[value]
    value &= _MASK
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def _encode_fields(tag: int, values: NDArray[np.uint64]) -> bytes:
    """Varint fields, all with the one-byte `tag`."""
    sizes = np.ones(values.size, np.intp)  # bytes of each number
    for index in range(1, _MAX_VARINT):
        sizes += values >= np.uint64(1 << 7 * index)
    ends = np.cumsum(sizes + 1)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), np.uint8)
    out[starts - 1] = tag
    for index in range(int(sizes.max())):
        here = np.flatnonzero(sizes > index)
        more = (sizes[here] > index + 1).astype(np.uint8) << np.uint8(7)
        out[starts[here] + index] = (values[here] >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F) | more
    return out.tobytes()


def encode_text(value: str) -> bytes:
    """The bytes of a string, surrogate escapes turned back into the bytes they stand for."""
    return value.encode("utf-8", "surrogateescape")


class Writer:
    """One message being written: a list of parts, so that large contents are never copied."""

    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.size = 0

    def _add(self, *parts: Part) -> None:
        self.parts.extend(parts)
        self.size += sum(map(len, parts))

    def integer(self, field: int, value: int) -> None:
        """A varint field."""
        self._add(encode_varint(field << 3) + encode_varint(value))

    def float32(self, field: int, value: float) -> None:
        """A 4-byte float field; a float too large for it becomes infinite."""
        with np.errstate(over="ignore"):
            self._add(encode_varint(field << 3 | 5) + np.float32(value).tobytes())

    def integer_list(self, field: int, values: Sequence[int]) -> None:
        """An unpacked list of varints, which is what ONNX's own writers make; `field` must be below 16."""
        if len(values) < _FEW_NUMBERS:
            tag = encode_varint(field << 3)
            self._add(b"".join([tag + encode_varint(value) for value in values]))
        else:
            self._add(_encode_fields(field << 3, np.array(values, np.int64).view(np.uint64)))

    def float32_list(self, field: int, values: Sequence[float]) -> None:
        """An unpacked list of 4-byte floats; `field` must be below 16."""
        rows = np.empty((len(values), 5), np.uint8)
        rows[:, 0] = field << 3 | 5
        with np.errstate(over="ignore"):
            rows[:, 1:] = np.array(values, "<f4").view(np.uint8).reshape(-1, 4)
        self._add(rows.tobytes())

    def blob(self, field: int, content: Part) -> None:
        """A field of bytes; a memoryview of bytes is kept, not copied."""
        self._add(encode_varint(field << 3 | 2) + encode_varint(len(content)), content)

    def text(self, field: int, value: str) -> None:
        """A string field; left out if empty."""
        if value:
            self.blob(field, encode_text(value))

    def message(self, field: int, message: Writer) -> None:
        """A message inside this one."""
        header = encode_varint(field << 3 | 2) + encode_varint(message.size)
        if message.size < _JOIN_BELOW:  # keeps the list of parts short
            self._add(header + b"".join(message.parts))
        else:
            self.parts.append(header)
            self.parts.extend(message.parts)
            self.size += len(header) + message.size

    def raw(self, content: Part) -> None:
        """Whole fields, encoded already."""
        self._add(content)

    def to_bytes(self) -> bytes:
        """The whole message in one piece."""
        return b"".join(self.parts)
