"""A few rows times a matrix that lies row by row: rows of B are read from one end to the other, several at a time.

    sums[i, j] += a[i, k] * b[k, j] + ... + a[i, k + n - 1] * b[k + n - 1, j]        for a piece of the columns, n rows of B

A tile of `kernel.matmul` reads a strip of every row of B before it reads the next strip. In a large B these pieces of rows lie
far apart, each in a page of its own, and every one is waited for. Here sums wait in the first cache instead, and memory is read
in the order in which the machine prefetches it.

The parallel range counts units of UNIT columns; a worker reads those that follow each other as one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.records import dataclass

UNIT: Final = 64  # columns
MOST_ROWS: Final = 4  # of A: more of them leave room for too few rows of B in registers


@dataclass(frozen=True, kw_only=True)
class GemvKernel:
    """All that decides the code of a product of a few rows with a matrix."""

    type: str  # of A and of the sums
    b_type: str  # of B in memory; converted when loaded
    batch: int  # axes
    rows: int  # of A
    epilogue: Epilogue
    deep: bool = False  # the depth may be long: it is summed up in blocks
    fetches: bool = False  # B comes from memory: its rows are prefetched

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MOST_ROWS:
            raise ValueError(f"{self.rows} rows: expected 1 to {MOST_ROWS}")

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        marks = f"{'|deep' if self.deep else ''}{'|fetches' if self.fetches else ''}"
        return f"gemv|{self.type}|{self.b_type}|{self.batch}|{self.rows}|{self.epilogue.key}{marks}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("columns"),
            number("depth"),
            tensor("a", self.batch + 2),  # strides: batch axes, row, depth
            tensor("b", self.batch + 1),  # strides: batch axes, row
            tensors("operands", len(self.epilogue.operands), self.batch + 2),  # strides: batch axes, row, column
        )


def units(batch: Sequence[Dim], columns: Dim) -> Dim:
    """How many units of columns the result has."""
    return product([*batch, ceildiv(columns, UNIT)])
