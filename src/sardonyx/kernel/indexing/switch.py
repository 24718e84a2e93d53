"""Deciding which steps run: the two sides of an If stand in one program, and the side not taken has nothing to do.

Behind its arguments (the condition, how many steps the first side has, how many the second) stands for each step how far from
the arguments its unit count stands in the table, and the count it has if its side is taken.
"""

from __future__ import annotations

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchKernel:
    """A kernel that writes unit counts into the table: those of the first side if the condition holds, else of the second."""

    @property
    def key(self) -> str:
        """There is only one."""
        return "switch"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(address("condition"), number("first"), number("second"))  # the entries of the steps follow
