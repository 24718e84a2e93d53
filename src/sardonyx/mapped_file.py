"""Files mapped into memory without keeping a file descriptor, and what tells that a file is still the same.

Python's `mmap` keeps a descriptor for each mapping (until 3.13 always), and a process has 1024 of them, or 256. Whoever holds a
part of the memory holds the mapping: it ends with the last view. Those who map the same unchanged file share one mapping.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

if sys.platform != "win32":
    _libc: Final = ctypes.CDLL(None, use_errno=True)
    _libc.mmap.restype = ctypes.c_void_p
    _libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    _libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    _libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FAILED: Final = ctypes.c_void_p(-1).value


_PAGE: Final = 4096  # bytes that have a sum of their own
_SAMPLES: Final = 16  # pages of a file that are looked at to see whether it is still the same
_MOST_AT_ONCE: Final = 512  # pieces
_AT_ONCE: Final = 1 << 22  # bytes of a mapped file that are walked through before they leave memory; whole pages


def aligned_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, read-only, at an address that suits its elements: in a file they may lie at any.

    NumPy copies one at another address in every call, and some products of it have other last bits.
    """
    made = array if array.flags.aligned else array.copy()
    made.flags.writeable = False
    return made


def checksum(content: memoryview) -> int:
    """Of stored arrays. Large ones by the sums of their pages, which takes a tenth of the time: it finds damage, not intent."""
    whole = len(content) // _PAGE * _PAGE
    if not whole:
        return zlib.crc32(content)
    return zlib.crc32(content[whole:], _sum_of_pages(content[:whole], 0))


