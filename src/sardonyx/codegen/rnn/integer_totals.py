"""The product of a hidden state with recurrent weights of 8 bits -> LLVM (see `kernel.rnn.rnn.RecurrentKernel.is_quantized`).

    quantize:  range of the state of all rows, widened to hold 0; for row: bytes, their sum, scale and zero point
    product:   for quad of the depth, block, gate: sums += four bytes of the state * four weights of every lane
               total = (sum - point * sum of bytes - zero point * sum of distances) * scale * scale of the column

The bytes of a row, and behind them its scale, zero point and sum, lie in a plane of the state of their own.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.quant.integer_dots import dot_unsigned_bytes
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.target.target import Target

_QUAD: Final = 4
_LARGEST: Final = 255.0
_FAR: Final = 1e6  # beyond every byte, and still an integer


class IntegerTotals:
    """Emits both parts. `width` are the elements of a row of the state, `columns` the addresses of scales, sums and points."""

    def __init__(
        self, f: FunctionBuilder, lanes: int, target: Target, hidden: str, blocks: str, width: str, columns: list[str]
    ) -> None:
        self.f, self.lanes, self.target = f, lanes, target
        self.e = VectorEmitter(f, lanes, target)
        self.hidden, self.blocks, self.width, self.columns = hidden, blocks, width, columns
        self.quads = f.let(f"udiv i64 {f.add(hidden, _QUAD - 1)}, {_QUAD}", "i")
        self.floats, self.integers = self.e.type("f32"), self.e.type("i32")

    def _scalar(self, pointer: str, kind: str) -> str:
        return self.f.let(f"load {kind}, ptr {pointer}, align 4")

    def _parameter(self, row: str, number: int) -> str:
        return self.f.element(row, "i8", self.f.add(self.width, number * 4))

    def _loaded(self, state: str, block: str) -> tuple[str, str]:
        """A vector of a row of the state, and which of its lanes exist; zeros elsewhere."""
        column = self.f.mul(block, self.lanes)
        mask = self.e.mask_below(self.f.sub(self.hidden, column))
        return self.e.load(self.f.element(state, "float", column), "f32", mask), mask

    def _extreme(self, name: str, a: str, b: str) -> str:
        return self.f.call(self.floats, f"llvm.{name}.v{self.lanes}f32", (self.floats, a), (self.floats, b))

    def quantize(self, rows: str, plane: str, target_plane: str) -> None:
        """The bytes of all rows of a plane, by their range together."""
        f, e, lanes = self.f, self.e, self.lanes
        zero = constant("f32", 0.0, lanes)
        whole = f.loop(0, rows, 1, [(self.floats, zero), (self.floats, zero)])
        block = f.loop(0, self.blocks, 1, [(self.floats, each) for each in whole.carry])
        value, _ = self._loaded(f.element(plane, "float", f.mul(whole.index, self.width)), block.index)
        ends = [self._extreme(name, value, before) for name, before in zip(("minnum", "maxnum"), block.carry)]
        low, high = (
            f.call("float", f"llvm.vector.reduce.{name}.v{lanes}f32", (self.floats, each))
            for name, each in zip(("fmin", "fmax"), f.end(whole, f.end(block, ends)))
        )
        span = f.let(f"fsub float {high}, {low}")
        is_wide = f.let(f"fcmp ogt float {span}, 0.0")
        steps = constant("f32", _LARGEST, 1)
        scale = f.let(f"select i1 {is_wide}, float {f.let(f'fdiv float {span}, {steps}')}, float 1.0")
        negative = f.let(f"fneg float {low}")
        point = self._byte(e.splat(f.let(f"fdiv float {negative}, {scale}"), "float"), constant("i32", 0, lanes))
        scales = e.splat(scale, "float")
        row = f.loop(0, rows)
        start = f.mul(row.index, self.width)
        state, bytes_ = f.element(plane, "float", start), f.element(target_plane, "float", start)
        again = f.loop(0, self.blocks, 1, [(self.integers, constant("i32", 0, lanes))])
        value, mask = self._loaded(state, again.index)
        levels = self._byte(f.let(f"fdiv {self.floats} {value}, {scales}"), point)
        levels = e.choose(mask, levels, constant("i32", 0, lanes), "i32")
        narrow = f.let(f"trunc {self.integers} {levels} to <{lanes} x i8>")
        f.line(f"store <{lanes} x i8> {narrow}, ptr {f.element(bytes_, 'i8', f.mul(again.index, lanes))}, align 1")
        [total] = f.end(again, [f.let(f"add {self.integers} {again.carry[0]}, {levels}")])
        summed = f.call("i32", f"llvm.vector.reduce.add.v{lanes}i32", (self.integers, total))
        single = f.let(f"extractelement {self.integers} {point}, i32 0")
        for number, (kind, found) in enumerate((("float", scale), ("i32", single), ("i32", summed))):
            f.line(f"store {kind} {found}, ptr {self._parameter(bytes_, number)}, align 4")
        f.end(row)

    def _byte(self, quotient: str, point: str) -> str:
        """round(quotient) + point, within a byte; what is no number is the least."""
        f, lanes = self.f, self.lanes
        rounded = f.call(self.floats, f"llvm.roundeven.v{lanes}f32", (self.floats, quotient))
        near = self._extreme(
            "minnum", self._extreme("maxnum", rounded, constant("f32", -_FAR, lanes)), constant("f32", _FAR, lanes)
        )
        moved = f.let(f"add {self.integers} {convert(self.e, near, 'f32', 'i32')}, {point}")
        for name, limit in (("smax", 0), ("smin", int(_LARGEST))):
            operands = ((self.integers, moved), (self.integers, constant("i32", limit, lanes)))
            moved = f.call(self.integers, f"llvm.{name}.v{lanes}i32", *operands)
        return moved

    def product(
        self, plane: str, row: str, height: int, weights: str, strip: str, first_block: str, count: int, gates: int, tile: str
    ) -> None:
        """The totals of some rows, for all gates of `count` blocks: vectors [row][block][gate] in the tile.

        `weights` are those of the first block, `strip` the words of a block, `first_block` counts those of all directions.
        """
        f, lanes = self.f, self.lanes
        rows = [f.element(plane, "float", f.mul(f.add(row, number), self.width)) for number in range(height)]
        starts = [f.element(weights, "i32", f.mul(strip, block)) for block in range(count)]
        vectors = count * gates
        nothing = [(self.integers, constant("i32", 0, lanes))] * (height * vectors)
        quad = f.loop(0, self.quads, 1, nothing)
        fours = [self.e.load_scalar(f.element(bytes_, "i32", quad.index), "i32") for bytes_ in rows]
        sums = list(quad.carry)
        for number in range(vectors):
            block, gate = divmod(number, gates)
            word = f.element(starts[block], "i32", f.add(f.mul(quad.index, gates * lanes), gate * lanes))
            column_words = self.e.load(word, "i32")
            for index, four in enumerate(fours):
                at = index * vectors + number
                sums[at] = dot_unsigned_bytes(self.e, sums[at], four, column_words, self.target)
        sums = f.end(quad, sums)
        for index, bytes_ in enumerate(rows):
            of_row = sums[index * vectors : (index + 1) * vectors]
            self._totals(bytes_, of_row, f.mul(first_block, gates * lanes), f.element(tile, self.floats, index * vectors))

    def _totals(self, bytes_: str, sums: list[str], column: str, tile: str) -> None:
        """What the sums of a row stand for."""
        f, lanes = self.f, self.lanes
        scale = self.e.splat(self._scalar(self._parameter(bytes_, 0), "float"), "float")
        point, summed = (self.e.splat(self._scalar(self._parameter(bytes_, number), "i32"), "i32") for number in (1, 2))
        for number, products in enumerate(sums):
            scales, distances, points = (f.element(base, "i32", f.add(column, number * lanes)) for base in self.columns)
            left = products
            for factor, base in ((point, distances), (summed, points)):
                taken = f.let(f"mul {self.integers} {factor}, {self.e.load(base, 'i32')}")
                left = f.let(f"sub {self.integers} {left}, {taken}")
            both = f.let(f"fmul {self.floats} {scale}, {self.e.load(scales, 'f32')}")
            total = f.let(f"fmul {self.floats} {f.let(f'sitofp {self.integers} {left} to {self.floats}')}, {both}")
            self.e.store(f.element(tile, self.floats, number), total, "f32")
