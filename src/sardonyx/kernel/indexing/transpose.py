"""Transposition: a copy in which one axis is consecutive in the source and another one in the target.

    target[o..., r, c]  :=  source[o..., r, c]      source consecutive along r, target consecutive along c

Squares of elements are transposed in registers; a unit of work is a block of squares small enough for the first cache. The last
square of a row or column overlaps the one before, so both axes must have at least as many elements as a square has rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

BLOCK_ROWS = 64
BLOCK_COLUMNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TransposeKernel:
    """All that decides the code of a transposition."""

    type: str
    outer: int
    side: int  # of the squares: a power of two

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"transpose|{self.type}|{self.outer}|{self.side}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("outer", self.outer),
            number("rows"),
            number("columns"),
            tensor("source", self.outer + 1),  # strides: outer axes, along c
            tensor("target", self.outer + 1),  # strides: outer axes, along r
        )


def square(bits: int, target: Target) -> int:
    """Rows and columns of the largest square transposed in registers, for elements of so many bits."""
    return {8: 16, 16: 8}.get(bits) or target.lanes_of(bits)


def units(outer: Sequence[Dim], rows: Dim, columns: Dim) -> Dim:
    """How many blocks there are."""
    return product([*outer, ceildiv(rows, BLOCK_ROWS), ceildiv(columns, BLOCK_COLUMNS)])
