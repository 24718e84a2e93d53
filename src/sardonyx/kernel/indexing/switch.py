"""Deciding which steps run: the two sides of an If stand in one program, and the side not taken has nothing to do.

Arguments: the address of the condition, how many steps the first side has, how many the second; then for each step how far from
the arguments its unit count stands in the table, and the count it has if its side is taken.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SwitchKernel:
    """A kernel that writes unit counts into the table: those of the first side if the condition holds, else of the second."""

    @property
    def key(self) -> str:
        """There is only one."""
        return "switch"
