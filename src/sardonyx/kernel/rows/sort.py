"""The first k elements of rows in sorted order, and where they were, for any k.

Every element becomes an unsigned key that compares as the element does (NaN counts as greater than every number, both zeros are
equal), with its place behind it in one word. If few are wanted, those that the leading bits of the key rule out are dropped. The
rest is sorted by one byte of the key after the other; that keeps equal elements in their order.

Arguments: outer sizes, row length, k; for the rows, the values and the places: address, outer strides, stride along the row;
address and size (in 64-bit numbers) of a worker's scratch memory, which has two rows of words. Strides count elements. The
parallel range counts rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sardonyx.ir.dims import Dim, product
from sardonyx.kernel.expr import BITS

LONGEST: Final = (1 << 32) - 1  # row whose places fit next to a key of 32 bits


@dataclass(frozen=True)
class SortKernel:
    """All that decides the code of a sort."""

    type: str
    largest: bool
    outer: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"sort|{self.type}|{int(self.largest)}|{self.outer}"

    @property
    def bits(self) -> int:
        """Size of a key."""
        return BITS[self.type]

    @property
    def place_bits(self) -> int:
        """How many bits of a word hold the place."""
        return 32 if self.bits <= 32 else 64

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return (self.outer + 2) + 3 * (self.outer + 2) + 2

    def scratch(self, length: Dim) -> Dim:
        """How many 64-bit numbers of scratch memory a worker needs."""
        return length * 2 * (self.place_bits // 32)


def units(outer: Sequence[Dim]) -> Dim:
    """How many units of work there are: rows."""
    return product(list(outer))
