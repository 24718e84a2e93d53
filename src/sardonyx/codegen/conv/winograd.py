"""Winograd's convolution -> LLVM (see `kernel.conv.winograd`).

    for unit in begin .. end:                         (group of channels, block of tiles, set of output channels)
      if the block is new to this call:
        for block of channels, tile, group of taps:   v = B^T x B
      for element, group of tiles:                    m = v w         a matrix product in registers
      for tile of the block, vector of the set:       epilogue(A^T m A + bias)

Tiles that reach past the image are copied first, with zeros where there is no pixel: one transform serves all. Tiles of a dilated
convolution may begin behind the end of the result: they are computed, and not stored. A last group that is not
full is filled with the last tile, so that all that is multiplied is defined.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, Operands, TileStore, in_steps
from sardonyx.codegen.conv.winograd_transforms import INPUTS, OUTPUTS, Arithmetic, finite, transform_columns
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.conv.winograd import AxisTaps, WinogradKernel, WinogradRowKernel
from sardonyx.records import dataclass
from sardonyx.target.target import LINE_NUMBERS, Target


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


class _Part(NamedTuple):
    """Groups of taps of an axis with the same elements: the number of the first, and their first taps."""

    number: int
    firsts: tuple[int, ...]
    is_short: bool


def _parts(axis: AxisTaps) -> list[_Part]:
    parts = (_Part(0, axis.full, False), _Part(len(axis.full), axis.short, True))
    return [part for part in parts if part.firsts]


K = TypeVar("K", WinogradKernel, WinogradRowKernel)


class WinogradEmitter(Generic[K]):
    """Blocks of tiles, and the products; where tiles lie and how they are transformed is up to subclasses."""

    def __init__(self, kernel: K, function: FunctionBuilder, target: Target) -> None:
        self.target = target
        self.k: K = kernel
        self.f = f = function
        self.a = a = Loaded(f, kernel.arguments)
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

    def tap_groups(self, element: str) -> str | int:
        """How many sums of transformed taps are added up for an element."""
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
        element = f.loop(0, k.elements, carry=[("i64", "0")])
        taps = self.tap_groups(element.index)
        size = f.mul(f.mul(self.channels, channels.width), taps)  # of the weights of an element
        w = f.element(weights, "float", element.carry[0])
        following = f.element(w, "float", size)
        v = f.element(self.v, "float", f.mul(element.index, self.v_element))
        m = f.element(self.m, "float", f.mul(element.index, k.block))
        # A last group that is not full is filled: it is one more, unless so few tiles are left that they have a product.
        more = f.let(f"icmp sgt i64 {left}, {k.last_rows}", "c")
        groups = f.add(full, f.let(f"zext i1 {more} to i64", "i"))
        group = f.loop(0, groups)
        self._product(channels, k.rows, (w, v, m), taps, group.index, following)
        f.end(group)
        if k.last_rows:
            few, done = f.fresh("few"), f.fresh("done")
            some = f.let(f"icmp sgt i64 {left}, 0", "c")
            f.branch_if(f.let(f"and i1 {some}, {f.let(f'icmp sle i64 {left}, {k.last_rows}', 'c')}", "c"), few, done)
            f.label(few)
            self._product(channels, k.last_rows, (w, v, m), taps, full, following)
            f.branch(done)
            f.label(done)
        f.end(element, [f.add(element.carry[0], size)])

    def _product(
        self, channels: ChannelSet, rows: int, of: tuple[str, str, str], tap_groups: str | int, group: str, following: str
    ) -> None:
        """One register tile: rows of a group times the vectors of a set. Each group fetches its share of what follows."""
        f, a, k, vector = self.f, self.a, self.k, channels.vector
        w, v, m = of
        v = f.element(v, "float", f.mul(group, self.v_group))
        blocks = f.add(a["input_blocks"], int(k.tail > 0))
        fetched = k.fetched * LINE_NUMBERS  # floats, of the share of a block of channels
        share = f.element(following, "float", f.mul(group, f.mul(f.mul(blocks, tap_groups), fetched)))
        sums = ["zeroinitializer"] * (rows * channels.vectors)
        if k.tail and str(tap_groups) != "1":
            taps = f.loop(0, tap_groups, carry=[(vector, value) for value in sums])
            own_w = f.element(w, "float", f.mul(taps.index, f.mul(self.channels, channels.width)))
            own_v = f.element(v, "float", f.mul(taps.index, self.v_taps))
            own_share = f.element(share, "float", f.mul(taps.index, f.mul(blocks, fetched)))
            sums = f.end(taps, self._runs(channels, rows, a["input_blocks"], (own_w, own_v, own_share), taps.carry))
        else:
            sums = self._runs(channels, rows, f.mul(a["input_blocks"], tap_groups), (w, v, share), sums)
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
        sizes = (k.block * channels.width, self.v_block, k.fetched * LINE_NUMBERS)
        weights, inputs, share = (f.element(one, "float", f.mul(block, size)) for one, size in zip(at, sizes))
        for line in range(k.fetched):
            f.fetch_ahead(f.element(share, "float", line * LINE_NUMBERS))

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
        self.sizes = kernel.groups.sizes
        # Pixels of a tile that reaches past the image: as if they lay inside
        self.patch = function.let(f"alloca [{kernel.elements * kernel.block} x float], align 64", "patch")

    def tap_groups(self, element: str) -> str | int:
        f, groups = self.f, self.k.groups
        row, column = "", ""
        if any(axis.short for axis in groups.axes):
            row = f.let(f"udiv i64 {element}, {self.sizes[1]}", "i")
            column = f.sub(element, f.mul(row, self.sizes[1]))
        counts = [self._groups_of(at, axis) for axis, at in enumerate((row, column))]
        return f.mul(groups.planes, f.mul(*counts))

    def _groups_of(self, at: str, axis: int) -> str | int:
        """How many groups of an axis have an element there: at infinity fewer."""
        parts = self.k.groups.axes[axis]
        if not parts.short:
            return len(parts.firsts)
        infinite = self.f.let(f"icmp eq i64 {at}, {self.sizes[axis] - 1}", "c")
        return self.f.let(f"select i1 {infinite}, i64 {len(parts.full)}, i64 {len(parts.firsts)}", "i")

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
        """A block of channels of a tile, for every group of taps."""
        f, a, k = self.f, self.a, self.k
        deep = f.loop(0, k.groups.planes) if k.groups.planes > 1 else None
        number = "0" if deep is None else deep.index
        here = "true"
        if k.deep:
            plane = f.add(first_plane, f.mul(number, a["plane_dilation"]))
            here = f.let(f"icmp ult i64 {plane}, {a['depth']}", "c")
            source = f.element(source, "float", f.mul(plane, a["x_plane"]))
        down, along = k.groups.axes
        for high in _parts(down):
            for wide in _parts(along):
                self._transform_groups((source, here), to, number, (high, wide), tile)
        if deep is not None:
            f.end(deep)

    def _transform_groups(self, source: tuple[str, str], to: str, plane: str, parts: tuple[_Part, _Part], tile: _Tile) -> None:
        """The groups of taps that have the same elements; `source` is a plane of the image, and whether it exists."""
        f, a, k = self.f, self.a, self.k
        pixels, here = source
        loops = [f.loop(0, len(part.firsts)) if len(part.firsts) > 1 else None for part in parts]
        high, wide = ("0" if loop is None else loop.index for loop in loops)
        top = f.add(f.sub(f.mul(tile.row, k.strides[0]), a["top"]), self._first_tap(high, parts[0], 0))
        left = f.add(f.sub(f.mul(tile.column, k.strides[1]), a["left"]), self._first_tap(wide, parts[1], 1))
        at = f.element(pixels, "float", f.add(f.mul(top, a["x_row"]), f.mul(left, k.block)))
        size = (self.sizes[0] - parts[0].is_short, self.sizes[1] - parts[1].is_short)
        down, along = k.spacing
        outer, ready = f.fresh("outer"), f.fresh("ready")
        within = [self._inside(top, a["height"], (size[0] - 1) * down), self._inside(left, a["width"], (size[1] - 1) * along)]
        inside = f.let(f"and i1 {within[0]}, {within[1]}", "c")
        if k.deep:
            inside = f.let(f"and i1 {inside}, {here}", "c")
        image_row = f.mul(down, a["x_row"])
        before = f.block
        f.branch_if(inside, ready, outer)
        f.label(outer)
        self._fill_patch(at, here, top, left, size)
        filled = f.block
        f.branch(ready)
        f.label(ready)
        ways = (("ptr", at, self.patch), ("i64", image_row, size[1] * k.block), ("i64", along * k.block, k.block))
        chosen = [f.let(f"phi {kind} [ {image}, %{before} ], [ {patch}, %{filled} ]", "p") for kind, image, patch in ways]
        spacing = (chosen[1], chosen[2] if along > 1 else str(k.block))
        numbers = [f.add(part.number, number) for part, number in zip(parts, (high, wide))]
        self._transform_input(chosen[0], to, plane, (numbers[0], numbers[1]), spacing, size)
        for loop in reversed(loops):
            if loop is not None:
                f.end(loop)

    def _first_tap(self, number: str, part: _Part, axis: int) -> str:
        """How far the first tap of a group, rows or columns, lies from the first of all."""
        f, firsts, dilation = self.f, part.firsts, self.k.dilations[axis]
        steps = {after - before for before, after in pairwise(firsts)}
        if len(steps) <= 1:
            return f.add(firsts[0] * dilation, f.mul(number, dilation * sum(steps)))
        found = str(firsts[0] * dilation)
        for index, first in enumerate(firsts[1:], 1):
            here = f.let(f"icmp eq i64 {number}, {index}", "c")
            found = f.let(f"select i1 {here}, i64 {first * dilation}, i64 {found}", "i")
        return found

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

    def _inside(self, begin: str, size: str, reach: int) -> str:
        """Whether a tile's inputs along one axis are all there; the last is so far from the first."""
        f = self.f
        starts = f.let(f"icmp sge i64 {begin}, 0", "c")
        ends = f.let(f"icmp slt i64 {f.add(begin, reach)}, {size}", "c")
        return f.let(f"and i1 {starts}, {ends}", "c")

    def _fill_patch(self, at: str, exists_plane: str, top: str, left: str, size: tuple[int, int]) -> None:
        """Copy a block of channels of a tile that reaches past the image, with zeros where there is no pixel."""
        f, a, k = self.f, self.a, self.k
        rows, columns = size
        down, along = k.spacing
        exists = [f.let(f"icmp ult i64 {f.add(left, j * along)}, {a['width']}", "c") for j in range(columns)]
        row = f.loop(0, rows)
        exists_row = f.let(f"icmp ult i64 {f.add(top, f.mul(row.index, down))}, {a['height']}", "c")
        here = f.let(f"and i1 {exists_plane}, {exists_row}", "c")
        line = f.element(at, "float", f.mul(f.mul(row.index, down), a["x_row"]))
        to = f.element(self.patch, "float", f.mul(row.index, columns * k.block))
        for j in range(columns):
            both = f.let(f"and i1 {here}, {exists[j]}", "c")
            pixel = f.let(f"select i1 {both}, ptr {f.element(line, 'float', j * along * k.block)}, ptr {a['zeros']}", "p")
            value = f.let(f"load {self.vector}, ptr {pixel}, align 4", "x")
            f.line(f"store {self.vector} {value}, ptr {f.element(to, 'float', j * k.block)}, align 4")
        f.end(row)

    def _transform_input(
        self, at: str, to: str, plane: str, group: tuple[str, str], spacing: tuple[str, str], size: tuple[int, int]
    ) -> None:
        """A block of channels of a tile, so many pixels that are so far apart, for a group of taps."""
        f, k = self.f, self.k
        e = Arithmetic(f, k.block)
        rows = [f.element(at, "float", f.mul(i, spacing[0])) for i in range(size[0])]
        down, along = (INPUTS[whole] if own == whole else finite(INPUTS[whole]) for own, whole in zip(size, self.sizes))

        def column(j: int) -> list[str]:
            beside = f.mul(j, spacing[1])
            return [f.let(f"load {self.vector}, ptr {f.element(row, 'float', beside)}, align 4", "x") for row in rows]

        bases: dict[tuple[int, int], str] = {}  # by how many groups down and along have an element
        for i, line in enumerate(transform_columns(down, e, column, size[1])):
            for j, value in enumerate(along(e, line)):
                counts = (self._count(i, 0), self._count(j, 1))
                if counts not in bases:
                    number = f.add(f.mul(f.add(f.mul(plane, counts[0]), group[0]), counts[1]), group[1])
                    bases[counts] = f.element(to, "float", f.mul(number, self.v_taps))
                element = f.element(bases[counts], "float", f.mul(i * self.sizes[1] + j, self.v_element))
                f.line(f"store {self.vector} {value}, ptr {element}, align 4")

    def _count(self, at: int, axis: int) -> int:
        """How many groups of an axis have an element there."""
        parts = self.k.groups.axes[axis]
        return len(parts.full if at == self.sizes[axis] - 1 else parts.firsts)

    def transform_outputs(self, channels: ChannelSet, number: str, first: str, count: str) -> None:
        f, a, k = self.f, self.a, self.k
        rows, columns = self.sizes
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
            pointers = [f.element(source, "float", (i * columns + j) * k.block) for i in range(rows)]
            return [f.let(f"load {e.vector}, ptr {at_tile}, align 4", "m") for at_tile in pointers]

        lines = transform_columns(OUTPUTS[k.tile, rows], e, column, columns)
        results = [[e.add(value, bias) for value in OUTPUTS[k.tile, columns](e, line)] for line in lines]
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
