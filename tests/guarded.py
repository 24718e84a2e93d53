"""Arrays that end exactly at memory nobody may touch: an access past the end kills the process instead of passing unseen."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

_PAGE = mmap.PAGESIZE
_LIBC = ctypes.CDLL(None, use_errno=True)
_NONE, _READ = 0, 1


class GuardedPages:
    """Whole pages between two that nobody may touch."""

    def __init__(self, size: int) -> None:
        self.size = -(-max(size, 1) // _PAGE) * _PAGE
        try:
            self.map = mmap.mmap(-1, self.size + 2 * _PAGE)
        except OSError as error:  # as the memory it stands for, see `Arena`
            raise MemoryError(str(error)) from None
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + _PAGE
        self.protect(self.start - _PAGE, _PAGE, _NONE)
        self.protect(self.start + self.size, _PAGE, _NONE)

    @staticmethod
    def protect(address: int, size: int, how: int) -> None:
        if _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), how):
            raise OSError(ctypes.get_errno(), "mprotect failed")

    def array(self, shape: tuple[int, ...], dtype: Any, at_start: bool = False, fill: int = 0) -> np.ndarray[Any, Any]:
        """An array that begins at the first byte, or ends at the last; all its bytes are `fill`."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        offset = _PAGE + (0 if at_start else self.size - count * dtype.itemsize)
        flat: np.ndarray[Any, Any] = np.frombuffer(self.map, np.uint8, count * dtype.itemsize, offset)
        flat[...] = fill
        whole: np.ndarray[Any, Any] = flat.view(dtype).reshape(shape)
        return whole

    def make_read_only(self) -> None:
        self.protect(self.start, self.size, _READ)


_alive: list[GuardedPages] = []  # the memory must outlive the arrays that look into it


def guarded(array: Any) -> np.ndarray[Any, Any]:
    """A copy of an array in guarded memory."""
    array = np.asarray(array)
    memory = GuardedPages(array.nbytes)
    _alive.append(memory)
    del _alive[:-64]
    copy = memory.array(array.shape, array.dtype)
    copy[...] = array
    return copy
