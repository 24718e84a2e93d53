"""Winograd's convolution along one axis -> LLVM (see `kernel.conv.winograd.WinogradRowKernel`).

A tile of 4 results of a line with taps by threes reads the pixels 0 .. 5 (first three taps), 3 .. 8 (next three), ..., by fours
0 .. 6, 4 .. 10, ..., each `dilation` apart; a pixel is loaded once for both groups of taps that it belongs to.
"""

from __future__ import annotations

from sardonyx.codegen.conv.conv_tile import inside, maximum
from sardonyx.codegen.conv.winograd import ChannelSet, WinogradEmitter
from sardonyx.codegen.conv.winograd_transforms import INPUTS, OUTPUTS, Arithmetic, finite
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.conv.winograd import WinogradRowKernel
from sardonyx.records import dataclass
from sardonyx.target.target import Target


def emit_winograd_rows(kernel: WinogradRowKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a Winograd convolution along one axis."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _RowEmitter(kernel, function, target).emit()
    return function


@dataclass(frozen=True)
class _Tile:
    """Where a tile lies: image, line, the first column of its tiles and which of them it is."""

    image: str
    line: str
    base: str
    residue: str


class _RowEmitter(WinogradEmitter[WinogradRowKernel]):
    def tap_groups(self, element: str) -> str | int:
        """A group that lacks a tap has nothing at infinity."""
        f, groups = self.f, self.a["tap_groups"]
        if not self.k.lacks_tap:
            return groups
        infinite = f.let(f"icmp eq i64 {element}, {self.k.size - 1}", "c")
        return f.let(f"select i1 {infinite}, i64 {f.sub(groups, 1)}, i64 {groups}", "i")

    def _tile(self, tile: str) -> _Tile:
        f, a = self.f, self.a
        every_line = f.let(f"udiv i64 {tile}, {a['line_tiles']}", "i")
        own = f.sub(tile, f.mul(every_line, a["line_tiles"]))
        image = f.let(f"udiv i64 {every_line}, {a['lines']}", "i")
        number = f.let(f"udiv i64 {own}, {a['dilation']}", "i")
        return _Tile(
            image,
            f.sub(every_line, f.mul(image, a["lines"])),
            f.mul(number, self._reach),
            f.sub(own, f.mul(number, a["dilation"])),
        )

    @property
    def _reach(self) -> str:
        """Columns that tiles with neighbouring starts fill."""
        return self.f.mul(self.a["dilation"], self.k.tile)

    def _following(self, tile: _Tile, exists: str) -> _Tile:
        """The next tile if there is one, or the same."""
        f, a = self.f, self.a
        residue = f.add(tile.residue, f.let(f"zext i1 {exists} to i64", "i"))
        fills = f.let(f"icmp eq i64 {residue}, {a['dilation']}", "c")
        base = f.let(f"select i1 {fills}, i64 {f.add(tile.base, self._reach)}, i64 {tile.base}", "i")
        wraps = f.let(f"icmp sge i64 {base}, {a['columns']}", "c")
        line = f.add(tile.line, f.let(f"zext i1 {wraps} to i64", "i"))
        ends = f.let(f"icmp eq i64 {line}, {a['lines']}", "c")
        return _Tile(
            f.add(tile.image, f.let(f"zext i1 {ends} to i64", "i")),
            f.let(f"select i1 {ends}, i64 0, i64 {line}", "i"),
            f.let(f"select i1 {wraps}, i64 0, i64 {base}", "i"),
            f.let(f"select i1 {fills}, i64 0, i64 {residue}", "i"),
        )

    # Inputs

    def transform_inputs(self, x: str, first: str, count: str) -> None:
        """All tiles of a block, channels outside."""
        f, a, k = self.f, self.a, self.k
        groups = f.let(f"udiv i64 {f.add(count, k.rows - 1)}, {k.rows}", "i")
        last = f.sub(count, 1)
        start = self._tile(first)
        block = f.loop(0, f.add(a["input_blocks"], int(k.tail > 0)))
        x = f.element(x, "float", f.mul(block.index, a["x_block"]))
        v = f.element(self.v, "float", f.mul(block.index, self.v_block))
        group = f.loop(0, groups, carry=[("i64", each) for each in (start.image, start.line, start.base, start.residue)])
        row = f.loop(0, k.rows, carry=[("i64", each) for each in group.carry])
        tile = _Tile(*row.carry)
        to = f.element(v, "float", f.add(f.mul(group.index, self.v_group), f.mul(row.index, k.block)))
        column = f.sub(f.add(tile.base, tile.residue), a["left"])
        line = f.add(f.mul(tile.image, a["x_batch"]), f.mul(tile.line, a["x_line"]))
        at = f.element(f.element(x, "float", line), "float", f.mul(column, a["x_step"]))
        behind = f.add(column, f.mul(a["dilation"], f.add(f.mul(a["tap_groups"], k.taps), k.tile - 2)))
        starts = f.let(f"icmp sge i64 {column}, 0", "c")
        ends = f.let(f"icmp slt i64 {behind}, {a['width']}", "c")
        inner, outer, after = f.fresh("inner"), f.fresh("outer"), f.fresh("after")
        f.branch_if(f.let(f"and i1 {starts}, {ends}", "c"), inner, outer)
        for label, checked in ((inner, ""), (outer, column)):
            f.label(label)
            self._transform_input(at, to, checked)
            f.branch(after)
        f.label(after)
        number = f.add(f.mul(group.index, k.rows), row.index)
        following = self._following(tile, f.let(f"icmp slt i64 {number}, {last}", "c"))
        f.end(group, f.end(row, [following.image, following.line, following.base, following.residue]))
        f.end(block)

    def _transform_input(self, at: str, to: str, column: str) -> None:
        """A block of channels of a tile; with `column`, its first one, some of its pixels may not be there."""
        f, a, k = self.f, self.a, self.k
        e = Arithmetic(f, k.block)
        step = f.mul(a["dilation"], a["x_step"])
        shared = k.size - k.taps  # pixels that the next group of taps reads as well

        def load(number: str | int) -> str:
            pointer = f.element(at, "float", f.mul(step, number))
            if column:
                here = f.let(f"icmp ult i64 {f.add(column, f.mul(a['dilation'], number))}, {a['width']}", "c")
                pointer = f.let(f"select i1 {here}, ptr {pointer}, ptr {a['zeros']}", "p")
            return f.let(f"load {self.vector}, ptr {pointer}, align 4", "x")

        def store(group: str, values: list[str]) -> None:
            taps = f.element(to, "float", f.mul(group, self.v_taps))
            for number, value in enumerate(values):
                element = f.element(taps, "float", f.mul(number, self.v_element))
                f.line(f"store {self.vector} {value}, ptr {element}, align 4")

        whole = f.sub(a["tap_groups"], int(k.lacks_tap))
        group = f.loop(0, whole, carry=[(self.vector, load(number)) for number in range(shared)])
        first = f.add(f.mul(group.index, k.taps), shared)
        pixels = [*group.carry, *(load(f.add(first, number)) for number in range(k.taps))]
        store(group.index, INPUTS[k.size](e, pixels))
        left = f.end(group, pixels[k.taps :])
        if k.lacks_tap:
            first = f.add(f.mul(whole, k.taps), shared)
            store(whole, finite(INPUTS[k.size])(e, [*left, *(load(f.add(first, number)) for number in range(k.taps - 1))]))

    # Outputs

    def transform_outputs(self, channels: ChannelSet, number: str, first: str, count: str) -> None:
        f, a, k = self.f, self.a, self.k
        e = Arithmetic(f, channels.lanes)
        start = self._tile(first)
        each = f.loop(0, count, carry=[("i64", one) for one in (start.image, start.line, start.base, start.residue)])
        tile = _Tile(*each.carry)
        column = f.add(tile.base, tile.residue)
        left = f.sub(a["columns"], column)
        exist = f.let(f"sdiv i64 {f.sub(f.add(left, a['dilation']), 1)}, {a['dilation']}", "i")
        pixels = maximum(f, f.min(exist, k.tile), 0)
        vectors = f.loop(0, f.let(f"select i1 {f.let(f'icmp sgt i64 {pixels}, 0', 'c')}, i64 {channels.vectors}, i64 0", "i"))
        block = self.block_of(number, vectors.index)
        at_tile = f.mul(f.add(f.mul(each.index, k.vectors), vectors.index), k.elements * k.block)
        source = f.element(self.m, "float", at_tile)
        bias = f.let(f"load {e.vector}, ptr {f.element(a['bias'], 'float', f.mul(block, k.block))}, align 4", "b")
        sums = [f.let(f"load {e.vector}, ptr {f.element(source, 'float', i * k.block)}, align 4", "m") for i in range(k.size)]
        results = [e.add(value, bias) for value in OUTPUTS[k.tile, k.size](e, sums)]
        usual, unusual, after = f.fresh("usual"), f.fresh("unusual"), f.fresh("after")
        f.branch_if(self.all_finite(e, [results]), usual, unusual)
        f.label(usual)
        self._pixels(channels, tile, block, column, results, pixels)
        f.branch(after)
        f.label(unusual)
        self._define(channels, tile, block, column, pixels, bias)
        f.branch(after)
        f.label(after)
        f.end(vectors)
        following = self._following(tile, "true")
        f.end(each, [following.image, following.line, following.base, following.residue])

    def _pixels(self, channels: ChannelSet, tile: _Tile, block: str, column: str, results: list[str], count: str | None) -> None:
        f = self.f

        def pointers(v: int) -> list[str]:
            return self.operands.at(tile.image, block, "0", tile.line, column)

        steps = [f.mul(each, self.a["dilation"]) for each in self.operands.columns]
        channels.tiles.store([results], pointers, steps, count)

    def _define(self, channels: ChannelSet, tile: _Tile, block: str, column: str, pixels: str, bias: str) -> None:
        """A tile as the definition of a convolution says, pixel by pixel."""
        f, a, k, vector = self.f, self.a, self.k, channels.vector
        e = VectorEmitter(f, channels.lanes)
        first = f.mul(block, k.block)
        lanes = f.min(f.sub(a["outputs"], first), channels.lanes)
        kernel = f.mul(self.channels, a["taps"])  # elements of one output channel
        kernels = f.element(a["kernels"], "float", f.mul(first, kernel))
        line = f.add(f.mul(tile.image, a["x_batch"]), f.mul(tile.line, a["x_line"]))
        along = f.loop(0, pixels)
        at = f.add(column, f.mul(along.index, a["dilation"]))
        left = f.sub(at, a["left"])
        channel = f.loop(0, self.channels, carry=[(vector, bias)])
        within = f.let(f"udiv i64 {channel.index}, {k.block}", "i")
        lane = f.sub(channel.index, f.mul(within, k.block))
        own = f.element(a["x"], "float", f.mul(self.group, a["x_group"]))
        source = f.element(own, "float", f.add(line, f.add(f.mul(within, a["x_block"]), lane)))
        taps = f.element(kernels, "float", f.mul(channel.index, a["taps"]))
        wide = f.loop(*inside(f, left, a["dilation"], a["width"], a["taps"]), carry=[(vector, channel.carry[0])])
        pixel = f.add(left, f.mul(wide.index, a["dilation"]))
        x = e.load_scalar(f.element(source, "float", f.mul(pixel, a["x_step"])), "f32")
        w = e.load_first(f.element(taps, "float", wide.index), kernel, "f32", lanes)
        total = f.call(vector, f"llvm.fmuladd.v{e.lanes}f32", (vector, x), (vector, w), (vector, wide.carry[0]))
        (total,) = f.end(channel, f.end(wide, [total]))
        self._pixels(channels, tile, block, at, [total], None)
        f.end(along)
