"""Products of a few rows with a matrix that lies row by row -> LLVM: sums on the stack, several rows of B added at a time.

for each piece of consecutive columns of a matrix in begin .. end:
  for k, several rows of B at a time; then one at a time:
    broadcast their elements of A
    for each vector of columns: load sums; for each of these rows: load B, multiply and add; store sums
  epilogue, row by row

Of a B that comes from memory the next rows are prefetched meanwhile; from the last cache it comes as fast without that.
A deep product sums up blocks of k on their own (`codegen.depth_blocks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.depth_blocks import BLOCK
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.matmul import multiply_add
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, FLOATS
from sardonyx.kernel.matmul.gemv import UNIT, GemvKernel
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.target.target import CACHE_LINE, Target

_SUMS: Final = 4096  # of a piece, all rows together: they stay in the first cache
_AT_ONCE: Final = {False: 6, True: 8}  # rows of B, at most; more of them if they are prefetched
_FACTORS: Final = 12  # elements of A that registers hold
_TOGETHER: Final = 2  # vectors of columns


def emit_gemv_kernel(kernel: GemvKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a product of a few rows."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _GemvEmitter(kernel, function, target).emit()
    return function


class _GemvEmitter:
    def __init__(self, kernel: GemvKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes(kernel.type, target)
        self.e = VectorEmitter(f, self.lanes)
        self.element = memory_type(kernel.type)
        self.b_element = memory_type(kernel.b_type)
        self.width = max(_SUMS // kernel.rows // UNIT, 1) * UNIT  # columns of a piece, at most
        # From a row of sums to the next. A page apart, the core would take loads of one for stores to the other (4K aliasing).
        self.between = self.width + UNIT
        self.at_once = min(_AT_ONCE[kernel.fetches], _FACTORS // kernel.rows)
        a = Loaded(f, kernel.arguments)
        self.batch, self.columns, self.depth = a.several("batch"), a["columns"], a["depth"]
        self.a, (*self.a_batch, self.a_row, self.a_depth) = a.tensor("a")
        self.b, (*self.b_batch, self.b_row) = a.tensor("b")
        self.operands: list[tuple[str, list[str], str, str]] = []
        for operand, (base, (*batch, row, column)) in zip(kernel.epilogue.operands, a.tensors("operands")):
            self.operands.append((base, batch, row, {"unit": "1", "zero": "0"}.get(operand.inner, column)))
        self.epilogue = EpilogueEmitter(kernel.epilogue, f, self.lanes, target)
        self.sums = self._sums_on_stack("sums")
        self.held = self._sums_on_stack("held") if kernel.deep else ""

    def _sums_on_stack(self, hint: str) -> str:
        return self.f.let(f"alloca [{self.k.rows * self.between} x {self.element}], align {CACHE_LINE}", hint)

    def emit(self) -> None:
        f = self.f
        pieces = f.let(f"udiv i64 {f.add(self.columns, UNIT - 1)}, {UNIT}", "i")  # a matrix without columns has no units
        last = f.let(f"udiv i64 {f.add('%end', f.sub(pieces, 1))}, {pieces}", "i")
        matrix = f.loop(f.let(f"udiv i64 %begin, {pieces}", "i"), last)
        before = f.mul(matrix.index, pieces)
        first = f.sub("%begin", before)
        below = f.let(f"icmp slt i64 {first}, 0", "c")
        first = f.let(f"select i1 {below}, i64 0, i64 {first}", "i")
        start = f.mul(first, UNIT)
        stop = f.min(f.mul(f.sub("%end", before), UNIT), self.columns)
        indices = f.indices(matrix.index, self.batch)
        a = f.element(self.a, self.element, f.offset(indices, self.a_batch))
        b = f.element(self.b, self.b_element, f.offset(indices, self.b_batch))
        piece = f.loop(start, stop, self.width)
        count = f.min(f.sub(stop, piece.index), self.width)
        self._sum_up(a, f.element(b, self.b_element, piece.index), count)
        for row in range(self.k.rows):
            self._store(row, indices, piece.index, count)
        f.end(piece)
        f.end(matrix)

    # The sums of a piece

    def _sum_up(self, a: str, b: str, count: str) -> None:
        """The sums over the whole depth of the first `count` columns from B on."""
        f = self.f
        if not self.k.deep:
            self._clear(self.sums, count)
            self._walk(a, b, self.depth, count)
            return
        self._clear(self.held, count)
        block = f.loop(0, self.depth, BLOCK, [("ptr", a), ("ptr", b)])
        a, b = block.carry
        length = f.min(f.sub(self.depth, block.index), BLOCK)
        self._clear(self.sums, count)
        self._walk(a, b, length, count)
        self._hold(count)
        a = f.element(a, self.element, f.mul(self.a_depth, BLOCK))
        f.end(block, [a, f.element(b, self.b_element, f.mul(self.b_row, BLOCK))])

    def _clear(self, sums: str, count: str) -> None:
        f = self.f
        for row in range(self.k.rows):
            at = f.element(sums, self.element, row * self.between)
            vector = f.loop(0, count, self.lanes)
            self.e.store(f.element(at, self.element, vector.index), constant(self.k.type, 0, self.lanes), self.k.type)
            f.end(vector)

    def _hold(self, count: str) -> None:
        """Add the sums of a block to what the blocks before have come to."""
        f, kind = self.f, self.e.type(self.k.type)
        add = "fadd" if self.k.type in FLOATS else "add"
        for row in range(self.k.rows):
            vector = f.loop(0, count, self.lanes)
            position = f.add(vector.index, row * self.between)
            held = f.element(self.held, self.element, position)
            both = [self.e.load(at, self.k.type) for at in (held, f.element(self.sums, self.element, position))]
            self.e.store(held, f.let(f"{add} {kind} {both[0]}, {both[1]}"), self.k.type)
            f.end(vector)

    def _walk(self, a: str, b: str, depth: str, count: str) -> None:
        """Add the products along a depth to the sums."""
        f, done = self.f, "0"
        for rows in (self.at_once, 1):
            stop = f.sub(depth, f.let(f"urem i64 {depth}, {rows}", "i")) if rows > 1 else depth
            loop = f.loop(done, stop, rows, [("ptr", a), ("ptr", b)])
            at_a, at_b = loop.carry
            self._add_rows(at_a, at_b, rows, count)
            following = [
                f.element(at_a, self.element, f.mul(self.a_depth, rows)),
                f.element(at_b, self.b_element, f.mul(self.b_row, rows)),
            ]
            (a, b), done = f.end(loop, following), stop

    def _add_rows(self, a: str, b: str, rows: int, count: str) -> None:
        """Multiply consecutive rows of B with their elements of A, and add them to the sums."""
        f, k = self.f, self.k
        factors = []
        for row in range(k.rows):
            at = f.element(a, self.element, f.mul(self.a_row, row))
            factors.append([self.e.load_scalar(f.element(at, self.element, f.mul(self.a_depth, n)), k.type) for n in range(rows)])
        pointers = [f.element(b, self.b_element, f.mul(self.b_row, n)) for n in range(rows)]
        ahead = f.mul(self.b_row, rows)

        def add(position: str, vectors: int, mask: str | None) -> None:
            bytes_ = vectors * self.lanes * BITS[k.b_type] // 8
            starts = [f.element(pointer, self.b_element, position) for pointer in pointers]
            if k.fetches:
                for start in starts:
                    following = f.element(start, self.b_element, ahead)
                    for line in range(0, bytes_, CACHE_LINE):
                        f.fetch_ahead(f.element(following, "i8", line))
            for vector in range(vectors):
                values = [self._load_b(f.element(start, self.b_element, vector * self.lanes), mask) for start in starts]
                for row in range(k.rows):
                    at = f.element(self.sums, self.element, f.add(position, row * self.between + vector * self.lanes))
                    # Summed up on their own before they are added: a chain as long as the depth would round more.
                    kind, floating = self.e.type(k.type), k.type in FLOATS
                    total = f.let(f"{'fmul' if floating else 'mul'} {kind} {factors[row][0]}, {values[0]}")
                    for factor, value in zip(factors[row][1:], values[1:]):
                        total = multiply_add(self.e, factor, value, total, k.type)
                    total = f.let(f"{'fadd' if floating else 'add'} {kind} {self.e.load(at, k.type)}, {total}")
                    self.e.store(at, total, k.type)

        self._vectors(count, add)

    def _load_b(self, pointer: str, mask: str | None) -> str:
        return convert(self.e, self.e.load(pointer, self.k.b_type, mask), self.k.b_type, self.k.type)

    def _vectors(self, count: str, body: Callable[[str, int, str | None], None]) -> None:
        """Some vectors at a time, then one at a time, then what is left of one: `body` gets position, vectors and mask."""
        f, done = self.f, "0"
        for vectors in (_TOGETHER, 1):
            step = vectors * self.lanes
            stop = f.let(f"and i64 {count}, {-step}", "i")
            loop = f.loop(done, stop, step)
            body(loop.index, vectors, None)
            f.end(loop)
            done = stop
        rest = f.loop(done, count, self.lanes)
        body(rest.index, 1, self.e.mask_below(f.sub(count, rest.index)))
        f.end(rest)

    def _store(self, row: int, indices: list[str], column: str, count: str) -> None:
        """The epilogue of a row of the piece."""
        f, k = self.f, self.k
        pointers = [
            f.element(base, memory_type(operand.type), f.add(f.offset(indices, batch), f.mul(stride, row)))
            for (base, batch, stride, _), operand in zip(self.operands, k.epilogue.operands)
        ]
        known = self.epilogue.uniform(pointers)
        strides = [stride for _, _, _, stride in self.operands]
        sums = f.element(self.held or self.sums, self.element, row * self.between)
        whole = f.let(f"and i64 {count}, {-self.lanes}", "i")
        for start, stop, ragged in (("0", whole, False), (whole, count, True)):
            loop = f.loop(start, stop, self.lanes)
            total = self.e.load(f.element(sums, self.element, loop.index), k.type)
            rest = f.sub(count, loop.index) if ragged else None
            self.epilogue.vector(total, k.type, pointers, strides, f.add(column, loop.index), known=known, count=rest)
            f.end(loop)
