"""Running sums and products along one axis.

    target[o..., s, i]  :=  source[o..., 0, i] + ... + source[o..., s, i]      exclusive: without the last term

Steps are taken in order. With `vectors` the axis i is consecutive on both sides and so many vectors of it are worked on together:
from one step to the next memory jumps, and whole cache lines are worth it.

The parallel range counts runs: these vectors of i, else single elements of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

_MOST_VECTORS: Final = 4
Operation: TypeAlias = Literal["add", "mul"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKernel:
    """All that decides the code of a scan."""

    type: str
    compute: str
    operation: Operation
    exclusive: bool
    outer: int
    vectors: int

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        flags = f"{int(self.exclusive)}|{self.outer}|{self.vectors}"
        return f"scan|{self.type}|{self.compute}|{self.operation}|{flags}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        strides = self.outer + 2  # outer axes, step, inner
        return Arguments(
            numbers("outer", self.outer), number("steps"), number("inner"), tensor("source", strides), tensor("target", strides)
        )


def run_lanes(kernel: ScanKernel, target: Target) -> int:
    """Elements of the inner axis that make one run."""
    return kernel.vectors * _lanes(kernel.compute, target) if kernel.vectors else 1


def _lanes(compute: str, target: Target) -> int:
    return target.lanes_of(64 if compute in ("f64", "i64", "u64") else 32)


def vectors_of(inner: Dim, compute: str, target: Target) -> int:
    """How many vectors of the inner axis make a run: no more than it has."""
    return min(_MOST_VECTORS, -(-inner // _lanes(compute, target))) if isinstance(inner, int) and inner > 0 else _MOST_VECTORS


def units(kernel: ScanKernel, outer: Sequence[Dim], inner: Dim, target: Target) -> Dim:
    """How many runs there are."""
    return product([*outer, ceildiv(inner, run_lanes(kernel, target))])
