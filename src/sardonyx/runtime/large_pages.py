"""Memory in large pages, where the system has them.

What comes from memory in every run, as a decoder's weights do, is read as fast as the processor finds its pages: on the machine
where this was measured one core reads 18 GB/s in pages of 4 KB and 31 in pages of 2 MB. Such a page is in memory as a whole, so
small arrays lie one behind the other in slabs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.runtime.arena import LARGE_FROM, mapped_memory

Array = np.ndarray[Any, Any]

_SLAB: Final = 1 << 25
_FEW: Final = 1 << 23  # bytes of weights that stay in a cache: up to here large pages would only take more memory
_SMALL: Final = 1 << 16  # bytes of an array that is not worth a place in a slab
_ALIGNMENT: Final = 64


class WeightMemory:
    """Gives out memory for the weights of one program, each array on a cache line of its own. Not for several threads at once."""

    def __init__(self) -> None:
        self._given = 0  # bytes
        self._slab: Any = None  # a mapping
        self._used = 0  # bytes of the slab

    def moved(self, array: Array) -> Array:
        """An array that lies elsewhere, here if that is worth a copy. Larger ones NumPy has in large pages."""
        if not _SMALL <= array.nbytes < LARGE_FROM or self._given + array.nbytes <= _FEW:
            self._given += array.nbytes
            return array
        found = self.array(array.shape, array.dtype)
        found[...] = array
        return found

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Memory for an array, not set to anything."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._given += size
        if size < _SMALL or self._given <= _FEW:
            memory: Array = np.empty(size + _ALIGNMENT, np.uint8)
            start = -memory.ctypes.data % _ALIGNMENT
            return memory[start : start + size].view(dtype).reshape(shape)
        if size >= _SLAB // 2:
            return mapped_memory(size)[:size].view(dtype).reshape(shape)
        if self._slab is None or self._used + size > len(self._slab):
            self._slab, self._used = mapped_memory(_SLAB).base, 0
        # Of the mapping itself, not of another array: that one may be made read-only.
        found: Array = np.frombuffer(self._slab, dtype, size // dtype.itemsize, self._used).reshape(shape)
        self._used += -(-size // _ALIGNMENT) * _ALIGNMENT
        return found
