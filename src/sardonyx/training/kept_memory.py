"""Memory for what a forward pass leaves to its backward pass, used again from step to step.

    pool ── take(size) ──> block ──> forward writes into it ──> autograd holds it ──> backward reads it ──> free for the next step

A block is an array; whoever needs what is in it holds a reference, directly or as the memory of a tensor. When nobody but the
pool does, the next forward pass may have it: so a step touches the same pages as the one before, which the system need not
clear, and nobody has to say when a graph is freed.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final

import numpy as np

from sardonyx.runtime.arena import mapped_memory
from sardonyx.runtime.reused_memory import unused_block

_MOST_BLOCKS: Final = 8  # that a pool watches; those of more passes at once go back to the system
_FAR_TOO_LARGE: Final = 4  # times what is needed
_NOT_WORTH_CUTTING: Final = 1 << 20  # bytes


class KeptBlock(np.ndarray[Any, Any]):
    """Bytes of one forward pass, from a page's beginning on."""

    address: int = 0
    run: Any = None  # what the forward pass says about them


_blocks: Final[weakref.WeakValueDictionary[int, KeptBlock]] = weakref.WeakValueDictionary()  # all there are, by address


def block_at(address: int) -> KeptBlock | None:
    """The block that begins at an address."""
    return _blocks.get(address)


class KeptPool:
    """The blocks of one program."""

    def __init__(self) -> None:
        self._known: deque[np.ndarray[Any, Any]] = deque()  # KeptBlocks

    def take(self, size: int) -> KeptBlock:
        """A block of at least some bytes that nobody uses; it is the caller's until the last reference to it goes."""
        block = unused_block(self._known, size, _FAR_TOO_LARGE * size + _NOT_WORTH_CUTTING)
        if block is not None:
            assert isinstance(block, KeptBlock)
            return block
        made = mapped_memory(size + size // 4).view(KeptBlock)
        made.address = made.ctypes.data
        _blocks[made.address] = made
        return made

    def watch(self, block: KeptBlock) -> None:
        """Have a block that was taken used again when the caller, and whoever has it from there, needs it no more."""
        if len(self._known) < _MOST_BLOCKS:
            self._known.append(block)

    def shrink(self) -> None:
        """Give blocks that nobody uses back to the system."""
        self._known.clear()
