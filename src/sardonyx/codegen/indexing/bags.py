"""Bags of rows -> LLVM.

for bag:
  where it begins and ends
  for elements of a row, some vectors at a time, then one:
    for element of the bag:  sums += row of its index
    target = sums, or sums / elements
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant
from sardonyx.codegen.fault import report
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import Expr, load, maximum
from sardonyx.kernel.indexing.bags import BagKernel
from sardonyx.target.target import Target

_VECTORS: Final = 4  # of a row at once


def emit_bags(kernel: BagKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a reduction of bags."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _BagEmitter(kernel, function, target).emit()
    return function


class _BagEmitter:
    def __init__(self, kernel: BagKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = function
        self.a = Loaded(function, kernel.arguments)
        self.one = VectorEmitter(function, 1)
        self.e = VectorEmitter(function, target.lanes, target)
        self.lanes = target.lanes

    def emit(self) -> None:
        f, width = self.f, self.a["width"]
        wide = f.mul(f.let(f"udiv i64 {width}, {_VECTORS * self.lanes}", "i"), _VECTORS * self.lanes)
        bag = f.loop("%begin", "%end")
        given = [f.let(f"load i64, ptr {f.element(self.a[name], 'i64', bag.index)}, align 8") for name in ("starts", "ends")]
        start, end = (self._bound(bound) for bound in given)
        start = f.min(start, end)  # a bag that ends before it begins has no rows
        equal = f.let(f"icmp eq i64 {given[0]}, {given[1]}", "c")
        target = f.element(self.a["target"], "float", f.mul(bag.index, width))
        for first, last, vectors in (("0", wide, _VECTORS), (wide, width, 1)):
            part = f.loop(first, last, vectors * self.lanes)
            mask = self.e.mask_below(f.sub(width, part.index)) if vectors == 1 else None
            at = [f.add(part.index, number * self.lanes) for number in range(vectors)]
            for value, offset in zip(self._reduced(start, end, equal, at, mask), at):
                self.e.store(f.element(target, "float", offset), value, "f32", mask)
            f.end(part)
        f.end(bag)

    def _bound(self, given: str) -> str:
        """Where a bag begins or ends: counted from the end if it is negative, and inside."""
        f, elements = self.f, self.a["elements"]
        negative = f.let(f"icmp slt i64 {given}, 0", "c")
        counted = f.let(f"select i1 {negative}, i64 {f.add(given, elements)}, i64 {given}", "i")
        below = f.let(f"icmp slt i64 {counted}, 0", "c")
        return f.min(f.let(f"select i1 {below}, i64 0, i64 {counted}", "i"), elements)

    def _reduced(self, start: str, end: str, equal: str, offsets: list[str], mask: str | None) -> list[str]:
        """The result of a bag for some vectors of a row."""
        f, kind = self.f, self.e.type("f32")
        nothing = constant("f32", float("-inf") if self.k.mode == "max" else 0.0, self.lanes)
        element = f.loop(start, end, 1, [(kind, nothing)] * len(offsets))
        if self.k.index:
            results = self._element(element.index, element.carry, offsets, mask)
        else:
            results = self._more(element.index, element.index, element.carry, offsets, mask)
        totals = f.end(element, results)
        if self.k.mode == "mean":
            count = self.e.splat(f.let(f"sitofp i64 {f.sub(end, start)} to float"), "float")
            totals = [f.let(f"fdiv {kind} {total}, {count}") for total in totals]
        if self.k.equal_is_zero:
            zero = constant("f32", 0.0, self.lanes)
            totals = [f.let(f"select i1 {equal}, {kind} {zero}, {kind} {total}") for total in totals]
        return totals

    def _element(self, element: str, before: list[str], offsets: list[str], mask: str | None) -> list[str]:
        """What a bag has with one more element; the same as before if its index is out of range, which is reported."""
        f, rows, kind = self.f, self.a["rows"], self.e.type("f32")
        memory = "i32" if self.k.index == "i32" else "i64"
        found = self.one.load(f.element(self.a["indices"], memory, element), self.k.index)
        if memory == "i32":
            found = f.let(f"sext i32 {found} to i64", "i")
        negative = f.let(f"icmp slt i64 {found}, 0", "c")
        row = f.let(f"select i1 {negative}, i64 {f.add(found, rows)}, i64 {found}", "i")
        good, bad, joined = f.fresh("good"), f.fresh("bad"), f.fresh("joined")
        f.branch_if(f.let(f"icmp ult i64 {row}, {rows}", "c"), good, bad)
        f.label(bad)
        report(f, self.a["record"], self.a["code"], element, found, rows)
        reported = f.block
        f.branch(joined)
        f.label(good)
        after = self._more(element, row, before, offsets, mask)
        added = f.block
        f.branch(joined)
        f.label(joined)
        return [f.let(f"phi {kind} [ {new}, %{added} ], [ {old}, %{reported} ]") for new, old in zip(after, before)]

    def _more(self, element: str, row: str, before: list[str], offsets: list[str], mask: str | None) -> list[str]:
        """What a bag has with one more row."""
        f = self.f
        base = f.element(self.a["table"], "float", f.mul(row, self.a["width"]))
        known: dict[Expr, str] = {}
        value, had = load(0, "f32"), load(1, "f32")
        more: Expr = value
        if self.k.weighted:
            weight = self.one.load(f.element(self.a["weights"], "float", element), "f32")
            more, known = value * load(2, "f32"), {load(2, "f32"): self.e.splat(weight, "float")}
        result = maximum(had, more) if self.k.mode == "max" else had + more
        made = []
        for old, offset in zip(before, offsets):
            loaded = self.e.load(f.element(base, "float", offset), "f32", mask)
            made += self.e.emit([result], {**known, value: loaded, had: old})
        return made
