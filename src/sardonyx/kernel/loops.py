"""A loop kernel: expressions evaluated at every place of an iteration space, with reductions along one axis.

    axes      the sizes come as arguments; the last one is the vector axis
    operands  memory read or written; each has a stride (in elements) for every axis, also arguments
    stores    operand := expression, at every place
    results   operand := expression of reductions, once per place of the axes that are not reduced

Without a reduction the kernel is an elementwise loop over all axes. With `reduce="inner"` the vector axis is reduced: a row is
walked once for every level of reductions that depend on each other, then once for the stores (softmax: max, sum of exp,
division). With `reduce="middle"` the last axis but one is reduced and the vector axis is kept.

Arguments: the sizes of the axes, then for each operand its address and its strides. The parallel range counts `units`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.expr import Expr, canonical, load, replace, walk

Inner: TypeAlias = Literal["unit", "zero", "any"]
Reduce: TypeAlias = Literal["none", "inner", "middle"]

CHUNK = 4096  # elements of a one-dimensional kernel that make one unit of work
MIDDLE_VECTORS = 4  # vectors of the kept axis that make one unit of work when the middle axis is reduced


def vector_lanes(kernel: LoopKernel, lanes: int) -> int:
    """Elements a vector of this kernel holds on a machine with `lanes` float32 lanes: fewer if wider types take part."""
    wide = any(operand.type in ("f64", "i64", "u64") for operand in kernel.operands)
    return max(lanes // 2, 2) if wide else lanes


def units(kernel: LoopKernel, sizes: Sequence[Dim], lanes: int) -> Dim:
    """How many units of work the iteration space has: what the parallel range counts."""
    if kernel.reduce == "middle":
        blocks = ceildiv(sizes[-1], vector_lanes(kernel, lanes) * MIDDLE_VECTORS)
        return product([*sizes[:-2], blocks])
    if kernel.axes == 1 and kernel.reduce == "none":
        return ceildiv(sizes[0], CHUNK)
    rows = kernel.axes - 1 if kernel.reduce == "inner" else kernel.axes - 2
    return product(list(sizes[:rows]))


@dataclass(frozen=True, slots=True)
class Operand:
    """Memory a kernel reads or writes. `inner` says what is known of the stride on the vector axis."""

    type: str
    inner: Inner


@dataclass(frozen=True)
class LoopKernel:
    """All that decides the code of a loop kernel; two equal ones share it."""

    axes: int
    operands: tuple[Operand, ...]
    stores: tuple[tuple[int, Expr], ...]
    results: tuple[tuple[int, Expr], ...] = ()
    reduce: Reduce = "none"
    stash: tuple[tuple[int, Expr], ...] = ()  # kept in an operand's memory between walks instead of computed again

    def __post_init__(self) -> None:
        least = 2 if self.reduce == "middle" else 1
        if self.axes < least:
            raise ValueError(f"a kernel with reduce={self.reduce!r} needs {least} axes, has {self.axes}")
        if (self.reduce == "none") != (not self.reductions):
            raise ValueError(f"reduce={self.reduce!r} does not fit {len(self.reductions)} reductions")

    @property
    def roots(self) -> list[Expr]:
        """All expressions."""
        return [value for _, value in (*self.stores, *self.results)]

    @cached_property
    def reductions(self) -> tuple[Expr, ...]:
        """The reductions, those others depend on first."""
        return tuple(node for node in walk(self.roots) if node.op == "reduced")

    @cached_property
    def levels(self) -> tuple[tuple[Expr, ...], ...]:
        """Reductions that can be computed in one walk, walk by walk."""
        level: dict[Expr, int] = {}
        for reduction in self.reductions:
            inner = [level[node] for node in walk(reduction.args) if node.op == "reduced"]
            level[reduction] = max(inner, default=-1) + 1
        count = max(level.values(), default=-1) + 1
        return tuple(tuple(node for node in self.reductions if level[node] == number) for number in range(count))

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        operands = ",".join(f"{operand.type}:{operand.inner}" for operand in self.operands)
        places = f"{[to for to, _ in self.stores]}{[to for to, _ in self.results]}{[to for to, _ in self.stash]}"
        text = canonical([*self.roots, *(value for _, value in self.stash)])
        return f"loop|{self.axes}|{self.reduce}|{operands}|{places}|{text}"

    def argument_count(self) -> int:
        """How many entries the argument array has."""
        return self.axes + len(self.operands) * (1 + self.axes)

    def stashed(self, value: Expr) -> Expr:
        """An expression as a later walk computes it: stashed parts are read back."""
        return replace(value, {kept: load(operand, kept.type) for operand, kept in self.stash})
