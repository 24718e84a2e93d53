"""Weighted sums of a few elements along one axis: one step of a linear or cubic resize.

    target[o..., j, i]  :=  sum over t of weights[j, t] * source[o..., indices[j, t], i]

A weight of zero takes no part, so that an infinity next door does not become NaN. With `rows` the axis i is consecutive on both
sides and its elements are worked on together; else it has one element.

The parallel range counts points of all outer indices with `rows`, outer indices without.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ir.dims import Dim, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor
from sardonyx.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResampleKernel:
    """All that decides the code of a resampling."""

    source: str
    target: str
    compute: str  # type of the weights and sums
    taps: int
    outer: int
    rows: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"resample|{self.source}|{self.target}|{self.compute}|{self.taps}|{self.outer}|{int(self.rows)}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("outer", self.outer),
            number("points"),
            number("inner"),
            tensor("source", self.outer + 1),  # strides: outer axes, along the axis
            tensor("target", self.outer + 1),
            address("indices"),  # i64
            address("weights"),
        )


def units(kernel: ResampleKernel, outer: Sequence[Dim], points: Dim) -> Dim:
    """How many units of work there are."""
    return product([*outer, points]) if kernel.rows else product(list(outer))
