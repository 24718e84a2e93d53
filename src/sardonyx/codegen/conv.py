"""Convolution -> LLVM: register tiles of output channels times pixels.

    for unit in begin .. end:              (set of output channels, image, row, chunk of the row)
      for tile of pixels in the chunk:
        acc[v][p] = bias[v]
        for turn, kernel row (only those inside the image), kernel column:
          for element of the run:
            acc[v][p] += w[v] * x[p]       x in every lane
        epilogue(acc)

Tiles that lie inside the image read their pixels at constant distances. At the left and right border each pixel has a pointer
of its own, which leads to a block of zeros where the kernel reaches outside: nothing is copied, and nothing outside is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import Function
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.target import Target
from sardonyx.codegen.vector import memory_type
from sardonyx.kernel.conv import CONV_ARGUMENTS, EPILOGUE_ENTRIES, ConvKernel

HEAVY_TILE = 400  # operations of a tile's epilogue from which on it is a loop over the tile instead of straight code


def emit_conv(kernel: ConvKernel, name: str, target: Target) -> Function:
    """The function of a convolution kernel."""
    function = Function(name, KERNEL_PARAMETERS)
    _ConvEmitter(kernel, function).emit()
    return function


class TileStore:
    """Runs an epilogue on a tile of vectors: straight code, or for long epilogues a loop over a copy of the tile on the stack."""

    def __init__(self, emitter: EpilogueEmitter, function: Function, vectors: int, pixels: int) -> None:
        self.emitter = emitter
        self.f = function
        self.lanes = emitter.e.lanes
        self.heavy = emitter.epilogue.operations * vectors * pixels > HEAVY_TILE
        self._stack = function.let(f"alloca [{vectors * pixels} x <{self.lanes} x float>], align 64") if self.heavy else ""

    def store(
        self, tile: Sequence[Sequence[str]], pointers: Callable[[int], list[str]], steps: list[str], count: str | None
    ) -> None:
        """`tile[v][p]` are the sums; `pointers(v)` the operands at pixel 0 of block v; `steps` how they move from pixel to pixel.

        With `count`, only the first pixels exist.
        """
        if self.heavy:
            self._loop(tile, pointers, steps, count)
            return
        f = self.f
        pixels = len(tile[0])
        bases = [pointers(v) for v in range(len(tile))]
        for p in range(pixels):
            after = ""
            if count is not None and p:
                inside, after = f.fresh("inside"), f.fresh("after")
                f.branch_if(f.let(f"icmp sgt i64 {count}, {p}", "c"), inside, after)
                f.label(inside)
            for v, row in enumerate(tile):
                self._vector(row[p], bases[v], steps, p)
            if after:
                f.branch(after)
                f.label(after)

    def _vector(self, sums: str, bases: list[str], steps: list[str], pixel: str | int) -> None:
        f = self.f
        operands = self.emitter.epilogue.operands
        at = [
            f.element(base, memory_type(operand.type), f.mul(pixel, step))
            for base, operand, step in zip(bases, operands, steps)
        ]
        self.emitter.vector(sums, "f32", at, ["1"] * len(operands), 0)

    def _loop(
        self, tile: Sequence[Sequence[str]], pointers: Callable[[int], list[str]], steps: list[str], count: str | None
    ) -> None:
        f, pixels = self.f, len(tile[0])
        kind = f"<{self.lanes} x float>"
        for v, row in enumerate(tile):
            for p, value in enumerate(row):
                f.line(f"store {kind} {value}, ptr {f.element(self._stack, kind, v * pixels + p)}, align 64")
        for v in range(len(tile)):
            bases = pointers(v)
            loop = f.loop(0, count if count is not None else pixels)
            at = f.element(self._stack, kind, f.add(loop.index, v * pixels))
            self._vector(f.let(f"load {kind}, ptr {at}, align 64"), bases, steps, loop.index)
            f.end(loop)


class _ConvEmitter:
    def __init__(self, kernel: ConvKernel, function: Function) -> None:
        self.k = kernel
        self.f = f = function
        self.vector = f"<{kernel.block} x float>"
        self.a = {
            name: f.argument("%args", position, "ptr" if position < 4 else "i64")
            for position, name in enumerate(CONV_ARGUMENTS)
        }
        first = len(CONV_ARGUMENTS)
        self.bases: list[str] = []
        self.strides: list[list[str]] = []
        for number in range(len(kernel.epilogue.operands)):
            at = first + number * EPILOGUE_ENTRIES
            self.bases.append(f.argument("%args", at, "ptr"))
            self.strides.append([f.argument("%args", at + 1 + axis) for axis in range(4)])
        # A stored column moves by one block; saying so keeps addresses short.
        for number, _ in kernel.epilogue.stores:
            self.strides[number][3] = str(kernel.block)
        self.tiles = TileStore(EpilogueEmitter(kernel.epilogue, f, kernel.block), f, kernel.vectors, kernel.pixels)

    def emit(self) -> None:
        f, a, k = self.f, self.a, self.k
        unit = f.loop("%begin", "%end")
        chunk, rest = self._split(unit.index, a["chunks"])
        row, rest = self._split(rest, a["rows"])
        image, every_set = self._split(rest, a["batch"])
        number, group = self._split(every_set, a["sets"])
        block = f.add(f.mul(group, a["blocks"]), f.mul(number, k.vectors))
        weights = f.element(a["w"], "float", f.mul(every_set, a["w_set"]))
        source = f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(group, a["x_group"])))
        first_row = f.sub(f.mul(row, a["row_step"]), a["top"])
        spread = a["row_spread"]
        spread_less = f.sub(spread, "1")
        low = f.let(f"sdiv i64 {f.sub(spread_less, first_row)}, {spread}", "i")
        low = self._max(low, "0")
        high = f.let(f"sdiv i64 {f.add(f.sub(a['height'], first_row), spread_less)}, {spread}", "i")
        high = f.min(high, a["kernel_rows"])
        begin = f.mul(chunk, a["chunk"])
        end = f.min(f.add(begin, a["chunk"]), a["columns"])
        place = _Place(image, block, row, first_row, low, high, source, weights, begin, end)
        if k.last_vectors == k.vectors:
            self._chunk(k.vectors, place)
        else:
            whole, part, after = f.fresh("whole"), f.fresh("part"), f.fresh("after")
            last = f.let(f"icmp eq i64 {f.add(number, 1)}, {a['sets']}", "c")
            f.branch_if(last, part, whole)
            f.label(whole)
            self._chunk(k.vectors, place)
            f.branch(after)
            f.label(part)
            self._chunk(k.last_vectors, place)
            f.branch(after)
            f.label(after)
        f.end(unit)

    def _split(self, index: str, size: str) -> tuple[str, str]:
        """Remainder and quotient."""
        return self.f.let(f"urem i64 {index}, {size}", "i"), self.f.let(f"udiv i64 {index}, {size}", "i")

    def _max(self, a: str, b: str) -> str:
        more = self.f.let(f"icmp sgt i64 {a}, {b}", "c")
        return self.f.let(f"select i1 {more}, i64 {a}, i64 {b}", "i")

    def _chunk(self, vectors: int, place: _Place) -> None:
        """Whole tiles, then what is left of the row."""
        f, k = self.f, self.k
        count = f.sub(place.end, place.begin)
        whole = f.let(f"sdiv i64 {count}, {k.pixels}", "i")
        edge = f.add(place.begin, f.mul(whole, k.pixels))
        loop = f.loop(place.begin, edge, k.pixels)
        if k.borders:
            inner, outer, after = f.fresh("inner"), f.fresh("outer"), f.fresh("after")
            f.branch_if(self._is_inside(loop.index, k.pixels), inner, outer)
            f.label(inner)
            self._tile(vectors, k.pixels, place, loop.index, checked=False, count=None)
            f.branch(after)
            f.label(outer)
            self._tile(vectors, k.pixels, place, loop.index, checked=True, count=None)
            f.branch(after)
            f.label(after)
        else:
            self._tile(vectors, k.pixels, place, loop.index, checked=False, count=None)
        f.end(loop)
        if k.last_pixels == 0:
            return
        some, done = f.fresh("some"), f.fresh("done")
        left = f.sub(place.end, edge)
        f.branch_if(f.let(f"icmp sgt i64 {left}, 0", "c"), some, done)
        f.label(some)
        if k.last_pixels is None:
            self._tile(vectors, k.pixels, place, edge, checked=not k.roomy, count=left)
        else:
            self._tile(vectors, k.last_pixels, place, edge, checked=k.borders, count=None)
        f.branch(done)
        f.label(done)

    def _is_inside(self, column: str, pixels: int) -> str:
        """Whether all kernel columns of a tile lie inside the image."""
        f, a, k = self.f, self.a, self.k
        first = f.sub(f.mul(column, k.stride), a["left"])
        reach = f.mul(f.sub(a["kernel_columns"], "1"), a["column_spread"])
        last = f.add(f.add(first, (pixels - 1) * k.stride), reach)
        starts = f.let(f"icmp sge i64 {first}, 0", "c")
        ends = f.let(f"icmp slt i64 {last}, {a['width']}", "c")
        return f.let(f"and i1 {starts}, {ends}", "c")

    def _tile(self, vectors: int, pixels: int, place: _Place, column: str, *, checked: bool, count: str | None) -> None:
        f, a, k = self.f, self.a, self.k
        bias = f.element(a["bias"], "float", f.mul(place.block, k.block))
        start = [
            f.let(f"load {self.vector}, ptr {f.element(bias, 'float', v * k.block)}, align 4", "b") for v in range(vectors)
        ]
        sums = [start[v] for v in range(vectors) for _ in range(pixels)]
        first = f.sub(f.mul(column, k.stride), a["left"])
        turn_weights = f.mul(f.mul(a["kernel_rows"], a["kernel_columns"]), k.run * vectors * k.block)
        sums = self._turns(vectors, pixels, place, first, "0", a["turns"], k.run, turn_weights, sums, checked)
        if k.run_tail:
            sums = self._turns(
                vectors, pixels, place, first, a["turns"], f.add(a["turns"], 1), k.run_tail, turn_weights, sums, checked
            )
        tile = [sums[v * pixels : (v + 1) * pixels] for v in range(vectors)]

        def pointers(v: int) -> list[str]:
            found = []
            for base, operand, (batch, block, row, col) in zip(self.bases, k.epilogue.operands, self.strides):
                offset = f.add(f.mul(place.image, batch), f.mul(f.add(place.block, v), block))
                offset = f.add(offset, f.add(f.mul(place.row, row), f.mul(column, col)))
                found.append(f.element(base, memory_type(operand.type), offset))
            return found

        self.tiles.store(tile, pointers, [strides[3] for strides in self.strides], count)

    def _turns(
        self,
        vectors: int,
        pixels: int,
        place: _Place,
        first: str,
        begin: str,
        end: str,
        run: int,
        turn_weights: str,
        sums: list[str],
        checked: bool,
    ) -> list[str]:
        """The sums after some turns. `first` is the input column of the tile's first pixel."""
        f, a, k = self.f, self.a, self.k
        row_weights = f.mul(a["kernel_columns"], run * vectors * k.block)
        turn = f.loop(begin, end, carry=[(self.vector, value) for value in sums])
        image = f.element(place.source, "float", f.mul(turn.index, a["x_turn"]))
        weights = f.element(place.weights, "float", f.mul(turn.index, turn_weights))
        high = f.loop(place.low, place.high, carry=[(self.vector, value) for value in turn.carry])
        source = f.element(
            image, "float", f.mul(f.add(place.first_row, f.mul(high.index, a["row_spread"])), a["x_row"])
        )
        row = f.element(weights, "float", f.mul(high.index, row_weights))
        wide = f.loop(0, a["kernel_columns"], carry=[(self.vector, value) for value in high.carry])
        taps = f.element(row, "float", f.mul(wide.index, run * vectors * k.block))
        at = f.add(first, f.mul(wide.index, a["column_spread"]))
        if checked:
            x = [self._checked_pixel(source, f.add(at, p * k.stride)) for p in range(pixels)]
        else:
            base = f.element(source, "float", f.mul(at, k.column))
            x = [f.element(base, "float", p * k.stride * k.column) for p in range(pixels)]
        values = list(wide.carry)
        for step in range(run):
            w = [
                f.let(f"load {self.vector}, ptr {f.element(taps, 'float', (step * vectors + v) * k.block)}, align 4", "w")
                for v in range(vectors)
            ]
            for p in range(pixels):
                element = f.let(f"load float, ptr {f.element(x[p], 'float', step * k.run_step)}, align 4", "x")
                one = f.let(f"insertelement {self.vector} poison, float {element}, i32 0")
                wide_x = f.let(f"shufflevector {self.vector} {one}, {self.vector} poison, <{k.block} x i32> zeroinitializer")
                for v in range(vectors):
                    number = v * pixels + p
                    values[number] = f.call(
                        self.vector, f"llvm.fmuladd.v{k.block}f32", (self.vector, wide_x), (self.vector, w[v]),
                        (self.vector, values[number]),
                    )  # fmt: skip
        return f.end(turn, f.end(high, f.end(wide, values)))

    def _checked_pixel(self, source: str, column: str) -> str:
        """Where a pixel lies, or zeros if it lies outside."""
        f = self.f
        inside = f.let(f"icmp ult i64 {column}, {self.a['width']}", "c")
        at = f.element(source, "float", f.mul(column, self.k.column))
        return f.let(f"select i1 {inside}, ptr {at}, ptr {self.a['zeros']}", "p")


class _Place:
    """Where a unit of work lies: all as names of i64 values or pointers."""

    def __init__(
        self, image: str, block: str, row: str, first_row: str, low: str, high: str, source: str, weights: str, begin: str, end: str
    ) -> None:
        self.image = image
        self.block = block  # of output channels
        self.row = row
        self.first_row = first_row  # of the input
        self.low = low  # kernel rows inside the image
        self.high = high
        self.source = source
        self.weights = weights
        self.begin = begin  # columns
        self.end = end
