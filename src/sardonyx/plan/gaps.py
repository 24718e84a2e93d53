"""Memory given out and taken back in the order of the steps: for programs with so many buffers that no other plan is made.

A module of its own: a start from a saved program imports the planner, and hardly any has as many.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush

from sardonyx.plan.memory import Lifetime, aligned


def plan_by_step(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """The buffer that is needed first comes first, in the smallest gap that holds it."""
    offsets = [0] * len(lifetimes)
    gaps = _Gaps()
    ending: list[tuple[int, int]] = []  # a heap: (last step, buffer)
    for number in sorted(range(len(lifetimes)), key=lambda number: (lifetimes[number].first, -lifetimes[number].size)):
        one = lifetimes[number]
        while ending and ending[0][0] < one.first:
            ended = heappop(ending)[1]
            gaps.give_back(offsets[ended], aligned(lifetimes[ended].size))
        if one.size > 0:
            offsets[number] = gaps.take(aligned(one.size))
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
