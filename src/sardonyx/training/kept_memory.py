"""Memory for what a forward pass leaves to its backward pass, used again from step to step.

    pool ── take(size) ──> block ──> forward writes into it ──> autograd holds it ──> backward reads it ──> free for the next step

A block is an array; whoever needs what is in it holds a reference, directly or as the memory of a tensor. When nobody but the
pool does, the next forward pass may have it: so a step touches the same pages as the one before, which the system need not
clear, and nobody has to say when a graph is freed. Clearing costs little next to a step that keeps very much, and memory is what
such steps run out of: of those, the backward pass gives back what it has read while it goes on (`Departures`).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx.runtime.arena import give_back_pages, mapped_memory
from sardonyx.runtime.reused_memory import unused_block

_MOST_BLOCKS: Final = 8  # that a pool watches; those of more passes at once go back to the system
_FAR_TOO_LARGE: Final = 4  # times what is needed
_NOT_WORTH_CUTTING: Final = 1 << 20  # bytes
_MUCH: Final = 1 << 27  # bytes of a block from which on a backward pass gives back what it has read
_PARTS: Final = 12  # of such a backward pass


class KeptBlock(np.ndarray[Any, Any]):
    """Bytes of one forward pass, from a page's beginning on."""

    address: int = 0
    run: Any = None  # what the forward pass says about them


_blocks: Final[weakref.WeakValueDictionary[int, KeptBlock]] = weakref.WeakValueDictionary()  # all there are, by address


def block_at(address: int) -> KeptBlock | None:
    """The block that begins at an address."""
    return _blocks.get(address)


class Departures(NamedTuple):
    """When a backward pass has read what was kept."""

    ends: tuple[int, ...]  # numbers of steps of the backward pass
    ranges: tuple[tuple[tuple[int, int], ...], ...]  # bytes of the block that nobody reads from each of these steps on

    def leave(self, block: KeptBlock, part: int) -> None:
        """Give back what has been read before the step of a number."""
        for start, end in self.ranges[part]:
            give_back_pages(block, start, end)


def departures(offsets: Sequence[int], size: int, last_reads: Sequence[int]) -> Departures | None:
    """For a block with values at these offsets, each of which is read last in some step; None if it is not worth the while."""
    if size < _MUCH:
        return None
    values = sorted(zip(last_reads, offsets, (*offsets[1:], size)))
    ends: list[int] = []
    ranges: list[tuple[tuple[int, int], ...]] = []
    read: list[tuple[int, int]] = []
    waiting = 0
    for number, (last, start, end) in enumerate(values):
        read.append((start, end))
        waiting += end - start
        following = values[number + 1][0] if number + 1 < len(values) else last
        if waiting * _PARTS >= size and following > last >= 0:
            ends.append(last + 1)
            ranges.append(_joined(read))
            waiting = 0
    return Departures(tuple(ends), tuple(ranges))


def _joined(ranges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return tuple(found)


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
