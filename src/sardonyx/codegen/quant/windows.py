"""Depthwise convolutions of bytes -> LLVM: quads of rows in lines, then sums of products of quads, pixel by pixel.

fill the borders of the lines with the zero point
for unit in begin .. end:                       (image, group of rows, block of channels)
  for each line: four rows of the image, interleaved byte by byte
  for each vector of channels, for each pixel: sums of all rows of results of the group, and their epilogues
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter, Sums
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.quant.integer_dots import dot_bytes
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.matmul.int8 import QUAD, offset_of_a
from sardonyx.kernel.quant.windows import QuadWindowKernel
from sardonyx.target.target import Target

_LANE: Final = 4  # words of 128 bits, within which instructions interleave
_KEPT: Final = 18  # vectors of weights that stay in registers
_SHORT: Final = 20  # operations up to which an epilogue is written out for two pixels
_CHAINS: Final = 4  # sums in flight: two pixels at a time, if a pixel has fewer


def emit_quad_windows(kernel: QuadWindowKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a depthwise convolution."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _QuadWindowEmitter(kernel, function, target).emit()
    return function


class _QuadWindowEmitter:
    def __init__(self, kernel: QuadWindowKernel, function: FunctionBuilder, target: Target) -> None:
        self.k, self.f, self.target = kernel, function, target
        self.taps = kernel.taps
        self.lanes = target.lanes
        self.width = self.lanes * QUAD  # bytes of a vector
        self.e = VectorEmitter(function, self.lanes, target)
        self.bytes = f"<{self.width} x i8>"
        a = Loaded(function, kernel.arguments)
        (self.rows, self.columns), (self.before, self.left) = a.several("size"), a.several("before")
        (self.out_rows, self.out_columns), self.channels, self.line = a.several("results"), a["channels"], a["line"]
        self.image, (self.image_stride, self.row_stride, self.pixel_stride) = a.tensor("image")
        lines, (part,) = a.tensor("lines")
        self.lines = function.own_part(lines, "i32", part)
        self.weights = a["weights"]
        self.operands = [
            (base, dict(zip(("image", "row", "pixel", "channel"), strides))) for base, strides in a.tensors("operands")
        ]
        self.zero = function.let(f"load i8, ptr {a['zero']}, align 1")
        if offset_of_a(kernel.source, target):
            self.zero = function.let(f"xor i8 {self.zero}, -128")
        self.epilogue = EpilogueEmitter(kernel.epilogue, function, self.lanes, target)

    def emit(self) -> None:
        f, together = self.f, self.taps.together
        zeros = self._splat_byte()
        first, used, last = self._border()
        for number in range(self.taps.lines):
            line = self._line(number)
            self._fill(line, "0", f.mul(first, self.k.block), zeros)
            self._fill(line, f.mul(f.add(first, used), self.k.block), f.mul(last, self.k.block), zeros)
        blocks = f.let(f"udiv i64 {f.add(self.channels, self.k.block - 1)}, {self.k.block}", "i")
        groups = f.let(f"udiv i64 {f.add(self.out_rows, together - 1)}, {together}", "i")
        unit = f.loop("%begin", "%end")
        block, rest = (f.let(f"{op} i64 {unit.index}, {blocks}", "i") for op in ("urem", "udiv"))
        group, image = (f.let(f"{op} i64 {rest}, {groups}", "i") for op in ("urem", "udiv"))
        channel, row = f.mul(block, self.k.block), f.mul(group, together)
        count = f.min(f.sub(self.channels, channel), self.k.block)
        source = f.element(self.image, "i8", f.add(f.mul(image, self.image_stride), channel))
        self._interleave(source, row, count, first, used, zeros)
        self._sums(image, row, channel, count)
        f.end(unit)

    def _splat_byte(self) -> str:
        f = self.f
        one = f.let(f"insertelement {self.bytes} poison, i8 {self.zero}, i32 0")
        return f.let(f"shufflevector {self.bytes} {one}, {self.bytes} poison, <{self.width} x i32> zeroinitializer")

    def _border(self) -> tuple[str, str, str]:
        """Pixels of a line before those of the image, of the image, and all."""
        f = self.f
        pixels = f.mul(f.sub(self.out_columns, 1), self.k.column_stride)
        pixels = f.add(pixels, (self.taps.columns - 1) * self.k.column_dilation + 1)
        first = f.min(self.left, pixels)
        used = f.min(self.columns, f.sub(pixels, first))
        empty = f.let(f"icmp eq i64 {self.rows}, 0", "c")
        return first, f.let(f"select i1 {empty}, i64 0, i64 {used}", "i"), pixels

    def _line(self, number: int) -> str:
        return self.f.element(self.lines, "i32", self.f.mul(self.line, number))

    def _fill(self, line: str, begin: str, end: str, zeros: str) -> None:
        f, e = self.f, self.e
        quads = f.let(f"bitcast {self.bytes} {zeros} to {e.type('i32')}")
        loop = f.loop(begin, end, self.lanes)
        e.store(f.element(line, "i32", loop.index), quads, "i32", e.mask_below(f.sub(end, loop.index)))
        f.end(loop)

    # Lines

    def _interleave(self, source: str, row: str, count: str, first: str, used: str, zeros: str) -> None:
        """All lines of a group of rows."""
        f, taps = self.f, self.taps
        top = f.sub(f.mul(row, taps.row_stride), self.before)
        for number in range(taps.lines):
            base = f.add(top, number * QUAD * taps.row_dilation)
            seen = min(taps.seen - number * QUAD, QUAD)
            target = f.element(self._line(number), "i32", f.mul(first, self.k.block))
            rows = [f.add(base, each * taps.row_dilation) for each in range(seen)]
            above = f.let(f"icmp sge i64 {rows[0]}, 0", "c")
            below = f.let(f"icmp slt i64 {rows[-1]}, {self.rows}", "c")
            inside = f.let(f"and i1 {above}, {below}", "c")
            plain, border, after = f.fresh("plain"), f.fresh("border"), f.fresh("after")
            f.branch_if(inside, plain, border)
            f.label(plain)
            pointers = [f.element(source, "i8", f.mul(each, self.row_stride)) for each in rows]
            self._pixels(pointers, None, target, count, used, zeros)
            f.branch(after)
            f.label(border)
            highest = f.sub(self.rows, 1)
            pointers, exists = [], []
            for each in rows:
                exists.append(f.let(f"icmp ult i64 {each}, {self.rows}", "c"))
                nearest = f.let(f"call i64 @llvm.smax.i64(i64 {f.min(each, highest)}, i64 0)", "i")
                pointers.append(f.element(source, "i8", f.mul(nearest, self.row_stride)))
            f.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")
            self._pixels(pointers, exists, target, count, used, zeros)
            f.branch(after)
            f.label(after)

    def _pixels(self, rows: list[str], exists: list[str] | None, target: str, count: str, used: str, zeros: str) -> None:
        """Every pixel of a line, or all of them as one piece."""
        f = self.f
        if self.k.flat:
            self._piece(rows, exists, target, f.mul(used, self.k.block), zeros)
            return
        loop = f.loop(0, used)
        offset = f.mul(loop.index, self.pixel_stride)
        pointers = [f.element(pointer, "i8", offset) for pointer in rows]
        self._piece(pointers, exists, f.element(target, "i32", f.mul(loop.index, self.k.block)), count, zeros)
        f.end(loop)

    def _piece(self, rows: list[str], exists: list[str] | None, target: str, length: str, zeros: str) -> None:
        f = self.f
        whole = f.let(f"and i64 {length}, {-self.width}", "i")
        loop = f.loop(0, whole, self.width)
        loaded = [self._load(f.element(row, "i8", loop.index), None) for row in rows]
        self._store(self._quads(loaded, exists, zeros), f.element(target, "i32", loop.index), None)
        f.end(loop)
        some, after = f.fresh("some"), f.fresh("after")
        rest = f.sub(length, whole)
        f.branch_if(f.let(f"icmp ne i64 {rest}, 0", "c"), some, after)
        f.label(some)
        bits = f.let(f"sub i{self.width} {f.let(f'shl i{self.width} 1, {rest}')}, 1")
        mask = f.let(f"bitcast i{self.width} {bits} to <{self.width} x i1>", "m")
        loaded = [self._load(f.element(row, "i8", whole), mask) for row in rows]
        self._store(self._quads(loaded, exists, zeros), f.element(target, "i32", whole), bits)
        f.branch(after)
        f.label(after)

    def _load(self, at: str, mask: str | None) -> str:
        return VectorEmitter(self.f, self.width).load(at, "u8", mask)

    def _quads(self, rows: list[str], exists: list[str] | None, zeros: str) -> list[str]:
        """Rows of bytes as vectors of quads, in order: words of a row are put where interleaving within 128 bits needs them."""
        f, words = self.f, self.e.type("i32")
        order = ", ".join(f"i32 {index % _LANE * _LANE + index // _LANE}" for index in range(self.lanes))
        placed = []
        for number, loaded in enumerate(rows):
            row = loaded
            if offset_of_a(self.k.source, self.target):
                row = f.let(f"xor {self.bytes} {row}, splat (i8 -128)")
            if exists is not None:
                row = f.let(f"select i1 {exists[number]}, {self.bytes} {row}, {self.bytes} {zeros}")
            value = f.let(f"bitcast {self.bytes} {row} to {words}")
            value = f.let(f"shufflevector {words} {value}, {words} poison, <{self.lanes} x i32> <{order}>")
            placed.append(f.let(f"bitcast {words} {value} to {self.bytes}"))
        placed += [placed[-1]] * (QUAD - len(placed))  # their weights are 0
        made: list[str] = []
        first, second = (self._zipped(placed[at], placed[at + 1], 8) for at in (0, 2))
        for one, other in zip(first, second):
            made += self._zipped(one, other, 16)
        return made

    def _zipped(self, a: str, b: str, bits: int) -> tuple[str, str]:
        """The lower and the upper elements of each 128 bits of two vectors, in turns."""
        f, count, each = self.f, self.width * 8 // bits, 128 // bits
        kind = f"<{count} x i{bits}>"
        a, b = (f.let(f"bitcast {self.bytes} {value} to {kind}") for value in (a, b))
        halves = []
        for half in (0, each // 2):
            order = [
                lane * each + half + index + count * other
                for lane in range(count // each)
                for index in range(each // 2)
                for other in (0, 1)
            ]
            text = ", ".join(f"i32 {index}" for index in order)
            made = f.let(f"shufflevector {kind} {a}, {kind} {b}, <{count} x i32> <{text}>")
            halves.append(f.let(f"bitcast {kind} {made} to {self.bytes}"))
        return halves[0], halves[1]

    def _store(self, quads: list[str], at: str, bits: str | None) -> None:
        f, e = self.f, self.e
        for number, quad in enumerate(quads):
            mask = None
            if bits is not None:
                own = f.let(f"lshr i{self.width} {bits}, {number * self.lanes}")
                few = f.let(f"trunc i{self.width} {own} to i{self.lanes}")
                mask = f.let(f"bitcast i{self.lanes} {few} to <{self.lanes} x i1>", "m")
            value = f.let(f"bitcast {self.bytes} {quad} to {e.type('i32')}")
            e.store(f.element(at, "i32", number * self.lanes), value, "i32", mask)

    # Sums

    def _sums(self, image: str, row: str, channel: str, count: str) -> None:
        f = self.f
        starts: list[list[str]] = []
        for result in range(self.taps.together):
            pointers = []
            for operand, (base, strides) in zip(self.k.epilogue.operands, self.operands):
                offset = f.mul(channel, {"unit": "1", "zero": "0"}.get(operand.inner, strides["channel"]))
                if not operand.same_rows:
                    offset = f.add(offset, f.mul(image, strides["image"]))
                    offset = f.add(offset, f.mul(f.add(row, result), strides["row"]))
                pointers.append(f.element(base, memory_type(operand.type), offset))
            starts.append(pointers)
        vectors = f.let(f"udiv i64 {count}, {self.lanes}", "i")
        weights = f.element(self.weights, "i32", f.mul(channel, len(self.taps.vectors)))
        loop = f.loop(0, vectors)
        self._vector(starts, row, f.mul(loop.index, self.lanes), weights, None)
        f.end(loop)
        if not self.k.whole:
            rest = f.let(f"and i64 {count}, {self.lanes - 1}", "i")
            some, after = f.fresh("some"), f.fresh("after")
            f.branch_if(f.let(f"icmp ne i64 {rest}, 0", "c"), some, after)
            f.label(some)
            self._vector(starts, row, f.mul(vectors, self.lanes), weights, rest)
            f.branch(after)
            f.label(after)

    def _vector(self, starts: list[list[str]], row: str, position: str, weights: str, count: str | None) -> None:
        """A vector of channels of all pixels; with `count` only its first lanes exist."""
        f, e, taps = self.f, self.e, self.taps
        weights = f.element(weights, "i32", f.mul(position, len(taps.vectors)))
        kept = [e.load(f.element(weights, "i32", number * self.lanes), "i32") for number in range(len(taps.vectors))]
        if len(kept) > _KEPT:
            kept = []
        strides = [
            {"unit": "1", "zero": "0"}.get(o.inner, s["channel"]) for o, (_, s) in zip(self.k.epilogue.operands, self.operands)
        ]
        known = self.epilogue.same(starts[0], strides, position, count)
        two = count is None and taps.together < _CHAINS and self.k.epilogue.operations <= _SHORT
        begin = "0"
        for pixels in (2, 1) if two else (1,):
            end = f.let(f"and i64 {self.out_columns}, {-pixels}", "i") if pixels > 1 else self.out_columns
            loop = f.loop(begin, end, pixels)
            sums = self._products(loop.index, position, pixels, weights, kept)
            for result in range(taps.together):
                exists, after = f.fresh("exists"), f.fresh("after")
                if result:
                    f.branch_if(f.let(f"icmp slt i64 {f.add(row, result)}, {self.out_rows}", "c"), exists, after)
                    f.label(exists)
                of_pixels = []
                for pixel in range(pixels):
                    moving = [
                        start
                        if o.same_rows
                        else f.element(start, memory_type(o.type), f.mul(f.add(loop.index, pixel), s["pixel"]))
                        for start, o, (_, s) in zip(starts[result], self.k.epilogue.operands, self.operands)
                    ]
                    of_pixels.append(Sums(sums[result, pixel], moving, position, known))
                self.epilogue.vectors(of_pixels, "i32", strides, count=count)
                if result:
                    f.branch(after)
                    f.label(after)
            f.end(loop)
            begin = end

    def _products(self, x: str, position: str, pixels: int, weights: str, kept: list[str]) -> dict[tuple[int, int], str]:
        """The sums of some pixels, by row of results and pixel."""
        f, e, k = self.f, self.e, self.k
        at = f.add(f.mul(f.mul(x, k.column_stride), k.block), position)
        starts = [f.element(self._line(number), "i32", at) for number in range(self.taps.lines)]
        seen: dict[tuple[int, int], str] = {}
        sums = {(r, p): constant("i32", 0, self.lanes) for r in range(self.taps.together) for p in range(pixels)}
        for number, (_, result, line, column) in enumerate(self.taps.vectors):
            weight = kept[number] if kept else e.load(f.element(weights, "i32", number * self.lanes), "i32")
            for pixel in range(pixels):
                away = pixel * k.column_stride + column * k.column_dilation
                if (line, away) not in seen:
                    seen[line, away] = e.load(f.element(starts[line], "i32", away * k.block), "i32")
                sums[result, pixel] = dot_bytes(e, sums[result, pixel], seen[line, away], weight)
        return sums
