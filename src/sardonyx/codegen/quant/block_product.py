"""Products with weights in blocks -> LLVM (see `kernel.quant.block_product` for how everything lies).

    for tile in begin .. end:               (batch, panel, strips, row block by division and remainder)
      switch on its height:                 (few rows: for each of its strips; else all strips together)
        for each block:
          integers: for each word of the strip's lanes, for each group of bits in it:
            shift and mask the weights; for each row: broadcast its activations, multiply and add
          floats: for each row: sum += float(integers) * (scale of the weights * scale of the row), and the offsets
        sums to a tile on the stack
      epilogue, row by row

The order of summation is that of the blocks, for tiles of any height.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from sardonyx.codegen.arguments import Loaded, MemRef
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder, Loop
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.experts import grouped_tile, skip_empty
from sardonyx.codegen.matmul.matmul import multiply_add
from sardonyx.codegen.quant.integer_dots import dot_bytes, dot_halfwords, dot_pairs, sum_halfwords
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.quant.block_product import PAIRS, WORD, BlockProductKernel, dots_of, has_planes, keeps_sums
from sardonyx.target.target import CACHE_LINE, Target

_WORDS_AT_ONCE: Final = 8  # of a block that are written out; longer blocks have a loop
_AHEAD: Final = 2048  # bytes of weights that tiles have brought from memory meanwhile
_FEW_ROWS: Final = 2  # whose sums always stay in registers, and whose words are written out
_CHAINS: Final = 4  # sums of integers at most that do not wait for each other
_DOTS_OF_CHAIN: Final = 8  # dot products of a block that a further sum is worth


def emit_block_product(kernel: BlockProductKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a product with weights in blocks."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _BlockProductEmitter(kernel, function, target).emit()
    return function


class _Strip(NamedTuple):
    """Where the weights of some columns are."""

    weights: str
    scales: str
    offsets: str


class _BlockProductEmitter:
    def __init__(self, kernel: BlockProductKernel, function: FunctionBuilder, target: Target) -> None:
        self.k, self.f, self.target = kernel, function, target
        f, self.lanes = function, target.lanes
        self.e = VectorEmitter(f, self.lanes)
        self.integers, self.floats = self.e.type("i32"), self.e.type("f32")
        a = Loaded(f, kernel.arguments)
        self.batch, self.rows, self.columns, self.blocks = a.several("batch"), a["rows"], a["columns"], a["blocks"]
        self.levels, self.scales, self.corrections = (a.tensor(name) for name in ("levels", "scales", "corrections"))
        self.between = a["between"]
        self.panel = "" if kernel.grouped else a["panel"]
        self.weights, self.weight_scales, self.offsets = a["weights"], a["weight_scales"], a["offsets"]
        self.tiles = a["tiles"] if kernel.grouped else ""
        self.operands: list[tuple[MemRef, str]] = []
        for operand, tensor in zip(kernel.epilogue.operands, a.tensors("operands")):
            self.operands.append((tensor, {"unit": "1", "zero": "0"}.get(operand.inner, tensor.strides[-1])))
        self.tile = f.let(f"alloca [{kernel.strips * kernel.heights[-1] * self.lanes} x float], align 64", "tile")
        self.level_bytes = kernel.level_bits // 8
        self.dots, self.keeps_sums = dots_of(kernel.bits, target), keeps_sums(target)
        self.planes = 2 if has_planes(kernel.bits, kernel.level_bits, target) else 1

    def emit(self) -> None:
        f, k = self.f, self.k
        strips = self._at_least_one(f.let(f"udiv i64 {f.add(self.columns, self.lanes - 1)}, {self.lanes}", "i"))
        strip_bytes = f.mul(self.blocks, k.words * self.lanes * 4)
        scale_bytes = f.mul(self.blocks, self.lanes * 4)
        following = f.fresh("next")
        if k.grouped:
            unit = f.loop("%begin", "%end")
            tile = grouped_tile(f, self.tiles, unit.index, self._sets(strips))
            indices, strip, row, height = [tile.group], f.mul(tile.strip, k.strips), tile.row, tile.height
            skip_empty(f, tile, following)
            of_all = f.add(f.mul(tile.group, strips), strip)  # among the strips of all groups
        else:
            unit, indices, strip, row, height = self._tiles_in_order(strips)
            of_all = strip
        column = f.mul(strip, self.lanes)
        count = f.min(f.sub(strips, strip), k.strips) if k.strips > 1 else "1"  # the strips that exist
        offset_bytes = f.mul(self.blocks, self.lanes * (1 if k.offsets == "u8" else 4))

        def packed(number: str | int) -> _Strip:
            at = f.add(of_all, number)
            return _Strip(
                f.element(self.weights, "i8", f.mul(at, strip_bytes)),
                f.element(self.weight_scales, "i8", f.mul(at, scale_bytes)),
                f.element(self.offsets, "i8", f.mul(at, offset_bytes)) if k.offsets else "",
            )

        summed = f.fresh("summed")
        names = {each: f.fresh(f"rows{each}_") for each in k.heights}
        cases = [
            f"i64 {each}, label {names[next(higher_ for higher_ in k.heights if higher_ >= each)]}"
            for each in range(1, k.heights[-1])
        ]
        f.line(f"switch i64 {height}, label {names[k.heights[-1]]} [ {' '.join(cases)} ]")
        for each, name in names.items():
            f.label(name)
            beside = [f.element(base, "float", f.offset([*indices, row], own)) for base, own in (self.scales, self.corrections)]
            levels = self._row_pointers(each, indices, row, height)
            if each > _FEW_ROWS or k.strips == 1:
                # Beyond the last strip it is repeated.
                last = f.sub(count, 1)
                self._tile(levels, beside, [packed(f.min(last, number)) for number in range(k.strips)], self.tile)
            else:
                one = f.loop(0, count)
                self._tile(levels, beside, [packed(one.index)], self._sums_of_strip(one.index))
                f.end(one)
            f.branch(summed)
        f.label(summed)
        if k.strips == 1:
            self._store(indices, row, height, column, self.tile)
        else:
            one = f.loop(0, count)
            self._store(indices, row, height, f.add(column, f.mul(one.index, self.lanes)), self._sums_of_strip(one.index))
            f.end(one)
        f.branch(following)
        f.label(following)
        f.end(unit)

    def _sums_of_strip(self, number: str) -> str:
        """Where the sums of one of a tile's strips are."""
        return self.f.element(self.tile, "float", self.f.mul(number, self.k.heights[-1] * self.lanes))

    def _tiles_in_order(self, strips: str) -> tuple[Loop, list[str], str, str, str]:
        """The loop over tiles; the batch indices, first strip, first row and height of each."""
        f, k = self.f, self.k
        row_blocks = self._at_least_one(f.let(f"udiv i64 {f.add(self.rows, k.rows - 1)}, {k.rows}", "i"))
        base = f.let(f"udiv i64 {self.rows}, {row_blocks}", "i")
        higher = f.let(f"urem i64 {self.rows}, {row_blocks}", "i")
        groups = self._sets(strips)
        unit = f.loop("%begin", "%end")
        rest, matrix = self._divided(unit.index, f.mul(row_blocks, groups))
        indices = f.indices(matrix, self.batch)
        within, panel = self._divided(rest, f.mul(self.panel, groups))
        first = f.mul(panel, self.panel)
        block, group = self._divided(within, f.min(f.sub(row_blocks, first), self.panel))
        block, strip = f.add(first, block), f.mul(group, k.strips)
        row = f.add(f.mul(block, base), f.min(block, higher))
        is_higher = f.let(f"icmp slt i64 {block}, {higher}", "c")
        height = f.add(base, f.let(f"zext i1 {is_higher} to i64", "i"))
        return unit, indices, strip, row, height

    def _sets(self, strips: str) -> str:
        """How many tiles are beside each other."""
        return self.f.let(f"udiv i64 {self.f.add(strips, self.k.strips - 1)}, {self.k.strips}", "i")

    def _at_least_one(self, parts: str) -> str:
        """A result without elements has no tiles, and nothing may be divided by their number."""
        none = self.f.let(f"icmp eq i64 {parts}, 0", "c")
        return self.f.let(f"select i1 {none}, i64 1, i64 {parts}", "i")

    def _divided(self, number: str, by: str) -> tuple[str, str]:
        return self.f.let(f"urem i64 {number}, {by}", "i"), self.f.let(f"udiv i64 {number}, {by}", "i")

    def _row_pointers(self, height: int, indices: list[str], row: str, actual: str) -> list[str]:
        """The levels of each row of a tile; beyond the last row that exists it is repeated."""
        f, (base, strides) = self.f, self.levels
        last = f.sub(actual, 1)
        exact = height == 1 or height - 1 in self.k.heights or height == self.k.heights[0]
        rows = [f.add(row, number if exact else f.min(number, last)) for number in range(height)]
        return [f.element(base, f"i{self.k.level_bits}", self.f.offset([*indices, each], strides)) for each in rows]

    # One tile

    def _tile(self, levels: list[str], beside: list[str], strips: Sequence[_Strip], sums_at: str) -> None:
        f, k, lanes, height = self.f, self.k, self.lanes, len(levels)
        zero, many = constant("f32", 0.0, lanes), height * len(strips)
        kept = self.keeps_sums or height <= _FEW_ROWS
        totals_at = [
            f.element(sums_at, "float", (strip * k.heights[-1] + row) * lanes)
            for strip in range(len(strips))
            for row in range(height)
        ]
        if not kept:
            for at in totals_at:
                self.e.store(at, zero, "f32")
        block = f.loop(0, self.blocks, 1, [(self.floats, zero)] * many if kept else [])
        words = [f.element(strip.weights, "i8", f.mul(block.index, k.words * lanes * 4)) for strip in strips]
        first = f.mul(block.index, k.block * self.level_bytes)
        own_scales, corrections = (f.element(each, "float", f.mul(block.index, self.between)) for each in beside)
        if height <= _FEW_ROWS or len(strips) > 1:
            for own, weights in zip(strips, words):
                self._fetch_ahead(weights, f.element(own.scales, "i8", f.mul(block.index, lanes * 4)))
        if k.offsets:
            starts = [lambda: constant("i32", 0, lanes)] * height
        else:
            starts = [partial(self._scalar, f.element(corrections, "i32", number), "i32") for number in range(height)]
        integers = (
            self._pairs(words[0], levels, first, starts) if self.dots == "pairs" else self._integers(words, levels, first, starts)
        )

        column = f.mul(block.index, lanes)
        scales = [self.e.load(f.element(strip.scales, "float", column), "f32") for strip in strips]
        offsets = [self._offsets(strip.offsets, column, scale) for strip, scale in zip(strips, scales)]
        before = block.carry if kept else [self.e.load(each, "f32") for each in totals_at]
        sums = list(before)
        for row in range(height):
            of_row = self._scalar(f.element(own_scales, "float", row), "f32")
            correction = self._scalar(f.element(corrections, "float", row), "f32") if k.offsets else ""
            for strip, (scale, offset) in enumerate(zip(scales, offsets)):
                number = strip * height + row
                both = f.let(f"fmul {self.floats} {scale}, {of_row}")
                whole = f.let(f"sitofp {self.integers} {integers[number]} to {self.floats}")
                sums[number] = multiply_add(self.e, whole, both, sums[number], "f32")
                if k.offsets:
                    sums[number] = multiply_add(self.e, offset, correction, sums[number], "f32")
        if not kept:
            for each, total in zip(totals_at, sums):
                self.e.store(each, total, "f32")
            f.end(block)
            return
        for each, total in zip(totals_at, f.end(block, sums)):
            self.e.store(each, total, "f32")

    def _fetch_ahead(self, weights: str, scales: str) -> None:
        """Few rows take as long as their weights take to come, and the machine by itself stops at the end of every page.

        Where vectors are whole that goes for 4 to 12 rows as well, and many have room for it.
        """
        f = self.f
        for line in range(0, self.k.words * self.lanes * 4, CACHE_LINE):
            f.fetch_ahead(f.element(weights, "i8", _AHEAD + line))
        f.fetch_ahead(f.element(scales, "i8", _AHEAD // self.k.words))

    def _integers(self, weights: Sequence[str], levels: list[str], first: str, starts: Sequence[Callable[[], str]]) -> list[str]:
        """Sums of a block for each strip and row, in lanes of 32 bits all along."""
        f, k, lanes = self.f, self.k, self.lanes
        zero = constant("i32", 0, lanes)
        begun = [start() for start in starts]
        high = [zero] * (len(levels) * (self.planes - 1))  # the sums of high bytes
        integers = (begun + high) * len(weights)
        words, width = k.words, len(integers)
        at_once = self._words_at_once(len(levels))
        integers += [zero] * (width * (self._chains(width) - 1))
        if words > at_once:
            inner = f.loop(0, words, at_once, [(self.integers, value) for value in integers])
            here = [self._moved(each, first, inner.index) for each in weights]
            integers = f.end(inner, self._words([at for at, _ in here], levels, here[0][1], inner.carry, at_once))
        else:
            integers = self._words(weights, levels, first, integers, words)
        while len(integers) > width:
            half = len(integers) // 2
            integers = [f.let(f"add {self.integers} {one}, {other}") for one, other in zip(integers[:half], integers[half:])]
        of_strip = width // len(weights)
        return [each for start in range(0, width, of_strip) for each in self._joined(integers[start : start + of_strip])]

    def _pairs(self, weights: str, levels: list[str], first: str, starts: Sequence[Callable[[], str]]) -> list[str]:
        """The same by dot products in 16 bits, which are widened before they could overflow."""
        f, k, lanes = self.f, self.k, self.lanes
        halves, height = f"<{2 * lanes} x i16>", len(levels)
        words = min(k.words, PAIRS[k.bits] * k.bits // 8)
        zero = constant("i32", 0, lanes)
        outer = f.loop(0, k.words, words, [(self.integers, zero)] * height) if k.words > words else None
        here, there = self._moved(weights, first, outer.index) if outer else (weights, first)
        sums = ["zeroinitializer"] * (height * self.planes)
        at_once = self._words_at_once(height)
        if words > at_once:
            inner = f.loop(0, words, at_once, [(halves, value) for value in sums])
            word, level = self._moved(here, there, inner.index)
            sums = f.end(inner, self._words([word], levels, level, inner.carry, at_once))
        else:
            sums = self._words([here], levels, there, sums, words)
        totals = outer.carry if outer else [zero] * height
        for plane in range(self.planes):
            of_plane = sums[plane * height : (plane + 1) * height]
            totals = [sum_halfwords(self.e, total, each, 256**plane, self.target) for total, each in zip(totals, of_plane)]
        if outer:
            totals = f.end(outer, totals)
        return [f.let(f"add {self.integers} {total}, {start()}") for total, start in zip(totals, starts)]

    def _words_at_once(self, height: int) -> int:
        """How many words are written out. LLVM would put the words of a row together and keep all weights of many in memory."""
        return _WORDS_AT_ONCE if self.keeps_sums or height <= _FEW_ROWS else 1

    def _moved(self, weights: str, first: str, words: str) -> tuple[str, str]:
        """So many words further: the address of weights, and the first level in every row: no row needs an address of its own."""
        f = self.f
        level = f.add(first, f.mul(words, WORD // self.k.bits * self.level_bytes))
        return f.element(weights, "i8", f.mul(words, self.lanes * 4)), level

    def _chains(self, width: int) -> int:
        """Sums of integers that take turns: of few rows each dot product would wait for the one before it."""
        dots = self.k.words * (8 // self.k.bits) * (2 if self.dots == "halfwords" else 1)
        chains = 1
        while chains * 2 <= _CHAINS and chains * 2 * width <= _CHAINS and chains * 2 * _DOTS_OF_CHAIN <= dots:
            chains *= 2
        return chains

    def _offsets(self, offsets: str, position: str, scale: str) -> str:
        """Zero points times scales."""
        f, kind = self.f, self.k.offsets
        if kind != "u8":
            return self.e.load(f.element(offsets, "float", position), "f32") if kind else ""
        points = self.e.load(f.element(offsets, "i8", position), "u8")
        wide = f.let(f"zext {self.e.type('u8')} {points} to {self.integers}")
        return f.let(f"fmul {self.floats} {f.let(f'sitofp {self.integers} {wide} to {self.floats}')}, {scale}")

    def _joined(self, integers: list[str]) -> list[str]:
        """The sums of both planes."""
        if self.planes == 1:
            return integers
        f, kind, eight = self.f, self.integers, constant("i32", 8, self.lanes)
        half = len(integers) // 2
        shifted = [f.let(f"shl {kind} {high}, {eight}") for high in integers[half:]]
        return [f.let(f"add {kind} {low}, {high}") for low, high in zip(integers, shifted)]

    def _scalar(self, pointer: str, kind: str) -> str:
        return self.e.load_scalar(pointer, kind)

    def _words(self, weights: Sequence[str], rows: list[str], level: str, totals: list[str], words: int) -> list[str]:
        """Some words of a block, with the activations of each row that belong to them. Strips share what they read of a row."""
        f, k = self.f, self.k
        levels = [f.element(row, "i8", level) for row in rows]
        of_strip = len(levels) * self.planes
        width = of_strip * len(weights)
        for word in range(words):
            packed = [self.e.load(f.element(each, "i8", word * self.lanes * 4), "i32") for each in weights]
            first = word * (WORD // k.bits)
            for four in range(8 // k.bits):
                start = (first + 4 * four) * self.level_bytes
                if self.dots != "halfwords":
                    dot = dot_bytes if self.dots == "bytes" else dot_pairs
                    parts = [self._masked(each, four * k.bits, 0x01010101) for each in packed]
                    bytes_ = [f.element(each, "i8", start + 4 * plane) for plane in range(self.planes) for each in levels]
                    following = list(totals[:width])
                    for number, each in enumerate(bytes_):
                        level_ = self._scalar(each, "i32")
                        for at, part in zip(range(number, width, of_strip), parts):
                            following[at] = dot(self.e, totals[at], part, level_)
                    totals = [*totals[width:], *following]
                    continue
                for half in range(2):
                    (part,) = (self._masked(each, four * k.bits + 8 * half, 0x00010001) for each in packed)
                    following = [
                        dot_halfwords(
                            self.e, total, part, self._scalar(f.element(each, "i8", start + 4 * half), "i32"), self.target
                        )
                        for total, each in zip(totals, levels)
                    ]
                    totals = [*totals[width:], *following]
        return totals

    def _masked(self, packed: str, shift: int, ones: int) -> str:
        """A weight in each byte or halfword, out of words whose weights begin `shift` bits up."""
        f, mask = self.f, ((1 << self.k.bits) - 1) * ones
        if mask == 0xFFFFFFFF:
            return packed
        moved = f.let(f"lshr {self.integers} {packed}, {constant('i32', shift, self.lanes)}") if shift else packed
        return f.let(f"and {self.integers} {moved}, {constant('i32', mask, self.lanes)}")

    # What becomes of the sums

    def _store(self, indices: list[str], row: str, height: str, column: str, sums: str) -> None:
        f, k = self.f, self.k
        epilogue = EpilogueEmitter(k.epilogue, f, self.lanes, self.target)
        strides = [stride for _, stride in self.operands]
        starts = [
            f.element(tensor.base, memory_type(operand.type), self.f.offset([*indices, row], tensor.strides[:-1]))
            for (tensor, _), operand in zip(self.operands, k.epilogue.operands)
        ]
        count = f.sub(self.columns, column)
        is_full = f.let(f"icmp sge i64 {count}, {self.lanes}", "c")
        full, ragged, stored = f.fresh("full"), f.fresh("ragged"), f.fresh("stored")
        f.branch_if(is_full, full, ragged)
        for label, limit in ((full, None), (ragged, count)):
            f.label(label)
            line = f.loop(0, height, 1, [("ptr", sums), *(("ptr", start) for start in starts)])
            tile, pointers = line.carry[0], line.carry[1:]
            known = epilogue.uniform(pointers)
            epilogue.vector(self.e.load(tile, "f32"), "f32", pointers, strides, column, known=known, count=limit)
            following = [
                f.element(pointer, memory_type(operand.type), tensor.strides[-2])
                for pointer, operand, (tensor, _) in zip(pointers, k.epilogue.operands, self.operands)
            ]
            f.end(line, [f.element(tile, "float", self.lanes), *following])
            f.branch(stored)
        f.label(stored)
