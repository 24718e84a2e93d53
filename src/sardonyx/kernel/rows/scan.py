"""Running sums and products along one axis.

    target[o..., s, i]  :=  source[o..., 0, i] + ... + source[o..., s, i]      exclusive: without the last term

Steps are taken in order. With `vector` the axis i is consecutive on both sides and its elements are worked on together.

The parallel range counts runs: with `vector` a few vectors of i, else single elements of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

Operation: TypeAlias = Literal["add", "mul"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanKernel:
    """All that decides the code of a scan."""

    type: str
    compute: str
    operation: Operation
    exclusive: bool
    outer: int
    vector: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        flags = f"{int(self.exclusive)}|{self.outer}|{int(self.vector)}"
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
    if not kernel.vector:
        return 1
    return target.lanes_of(64 if kernel.compute in ("f64", "i64", "u64") else 32)


def units(kernel: ScanKernel, outer: Sequence[Dim], inner: Dim, target: Target) -> Dim:
    """How many runs there are."""
    return product([*outer, ceildiv(inner, run_lanes(kernel, target))])
