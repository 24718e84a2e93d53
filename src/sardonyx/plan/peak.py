"""How much memory a plan needs: the buffers of its arena with their lifetimes, the peak, and what is alive at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx.ir.dims import Dim
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
