"""Interleaving: a transposition of a few columns into rows that follow each other without a gap.

    target[o..., r * count + c]  :=  source[o..., r, c]     source consecutive along r

as an image goes from planes of colours to pixels. Vectors of all columns are loaded and mixed in registers.

The parallel range counts chunks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.records import dataclass

CHUNK = 1024  # rows that make one unit of work
MOST = 8  # columns


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleaveKernel:
    """All that decides the code of an interleaving."""

    type: str
    count: int
    outer: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"interleave|{self.type}|{self.count}|{self.outer}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("outer", self.outer),
            number("rows"),
            tensor("source", self.outer + 1),  # strides: outer axes, along c
            tensor("target", self.outer),
        )


def units(outer: Sequence[Dim], rows: Dim) -> Dim:
    """How many chunks there are."""
    return product([*outer, ceildiv(rows, CHUNK)])
