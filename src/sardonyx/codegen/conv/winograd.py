"""Winograd's convolution -> LLVM (see `kernel.conv.winograd`).

    for unit in begin .. end:                         (group of channels, block of tiles, set of output channels)
      if the block is new to this call:
        for block of channels, tile, 3 x 3 taps:      v = B^T x B
      for element, group of tiles:                    m = v w         a matrix product in registers
      for tile of the block, vector of the set:       epilogue(A^T m A + bias)

Tiles that reach past the image are copied first, with zeros where there is no pixel: one transform serves all. Tiles of a dilated
convolution may begin behind the end of the result: they are computed, and not stored. A last group that is not
full is filled with the last tile, so that all that is multiplied is defined.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, Operands, TileStore, in_steps
from sardonyx.codegen.conv.winograd_transforms import INPUTS, OUTPUTS, Arithmetic, transform_columns
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.conv.winograd import TAPS, WinogradKernel, WinogradRowKernel, axis_taps
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE, Target

_LINE: Final = CACHE_LINE // 4  # floats


def emit_winograd(kernel: WinogradKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a Winograd convolution."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _TileEmitter(kernel, function, target).emit()
    return function


@dataclass(frozen=True)
class ChannelSet:
    """Output channels that are computed together: so many vectors of so many lanes."""

    vectors: int
    lanes: int
    tiles: TileStore

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x float>"

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True)
class _Tile:
    """Where a tile lies: plane of all images, first row and column of the result."""

    plane: str
    row: str
    column: str


K = TypeVar("K", WinogradKernel, WinogradRowKernel)


class WinogradEmitter(Generic[K]):
    """Blocks of tiles, and the products; where tiles lie and how they are transformed is up to subclasses."""

    def __init__(self, kernel: K, function: FunctionBuilder, target: Target) -> None:
        self.target = target
        self.k: K = kernel
        self.f = f = function
        self.a = a = Loaded(f, kernel.arguments)
        self.size = kernel.tile + TAPS - 1
        self.vector = f"<{kernel.block} x float>"
        self.operands = Operands(kernel.epilogue, f, a.tensors("operands"), None)
        self.whole = self._set(kernel.vectors, kernel.block)
        same = (kernel.last_vectors, kernel.last_lanes) == (kernel.vectors, kernel.block)
        self.last = self.whole if same else self._set(kernel.last_vectors, kernel.last_lanes)
        self.v, self.m = (f.own_part(base, "float", size) for base, (size,) in (a.tensor("v"), a.tensor("m")))
        # Distances in v: from one block of channels to the next, one group of taps, one element, one group of tiles.
        self.v_block = kernel.rows * kernel.block
        self.v_taps = f.mul(f.add(a["input_blocks"], int(kernel.tail > 0)), self.v_block)
        self.v_element = a["v_element"]
        self.v_group = f.mul(self.v_element, kernel.elements)
        self.channels = f.add(f.mul(a["input_blocks"], kernel.block), kernel.tail)

    @property
    def tap_groups(self) -> str | int:
        """How many sums of transformed taps are added up."""
        raise NotImplementedError

    def _set(self, vectors: int, lanes: int) -> ChannelSet:
        epilogue = EpilogueEmitter(self.k.epilogue, self.f, lanes, self.target)
        return ChannelSet(vectors, lanes, TileStore(epilogue, self.f, 1, self.k.tile))

    def emit(self) -> None:
        f, a = self.f, self.a
        units = Counter(f, [a["sets"], a["tile_blocks"]])
        number, block, self.group = units.indices
        first = f.mul(block, a["block_tiles"])
        count = f.min(f.sub(a["tiles"], first), a["block_tiles"])
        fresh, known = f.fresh("fresh"), f.fresh("known")
        is_first_set = f.let(f"icmp eq i64 {number}, 0", "c")
        is_first_unit = f.let(f"icmp eq i64 {units.index}, %begin", "c")
        f.branch_if(f.let(f"or i1 {is_first_set}, {is_first_unit}", "c"), fresh, known)
        f.label(fresh)
        self.transform_inputs(f.element(a["x"], "float", f.mul(self.group, a["x_group"])), first, count)
        f.branch(known)
        f.label(known)
        if self.last is self.whole:
            self._channels(self.whole, number, first, count)
        else:
            whole, part, after = f.fresh("whole"), f.fresh("part"), f.fresh("after")
            f.branch_if(f.let(f"icmp eq i64 {f.add(number, 1)}, {a['sets']}", "c"), part, whole)
            for label, channels in ((whole, self.whole), (part, self.last)):
                f.label(label)
                self._channels(channels, number, first, count)
                f.branch(after)
            f.label(after)
        units.end()

    def _channels(self, channels: ChannelSet, number: str, first: str, count: str) -> None:
        self._multiply(channels, number, count)
        self.transform_outputs(channels, number, first, count)

    def block_of(self, number: str, vector: str) -> str:
        """The block of output channels that a vector of a set of the unit's group is."""
        f = self.f
        return f.add(f.mul(self.group, self.a["blocks"]), f.add(f.mul(number, self.k.vectors), vector))

    def transform_inputs(self, x: str, first: str, count: str) -> None:
        """Fill v with the tiles of a block; x are the channels of the group."""
        raise NotImplementedError

    def transform_outputs(self, channels: ChannelSet, number: str, first: str, count: str) -> None:
        """Make results of m for the tiles of a block and a set of output channels."""
        raise NotImplementedError

    # Products

    def _multiply(self, channels: ChannelSet, number: str, count: str) -> None:
        """m = v w for every element and group."""
        f, a, k = self.f, self.a, self.k
        every_set = f.add(f.mul(self.group, a["sets"]), number)
        weights = f.element(a["w"], "float", f.mul(every_set, a["w_set"]))
        full = f.let(f"udiv i64 {count}, {k.rows}", "i")
        left = f.sub(count, f.mul(full, k.rows))
        size = f.mul(f.mul(self.channels, channels.width), self.tap_groups)  # of the weights of an element
        element = f.loop(0, k.elements)
        w = f.element(weights, "float", f.mul(element.index, size))
        following = f.element(w, "float", size)
        v = f.element(self.v, "float", f.mul(element.index, self.v_element))
        m = f.element(self.m, "float", f.mul(element.index, k.block))
        # A last group that is not full is filled: it is one more, unless so few tiles are left that they have a product.
        more = f.let(f"icmp sgt i64 {left}, {k.last_rows}", "c")
        groups = f.add(full, f.let(f"zext i1 {more} to i64", "i"))
        group = f.loop(0, groups)
        self._product(channels, k.rows, w, v, m, group.index, following)
        f.end(group)
        if k.last_rows:
            few, done = f.fresh("few"), f.fresh("done")
            some = f.let(f"icmp sgt i64 {left}, 0", "c")
            f.branch_if(f.let(f"and i1 {some}, {f.let(f'icmp sle i64 {left}, {k.last_rows}', 'c')}", "c"), few, done)
            f.label(few)
            self._product(channels, k.last_rows, w, v, m, full, following)
            f.branch(done)
            f.label(done)
        f.end(element)

    def _product(self, channels: ChannelSet, rows: int, w: str, v: str, m: str, group: str, following: str) -> None:
        """One register tile: rows of a group times the vectors of a set. Each group fetches its share of what follows."""
        f, a, k, vector = self.f, self.a, self.k, channels.vector
        v = f.element(v, "float", f.mul(group, self.v_group))
        blocks = f.add(a["input_blocks"], int(k.tail > 0))
        fetched = k.fetched * _LINE  # floats, of the share of a block of channels
        share = f.element(following, "float", f.mul(group, f.mul(f.mul(blocks, self.tap_groups), fetched)))
        sums = ["zeroinitializer"] * (rows * channels.vectors)
        if k.tail and self.tap_groups != 1:
            taps = f.loop(0, self.tap_groups, carry=[(vector, value) for value in sums])
            own_w = f.element(w, "float", f.mul(taps.index, f.mul(self.channels, channels.width)))
            own_v = f.element(v, "float", f.mul(taps.index, self.v_taps))
            own_share = f.element(share, "float", f.mul(taps.index, f.mul(blocks, fetched)))
            sums = f.end(taps, self._runs(channels, rows, a["input_blocks"], (own_w, own_v, own_share), taps.carry))
        else:
            sums = self._runs(channels, rows, f.mul(a["input_blocks"], self.tap_groups), (w, v, share), sums)
        first = f.mul(group, k.rows * k.vectors * k.elements * k.block)
        to = f.element(m, "float", first)
        for row in range(rows):
            for number in range(channels.vectors):
                at = f.element(to, "float", (row * k.vectors + number) * k.elements * k.block)
                f.line(f"store {vector} {sums[row * channels.vectors + number]}, ptr {at}, align 4")

    def _runs(self, channels: ChannelSet, rows: int, blocks: str, at: tuple[str, str, str], sums: list[str]) -> list[str]:
        """The sums after so many full blocks of channels, and one that is not; `at` are weights, inputs and what is fetched."""
        f, k = self.f, self.k
        loop = f.loop(0, blocks, carry=[(channels.vector, value) for value in sums])
        sums = f.end(loop, self._run(channels, rows, k.block, at, loop.index, loop.carry))
        return self._run(channels, rows, k.tail, at, blocks, sums) if k.tail else sums

    def _run(
        self, channels: ChannelSet, rows: int, lanes: int, at: tuple[str, str, str], block: str, sums: list[str]
    ) -> list[str]:
        """The sums after one more block of channels."""
        f, k, vector = self.f, self.k, channels.vector
        sizes = (k.block * channels.width, self.v_block, k.fetched * _LINE)
        weights, inputs, share = (f.element(one, "float", f.mul(block, size)) for one, size in zip(at, sizes))
        for line in range(k.fetched):
            f.fetch_ahead(f.element(share, "float", line * _LINE))

        def step_of(lane: int, values: list[str], addresses: list[str], begin: str) -> None:
            weights, inputs = addresses
            loaded = [
                f.let(
                    f"load {vector}, ptr {f.element(weights, 'float', lane * channels.width + number * channels.lanes)}, align 4",
                    "w",
                )
                for number in range(channels.vectors)
            ]
            for row in range(rows):
                one = f.let(f"load float, ptr {f.element(inputs, 'float', row * k.block + lane)}, align 4", "x")
                first = f.let(f"insertelement {vector} poison, float {one}, i32 0")
                every = f.let(f"shufflevector {vector} {first}, {vector} poison, <{channels.lanes} x i32> zeroinitializer")
                for number, weight in enumerate(loaded):
                    at = row * channels.vectors + number
                    values[at] = f.call(
                        vector, f"llvm.fmuladd.v{channels.lanes}f32", (vector, every), (vector, weight), (vector, values[at])
                    )

        return in_steps(f, lanes, vector, list(sums), [(weights, channels.width), (inputs, 1)], step_of)

    def all_finite(self, e: Arithmetic, results: list[list[str]]) -> str:
        """Whether all sums of a tile are numbers: the results in the corners depend on every one of them."""
        f = self.f
        total = e.add(e.add(results[0][0], results[0][-1]), e.add(results[-1][0], results[-1][-1]))
        number = f.let(f"fcmp ord {e.vector} {e.sub(total, total)}, zeroinitializer")
        name = f"llvm.vector.reduce.and.v{e.lanes}i1"
        return f.call("i1", name, (f"<{e.lanes} x i1>", number))


