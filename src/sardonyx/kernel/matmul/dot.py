"""Products of a few rows with a matrix that lies along its depth: every element of the result is one sum over the depth.

    result[i, j] = sum over k of a[i, k] * b[j, k]          a and b consecutive along k

The vectors run along k; as many columns as a vector has lanes are summed at once and then folded into one vector of results,
which goes through the epilogue. b is read once for each row: right for a few rows, where `kernel.matmul` would have to
transpose b first.

The parallel range counts pieces of VECTORS vectors of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor, tensors
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.records import dataclass
from sardonyx.target.target import Target

VECTORS: Final = 4  # of columns that make one unit of work


@dataclass(frozen=True, kw_only=True)
class DotKernel:
    """All that decides the code of a product of rows with rows."""

    type: str  # of the sums
    a_type: str
    b_type: str
    batch: int  # axes
    epilogue: Epilogue

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"dot|{self.type}|{self.a_type}|{self.b_type}|{self.batch}|{self.epilogue.key}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("rows"),
            number("columns"),
            number("depth"),
            tensor("a", self.batch + 1),  # strides: batch axes, row
            tensor("b", self.batch + 1),  # strides: batch axes, column
            tensors("operands", len(self.epilogue.operands), self.batch + 2),  # strides: batch axes, row, column
        )


def units(kernel: DotKernel, batch: Sequence[Dim], rows: Dim, columns: Dim, target: Target) -> Dim:
    """How many pieces the result has."""
    return product([*batch, rows, ceildiv(columns, VECTORS * vector_lanes(kernel.type, target))])
