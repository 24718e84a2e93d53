"""Where the buffers of a program lie, for any sizes: planned for rounded-up sizes, so that few plans serve all.

A model whose sequence grows by one each step would otherwise be planned anew each time. The sizes of the symbols are rounded up
to the next of a geometric series; if no buffer is larger then than it was planned for, the plan holds. Sizes do not grow with
the symbols in every model (a difference of two of them does not): that is checked, and such sizes are planned exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.plan.memory import Lifetime, plan_offsets
from sardonyx.plan.native import NativePlan

Array = np.ndarray[Any, Any]

_PLANS_KEPT = 64
_EXACT_UP_TO = 16
_GROWTH = 1.25


def rounded_up(size: int) -> int:
    """The next size for which a plan is made: small ones exactly, larger ones in steps of a quarter."""
    step = _EXACT_UP_TO
    if size <= step:
        return size
    while step < size:
        step = int(step * _GROWTH) + 1
    return step


class ArenaLayout:
    """The places of all buffers that live in the arena."""

    def __init__(self, plan: NativePlan, late: Sequence[int], sizes: Callable[..., tuple[int, ...]]) -> None:
        left_out = set(late)
        elsewhere = left_out.union(number for number in plan.shared if plan.root(number) not in left_out)
        self.buffers = np.array(
            [n for n, buffer in enumerate(plan.buffers) if buffer.kind == "arena" and n not in elsewhere], np.int64
        )
        ends = {int(number): plan.lifetimes[number][1] for number in self.buffers}
        for target in plan.shared:
            root = plan.root(target)
            if root in ends:
                ends[root] = max(ends[root], plan.lifetimes[target][1])
        self._lifetimes = [(plan.lifetimes[number][0], ends[int(number)]) for number in self.buffers]
        self._size_numbers = np.array([plan.sizes[number] for number in self.buffers], np.int64)
        shared = [number for number in plan.shared if number not in left_out and plan.root(number) in ends]
        self.shared = np.array(shared, np.int64)
        self.roots = np.array([plan.root(number) for number in shared], np.int64)
        self._sizes = sizes
        self._plans: dict[tuple[int, ...], tuple[Array, Array, int]] = {}

    def place(self, symbols: tuple[int, ...], dims: Array) -> tuple[Array, int]:
        """Offsets of `buffers` and the size of the arena for these values of the symbols and dims."""
        needed = dims[self._size_numbers]
        key = tuple(rounded_up(size) for size in symbols)
        found = self._plans.get(key)
        if found is None:
            found = self._plan(np.array(self._sizes(*key), np.int64)[self._size_numbers])
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = found
        if (needed > found[1]).any():
            found = self._plan(needed)
        return found[0], found[2]

    def _plan(self, sizes: Array) -> tuple[Array, Array, int]:
        lifetimes = [Lifetime(max(int(size), 0), first, last) for size, (first, last) in zip(sizes, self._lifetimes)]
        offsets, total = plan_offsets(lifetimes)
        return np.array(offsets, np.int64), sizes, total
