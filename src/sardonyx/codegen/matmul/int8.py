"""Products of bytes -> LLVM: the tiles of `codegen.matmul.matmul` over quads, four products in a 32-bit lane.

VNNI           one instruction multiplies and adds up a quad: unsigned bytes of A with signed ones of B
dotprod        the same, with signed bytes on both sides
other x86      pairs of 16 bits, of which two products are exact in 32 (`pmaddwd`): A is widened already, B when it is loaded
elsewhere      four plain products
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.matmul import MatMulEmitter, TileLoop
from sardonyx.codegen.quant.integer_dots import dot_bytes, dot_halfwords
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.matmul.int8 import (
    PAIR,
    QUAD,
    Int8MatMulKernel,
    QuadPackKernel,
    element_depth,
    offset_of_b,
    sign_of_a,
    takes_pairs,
)
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.target.target import Target

_HIGHEST_BITS: Final = -0x7F7F7F80  # 0x80 in every byte of an i32
_ONES: Final = 0x01010101
_SHORT: Final = 20  # operations up to which an epilogue is written out for every tile height


def emit_int8_matmul_kernel(kernel: Int8MatMulKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a product of bytes."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _Int8MatMulEmitter(kernel, function, target).emit()
    return function


def emit_quad_pack_kernel(kernel: QuadPackKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that packs a matrix of bytes."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _QuadPackEmitter(kernel, function, target).emit()
    return function


class QuadProducts:
    """Sums of products of quads, by the best that a machine has."""

    def __init__(self, e: VectorEmitter, target: Target) -> None:
        self.e = e
        self.f = e.f
        self.kind = e.type("i32")
        self._target = target
        self.is_x86 = target.architecture == "x86_64"
        self._sign = sign_of_a(target)

    def add(self, total: str, a: str, b: str) -> str:
        """total + the products of all quads: bytes of A with the sign of `sign_of_a`, signed ones of B."""
        f, kind = self.f, self.kind
        if self.is_x86:
            return dot_bytes(self.e, total, a, b)
        if self._target.has_int8_dot:
            octets = f"<{4 * self.e.lanes} x i8>"
            name = f"llvm.aarch64.neon.sdot.v{self.e.lanes}i32.v{4 * self.e.lanes}i8"
            return f.call(kind, name, (kind, total), (octets, self._cast(a, octets)), (octets, self._cast(b, octets)))
        for byte in range(QUAD):
            left, right = (self._byte(quads, byte, signed) for quads, signed in ((a, self._sign == "i8"), (b, True)))
            total = f.let(f"add {kind} {total}, {f.let(f'mul {kind} {left}, {right}')}")
        return total

    def _byte(self, quads: str, number: int, signed: bool) -> str:
        f, lanes = self.f, self.e.lanes
        high = f.let(f"shl {self.kind} {quads}, {constant('i32', 24 - 8 * number, lanes)}")
        return f.let(f"{'ashr' if signed else 'lshr'} {self.kind} {high}, {constant('i32', 24, lanes)}")

    def _cast(self, value: str, kind: str) -> str:
        return self.f.let(f"bitcast {self.kind} {value} to {kind}")


def flipped(e: VectorEmitter, quads: str) -> str:
    """Quads with the highest bit of every byte flipped."""
    return e.f.let(f"xor {e.type('i32')} {quads}, {constant('i32', _HIGHEST_BITS, e.lanes)}")


class _Int8MatMulEmitter(MatMulEmitter):
    def __init__(self, kernel: Int8MatMulKernel, function: FunctionBuilder, target: Target) -> None:
        self.int8 = kernel
        super().__init__(kernel, function, target)
        self.short = kernel.epilogue.operations <= _SHORT
        self.products = QuadProducts(self.e, target)
        self.pairs = kernel.a_type == "i16"
        self.flips = not self.pairs and kernel.a_type != sign_of_a(target)
        self.elements = function.let(f"udiv i64 {self.depth}, {kernel.element_depth}", "i")
        self.rest = function.let(f"urem i64 {self.depth}, {kernel.element_depth}", "i")

    def take_a(self, a: Loaded) -> None:
        self.a_type = self.int8.a_type
        self.a, strides = a.tensor("a")
        self.segments, self.line = a.several("segments"), a.several("line")
        batch = self.int8.batch
        self.a_batch, self.a_row, self.a_depth = strides[:batch], strides[batch], "1"
        self.segment_strides = strides[batch + 1 : batch + 1 + len(self.segments)]
        self.line_stride = strides[-1]
        self.column = "0"  # where the first row of a tile stands in its line

    def strip_rows(self) -> str:
        f = self.f
        rows = f.let(f"udiv i64 {f.add(self.depth, self.int8.element_depth - 1)}, {self.int8.element_depth}", "i")
        for segments in self.segments:
            rows = f.mul(rows, segments)
        return rows

    def first_row(self, batch: list[str], row: str) -> str:
        if not self.line:
            return super().first_row(batch, row)
        f = self.f
        line = f.let(f"udiv i64 {row}, {self.line[0]}", "i")
        self.column = f.sub(row, f.mul(line, self.line[0]))
        offset = f.add(self.offset_of(batch, self.a_batch, line, self.line_stride), f.mul(self.column, self.a_row))
        return f.element(self.a, memory_type(self.a_type), offset)

    def row_pointers(self, height: int, actual: str, a: str, exact: bool) -> tuple[list[tuple[int, str]], list[str]]:
        if not self.line:
            return super().row_pointers(height, actual, a, exact)
        f = self.f
        jump = f.sub(self.line_stride, f.mul(f.sub(self.line[0], 1), self.a_row))
        starts, pointer, column = [a], a, self.column
        for row in range(1, height):
            following = f.add(column, 1)
            ends = f.let(f"icmp eq i64 {following}, {self.line[0]}", "c")
            column = f.let(f"select i1 {ends}, i64 0, i64 {following}", "i")
            step = f.let(f"select i1 {ends}, i64 {jump}, i64 {self.a_row}", "i")
            if not exact:  # rows beyond the last repeat it
                inside = f.let(f"icmp slt i64 {row}, {actual}", "c")
                step = f.let(f"select i1 {inside}, i64 {step}, i64 0", "i")
            pointer = f.element(pointer, memory_type(self.a_type), step)
            starts.append(pointer)
        return [(row, "0") for row in range(height)], starts

    def accumulate(self, tile: TileLoop, moving: list[str], sums: list[str]) -> list[str]:
        return self._segments(tile, 0, moving, sums)[1]

    def _segments(self, tile: TileLoop, axis: int, moving: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
        """The segments along an axis and those inside it; B lies in their order."""
        if axis == len(self.segments):
            return self._segment(tile, moving, sums)
        f, kind = self.f, self.e.type("i32")
        values = [*(("ptr", pointer) for pointer in moving), *((kind, value) for value in sums)]
        loop = f.loop(0, self.segments[axis], 1, values)
        starts = loop.carry[: len(moving)]
        inside, now = self._segments(tile, axis + 1, starts, loop.carry[len(moving) :])
        kind_of_a, stride = memory_type(self.a_type), self.segment_strides[axis]
        rows = starts[1:-1] if tile.fetches else starts[1:]
        ahead = inside[-1:] if tile.fetches else []
        following = [inside[0], *(f.element(pointer, kind_of_a, stride) for pointer in rows), *ahead]
        ended = f.end(loop, [*following, *now])
        return ended[: len(moving)], ended[len(moving) :]

    def _segment(self, tile: TileLoop, moving: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
        moving, sums = self.walk(tile, self.elements, moving, sums)
        if not self.int8.ragged:
            return moving, sums
        # A loop of one turn, or of none, over what does not fill an element.
        f, kind, size = self.f, self.e.type("i32"), tile.size
        values = [("ptr", moving[0]), *((kind, value) for value in sums[:size])]
        last = f.loop(0, self.rest, self.int8.element_depth, values)
        b_type = memory_type(self.k.b_type)
        weights = [self.load_b(f.element(last.carry[0], b_type, number * self.lanes), None) for number in range(self.k.vectors)]
        now = []
        for row, (pointer, offset) in enumerate(tile.offsets):
            value = self._short_element(f.element(moving[1 + pointer], "i8", offset))
            now += [
                self.multiply(value, weight, last.carry[1 + row * self.k.vectors + number])
                for number, weight in enumerate(weights)
            ]
        ended = f.end(last, [f.element(last.carry[0], b_type, self.strip), *now])
        return [ended[0], *moving[1:]], [*ended[1:], *sums[size:]]

    def _short_element(self, at: str) -> tuple[str, ...]:
        """The last bytes of a row: what B has zeros for may be anything, but nothing is read beyond the row."""
        f = self.f
        if self.pairs:
            one = f.let(f"load i16, ptr {at}, align 1")
            return self._operand(self.e.splat(f.let(f"zext i16 {one} to i32"), "i32"))
        value = ""
        for byte in range(QUAD - 1):
            inside = f.let(f"icmp sgt i64 {self.rest}, {byte}", "c")
            position = f.let(f"select i1 {inside}, i64 {byte}, i64 0", "i")
            one = f.let(f"load i8, ptr {f.element(at, 'i8', position)}, align 1")
            wide = f.let(f"zext i8 {one} to i32")
            placed = f.let(f"shl i32 {wide}, {8 * byte}") if byte else wide
            value = f.let(f"or i32 {value}, {placed}") if value else placed
        return self._operand(self.e.splat(value, "i32"))

    def _operand(self, elements: str) -> tuple[str, ...]:
        return (flipped(self.e, elements) if self.flips else elements,)

    def load_a(self, at: str) -> tuple[str, ...]:
        element = self.f.let(f"load i32, ptr {at}, align 1")
        return self._operand(self.e.splat(element, "i32"))

    def load_b(self, at: str, mask: str | None) -> tuple[str, ...]:
        if not self.pairs:
            return (self.e.load(at, "i32", mask),)
        f, count = self.f, PAIR * self.lanes
        narrow = f.let(f"load <{count} x i8>, ptr {at}, align 1")
        wide = f.let(f"sext <{count} x i8> {narrow} to <{count} x i16>")
        return (f.let(f"bitcast <{count} x i16> {wide} to {self.e.type('i32')}"),)

    def multiply(self, a: tuple[str, ...], b: tuple[str, ...], total: str) -> str:
        if self.pairs:
            return dot_halfwords(self.e, total, a[0], b[0], self.target)
        return self.products.add(total, a[0], b[0])


class _QuadPackEmitter:
    def __init__(self, kernel: QuadPackKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes("i32", target)
        self.e = VectorEmitter(f, self.lanes)
        self.kind = self.e.type("i32")
        self.strip = kernel.vectors * self.lanes
        self.products = QuadProducts(self.e, target)
        self.pairs, self.each = takes_pairs(target), element_depth(target)
        self.element = "i16" if self.pairs else "i32"
        a = Loaded(f, kernel.arguments)
        self.batch, self.columns, self.depth = a.several("batch"), a["columns"], a["depth"]
        self.source, (*self.batch_strides, column_stride, depth_stride) = a.tensor("source")
        self.column_stride = "1" if kernel.order == "columns" else column_stride
        self.depth_stride = "1" if kernel.order == "depth" else depth_stride
        self.target, self.sums = a["target"], a["sums"]

    def emit(self) -> None:
        f = self.f
        strips = f.let(f"udiv i64 {f.add(self.columns, self.strip - 1)}, {self.strip}", "i")
        elements = f.let(f"udiv i64 {f.add(self.depth, self.each - 1)}, {self.each}", "i")
        whole = f.let(f"udiv i64 {self.depth}, {self.each}", "i")
        unit = f.loop("%begin", "%end")
        strip = f.let(f"urem i64 {unit.index}, {strips}", "i")
        rest = f.let(f"udiv i64 {unit.index}, {strips}", "i")
        offset = f.offset(f.indices(rest, self.batch), self.batch_strides)
        target = f.element(self.target, self.element, f.mul(f.mul(unit.index, elements), self.strip))
        sums = f.element(self.sums, "i32", f.mul(unit.index, self.strip))
        for number in range(self.k.vectors):
            column = f.add(f.mul(strip, self.strip), number * self.lanes)
            count = f.sub(self.columns, column)
            mask = self.e.mask_below(count)
            if self.k.order != "columns":  # beyond the matrix its last column is repeated
                column = f.min(column, f.sub(self.columns, 1))
                count = f.sub(self.columns, column)
            source = f.element(self.source, "i8", f.add(offset, f.mul(column, self.column_stride)))
            columns = [source]
            if self.k.order != "columns":
                last = f.sub(count, 1)
                columns = [f.element(source, "i8", f.mul(f.min(lane, last), self.column_stride)) for lane in range(self.lanes)]
            pointer = f.element(target, self.element, number * self.lanes)
            total = constant("i32", 0, self.lanes)
            for begin, end, short in (("0", whole, False), (whole, elements, True)):
                loop = f.loop(begin, end, 1, [(self.kind, total)])
                value = self._elements(columns, f.mul(loop.index, self.each), mask, short)
                self._store(f.element(pointer, self.element, f.mul(loop.index, self.strip)), value)
                (total,) = f.end(loop, [self._sum(loop.carry[0], value)])
            self.e.store(f.element(sums, "i32", number * self.lanes), total, "i32")
        f.end(unit)

    def _store(self, at: str, elements: str) -> None:
        if not self.pairs:
            self.e.store(at, elements, "i32")
            return
        narrow = self.f.let(f"trunc {self.kind} {elements} to <{self.lanes} x i16>")
        self.f.line(f"store <{self.lanes} x i16> {narrow}, ptr {at}, align 1")

    def _sum(self, total: str, elements: str) -> str:
        """total + the bytes of all elements."""
        f = self.f
        if not self.pairs:
            return self.products.add(total, constant("i32", _ONES, self.lanes), elements)
        for number in range(PAIR):
            high = f.let(f"shl {self.kind} {elements}, {constant('i32', 24 - 8 * number, self.lanes)}")
            byte = f.let(f"ashr {self.kind} {high}, {constant('i32', 24, self.lanes)}")
            total = f.let(f"add {self.kind} {total}, {byte}")
        return total

    def _elements(self, columns: list[str], depth: str, mask: str, short: bool) -> str:
        """Rows of a strip as one vector of elements; with `short`, some of the rows are beyond the depth: zeros."""
        f = self.f
        flips = offset_of_b(self.k.source) != 0
        if self.k.order == "depth" and not short:
            value = self._gather(columns, depth, self.element)
            if self.pairs:
                value = f.let(f"zext <{self.lanes} x i16> {value} to {self.kind}")
            if flips:
                value = flipped(self.e, value)
        else:
            value = ""
            for row in range(self.each):
                position = f.add(depth, row)
                inside = ""
                if short:
                    inside = f.let(f"icmp slt i64 {position}, {self.depth}", "c")
                    position = f.let(f"select i1 {inside}, i64 {position}, i64 {depth}", "i")
                offset = f.mul(position, self.depth_stride)
                if self.k.order == "columns":
                    one = self.e.load(f.element(columns[0], "i8", offset), "u8", mask)
                else:
                    one = self._gather(columns, offset, "i8")
                wide = convert(self.e, one, "u8", "u32")
                if flips:
                    wide = f.let(f"xor {self.kind} {wide}, {constant('i32', 0x80, self.lanes)}")
                if short:
                    wide = f.let(f"select i1 {inside}, {self.kind} {wide}, {self.kind} zeroinitializer")
                if row:
                    wide = f.let(f"shl {self.kind} {wide}, {constant('i32', 8 * row, self.lanes)}")
                value = f.let(f"or {self.kind} {value}, {wide}") if value else wide
        # Columns beyond the matrix are zeros, so that their sums are, too.
        return self.e.choose(mask, value, constant("i32", 0, self.lanes), "i32")

    def _gather(self, columns: list[str], offset: str, element: str) -> str:
        """What lies so many bytes down each column."""
        f = self.f
        value = "poison"
        for lane, column in enumerate(columns):
            one = f.let(f"load {element}, ptr {f.element(column, 'i8', offset)}, align 1")
            value = f.let(f"insertelement <{self.lanes} x {element}> {value}, {element} {one}, i32 {lane}")
        return value
