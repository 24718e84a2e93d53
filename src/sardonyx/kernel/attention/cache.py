"""Keys or values appended to a cache with room: what was there stays, new rows follow, zeros fill the room behind them.

    present[b, h, t]  :=  past[b, h, t]             t < first[b]
                          new[b, h, t - first[b]]   as many as there are
                          0                         behind them

A past and a present that begin at one address are one buffer: then only the new rows are written. A unit of work is the part of
one head; rows are consecutive. Where the new rows would not lie inside, nothing is written: whoever gives positions checks them.
"""

from __future__ import annotations

from sardonyx.ir.dims import Dim
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKernel:
    """All that decides the code of an append. `is_ragged`: every batch entry has a first position of its own (i64)."""

    type: str
    is_ragged: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"cache|{self.type}|{self.is_ragged}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; strides are those of batch, head and time."""
        return Arguments(
            number("heads"),
            number("added"),
            number("held"),
            number("room"),
            number("row"),
            tensor("past", 3),
            tensor("new", 3),
            tensor("present", 3),
            address("first") if self.is_ragged else number("first"),
        )


def units(batch: Dim, heads: Dim) -> Dim:
    """How many parts there are."""
    return batch * heads
