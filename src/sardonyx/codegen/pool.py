"""Pools over images that lie row by row -> LLVM.

for unit in begin .. end:                      (batch entry, channel, plane, row)
  for chunk of the row's columns:
    for vector of the input columns it needs:  combine those of all kernel planes and rows inside the image; to the stack
    for vector of results:                     combine taps from the stack; mean; epilogue
"""

from __future__ import annotations

from sardonyx.codegen.conv_tile import Counter, inside
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import Function
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.target import Target
from sardonyx.codegen.vector import VectorEmitter, constant, convert, memory_type
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED
from sardonyx.kernel.matmul import vector_lanes
from sardonyx.kernel.pool import CHUNK, POOL_NUMBERS, PoolKernel


def emit_pool(kernel: PoolKernel, name: str, target: Target) -> Function:
    """The function of a pool."""
    function = Function(name, KERNEL_PARAMETERS)
    _PoolEmitter(kernel, function, target).emit()
    return function


class _PoolEmitter:
    def __init__(self, kernel: PoolKernel, function: Function, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes(kernel.type, target.lanes)
        self.e = VectorEmitter(f, self.lanes)
        self.vector, self.element = self.e.type(kernel.type), memory_type(kernel.type)
        at = iter(range(kernel.argument_count()))
        self.a = {name: f.argument("%args", next(at)) for name in POOL_NUMBERS}
        self.x = f.argument("%args", next(at), "ptr")
        self.x_moves = [f.argument("%args", next(at)) for _ in range(4)]
        self.operands: list[tuple[str, list[str]]] = []
        for _ in kernel.epilogue.operands:
            base = f.argument("%args", next(at), "ptr")
            self.operands.append((base, [f.argument("%args", next(at)) for _ in range(5)]))
        self.epilogue = EpilogueEmitter(kernel.epilogue, f, self.lanes)
        width = -(-kernel.reach // self.lanes) * self.lanes + self.lanes * max(kernel.step, 1)
        self.row = f.let(f"alloca [{width} x {self.element}], align 64", "row")
        lowest = -float("inf") if kernel.type in FLOATS else -(2 ** (BITS[kernel.type] - 1)) if kernel.type in SIGNED else 0
        self.nothing = constant(kernel.type, lowest if kernel.kind == "max" else 0, self.lanes)

    def emit(self) -> None:
        f, a = self.f, self.a
        units = Counter(f, [a["rows"], a["planes"], a["channels"]])
        row, plane, channel, image = units.indices
        first_plane = f.sub(f.mul(plane, a["plane_step"]), a["front"])
        first_row = f.sub(f.mul(row, a["row_step"]), a["top"])
        planes = inside(f, first_plane, a["plane_spread"], a["depth"], a["kernel_planes"])
        rows = inside(f, first_row, a["row_spread"], a["height"], a["kernel_rows"])
        x = self._at(self.x, memory_type(self.k.source), self.x_moves, [image, channel, first_plane, first_row])
        pointers = [
            self._at(base, memory_type(operand.type), moves, [image, channel, plane, row])
            for (base, moves), operand in zip(self.operands, self.k.epilogue.operands)
        ]
        above = self._windows_above(first_plane, first_row, planes, rows)
        chunk = f.loop(0, a["columns"], CHUNK)
        stop = f.min(f.add(chunk.index, CHUNK), a["columns"])
        first = f.sub(f.mul(chunk.index, self.k.step), a["left"])
        self._combine_rows(x, first, f.sub(stop, chunk.index), planes, rows)
        self._combine_columns(pointers, chunk.index, stop, first, above)
        f.end(chunk)
        units.end()

    def _at(self, base: str, kind: str, moves: list[str], indices: list[str]) -> str:
        offset = "0"
        for index, move in zip(indices, moves):
            offset = self.f.add(offset, self.f.mul(index, move))
        return self.f.element(base, kind, offset)

    def _windows_above(self, first_plane: str, first_row: str, planes: tuple[str, str], rows: tuple[str, str]) -> str:
        """How many kernel planes times rows count in a mean."""
        f, a = self.f, self.a
        if self.k.padded:
            planes = inside(f, f.add(first_plane, a["front"]), a["plane_spread"], a["padded_depth"], a["kernel_planes"])
            rows = inside(f, f.add(first_row, a["top"]), a["row_spread"], a["padded_height"], a["kernel_rows"])
        return f.mul(f.sub(planes[1], planes[0]), f.sub(rows[1], rows[0]))

    def _join(self, total: str, x: str) -> str:
        f, kind = self.f, self.k.type
        if self.k.kind == "average":
            return f.let(f"fadd {self.vector} {total}, {x}")
        if kind in FLOATS:
            larger = self.e.choose(f.let(f"fcmp ogt {self.vector} {x}, {total}"), x, total, kind)
            return self.e.choose(f.let(f"fcmp uno {self.vector} {x}, {x}"), x, larger, kind)
        order = "sgt" if kind in SIGNED else "ugt"
        return self.e.choose(f.let(f"icmp {order} {self.vector} {x}, {total}"), x, total, kind)

    # Rows of the windows

    def _combine_rows(self, x: str, first: str, count: str, planes: tuple[str, str], rows: tuple[str, str]) -> None:
        """The columns that `count` windows from `first` on need, each combined over all rows, on the stack."""
        f, a, k = self.f, self.a, self.k
        needed = f.add(f.mul(f.sub(count, 1), k.step), (k.taps - 1) * k.spread + 1)
        piece = f.loop(0, needed, self.lanes)
        column = f.add(first, piece.index)
        full, border, done = f.fresh("full"), f.fresh("border"), f.fresh("combined")
        begins = f.let(f"icmp sge i64 {column}, 0", "c")
        ends = f.let(f"icmp sle i64 {f.add(column, self.lanes)}, {a['width']}", "c")
        f.branch_if(f.let(f"and i1 {begins}, {ends}", "c"), full, border)
        for label, masked in ((full, False), (border, True)):
            f.label(label)
            mask = self._columns_mask(column) if masked else None
            deep = f.loop(*planes, carry=[(self.vector, self.nothing)])
            plane = f.mul(f.mul(deep.index, a["plane_spread"]), self.x_moves[2])
            high = f.loop(*rows, carry=[(self.vector, deep.carry[0])])
            offset = f.add(f.add(plane, f.mul(f.mul(high.index, a["row_spread"]), self.x_moves[3])), column)
            value = self.e.load(f.element(x, memory_type(k.source), offset), k.source, mask)
            value = convert(self.e, value, k.source, k.type)
            if mask is not None:
                value = self.e.choose(mask, value, self.nothing, k.type)
            (total,) = f.end(deep, f.end(high, [self._join(high.carry[0], value)]))
            self.e.store(f.element(self.row, self.element, piece.index), total, k.type)
            f.branch(done)
        f.label(done)
        f.end(piece)

    def _places(self, first: str, step: int = 1) -> str:
        """first, first + step, ... as 32-bit numbers."""
        lanes = ", ".join(f"i32 {lane * step}" for lane in range(self.lanes))
        start = self.e.splat(self.f.let(f"trunc i64 {first} to i32"), "i32")
        return self.f.let(f"add <{self.lanes} x i32> {start}, <{lanes}>")

    def _inside(self, places: str, size: str) -> str:
        """Which places lie in 0 .. size."""
        limit = self.e.splat(self.f.let(f"trunc i64 {size} to i32"), "i32")
        return self.f.let(f"icmp ult <{self.lanes} x i32> {places}, {limit}", "m")

    def _columns_mask(self, column: str) -> str:
        return self._inside(self._places(column), self.a["width"])

    # Columns of the windows

    def _combine_columns(self, pointers: list[str], start: str, stop: str, first: str, above: str) -> None:
        f = self.f
        whole = f.add(start, f.let(f"and i64 {f.sub(stop, start)}, {-self.lanes}", "i"))
        known = self.epilogue.uniform(pointers)
        moves = [strides[4] for _, strides in self.operands]
        for begin, end, ragged in ((start, whole, False), (whole, stop, True)):
            loop = f.loop(begin, end, self.lanes)
            within = f.mul(f.sub(loop.index, start), self.k.step)
            total = self.nothing
            for tap in range(self.k.taps):
                total = self._join(total, self._tap(f.add(within, tap * self.k.spread)))
            if self.k.kind == "average":
                total = self._mean(total, f.add(first, within), above)
            count = f.sub(stop, loop.index) if ragged else None
            self.epilogue.vector(total, self.k.type, pointers, moves, loop.index, known=dict(known), count=count)
            f.end(loop)

    def _tap(self, position: str) -> str:
        """What the taps of consecutive windows find in the row on the stack."""
        f, step = self.f, self.k.step
        at = f.element(self.row, self.element, position)
        if step == 1:
            return self.e.load(at, self.k.type)
        if step == 2:
            parts = [self.e.load(f.element(at, self.element, number * self.lanes), self.k.type) for number in range(2)]
            order = ", ".join(f"i32 {2 * lane}" for lane in range(self.lanes))
            return f.let(f"shufflevector {self.vector} {parts[0]}, {self.vector} {parts[1]}, <{self.lanes} x i32> <{order}>")
        return self.e.load_strided(at, str(step), self.k.type)

    def _mean(self, total: str, first: str, above: str) -> str:
        f, k = self.f, self.k
        numbers = f"<{self.lanes} x i32>"
        shift, size = (self.a["left"], self.a["padded_width"]) if k.padded else ("0", self.a["width"])
        places = self._places(f.add(first, shift), k.step)
        counts = "zeroinitializer"
        for tap in range(k.taps):
            spread = constant("i32", tap * k.spread, self.lanes)
            seen = self._inside(f.let(f"add {numbers} {places}, {spread}"), size)
            counts = f.let(f"add {numbers} {counts}, {f.let(f'zext <{self.lanes} x i1> {seen} to {numbers}')}")
        across = f.let(f"sitofp {numbers} {counts} to {self.vector}")
        down = self.e.splat(f.let(f"sitofp i64 {above} to {self.element}"), self.element)
        return f.let(f"fdiv {self.vector} {total}, {f.let(f'fmul {self.vector} {across}, {down}')}")
