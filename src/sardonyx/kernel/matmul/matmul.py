"""Matrix products: C = A * B over any number of batch axes, with an epilogue on every element of C.

The result is cut into tiles of a few rows and of one strip, which is a few vectors of columns; a tile is summed over the whole
depth in registers. A is read where it lies, with any strides. B comes in one of two forms:

    packed   strips one after the other, each [depth][strip] without gaps, columns beyond the matrix filled with zeros
    rows     as it lies, consecutive along its columns

Rows are divided into blocks of nearly equal height, at most the tallest tile, so that no tile is left nearly empty. A few
blocks make a group; a group's part of A stays in the cache while all strips pass by.

The parallel range counts tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.expr import BITS
from sardonyx.records import dataclass
from sardonyx.target.target import Target

Source: TypeAlias = Literal["packed", "rows"]


def vector_lanes(type: str, target: Target) -> int:
    """Elements of a vector that is summed up in a type."""
    return target.lanes_of(max(BITS[type], 32))


_MANY_REGISTERS: Final = 32  # the other row of the tables holds for machines with fewer, which have 16 at least
# The most rows of a tile by registers and vectors of a strip, as measured: with more, sums no longer stay in registers.
_TALLEST: Final = {16: {1: 12, 2: 6, 3: 4, 4: 2}, 32: {1: 12, 2: 8, 3: 8, 4: 6}}
# How much longer a column takes in narrower strips, which read A more often.
_COST: Final = {16: {1: 1.15, 2: 1.0, 3: 1.0, 4: 1.15}, 32: {1: 1.04, 2: 1.02, 3: 1.01, 4: 1.0}}


def _row(target: Target) -> int:
    return 32 if target.registers >= _MANY_REGISTERS else 16


def tallest(target: Target, vectors: int) -> int:
    """The most rows of a tile."""
    return _TALLEST[_row(target)][vectors]


def strip_vectors(columns: Dim, type: str, target: Target) -> int:
    """How many vectors a strip should have: as many as keep the last strip from being mostly empty."""
    cost = _COST[_row(target)]
    if not isinstance(columns, int):
        return min(cost, key=lambda vectors: cost[vectors])
    own = vector_lanes(type, target)
    return min(cost, key=lambda vectors: -(-max(columns, 1) // (own * vectors)) * vectors * cost[vectors])


@dataclass(frozen=True, kw_only=True)
class MatMulKernel:
    """All that decides the code of a matrix product; two equal ones share it."""

    type: str  # of A and of the sums
    b_type: str  # of B in memory; converted when loaded
    b: Source
    batch: int  # axes
    vectors: int  # in a strip
    rows: int  # of the tallest tile
    heights: tuple[int, ...]  # of tiles that can occur, ascending; others are rounded up to the next
    unit_depth: bool  # A is consecutive along its depth
    whole: bool  # the columns fill their strips
    epilogue: Epilogue

    def __post_init__(self) -> None:
        if not self.heights or self.heights[-1] > self.rows:
            raise ValueError(f"tiles of heights {self.heights} in blocks of at most {self.rows} rows")

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return self.text

    @property
    def text(self) -> str:
        """What the key is made of."""
        heights = ",".join(map(str, self.heights))
        return (
            f"matmul|{self.type}|{self.b_type}|{self.b}|{self.batch}|{self.vectors}x{self.rows}|{heights}"
            f"|{self.unit_depth}|{self.whole}|{self.epilogue.key}"
        )

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("rows"),
            number("columns"),
            number("depth"),
            number("group"),  # blocks in a group
            tensor("a", self.batch + 2),  # strides: batch axes, row, depth
            tensor("b", self.batch + 1),  # strides: batch axes, strip (packed) or row (rows)
            tensors("operands", len(self.epilogue.operands), self.batch + 2),  # strides: batch axes, row, column
        )


def heights(rows: Dim, tallest_: int) -> tuple[int, ...]:
    """The heights of the tiles that a number of rows is divided into; all that are possible if it is not known yet."""
    if not isinstance(rows, int):
        return tuple(range(1, tallest_ + 1))
    if rows == 0:
        return (1,)
    blocks = -(-rows // tallest_)
    return tuple(sorted({rows // blocks, -(-rows // blocks)}))


def units(kernel: MatMulKernel, batch: Sequence[Dim], rows: Dim, columns: Dim, target: Target) -> Dim:
    """How many tiles the result has."""
    strips = ceildiv(columns, kernel.vectors * vector_lanes(kernel.type, target))
    return product([*batch, ceildiv(rows, kernel.rows), strips])
