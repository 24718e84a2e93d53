"""Probabilities of classes out of those of all pairs of them: the iteration of Wu, Lin and Weng, a vector of rows at a time.

A row stops when its error is below libsvm's bound. The parallel range counts vectors of rows.
"""

from __future__ import annotations

from sardonyx.ir.dims import Dim, ceildiv
from sardonyx.kernel.arguments import Arguments, address, number, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

ITERATIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CouplingKernel:
    """Nothing decides its code but the target."""

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return "coupling"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(number("rows"), number("classes"), tensor("pairs", 2), address("probabilities"), tensor("scratch", 1))

    def scratch(self, classes: int, target: Target) -> int:
        """Elements that each worker needs: a matrix, its product with the probabilities, and these."""
        return (classes * classes + 2 * classes) * target.lanes


def units(rows: Dim, target: Target) -> Dim:
    """How many vectors of rows there are."""
    return ceildiv(rows, target.lanes)
