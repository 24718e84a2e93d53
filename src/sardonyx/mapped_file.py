"""Files mapped into memory without keeping a file descriptor, and what tells that a file is still the same.

Python's `mmap` keeps a descriptor for each mapping (until 3.13 always), and a process has 1024 of them, or 256. Whoever holds a
part of the memory holds the mapping: it ends with the last view.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
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


class Mapping:
    """The memory of a mapped file; arrays over it keep it."""

    __slots__ = ("__weakref__", "_address", "_size")

    def __init__(self, descriptor: int, size: int) -> None:
        self._size = 0  # for __del__, if what follows fails
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
        if address == _FAILED:
            error = ctypes.get_errno()
            raise OSError(error, f"{os.strerror(error)}: a file of {size} bytes cannot be mapped")
        self._address: int = address
        self._size = size

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._size,), "typestr": "|u1", "data": (self._address, True), "version": 3}

    def release_pages(self) -> None:
        """Tell the system that the content is not needed in memory now; it is read again on use."""
        if hasattr(mmap, "MADV_DONTNEED"):
            _libc.madvise(self._address, self._size, mmap.MADV_DONTNEED)

    def __del__(self) -> None:
        # When Python ends, threads that read the memory may still be running; the system unmaps it afterwards.
        if self._size and not sys.is_finalizing():
            _libc.munmap(self._address, self._size)


def map_file(descriptor: int, size: int) -> memoryview:
    """The first `size` bytes of an open file, read-only. The descriptor may be closed: the mapping does not need it."""
    if size == 0:
        return memoryview(b"")
    if sys.platform == "win32":  # where a mapping holds a handle, of which there are enough
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
    return np.asarray(Mapping(descriptor, size)).data


def mapping_of(view: memoryview) -> Mapping | None:
    """The mapping a view of `map_file`, or a part of one, belongs to."""
    owner = view.obj
    return owner.base if isinstance(owner, np.ndarray) and isinstance(owner.base, Mapping) else None
