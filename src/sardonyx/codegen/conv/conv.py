"""Convolution -> LLVM: register tiles of output channels times pixels.

    for unit in begin .. end:              (set of output channels, image, plane, row, chunk of the row), or by bands
      for tile of pixels in the chunk:
        acc[v][p] = bias[v]
        for iteration, kernel plane and row (only those inside the image), kernel column:
          for element of the run:
            acc[v][p] += w[v] * x[p]       x in every lane
        epilogue(acc)

Tiles that lie inside the image read their pixels at constant distances. At the left and right border each pixel has a pointer
of its own, which leads to a block of zeros where the kernel reaches outside: nothing is copied, and nothing outside is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import STEPS_OF_FEW, Counter, Operands, TileStore, in_steps, inside, maximum
from sardonyx.codegen.depth_blocks import BLOCK, DepthBlocks
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.kernel.conv.conv import COMING_LINES, ConvKernel, CutTile
from sardonyx.records import dataclass
from sardonyx.target.target import LINE_NUMBERS, Target


def emit_conv(kernel: ConvKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a convolution kernel."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _ConvEmitter(kernel, function, target).emit()
    return function


@dataclass(frozen=True)
class _UnitPosition:
    """Where a unit of work lies: all as names of i64 values or pointers."""

    image: str
    block: str  # of output channels
    plane: str
    row: str
    first_plane: str  # of the input
    first_row: str
    planes: tuple[str, str]  # the kernel planes and rows inside the image
    rows: tuple[str, str]
    source: str
    weights: str
    begin: str  # columns
    end: str
    coming: str  # bytes from the first of the weights that come later to those this unit fetches
    tiles: str  # of the same set before this row, if they fetch weights of the next one
    cut: CutTile | None = None  # of a tile that reaches past the image


@dataclass(frozen=True)
class _Set:
    """Output channels that are computed together: so many vectors of so many lanes."""

    vectors: int
    lanes: int
    tiles: TileStore
    in_blocks: DepthBlocks | None  # of iterations

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x float>"

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True)
class _Ahead:
    """Weights of the next set that a tile fetches beside each tap."""

    distance: str  # floats from the weights of a tap to those
    some: str  # whether any are left


class _ConvEmitter:
    def __init__(self, kernel: ConvKernel, function: FunctionBuilder, target: Target) -> None:
        self.target = target
        self.k = kernel
        self.f = f = function
        self.a = Loaded(f, kernel.arguments)
        self.operands = Operands(kernel.epilogue, f, self.a.tensors("operands"), kernel.block if kernel.dense else None)
        self.block = self._iterations_at_once() if kernel.deep else ""
        same = kernel.paired or (kernel.last_vectors, kernel.last_lanes) == (kernel.vectors, kernel.block)
        self.whole = self._set(kernel.vectors, kernel.last_lanes if kernel.paired else kernel.block)
        self.last = self.whole if same else self._set(kernel.last_vectors, kernel.last_lanes)

    def _iterations_at_once(self) -> str:
        """That are summed up on their own."""
        f, a = self.f, self.a
        taps = f.mul(a["kernel_planes"], f.mul(a["kernel_rows"], a["kernel_columns"]))
        return maximum(f, f.let(f"udiv i64 {BLOCK}, {f.mul(taps, self.k.run)}", "i"), 1)

    def _set(self, vectors: int, lanes: int) -> _Set:
        epilogue = EpilogueEmitter(self.k.epilogue, self.f, lanes, self.target)
        most = max(vectors * self.k.pixels, self.target.registers // 2)
        in_blocks = DepthBlocks(self.f, f"<{lanes} x float>", most) if self.k.deep else None
        return _Set(vectors, lanes, TileStore(epilogue, self.f, vectors, self.k.pixels), in_blocks)

    def emit(self) -> None:
        a = self.a
        if self.k.banded:
            self._bands()
            return
        units = Counter(self.f, [a["chunks"], a["rows"], a["planes"], a["batch"], a["sets"]])
        self._unit(units.index, *units.indices)
        units.end()

    def _bands(self) -> None:
        """Units are long here: there is time to divide for each."""
        f, a = self.f, self.a

        def divided(value: str, by: str) -> tuple[str, str]:
            quotient = f.let(f"udiv i64 {value}, {by}", "i")
            return quotient, f.sub(value, f.mul(quotient, by))

        every_chunk = f.mul(f.mul(a["chunks"], a["rows"]), f.mul(a["planes"], a["batch"]))
        unit = f.loop("%begin", "%end")
        group, own = divided(unit.index, f.mul(every_chunk, a["sets"]))
        band, inner = divided(own, f.mul(a["band"], a["sets"]))
        first = f.mul(band, a["band"])
        number, at = divided(inner, f.min(a["band"], f.sub(every_chunk, first)))
        rest, chunk = divided(f.add(first, at), a["chunks"])
        rest, row = divided(rest, a["rows"])
        image, plane = divided(rest, a["planes"])
        self._unit(unit.index, chunk, row, plane, image, number, group)
        f.end(unit)

    def _unit(self, unit: str, chunk: str, row: str, plane: str, image: str, number: str, group: str) -> None:
        f, a, k = self.f, self.a, self.k
        every_set = f.add(f.mul(group, a["sets"]), number)
        first_plane = f.sub(f.mul(plane, a["plane_stride"]), a["front"])
        first_row = f.sub(f.mul(row, a["row_stride"]), a["top"])
        begin = f.mul(chunk, a["chunk"])
        position = _UnitPosition(
            image,
            f.add(f.mul(group, a["blocks"]), f.mul(number, k.vectors)),
            plane,
            row,
            first_plane,
            first_row,
            self._inside(first_plane, "plane", "depth"),
            self._inside(first_row, "row", "height"),
            f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(group, a["x_group"]))),
            f.element(a["w"], "float", f.mul(every_set, a["w_set"])),
            begin,
            f.min(f.add(begin, a["chunk"]), a["columns"]),
            f.mul(unit, a["coming_unit"]) if k.single_tap else "",
            self._tiles_before(image, plane, row) if k.ahead else "",
        )
        if self.last is self.whole:
            self._chunk(self.whole, position)
            return
        whole, part, after = f.fresh("whole"), f.fresh("part"), f.fresh("after")
        is_last = f.let(f"icmp eq i64 {f.add(number, 1)}, {a['sets']}", "c")
        f.branch_if(is_last, part, whole)
        for label, channels in ((whole, self.whole), (part, self.last)):
            f.label(label)
            self._chunk(channels, position)
            f.branch(after)
        f.label(after)

    def _tiles_before(self, image: str, plane: str, row: str) -> str:
        """How many tiles of a set come before a row."""
        f, a, k = self.f, self.a, self.k
        rows = f.add(f.mul(f.add(f.mul(image, a["planes"]), plane), a["rows"]), row)
        return f.mul(rows, f.let(f"udiv i64 {f.add(a['columns'], k.pixels - 1)}, {k.pixels}", "i"))

    def _inside(self, first: str, axis: str, size: str) -> tuple[str, str]:
        """The taps of a window along an axis that lie inside the image."""
        a = self.a
        if self.k.single_tap:
            return "0", "1"
        return inside(self.f, first, a[f"{axis}_dilation"], a[size], a[f"kernel_{axis}s"])

    def _chunk(self, channels: _Set, position: _UnitPosition) -> None:
        """Whole tiles, then what is left of the row."""
        f, k = self.f, self.k
        count = f.sub(position.end, position.begin)
        whole = f.let(f"sdiv i64 {count}, {k.pixels}", "i")
        edge = f.add(position.begin, f.mul(whole, k.pixels))
        loop = f.loop(position.begin, edge, k.pixels)
        if k.borders:
            inner, outer, after = f.fresh("inner"), f.fresh("outer"), f.fresh("after")
            f.branch_if(self._is_inside(loop.index, k.pixels), inner, outer)
            f.label(inner)
            self._tile(channels, k.pixels, position, loop.index, checked=False, count=None)
            f.branch(after)
            f.label(outer)
            self._tile(channels, k.pixels, position, loop.index, checked=True, count=None)
            f.branch(after)
            f.label(after)
        elif k.cut:
            self._tile_or_cut(channels, position, loop.index)
        else:
            self._tile(channels, k.pixels, position, loop.index, checked=False, count=None)
        f.end(loop)
        if k.last_pixels == 0:
            return
        some, done = f.fresh("some"), f.fresh("done")
        left = f.sub(position.end, edge)
        f.branch_if(f.let(f"icmp sgt i64 {left}, 0", "c"), some, done)
        f.label(some)
        if k.last_pixels is None:
            self._rest(channels, position, edge, left)
        else:
            rest = replace(position, cut=next((cut for cut in k.cut if cut.pixels < k.pixels), None))
            self._tile(channels, k.last_pixels, rest, edge, checked=k.borders, count=None)
        f.branch(done)
        f.label(done)

    def _tile_or_cut(self, channels: _Set, position: _UnitPosition, column: str) -> None:
        """A tile inside the image, or one that is cut."""
        f, k = self.f, self.k
        after = f.fresh("after")
        for cut in k.cut:
            if cut.pixels == k.pixels:
                here, elsewhere = f.fresh("here"), f.fresh("elsewhere")
                f.branch_if(f.let(f"icmp eq i64 {column}, {cut.column}", "c"), here, elsewhere)
                f.label(here)
                self._tile(channels, k.pixels, replace(position, cut=cut), column, checked=False, count=None)
                f.branch(after)
                f.label(elsewhere)
        self._tile(channels, k.pixels, position, column, checked=False, count=None)
        f.branch(after)
        f.label(after)

    def _rest(self, channels: _Set, position: _UnitPosition, column: str, left: str) -> None:
        """What is left of a row whose length is not known: half a tile if that is enough, or a whole one."""
        f, k = self.f, self.k
        half = k.pixels // 2
        if not half:
            self._tile(channels, k.pixels, position, column, checked=not k.reads_past_rows, count=left)
            return
        few, many, after = f.fresh("few"), f.fresh("many"), f.fresh("after")
        f.branch_if(f.let(f"icmp sle i64 {left}, {half}", "c"), few, many)
        for label, pixels in ((few, half), (many, k.pixels)):
            f.label(label)
            self._tile(channels, pixels, position, column, checked=not k.reads_past_rows, count=left)
            f.branch(after)
        f.label(after)

    def _is_inside(self, column: str, pixels: int) -> str:
        """Whether all kernel columns of a tile lie inside the image."""
        f, a, k = self.f, self.a, self.k
        first = f.sub(f.mul(column, k.stride), a["left"])
        reach = f.mul(f.sub(a["kernel_columns"], "1"), a["column_dilation"])
        last = f.add(f.add(first, (pixels - 1) * k.stride), reach)
        starts = f.let(f"icmp sge i64 {first}, 0", "c")
        ends = f.let(f"icmp slt i64 {last}, {a['width']}", "c")
        return f.let(f"and i1 {starts}, {ends}", "c")

    def _tile(
        self, channels: _Set, pixels: int, position: _UnitPosition, column: str, *, checked: bool, count: str | None
    ) -> None:
        f, a, k, vectors = self.f, self.a, self.k, channels.vectors
        bias = f.element(a["bias"], "float", f.mul(position.block, k.block))
        start = [self._loaded(channels, f.element(bias, "float", v * k.block)) for v in range(vectors)]
        sums = [start[v] for v in range(vectors) for _ in range(self._sums_of(pixels))]
        chains = self._chains(len(sums))
        sums += ["zeroinitializer"] * (len(sums) * (chains - 1))
        first = f.sub(f.mul(column, k.stride), a["left"])
        taps = f.mul(a["kernel_planes"], f.mul(a["kernel_rows"], a["kernel_columns"]))
        iteration_weights = f.mul(taps, k.run * channels.width)
        ahead = self._ahead_of(channels, position, column)

        def walk(begin: str, count: str, moving: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            end = f.add(begin, count)
            return [], self._iterations(
                channels, pixels, position, first, begin, end, k.run, iteration_weights, sums, checked, ahead
            )

        if channels.in_blocks is None:
            sums = walk("0", a["iterations"], [], sums)[1]
        else:
            sums = channels.in_blocks.sums(a["iterations"], self.block, [], sums, walk)
        if k.run_tail:
            sums = self._iterations(
                channels,
                pixels,
                position,
                first,
                a["iterations"],
                f.add(a["iterations"], 1),
                k.run_tail,
                iteration_weights,
                sums,
                checked,
                None,
            )
        sums = self._apart(channels, pixels, self._joined(sums, len(sums) // chains, self._held(channels)))
        tile = [sums[v * pixels : (v + 1) * pixels] for v in range(vectors)]

        def pointers(v: int) -> list[str]:
            return self.operands.at(position.image, f.add(position.block, v), position.plane, position.row, column)

        channels.tiles.store(tile, pointers, self.operands.columns, count)

    # Vectors of a tile: of a pixel, or of two

    def _held(self, channels: _Set) -> str:
        return f"<{channels.lanes * 2} x float>" if self.k.paired else channels.vector

    def _sums_of(self, pixels: int) -> int:
        """How many vectors the sums of so many pixels are."""
        return (pixels + 1) // 2 if self.k.paired else pixels

    def _loaded(self, channels: _Set, at: str) -> str:
        """A vector of output channels, for each pixel of a pair."""
        f = self.f
        value = f.let(f"load {channels.vector}, ptr {at}, align 4", "w")
        if not self.k.paired:
            return value
        lanes = ", ".join(f"i32 {lane}" for _ in range(2) for lane in range(channels.lanes))
        return f.let(f"shufflevector {channels.vector} {value}, {channels.vector} poison, <{channels.lanes * 2} x i32> <{lanes}>")

    def _apart(self, channels: _Set, pixels: int, sums: list[str]) -> list[str]:
        """The sums of each pixel; of an odd number of pixels the last pair has but one."""
        f, held = self.f, self._held(channels)
        if not self.k.paired:
            return sums
        halves = [
            f.let(f"shufflevector {held} {one}, {held} poison, <{channels.lanes} x i32> <{lanes}>")
            for half in range(2)
            for lanes in [", ".join(f"i32 {half * channels.lanes + lane}" for lane in range(channels.lanes))]
            for one in sums
        ]
        return halves[:pixels]

    def _chains(self, results: int) -> int:
        """How many sums each result of a tile has: a power of two, of as many as fit in the registers beside their operands.

        Products of small tiles then need not wait for the one before, and sums over many channels (the two layers of a
        squeeze-and-excitation block) round less: each adds up a part of them.
        """
        most = min(self.target.registers // 2 // results, STEPS_OF_FEW)
        return 1 << max(most, 1).bit_length() - 1

    def _joined(self, sums: list[str], count: int, vector: str) -> list[str]:
        """One sum for each result of the tile."""
        while len(sums) > count:
            half = len(sums) // 2
            sums = [self.f.let(f"fadd {vector} {a}, {b}") for a, b in zip(sums[:half], sums[half:])]
        return sums

    def _iterations(
        self,
        channels: _Set,
        pixels: int,
        position: _UnitPosition,
        first: str,
        begin: str,
        end: str,
        run: int,
        iteration_weights: str,
        sums: list[str],
        checked: bool,
        ahead: _Ahead | None,
    ) -> list[str]:
        """The sums after some iterations. `first` is the input column of the tile's first pixel."""
        f, a, k, vector = self.f, self.a, self.k, self._held(channels)
        if k.single_tap and not checked:
            return self._single_taps(channels, pixels, position, first, (begin, end), run, sums, ahead)
        reach: tuple[str | int, str] = (0, a["kernel_columns"])
        if checked:  # kernel columns that are outside of the image for all pixels are left out
            span = (pixels - 1) * k.stride
            reach = inside(f, f.add(first, span), a["column_dilation"], f.add(a["width"], span), a["kernel_columns"])
        row_weights = f.mul(a["kernel_columns"], run * channels.width)
        plane_weights = f.mul(a["kernel_rows"], row_weights)
        iteration = f.loop(begin, end, carry=[(vector, value) for value in sums])
        image = f.element(position.source, "float", f.mul(iteration.index, a["x_iteration"]))
        weights = f.element(position.weights, "float", f.mul(iteration.index, iteration_weights))
        deep = f.loop(*position.planes, carry=[(vector, value) for value in iteration.carry])
        at = f.mul(f.add(position.first_plane, f.mul(deep.index, a["plane_dilation"])), a["x_plane"])
        plane = f.element(image, "float", at)
        plane_taps = f.element(weights, "float", f.mul(deep.index, plane_weights))
        high = f.loop(*position.rows, carry=[(vector, value) for value in deep.carry])
        at = f.mul(f.add(position.first_row, f.mul(high.index, a["row_dilation"])), a["x_row"])
        source = f.element(plane, "float", at)
        row = f.element(plane_taps, "float", f.mul(high.index, row_weights))
        if k.row_taps:
            values = self._row_of_taps(channels, pixels, f.element(source, "float", first), row, list(high.carry), position.cut)
            return f.end(iteration, f.end(deep, f.end(high, values)))
        wide = f.loop(*reach, carry=[(vector, value) for value in high.carry])
        taps = f.element(row, "float", f.mul(wide.index, run * channels.width))
        at = f.add(first, f.mul(wide.index, a["column_dilation"]))
        # Of pixels at constant distances only the first has an address of its own: the others would each take a register.
        x = (
            [self._checked_pixel(source, f.add(at, p * k.stride)) for p in range(pixels)]
            if checked
            else [f.element(source, "float", f.mul(at, k.column))]
        )
        if ahead is not None:
            self._fetch_ahead(taps, ahead)
        moving = [(taps, channels.width)] if checked else [(taps, channels.width), (x[0], 1)]

        step_of = self._step_of(channels, pixels, x if checked else [])
        values = in_steps(f, run, vector, list(wide.carry), moving, step_of, len(sums) // (channels.vectors * pixels))
        return f.end(iteration, f.end(deep, f.end(high, f.end(wide, values))))

    def _row_of_taps(self, channels: _Set, pixels: int, x: str, weights: str, sums: list[str], cut: CutTile | None) -> list[str]:
        """The sums after a row of the kernel: every element of x is loaded once, and meets all pixels that it is a tap of."""
        f, k, vector, vectors = self.f, self.k, self._held(channels), channels.vectors
        each = self._sums_of(pixels)
        w = [
            [self._loaded(channels, f.element(weights, "float", first + v * channels.lanes)) for v in range(vectors)]
            for first in range(0, k.row_taps * channels.width, channels.width)
        ]
        values, elements = list(sums), (pixels - 1) * k.stride + k.row_taps
        within = range(elements) if cut is None else range(cut.first, cut.end)
        self._fetch_row(x, elements)
        for column in range((each - 1) * k.stride + k.row_taps):
            taps = [tap for tap in range(k.row_taps) if column >= tap and (column - tap) % k.stride == 0]
            meeting = [((column - tap) // k.stride, tap) for tap in taps if (column - tap) // k.stride < each]
            if not meeting:
                continue
            beside = column + each * k.stride if k.paired else column  # of the second pixels
            beside = beside if beside < elements else column  # behind the last one's window nothing is read
            if column not in within and beside not in within:
                continue
            value = self._element(channels, x, column, beside, within)
            for p, tap in meeting:
                for v in range(vectors):
                    number = (tap * vectors * each + v * each + p) % len(values)
                    values[number] = f.call(
                        vector, f"llvm.fmuladd.v{vector[1:].split()[0]}f32", (vector, value), (vector, w[tap][v]),
                        (vector, values[number]),
                    )  # fmt: skip
        return values

    def _fetch_row(self, x: str, elements: int) -> None:
        """Fetch what this tile of the next row reads: rows are too short for the machine to see which follows."""
        f, a = self.f, self.a
        following = f.element(x, "float", f.mul(a["row_stride"], a["x_row"]))
        for line in range(0, elements, LINE_NUMBERS):
            f.fetch_ahead(f.element(following, "float", line))

    def _element(self, channels: _Set, x: str, column: int, beside: int, within: range) -> str:
        """An element in all lanes, or one for each pixel of a pair; zero is what lies outside."""
        f, vector = self.f, self._held(channels)
        lanes = channels.lanes * (2 if self.k.paired else 1)

        def broadcast(at: int) -> str:
            if at not in within:
                return "zeroinitializer"
            element = f.let(f"load float, ptr {f.element(x, 'float', at)}, align 4", "x")
            one = f.let(f"insertelement {vector} poison, float {element}, i32 0")
            return f.let(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")

        value = broadcast(column)
        if beside == column:
            return value
        second = ", ".join(f"i1 {int(lane >= channels.lanes)}" for lane in range(lanes))
        return f.let(f"select <{lanes} x i1> <{second}>, {vector} {broadcast(beside)}, {vector} {value}")

    def _single_taps(
        self,
        channels: _Set,
        pixels: int,
        position: _UnitPosition,
        first: str,
        iterations: tuple[str, str],
        run: int,
        sums: list[str],
        ahead: _Ahead | None,
    ) -> list[str]:
        """The sums after some iterations of windows that are single pixels: two addresses that move along."""
        f, a, k, vector = self.f, self.a, self.k, channels.vector
        line = f.add(f.mul(position.first_plane, a["x_plane"]), f.mul(position.first_row, a["x_row"]))
        at = f.add(f.add(line, f.mul(first, k.column)), f.mul(iterations[0], a["x_iteration"]))
        x = f.element(position.source, "float", at)
        weights = k.run * channels.width
        taps = f.element(position.weights, "float", f.mul(iterations[0], weights))
        tile = f.sub(f.add(first, a["left"]), f.mul(position.begin, k.stride))
        tile = f.let(f"sdiv i64 {tile}, {k.pixels * k.stride}", "i")
        before = f.mul(iterations[0], COMING_LINES * LINE_NUMBERS * 4)
        coming = f.add(f.add(position.coming, f.mul(tile, a["coming_tile"])), before)
        carry = [("ptr", taps), ("ptr", x), ("i64", coming), *((vector, value) for value in sums)]
        iteration = f.loop(*iterations, carry=carry)
        taps, x, coming, *values = iteration.carry
        if run == k.run:
            self._fetch_coming(coming)
        if ahead is not None:
            self._fetch_ahead(taps, ahead)
        moving = [(taps, channels.width), (x, 1)]
        chains = len(sums) // (channels.vectors * pixels)
        values = in_steps(f, run, vector, values, moving, self._step_of(channels, pixels, []), chains)
        following = [
            f.element(taps, "float", weights),
            f.element(x, "float", a["x_iteration"]),
            f.add(coming, COMING_LINES * LINE_NUMBERS * 4),
        ]
        return f.end(iteration, [*following, *values])[3:]

    def _step_of(self, channels: _Set, pixels: int, x: list[str]) -> Callable[[int, list[str], list[str], str], None]:
        """What writes the products of one step of a run. `x` are the pixels, if each has an address of its own."""
        f, k, vectors, vector = self.f, self.k, channels.vectors, channels.vector

        def step_of(step: int, values: list[str], addresses: list[str], begin: str) -> None:
            w = [
                f.let(
                    f"load {vector}, ptr {f.element(addresses[0], 'float', step * channels.width + v * channels.lanes)}, align 4",
                    "w",
                )
                for v in range(vectors)
            ]
            for p in range(pixels):
                pixel, far = (f.element(x[p], "float", begin), 0) if x else (addresses[1], p * k.stride * k.column)
                element = f.let(f"load float, ptr {f.element(pixel, 'float', far + step)}, align 4", "x")
                one = f.let(f"insertelement {vector} poison, float {element}, i32 0")
                wide_x = f.let(f"shufflevector {vector} {one}, {vector} poison, <{channels.lanes} x i32> zeroinitializer")
                for v in range(vectors):
                    number = (step * vectors * pixels + v * pixels + p) % len(values)
                    values[number] = f.call(
                        vector, f"llvm.fmuladd.v{channels.lanes}f32", (vector, wide_x), (vector, w[v]),
                        (vector, values[number]),
                    )  # fmt: skip

        return step_of

    def _ahead_of(self, channels: _Set, position: _UnitPosition, column: str) -> _Ahead | None:
        """What a tile fetches of the next set's weights: each tile other lines, until all are there."""
        f, a, k = self.f, self.a, self.k
        if not k.ahead:
            return None
        tile = f.add(position.tiles, f.let(f"udiv i64 {column}, {k.pixels}", "i"))
        line = f.mul(tile, k.ahead)
        some = f.let(f"icmp ult i64 {line}, {k.run * channels.width // LINE_NUMBERS}", "c")
        return _Ahead(f.add(a["w_set"], f.mul(line, LINE_NUMBERS)), some)

    def _fetch_ahead(self, taps: str, ahead: _Ahead) -> None:
        f = self.f
        some, after = f.fresh("some"), f.fresh("after")
        f.branch_if(ahead.some, some, after)
        f.label(some)
        first = f.element(taps, "float", ahead.distance)
        for line in range(self.k.ahead):
            f.fetch_ahead(f.element(first, "float", line * LINE_NUMBERS))
        f.branch(after)
        f.label(after)

    def _fetch_coming(self, at: str) -> None:
        """Fetch some lines of weights that other steps read later."""
        f, a = self.f, self.a
        some, after = f.fresh("some"), f.fresh("after")
        f.branch_if(f.let(f"icmp slt i64 {at}, {a['coming_bytes']}", "c"), some, after)
        f.label(some)
        is_first = f.let(f"icmp slt i64 {at}, {a['coming_split']}", "c")
        then = f.element(a["then_coming"], "i8", f.sub(at, a["coming_split"]))
        first = f.let(f"select i1 {is_first}, ptr {f.element(a['coming'], 'i8', at)}, ptr {then}", "p")
        for line in range(COMING_LINES):
            f.fetch_ahead(f.element(first, "i8", line * LINE_NUMBERS * 4))
        f.branch(after)
        f.label(after)

    def _checked_pixel(self, source: str, column: str) -> str:
        """Where a pixel lies, or zeros if it lies outside."""
        f = self.f
        inside = f.let(f"icmp ult i64 {column}, {self.a['width']}", "c")
        at = f.element(source, "float", f.mul(column, self.k.column))
        return f.let(f"select i1 {inside}, ptr {at}, ptr {self.a['zeros']}", "p")
