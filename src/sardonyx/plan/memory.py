"""Where buffers lie in the arena: those that never live at the same time may share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps none whose lifetime touches
its own. Lifetimes are step numbers, both ends included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sardonyx.plan.image import ALIGNMENT


class Lifetime(NamedTuple):
    """A buffer that needs `size` bytes from step `first` to step `last`."""

    size: int
    first: int
    last: int


def plan_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset for each buffer, and the size of the arena."""
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), by offset
    total = 0
    order = sorted(range(len(lifetimes)), key=lambda number: (-lifetimes[number].size, lifetimes[number].first))
    for number in order:
        one = lifetimes[number]
        size = -(-one.size // ALIGNMENT) * ALIGNMENT
        at = 0
        for offset, end, first, last in placed:
            if last < one.first or one.last < first:
                continue
            if at + size <= offset:
                break
            at = max(at, end)
        offsets[number] = at
        placed.append((at, at + size, one.first, one.last))
        placed.sort()
        total = max(total, at + size)
    return offsets, total


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that live at one step: no plan can need less."""
    events: dict[int, int] = {}
    for one in lifetimes:
        size = -(-one.size // ALIGNMENT) * ALIGNMENT
        events[one.first] = events.get(one.first, 0) + size
        events[one.last + 1] = events.get(one.last + 1, 0) - size
    live = most = 0
    for step in sorted(events):
        live += events[step]
        most = max(most, live)
    return most
