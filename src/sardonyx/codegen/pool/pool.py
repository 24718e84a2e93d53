"""Pools over images that lie row by row -> LLVM.

for chunk of columns:
  mean: count the columns of its windows
  for unit in begin .. end:                      (batch entry, channel, plane, row)
    for vector of the input columns it needs:    combine those of all kernel planes and rows inside the image; to the stack
    for vector of results:                       combine taps from the stack; mean; epilogue
"""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, inside
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.pool.long_rows import LongRows
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.pool.pool import PoolKernel
from sardonyx.target.target import Target


def emit_pool(kernel: PoolKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a pool."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _PoolEmitter(kernel, function, target).emit()
    return function


class _PoolEmitter:
    def __init__(self, kernel: PoolKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes(kernel.type, target)
        self.e = VectorEmitter(f, self.lanes)
        self.vector, self.element = self.e.type(kernel.type), memory_type(kernel.type)
        self.a = Loaded(f, kernel.arguments)
        self.x, self.x_strides = self.a.tensor("x")
        self.operands = self.a.tensors("operands")
        self.epilogue = EpilogueEmitter(kernel.epilogue, f, self.lanes, target)
        width = -(-kernel.reach // self.lanes) * self.lanes + self.lanes * kernel.stride[2]
        self.row = f.let(f"alloca [{width} x {self.element}], align 64", "row")
        self.counts = ""
        if kernel.kind == "average" and not kernel.whole:
            self.counts = f.let(f"alloca [{kernel.chunk} x {self.element}], align 64", "counts")
        lowest = -float("inf") if kernel.type in FLOATS else -(2 ** (BITS[kernel.type] - 1)) if kernel.type in SIGNED else 0
        self.long = None if kernel.way == "taps" else LongRows(kernel, self.e, self.row, width, self._join)
        self.nothing = constant(kernel.type, lowest if kernel.kind == "max" else 0, self.lanes)

    def emit(self) -> None:
        f, a, k = self.f, self.a, self.k
        chunk = f.loop(0, a["columns"], k.chunk)
        stop = f.min(f.add(chunk.index, k.chunk), a["columns"])
        first = f.sub(f.mul(chunk.index, k.stride[2]), a["left"])
        if self.counts:
            self._count_columns(chunk.index, stop, first)
        units = Counter(f, [a["rows"], a["planes"], a["channels"]])
        row, plane, channel, image = units.indices
        first_plane = f.sub(f.mul(plane, k.stride[0]), a["front"])
        first_row = f.sub(f.mul(row, k.stride[1]), a["top"])
        planes = inside(f, first_plane, str(k.dilation[0]), a["depth"], k.kernel[0])
        rows = inside(f, first_row, str(k.dilation[1]), a["height"], k.kernel[1])
        x = self._at(self.x, memory_type(k.source), self.x_strides, [image, channel, first_plane, first_row])
        pointers = [
            self._at(base, memory_type(operand.type), strides, [image, channel, plane, row])
            for (base, strides), operand in zip(self.operands, k.epilogue.operands)
        ]
        self._combine_rows(x, first, f.sub(stop, chunk.index), planes, rows)
        down = self._down(first_plane, first_row, planes, rows) if k.kind == "average" else ""
        self._combine_columns(pointers, chunk.index, stop, down)
        units.end()
        f.end(chunk)

    def _at(self, base: str, kind: str, strides: list[str], indices: list[str]) -> str:
        offset = "0"
        for index, stride in zip(indices, strides):
            offset = self.f.add(offset, self.f.mul(index, stride))
        return self.f.element(base, kind, offset)

    def _down(self, first_plane: str, first_row: str, planes: tuple[str, str], rows: tuple[str, str]) -> str:
        """How many kernel planes times rows count in a mean, in every lane; with known columns, how many positions."""
        f, a, k = self.f, self.a, self.k
        if k.whole:
            return constant(k.type, k.kernel[0] * k.kernel[1] * k.kernel[2], self.lanes)
        if k.padded:
            planes = inside(f, f.add(first_plane, a["front"]), str(k.dilation[0]), a["padded_depth"], k.kernel[0])
            rows = inside(f, f.add(first_row, a["top"]), str(k.dilation[1]), a["padded_height"], k.kernel[1])
        count = f.mul(f.sub(planes[1], planes[0]), f.sub(rows[1], rows[0]))
        return self.e.splat(f.let(f"sitofp i64 {count} to {self.element}"), self.element)

    def _join(self, total: str, x: str) -> str:
        f, kind = self.f, self.k.type
        if self.k.kind != "max":
            return f.let(f"fadd {self.vector} {total}, {x}")
        if kind in FLOATS:
            larger = self.e.choose(f.let(f"fcmp ogt {self.vector} {x}, {total}"), x, total, kind)
            return self.e.choose(f.let(f"fcmp uno {self.vector} {x}, {x}"), x, larger, kind)
        order = "sgt" if kind in SIGNED else "ugt"
        return self.e.choose(f.let(f"icmp {order} {self.vector} {x}, {total}"), x, total, kind)

    # Rows of the windows

    def _combine_rows(self, x: str, first: str, count: str, planes: tuple[str, str], rows: tuple[str, str]) -> None:
        """The columns that `count` windows from `first` on need, each combined over all rows, on the stack."""
        f, k = self.f, self.k
        all_planes, all_rows = (
            f.let(f"icmp eq i64 {f.sub(high, low)}, {size}", "c") for (low, high), size in zip((planes, rows), k.kernel)
        )
        complete, partial, done = f.fresh("complete"), f.fresh("partial"), f.fresh("stacked")
        f.branch_if(f.let(f"and i1 {all_planes}, {all_rows}", "c"), complete, partial)
        for label, is_complete in ((complete, True), (partial, False)):
            f.label(label)
            needed = f.add(f.mul(f.sub(count, 1), k.stride[2]), (k.kernel[2] - 1) * k.dilation[2] + 1)
            piece = f.loop(0, needed, self.lanes)
            column = f.add(first, piece.index)
            inner, border, combined = f.fresh("inner"), f.fresh("border"), f.fresh("combined")
            begins = f.let(f"icmp sge i64 {column}, 0", "c")
            ends = f.let(f"icmp sle i64 {f.add(column, self.lanes)}, {self.a['width']}", "c")
            f.branch_if(f.let(f"and i1 {begins}, {ends}", "c"), inner, border)
            for name, masked in ((inner, False), (border, True)):
                f.label(name)
                mask = self._inside(self._positions(column), self.a["width"]) if masked else None
                total = self._window(x, column, mask) if is_complete else self._part(x, column, mask, planes, rows)
                self.e.store(f.element(self.row, self.element, piece.index), total, k.type)
                f.branch(combined)
            f.label(combined)
            f.end(piece)
            f.branch(done)
        f.label(done)

    def _window(self, x: str, column: str, mask: str | None) -> str:
        """All planes and rows of a window."""
        f, k = self.f, self.k
        total = ""
        for plane in range(k.kernel[0]):
            for row in range(k.kernel[1]):
                offset = f.add(f.mul(self.x_strides[2], plane * k.dilation[0]), f.mul(self.x_strides[3], row * k.dilation[1]))
                value = self._load(x, f.add(offset, column), mask)
                total = self._join(total, value) if total else value
        return total

    def _part(self, x: str, column: str, mask: str | None, planes: tuple[str, str], rows: tuple[str, str]) -> str:
        """The planes and rows of a window that lie inside the image."""
        f, k = self.f, self.k
        deep = f.loop(*planes, carry=[(self.vector, self.nothing)])
        plane = f.mul(f.mul(deep.index, k.dilation[0]), self.x_strides[2])
        high = f.loop(*rows, carry=[(self.vector, deep.carry[0])])
        offset = f.add(f.add(plane, f.mul(f.mul(high.index, k.dilation[1]), self.x_strides[3])), column)
        (total,) = f.end(deep, f.end(high, [self._join(high.carry[0], self._load(x, offset, mask))]))
        return total

    def _load(self, x: str, offset: str, mask: str | None) -> str:
        k = self.k
        value = self.e.load(self.f.element(x, memory_type(k.source), offset), k.source, mask)
        value = convert(self.e, value, k.source, k.type)
        return value if mask is None else self.e.choose(mask, value, self.nothing, k.type)

    def _positions(self, first: str, step: int = 1) -> str:
        """first, first + step, ... as 32-bit numbers."""
        lanes = ", ".join(f"i32 {lane * step}" for lane in range(self.lanes))
        start = self.e.splat(self.f.let(f"trunc i64 {first} to i32"), "i32")
        return self.f.let(f"add <{self.lanes} x i32> {start}, <{lanes}>")

    def _inside(self, positions: str, size: str) -> str:
        """Which positions lie in 0 .. size."""
        limit = self.e.splat(self.f.let(f"trunc i64 {size} to i32"), "i32")
        return self.f.let(f"icmp ult <{self.lanes} x i32> {positions}, {limit}", "m")

    # Columns of the windows

    def _combine_columns(self, pointers: list[str], start: str, stop: str, down: str) -> None:
        f, k = self.f, self.k
        if self.long is not None:
            self.long.combine(f.sub(stop, start))
        whole = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-self.lanes}", "i"))
        known = self.epilogue.uniform(pointers)
        columns = [strides[4] for _, strides in self.operands]
        for begin, end, ragged in ((start, whole, False), (whole, stop, True)):
            loop = f.loop(begin, end, self.lanes)
            within = f.sub(loop.index, start)
            total = self._taps(f.mul(within, k.stride[2])) if self.long is None else self.long.totals(within)
            if k.kind == "average":
                size = down
                if self.counts:
                    across = self.e.load(f.element(self.counts, self.element, f.sub(loop.index, start)), k.type)
                    size = f.let(f"fmul {self.vector} {across}, {down}")
                total = f.let(f"fdiv {self.vector} {total}, {size}")
            count = f.sub(stop, loop.index) if ragged else None
            self.epilogue.vector(total, k.type, pointers, columns, loop.index, known=dict(known), count=count)
            f.end(loop)

    def _taps(self, position: str) -> str:
        total = self._tap(position)
        for tap in range(1, self.k.kernel[2]):
            total = self._join(total, self._tap(self.f.add(position, tap * self.k.dilation[2])))
        return total

    def _tap(self, position: str) -> str:
        """What the taps of consecutive windows find in the row on the stack."""
        f, stride = self.f, self.k.stride[2]
        at = f.element(self.row, self.element, position)
        if stride == 1:
            return self.e.load(at, self.k.type)
        if stride == 2:
            parts = [self.e.load(f.element(at, self.element, number * self.lanes), self.k.type) for number in range(2)]
            order = ", ".join(f"i32 {2 * lane}" for lane in range(self.lanes))
            return f.let(f"shufflevector {self.vector} {parts[0]}, {self.vector} {parts[1]}, <{self.lanes} x i32> <{order}>")
        return self.e.load_strided(at, str(stride), self.k.type)

    def _count_columns(self, start: str, stop: str, first: str) -> None:
        """How many columns of each window of the chunk count in a mean, on the stack."""
        f, k = self.f, self.k
        numbers = f"<{self.lanes} x i32>"
        shift, size = (self.a["left"], self.a["padded_width"]) if k.padded else ("0", self.a["width"])
        loop = f.loop(0, f.sub(stop, start), self.lanes)
        positions = self._positions(f.add(f.add(first, shift), f.mul(loop.index, k.stride[2])), k.stride[2])
        counts = "zeroinitializer"
        for tap in range(k.kernel[2]):
            seen = self._inside(f.let(f"add {numbers} {positions}, {constant('i32', tap * k.dilation[2], self.lanes)}"), size)
            counts = f.let(f"add {numbers} {counts}, {f.let(f'zext <{self.lanes} x i1> {seen} to {numbers}')}")
        self.e.store(
            f.element(self.counts, self.element, loop.index), f.let(f"sitofp {numbers} {counts} to {self.vector}"), k.type
        )
        f.end(loop)
