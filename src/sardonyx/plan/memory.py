"""Where buffers lie in the arena: those that never live at the same time may share memory.

Greedy by size: the largest buffer is placed first, each at the lowest offset where it overlaps none whose lifetime touches
its own. Lifetimes are step numbers, both ends included. Mostly that needs no more than what lives at one step; where it does, a
second plan begins with those that are large for long, and the smaller of both is taken. That takes time by the pairs of buffers
that live together; where those are too many, memory is given out and taken back in the order of the steps instead, which needs
somewhat more of it.

A plan for some sizes serves smaller ones, too: `Stack` keeps which buffers rest on which, and lets them sink as far as their
actual sizes allow. That takes a fraction of the time that planning does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from sardonyx.forks import importing
from sardonyx.program.image import ALIGNMENT

MOST_PAIRS: Final = 1 << 20  # of buffers that live together; a thousand buffers never have more than half of that


class Lifetime:
    """A buffer that needs `size` bytes from step `first` to step `last`."""

    __slots__ = ("first", "last", "size")

    def __init__(self, size: int, first: int, last: int) -> None:
        self.size = size
        self.first = first
        self.last = last

    def __repr__(self) -> str:
        return f"Lifetime({self.size}, {self.first}, {self.last})"


def plan_offsets(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset for each buffer, and the size of the arena."""
    together = _living_together(lifetimes, MOST_PAIRS)
    if together is not None:
        found = _placed(lifetimes, together, lambda one: -one.size)
        if found[1] > lower_bound(lifetimes):
            other = _placed(lifetimes, together, lambda one: -one.size * (one.last - one.first + 1))
            return min(found, other, key=itemgetter(1))
        return found
    with importing:
        from sardonyx.plan.gaps import plan_by_step  # lazy: hardly any program has so many buffers

    return plan_by_step(lifetimes)


def _living_together(lifetimes: Sequence[Lifetime], limit: int) -> list[list[int]] | None:
    """For each buffer those that live at some step together with it; None if there are more pairs than the limit."""
    together: list[list[int]] = [[] for _ in lifetimes]
    living: set[int] = set()
    ending = sorted(range(len(lifetimes)), key=lambda number: lifetimes[number].last, reverse=True)
    pairs = 0
    for number in sorted(range(len(lifetimes)), key=lambda number: lifetimes[number].first):
        one = lifetimes[number]
        while lifetimes[ending[-1]].last < one.first:
            living.remove(ending.pop())
        pairs += len(living)
        if pairs > limit:
            return None
        together[number].extend(living)
        for other in living:
            together[other].append(number)
        living.add(number)
    return together


def _placed(
    lifetimes: Sequence[Lifetime], together: Sequence[Sequence[int]], rank: Callable[[Lifetime], int]
) -> tuple[list[int], int]:
    """The buffer of the lowest rank first, each as low as those allow that were placed before it."""
    offsets, ends = [0] * len(lifetimes), [-1] * len(lifetimes)  # an end of -1: not placed yet
    total = 0
    for number in sorted(range(len(lifetimes)), key=lambda number: (rank(lifetimes[number]), lifetimes[number].first)):
        size = aligned(lifetimes[number].size)
        at = 0
        for offset, end in sorted([(offsets[other], ends[other]) for other in together[number] if ends[other] >= 0]):
            if at + size <= offset:
                break
            at = max(at, end)
        offsets[number], ends[number] = at, at + size
        total = max(total, at + size)
    return offsets, total


def aligned(size: int) -> int:
    """A size that ends where another buffer may begin."""
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


class Stack:
    """A memory plan without its offsets: which buffers each one lies above, so that it can be laid out anew for other sizes."""

    def __init__(self, order: list[tuple[int, tuple[int, ...]]]) -> None:
        self.order = order  # from the bottom up: a buffer, and those it rests on

    @classmethod
    def of(cls, lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> Stack:
        """The stack of a plan that `plan_offsets` made. Buffers that are empty in it rest on nothing."""
        with importing:
            from bisect import bisect_right  # lazy: a model that sees one shape only never comes here

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
            ends[number] = at + aligned(sizes[number])
        return offsets, max(ends, default=0)


def lower_bound(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes that live at one step: no plan can need less."""
    events: dict[int, int] = {}
    for one in lifetimes:
        size = aligned(one.size)
        events[one.first] = events.get(one.first, 0) + size
        events[one.last + 1] = events.get(one.last + 1, 0) - size
    live = most = 0
    for step in sorted(events):
        live += events[step]
        most = max(most, live)
    return most
