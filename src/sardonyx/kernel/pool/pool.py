"""Pools over images that lie row by row: the maximum, the mean or the sum of every window.

A row of results is made in two steps, a chunk of columns at a time: the rows of the windows are combined column by column into a
row on the stack, with what changes nothing to its left and right; then the columns of each window are, in one of three ways:

    taps      a vector of neighbouring windows, one tap after the other
    doubled   long windows that overlap: of 2, 4, 8 ... columns, each made of two of half the length. With a stride of s blocks
              of s columns are combined first, and windows are blocks and the beginning of one more
    across    long windows far apart: each by vectors of its columns

How many columns of the windows count in a mean is the same for all rows and is found out once for each chunk.

The parallel range counts rows of results.

A max pool whose indices are asked for has a kernel of its own: results and indices without gaps, windows one by one.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

PoolKind: TypeAlias = Literal["max", "average", "sum"]

Way: TypeAlias = Literal["taps", "doubled", "across"]

CHUNK: Final = 64  # columns of results worked on at once, as a rule
_FEWEST: Final = 16  # of those: a vector of floats
MOST_REACH: Final = 1 << 14  # elements of a row on the stack
_LONG: Final = 24  # columns of a window that are not combined one by one
_FAR: Final = 8  # windows whose beginnings are further apart are combined one by one
_COVERED: Final = 4  # times the length of a window that a chunk has, if there is room
POOL_NUMBERS: Final = (
    "batch", "channels", "depth", "height", "width", "planes", "rows", "columns",
    "front", "top", "left", "padded_depth", "padded_height", "padded_width",
)  # fmt: skip


def row_way(columns: int, stride: int, dilation: int) -> Way:
    """How the columns of windows are combined."""
    if columns < _LONG or (dilation > 1 and stride > 1):
        return "taps"
    return "doubled" if stride <= _FAR else "across"


def chunk_of(columns: int, stride: int, dilation: int) -> int:
    """How many results of a row are worked on at once: what windows at both ends of a chunk read is combined twice."""
    chunk, window = CHUNK, (columns - 1) * dilation + 1
    while chunk * stride < _COVERED * window and (2 * chunk - 1) * stride + window <= MOST_REACH:
        chunk *= 2
    while chunk > _FEWEST and (chunk - 1) * stride + window > MOST_REACH:
        chunk //= 2
    return chunk


def row_reach(columns: int, stride: int, dilation: int) -> int:
    """Columns of the input that a chunk of windows needs."""
    return (chunk_of(columns, stride, dilation) - 1) * stride + (columns - 1) * dilation + 1


@dataclass(frozen=True, kw_only=True)
class PoolKernel:
    """All that decides the code of a pool over images in plain order."""

    kind: PoolKind
    source: str  # type of the input
    type: str  # that it is combined in
    # Of planes, rows and columns:
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]  # from one window to the next
    dilation: tuple[int, int, int]  # from one tap to the next
    padded: bool  # average: padding counts
    whole: bool  # average: all taps of all windows count
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (self.kind, self.source, self.type, self.kernel, self.stride, self.dilation, self.padded, self.whole)
        return f"pool|{'|'.join(map(str, fields))}|{self.epilogue.key}"

    @property
    def way(self) -> Way:
        """How the columns of its windows are combined."""
        return row_way(self.kernel[2], self.stride[2], self.dilation[2])

    @property
    def chunk(self) -> int:
        """Results of a row that are worked on at once."""
        return chunk_of(self.kernel[2], self.stride[2], self.dilation[2])

    @property
    def reach(self) -> int:
        """Columns of the input that a chunk of results needs."""
        return row_reach(self.kernel[2], self.stride[2], self.dilation[2])

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            *map(number, POOL_NUMBERS),
            tensor("x", 4),  # strides: batch, channel, plane, row; columns are consecutive
            tensors("operands", len(self.epilogue.operands), 5),  # batch, channel, plane, row, column
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxIndicesKernel:
    """All that decides the code of a max pool that also gives the indices of its maxima."""

    source: str
    type: str
    kernel: tuple[int, int, int]
    stride: tuple[int, int, int]
    dilation: tuple[int, int, int]

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"maxplaces|{self.source}|{self.type}|{self.kernel}|{self.stride}|{self.dilation}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            *map(number, POOL_NUMBERS),
            numbers("numbering", 3),  # from one plane, row and column to the next, as indices are counted
            tensor("x", 5),
            address("values"),
            address("indices"),
        )
