"""Which elements are not zero: counted by chunks, then written where they belong.

    count    counts[u]  :=  how many elements of chunk u are not zero
    starts   starts[u]  :=  counts[0] + ... + counts[u - 1];    starts[chunks] := total  :=  the sum of all
    indices   target[axis, starts[u] : starts[u + 1]]  :=  where the elements of chunk u that are not zero stand, in order

The results are in row-major order whatever the number of workers: every chunk knows where its own begin. The target's size is
known between the second and the third. The elements are an input, which somebody may change in between: the third writes as many
as were counted, whatever it finds then; what is missing is 0.

The elements lie without gaps. The parallel range counts chunks, for starts it is 1.
"""

from __future__ import annotations

from typing import Final

from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor
from sardonyx.records import dataclass

CHUNK: Final = 1024  # elements; their indices are collected on the stack


@dataclass(frozen=True, slots=True, kw_only=True)
class CountKernel:
    """Counts the elements of each chunk that are not zero."""

    type: str

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"count|{self.type}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(number("elements"), address("source"), address("counts"))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsKernel:
    """Prefix sums of the counts: where the elements of each chunk begin in the result."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "starts"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(number("chunks"), address("counts"), address("starts"), address("total"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NonzeroIndicesKernel:
    """Writes the coordinates of elements that are not zero, one row for each axis."""

    type: str
    axes: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"places|{self.type}|{self.axes}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("sizes", self.axes), number("elements"), address("source"), address("starts"), tensor("target", 2)
        )


def chunks(elements: Dim) -> Dim:
    """How many chunks there are."""
    return ceildiv(elements, CHUNK)
