"""Pools over images that lie row by row: the maximum, the mean or the sum of every window.

A row of results is made in two steps, a chunk of columns at a time: the rows of the windows are combined column by column into a
row on the stack, with what changes nothing to its left and right; then the columns of each window are. How many columns of the
windows count in a mean is the same for all rows and is found out once for each chunk.

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

CHUNK: Final = 64  # columns of results worked on at once
POOL_NUMBERS: Final = (
    "batch", "channels", "depth", "height", "width", "planes", "rows", "columns",
    "front", "top", "left", "padded_depth", "padded_height", "padded_width",
)  # fmt: skip


def row_reach(columns: int, stride: int, dilation: int) -> int:
    """Columns of the input that a chunk of windows needs."""
    return (CHUNK - 1) * stride + (columns - 1) * dilation + 1


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
