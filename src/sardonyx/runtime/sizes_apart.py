"""Sizes that a program for all of them leaves to programs of their own, because those are estimated to be much faster.

A convolution net whose images may have any size is compiled for usual ones. Fed with a few pixels it would wait for weights that
were transformed for many. What its steps take for the sizes of a run, and what they would take if they were written for just
these, are sizes of the program like others (`savings` in `program.image`), so this is found out before anything runs and is the
same in every session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sardonyx.program.image import ProgramImage
from sardonyx.runtime.native_core import Array, SizeConflict

if TYPE_CHECKING:
    from sardonyx.runtime.executable import Executable

# A saving is worth a program of its own from this share of the estimated time on. Weights come faster than is assumed where
# other cores leave memory alone: measured, a third of the time turned out to be 6 to 20 percent, a half 27 and 0.85 of it 75.
_LARGE_SAVING: Final = 0.35
_SHORT: Final = 20_000  # nanoseconds of a run that nobody saves anything of
_MOST_TAKEN: Final = 256  # sizes that are served by the program for all although one of their own would be faster


class SpecialisationPays(SizeConflict):
    """A program of their own would serve these sizes much faster."""

    is_served_by_another = True

    def __init__(self, symbols: tuple[int, ...]) -> None:
        super().__init__("another program is faster for these sizes")
        self.symbols = symbols


class SizesApart:
    """Which sizes a program leaves to others. A decision is never changed: equal feeds shall have equal results, to the bit."""

    def __init__(self, image: ProgramImage) -> None:
        self._beyond, self._saved = image.savings.T
        self._elsewhere: set[tuple[int, ...]] = set()
        self._taken: set[tuple[int, ...]] = set()
        self._asks = True

    @staticmethod
    def of(program: Executable) -> SizesApart | None:
        """From now on a program leaves sizes to others; None if it serves all well."""
        core = program.core
        if program.is_one_call and len(core.image.savings):
            core.apart = SizesApart(core.image)
        return core.apart

    def check(self, symbols: tuple[int, ...], dims: Array, work: Array) -> None:
        """Raise SpecialisationPays for sizes that this program leaves to another; `work` is what steps are thought to take."""
        if symbols in self._elsewhere:
            raise SpecialisationPays(symbols)
        if not self._asks or symbols in self._taken:
            return
        taken, saved = int(work.sum()) + int(dims[self._beyond].sum()), int(dims[self._saved].sum())
        if taken >= _SHORT and saved >= taken * _LARGE_SAVING:
            raise SpecialisationPays(symbols)

    def leave(self, symbols: tuple[int, ...]) -> None:
        """These sizes have a program of their own."""
        self._elsewhere.add(symbols)

    def take(self, symbols: tuple[int, ...]) -> None:
        """These sizes get no program of their own. Once there are many of them, no others do."""
        self._taken.add(symbols)
        if len(self._taken) >= _MOST_TAKEN:
            self._asks = False
            self._taken.clear()
