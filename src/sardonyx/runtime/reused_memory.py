"""Arrays of like sizes, again and again, in the memory of earlier ones that are gone.

The system clears pages before it hands them out, and the C library gives the end of its heap back and asks for it anew, from run
to run: for a program whose results are large that is a tenth of its time. Memory is used again when no array shows it any more,
so whoever holds a result may do so for as long as it likes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from math import prod
from sys import getrefcount
from typing import Any, Final

import numpy as np

from sardonyx.runtime.arena import mapped_memory
from sardonyx.runtime.native_core import new_array

Array = np.ndarray[Any, Any]

LARGE: Final = 1 << 17  # bytes from which on the C library asks the system
STAGGER: Final = 320  # bytes: arrays that all began at a page's beginning would compete for the same lines of the caches
STAGGERED: Final = 12
_MOST: Final = 4  # blocks that are watched for one purpose; those of more runs at once go back to the system
_FAR_TOO_LARGE: Final = 4  # times what is needed
_UNUSED: Final = 2  # references to a block that only a local name, and the question for their number, hold


class ReusedMemory:
    """Memory for results, by purpose; any number of threads may ask at once."""

    def __init__(self) -> None:
        self._known: dict[Hashable, deque[Array]] = {}

    def array(self, purpose: Hashable, shape: Sequence[int], dtype: Any) -> Array:
        """An array that nobody else sees; what is in it is anything."""
        size = prod(shape) * np.dtype(dtype).itemsize
        if size < LARGE:
            return new_array(shape, dtype)
        known = self._known.setdefault(purpose, deque())
        fits = size + STAGGER * STAGGERED
        block = unused_block(known, fits, _FAR_TOO_LARGE * fits)
        if block is None:
            block = mapped_memory(fits)
        start = hash(purpose) % STAGGERED * STAGGER
        made: Array = np.ndarray(shape, dtype, block, start)  # refers to the block, and so do all views of it
        if len(known) < _MOST:
            known.append(block)
        return made

    def clear(self) -> None:
        """Give what nobody uses back to the system."""
        self._known.clear()


def unused_block(known: deque[Array], least: int, most: int) -> Array | None:
    """A block of a fitting size that nobody holds, taken out of those known; unused ones of other sizes are forgotten."""
    for _ in range(len(known)):
        try:
            block = known.popleft()
        except IndexError:  # another thread was faster
            return None
        if getrefcount(block) > _UNUSED:
            known.append(block)
        elif least <= block.nbytes <= most:
            return block
    return None
