"""Selections of the first k -> LLVM: insertion into the sorted result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.rows.insertion import SortedEntries, insert_sorted
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, FLOATS, Expr, load, unary
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.kernel.rows.topk import TopKKernel
from sardonyx.target.target import Target

_VECTORS: Final = 2  # looked at together


class RowPointers(NamedTuple):
    """Where the elements of a row lie, and where its results go, which are strides apart."""

    elements: str
    values: str
    indices: str


class RowSelection:
    """What all selections of rows have in common: their arguments, rows, and the elements that beat one already found."""

    def __init__(self, kernel: TopKKernel | SortKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = function
        self.element = memory_type(kernel.type)
        a = Loaded(function, kernel.arguments)
        self.outer, self.length, self.wanted = a.several("outer"), a["length"], a["wanted"]
        self.sides: list[tuple[str, list[str], str]] = []
        for base, (*strides, along) in (a.tensor("rows"), a.tensor("values"), a.tensor("indices")):
            self.sides.append((base, strides, along))
        self.lanes = _VECTORS * target.lanes_of(max(BITS[kernel.type], 16))
        self._comes_first = _better(kernel)

    def better(self, e: VectorEmitter, value: str, other: str) -> str:
        """Which elements come before others, whatever their positions."""
        (result,) = e.emit([self._comes_first], {load(0, self.k.type): value, load(1, self.k.type): other})
        return result

    def row(self, number: str) -> RowPointers:
        """The row of a unit."""
        f = self.f
        indices = f.indices(number, self.outer)
        offsets = [f.offset(indices, side[1]) for side in self.sides]
        kinds = (self.element, self.element, "i64")
        return RowPointers(*(f.element(side[0], kind, offset) for side, kind, offset in zip(self.sides, kinds, offsets)))

    def value_at(self, row: RowPointers, position: str) -> str:
        return self.f.element(row.values, self.element, self.f.mul(position, self.sides[1][2]))

    def index_at(self, row: RowPointers, position: str) -> str:
        return self.f.element(row.indices, "i64", self.f.mul(position, self.sides[2][2]))

    def which(self, row: RowPointers, start: str, than: str) -> str:
        """The elements of a block that come before another, as bits of an integer."""
        wide = VectorEmitter(self.f, self.lanes)
        block = wide.load(self.f.element(row.elements, self.element, start), self.k.type)
        beaten = self.better(wide, block, self._splat(wide, than))
        return self.f.let(f"bitcast <{self.lanes} x i1> {beaten} to i{self.lanes}")

    def _splat(self, wide: VectorEmitter, value: str) -> str:
        if self.k.type != "bool":
            return wide.splat(value, self.element)
        return wide.splat(value, "i1")


def _better(kernel: TopKKernel | SortKernel) -> Expr:
    """Whether element 0 comes before element 1."""
    kind = "f32" if kernel.type in ("f16", "bf16") else "u8" if kernel.type == "bool" else kernel.type
    mine, other = (load(number, kernel.type).cast(kind) for number in (0, 1))
    if kind not in FLOATS:
        return mine > other if kernel.largest else mine < other
    if kernel.largest:
        return (mine > other) | (unary("isnan", mine) & ~unary("isnan", other))
    return (mine < other) | (unary("isnan", other) & ~unary("isnan", mine))


def emit_topk_kernel(kernel: TopKKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a selection."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    select_by_insertion(RowSelection(kernel, f, target))
    return f


def select_by_insertion(s: RowSelection) -> None:
    """The rows of a call: for wanted elements: insert;  for the others, a block at a time: insert those that beat the last."""
    f, one, kind = s.f, VectorEmitter(s.f, 1), s.k.type
    some, none = f.fresh("some"), f.fresh("none")
    f.branch_if(f.let(f"icmp sgt i64 {s.wanted}, 0", "c"), some, none)
    f.label(some)
    last = f.sub(s.wanted, 1)
    unit = f.loop("%begin", "%end")
    row = s.row(unit.index)

    def offer(index: str) -> None:
        """Put an element among the best, if it is one of them."""
        value = one.load(f.element(row.elements, s.element, index), kind)

        def shift(position: str, above: str, previous: str) -> None:
            one.store(s.value_at(row, position), previous, kind)
            moved = f.let(f"load i64, ptr {s.index_at(row, above)}, align 8")
            f.line(f"store i64 {moved}, ptr {s.index_at(row, position)}, align 8")

        def put(position: str) -> None:
            one.store(s.value_at(row, position), value, kind)
            f.line(f"store i64 {index}, ptr {s.index_at(row, position)}, align 8")

        entries = SortedEntries(
            value=lambda position: one.load(s.value_at(row, position), kind),
            comes_first=lambda other: s.better(one, value, other),
            shift=shift,
            put=put,
        )
        insert_sorted(f, entries, index, last)

    first = f.loop(0, s.wanted)
    offer(first.index)
    f.end(first)
    whole = f.add(s.wanted, f.let(f"and i64 {f.sub(s.length, s.wanted)}, {-s.lanes}", "i"))
    block = f.loop(s.wanted, whole, s.lanes)
    bits = s.which(row, block.index, one.load(s.value_at(row, last), kind))

    def offer_lane(lane: str, _: list[str]) -> list[str]:
        offer(f.add(block.index, lane))
        return []

    for_each_bit(f, bits, s.lanes, offer_lane)
    f.end(block)
    rest_of_row = f.loop(whole, s.length)
    offer(rest_of_row.index)
    f.end(rest_of_row)
    f.end(unit)
    f.branch(none)
    f.label(none)


def for_each_bit(
    f: FunctionBuilder,
    bits: str,
    width: int,
    body: Callable[[str, list[str]], list[str]],
    carry: Sequence[tuple[str, str]] = (),
) -> list[str]:
    """Do something with the number of every bit that is set, from the lowest on; what is carried from one to the next."""
    kind = f"i{width}"
    count = _as_index(f, f.call(kind, f"llvm.ctpop.{kind}", (kind, bits)), width)
    each = f.loop(0, count, 1, [(kind, bits), *carry])
    left, *carried = each.carry
    lowest = f.call(kind, f"llvm.cttz.{kind}", (kind, left), ("i1", "true"))
    following = body(_as_index(f, lowest, width), carried)
    return f.end(each, [f.let(f"and {kind} {left}, {f.let(f'sub {kind} {left}, 1')}"), *following])[1:]


def _as_index(f: FunctionBuilder, value: str, width: int) -> str:
    return value if width == 64 else f.let(f"zext i{width} {value} to i64")
