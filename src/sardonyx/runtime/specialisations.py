"""Specialisations: a model compiled for the shapes of one run's inputs and for the numbers that decide its branches and axes.

A model that is not native as a whole is often native for one of these: they tell which side of an If is taken, along which axes
others work, and how large everything is. The first few are compiled when they come, and saved; this table finds their programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from sardonyx.runtime.executable import Executable

MOST_SPECIALISATIONS: Final = 4  # that get programs of their own

# Each input's name, shape, and what it holds if that decides
SpecialisationKey: TypeAlias = tuple[tuple[str, tuple[int, ...], "int | tuple[int, ...] | None"], ...]


class SpecialisationTable:
    """Programs by specialisation. `deciding` names the inputs of a few whole numbers that conditions or axes depend on."""

    def __init__(self, deciding: Sequence[str]) -> None:
        self.deciding = tuple(deciding)
        self._programs: dict[SpecialisationKey, Executable] = {}
        self._last: tuple[SpecialisationKey, Executable] | None = None

    def key_of(self, feeds: Mapping[str, Any]) -> SpecialisationKey | None:
        """The specialisation that serves some feeds; None if they are not all arrays."""
        entries = []
        for name, array in sorted(feeds.items()):
            if type(array) is not np.ndarray:
                return None
            entries.append((name, array.shape, _held(array) if name in self.deciding else None))
        return tuple(entries)

    def put(self, specialisation: SpecialisationKey, program: Executable) -> None:
        """Keep the program of a specialisation."""
        self._programs[specialisation] = program
        self._last = specialisation, program

    def find(self, specialisation: SpecialisationKey) -> Executable | None:
        """The program of a specialisation."""
        found = self._programs.get(specialisation)
        if found is not None:
            self.put(specialisation, found)
        return found

    def run(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, if the specialisation is that of the run before; None if this run needs a look at the table."""
        if self._last is None:
            return None
        specialisation, program = self._last
        for name, shape, number in specialisation:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.shape != shape or (number is not None and _held(array) != number):
                return None
        return program.run(feeds)

    def run_or(self, general: Executable, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, by the program of the feeds' specialisation or else by the one for all; None if this run needs a look."""
        results = self.run(feeds)
        if results is None and self._programs:
            specialisation = self.key_of(feeds)
            program = None if specialisation is None else self.find(specialisation)
            results = None if program is None else program.run(feeds)
        return general.run(feeds) if results is None else results

    def drop(self, program: Executable) -> list[SpecialisationKey]:
        """Forget a program; the specialisations it served."""
        served = [specialisation for specialisation, other in self._programs.items() if other is program]
        for specialisation in served:
            del self._programs[specialisation]
        if self._last is not None and self._last[1] is program:
            self._last = None
        return served

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        for program in self._programs.values():
            program.shrink()


def _held(array: np.ndarray[Any, Any]) -> int | tuple[int, ...]:
    """What an array of a few whole numbers holds."""
    return int(array.item()) if array.size == 1 else tuple(map(int, array.ravel().tolist()))
