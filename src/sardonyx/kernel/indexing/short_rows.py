"""Copies of short rows of a known length that lie apart: pieces of rows that are joined, split, cut or padded.

    target[o..., r, :]  :=  source[o..., r, :]       a row being so many bytes, consecutive on both sides

A row is a few loads and stores, of which the last overlaps the one before: nothing is masked, and no element moves alone. The
parallel range counts pieces of the axis of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, numbers, tensor
from sardonyx.records import dataclass

MOST_BYTES: Final = 512  # of a row: longer ones are loops of vectors
PIECE: Final = 256  # rows that make one unit of work


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortRowsKernel:
    """All that decides the code of such a copy."""

    width: int  # bytes of a row
    outer: int  # axes, of which the last is that of the rows

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"shortrows|{self.width}|{self.outer}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with: strides are bytes."""
        return Arguments(numbers("outer", self.outer), tensor("source", self.outer), tensor("target", self.outer))


def units(outer: Sequence[Dim]) -> Dim:
    """How many units of work there are."""
    return product([*outer[:-1], ceildiv(outer[-1], PIECE)])
