"""Elements of rows at positions that a table says: a resize to the nearest element, of one axis or of two at once.

    target[o..., j]     :=  source[o..., indices[j]]
    target[o..., l, j]  :=  source[o..., lines[l], indices[j]]          with `lines`

Positions lie inside: they are known, or limited where they are made. Rows are consecutive in memory on both sides. The parallel
range counts pieces of the rows of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor
from sardonyx.records import dataclass

PIECE: Final = 4096  # points of a row that make one unit of work


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestKernel:
    """All that decides the code of such a selection."""

    type: str
    outer: int  # axes, that of the lines included: it is the last of them
    lines: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"nearest|{self.type}|{self.outer}|{int(self.lines)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("outer", self.outer),
            number("points"),
            tensor("source", self.outer),
            tensor("target", self.outer),
            address("indices"),  # i64
            *([address("lines")] if self.lines else []),  # i64
        )


def units(outer: Sequence[Dim], points: Dim) -> Dim:
    """How many units of work there are."""
    return product([*outer, ceildiv(points, PIECE)])