class _TileEmitter(WinogradEmitter[WinogradKernel]):
    def __init__(self, kernel: WinogradKernel, function: FunctionBuilder, target: Target) -> None:
        super().__init__(kernel, function, target)
        # Pixels of a tile that reaches past the image: as if they lay inside
        self.patch = function.let(f"alloca [{self.size * self.size * kernel.block} x float], align 64", "patch")

    @property
    def tap_groups(self) -> str | int:
        return self.k.tap_groups

    def _tile(self, tile: str) -> _Tile:
        f, a = self.f, self.a
        line = f.let(f"udiv i64 {tile}, {a['tile_columns']}", "i")
        column = f.sub(tile, f.mul(line, a["tile_columns"]))
        plane = f.let(f"udiv i64 {line}, {a['tile_rows']}", "i")
        row = f.sub(line, f.mul(plane, a["tile_rows"]))
        down, along = self.k.dilations
        return _Tile(plane, self._start(row, down), self._start(column, along))

    def _image(self, tile: _Tile) -> tuple[str, str]:
        """The image of a tile, and its plane there."""
        if not self.k.deep:
            return tile.plane, "0"
        f, a = self.f, self.a
        image = f.let(f"udiv i64 {tile.plane}, {a['planes']}", "i")
        return image, f.sub(tile.plane, f.mul(image, a["planes"]))

    def _first_plane(self, plane: str) -> str:
        """The first input plane of the windows of a plane of the result."""
        return self.f.sub(self.f.mul(plane, self.a["plane_stride"]), self.a["front"]) if self.k.deep else "0"

    def _start(self, number: str, dilation: int) -> str:
        """The first result of a tile along an axis: as many tiles begin one after the other as the dilation says."""
        f, tile = self.f, self.k.tile
        if dilation == 1:
            return f.mul(number, tile)
        group = f.let(f"udiv i64 {number}, {dilation}", "i")
        return f.add(number, f.mul(group, (tile - 1) * dilation))

    # Inputs

    def transform_inputs(self, x: str, first: str, count: str) -> None:
        """All tiles of a block, channels outside: neighbours read pixels that were just read, and write to ends of lines."""
        f, a, k = self.f, self.a, self.k
        groups = f.let(f"udiv i64 {f.add(count, k.rows - 1)}, {k.rows}", "i")
        last = f.sub(count, 1)
        counts = k.dilations == (1, 1)  # without dilations the next tile is found by additions
        start = self._tile(first) if counts else None
        block = f.loop(0, f.add(a["input_blocks"], int(k.tail > 0)))
        x = f.element(x, "float", f.mul(block.index, a["x_block"]))
        v = f.element(self.v, "float", f.mul(block.index, self.v_block))
        carried = [("i64", each) for each in (start.plane, start.row, start.column)] if start is not None else []
        group = f.loop(0, groups, carry=carried)
        row = f.loop(0, k.rows, carry=[("i64", each) for each in group.carry])
        number = f.add(f.mul(group.index, k.rows), row.index)
        tile = _Tile(*row.carry) if counts else self._tile(f.add(first, f.min(number, last)))
        to = f.element(v, "float", f.add(f.mul(group.index, self.v_group), f.mul(row.index, k.block)))
        image, plane = self._image(tile)
        source = f.element(x, "float", f.mul(image, a["x_batch"]))
        self._transform_taps(source, to, self._first_plane(plane), tile)
        after_row: list[str] = []
        if counts:
            following = self._following(tile, f.let(f"icmp slt i64 {number}, {last}", "c"))
            after_row = [following.plane, following.row, following.column]
        f.end(group, f.end(row, after_row))
        f.end(block)

    def _transform_taps(self, source: str, to: str, first_plane: str, tile: _Tile) -> None:
        """A block of channels of a tile, for every 3 x 3 taps."""
        f, a, k = self.f, self.a, self.k
        down, along = k.spacing
        loops = [f.loop(0, count) if count > 1 else None for count in k.groups]
        deep, high, wide = ("0" if loop is None else loop.index for loop in loops)
        number = f.add(f.mul(f.add(f.mul(deep, k.groups[1]), high), k.groups[2]), wide)
        to = f.element(to, "float", f.mul(number, self.v_taps))
        top = f.add(f.sub(f.mul(tile.row, k.strides[0]), a["top"]), self._first_tap(high, 0))
        left = f.add(f.sub(f.mul(tile.column, k.strides[1]), a["left"]), self._first_tap(wide, 1))
        here = "true"
        if k.deep:
            plane = f.add(first_plane, f.mul(deep, a["plane_dilation"]))
            here = f.let(f"icmp ult i64 {plane}, {a['depth']}", "c")
            source = f.element(source, "float", f.mul(plane, a["x_plane"]))
        at = f.element(source, "float", f.add(f.mul(top, a["x_row"]), f.mul(left, k.block)))
        outer, ready = f.fresh("outer"), f.fresh("ready")
        within = f.let(f"and i1 {self._inside(top, a['height'], down)}, {self._inside(left, a['width'], along)}", "c")
        if k.deep:
            within = f.let(f"and i1 {within}, {here}", "c")
        image_row = f.mul(down, a["x_row"])
        before = f.block
        f.branch_if(within, ready, outer)
        f.label(outer)
        self._fill_patch(at, here, top, left)
        filled = f.block
        f.branch(ready)
        f.label(ready)
        ways = (("ptr", at, self.patch), ("i64", image_row, self.size * k.block), ("i64", along * k.block, k.block))
        chosen = [f.let(f"phi {kind} [ {image}, %{before} ], [ {patch}, %{filled} ]", "p") for kind, image, patch in ways]
        self._transform_input(chosen[0], to, chosen[1], chosen[2] if along > 1 else str(k.block))
        for loop in reversed(loops):
            if loop is not None:
                f.end(loop)

    def _first_tap(self, number: str, axis: int) -> str:
        """How far the first of three taps of an axis, rows or columns, lies from the first of all."""
        f, spacing = self.f, self.k.spacing[axis]
        parts = axis_taps(self.k.taps[1 + axis], self.k.strides[axis])
        if parts.phases == 1:
            return f.mul(number, TAPS * spacing)
        if parts.threes == 1:
            return number
        phase = f.let(f"udiv i64 {number}, {parts.threes}", "i")
        return f.add(phase, f.mul(f.sub(number, f.mul(phase, parts.threes)), TAPS * spacing))

    def _following(self, tile: _Tile, exists: str) -> _Tile:
        """The next tile if there is one, or the same; without dilations."""
        f, a, k = self.f, self.a, self.k
        step = f.let(f"select i1 {exists}, i64 {k.tile}, i64 0", "i")
        column = f.add(tile.column, step)
        wraps = f.let(f"icmp sge i64 {column}, {a['columns']}", "c")
        row = f.let(f"select i1 {wraps}, i64 {f.add(tile.row, k.tile)}, i64 {tile.row}", "i")
        ends = f.let(f"icmp sge i64 {row}, {a['rows']}", "c")
        return _Tile(
            f.let(f"select i1 {ends}, i64 {f.add(tile.plane, 1)}, i64 {tile.plane}", "i"),
            f.let(f"select i1 {ends}, i64 0, i64 {row}", "i"),
            f.let(f"select i1 {wraps}, i64 0, i64 {column}", "i"),
        )

    def _inside(self, begin: str, size: str, spacing: int) -> str:
        """Whether a tile's inputs along one axis are all there."""
        f = self.f
        starts = f.let(f"icmp sge i64 {begin}, 0", "c")
        ends = f.let(f"icmp slt i64 {f.add(begin, (self.size - 1) * spacing)}, {size}", "c")
        return f.let(f"and i1 {starts}, {ends}", "c")

    def _fill_patch(self, at: str, exists_plane: str, top: str, left: str) -> None:
        """Copy a block of channels of a tile that reaches past the image, with zeros where there is no pixel."""
        f, a, k = self.f, self.a, self.k
        down, along = k.spacing
        exists = [f.let(f"icmp ult i64 {f.add(left, j * along)}, {a['width']}", "c") for j in range(self.size)]
        row = f.loop(0, self.size)
        exists_row = f.let(f"icmp ult i64 {f.add(top, f.mul(row.index, down))}, {a['height']}", "c")
        here = f.let(f"and i1 {exists_plane}, {exists_row}", "c")
        line = f.element(at, "float", f.mul(f.mul(row.index, down), a["x_row"]))
        to = f.element(self.patch, "float", f.mul(row.index, self.size * k.block))
        for j in range(self.size):
            both = f.let(f"and i1 {here}, {exists[j]}", "c")
            pixel = f.let(f"select i1 {both}, ptr {f.element(line, 'float', j * along * k.block)}, ptr {a['zeros']}", "p")
            value = f.let(f"load {self.vector}, ptr {pixel}, align 4", "x")
            f.line(f"store {self.vector} {value}, ptr {f.element(to, 'float', j * k.block)}, align 4")
        f.end(row)

    def _transform_input(self, at: str, to: str, down: str, along: str) -> None:
        """A block of channels of a tile, whose pixels are so far apart."""
        f, k, size = self.f, self.k, range(self.size)
        e = Arithmetic(f, k.block)
        rows = [f.element(at, "float", f.mul(i, down)) for i in size]

        def column(j: int) -> list[str]:
            beside = f.mul(j, along)
            return [f.let(f"load {self.vector}, ptr {f.element(row, 'float', beside)}, align 4", "x") for row in rows]

        lines = transform_columns(INPUTS[k.tile], e, column, self.size)
        for i, line in enumerate(lines):
            for j, value in enumerate(INPUTS[k.tile](e, line)):
                element = f.element(to, "float", f.mul(i * self.size + j, self.v_element))
                f.line(f"store {self.vector} {value}, ptr {element}, align 4")

    def transform_outputs(self, channels: ChannelSet, number: str, first: str, count: str) -> None:
        f, a, k, size = self.f, self.a, self.k, range(self.size)
        e = Arithmetic(f, channels.lanes)
        each = f.loop(0, count)
        tile = self._tile(f.add(first, each.index))
        image, plane = self._image(tile)
        vectors = f.loop(0, channels.vectors if k.dilations == (1, 1) else self._none_outside(tile, channels.vectors))
        block = self.block_of(number, vectors.index)
        at_tile = f.mul(f.add(f.mul(each.index, k.vectors), vectors.index), k.elements * k.block)
        source = f.element(self.m, "float", at_tile)
        bias = f.let(f"load {e.vector}, ptr {f.element(a['bias'], 'float', f.mul(block, k.block))}, align 4", "b")

        def column(j: int) -> list[str]:
            pointers = [f.element(source, "float", (i * self.size + j) * k.block) for i in size]
            return [f.let(f"load {e.vector}, ptr {at_tile}, align 4", "m") for at_tile in pointers]

        lines = transform_columns(OUTPUTS[k.tile], e, column, self.size)
        results = [[e.add(value, bias) for value in OUTPUTS[k.tile](e, line)] for line in lines]
        usual, unusual, after = f.fresh("usual"), f.fresh("unusual"), f.fresh("after")
        f.branch_if(self.all_finite(e, results), usual, unusual)
        f.label(usual)
        self._store(channels, tile, (image, block, plane), results)
        f.branch(after)
        f.label(unusual)
        self._define(channels, tile, (image, block, plane), bias)
        f.branch(after)
        f.label(after)
        f.end(vectors)
        f.end(each)

    def _none_outside(self, tile: _Tile, vectors: int) -> str:
        """So many vectors, or none if the tile begins behind the result."""
        f, a = self.f, self.a
        below, beside = (f.let(f"icmp slt i64 {at}, {a[end]}", "c") for at, end in ((tile.row, "rows"), (tile.column, "columns")))
        return f.let(f"select i1 {f.let(f'and i1 {below}, {beside}', 'c')}, i64 {vectors}, i64 0", "i")

    def _pixels(
        self, channels: ChannelSet, where: tuple[str, str, str], row: str, column: str, pixels: list[str], count: str | None
    ) -> None:
        """The epilogue of neighbouring results; `where` are image, block and plane."""

        def pointers(v: int) -> list[str]:
            return self.operands.at(*where, row, column)

        steps = [self.f.mul(each, self.k.dilations[1]) for each in self.operands.columns]
        channels.tiles.store([pixels], pointers, steps, count)

    def _existing(self, begin: str, end: str, dilation: int) -> str:
        """How many results of a tile that begins inside lie inside."""
        f = self.f
        left = f.sub(end, begin)
        if dilation > 1:
            left = f.let(f"udiv i64 {f.add(left, dilation - 1)}, {dilation}", "i")
        return f.min(left, self.k.tile)

    def _store(self, channels: ChannelSet, tile: _Tile, where: tuple[str, str, str], results: list[list[str]]) -> None:
        """The epilogue of a tile, as far as it lies inside the result."""
        f, a, k = self.f, self.a, self.k
        down, along = k.dilations
        columns = self._existing(tile.column, a["columns"], along) if k.overhangs else None
        for i, pixels in enumerate(results):
            row, after = f.add(tile.row, i * down), ""
            if k.overhangs and i:
                exists, after = f.fresh("exists"), f.fresh("after")
                f.branch_if(f.let(f"icmp slt i64 {row}, {a['rows']}", "c"), exists, after)
                f.label(exists)
            self._pixels(channels, where, row, tile.column, pixels, columns)
            if after:
                f.branch(after)
                f.label(after)

    def _define(self, channels: ChannelSet, tile: _Tile, where: tuple[str, str, str], bias: str) -> None:
        """A tile as the definition of a convolution says, pixel by pixel: rare, so it may be slow."""
        f, a, k, vector = self.f, self.a, self.k, channels.vector
        e = VectorEmitter(f, channels.lanes)
        image, block, plane = where
        first = f.mul(block, k.block)
        lanes = f.min(f.sub(a["outputs"], first), channels.lanes)
        kernels = f.element(a["kernels"], "float", f.mul(first, a["kernel_output"]))
        x = f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(self.group, a["x_group"])))
        steps = k.dilations
        down = f.loop(0, self._existing(tile.row, a["rows"], steps[0]))
        along = f.loop(0, self._existing(tile.column, a["columns"], steps[1]))
        row, column = f.add(tile.row, f.mul(down.index, steps[0])), f.add(tile.column, f.mul(along.index, steps[1]))
        top, left = f.sub(f.mul(row, k.strides[0]), a["top"]), f.sub(f.mul(column, k.strides[1]), a["left"])
        front = self._first_plane(plane)
        channel = f.loop(0, self.channels, carry=[(vector, bias)])
        within = f.let(f"udiv i64 {channel.index}, {k.block}", "i")
        lane = f.sub(channel.index, f.mul(within, k.block))
        source = f.element(x, "float", f.add(f.mul(within, a["x_block"]), lane))
        taps = f.element(kernels, "float", f.mul(channel.index, a["kernel_input"]))
        deep = f.loop(0, k.taps[0], carry=[(vector, channel.carry[0])])
        high = f.loop(0, k.taps[1], carry=[(vector, deep.carry[0])])
        wide = f.loop(0, k.taps[2], carry=[(vector, high.carry[0])])
        coordinates = [(f.add(top, f.mul(high.index, steps[0])), "height", a["x_row"])]
        coordinates.append((f.add(left, f.mul(wide.index, steps[1])), "width", str(k.block)))
        if k.deep:
            coordinates.append((f.add(front, f.mul(deep.index, a["plane_dilation"])), "depth", a["x_plane"]))
        exists, at = "true", "0"
        for coordinate, size, stride in coordinates:
            exists = f.let(f"and i1 {exists}, {f.let(f'icmp ult i64 {coordinate}, {a[size]}', 'c')}", "c")
            at = f.add(at, f.mul(coordinate, stride))
        # Weights meet zeros outside of the image: an infinity or NaN among them makes NaN.
        pointer = f.let(f"select i1 {exists}, ptr {f.element(source, 'float', at)}, ptr {a['zeros']}", "p")
        pixel = e.load_scalar(pointer, "f32")
        tap = f.add(f.mul(high.index, a["kernel_row"]), f.mul(wide.index, a["kernel_column"]))
        if k.deep:
            tap = f.add(tap, f.mul(deep.index, a["kernel_plane"]))
        w = e.load_first(f.element(taps, "float", tap), a["kernel_output"], "f32", lanes)
        total = f.call(vector, f"llvm.fmuladd.v{e.lanes}f32", (vector, pixel), (vector, w), (vector, wide.carry[0]))
        (total,) = f.end(channel, f.end(deep, f.end(high, f.end(wide, [total]))))
        self._pixels(channels, where, row, column, [total], None)
        f.end(along)
        f.end(down)
