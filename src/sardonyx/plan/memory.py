"""Where buffers lie in the arena: those that never live at the same time may share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps none whose lifetime touches
its own. Lifetimes are step numbers, both ends included. That takes time by the pairs of buffers that live together; where
those are too many, memory is given out and taken back in the order of the steps instead, which needs somewhat more of it.

A plan for some sizes serves smaller ones, too: `Stack` keeps which buffers rest on which, and lets them sink as far as their
actual sizes allow. That takes a fraction of the time that planning does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from sardonyx.program.image import ALIGNMENT

MOST_PAIRS: Final = 1 << 20  # of buffers that live together; a thousand buffers never have more than half of that


class Lifetime(NamedTuple):
    """A buffer that needs `size` bytes from step `first` to step `last`."""

    size: int
    first: int
    last: int


def plan_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset for each buffer, and the size of the arena."""
    together = _living_together(lifetimes, MOST_PAIRS)
    return _by_step(lifetimes) if together is None else _by_size(lifetimes, together)


def _living_together(lifetimes: Sequence[Lifetime], limit: int) -> list[list[int]] | None:
    """For each buffer those that live at some step together with it; None if there are more pairs than the limit."""
    together: list[list[int]] = [[] for _ in lifetimes]
    living: set[int] = set()
    ending: list[tuple[int, int]] = []  # a heap: (last step, buffer)
    pairs = 0
    for number in sorted(range(len(lifetimes)), key=lambda number: lifetimes[number].first):
        one = lifetimes[number]
        while ending and ending[0][0] < one.first:
            living.remove(heappop(ending)[1])
        pairs += len(living)
        if pairs > limit:
            return None
        together[number].extend(living)
        for other in living:
            together[other].append(number)
        living.add(number)
        heappush(ending, (one.last, number))
    return together


def _by_size(lifetimes: Sequence[Lifetime], together: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """The largest buffer first, each as low as those allow that were placed before it."""
    offsets, ends = [0] * len(lifetimes), [-1] * len(lifetimes)  # an end of -1: not placed yet
    total = 0
    for number in sorted(range(len(lifetimes)), key=lambda number: (-lifetimes[number].size, lifetimes[number].first)):
        size = _aligned(lifetimes[number].size)
        at = 0
        for offset, end in sorted([(offsets[other], ends[other]) for other in together[number] if ends[other] >= 0]):
            if at + size <= offset:
                break
            at = max(at, end)
        offsets[number], ends[number] = at, at + size
        total = max(total, at + size)
    return offsets, total


def _by_step(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The buffer that is needed first comes first, in the smallest gap that holds it."""
    offsets = [0] * len(lifetimes)
    gaps = _Gaps()
    ending: list[tuple[int, int]] = []  # a heap: (last step, buffer)
    for number in sorted(range(len(lifetimes)), key=lambda number: (lifetimes[number].first, -lifetimes[number].size)):
        one = lifetimes[number]
        while ending and ending[0][0] < one.first:
            ended = heappop(ending)[1]
            gaps.give_back(offsets[ended], _aligned(lifetimes[ended].size))
        if one.size > 0:
            offsets[number] = gaps.take(_aligned(one.size))
            heappush(ending, (one.last, number))
    return offsets, gaps.total


class _Gaps:
    """Free memory between buffers that come and go, below `total`. Gaps that touch are one gap."""

    def __init__(self) -> None:
        self.total = 0
        self._by_size: list[tuple[int, int]] = []  # (size, offset), sorted
        self._sizes: dict[int, int] = {}  # of the gap that begins at an offset
        self._starts: dict[int, int] = {}  # of the gap that ends at an offset

    def take(self, size: int) -> int:
        """An offset with so many free bytes behind it: where fewest are left over, or at the top."""
        found = bisect_left(self._by_size, (size, 0))
        if found < len(self._by_size):
            free, at = self._by_size[found]
            self._remove(at, free)
            if free > size:
                self._add(at + size, free - size)
            return at
        at = self._starts.get(self.total, self.total)
        if at < self.total:
            self._remove(at, self.total - at)
        self.total = at + size
        return at

    def give_back(self, at: int, size: int) -> None:
        """Make a part free again."""
        start = self._starts.get(at, at)
        end = at + size + self._sizes.get(at + size, 0)
        if start < at:
            self._remove(start, at - start)
        if end > at + size:
            self._remove(at + size, end - at - size)
        self._add(start, end - start)

    def _add(self, at: int, size: int) -> None:
        insort(self._by_size, (size, at))
        self._sizes[at] = size
        self._starts[at + size] = at

    def _remove(self, at: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, at))], self._sizes[at], self._starts[at + size]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def owners(shared: Mapping[int, int]) -> dict[int, int]:
    """Buffers that take over another's memory, which may itself be another's -> the buffer that has the memory in the end."""
    found: dict[int, int] = {}
    for number in shared:
        passed: list[int] = []
        owner = number
        while owner in shared and owner not in found:
            passed.append(owner)
            owner = shared[owner]
        owner = found.get(owner, owner)
        found.update((each, owner) for each in passed)
    return found


class Stack(NamedTuple):
    """The order of a plan without its offsets."""

    order: list[tuple[int, tuple[int, ...]]]  # from the bottom up: a buffer, and those it rests on

    @classmethod
    def of(cls, lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> Stack:
        """The stack of a plan that `plan_offsets` made. Buffers that are empty in it rest on nothing."""
        order: list[tuple[int, tuple[int, ...]]] = []
        # What lies on top at each step, as steps from which on it is another buffer (-1: none).
        steps, tops = [min((one.first for one in lifetimes), default=0)], [-1]
        for number in sorted(range(len(lifetimes)), key=lambda number: (offsets[number], lifetimes[number].size)):
            one = lifetimes[number]
            if one.size <= 0:
                order.append((number, ()))
                continue
            begin, end = bisect_right(steps, one.first) - 1, bisect_right(steps, one.last)
            covered = tops[begin:end]
            order.append((number, tuple(dict.fromkeys(top for top in covered if top >= 0))))
            before = [(steps[begin], covered[0])] if steps[begin] < one.first else []
            pieces = [*before, (one.first, number), (one.last + 1, covered[-1])]
            if end < len(steps) and steps[end] == one.last + 1:
                pieces.pop()
            steps[begin:end] = [step for step, _ in pieces]
            tops[begin:end] = [top for _, top in pieces]
        return cls(order)

    def offsets(self, sizes: Sequence[int]) -> tuple[list[int], int]:
        """An offset for each buffer and the size of the arena, for sizes none of which is larger than it was in the plan."""
        offsets = [0] * len(sizes)
        ends = [0] * len(sizes)
        for number, rests_on in self.order:
            at = 0
            for lower in rests_on:
                at = max(at, ends[lower])
            offsets[number] = at
            ends[number] = at + _aligned(sizes[number])
        return offsets, max(ends, default=0)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that live at one step: no plan can need less."""
    events: dict[int, int] = {}
    for one in lifetimes:
        size = _aligned(one.size)
        events[one.first] = events.get(one.first, 0) + size
        events[one.last + 1] = events.get(one.last + 1, 0) - size
    live = most = 0
    for step in sorted(events):
        live += events[step]
        most = max(most, live)
    return most
