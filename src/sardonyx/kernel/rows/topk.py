"""The first k elements of rows in sorted order, and where they were.

A row keeps its best elements so far in the result itself, sorted: an element that is better than the last of them is moved up to
its index. NaN counts as greater than every number; equal elements stay in their order. Rows have no gaps: the elements of some
vectors that are better are found at once.

The parallel range counts rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.dims import Dim, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.records import dataclass

MOST = 24  # elements asked for; with more of them moving up takes longer than sorting


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKKernel:
    """All that decides the code of a selection."""

    type: str
    largest: bool
    outer: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"topk|{self.type}|{int(self.largest)}|{self.outer}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        strides = self.outer + 1  # outer axes, along the row (1 for the rows themselves)
        return Arguments(
            numbers("outer", self.outer),
            number("length"),
            number("wanted"),
            tensor("rows", strides),
            tensor("values", strides),
            tensor("indices", strides),
        )


def units(outer: Sequence[Dim]) -> Dim:
    """How many rows there are."""
    return product(list(outer))
