"""Determinants -> LLVM: rows are subtracted a vector at a time. Rows of the copy begin where vectors do, and end so."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import fma, load
from sardonyx.kernel.matmul.determinant import DeterminantKernel
from sardonyx.target.target import Target

_ROWS_AT_ONCE: Final = 4
_SUM_OF: Final = tuple(load(number, "f64") for number in range(3))


def emit_determinant(kernel: DeterminantKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of the determinants."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    size = a["size"]
    scratch, (part,) = a.tensor("scratch")
    one, wide = VectorEmitter(f, 1), VectorEmitter(f, target.lanes_of(64))
    element = memory_type(kernel.type)
    matrix = f.own_part(scratch, "double", part)
    pitch = f.mul(f.let(f"udiv i64 {f.add(size, wide.lanes - 1)}, {wide.lanes}", "i"), wide.lanes)

    unit = f.loop("%begin", "%end")
    source = f.element(a["source"], element, f.mul(unit.index, f.mul(size, size)))
    each = f.loop(0, size)
    _widen(
        wide,
        kernel,
        f.element(source, element, f.mul(each.index, size)),
        f.element(matrix, "double", f.mul(each.index, pitch)),
        size,
    )
    f.end(each)

    step = f.loop(0, size, 1, [("double", "1.0")])
    column = f.element(matrix, "double", step.index)
    own_row = f.element(matrix, "double", f.mul(step.index, pitch))
    chosen = _pivot(f, column, size, pitch, step.index)
    # Columns on the left are done with: work begins at the vector with the one after this.
    start = f.mul(f.let(f"udiv i64 {step.index}, {wide.lanes}", "i"), wide.lanes)
    _swap(wide, own_row, f.element(matrix, "double", f.mul(chosen, pitch)), start, pitch)
    pivot = f.let(f"load double, ptr {f.element(own_row, 'double', step.index)}, align 8")
    stays = f.let(f"icmp eq i64 {chosen}, {step.index}", "c")
    signed = f.let(f"select i1 {stays}, double {pivot}, double {f.let(f'fneg double {pivot}')}")
    product = f.let(f"fmul double {step.carry[0]}, {signed}")
    _eliminate(wide, matrix, (own_row, pivot, step.index), (start, pitch), size)
    (found,) = f.end(step, [product])
    one.store(f.element(a["target"], element, unit.index), convert(one, found, "f64", kernel.type), kernel.type)
    f.end(unit)
    return f


def _widen(e: VectorEmitter, kernel: DeterminantKernel, source: str, target: str, size: str) -> None:
    """A row as f64, and zeros up to the end of its last vector."""
    f = e.f
    block = f.loop(0, size, e.lanes)
    read = e.load(f.element(source, memory_type(kernel.type), block.index), kernel.type, e.mask_below(f.sub(size, block.index)))
    e.store(f.element(target, "double", block.index), convert(e, read, kernel.type, "f64"), "f64")
    f.end(block)


def _pivot(f: FunctionBuilder, column: str, size: str, pitch: str, first: str) -> str:
    """The row from `first` on with the largest element of a column."""
    f.declarations.add("declare double @llvm.fabs.f64(double)")

    def magnitude(row: str) -> str:
        loaded = f.let(f"load double, ptr {f.element(column, 'double', f.mul(row, pitch))}, align 8")
        return f.let(f"call double @llvm.fabs.f64(double {loaded})")

    search = f.loop(f.add(first, 1), size, 1, [("i64", first), ("double", magnitude(first))])
    found = magnitude(search.index)
    larger = f.let(f"fcmp ogt double {found}, {search.carry[1]}", "c")
    row = f.let(f"select i1 {larger}, i64 {search.index}, i64 {search.carry[0]}")
    largest = f.let(f"select i1 {larger}, double {found}, double {search.carry[1]}")
    chosen, _ = f.end(search, [row, largest])
    return chosen


def _swap(e: VectorEmitter, row: str, other: str, start: str, pitch: str) -> None:
    f = e.f
    swap = f.loop(start, pitch, e.lanes)
    here, there = (f.element(base, "double", swap.index) for base in (row, other))
    mine, theirs = e.load(here, "f64"), e.load(there, "f64")
    e.store(here, theirs, "f64")
    e.store(there, mine, "f64")
    f.end(swap)


def _eliminate(e: VectorEmitter, matrix: str, own: tuple[str, str, str], columns: tuple[str, str], size: str) -> None:
    """Subtract a row from those below it, some at a time, so that their elements in its column vanish."""
    f, (own_row, pivot, first), (start, pitch) = e.f, own, columns
    is_zero = f.let(f"fcmp oeq double {pivot}, 0.0", "c")  # then the whole column is
    done = f.add(first, 1)
    for together in (_ROWS_AT_ONCE, 1):
        edge = f.add(done, f.mul(f.let(f"udiv i64 {f.sub(size, done)}, {together}", "i"), together))
        below = f.loop(done, edge, together)
        rows = [f.element(matrix, "double", f.mul(f.add(below.index, number), pitch)) for number in range(together)]
        leads = [f.let(f"load double, ptr {f.element(row, 'double', first)}, align 8") for row in rows]
        quotients = [f.let(f"fdiv double {lead}, {pivot}") for lead in leads]
        factors = [f.let(f"select i1 {is_zero}, double 0.0, double {f.let(f'fneg double {one}')}") for one in quotients]
        broadcast = [e.splat(factor, "double") for factor in factors]
        block = f.loop(start, pitch, e.lanes)
        taken = e.load(f.element(own_row, "double", block.index), "f64")
        for row, factor in zip(rows, broadcast):
            at = f.element(row, "double", block.index)
            known = dict(zip(_SUM_OF, (factor, taken, e.load(at, "f64"))))
            e.store(at, e.emit([fma(*_SUM_OF)], known)[0], "f64")
        f.end(block)
        f.end(below)
        done = edge
