"""Copies of short rows -> LLVM: a row is loads and stores of vectors or numbers, the last of which overlap."""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.indexing.short_rows import PIECE, ShortRowsKernel
from sardonyx.target.target import Target

_TOGETHER: Final = 8  # loads before the first store
_LARGEST_NUMBER: Final = 8  # bytes; more are a vector


def emit_short_rows_kernel(kernel: ShortRowsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a copy.

    for piece in begin .. end:      (outer axes, piece of the axis of rows)
      for row of the piece:         parts of the row are loaded, then stored
    """
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    sizes = a.several("outer")
    (source, reads), (made, writes) = a.tensor("source"), a.tensor("target")
    rows = sizes[-1]
    pieces = f.let(f"udiv i64 {f.add(rows, PIECE - 1)}, {PIECE}", "i")
    unit = f.loop("%begin", "%end")
    start = f.mul(f.let(f"urem i64 {unit.index}, {pieces}", "i"), PIECE)
    rest = f.let(f"udiv i64 {unit.index}, {pieces}", "i")
    indices = f.indices(rest, sizes[:-1])
    read, written = f.offset(indices, reads), f.offset(indices, writes)
    source, made = f.element(source, "i8", read), f.element(made, "i8", written)
    row = f.loop(start, f.min(f.add(start, PIECE), rows))
    first, into = (f.element(base, "i8", f.mul(row.index, own[-1])) for base, own in ((source, reads), (made, writes)))
    parts = parts_of(kernel.width, target.vector_bits // 8)
    for begin in range(0, len(parts), _TOGETHER):
        loaded = [
            (at, kind, f.let(f"load {kind}, ptr {f.element(first, 'i8', at)}, align 1"))
            for at, kind in ((at, _kind(size)) for at, size in parts[begin : begin + _TOGETHER])
        ]
        for at, kind, value in loaded:
            f.line(f"store {kind} {value}, ptr {f.element(into, 'i8', at)}, align 1")
    f.end(row)
    f.end(unit)
    return f


def parts_of(width: int, most: int) -> list[tuple[int, int]]:
    """Where the parts of a row begin, and their sizes: powers of two of at most so many bytes."""
    size = min(most, 1 << width.bit_length() - 1)
    parts = [(at, size) for at in range(0, width - size + 1, size)]
    return parts if width % size == 0 else [*parts, (width - size, size)]


def _kind(size: int) -> str:
    return f"i{8 * size}" if size <= _LARGEST_NUMBER else f"<{size} x i8>"
