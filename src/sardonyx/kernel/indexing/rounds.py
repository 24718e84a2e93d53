"""The kernel at the end of steps that are done again and again: counts their rounds, and says whether another one follows.

A counter is two numbers: whether another round follows (see `program.steps.KernelStep.stretch`), and how many are over. Whoever
comes before the first round sets it to 0.
"""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass

COUNTER: Final = 2  # 64-bit numbers
GOES_ON, DONE = range(COUNTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsKernel:
    """A kernel of one unit that counts a round."""

    @property
    def key(self) -> str:
        """There is only one."""
        return "rounds"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; the first is what decides whether to go on."""
        return Arguments(address("counter"), number("rounds"))
