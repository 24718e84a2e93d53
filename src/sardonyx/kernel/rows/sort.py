"""The first k elements of rows in sorted order, and where they were, for any k.

Every element becomes an unsigned key that compares as the element does (NaN counts as greater than every number, both zeros are
equal), with its index behind it in one word. There is room for some more words than are wanted; elements that do not come before
the last one wanted so far never become words. Words are sorted by one byte of the key after the other, which keeps equal elements
in their order. With `few` rows of which few elements turn out to be wanted are left to insertion (`kernel/rows/topk.py`). Rows
have no gaps.

The parallel range counts rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.ir.dims import Dim, dim_min, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.kernel.expr import BITS
from sardonyx.records import dataclass

_BLOCKS: Final = 128  # elements: at least two of the blocks that are looked at together
LONGEST: Final = (1 << 32) - 1  # row whose indices fit next to a key of 32 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class SortKernel:
    """All that decides the code of a sort."""

    type: str
    largest: bool
    outer: int
    few: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"sort|{self.type}|{int(self.largest)}|{self.outer}|{int(self.few)}"

    @property
    def bits(self) -> int:
        """Size of a key."""
        return BITS[self.type]

    @property
    def index_bits(self) -> int:
        """How many bits of a word hold the index."""
        return 32 if self.bits <= 32 else 64

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        strides = self.outer + 1  # outer axes, along the row
        return Arguments(
            numbers("outer", self.outer),
            number("length"),
            number("wanted"),
            number("room"),  # for words
            tensor("rows", strides),
            tensor("values", strides),
            tensor("indices", strides),
            tensor("scratch", 1),  # twice the room for each worker; the stride leads from one worker's to the next's
        )

    def scratch(self, room: Dim) -> Dim:
        """How many 64-bit numbers of scratch memory a worker needs."""
        return room * 2 * (self.index_bits // 32)


def room(length: Dim, wanted: Dim) -> Dim:
    """For how many words of a row there is room: more than are wanted by as many again, and by some blocks of elements."""
    return dim_min(length, wanted * 2 + _BLOCKS)


def units(outer: Sequence[Dim]) -> Dim:
    """How many units of work there are: rows."""
    return product(list(outer))
