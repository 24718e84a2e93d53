"""Interleaving: a transposition of a few columns into rows that follow each other without a gap.

    target[o..., r * count + c]  :=  source[o..., r, c]     source consecutive along r

as an image goes from planes of colours to pixels. Vectors of all columns are loaded and mixed in registers.

Arguments: outer sizes, rows; address of the source, its outer strides, its stride along c; address of the target, its outer
strides. Strides count elements. The parallel range counts chunks of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sardonyx.ir.dims import Dim, ceildiv, product

CHUNK = 1024  # rows that make one unit of work
MOST = 8  # columns


@dataclass(frozen=True)
class InterleaveKernel:
    """All that decides the code of an interleaving."""

    type: str
    count: int
    outer: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"interleave|{self.type}|{self.count}|{self.outer}"

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return (self.outer + 1) + (self.outer + 2) + (self.outer + 1)


def units(outer: Sequence[Dim], rows: Dim) -> Dim:
    """How many chunks there are."""
    return product([*outer, ceildiv(rows, CHUNK)])
