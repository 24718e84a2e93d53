"""Depthwise convolution, lane-grouped convolution and pools -> LLVM.

for unit in begin .. end:                    (image, plane, band of rows, block, row of the band)
  for tile of pixels in the row:
    for kernel plane and row inside the image:
      for input column of the tile:          loaded once
        for pixel and tap that meet there:   acc[pixel] = acc[pixel] + w[tap] * column   (or the maximum, or the sum)
    epilogue(acc)

The taps of a long kernel row are a loop over some at a time, which are written out as those of a short row are.

With several lanes a group, the weights of a row may not fit the registers. Then all columns of the tile meet the weights of one
lane before those of the next (`lane_by_lane`):

      for lane of each group, input column, pixel and tap that meet there:
        acc[pixel] = acc[pixel] + w[tap][lane] * (column's lane, in all lanes of its group)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Generic, TypeAlias, TypeVar

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Counter, Operands, TileStore, inside
from sardonyx.codegen.element_types import constant
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.conv.window import GlobalPoolKernel, NarrowKernel, Row, WindowKernel
from sardonyx.records import dataclass
from sardonyx.target.target import Target

_GLOBAL_SUMS = 8  # partial results of a global pool, so that one addition need not wait for the one before

Inside: TypeAlias = frozenset[tuple[int, int]]  # (pixel, tap) pairs that lie inside the image


def emit_window(kernel: WindowKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a window kernel."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _WindowEmitter(kernel, function, target).emit()
    return function


@dataclass(frozen=True)
class TileRun:
    """Neighbouring tiles of a row of known width that are alike: as many pixels, and the same of their taps inside."""

    start: int  # first pixel of the first tile
    count: int
    pixels: int
    inside: Inside


def row_tiles(row: Row, pixels: int, taps: int, stride: int, dilation: int) -> list[TileRun]:
    """The tiles of a row, however long it is: a tap of a pixel is inside from one tile on up to another."""
    whole = row.columns // pixels
    edges = {0, whole}
    for p in range(pixels):
        for tap in range(taps):
            before = row.left - p * stride - tap * dilation  # columns from this tap of the first tile to the image
            edges.update(min(max(-(-reach // (pixels * stride)), 0), whole) for reach in (before, before + row.width))

    def run(start: int, count: int, own: int) -> TileRun:
        columns = {(p, tap): (start + p) * stride - row.left + tap * dilation for p in range(own) for tap in range(taps)}
        return TileRun(start, count, own, frozenset(position for position, at in columns.items() if 0 <= at < row.width))

    ordered = sorted(edges)
    runs = [run(first * pixels, end - first, pixels) for first, end in pairwise(ordered)]
    return [*runs, run(whole * pixels, 1, row.columns % pixels)] if row.columns % pixels else runs


@dataclass(frozen=True)
class UnitPosition:
    """Where a unit of work lies: names of i64 values and a pointer."""

    image: str
    block: str
    plane: str
    row: str
    first_plane: str
    first_row: str
    planes: tuple[str, str]
    rows: tuple[str, str]
    source: str
    sums: str  # where the sum of the row lies, or ""


@dataclass(frozen=True)
class _Window:
    """A tile and a kernel row that meet: names of an i64 value and of pointers."""

    pixels: int
    first: str  # input column of the first pixel's first tap
    source: str  # the input row
    weights: str  # of the kernel row, or ""


def _every(pixels: int, taps: int) -> Inside:
    return frozenset((p, tap) for p in range(pixels) for tap in range(taps))


K = TypeVar("K", WindowKernel, NarrowKernel)


class RowEmitter(Generic[K]):
    """Walks over rows of the result in tiles; how a tile is computed is up to `_tile`."""

    def __init__(self, kernel: K, function: FunctionBuilder, target: Target) -> None:
        self.k: K = kernel
        self.f = f = function
        self.vector = f"<{kernel.block} x float>"
        self.e = VectorEmitter(f, kernel.block)
        self.a = Loaded(f, kernel.arguments)
        dense = isinstance(kernel, NarrowKernel) or kernel.dense
        self.operands = Operands(kernel.epilogue, f, self.a.tensors("operands"), kernel.block if dense else None)
        self.tiles = TileStore(EpilogueEmitter(kernel.epilogue, f, kernel.block, target), f, 1, kernel.pixels)

    def emit(self) -> None:
        f, a, k = self.f, self.a, self.k
        units = Counter(f, [a["band"], a["made"], a["bands"], a["planes"]])
        line, block, band, plane, image = units.indices
        row = f.add(f.mul(band, a["band"]), line)
        exists, after = f.fresh("exists"), f.fresh("after")
        f.branch_if(f.let(f"icmp slt i64 {row}, {a['rows']}", "c"), exists, after)  # else the last band is shorter
        f.label(exists)
        first_plane = f.sub(f.mul(plane, a["plane_stride"]), a["front"]) if k.deep else "0"
        planes = inside(f, first_plane, a["plane_dilation"], a["depth"], a["kernel_planes"]) if k.deep else ("0", "1")
        first_row = f.sub(f.mul(row, a["row_stride"]), a["top"])
        position = UnitPosition(
            image,
            block,
            plane,
            row,
            first_plane,
            first_row,
            planes,
            inside(f, first_row, str(k.row_dilation), a["height"], a["kernel_rows"]),
            f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(block, a["x_block"]))),
            self._row_sum(image, block, plane, row),
        )
        if k.row is not None:
            self._known_row(k.row, position)
        else:
            self._any_row(position)
        f.branch(after)
        f.label(after)
        units.end()

    def _row_sum(self, image: str, block: str, plane: str, row: str) -> str:
        """Where the sum of a row lies, zero at first; "" if nobody wants it."""
        f, a, k = self.f, self.a, self.k
        if isinstance(k, NarrowKernel) or not k.row_sums:
            return ""
        index = f.add(f.mul(f.add(f.mul(image, a["made"]), block), a["planes"]), plane)
        at = f.element(a["sums"], "float", f.mul(f.add(f.mul(index, a["rows"]), row), k.block))
        f.line(f"store {self.vector} zeroinitializer, ptr {at}, align 4")
        return at

    def _known_row(self, row: Row, position: UnitPosition) -> None:
        k = self.k
        for run in row_tiles(row, k.pixels, k.taps, k.stride, k.dilation):
            if run.count == 1:
                self._tile(run.pixels, position, str(run.start), run.inside, None)
            else:
                loop = self.f.loop(run.start, run.start + run.count * k.pixels, k.pixels)
                self._tile(run.pixels, position, loop.index, run.inside, None)
                self.f.end(loop)

    def _any_row(self, position: UnitPosition) -> None:
        f, a, k = self.f, self.a, self.k
        loop = f.loop(0, a["columns"], k.pixels)
        first = f.sub(f.mul(loop.index, k.stride), a["left"])
        last = f.add(first, (k.pixels - 1) * k.stride + (k.taps - 1) * k.dilation)
        left = f.sub(a["columns"], loop.index)
        conditions = (
            f.let(f"icmp sge i64 {first}, 0", "c"),
            f.let(f"icmp slt i64 {last}, {a['width']}", "c"),
            f.let(f"icmp sge i64 {left}, {k.pixels}", "c"),
        )
        within = f.let(f"and i1 {conditions[0]}, {conditions[1]}", "c")
        within = f.let(f"and i1 {within}, {conditions[2]}", "c")
        inner, outer, after = f.fresh("inner"), f.fresh("outer"), f.fresh("after")
        f.branch_if(within, inner, outer)
        f.label(inner)
        self._tile(k.pixels, position, loop.index, _every(k.pixels, k.taps), None)
        f.branch(after)
        f.label(outer)
        self._tile(k.pixels, position, loop.index, None, f.min(left, k.pixels))
        f.branch(after)
        f.label(after)
        f.end(loop)

    def _tile(self, pixels: int, position: UnitPosition, column: str, within: Inside | None, count: str | None) -> None:
        """A tile; without `within`, every pixel is looked at when the code runs. With `count`, only so many pixels exist."""
        raise NotImplementedError

    def _meetings(self, pixels: int, taps: int, within: Inside | None) -> dict[int, list[tuple[int, int]]]:
        """Which pixels and taps meet at each input column, counted from the first of the tile."""
        k = self.k
        meetings: dict[int, list[tuple[int, int]]] = {}
        for p in range(pixels):
            for tap in range(taps):
                if within is None or (p, tap) in within:
                    meetings.setdefault(p * k.stride + tap * k.dilation, []).append((p, tap))
        return dict(sorted(meetings.items()))

    def _store(self, sums: list[str], position: UnitPosition, column: str, count: str | None) -> None:
        def pointers(v: int) -> list[str]:
            return self.operands.at(position.image, position.block, position.plane, position.row, column)

        self.tiles.store([sums], pointers, self.operands.columns, count, position.sums)


class _WindowEmitter(RowEmitter[WindowKernel]):
    def _tile(self, pixels: int, position: UnitPosition, column: str, within: Inside | None, count: str | None) -> None:
        f, a, k = self.f, self.a, self.k
        if k.kind == "depthwise":
            at = f.element(a["bias"], "float", f.mul(position.block, k.block))
            start = f.let(f"load {self.vector}, ptr {at}, align 4", "b")
        else:
            start = constant("f32", float("-inf") if k.kind == "max" else 0.0, k.block)
        first = f.sub(f.mul(column, k.stride), a["left"])
        deep = f.loop(*position.planes, carry=[(self.vector, start)] * pixels) if k.deep else None
        number, sums = ("0", [start] * pixels) if deep is None else (deep.index, deep.carry)
        at = f.mul(f.add(position.first_plane, f.mul(number, a["plane_dilation"])), a["x_plane"])
        plane = f.element(position.source, "float", at)
        begin, end = position.rows
        row = f.element(plane, "float", f.mul(f.add(position.first_row, f.mul(begin, k.row_dilation)), a["x_row"]))
        weights = self._kernel_row(position, number, begin)
        # Addresses move along: to be computed again for every row they take longer than the products of a short one.
        moving = [(row, f.mul(a["x_row"], k.row_dilation)), *([(weights, str(k.taps * k.group * k.block))] if weights else [])]
        high = f.loop(begin, end, carry=[*((self.vector, value) for value in sums), *(("ptr", at) for at, _ in moving)])
        source, *own_weights = high.carry[pixels:]
        following = [f.element(at, "float", step) for at, (_, step) in zip(high.carry[pixels:], moving)]
        window = _Window(pixels, first, source, own_weights[0] if own_weights else "")
        sums = (self._written if k.taps <= k.written else self._looped)(window, within, list(high.carry[:pixels]))
        sums = f.end(high, [*sums, *following])[:pixels]
        sums = sums if deep is None else f.end(deep, sums)
        if k.kind == "average":
            sums = self._means(sums, position, column, within)
        self._store(sums, position, column, count)

    def _written(self, window: _Window, within: Inside | None, sums: list[str], taps: int | None = None) -> list[str]:
        """All taps of a kernel row, or the first of it, one after the other."""
        f, a, k = self.f, self.a, self.k
        count = k.taps if taps is None else taps
        base = f.element(window.source, "float", f.mul(window.first, k.block))
        if k.lane_by_lane and within is not None:
            return self._lane_by_lane(base, window, within, sums, count)
        combine = self._combine(window.weights, count)
        for offset, meeting in self._meetings(window.pixels, count, within).items():
            at, valid = f.element(base, "float", offset * k.block), ""
            if within is None:
                valid = f.let(f"icmp ult i64 {f.add(window.first, offset)}, {a['width']}", "c")
                at = f.let(f"select i1 {valid}, ptr {at}, ptr {a['zeros']}", "p")
            x = f.let(f"load {self.vector}, ptr {at}, align 4", "x")
            if valid and k.kind == "max":
                lowest = constant("f32", float("-inf"), k.block)
                x = f.let(f"select i1 {valid}, {self.vector} {x}, {self.vector} {lowest}", "x")
            combine(x, meeting, sums)
        return sums

    def _lane_by_lane(self, base: str, window: _Window, within: Inside, sums: list[str], taps: int) -> list[str]:
        """The taps of a kernel row for one lane of each group after the other: its weights stay in registers."""
        f, k = self.f, self.k
        for lane in range(k.group):
            w = [self._weights_of(window.weights, tap * k.group + lane) for tap in range(taps)]
            for offset, meeting in self._meetings(window.pixels, taps, within).items():
                x = f.let(f"load {self.vector}, ptr {f.element(base, 'float', offset * k.block)}, align 4", "x")
                repeated = self._repeated(x, lane)
                for p, tap in meeting:
                    sums[p] = self._product(repeated, w[tap], sums[p])
        return sums

    def _weights_of(self, row: str, number: int) -> str:
        return self.f.let(f"load {self.vector}, ptr {self.f.element(row, 'float', number * self.k.block)}, align 4", "w")

    def _repeated(self, x: str, lane: int) -> str:
        """One lane of each group, in all lanes of the group."""
        k = self.k
        order = ", ".join(f"i32 {own - own % k.group + lane}" for own in range(k.block))
        return self.f.let(f"shufflevector {self.vector} {x}, {self.vector} poison, <{k.block} x i32> <{order}>")

    def _product(self, x: str, w: str, total: str) -> str:
        vector = self.vector
        return self.f.call(vector, f"llvm.fmuladd.v{self.k.block}f32", (vector, x), (vector, w), (vector, total))

    def _looped(self, window: _Window, within: Inside | None, sums: list[str]) -> list[str]:
        """The taps of a long kernel row, `written` at a time; at a border those that no pixel has inside are left out."""
        f, a, k = self.f, self.a, self.k
        if within is not None:
            whole = k.taps - k.taps % k.written
            sums = self._some_taps(window, within, sums, ("0", str(whole)), k.written)
            rest = k.taps - whole
            return self._written(self._from_tap(window, str(whole)), _every(window.pixels, rest), sums, rest) if rest else sums
        last = f.add(window.first, (window.pixels - 1) * k.stride)
        begin, _ = inside(f, last, str(k.dilation), a["width"], k.taps)
        _, end = inside(f, window.first, str(k.dilation), a["width"], k.taps)
        number = f.let(f"sdiv i64 {f.sub(end, begin)}, {k.written}", "i")
        whole_end = f.add(begin, f.mul(number, k.written))
        sums = self._some_taps(window, within, sums, (begin, whole_end), k.written)
        return self._some_taps(window, within, sums, (whole_end, end), 1)

    def _some_taps(self, window: _Window, within: Inside | None, sums: list[str], taps: tuple[str, str], step: int) -> list[str]:
        loop = self.f.loop(*taps, step, carry=[(self.vector, value) for value in sums])
        inside_taps = None if within is None else _every(window.pixels, step)
        return self.f.end(loop, self._written(self._from_tap(window, loop.index), inside_taps, list(loop.carry), step))

    def _from_tap(self, window: _Window, tap: str) -> _Window:
        """The same tile, of which this tap is the first."""
        f, k = self.f, self.k
        weights = f.element(window.weights, "float", f.mul(tap, k.group * k.block)) if window.weights else ""
        return replace(window, first=f.add(window.first, f.mul(tap, k.dilation)), weights=weights)

    def _kernel_row(self, position: UnitPosition, plane: str, row: str) -> str:
        """Where the weights of a kernel row lie; "" for a pool."""
        f, a, k = self.f, self.a, self.k
        if k.kind != "depthwise":
            return ""
        window = f.mul(f.add(f.mul(plane, a["kernel_rows"]), row), k.taps * k.group * k.block)
        all_taps = f.mul(f.mul(a["kernel_planes"], a["kernel_rows"]), k.taps * k.group * k.block)
        return f.element(a["w"], "float", f.add(f.mul(position.block, all_taps), window))

    def _combine(self, weights: str, taps: int) -> Callable[[str, list[tuple[int, int]], list[str]], None]:
        """What a loaded column does to the sums of the pixels it belongs to."""
        f, k = self.f, self.k
        if k.kind == "average":

            def add(x: str, meetings: list[tuple[int, int]], sums: list[str]) -> None:
                for p, _ in meetings:
                    sums[p] = f.let(f"fadd {self.vector} {sums[p]}, {x}")

            return add
        if k.kind == "max":

            def largest(x: str, meetings: list[tuple[int, int]], sums: list[str]) -> None:
                unknown = f.let(f"fcmp uno {self.vector} {x}, {x}")
                for p, _ in meetings:
                    # The machine's maximum keeps a NaN on its right side; one on the left is put in afterwards.
                    more = f.let(f"fcmp ogt {self.vector} {x}, {sums[p]}")
                    larger = self.e.choose(more, x, sums[p], "f32")
                    sums[p] = self.e.choose(unknown, x, larger, "f32")

            return largest
        w = [self._weights_of(weights, number) for number in range(taps * k.group)]

        def multiply(x: str, meetings: list[tuple[int, int]], sums: list[str]) -> None:
            for lane in range(k.group):
                repeated = x if k.group == 1 else self._repeated(x, lane)
                for p, tap in meetings:
                    sums[p] = self._product(repeated, w[tap * k.group + lane], sums[p])

        return multiply

    def _means(self, sums: list[str], position: UnitPosition, column: str, within: Inside | None) -> list[str]:
        f, a, k = self.f, self.a, self.k
        planes, rows = position.planes, position.rows
        if k.padded:
            front, top = f.add(position.first_plane, a["front"]), f.add(position.first_row, a["top"])
            planes = inside(f, front, a["plane_dilation"], a["padded_depth"], a["kernel_planes"]) if k.deep else planes
            rows = inside(f, top, str(k.row_dilation), a["padded_height"], a["kernel_rows"])
        above = f.mul(f.sub(planes[1], planes[0]), f.sub(rows[1], rows[0]))
        means = []
        for p, total in enumerate(sums):
            columns: str | int
            if k.padded:
                at = f.mul(f.add(column, p), k.stride)
                columns = self._columns_inside(at, a["padded_width"])
            elif within is None:
                at = f.sub(f.mul(f.add(column, p), k.stride), a["left"])
                columns = self._columns_inside(at, a["width"])
            else:
                columns = sum(1 for pixel, _ in within if pixel == p)
            number = f.let(f"sitofp i64 {f.mul(above, columns)} to float")
            means.append(f.let(f"fdiv {self.vector} {total}, {self.e.splat(number, 'float')}"))
        return means

    def _columns_inside(self, first: str, width: str) -> str:
        low, high = inside(self.f, first, str(self.k.dilation), width, self.k.taps)
        return self.f.sub(high, low)


def emit_global_pool(kernel: GlobalPoolKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a global pool."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    vector = f"<{kernel.block} x float>"
    e = VectorEmitter(f, kernel.block)
    a = Loaded(f, kernel.arguments)
    operands = Operands(kernel.epilogue, f, a.tensors("operands"), kernel.block)
    store = TileStore(EpilogueEmitter(kernel.epilogue, f, kernel.block, target), f, 1, 1)
    units = Counter(f, [a["blocks"]])
    block, image = units.indices
    source = f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(block, a["x_block"])))
    start = constant("f32", float("-inf") if kernel.kind == "max" else 0.0, kernel.block)

    def combine(total: str, x: str) -> str:
        if kernel.kind == "average":
            return f.let(f"fadd {vector} {total}, {x}")
        return f.call(vector, f"llvm.maximum.v{kernel.block}f32", (vector, total), (vector, x))

    def step(first: str, totals: list[str]) -> list[str]:
        base = f.element(source, "float", f.mul(first, kernel.block))
        loaded = [
            f.let(f"load {vector}, ptr {f.element(base, 'float', number * kernel.block)}, align 4")
            for number in range(len(totals))
        ]
        return [combine(total, x) for total, x in zip(totals, loaded)]

    whole = f.mul(f.let(f"sdiv i64 {a['pixels']}, {_GLOBAL_SUMS}", "i"), _GLOBAL_SUMS)
    loop = f.loop(0, whole, _GLOBAL_SUMS, carry=[(vector, start)] * _GLOBAL_SUMS)
    totals = f.end(loop, step(loop.index, loop.carry))
    while len(totals) > 1:
        half = len(totals) // 2
        totals = [combine(left, right) for left, right in zip(totals[:half], totals[half:])]
    rest = f.loop(whole, a["pixels"], carry=[(vector, totals[0])])
    (total,) = f.end(rest, step(rest.index, rest.carry))
    if kernel.kind == "average":
        number = f.let(f"sitofp i64 {a['area']} to float")
        total = f.let(f"fdiv {vector} {total}, {e.splat(number, 'float')}")
    store.store([[total]], lambda v: operands.at(image, block, "0", "0", "0"), operands.columns, None)
    units.end()
    return f
