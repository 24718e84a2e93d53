"""Reading and writing at positions that indices name.

    gather    near[p]  :=  far[p + indices(p)]           for every position p
    scatter   far[p + indices(p)]  :=  near[p]           or combined with what is there, the positions in order

An index counts along an axis of `far` whose stride is its `stride`; negative ones count from the end. One that is out of range is
reported as a fault and its position is left out: nothing outside is read or written.

Axes: `parallel` ones, on which different positions never meet in one element of `far`; `ordered` ones, walked in order by
one worker; and with `rows` a last axis along which both sides are consecutive and the indices are the same, moved in pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor, tensors
from sardonyx.kernel.loops import Inner
from sardonyx.records import dataclass

Direction: TypeAlias = Literal["gather", "scatter"]
Combine: TypeAlias = Literal["", "add", "mul", "min", "max", "and", "or"]

ROW_PIECE = 4096  # elements of a row that make one unit of work
CHUNK = 1024  # positions on the last parallel axis that make one unit, if there are no rows
ORDERED_CHUNK = 64  # the same with ordered axes, each position of which has so many: enough to read them in lines of the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKernel:
    """All that decides the code of a gather or scatter."""

    direction: Direction
    type: str
    index: str  # type of the indices
    indices: int  # how many a position has
    parallel: int
    ordered: int
    rows: bool
    combine: Combine = ""
    inner: tuple[Inner, ...] = ()  # what is known of the strides on the last parallel axis: of near, far and the indices
    unit_strides: tuple[bool, ...] = ()  # for each index whether its axis is consecutive in memory

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        axes = f"{self.parallel}|{self.ordered}|{int(self.rows)}"
        strides = f"{','.join(self.inner)}|{','.join(str(int(unit)) for unit in self.unit_strides)}"
        return f"index|{self.direction}|{self.type}|{self.index}|{self.indices}|{axes}|{self.combine}|{strides}"

    @property
    def axes(self) -> int:
        """Axes that have strides."""
        return self.parallel + self.ordered

    @property
    def chunked(self) -> bool:
        """Whether the last parallel axis is walked in chunks, inside the ordered ones: if it is consecutive on both sides."""
        return not self.rows and self.parallel > 0 and (not self.ordered or self.inner[:2] == ("unit", "unit"))

    @property
    def chunk(self) -> int:
        """Positions of a chunk."""
        return ORDERED_CHUNK if self.ordered else CHUNK

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("sizes", self.axes),
            *([number("row")] if self.rows else []),
            tensor("near", self.axes),
            tensor("far", self.axes),
            numbers("limits", self.indices),
            numbers("strides", self.indices),
            tensors("index", self.indices, self.axes),
            address("record"),  # where a fault is reported
            number("code"),
        )


def units(kernel: IndexKernel, sizes: Sequence[Dim]) -> Dim:
    """How many units of work there are; `sizes` of all axes, in order."""
    parallel = list(sizes[: kernel.parallel])
    if kernel.rows:
        return product([*parallel, ceildiv(sizes[-1], ROW_PIECE)])
    if kernel.chunked:
        return product([*parallel[:-1], ceildiv(parallel[-1], kernel.chunk)])
    return product(parallel)
