"""Determinants of small square matrices: elimination with pivots in float64, a matrix in the scratch memory of its worker.

    target[u]  :=  det(source[u])

The parallel range counts matrices.
"""

from __future__ import annotations

from typing import Final

from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

LARGEST: Final = 256  # rows; for larger matrices a library is faster


def room(size: int, target: Target) -> int:
    """Elements of the scratch memory of a worker: rows are filled up to whole vectors."""
    lanes = target.lanes_of(64)
    return size * -(-size // lanes) * lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminantKernel:
    """The type of the elements decides its code."""

    type: str

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"determinant|{self.type}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with; the stride of the scratch memory leads from one worker's to the next's."""
        return Arguments(number("size"), address("source"), address("target"), tensor("scratch", 1))
