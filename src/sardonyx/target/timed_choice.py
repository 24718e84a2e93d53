"""One of several ways to compute the same: by estimates, and where those are close, by a short race that is remembered.

    winner = choices.winner(candidates, runs)

    candidate    estimate    close?    best of some rounds
    direct         90 us     no
    winograd2      31 us     yes        36 us
    winograd4      28 us     yes        47 us                 => winograd2, from now on

Estimates (`target.cost`) are the same on every day; times are not. So a race only decides between candidates whose estimates lie
within `CLOSE` of the best, whatever a busy machine makes of their times; the favourite of the estimates stays unless another is
faster by `MARGIN`; and a decision is made once: it is written to the cache folder, where the first one stays, also if two
processes come to different ones at the same time. A race that would pass the budget is not held, which is decided by estimates as
well, and remembered like any other decision. What cannot be remembered is left to the estimates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sardonyx.cache_folder import CacheFolder

CLOSE: Final = 1.3  # candidates within this factor of the best estimate are raced
MARGIN: Final = 1.05  # by so much a candidate must be faster than the favourite of the estimates
ROUNDS: Final = 3
BUDGET: Final = 20_000_000  # nanoseconds of all races for one program
_SUFFIX: Final = ".choice"
_LIMIT: Final = 1 << 20  # bytes of remembered choices

Run = Callable[[], int]  # computes a candidate once; its nanoseconds


class Candidate(NamedTuple):
    """One way to compute something."""

    name: str
    estimate: int  # nanoseconds
    identity: str  # all that decides its time on a machine: kernels and sizes
    effort: int  # nanoseconds that a race takes for it, by estimate


def close_ones(estimates: Sequence[int], within: float = CLOSE) -> list[int]:
    """The positions of those that estimates alone do not decide between, the favourite first."""
    best = min(estimates)
    return sorted(
        (position for position, estimate in enumerate(estimates) if estimate <= best * within),
        key=lambda position: (estimates[position], position),
    )


def fastest(runs: Sequence[Run]) -> int:
    """The position of the one that takes the least time: the first, unless another is clearly faster.

    They are run in turns, so that what slows the machine down for a while slows all of them; the best time of each counts.
    """
    times = [min(each) for each in zip(*([run() for run in runs] for _ in range(ROUNDS)))]
    best = min(range(len(times)), key=lambda position: times[position])
    return best if times[best] * MARGIN < times[0] else 0


def choices_in(folder: str, trusted: bool = False) -> CacheFolder:
    """The choices that are remembered in a folder."""
    return CacheFolder(folder, _SUFFIX, _LIMIT, trusted)


class TimedChoices:
    """Choices of one program, remembered in a folder; `machine` names what times depend on besides the candidates."""

    def __init__(self, machine: str, folder: str, trusted: bool = False, budget: int = BUDGET) -> None:
        self._machine = machine
        self._memory = choices_in(folder, trusted)
        self._budget = budget
        self._decided: dict[str, str] = {}
        self.races = 0  # that were held

    def winner(self, candidates: Sequence[Candidate], runs: Callable[[Sequence[Candidate]], Sequence[Run]]) -> Candidate:
        """The candidate to take. `runs` prepares those that are to be raced."""
        near = [candidates[position] for position in close_ones([each.estimate for each in candidates])]
        if len(near) == 1:
            return near[0]
        key = self._key(near)
        name = self._decided.get(key) or self._remembered(key)
        if all(name != each.name for each in near):
            name = self._remember(key, self._raced(near, runs).name)
        self._decided[key] = name
        return next((each for each in near if each.name == name), near[0])

    def _raced(self, near: Sequence[Candidate], runs: Callable[[Sequence[Candidate]], Sequence[Run]]) -> Candidate:
        needed = sum(each.effort for each in near)
        if needed > self._budget:
            return near[0]
        self._budget -= needed
        self.races += 1
        return near[fastest(runs(near))]

    def _key(self, near: Sequence[Candidate]) -> str:
        parts = (self._machine, *(part for each in near for part in (each.name, each.identity)))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]

    def _remembered(self, key: str) -> str:
        return (self._memory.read(key) or b"").decode("utf-8", "replace")

    def _remember(self, key: str, name: str) -> str:
        """Write a decision down, unless another process has done so by now; the one that stands, "" if none can."""
        kept = self._memory.write_first(key, name.encode())
        self._memory.make_room()
        return (kept or b"").decode("utf-8", "replace")
