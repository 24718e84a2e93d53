"""The filled rows of a cache as the numbers that are computed with.

    wide[b, h, t, c]  :=  number of stored[b, h, t, c], times a scale        t < lengths[b] + more

Caches have room for more positions than are filled: what lies behind a batch entry's own length is neither read nor written.
Rows hold narrow floats, bytes (i8), or pairs of 4 bits (u4: the first column in the lower half, 8 stands for 0); integers have
one scale, or one for each head and column. A unit of work is a block of rows of one head; rows are consecutive.
"""

from __future__ import annotations

from typing import Final, Literal

from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass

ROWS: Final = 64  # of a unit


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRowsKernel:
    """All that decides the code of it."""

    stored: str  # the type of elements; u4 lie in pairs
    type: str  # what they become
    scales: Literal["", "one", "columns"]
    lengths: str  # their type
    more: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"cache_rows|{self.stored}|{self.type}|{self.scales}|{self.lengths}|{self.more}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; strides are those of batch, head and time, in bytes for pairs."""
        return Arguments(
            number("heads"),
            number("room"),
            number("columns"),
            tensor("stored", 3),
            tensor("wide", 3),
            address("lengths"),
            *([address("scales")] if self.scales else []),
        )


def units(batch: Dim, heads: Dim, room: Dim) -> Dim:
    """How many blocks of rows there are."""
    return batch * heads * ceildiv(room, ROWS)
