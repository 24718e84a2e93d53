"""Determinants -> LLVM: rows are subtracted a vector at a time."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.matmul.determinant import DeterminantKernel
from sardonyx.target.target import Target


def emit_determinant(kernel: DeterminantKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of the determinants."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    size = a["size"]
    scratch, (part,) = a.tensor("scratch")
    one, wide = VectorEmitter(f, 1), VectorEmitter(f, target.lanes_of(64))
    element = memory_type(kernel.type)
    matrix = f.own_part(scratch, "double", part)
    count = f.mul(size, size)

    unit = f.loop("%begin", "%end")
    source = f.element(a["source"], element, f.mul(unit.index, count))
    each = f.loop(0, count)
    value = convert(one, one.load(f.element(source, element, each.index), kernel.type), kernel.type, "f64")
    one.store(f.element(matrix, "double", each.index), value, "f64")
    f.end(each)

    step = f.loop(0, size, 1, [("double", "1.0")])
    column = f.element(matrix, "double", step.index)
    own_row = f.element(matrix, "double", f.mul(step.index, size))
    chosen = _pivot(f, column, size, step.index)
    other_row = f.element(matrix, "double", f.mul(chosen, size))
    _swap(f, own_row, other_row, step.index, size)
    pivot = f.let(f"load double, ptr {f.element(own_row, 'double', step.index)}, align 8")
    stays = f.let(f"icmp eq i64 {chosen}, {step.index}", "c")
    signed = f.let(f"select i1 {stays}, double {pivot}, double {f.let(f'fneg double {pivot}')}")
    product = f.let(f"fmul double {step.carry[0]}, {signed}")
    _eliminate(wide, matrix, own_row, pivot, step.index, size)
    (found,) = f.end(step, [product])
    one.store(f.element(a["target"], element, unit.index), convert(one, found, "f64", kernel.type), kernel.type)
    f.end(unit)
    return f


def _pivot(f: FunctionBuilder, column: str, size: str, first: str) -> str:
    """The row from `first` on with the largest element of a column."""
    f.declarations.add("declare double @llvm.fabs.f64(double)")

    def magnitude(row: str) -> str:
        loaded = f.let(f"load double, ptr {f.element(column, 'double', f.mul(row, size))}, align 8")
        return f.let(f"call double @llvm.fabs.f64(double {loaded})")

    search = f.loop(f.add(first, 1), size, 1, [("i64", first), ("double", magnitude(first))])
    found = magnitude(search.index)
    larger = f.let(f"fcmp ogt double {found}, {search.carry[1]}", "c")
    row = f.let(f"select i1 {larger}, i64 {search.index}, i64 {search.carry[0]}")
    largest = f.let(f"select i1 {larger}, double {found}, double {search.carry[1]}")
    chosen, _ = f.end(search, [row, largest])
    return chosen


def _swap(f: FunctionBuilder, row: str, other: str, first: str, size: str) -> None:
    swap = f.loop(first, size)
    here, there = (f.element(base, "double", swap.index) for base in (row, other))
    mine, theirs = (f.let(f"load double, ptr {at}, align 8") for at in (here, there))
    f.line(f"store double {theirs}, ptr {here}, align 8")
    f.line(f"store double {mine}, ptr {there}, align 8")
    f.end(swap)


def _eliminate(e: VectorEmitter, matrix: str, own_row: str, pivot: str, first: str, size: str) -> None:
    """Subtract a row from those below it, so that their elements in its column vanish."""
    f = e.f
    is_zero = f.let(f"fcmp oeq double {pivot}, 0.0", "c")  # then the whole column is
    below = f.loop(f.add(first, 1), size)
    row = f.element(matrix, "double", f.mul(below.index, size))
    lead = f.let(f"load double, ptr {f.element(row, 'double', first)}, align 8")
    factor = f.let(f"select i1 {is_zero}, double 0.0, double {f.let(f'fdiv double {lead}, {pivot}')}")
    factors, vector = e.splat(factor, "double"), e.type("f64")
    block = f.loop(f.add(first, 1), size, e.lanes)
    mask = e.mask_below(f.sub(size, block.index))
    at = f.element(row, "double", block.index)
    own = e.load(f.element(own_row, "double", block.index), "f64", mask)
    left = e.load(at, "f64", mask)
    taken = f.let(f"fmul {vector} {factors}, {own}")
    e.store(at, f.let(f"fsub {vector} {left}, {taken}"), "f64", mask)
    f.end(block)
    f.end(below)
