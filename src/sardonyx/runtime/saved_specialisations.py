"""Saved models whose first specialisations have programs of their own: each is read when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sardonyx.formats.program.read import ProgramFile
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.saved import CacheEntry, SavedProgram, read
from sardonyx.runtime.sizes_apart import SizesApart
from sardonyx.runtime.specialisations import MOST_SPECIALISATIONS, SpecialisationKey, SpecialisationTable

_MOST_ABSENT: Final = 256  # specialisations that are known to have no program


class SavedSpecialisations(SavedProgram):
    """A model with a general program, and others for its first few specialisations.

    One that has none is compiled, by the full model, as long as not all of the first few are there. Whoever comes later runs the
    general program, in this process as in the one that has compiled them.
    """

    def __init__(
        self,
        entry: CacheEntry,
        file: ProgramFile,
        load: Callable[[ProgramFile], Executable | None],
        open_full: Callable[[], Any],
    ) -> None:
        super().__init__(file, open_full)
        self._entry = entry
        self._load = load
        self._specialisations = SpecialisationTable(file.deciding)  # those that take arrays alone
        self._others: dict[SpecialisationKey, Executable] = {}
        self._absent: set[SpecialisationKey] = set()
        self._compiled: set[SpecialisationKey] = set()  # specialisations that the full model runs
        self._all_there = False  # no further one gets a program of its own
        self._main: Executable | None = None
        self._has_main = file.has_program
        self._apart: SizesApart | None = None  # if the program for all is a single call: sizes that it leaves to others
        if file.has_savings:
            main = self._for_all()
            self._apart = None if main is None else SizesApart.of(main)

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """All outputs, if this run can go the short way; None if it needs `run`."""
        if self._apart is not None and self._main is not None:
            results = self._specialisations.run_or(self._main, feeds)
        else:
            results = self._specialisations.run(feeds)
        if results is None and self._full is not None:  # it knows specialisations that cannot be saved
            results = self._full.run_fast(feeds)
        if results is None:
            program = self._program_for(feeds)
            results = program.run(feeds) if program is not None and program.has_fast_path else None
        return results

    def _program_for(self, feeds: Mapping[str, Any]) -> Executable | None:
        specialisation = self._specialisations.key_of(feeds)
        if specialisation is None:
            return self._for_all()
        if specialisation in self._compiled:
            return None
        found = self._others.get(specialisation) or self._specialisations.find(specialisation)
        symbols = self._left_by_main(feeds) if found is None else None
        if self._apart is not None and found is None and symbols is None:
            return self._for_all()
        if found is None and specialisation not in self._absent:
            found = self._read(specialisation)
        if found is None and not self._all_there:
            self._all_there = self._has_main and self._entry.specialisation_count() >= MOST_SPECIALISATIONS
        is_general = found is None and self._all_there
        if found is None and not is_general:
            self._compiled.add(specialisation)
        if self._apart is not None and symbols is not None:
            self._apart.take(symbols) if is_general else self._apart.leave(symbols)
        return self._for_all() if is_general else found

    def _left_by_main(self, feeds: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The sizes of these feeds, if the program for all leaves them to others."""
        if self._apart is None or self._main is None:
            return None
        core = self._main.core
        return core.left_to_others([feeds[port.name].shape for port in core.image.inputs])

    def _read(self, specialisation: SpecialisationKey) -> Executable | None:
        file = read(self._entry, specialisation)
        program = None if file is None else self._load(file)
        if program is None:
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent.add(specialisation)
        elif program.has_fast_path:
            self._specialisations.put(specialisation, program)
        else:
            self._others[specialisation] = program
        return program

    def _for_all(self) -> Executable | None:
        """The program for all specialisations."""
        if self._main is None and self._has_main:
            self._main = self._load(self._file)
            self._has_main = self._main is not None
        return self._main

    def _drop(self, program: Executable) -> None:
        if program is self._main:
            self._main, self._has_main, self._all_there, self._apart = None, False, False, None
        for specialisation in [specialisation for specialisation, other in self._others.items() if other is program]:
            del self._others[specialisation]
            self._compiled.add(specialisation)
        self._compiled.update(self._specialisations.drop(program))

    def short_program(self, names: Sequence[str]) -> Executable | None:
        """The program that has computed these values before, if it has a short way to run."""
        if self._apart is not None and list(names) == [port.name for port in self.outputs]:
            return self._main
        return super().short_program(names)

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        for program in (self._specialisations, self._main, self._full, *self._others.values()):
            if program is not None:
                program.shrink()
