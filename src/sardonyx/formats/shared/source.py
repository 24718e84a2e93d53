"""Where a model's bytes come from: a path (mapped, not read), bytes, a file object, or a protobuf message."""

from __future__ import annotations

import mmap
import os
import stat
from typing import Any, Final, NamedTuple, TypeAlias, Union

from sardonyx.errors import Fail, InvalidArgument, NoSuchFile
from sardonyx.mapped_file import map_file

Buffer: TypeAlias = Union[bytes, memoryview, mmap.mmap]

_SIGNATURES: Final = (
    (0, b"\x89PNG", "a PNG image"), (0, b"\xff\xd8\xff", "a JPEG image"), (0, b"%PDF", "a PDF document"),
    (0, b"version https://git-lfs", "a Git LFS pointer, which stands for the real file"), (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\x1f\x8b", "a gzip archive"), (0, b"\x28\xb5\x2f\xfd", "a zstandard archive"), (0, b"\x89HDF", "an HDF5 file"),
    (4, b"ORTM", "a model in the ORT format"), (4, b"TFL3", "a TensorFlow Lite model"), (0, b"GGUF", "a GGUF model"),
    (0, b"\x80\x02", "a Python pickle"), (0, b"\x80\x04", "a Python pickle"), (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"<!DOCTYPE", "an HTML page"), (0, b"<!doctype", "an HTML page"), (0, b"<html", "an HTML page"),
    (0, b"\x89SDX", "a compiled model, whose name must end in .sdx to be opened: it holds machine code"),
    (0, b"<?xml", "an XML file"), (0, b"{", "a JSON file"), (8, b"{\"", "a safetensors file"),
)  # fmt: skip
_REMEDIES: Final = {
    b"version https://git-lfs": "fetch it with `git lfs pull`",
    b"PK\x03\x04": "unpack the archive first",
    b"\x1f\x8b": "unpack the archive first",
    b"\x28\xb5\x2f\xfd": "unpack the archive first",
}


class Source(NamedTuple):
    """The bytes of a file, the path it has if it is one, and what messages call it."""

    buf: Buffer
    path: str
    name: str


def open_source(source: Any, what: str = "model") -> Source:
    """The bytes of `source`, without copying those of a file."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(source)
        return Source(_map(path, what), path, path)
    if isinstance(source, bytes):
        return Source(source, "", f"{what} given as bytes")
    if isinstance(source, (bytearray, memoryview, mmap.mmap)):
        return Source(as_memoryview(source), "", f"{what} given as bytes")
    if hasattr(source, "SerializeToString"):
        try:
            content = source.SerializeToString()
        except Exception as error:
            hint = "a protobuf message holds 2 GB at most; save it with external data"
            raise InvalidArgument(f"the {what} {type(source).__name__} could not be serialized: {error}", hint=hint) from error
        return Source(content, "", f"{what} given as {type(source).__name__}")
    if hasattr(source, "read"):
        content = source.read()
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"the {what} file gives {type(content).__name__}, expected bytes", hint="open it in mode 'rb'")
        return Source(bytes(content), "", f"{what} given as {type(source).__name__}")
    raise InvalidArgument(
        f"a {what} cannot be read from {type(source).__name__}; expected a path, bytes, a binary file, or an object with "
        "SerializeToString"
    )


def _map(path: str, what: str) -> Buffer:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchFile(f"there is no {what} file {path!r}") from error
    except (OSError, ValueError) as error:
        if os.path.isdir(path):
            raise InvalidArgument(f"{path!r} is a folder, expected a {what} file") from error
        raise Fail(f"the {what} file {path!r} cannot be opened: {error}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            hint = "" if stat.S_ISDIR(found.st_mode) else "read its bytes and pass those"
            raise InvalidArgument(f"{path!r} is {kind}, expected a {what} file", hint=hint)
        return map_file(descriptor, found.st_size)
    finally:
        os.close(descriptor)


def recognise(source: Source) -> tuple[str, str]:
    """What the bytes look like, if they are a well-known other format, and what to do then; empty texts otherwise."""
    head = bytes(source.buf[:64])
    for offset, signature, meaning in _SIGNATURES:
        if head[offset:].startswith(signature):
            return meaning, _REMEDIES.get(signature, "")
    return "", ""


def as_memoryview(content: Any) -> memoryview:
    """A flat read-only view of the bytes of any object with the buffer interface."""
    view = memoryview(content)
    if view.nbytes == 0:
        return memoryview(b"")
    return (view if view.format == "B" and view.ndim == 1 else view.cast("B")).toreadonly()
