"""Memory of runs: mapped from the system, and where in it the buffers of a program lie, for any sizes.

A model whose sequence grows by one each step would otherwise be planned anew each time. The sizes of the symbols are rounded
up to the next of a geometric series; if no buffer is larger then than it was planned for, the order of the plan holds, and the
buffers move together to what they really need, unless all of them are so small that it is not worth the time. Sizes do not
grow with the symbols in every model (a difference of two of them does not): that is checked, and such sizes are planned
exactly.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.forks import ForkSafeLock, cached_property, importing
from sardonyx.program.image import ALIGNMENT, ProgramImage

if TYPE_CHECKING:
    from sardonyx.plan.memory import Stack

Array = np.ndarray[Any, Any]

_PLANS_KEPT = 64
_EXACT_UP_TO = 16
_GROWTH = 1.25

_FEW = 8
_NOT_WORTH_PLANNING = 1 << 14  # bytes of a few buffers together
_NOT_WORTH_MOVING = 1 << 20  # bytes of a plan for rounded sizes: a decoder's step is shorter than moving its buffers takes
LARGE_FROM = 1 << 22  # bytes from which on large pages pay
_LARGE_PAGE = 1 << 21
_FAR_TOO_LARGE = 4  # times what is needed
_NOT_WORTH_CUTTING = 1 << 20  # bytes
_PATIENCE = 16  # fittings in a row that needed far less before memory goes back


class Arena:
    """Memory for the values of one run at a time. It grows when a run needs more, and is cut when many in a row needed far less.

    It comes from the system and goes back there: among the small objects of the C library's heap, blocks of many sizes that
    come and go would leave holes nobody fills. What was in it is lost when it is fitted to another size.
    """

    def __init__(self) -> None:
        self._memory: Array = np.empty(0, np.uint8)
        self._address = 0
        self._most_lately = 0  # that a fitting needed since memory was last in proportion
        self._unneeded = 0  # how many those were

    @property
    def nbytes(self) -> int:
        """How much is mapped; the system provides what was touched of it."""
        return self._memory.nbytes

    def fit(self, size: int) -> int:
        """Make room for some bytes; the address of the first, where a page begins."""
        held = self._memory.nbytes
        if max(size, 1) > held:
            self._map(size + size // 4)  # room to grow into costs nothing before it is touched
        elif held <= _FAR_TOO_LARGE * size + _NOT_WORTH_CUTTING:
            self._unneeded = self._most_lately = 0
        else:
            self._unneeded += 1
            self._most_lately = max(self._most_lately, size)
            if self._unneeded >= _PATIENCE:
                self._map(self._most_lately)
        return self._address

    def _map(self, size: int) -> None:
        self._memory = np.empty(0, np.uint8)  # first: both at once would be more than is ever needed
        self._address = self._unneeded = self._most_lately = 0
        self._memory = mapped_memory(size)
        self._address = self._memory.ctypes.data


def mapped_memory(size: int) -> Array:
    """Bytes from the system, at least as many; they go back there with the array."""
    whole = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        # Private: a forked child must not write into its parent's.
        mapping = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"the system has no {whole} bytes") from error
    if whole >= LARGE_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the system may have no large pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8)


def give_back_pages(memory: Array, start: int, end: int) -> None:
    """Give the system pages of `mapped_memory` from one byte to another; what is in them is zeros from then on.

    Large pages are given back as a whole: those at the edges stay.
    """
    mapping: Any = memory
    while mapping is not None and not isinstance(mapping, mmap.mmap):
        mapping = mapping.obj if isinstance(mapping, memoryview) else getattr(mapping, "base", None)
    if mapping is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    address = memory.ctypes.data
    first = -(-(address + start) // _LARGE_PAGE) * _LARGE_PAGE - address
    last = (address + end) // _LARGE_PAGE * _LARGE_PAGE - address
    if first < last:
        with suppress(OSError):
            mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def give_back_freed_memory() -> None:
    """Have the C library give the system what it has freed in the middle of its heap, as compilations do much."""
    with suppress(AttributeError, OSError, TypeError):  # glibc's only
        ctypes.CDLL(None).malloc_trim(0)


def rounded_up(size: int) -> int:
    """The next size for which a plan is made: small ones exactly, larger ones in steps of a quarter."""
    step = _EXACT_UP_TO
    if size <= step:
        return size
    while step < size:
        step = int(step * _GROWTH) + 1
    return step


class _Plan:
    """Offsets for certain sizes, from which those for smaller ones follow."""

    def __init__(self, sizes: Array, lifetimes: Sequence[tuple[int, int]]) -> None:
        with importing:
            from sardonyx.plan.memory import Lifetime, plan_offsets  # lazy: small programs plan nothing

        self.sizes = sizes
        self._lifetimes = [Lifetime(size, first, last) for size, (first, last) in zip(sizes.tolist(), lifetimes)]
        self._offsets, self.total = plan_offsets(self._lifetimes)
        self.offsets = np.array(self._offsets, np.int64)

    @cached_property
    def stack(self) -> Stack:
        """The order of the plan; a model that sees one shape only never asks for it."""
        from sardonyx.plan.memory import Stack  # lazy: this plan has brought it

        return Stack.of(self._lifetimes, self._offsets)


class ArenaLayout:
    """Offsets of some of a program's buffers, which share an arena."""

    def __init__(self, image: ProgramImage, members: Sequence[int], workers: int = 1) -> None:
        inside = frozenset(members)
        entries = {row[0]: row for row in image.arena.tolist() if row[0] in inside}
        shared = {number: entry[4] for number, entry in entries.items() if entry[4] in inside}
        if shared:
            with importing:
                from sardonyx.plan.memory import owners  # lazy: small programs share nothing

            shared = owners(shared)
        ends: dict[int, int] = {}
        for number, entry in entries.items():
            owner = shared.get(number, number)
            ends[owner] = max(ends.get(owner, -1), entry[3])
        self.buffers = np.array(list(ends), np.int64)  # that have a place of their own
        self.shared = np.array(list(shared), np.int64)
        self.roots = np.array(list(shared.values()), np.int64)
        self._lifetimes = [(entries[number][2], end) for number, end in ends.items()]
        self._size_numbers = np.array([entries[number][1] for number in ends], np.int64)
        apart = frozenset(image.worker[:, 0].tolist())
        self._parts = np.array([workers if number in apart else 1 for number in ends], np.int64)
        self._sizes = image.sizes
        self._plans: dict[tuple[int, ...], _Plan] = {}  # the one used last is the last
        self._lock = ForkSafeLock()

    def bytes_of(self, dims: Array) -> Array:
        """How much memory each of `buffers` takes, those of which every worker has one for all workers."""
        return np.maximum(dims[self._size_numbers], 0) * self._parts

    def pieces(self) -> list[list[tuple[int, int, int]]]:
        """`buffers` that may share a piece of memory whatever their sizes, as their lifetimes do not meet.

        Each is a buffer, the dim that gives its bytes, and how often it takes them.
        """
        ends: list[int] = []
        pieces: list[list[tuple[int, int, int]]] = []
        members = zip(self._lifetimes, self.buffers.tolist(), self._size_numbers.tolist(), self._parts.tolist())
        for (first, last), buffer, dim, parts in sorted(members):
            number = next((number for number, end in enumerate(ends) if end < first), len(ends))
            if number == len(ends):
                ends.append(last)
                pieces.append([])
            ends[number] = last
            pieces[number].append((buffer, dim, parts))
        return pieces

    def place(self, symbols: tuple[int, ...], dims: Array) -> tuple[Array, int]:
        """Offsets of `buffers` and the size of the arena for these values of the symbols and dims."""
        needed = self.bytes_of(dims)
        if len(needed) <= _FEW:
            *side_by_side, total = accumulate([-(-size // ALIGNMENT) * ALIGNMENT for size in needed.tolist()], initial=0)
            if total <= _NOT_WORTH_PLANNING:
                return np.array(side_by_side, np.int64), total
        key = tuple(rounded_up(size) for size in symbols)
        with self._lock:
            found = self._plans.pop(key, None)
        if found is None:
            sizes = needed if key == symbols else self.bytes_of(np.array(self._sizes(*key), np.int64))
            found = _Plan(sizes, self._lifetimes)
        with self._lock:
            self._plans[key] = found
            if len(self._plans) > _PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
        if (needed > found.sizes).any():
            found = _Plan(needed, self._lifetimes)
            return found.offsets, found.total
        if found.total <= _NOT_WORTH_MOVING or (needed == found.sizes).all():
            return found.offsets, found.total
        offsets, total = found.stack.offsets(needed.tolist())
        return np.array(offsets, np.int64), total

    def assign(self, bases: Array, start: int, offsets: Array) -> None:
        """Write the addresses of all members, for an arena that begins at `start`."""
        bases[self.buffers] = start + offsets
        if len(self.shared):
            bases[self.shared] = bases[self.roots]
