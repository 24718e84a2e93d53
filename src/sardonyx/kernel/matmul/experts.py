"""Which experts a token goes to, and the rows of all tokens in the order of their experts, for products in groups.

    route     chosen[t, :], weights[t, :]  :=  the best experts of token t, best first, and what their results count
    group     rows of all pairs (token, choice), sorted by expert:
              slots[t, j]  :=  the row of the pair        tokens[row]  :=  its token        factors[row]  :=  its weight
              tiles[n]     :=  (expert, first row, height, first tile of the expert, how many tiles the expert has)

A product of such rows (`MatMulKernel.grouped`, `BlockProductKernel.grouped`) takes a tile and multiplies it by the weights of its
expert, so experts that nobody has chosen cost nothing. There is room for as many tiles as there can be; those left over have
height 0. The rows of an expert are divided into tiles of nearly equal height.

Of equal logits the later expert is better; NaN is worse than everything. The parallel range of `route` counts tokens, that of
`group` is 1.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sardonyx.ir.dims import Dim, dim_min, floordiv
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass

Weighting: TypeAlias = Literal["all", "best", "given"]  # softmax of all logits, of those chosen, or a tensor of their own

TILE_ENTRIES: Final = 5  # numbers of 64 bits that describe a tile


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteKernel:
    """All that decides the code of a choice of experts."""

    type: str  # of the logits, and of weights that are given
    weighting: Weighting
    normalize: bool  # the weights of a token are divided by their sum

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"route|{self.type}|{self.weighting}|{int(self.normalize)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with. Results have no gaps; `scores` is memory for as many floats as there are weights."""
        return Arguments(
            number("experts"),
            number("wanted"),
            tensor("logits", 2),  # strides: token, expert
            tensor("given", 2),
            address("chosen"),
            address("scores"),
            address("weights"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRowsKernel:
    """All that decides the code of a division of rows between experts."""

    height: int  # of the tallest tile

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"group_rows|{self.height}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with. `starts` is memory for a number of each expert."""
        return Arguments(
            number("pairs"),
            number("wanted"),
            number("experts"),
            number("tiles"),
            address("chosen"),
            address("weights"),
            address("starts"),
            address("slots"),
            address("tokens"),
            address("factors"),
            address("table"),
        )


def most_tiles(pairs: Dim, experts: int, height: int) -> Dim:
    """How many tiles there can be: full ones, and one of each expert that is not full; none is empty."""
    return dim_min(pairs, floordiv(pairs, height) + experts)