def _sum_of_pages(pages: memoryview, before: int) -> int:
    sums = np.frombuffer(pages, "<u8").reshape(-1, _PAGE // 8).sum(axis=1, dtype=np.uint64)
    return zlib.crc32(sums.astype("<u8").data, before)


def passing_checksum(content: memoryview) -> int:
    """The checksum of what is not used soon: if it is a part of a mapped file, its pages leave memory on the way."""
    whole = len(content) // _PAGE * _PAGE
    found = 0
    for part in walk(content[:whole]):
        found = _sum_of_pages(part, found)
    return zlib.crc32(content[whole:], found)


def weight_checksum(content: memoryview, *, is_used_soon: bool = False) -> int:
    """Of weights, which people change in place: by the sums of pages, and of what stands at the same place in all of them.

    So rows that change places show as well. If they lie in a mapped file and are not used soon, their pages leave memory.
    """
    whole = len(content) // _PAGE * _PAGE
    found = 0
    for part in _parts(content[:whole]) if is_used_soon else walk(content[:whole]):
        pages = np.frombuffer(part, "<u8").reshape(-1, _PAGE // 8)
        for axis in (1, 0):
            found = zlib.crc32(pages.sum(axis=axis, dtype=np.uint64).astype("<u8", copy=False).data, found)
    return zlib.crc32(content[whole:], found)


_CLOCK_TICK: Final = 20_000_000  # nanoseconds: two changes of a file closer to each other may leave it with the same times
_FINE_STEP: Final = 100_000_000  # what is certainly longer, also on a server whose clock is another
_COARSE_STEP: Final = 2_000_000_000  # the same where times have no parts of a second

FileIdentity = tuple[int, int, int, int, int]  # device, inode, size, times of the last change of content and of the file


def identity_of(status: os.stat_result) -> FileIdentity:
    """What the file system says of a file; another whenever its content is."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def identity_at(path: str) -> FileIdentity | None:
    """The identity of the file at a path; None if there is none."""
    try:
        return identity_of(os.stat(path))
    except (OSError, ValueError):
        return None


def is_settled(*moments: int) -> bool:
    """Whether a file with these times of change was changed so long ago that one more change would give it others.

    Times have steps: of the system's clock, and coarse ones on file systems that keep full seconds (FAT: every second one).
    """
    now = time.time_ns()
    return all(abs(now - moment) > (_FINE_STEP if moment % _CLOCK_TICK else _COARSE_STEP) for moment in moments)


class Mapping:
    """The memory of a mapped file; arrays over it keep it. `identity` is None if a change of the file might go unnoticed."""

    __slots__ = ("__weakref__", "_address", "_size", "identity")

    def __init__(self, descriptor: int, size: int, identity: FileIdentity | None) -> None:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, f"{os.strerror(error)}: a file of {size} bytes cannot be mapped")
        self._address: int = address
        self._size = size
        self.identity = identity
        # Not __del__: while that runs, somebody may still get the object from `_mappings`. When Python ends, threads that read
        # the memory may still be running; the system unmaps it afterwards.
        weakref.finalize(self, _libc.munmap, address, size).atexit = False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._size,), "typestr": "|u1", "data": (self._address, True), "version": 3}

    def offset_of(self, address: int) -> int:
        """Where in the file the byte at an address of the mapping lies."""
        return address - self._address

    def release_pages(self, offset: int = 0, length: int | None = None) -> None:
        """Tell the system that the content, or a part of it, is not needed in memory now; it is read again on use."""
        if hasattr(mmap, "MADV_DONTNEED"):
            start = offset // mmap.PAGESIZE * mmap.PAGESIZE
            end = self._size if length is None else min(offset + length, self._size)
            _libc.madvise(self._address + start, end - start, mmap.MADV_DONTNEED)


# Arrays that all of the process may use, by a key that tells what is in them (see `runtime.weight_store`).
shared_arrays: Final[weakref.WeakValueDictionary[str, np.ndarray[Any, Any]]] = weakref.WeakValueDictionary()
_mappings: weakref.WeakValueDictionary[tuple[FileIdentity, int], Mapping] = weakref.WeakValueDictionary()


def _lasting_identity(descriptor: int) -> FileIdentity | None:
    """The identity of an open file; None if it changed so lately that another change would leave it the same."""
    try:
        status = os.fstat(descriptor)
    except OSError:  # mapping it says what is wrong
        return None
    return identity_of(status) if time.time_ns() - status.st_ctime_ns > _CLOCK_TICK else None


def map_file(descriptor: int, size: int) -> memoryview:
    """The first `size` bytes of an open file, read-only. The descriptor may be closed: the mapping does not need it."""
    if size == 0:
        return memoryview(b"")
    if sys.platform == "win32":  # where a mapping holds a handle, of which there are enough
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
    identity = _lasting_identity(descriptor)
    if identity is None:
        return np.asarray(Mapping(descriptor, size, None)).data
    found = _mappings.get((identity, size))
    if found is None:
        found = _mappings[identity, size] = Mapping(descriptor, size, identity)
    return np.asarray(found).data


def mapping_of(view: memoryview) -> Mapping | None:
    """The mapping a view of `map_file`, or a part of one, belongs to."""
    owner = view.obj
    return owner.base if isinstance(owner, np.ndarray) and isinstance(owner.base, Mapping) else None


def mapped_range(array: np.ndarray[Any, Any]) -> tuple[Mapping, int, int] | None:
    """The mapping an array lies in, and the first byte and the count of bytes it spans there; None if it lies elsewhere."""
    owner: Any = array
    while not isinstance(owner, Mapping):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj if isinstance(owner, memoryview) else None
        if owner is None:
            return None
    if array.size == 0:
        return owner, 0, 0
    ends = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    low, high = sum(end for end in ends if end < 0), sum(end for end in ends if end > 0) + array.itemsize
    return owner, owner.offset_of(array.ctypes.data) + low, high - low


def sample(mapping: Mapping) -> int:
    """A checksum of some blocks of a mapped file."""
    content = np.asarray(mapping)
    found, size = 0, content.size
    for block in range(_SAMPLES):
        start = block * max(size - _PAGE, 0) // (_SAMPLES - 1)
        found = zlib.crc32(content[start : start + _PAGE].data, found)
    return found


def release_range(array: np.ndarray[Any, Any]) -> None:
    """Tell the system that the part of a mapped file behind an array is not needed in memory now; it is read again on use."""
    location = mapped_range(array)
    if location is not None:
        location[0].release_pages(*location[1:])


def _parts(content: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(content), _AT_ONCE):
        yield content[start : start + _AT_ONCE]


def walk(content: memoryview) -> Iterator[memoryview]:
    """Bytes in parts, one after the other; the pages of a mapped file leave memory behind whoever walks."""
    for part in _parts(content):
        yield part
        release_range(np.frombuffer(part, np.uint8))


def write_pages(descriptor: int, pieces: Iterable[bytes | memoryview]) -> None:
    """Write pieces one after the other into an empty file, so that it is kept in large pages if the system has such.

    A large page of a file is one only if it was written at once: each write ends where pages end, whatever the pieces. What lies
    in a mapped file, as weights that programs read as they are, leaves memory again.
    """
    batch: list[memoryview] = []
    room = _AT_ONCE
    for piece in pieces:
        rest = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
        while len(rest):
            batch.append(rest[:room])
            rest, room = rest[len(batch[-1]) :], room - len(batch[-1])
            if not room or len(batch) == _MOST_AT_ONCE:
                _write(descriptor, batch)
                batch, room = [], room or _AT_ONCE
    _write(descriptor, batch)


def _write(descriptor: int, batch: list[memoryview]) -> None:
    rest = list(batch)
    while rest:
        written = os.writev(descriptor, rest) if hasattr(os, "writev") else os.write(descriptor, rest[0])
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]
    for part in batch:
        release_range(np.frombuffer(part, np.uint8))
