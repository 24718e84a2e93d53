"""Whether a program had better use its pool or run alone, while other processes use the cores as well.

A second worker that seldom has its core is little help, and the caller waits for it again and again: alone it may be as fast, and
leaves more to others. Which is better depends on how much the others use and on the program, so both are tried and the faster
one is kept for a while: a short one at first, as most disturbances are short, then ever longer ones. This is asked only after
a worker was held up (PRESSURE of the pool block), and alone is tried only if the caller itself could not work all the time.

    runs  together | alone | the faster of the two ... | together | alone | ...
"""

from __future__ import annotations

from typing import Final

_RUNS: Final = 3  # of a trial, at least
_SECONDS: Final = 0.03
_KEPT: Final = 2  # how many times as long as the trials the first choice holds; the following ones twice as long each
_LONGEST: Final = 32  # up to this many times as long
_BUSY: Final = 0.75  # share of the time the caller works from which on nothing else is tried
_MOST: Final = 64  # programs that are remembered


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
