"""Arrays that end exactly at memory nobody may touch: an access past the end kills the process instead of passing unseen."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE


class GuardedMemory:
    """A few pages with an inaccessible one before and after."""

    def __init__(self, size: int) -> None:
        self._pages = -(-max(size, 1) // _PAGE)
        self._map = mmap.mmap(-1, (self._pages + 2) * _PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (0, self._pages + 1):
            address = ctypes.c_void_p(self._base + page * _PAGE)
            if libc.mprotect(address, ctypes.c_size_t(_PAGE), 0):
                raise OSError(ctypes.get_errno(), "mprotect failed")

    def array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
        """A zeroed array whose last byte is the last one that may be touched."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape)) * dtype.itemsize
        start = _PAGE + self._pages * _PAGE - size
        return np.frombuffer(self._map, dtype, count=int(np.prod(shape)), offset=start).reshape(shape)


_alive: list[GuardedMemory] = []  # the memory must outlive the arrays that look into it


def guarded(array: Any) -> np.ndarray[Any, Any]:
    """A copy of an array in guarded memory."""
    array = np.asarray(array)
    memory = GuardedMemory(array.nbytes)
    _alive.append(memory)
    del _alive[:-64]
    copy = memory.array(array.shape, array.dtype)
    copy[...] = array
    return copy
