"""Decoders of image files: BMP, PNG and PNM with NumPy and zlib alone; every other format, if Pillow is installed.

`decode` gives unsigned bytes [height, width, channels], with 1 (grey) or 3 (red, green, blue) channels; transparency is
dropped and 16-bit samples keep their upper half.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.interruption import stop_if_asked

MOST_PIXELS = 1 << 28  # an image may claim any size in a few bytes; more than this is refused


class DamagedImage(ValueError):
    """The bytes are not an image, or not a whole one."""


def decode(data: bytes) -> Array:
    """The pixels of an image file; DamagedImage if there are none, ValueError if the format cannot be read here."""
    for magic, reader in _READERS:
        if data.startswith(magic):
            try:
                return reader(data)
            except DamagedImage:
                raise
            except (struct.error, ValueError, IndexError, zlib.error) as error:
                raise DamagedImage(f"the {reader.__name__.removeprefix('_read_')} image is damaged: {error}") from None
    return _read_with_pillow(data)


def _read_with_pillow(data: bytes) -> Array:
    try:
        from PIL import Image, UnidentifiedImageError  # lazy: an optional package
    except ImportError:
        raise ValueError(
            f"the image (it starts with {data[:8].hex(' ')}) is not BMP, PNG or PNM; other formats need the package pillow"
        ) from None
    try:
        picture = Image.open(io.BytesIO(data))
        return np.array(picture.convert("L" if picture.mode in ("1", "L", "LA") else "RGB")).reshape(
            picture.height, picture.width, -1
        )
    except (UnidentifiedImageError, OSError) as error:
        raise DamagedImage(f"the image cannot be read: {error}") from None


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise DamagedImage(f"the image claims a size of {width} x {height} pixels")


def _read_bmp(data: bytes) -> Array:
    start, header = struct.unpack_from("<II", data, 10)
    if header < 40:
        return _read_with_pillow(data)
    width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    _check_size(width, abs(height))
    if compression not in (0, 3) or bits not in (1, 4, 8, 24, 32):
        return _read_with_pillow(data)
    stride = (width * bits + 31) // 32 * 4
    rows = np.frombuffer(data, np.uint8, stride * abs(height), start).reshape(abs(height), stride)
    if height > 0:  # stored from the bottom up
        rows = rows[::-1]
    if bits >= 24:
        samples = bits // 8
        return np.ascontiguousarray(rows[:, : width * samples].reshape(abs(height), width, samples)[:, :, 2::-1])
    colours = struct.unpack_from("<I", data, 46)[0] or 1 << bits
    palette = np.frombuffer(data, np.uint8, colours * 4, 14 + header).reshape(-1, 4)[:, 2::-1]
    indices = _unpacked(rows, bits)[:, :width]
    return np.ascontiguousarray(palette[np.minimum(indices, colours - 1)])


def _unpacked(rows: Array, bits: int) -> Array:
    """Samples of 1, 2 or 4 bits, the highest bits first."""
    if bits == 8:
        return rows
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return ((rows[:, :, None] >> shifts) & ((1 << bits) - 1)).reshape(rows.shape[0], -1)


_PNM_TOKEN = re.compile(rb"(?:\s|#[^\n]*\n)*(\d+)")


def _read_pnm(data: bytes) -> Array:
    kind, position = int(data[1:2]), 2
    header = []
    for _ in range(2 if kind in (1, 4) else 3):
        match = _PNM_TOKEN.match(data, position)
        if match is None:
            raise DamagedImage("the PNM header has no size")
        header.append(int(match[1]))
        position = match.end()
    width, height, highest = header if len(header) == 3 else (*header, 1)
    _check_size(width, height)
    samples = 3 if kind in (3, 6) else 1
    count = width * height * samples
    if kind == 1:  # the digits need no space between them
        digits = re.sub(rb"#[^\n]*\n|[^01]", b"", data[position:])
        values = np.frombuffer(digits, np.uint8, count) - ord("0")
    elif kind in (2, 3):
        values = np.array(re.sub(rb"#[^\n]*\n", b" ", data[position:]).split()[:count], np.int64)
    elif kind == 4:
        stride = (width + 7) // 8
        packed = np.frombuffer(data, np.uint8, stride * height, position + 1).reshape(height, stride)
        values = np.unpackbits(packed, axis=1)[:, :width]
    else:
        values = np.frombuffer(data, ">u2" if highest > 255 else np.uint8, count, position + 1)
    pixels = values.astype(np.int64).reshape(height, width, samples)
    if kind in (1, 4):
        return ((1 - pixels) * 255).astype(np.uint8)
    return pixels.astype(np.uint8) if highest == 255 else (pixels * 255 // max(highest, 1)).astype(np.uint8)


ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
_PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def _read_png(data: bytes) -> Array:
    width, height, bits, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    _check_size(width, height)
    if colour not in _PNG_SAMPLES or bits not in (1, 2, 4, 8, 16):
        raise DamagedImage(f"a PNG of colour type {colour} with {bits} bits does not exist")
    position, packed, palette = 8, b"", np.zeros((1, 3), np.uint8)
    while position + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        body = data[position + 8 : position + 8 + length]
        if name == b"IDAT":
            packed += body
        elif name == b"PLTE":
            palette = np.frombuffer(body, np.uint8).reshape(-1, 3)
        elif name == b"IEND":
            break
        position += length + 12
    samples = _PNG_SAMPLES[colour]
    passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
    sizes = [(-(-(height - top) // down), -(-(width - left) // right)) for top, left, down, right in passes]
    strides = [(columns * samples * bits + 7) // 8 for _, columns in sizes]
    total = sum(rows * (stride + 1) for (rows, columns), stride in zip(sizes, strides, strict=True) if rows > 0 and columns > 0)
    stream = zlib.decompressobj().decompress(packed, total)
    if len(stream) < total:
        raise DamagedImage(f"the png image has {len(stream)} bytes of pixels, expected {total}")
    pixels = np.zeros((height, width, samples), np.uint8)
    offset = 0
    for (top, left, down, right), (rows, columns), stride in zip(passes, sizes, strides, strict=True):
        if rows <= 0 or columns <= 0:
            continue
        raw = np.frombuffer(stream, np.uint8, rows * (stride + 1), offset).reshape(rows, stride + 1)
        offset += raw.size
        lines = _unfiltered(raw, max(1, samples * bits // 8))
        if bits == 16:
            lines = lines[:, ::2]
        values = _unpacked(lines, min(bits, 8))[:, : columns * samples]
        if bits < 8 and colour == 0:
            values = values * (255 // ((1 << bits) - 1))
        pixels[top::down, left::right] = values.reshape(rows, columns, samples)
    if colour == 3:
        return palette[np.minimum(pixels[:, :, 0], len(palette) - 1)]
    return np.ascontiguousarray(pixels[:, :, : 1 if colour in (0, 4) else 3])


def _unfiltered(raw: Array, step: int) -> Array:
    """The rows of a PNG with their prediction undone; the first byte of each says which one it is."""
    rows, stride = raw.shape[0], raw.shape[1] - 1
    result = np.zeros((rows, stride), np.uint8)
    above = np.zeros(stride, np.uint8)
    for number in range(rows):
        stop_if_asked()
        kind, line = int(raw[number, 0]), raw[number, 1:]
        if kind == 0:
            above = line
        elif kind == 1:
            lanes = np.zeros(-(-stride // step) * step, np.uint8)
            lanes[:stride] = line
            above = np.add.accumulate(lanes.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)[:stride]
        elif kind == 2:
            above = line + above
        elif kind in (3, 4):
            above = np.frombuffer(_predicted(line.tobytes(), above.tobytes(), step, kind == 4), np.uint8)
        else:
            raise DamagedImage(f"a PNG row has the filter {kind}, expected 0 to 4")
        result[number] = above
    return result


def _predicted(line: bytes, above: bytes, step: int, paeth: bool) -> bytearray:
    """The filters that need the byte just decoded: mean of left and above, or Paeth's choice of three."""
    done = bytearray(len(line))
    for column, byte in enumerate(line):
        up = above[column]
        left = done[column - step] if column >= step else 0
        if paeth:
            corner = above[column - step] if column >= step else 0
            guess = left + up - corner
            by_left, by_up, by_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
            near = left if by_left <= by_up and by_left <= by_corner else up if by_up <= by_corner else corner
        else:
            near = (left + up) >> 1
        done[column] = (byte + near) & 255
    return done


_READERS: tuple[tuple[bytes | tuple[bytes, ...], Callable[[bytes], Array]], ...] = (
    (b"BM", _read_bmp),
    (b"\x89PNG\r\n\x1a\n", _read_png),
    (tuple(b"P%d" % kind for kind in range(1, 7)), _read_pnm),
)
