"""Some elements of every row, which are the same ones in all rows: a selection of features.

    target[r, j]  :=  source[r, columns[j]]

Rows are consecutive in memory on both sides and short: one is read as a whole, its elements are put in order in registers, and
the result is written as a whole. The parallel range counts chunks of rows.
"""

from __future__ import annotations

from typing import Final

from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.kernel.arguments import Arguments, number, tensor
from sardonyx.records import dataclass

CHUNK: Final = 512  # rows that make one unit of work
MOST_BYTES: Final = 256  # of a row, read or written: more do not stay in registers


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsKernel:
    """All that decides the code of a selection."""

    type: str
    width: int  # elements of a row that is read
    columns: tuple[int, ...]

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"columns|{self.type}|{self.width}|{','.join(map(str, self.columns))}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(number("rows"), tensor("source", 1), tensor("target", 1))

    def units(self, rows: Dim) -> Dim:
        """Independent pieces of work."""
        return ceildiv(rows, CHUNK)
