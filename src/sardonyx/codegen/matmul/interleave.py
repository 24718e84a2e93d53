"""Interleavings -> LLVM: a vector of each column, mixed into vectors of rows; rows that fill no vector go one by one."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.indexing.transpose import square
from sardonyx.kernel.matmul.interleave import CHUNK, InterleaveKernel
from sardonyx.target.target import Target


def interleaved(e: VectorEmitter, columns: list[str], kind: str) -> list[str]:
    """The elements of several vectors in turn, as so many vectors."""
    f, lanes, vector = e.f, e.lanes, e.type(kind)
    count = len(columns)
    results = []
    for number in range(count):
        positions = [divmod(number * lanes + lane, count) for lane in range(lanes)]  # (row, column) of each lane
        value = columns[0]
        ready = 0
        for column in range(1, count):
            # Lanes of earlier columns are in place from the second iteration on.
            picks = []
            for lane, (row, wanted) in enumerate(positions):
                mine = lane if ready else row
                picks.append(f"i32 {lanes + row if wanted == column else mine if wanted < column else 'poison'}")
            value = f.let(f"shufflevector {vector} {value}, {vector} {columns[column]}, <{lanes} x i32> <{', '.join(picks)}>")
            ready = column
        results.append(value)
    return results


def emit_interleave_kernel(kernel: InterleaveKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of an interleaving."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    lanes = square(BITS[kernel.type], target)
    e, one = VectorEmitter(f, lanes), VectorEmitter(f, 1)
    element = memory_type(kernel.type)
    a = Loaded(f, kernel.arguments)
    outer, rows = a.several("outer"), a["rows"]
    source, (*source_outer, column_stride) = a.tensor("source")
    result, result_outer = a.tensor("target")
    chunks = f.let(f"udiv i64 {f.add(rows, CHUNK - 1)}, {CHUNK}", "i")
    unit = f.loop("%begin", "%end")
    start = f.mul(f.let(f"urem i64 {unit.index}, {chunks}", "i"), CHUNK)
    stop = f.min(f.add(start, CHUNK), rows)
    rest = f.let(f"udiv i64 {unit.index}, {chunks}", "i")
    indices = f.indices(rest, outer)
    read, written = f.offset(indices, source_outer), f.offset(indices, result_outer)
    columns = [f.element(source, element, f.add(read, f.mul(column_stride, number))) for number in range(kernel.count)]
    to = f.element(result, element, written)
    whole = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-lanes}", "i"))
    block = f.loop(start, whole, lanes)
    loaded = [e.load(f.element(column, element, block.index), kernel.type) for column in columns]
    pointer = f.element(to, element, f.mul(block.index, kernel.count))
    for number, value in enumerate(interleaved(e, loaded, kernel.type)):
        e.store(f.element(pointer, element, number * lanes), value, kernel.type)
    f.end(block)
    row = f.loop(whole, stop)
    pointer = f.element(to, element, f.mul(row.index, kernel.count))
    for number, column in enumerate(columns):
        one.store(f.element(pointer, element, number), one.load(f.element(column, element, row.index), kernel.type), kernel.type)
    f.end(row)
    f.end(unit)
    return f
