"""How much memory a plan needs: the buffers of its arena with their lifetimes, the peak, and what is alive at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx.ir.dims import Dim, symbols_of
from sardonyx.plan.least_peak import assumed_size
from sardonyx.plan.memory import Lifetime, owners, plan_offsets
from sardonyx.plan.native import NativePlan
from sardonyx.program.steps import Storage


def arena_lifetimes(plan: NativePlan, sizes: Mapping[str, int], workers: int = 1) -> dict[int, Lifetime]:
    """The buffers that get memory of their own in the arena, by number. Sizes of dimensions that are not given are assumed."""
    known = dict(sizes)

    def bytes_of(size: Dim) -> int:
        return assumed_size(size, known)

    ends = {number: last for number, (_, last) in enumerate(plan.lifetimes)}
    for target, owner in owners(plan.shared).items():
        ends[owner] = max(ends[owner], plan.lifetimes[target][1])
    found = {}
    for number, buffer in enumerate(plan.buffers):
        if buffer.storage not in (Storage.ARENA, Storage.WORKER) or number in plan.shared:
            continue
        size = bytes_of(plan.dims[plan.sizes[number]]) * (workers if buffer.storage is Storage.WORKER else 1)
        found[number] = Lifetime(size, plan.lifetimes[number][0], ends[number])
    return found


def planned_bytes(plan: NativePlan, sizes: Mapping[str, int] | None = None) -> int:
    """The size of the arena that the plan leads to."""
    return plan_offsets(list(arena_lifetimes(plan, sizes or {}).values()))[1]


def sparest(plans: Sequence[NativePlan]) -> int:
    """Which of several plans of one graph needs the least memory; the first of those that need the same.

    Sizes that the graph leaves open are small in one run and large in another, and a plan may be the best for one of them only:
    plans are compared with all of those at 1 and with all at what is assumed, and the one is taken that is least above the best.
    """
    symbols = {name for plan in plans for dim in plan.dims if not isinstance(dim, int) for name in symbols_of(dim)}
    worst = [0.0] * len(plans)
    for sizes in ({}, dict.fromkeys(symbols, 1)):
        needed = [planned_bytes(plan, sizes) for plan in plans]
        worst = [max(so_far, need / max(min(needed), 1)) for so_far, need in zip(worst, needed)]
    return worst.index(min(worst))


def live_bytes(lifetimes: Sequence[Lifetime], steps: int) -> list[int]:
    """How many bytes are in use at each step."""
    changes = [0] * (steps + 1)
    for one in lifetimes:
        if one.first < steps:
            changes[one.first] += one.size
            changes[min(one.last + 1, steps)] -= one.size
    live, found = 0, []
    for change in changes[:steps]:
        live += change
        found.append(live)
    return found
