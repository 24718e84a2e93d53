"""A loop kernel: expressions evaluated at every point of an iteration space, with reductions along one axis.

    axes      the sizes come as arguments; the last one is the vector axis
    operands  memory read or written; each has a stride (in elements) for every axis, also arguments
    stores    operand := expression, at every point
    results   operand := expression of reductions, once per point of the axes that are not reduced

Without a reduction the kernel is an elementwise loop over all axes. With `reduce="inner"` the vector axis is reduced: a row is
walked once for every level of reductions that depend on each other, then once for the stores (softmax: max, sum of exp,
division). With `reduce="parts"` the last two axes are reduced: a row is made of parts, between which operands jump (or change,
as the scale of a channel in a group of channels). With `reduce="middle"` the last axis but one is reduced and the vector axis
is kept.

Arguments: the sizes of the axes, then for each operand its address and its strides. The parallel range counts `units`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, numbers, tensors
from sardonyx.kernel.expr import BITS, Expr, canonical, load, walk
from sardonyx.records import dataclass
from sardonyx.target.target import Target

Inner: TypeAlias = Literal["unit", "zero", "any"]
Reduce: TypeAlias = Literal["none", "inner", "parts", "middle"]

CHUNK = 4096  # elements of a one-dimensional kernel that make one unit of work
MIDDLE_VECTORS = 4  # vectors of the kept axis that make one unit of work when the middle axis is reduced


def vector_lanes(kernel: LoopKernel, target: Target) -> int:
    """Elements a vector of this kernel holds.

    The widest type decides: of the operands if it is more than 32 bits, and of all that is computed if it is less.
    """
    widest = max(BITS[operand.type] for operand in kernel.operands)
    if widest < 32:
        widest = max([widest, *(BITS[node.type] for node in kernel.nodes)])
    return target.lanes_of(widest)


def units(kernel: LoopKernel, sizes: Sequence[Dim], target: Target) -> Dim:
    """How many units of work the iteration space has: what the parallel range counts."""
    if kernel.reduce == "middle":
        blocks = ceildiv(sizes[-1], vector_lanes(kernel, target) * MIDDLE_VECTORS)
        return product([*sizes[:-2], blocks])
    if kernel.axes == 1 and kernel.reduce == "none":
        return ceildiv(sizes[0], CHUNK)
    return product(list(sizes[: kernel.row_axes]))


@dataclass(frozen=True, slots=True)
class Operand:
    """Memory a kernel reads or writes. `inner` says what is known of the stride on the vector axis.

    `same_rows`: the stride from row to row (on the axis before the row's one or, if it has parts, two) is known to be 0, so that
    neighbouring rows read the same memory.
    """

    type: str
    inner: Inner
    same_rows: bool = False


@dataclass(frozen=True, kw_only=True)
class LoopKernel:
    """All that decides the code of a loop kernel; two equal ones share it."""

    axes: int
    operands: tuple[Operand, ...]
    stores: tuple[tuple[int, Expr], ...]
    results: tuple[tuple[int, Expr], ...] = ()
    reduce: Reduce = "none"
    # Values kept in an operand's memory by the first walk that computes them, and read from there by the walks after it. One
    # operand may keep one value after another, or be stored to at the end, if no later walk needs what was there before.
    stash: tuple[tuple[int, Expr], ...] = ()

    def __post_init__(self) -> None:
        least = 2 if self.reduce in ("middle", "parts") else 1
        if self.axes < least:
            raise ValueError(f"a kernel with reduce={self.reduce!r} needs {least} axes, has {self.axes}")
        if (self.reduce == "none") != (not self.reductions):
            raise ValueError(f"reduce={self.reduce!r} does not fit {len(self.reductions)} reductions")
        for level in self.levels:
            deviations = [node for node in level if node.param[0] == "squared_deviations"]
            alone = all(
                node.param[0] in ("sum", "squared_deviations") and node.args == deviations[0].args for node in level if deviations
            )
            if deviations and (self.reduce == "middle" or not alone):
                raise ValueError("squared deviations are computed along rows, with nothing else but the sum of the same value")
        if is_overwritten(self.stores, self.results, self.stash):
            raise ValueError("a value that is kept between walks is written over before its last reader")

    @property
    def row_axes(self) -> int:
        """How many axes there are in front of a row."""
        return self.axes - (2 if self.reduce == "parts" else 1)

    @property
    def roots(self) -> list[Expr]:
        """All expressions."""
        return [value for _, value in (*self.stores, *self.results)]

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every node of all expressions once, arguments before the nodes that use them."""
        return tuple(walk(self.roots))

    @cached_property
    def reductions(self) -> tuple[Expr, ...]:
        """The reductions, those others depend on first."""
        return tuple(node for node in self.nodes if node.op == "reduced")

    @cached_property
    def levels(self) -> tuple[tuple[Expr, ...], ...]:
        """Reductions that can be computed in one walk, walk by walk."""
        return _levels(self.reductions)

    @cached_property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        operands = ",".join(f"{operand.type}:{operand.inner}{':same' * operand.same_rows}" for operand in self.operands)
        targets = f"{[to for to, _ in self.stores]}{[to for to, _ in self.results]}{[to for to, _ in self.stash]}"
        text = canonical([*self.roots, *(value for _, value in self.stash)])
        return f"loop|{self.axes}|{self.reduce}|{operands}|{targets}|{text}"

    @cached_property
    def traffic(self) -> list[tuple[frozenset[int], frozenset[int]]]:
        """Walk by walk, and at the end for the results: the operands that are read and those that are written."""
        if self.reduce == "none" and not self.stash:  # one walk that computes everything
            loads = frozenset(node.param for node in self.nodes if node.op == "load")
            return [(loads, frozenset(to for to, _ in self.stores)), (frozenset(), frozenset())]
        found = [(_loaded(each.roots), frozenset(each.written)) for each in walks(self)]
        return [*found, (_loaded(value for _, value in self.results), frozenset())]

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(numbers("sizes", self.axes), tensors("operands", len(self.operands), self.axes))


def surface(roots: Iterable[Expr], kept: Container[Expr] = ()) -> list[Expr]:
    """The nodes one walk computes, arguments before their users: what finished reductions were made of is not among them.

    Nor is what `kept` values were made of.
    """
    done: dict[Expr, None] = {}
    stack = list(roots)
    stack.reverse()
    while stack:
        node = stack[-1]
        missing = []
        if node not in done and node.op != "reduced" and node not in kept:
            missing = [arg for arg in reversed(node.args) if arg not in done]
        if missing:
            stack += missing
            continue
        stack.pop()
        done[node] = None
    return list(done)


def _levels(reductions: Sequence[Expr]) -> tuple[tuple[Expr, ...], ...]:
    """Reductions, those that others depend on first, as they can be computed in one walk each."""
    level: dict[Expr, int] = {}
    for reduction in reductions:
        inner = [level[node] for node in walk(reduction.args) if node.op == "reduced"]
        level[reduction] = max(inner, default=-1) + 1
    count = max(level.values(), default=-1) + 1
    return tuple(tuple(node for node in reductions if level[node] == number) for number in range(count))


def is_overwritten(
    stores: Sequence[tuple[int, Expr]], results: Sequence[tuple[int, Expr]], stash: Sequence[tuple[int, Expr]]
) -> bool:
    """Whether some memory gets another value while a later walk still reads the one that was kept there."""
    if not stash:
        return False
    reductions = [node for node in walk([value for _, value in (*stores, *results)]) if node.op == "reduced"]
    last = [value for _, value in stores]
    memory: dict[Expr, int] = {}
    held: dict[int, Expr] = {}
    for values in [*([node.args[0] for node in level] for level in _levels(reductions)), last]:
        inside = set(surface(values))
        now = [(operand, value) for operand, value in stash if value in inside and value not in memory]
        read = surface([*values, *(value for _, value in now)], memory)
        if any(node in memory and held[memory[node]] != node for node in read):
            return True
        if len({operand for operand, _ in now}) < len(now):
            return True
        for operand, value in now:
            memory[value], held[operand] = operand, value
    return False


def _loaded(roots: Iterable[Expr]) -> frozenset[int]:
    """The operands that are loaded for some expressions."""
    return frozenset(node.param for node in surface(roots) if node.op == "load")


def _read_back(values: Sequence[Expr], there: dict[Expr, Expr]) -> list[Expr]:
    """Expressions with the parts that are in memory read from there."""
    if not there:
        return list(values)
    made: dict[Expr, Expr] = {}
    for node in surface(values):
        if node in there:
            made[node] = there[node]
        elif node.op == "reduced" or not node.args:
            made[node] = node
        else:
            made[node] = Expr(node.op, node.type, tuple(made[arg] for arg in node.args), node.param)
    return [made[value] for value in values]


@dataclass
class Walk:
    """One walk along a reduced axis: reductions to compute, or stores to make, and what to keep for later walks."""

    reductions: tuple[Expr, ...] = ()
    values: list[Expr] = field(default_factory=list)  # of the reductions, or of the stores
    stores: list[int] = field(default_factory=list)
    stash: list[tuple[int, Expr]] = field(default_factory=list)

    @property
    def roots(self) -> list[Expr]:
        """Everything to evaluate."""
        return [*self.values, *(value for _, value in self.stash)]

    @property
    def written(self) -> list[int]:
        """The operands it writes."""
        return [*self.stores, *(operand for operand, _ in self.stash)]


def walks(kernel: LoopKernel) -> list[Walk]:
    """The walks of a kernel: one for every level of reductions, then one for the stores. Stashed values are read back."""
    made: list[Walk] = []
    there: dict[Expr, Expr] = {}
    pending = list(kernel.stash)
    last = Walk((), [value for _, value in kernel.stores], [operand for operand, _ in kernel.stores])
    for found in [*(Walk(level, [node.args[0] for node in level]) for level in kernel.levels), last]:
        inside = set(surface(found.values))
        now = [(operand, value) for operand, value in pending if value in inside]
        pending = [item for item in pending if item not in now]
        kept = _read_back([value for _, value in now], there)
        found.stash = [(operand, value) for (operand, _), value in zip(now, kept)]
        found.values = _read_back(found.values, there)
        there.update({value: load(operand, value.type) for operand, value in now})
        made.append(found)
    return made if last.values else made[:-1]


def may_overwrite(kernel: LoopKernel, source: int, target: int) -> bool:
    """Whether an operand that is read may lie where another is written, both moving alike: nobody reads it afterwards."""
    written = False
    for reads, writes in kernel.traffic[:-1]:
        if written and source in reads:
            return False
        written = written or target in writes
    return source not in kernel.traffic[-1][0]
