"""Where buffers lie in the arena: those that never live at the same time may share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps none whose lifetime touches
its own. Lifetimes are step numbers, both ends included.

A plan for some sizes serves smaller ones, too: `Stack` keeps which buffers rest on which, and lets them sink as far as their
actual sizes allow. That takes a fraction of the time that planning does.
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


class Stack(NamedTuple):
    """The order of a plan without its offsets."""

    order: list[tuple[int, tuple[int, ...]]]  # from the bottom up: a buffer, and those it rests on

    @classmethod
    def of(cls, lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> Stack:
        """The stack of a plan that `plan_offsets` made. Buffers that are empty in it rest on nothing."""
        order: list[tuple[int, tuple[int, ...]]] = []
        under = [0] * len(lifetimes)  # for each buffer a bit for every one that must stay below it, at any distance
        rising = sorted(range(len(lifetimes)), key=lambda number: (offsets[number], lifetimes[number].size))
        for position, number in enumerate(rising):
            one = lifetimes[number]
            rests_on: list[int] = []
            below = 0
            for other in reversed(rising[:position]) if one.size > 0 else ():
                lower = lifetimes[other]
                if lower.size <= 0 or lower.last < one.first or one.last < lower.first or below >> other & 1:
                    continue
                rests_on.append(other)
                below |= under[other] | 1 << other
            under[number] = below
            order.append((number, tuple(rests_on)))
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
            ends[number] = at + -(-sizes[number] // ALIGNMENT) * ALIGNMENT
        return offsets, max(ends, default=0)


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
