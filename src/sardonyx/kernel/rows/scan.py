"""Running sums and products along one axis.

    target[o..., s, i]  :=  source[o..., 0, i] + ... + source[o..., s, i]      exclusive: without the last term

Steps are taken in order. With `vectors` the axis i is consecutive on both sides and so many vectors of it are worked on together:
from one step to the next memory jumps, and whole cache lines are worth it. With `by_rows` a run is a longer part of that axis,
and a step adds to what the step before has written, which is still near: memory is read and written in order.

The parallel range counts runs: these parts or vectors of i, else single elements of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, number, numbers, tensor
from sardonyx.records import dataclass
from sardonyx.target.target import Target

_MOST_VECTORS: Final = 4
_ROW_PART: Final = 1024  # elements
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
    by_rows: bool

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        flags = f"{int(self.exclusive)}|{self.outer}|{self.vectors}|{int(self.by_rows)}"
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
    if kernel.by_rows:
        return _ROW_PART
    return kernel.vectors * lanes_of(kernel.compute, target) if kernel.vectors else 1


def lanes_of(compute: str, target: Target) -> int:
    """Elements of a vector."""
    return target.lanes_of(64 if compute in ("f64", "i64", "u64") else 32)


def vectors_of(inner: Dim, compute: str, target: Target) -> int:
    """How many vectors of the inner axis make a run: no more than it has."""
    return min(_MOST_VECTORS, -(-inner // lanes_of(compute, target))) if isinstance(inner, int) and inner > 0 else _MOST_VECTORS


def is_by_rows(inner: Dim, type: str, compute: str, exclusive: bool, target: Target) -> bool:
    """Whether sums of whole rows are written and read again: if rows are long, and written as they are added up."""
    long = isinstance(inner, int) and inner > _MOST_VECTORS * lanes_of(compute, target)
    return long and type == compute and not exclusive


def units(kernel: ScanKernel, outer: Sequence[Dim], inner: Dim, target: Target) -> Dim:
    """How many runs there are."""
    return product([*outer, ceildiv(inner, run_lanes(kernel, target))])
