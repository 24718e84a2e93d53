"""Depthwise convolutions of bytes, channels last: every channel is summed over a window of its own, with an epilogue.

Windows are summed a quad at a time, as products of bytes are (`kernel.matmul.int8`), where the machine adds up four products in a
lane and loads parts of vectors. A quad is a column of four rows of the image:

    line q       [pixel][channel][4]: rows 4q to 4q + 3 of those that the windows see, element by element beside each other
    sum[j]   :=  sum over lines q and columns x of the window: line[q][pixel + x] * weights[j, q, x]

Lines lie in memory of the worker. Those of a few rows of results are the same, with weights that are 0 for the rows that a result
does not see: so two rows of results of a 3 x 3 window share one line, four of a 5 x 5 window two. The borders are put into lines
as the zero point; the image is read where it lies.

Weights are distances to their zero points. Where a byte does not hold all of them, each is the sum of several (`parts`).

    weights      [vector of channels][part, j, q, x that are not 0][lane][4] i8

The parallel range counts blocks of channels of groups of rows of results of images.
"""

from __future__ import annotations

from typing import Final

from sardonyx.forks import cached_property
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.matmul.int8 import QUAD, Byte
from sardonyx.records import dataclass
from sardonyx.target.target import Target

BLOCK: Final = 64  # channels at most whose lines are made together: a vector of bytes
_MOST_ROWS: Final = 4  # of results that share lines


def has_quad_windows(target: Target) -> bool:
    """Whether a machine has what the kernel needs."""
    return target.architecture == "x86_64" and target.has_int8_dot and target.has_masked_accesses and target.lanes * QUAD == BLOCK


@dataclass(frozen=True)
class Taps:
    """How the windows of a kernel lie over quads of rows."""

    rows: int  # of the window
    columns: int
    row_stride: int
    row_dilation: int
    parts: int

    @property
    def lines(self) -> int:
        """How many quads of rows the windows see."""
        return -(-self.rows // QUAD)

    @property
    def together(self) -> int:
        """How many rows of results share lines."""
        if self.row_dilation != 1:
            return 1
        return min((self.lines * QUAD - self.rows) // self.row_stride + 1, _MOST_ROWS)

    @property
    def seen(self) -> int:
        """Rows of the image, `row_dilation` apart, that these rows of results see."""
        return (self.together - 1) * self.row_stride + self.rows

    def first_tap(self, result: int, line: int) -> int:
        """Which tap of a column of the window stands first in a line, for one of the rows of results; it may not exist."""
        return line * QUAD - result * self.row_stride

    @property
    def vectors(self) -> list[tuple[int, int, int, int]]:
        """(part, row of results, line, column) of each vector of weights, in the order in which they lie."""
        return [
            (part, result, line, column)
            for part in range(self.parts)
            for result in range(self.together)
            for line in range(self.lines)
            if -QUAD < self.first_tap(result, line) < self.rows
            for column in range(self.columns)
        ]


@dataclass(frozen=True, kw_only=True)
class QuadWindowKernel:
    """All that decides its code; two equal ones share it."""

    source: Byte
    block: int  # channels
    flat: bool  # pixels of the image lie side by side, and all of their channels are one block
    whole: bool  # blocks are whole vectors
    taps: Taps
    column_stride: int
    column_dilation: int
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        t = self.taps
        return (
            f"quad_windows|{self.source}|{self.block}|{self.flat}|{self.whole}|{t.rows}x{t.columns}|{t.row_stride},{t.row_dilation}"
            f"|{t.parts}|{self.column_stride},{self.column_dilation}|{self.epilogue.key}"
        )

    @property
    def arguments(self) -> Arguments:
        """What it is called with; the stride of the lines leads from one worker's to the next's."""
        return Arguments(
            numbers("size", 2),  # rows and columns of the image
            number("channels"),
            numbers("before", 2),  # rows and columns of the border in front
            numbers("results", 2),  # rows and columns
            number("line"),  # elements of a line: quads
            tensor("image", 3),  # strides: image, row, pixel
            address("zero"),  # the image's zero point
            address("weights"),
            tensor("lines", 1),
            tensors("operands", len(self.epilogue.operands), 4),  # strides: image, row, pixel, channel
        )
