"""Transpositions -> LLVM: squares of vectors are loaded, transposed in registers and stored, block by block."""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type, scalar_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.pack import transpose
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.indexing.transpose import BLOCK_COLUMNS, BLOCK_ROWS, TransposeKernel
from sardonyx.target.target import Target

_APART = 2048  # bytes: half of what a way of the first cache holds
_NARROW = 16  # bytes of a vector up to which interleaving is one instruction


def transposed_square(e: VectorEmitter, rows: list[str], kind: str) -> list[str]:
    """A square of vectors, mirrored at its diagonal."""
    if e.lanes * BITS[kind] // 8 > _NARROW:
        return transpose(e, rows, kind)
    lanes, vector = e.lanes, e.type(kind)
    low = ", ".join(f"i32 {lane // 2 + (lanes if lane % 2 else 0)}" for lane in range(lanes))
    high = ", ".join(f"i32 {lanes // 2 + lane // 2 + (lanes if lane % 2 else 0)}" for lane in range(lanes))
    rounds = lanes.bit_length() - 1
    for _ in range(rounds):  # interleaving row i with row i + half doubles the runs that belong together
        half = lanes // 2
        mixed = []
        for number in range(half):
            pair = f"{vector} {rows[number]}, {vector} {rows[number + half]}"
            mixed.append(e.f.let(f"shufflevector {pair}, <{lanes} x i32> <{low}>"))
            mixed.append(e.f.let(f"shufflevector {pair}, <{lanes} x i32> <{high}>"))
        rows = mixed
    return rows


def _joined(f: FunctionBuilder, parts: list[str], lanes: int, kind: str) -> str:
    """Vectors of so many lanes, a power of two of them, as one."""
    while len(parts) > 1:
        order = ", ".join(f"i32 {lane}" for lane in range(2 * lanes))
        vector = f"<{lanes} x {kind}>"
        pairs = zip(parts[::2], parts[1::2])
        parts = [f.let(f"shufflevector {vector} {one}, {vector} {other}, <{2 * lanes} x i32> <{order}>") for one, other in pairs]
        lanes *= 2
    return parts[0]


def _lies_apart(f: FunctionBuilder, stride: str, bits: int) -> str:
    """Whether lines at this distance meet in the same places of the first cache."""
    rest = f.let(f"and i64 {stride}, {_APART * 8 // bits - 1}", "i")
    return f.let(f"icmp eq i64 {rest}, 0", "c")


def emit_transpose_kernel(kernel: TransposeKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a transposition."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    side = kernel.side
    e = VectorEmitter(f, side)
    element = memory_type(kernel.type)
    a = Loaded(f, kernel.arguments)
    outer, rows, columns = a.several("outer"), a["rows"], a["columns"]
    source, (*source_outer, source_stride) = a.tensor("source")
    result, (*result_outer, result_stride) = a.tensor("target")
    row_blocks = f.let(f"udiv i64 {f.add(rows, BLOCK_ROWS - 1)}, {BLOCK_ROWS}", "i")
    column_blocks = f.let(f"udiv i64 {f.add(columns, BLOCK_COLUMNS - 1)}, {BLOCK_COLUMNS}", "i")
    last_row, last_column = f.sub(rows, side), f.sub(columns, side)

    unit = f.loop("%begin", "%end")
    column_block = f.let(f"urem i64 {unit.index}, {column_blocks}", "i")
    rest = f.let(f"udiv i64 {unit.index}, {column_blocks}", "i")
    row_block = f.let(f"urem i64 {rest}, {row_blocks}", "i")
    rest = f.let(f"udiv i64 {rest}, {row_blocks}", "i")
    indices = f.indices(rest, outer)
    read, written = f.offset(indices, source_outer), f.offset(indices, result_outer)
    from_, to = f.element(source, element, read), f.element(result, element, written)
    first_row, first_column = f.mul(row_block, BLOCK_ROWS), f.mul(column_block, BLOCK_COLUMNS)
    row_stop = f.min(f.add(first_row, BLOCK_ROWS), rows)
    column_stop = f.min(f.add(first_column, BLOCK_COLUMNS), columns)

    def squares(row: str, column: str, count: int) -> None:
        """Transpose some squares that follow each other along the columns; their rows are stored whole."""
        read_at = f.element(from_, element, f.add(f.mul(column, source_stride), row))
        found = []
        for square in range(count):
            numbers = range(square * side, (square + 1) * side)
            loaded = [e.load(f.element(read_at, element, f.mul(source_stride, number)), kernel.type) for number in numbers]
            found.append(transposed_square(e, loaded, kernel.type))
        write_at = f.element(to, element, f.add(f.mul(row, result_stride), column))
        wide = VectorEmitter(f, side * count)
        for number, parts in enumerate(zip(*found)):
            whole = _joined(f, list(parts), side, scalar_type(kernel.type))
            wide.store(f.element(write_at, element, f.mul(result_stride, number)), whole, kernel.type)

    count = max(1, target.lanes_of(BITS[kernel.type]) // side)
    rest_at = first_column
    if count > 1:
        # Lines that are a power of two apart push each other out of the cache. Those of the result must then be stored whole;
        # those of the source are read by as few at a time as can be.
        pieces = f.let(f"udiv i64 {f.sub(column_stop, first_column)}, {side * count}", "i")
        reads_apart, writes_apart = (_lies_apart(f, stride, BITS[kernel.type]) for stride in (source_stride, result_stride))
        is_narrow = f.let(f"and i1 {reads_apart}, {f.let(f'xor i1 {writes_apart}, true')}", "c")
        pieces = f.let(f"select i1 {is_narrow}, i64 0, i64 {pieces}", "i")
        whole = f.add(first_column, f.mul(pieces, side * count))
        across = f.loop(first_column, whole, side * count)
        down = f.loop(first_row, row_stop, side)
        squares(f.min(down.index, last_row), across.index, count)
        f.end(down)
        f.end(across)
        rest_at = whole
    across = f.loop(rest_at, column_stop, side)
    down = f.loop(first_row, row_stop, side)
    squares(f.min(down.index, last_row), f.min(across.index, last_column), 1)
    f.end(down)
    f.end(across)
    f.end(unit)
    return f
