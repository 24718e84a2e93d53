"""Keys or values appended to a cache with room: what was there stays, new rows follow, zeros fill the room behind them.

    present[b, h, t]  :=  past[b, h, t]             t < first[b]
                          new[b, h, t - first[b]]   as many as there are
                          0                         behind them, or what the past has there

A past and a present that begin at one address are one buffer: then only the new rows are written. Where rows are dropped, those
of the past begin at `dropped[b]`, and past and present are apart. A unit of work is the part of one head; rows are consecutive.
Where the new rows would not lie inside, nothing is written: whoever gives positions checks them.
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
    drops: bool = False  # every batch entry drops a number of its own (i64) of the first rows of the past
    keeps: bool = False  # what the past holds behind the new rows stays

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"cache|{self.type}|{self.is_ragged}|{self.drops}|{self.keeps}"

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
            *([address("dropped")] if self.drops else []),
        )


def units(batch: Dim, heads: Dim) -> Dim:
    """How many parts there are."""
    return batch * heads
