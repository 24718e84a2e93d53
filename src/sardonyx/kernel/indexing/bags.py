"""Bags of rows of a table: the sum, mean or maximum of each bag.

    target[bag]  :=  reduce over e from starts[bag] to ends[bag] of  table[indices[e]] * weights[e]

Bounds count as those of Slice do: negative ones from the end, and none leads outside. An index that is out of range is reported
as a fault, and its row left out. Without indices the elements are the rows of the table themselves.

The parallel range counts bags.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from sardonyx.kernel.arguments import Arguments, address, number
from sardonyx.records import dataclass

Mode: TypeAlias = Literal["sum", "mean", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagKernel:
    """All that decides the code of a reduction of bags."""

    mode: Mode
    index: str  # type of the indices; empty: there are none
    weighted: bool
    equal_is_zero: bool  # bags that end where they begin are zeros, whatever their mode says of no rows

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"bags|{self.mode}|{self.index}|{int(self.weighted)}|{int(self.equal_is_zero)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            number("width"),  # elements of a row
            number("rows"),  # of the table
            number("elements"),  # of all bags
            address("table"),
            address("starts"),  # i64
            address("ends"),  # i64
            address("target"),
            *([address("indices")] if self.index else []),
            *([address("weights")] if self.weighted else []),
            address("record"),  # where a bad index is reported
            number("code"),
        )
