"""Whether a program had better use its pool or run alone: after a worker was held up, and if it is short.

A second worker that seldom has its core is little help, and the caller waits for it again and again: alone it may be as fast, and
leaves more to others. Which is better depends on how much the others use and on the program, so both are tried and the faster
one is kept for a while: a short one at first, as most disturbances are short, then ever longer ones. This is asked only after
a worker was held up (PRESSURE of the pool block), and alone is tried only if the caller itself could not work all the time.

    runs  together | alone | the faster of the two ... | together | alone | ...

A short program, run now and then, is over before a worker has woken up, and calling one takes the caller longer than it gains.
While one thread runs short programs again and again, workers go on spinning from each run to the next, and sharing costs next to
nothing. Threads that run side by side have their cores themselves: they run alone. So does everybody for a while after a worker
was held up, as a short run loses far more by waiting than it could gain; the while is longer the more often that happens.

    runs  alone | alone | alone | together | together ...      of one thread, each soon after the one before
"""

from __future__ import annotations

from typing import Final

_RUNS: Final = 3  # of a trial, at least
_SECONDS: Final = 0.03
_KEPT: Final = 2  # how many times as long as the trials the first choice holds; the following ones twice as long each
_LONGEST: Final = 32  # up to this many times as long
_BUSY: Final = 0.75  # share of the time the caller works from which on nothing else is tried
_MOST: Final = 64  # programs that are remembered

# Of short programs
_CLOSE: Final = 200e-6  # seconds from the end of a run to the next; workers spin for longer
_BEFORE: Final = 3  # runs of a row that are alone
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 3.2  # seconds alone after a worker was held up
_CALM: Final = 8  # pauses without another hold-up after which the next one is a first one again


class Trials:
    """The trials of one program."""

    __slots__ = ("_holds", "_kept", "_runs", "_spent", "_worked")

    def __init__(self) -> None:
        self._holds = _KEPT
        self._begin()

    def _begin(self) -> None:
        self._runs = [0, 0]  # alone, together
        self._spent = [0.0, 0.0]
        self._worked = 0.0
        self._kept = 0.0

    def is_shared(self) -> bool:
        """Whether the next run uses the pool."""
        for shared in (True, False):
            if self._runs[shared] < _RUNS or self._spent[shared] < _SECONDS:
                return shared
            if shared and self._worked > _BUSY * self._spent[True]:
                return True
        return self._spent[True] * self._runs[False] < self._spent[False] * self._runs[True]

    def record(self, shared: bool, seconds: float, worked: float) -> None:
        """What a run took, and for how much of it the caller had a core and something to do."""
        if self.is_decided:
            self._kept += seconds
            if self._kept > self._holds * sum(self._spent):
                self._holds = _KEPT if self.is_quiet else min(2 * self._holds, _LONGEST)
                self._begin()
            return
        self._runs[shared] += 1
        self._spent[shared] += seconds
        if shared:
            self._worked += worked

    @property
    def is_quiet(self) -> bool:
        """Whether the caller worked all the time: then nobody takes the cores."""
        enough = self._runs[True] >= _RUNS and self._spent[True] >= _SECONDS
        return enough and self._worked > _BUSY * self._spent[True]

    @property
    def is_decided(self) -> bool:
        """Whether everything was tried that will be."""
        runs, spent = self._runs, self._spent
        return self.is_quiet or all(runs[shared] >= _RUNS and spent[shared] >= _SECONDS for shared in (True, False))


class TrialTable:
    """The trials of all programs of a pool, by a number that stands for each."""

    def __init__(self) -> None:
        self._trials: dict[int, Trials] = {}

    def of(self, program: int) -> Trials:
        """The trials of a program."""
        found = self._trials.get(program)
        if found is None:
            if len(self._trials) >= _MOST:
                self._trials.clear()
            found = self._trials[program] = Trials()
        return found


class CloseRuns:
    """The short runs of a pool. Times are seconds of one clock."""

    __slots__ = ("_caller", "_count", "_pause", "_until", "ended")

    def __init__(self) -> None:
        self._caller = 0
        self._count = 0  # of runs that came soon after another
        self.ended = float("-inf")  # when the last run was over: the pool says so
        self._until = float("-inf")
        self._pause = _FIRST_PAUSE / 2

    def begin(self, now: float, caller: int) -> bool:
        """A run begins: whether workers are awake, or worth waking."""
        if now - self.ended > _CLOSE or caller != self._caller:
            self._caller, self._count = caller, 1
            return False
        self._count += 1
        return self._count > _BEFORE and now >= self._until

    def hold_off(self, now: float) -> None:
        """A worker was held up."""
        if now - self._until > _CALM * self._pause:
            self._pause = _FIRST_PAUSE / 2
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._until = now + self._pause
