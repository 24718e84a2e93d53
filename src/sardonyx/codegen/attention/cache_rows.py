"""Rows of caches as numbers -> LLVM.

for block of rows of a head, as far as its batch entry is filled:
  for row:  for vector of columns (two vectors, where pairs lie in bytes):  widened, times scales
"""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.attention.cache_rows import ROWS, CacheRowsKernel
from sardonyx.kernel.expr import BITS, Expr, const, load
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.target.target import Target

_ZERO_OF_PAIRS = 8


def emit_cache_rows(kernel: CacheRowsKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that widens rows."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _RowsEmitter(kernel, function, target).emit()
    return function


class _RowsEmitter:
    def __init__(self, kernel: CacheRowsKernel, function: FunctionBuilder, target: Target) -> None:
        self.k, self.f = kernel, function
        self.a = Loaded(function, kernel.arguments)
        self.lanes = vector_lanes(kernel.type, target)
        self.e = VectorEmitter(function, self.lanes, target)
        self.element = memory_type(kernel.type)
        self.is_paired = kernel.stored == "u4"
        self.stored_type = "u8" if self.is_paired else kernel.stored

    def emit(self) -> None:
        f, a, k = self.f, self.a, self.k
        columns, room = a["columns"], a["room"]
        blocks = f.let(f"udiv i64 {f.add(room, ROWS - 1)}, {ROWS}", "i")
        unit = f.loop("%begin", "%end")
        block, above = (f.let(f"{op} i64 {unit.index}, {blocks}", "i") for op in ("urem", "udiv"))
        head, entry = (f.let(f"{op} i64 {above}, {a['heads']}", "i") for op in ("urem", "udiv"))
        kind = memory_type(k.lengths)
        stored = f.let(f"load {kind}, ptr {f.element(a['lengths'], kind, entry)}, align {BITS[k.lengths] // 8}")
        length = f.add(stored if kind == "i64" else f.let(f"sext {kind} {stored} to i64"), k.more)
        first = f.mul(block, ROWS)
        last = f.min(f.min(f.add(first, ROWS), room), length)
        scales = "" if not k.scales else f.element(a["scales"], "float", "0" if k.scales == "one" else f.mul(head, columns))
        row = f.loop(first, last)
        source, into = (
            f.element(base, element, f.add(f.add(f.mul(entry, by[0]), f.mul(head, by[1])), f.mul(row.index, by[2])))
            for (base, by), element in ((a.tensor("stored"), memory_type(self.stored_type)), (a.tensor("wide"), self.element))
        )
        step = self.lanes * (2 if self.is_paired else 1)
        whole = f.let(f"and i64 {columns}, {-step}", "i")
        for start, stop in (("0", whole), (whole, columns)):
            column = f.loop(start, stop, step)
            left = None if start == "0" else f.sub(columns, column.index)
            self._columns(source, into, scales, column.index, left)
            f.end(column)
        f.end(row)
        f.end(unit)

    def _columns(self, source: str, into: str, scales: str, column: str, left: str | None) -> None:
        """One vector of columns, or the two that a vector of bytes holds; `left` are there, if not all may be."""
        f, k = self.f, self.k
        x, scale = load(0, self.stored_type), load(1, "f32")
        at = column
        here = left
        if self.is_paired:
            at = f.let(f"lshr i64 {column}, 1", "i")
            here = None if left is None else f.let(f"lshr i64 {f.add(left, 1)}, 1", "i")
        mask = None if here is None else self.e.mask_below(here)
        loaded = self.e.load(f.element(source, memory_type(self.stored_type), at), self.stored_type, mask)
        if not self.is_paired:
            self._store(into, scales, column, left, x.cast(k.type), {x: loaded}, scale)
            return
        both = [(x & const(15, "u8")).cast("i32"), (x >> const(4, "u8")).cast("i32")]
        lower, upper = self.e.emit(both, {x: loaded})
        vector = f"<{self.lanes} x i32>"
        nibble = load(0, "i32")
        for half in range(2):
            order = [
                pair + side * self.lanes
                for pair in range(half * self.lanes // 2, (half + 1) * self.lanes // 2)
                for side in (0, 1)
            ]
            indices = ", ".join(f"i32 {one}" for one in order)
            mixed = f.let(f"shufflevector {vector} {lower}, {vector} {upper}, <{self.lanes} x i32> <{indices}>")
            begin = f.add(column, half * self.lanes)
            rest = None if left is None else f.sub(left, half * self.lanes)
            self._store(into, scales, begin, rest, (nibble - _ZERO_OF_PAIRS).cast(k.type), {nibble: mixed}, scale)

    def _store(
        self, into: str, scales: str, column: str, left: str | None, value: Expr, known: dict[Expr, str], scale: Expr
    ) -> None:
        f, k = self.f, self.k
        mask = None if left is None else self.e.mask_below(left)
        if k.scales == "one":
            known = {**known, scale: self.e.load_scalar(scales, "f32")}
        elif k.scales:
            known = {**known, scale: self.e.load(f.element(scales, "float", column), "f32", mask)}
        (made,) = self.e.emit([value * scale.cast(k.type) if k.scales else value], known)
        self.e.store(f.element(into, self.element, column), made, k.type, mask)
