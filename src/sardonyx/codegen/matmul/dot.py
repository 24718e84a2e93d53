"""Products of rows with rows -> LLVM: one accumulator a column, folded into a vector of results at the end.

for piece in begin .. end:                (batch, row, columns by division and remainder)
  for each vector of columns:
    for k, one vector at a time; then one masked vector:
      load a; for each column: load b, multiply and add
    fold: lane c of the result is the sum of the lanes of accumulator c
    epilogue
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.matmul import multiply_add
from sardonyx.codegen.matmul.pack import exchange
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import FLOATS
from sardonyx.kernel.matmul.dot import VECTORS, DotKernel
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.target.target import Target

_COLUMNS_A_POINTER: Final = 4


def emit_dot_kernel(kernel: DotKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a product of rows with rows."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _DotEmitter(kernel, function, target).emit()
    return function


def fold(e: VectorEmitter, vectors: list[str], kind: str) -> str:
    """One vector whose lane c is the sum of all lanes of vector c."""
    vectors = list(vectors)
    add = "fadd" if kind in FLOATS else "add"
    distance = e.lanes // 2
    while distance:
        pairs = [exchange(e, vectors[n], vectors[n + distance], distance, kind) for n in range(distance)]
        vectors = [e.f.let(f"{add} {e.type(kind)} {upper}, {lower}") for upper, lower in pairs]
        distance //= 2
    return vectors[0]


class _DotEmitter:
    def __init__(self, kernel: DotKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes(kernel.type, target)
        self.e = VectorEmitter(f, self.lanes)
        a = Loaded(f, kernel.arguments)
        self.batch, self.rows, self.columns, self.depth = a.several("batch"), a["rows"], a["columns"], a["depth"]
        self.a, (*self.a_batch, self.a_row) = a.tensor("a")
        self.b, (*self.b_batch, self.b_column) = a.tensor("b")
        self.operands: list[tuple[str, list[str], str, str]] = []
        for operand, (base, (*batch, row, column)) in zip(kernel.epilogue.operands, a.tensors("operands")):
            self.operands.append((base, batch, row, {"unit": "1", "zero": "0"}.get(operand.inner, column)))
        self.epilogue = EpilogueEmitter(kernel.epilogue, f, self.lanes, target)

    def emit(self) -> None:
        f, width = self.f, self.lanes * VECTORS
        pieces = f.let(f"udiv i64 {f.add(self.columns, width - 1)}, {width}", "i")
        unit = f.loop("%begin", "%end")
        column = f.mul(f.let(f"urem i64 {unit.index}, {pieces}", "i"), width)
        rest = f.let(f"udiv i64 {unit.index}, {pieces}", "i")
        row = rest
        indices: list[str] = []
        if self.batch:
            row = f.let(f"urem i64 {rest}, {self.rows}", "i")
            rest = f.let(f"udiv i64 {rest}, {self.rows}", "i")
            indices = f.indices(rest, self.batch)
        a = f.element(self.a, memory_type(self.k.a_type), f.offset(indices, self.a_batch, f.mul(row, self.a_row)))
        b = f.element(self.b, memory_type(self.k.b_type), f.offset(indices, self.b_batch))
        pointers = [
            f.element(base, memory_type(operand.type), f.offset(indices, batch, f.mul(row, stride)))
            for (base, batch, stride, _), operand in zip(self.operands, self.k.epilogue.operands)
        ]
        stop = f.min(f.add(column, width), self.columns)
        whole = f.add(column, f.let(f"and i64 {f.sub(stop, column)}, {-self.lanes}", "i"))
        known = self.epilogue.uniform(pointers)
        strides = [stride for _, _, _, stride in self.operands]
        for start, end, ragged in ((column, whole, False), (whole, stop, True)):
            block = f.loop(start, end, self.lanes)
            count = f.sub(stop, block.index) if ragged else None
            at = f.element(b, memory_type(self.k.b_type), f.mul(block.index, self.b_column))
            sums = self._sums(a, at, count)
            self.epilogue.vector(sums, self.k.type, pointers, strides, block.index, known=known, count=count)
            f.end(block)
        f.end(unit)

    def _sums(self, a: str, b: str, count: str | None) -> str:
        f, kind = self.f, self.e.type(self.k.type)
        columns = self._columns(b, count)
        zero = constant(self.k.type, 0, self.lanes)
        whole = f.let(f"and i64 {self.depth}, {-self.lanes}", "i")
        loop = f.loop(0, whole, self.lanes, [(kind, zero)] * self.lanes)
        sums = f.end(loop, self._step(a, columns, loop.index, loop.carry, None))
        rest = f.loop(whole, self.depth, self.lanes, [(kind, value) for value in sums])
        mask = self.e.mask_below(f.sub(self.depth, rest.index))
        sums = f.end(rest, self._step(a, columns, rest.index, rest.carry, mask))
        return fold(self.e, sums, self.k.type)

    def _columns(self, b: str, count: str | None) -> list[tuple[str, str]]:
        """For each column a pointer and how many elements on it begins; beyond the matrix its last column is repeated."""
        f, kind = self.f, memory_type(self.k.b_type)
        if count is not None:
            last = f.sub(count, 1)
            return [(f.element(b, kind, f.mul(f.min(lane, last), self.b_column)), "0") for lane in range(self.lanes)]
        steps = [f.mul(self.b_column, number) for number in range(_COLUMNS_A_POINTER)]
        columns = []
        for lane in range(self.lanes):
            if lane % _COLUMNS_A_POINTER == 0:
                pointer = f.element(b, kind, f.mul(self.b_column, lane))
            columns.append((pointer, steps[lane % _COLUMNS_A_POINTER]))
        return columns

    def _step(self, a: str, columns: list[tuple[str, str]], position: str, sums: list[str], mask: str | None) -> list[str]:
        f, k = self.f, self.k
        values = self.e.load(f.element(a, memory_type(k.a_type), position), k.a_type, mask)
        values = convert(self.e, values, k.a_type, k.type)
        made = []
        for (pointer, offset), total in zip(columns, sums):
            at = f.element(f.element(pointer, memory_type(k.b_type), position), memory_type(k.b_type), offset)
            column = convert(self.e, self.e.load(at, k.b_type, mask), k.b_type, k.type)
            made.append(multiply_add(self.e, values, column, total, k.type))
        return made
