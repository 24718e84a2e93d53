"""Pools over images that lie row by row: the maximum, the mean or the sum of every window.

A row of results is made in two steps, a chunk of columns at a time: the rows of the windows are combined column by column into a
row on the stack, with what changes nothing to its left and right; then the columns of each window are. How many columns of the
windows count in a mean is the same for all rows and is found out once for each chunk.

Arguments: batch, channels; sizes of the input and of the result (planes, rows, columns each); padding before (three), sizes with
all padding (three); address of the input and its strides (batch, channel, plane, row); for each operand of the epilogue its
address and strides (batch, channel, plane, row, column). Strides count elements; the input's columns are consecutive. The
parallel range counts rows of results.

Maxima whose places are asked for have a kernel of their own: results and places without gaps, windows one by one. Its arguments:
the same numbers; how far places on neighbouring planes, rows and columns are apart in the order they are numbered in; address and
strides of the input (columns, too); addresses of the results and of the places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.kernel.epilogue import Epilogue

PoolKind: TypeAlias = Literal["max", "average", "sum"]

CHUNK: Final = 64  # columns of results worked on at once
POOL_NUMBERS: Final = (
    "batch", "channels", "depth", "height", "width", "planes", "rows", "columns",
    "front", "top", "left", "padded_depth", "padded_height", "padded_width",
)  # fmt: skip


def row_reach(columns: int, step: int, spread: int) -> int:
    """Columns of the input that a chunk of windows needs."""
    return (CHUNK - 1) * step + (columns - 1) * spread + 1


@dataclass(frozen=True)
class PoolKernel:
    """What decides the code."""

    kind: PoolKind
    source: str  # type of the input
    type: str  # that it is combined in
    # Of planes, rows and columns:
    kernel: tuple[int, int, int]
    step: tuple[int, int, int]  # from one window to the next
    spread: tuple[int, int, int]  # from one place of a window to the next
    padded: bool  # average: padding counts
    whole: bool  # average: all places of all windows count
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        fields = (self.kind, self.source, self.type, self.kernel, self.step, self.spread, self.padded, self.whole)
        return f"pool|{'|'.join(map(str, fields))}|{self.epilogue.key}"

    @property
    def reach(self) -> int:
        """Columns of the input that a chunk of results needs."""
        return row_reach(self.kernel[2], self.step[2], self.spread[2])

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return len(POOL_NUMBERS) + 5 + 6 * len(self.epilogue.operands)


@dataclass(frozen=True)
class MaxPlacesKernel:
    """What decides the code of maxima with their places."""

    source: str
    type: str
    kernel: tuple[int, int, int]
    step: tuple[int, int, int]
    spread: tuple[int, int, int]

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"maxplaces|{self.source}|{self.type}|{self.kernel}|{self.step}|{self.spread}"

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return len(POOL_NUMBERS) + 3 + 6 + 2
