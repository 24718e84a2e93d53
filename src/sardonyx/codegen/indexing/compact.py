"""Counting and collecting elements that are not zero -> LLVM.

Positions of a chunk are collected on the stack without branches: each position is written, but the next one only stays behind it
if the element is not zero. Coordinates then follow from row to row without divisions.
"""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.indexing.compact import CHUNK, CountKernel, NonzeroIndicesKernel, StartsKernel
from sardonyx.target.target import Target


def _chunk(f: FunctionBuilder, unit: str, elements: str) -> tuple[str, str]:
    first = f.mul(unit, CHUNK)
    return first, f.min(f.add(first, CHUNK), elements)


def _is_set(e: VectorEmitter, pointer: str, kind: str) -> str:
    return convert(e, e.load(pointer, kind), kind, "bool")


def emit_count_kernel(kernel: CountKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a count."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    elements, source, counts = a["elements"], a["source"], a["counts"]
    element = memory_type(kernel.type)
    lanes = target.lanes_of(max(BITS[kernel.type], 16))
    wide = VectorEmitter(f, lanes)
    small, large = f"<{lanes} x i16>", f"<{lanes} x i32>"  # a lane sees no more than a chunk
    unit = f.loop("%begin", "%end")
    first, stop = _chunk(f, unit.index, elements)
    whole = f.add(first, f.let(f"and i64 {f.sub(stop, first)}, {-lanes}", "i"))
    block = f.loop(first, whole, lanes, [(small, "zeroinitializer")])
    found = _is_set(wide, f.element(source, element, block.index), kernel.type)
    more = f.let(f"add {small} {block.carry[0]}, {f.let(f'zext <{lanes} x i1> {found} to {small}')}")
    (lane_sums,) = f.end(block, [more])
    total = f.call("i32", f"llvm.vector.reduce.add.v{lanes}i32", (large, f.let(f"zext {small} {lane_sums} to {large}")))
    rest = f.loop(whole, stop, 1, [("i64", f.let(f"zext i32 {total} to i64"))])
    one = _is_set(VectorEmitter(f, 1), f.element(source, element, rest.index), kernel.type)
    (count,) = f.end(rest, [f.add(rest.carry[0], f.let(f"zext i1 {one} to i64"))])
    f.line(f"store i64 {count}, ptr {f.element(counts, 'i64', unit.index)}, align 8")
    f.end(unit)
    return f


def emit_starts_kernel(kernel: StartsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that adds up counts."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    chunks, counts, starts, total = a["chunks"], a["counts"], a["starts"], a["total"]
    unit = f.loop("%begin", "%end")
    each = f.loop(0, chunks, 1, [("i64", "0")])
    f.line(f"store i64 {each.carry[0]}, ptr {f.element(starts, 'i64', each.index)}, align 8")
    count = f.let(f"load i64, ptr {f.element(counts, 'i64', each.index)}, align 8")
    (found,) = f.end(each, [f.add(each.carry[0], count)])
    for pointer in (total, f.element(starts, "i64", chunks)):
        f.line(f"store i64 {found}, ptr {pointer}, align 8")
    f.end(unit)
    return f


def emit_nonzero_indices_kernel(kernel: NonzeroIndicesKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that writes coordinates."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    sizes, elements, source, starts = a.several("sizes"), a["elements"], a["source"], a["starts"]
    indices, strides = a.tensor("target")
    collected = f.let(f"alloca [{CHUNK} x i64], align 64", "collected")
    unit = f.loop("%begin", "%end")
    first, stop = _chunk(f, unit.index, elements)
    count = _collect(f, kernel.type, source, first, stop, collected)
    start, stop = (
        f.let(f"load i64, ptr {f.element(starts, 'i64', index)}, align 8") for index in (unit.index, f.add(unit.index, 1))
    )
    room = f.sub(stop, start)
    count = f.min(count, room)
    rows = [f.element(indices, "i64", f.mul(strides[0], axis)) for axis in range(kernel.axes)]
    if kernel.axes == 1:
        each = f.loop(0, count)
        position = f.let(f"load i64, ptr {f.element(collected, 'i64', each.index)}, align 8")
        _store(f, rows[0], f.add(start, each.index), strides[1], position)
        f.end(each)
    else:
        _coordinates(f, sizes, collected, count, first, [(row, start, strides[1]) for row in rows])
    missing = f.loop(count, room)
    for row in rows:
        _store(f, row, f.add(start, missing.index), strides[1], "0")
    f.end(missing)
    f.end(unit)
    return f


def _store(f: FunctionBuilder, row: str, column: str, stride: str, value: str) -> None:
    f.line(f"store i64 {value}, ptr {f.element(row, 'i64', f.mul(column, stride))}, align 8")


def _collect(f: FunctionBuilder, kind: str, source: str, first: str, stop: str, collected: str) -> str:
    """Positions from `first` to `stop` whose elements are not zero go to the stack; how many there are."""
    each = f.loop(first, stop, 1, [("i64", "0")])
    f.line(f"store i64 {each.index}, ptr {f.element(collected, 'i64', each.carry[0])}, align 8")
    found = _is_set(VectorEmitter(f, 1), f.element(source, memory_type(kind), each.index), kind)
    (count,) = f.end(each, [f.add(each.carry[0], f.let(f"zext i1 {found} to i64"))])
    return count


def _coordinates(
    f: FunctionBuilder, sizes: list[str], collected: str, count: str, first: str, targets: list[tuple[str, str, str]]
) -> None:
    """Write the coordinates of positions in ascending order: `end` is where the row of the last one ends."""
    length = sizes[-1]
    rest = f.let(f"udiv i64 {first}, {length}", "i")
    end = f.mul(f.add(rest, 1), length)
    outer = f.indices(rest, sizes[:-1]) or [rest]
    each = f.loop(0, count, 1, [("i64", end), *(("i64", index) for index in outer)])
    position = f.let(f"load i64, ptr {f.element(collected, 'i64', each.index)}, align 8")
    head, move, here = f.fresh("head"), f.fresh("move"), f.fresh("here")
    before = f.block
    f.branch(head)
    f.label(head)
    names = [f.fresh("i") for _ in each.carry]
    following = [f.fresh("n") for _ in each.carry]
    for name, initial, later in zip(names, each.carry, following):
        f.line(f"{name} = phi i64 [ {initial}, %{before} ], [ {later}, {move} ]")
    f.branch_if(f.let(f"icmp slt i64 {position}, {names[0]}", "c"), here, move)
    f.label(move)
    f.line(f"{following[0]} = add i64 {names[0]}, {length}")
    carried = "1"
    for axis in range(len(outer) - 1, 0, -1):
        raised = f.add(names[1 + axis], carried)
        full = f.let(f"icmp eq i64 {raised}, {sizes[axis]}", "c")
        f.line(f"{following[1 + axis]} = select i1 {full}, i64 0, i64 {raised}")
        carried = f.let(f"zext i1 {full} to i64")
    f.line(f"{following[1]} = add i64 {names[1]}, {carried}")
    f.branch(head)
    f.label(here)
    column = f.sub(position, f.sub(names[0], length))
    for (row, start, stride), value in zip(targets, [*names[1:], column]):
        _store(f, row, f.add(start, each.index), stride, value)
    f.end(each, names)
