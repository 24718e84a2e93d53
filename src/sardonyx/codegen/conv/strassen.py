"""Convolutions of single pixels by Strassen's algorithm -> LLVM (see `kernel.conv.strassen`).

    for unit in begin .. end:                  a band of an image, a pair of sets of output channels
      if the band is another than before: sums of its activations, and which blocks of pixels are computed plainly
      for each of seven products, block of pixels:
        a tile; the first makes a difference of weights if one is needed
        parts of the result that are complete, or a tile over all input channels where plain: bias and epilogue

Tiles are functions (`codegen.matmul.tile`).
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Final, NamedTuple

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conv.conv_tile import Operands
from sardonyx.codegen.epilogue import EpilogueEmitter
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.tile import Ending, MatmulTile, TileArguments, Tiles
from sardonyx.kernel.conv.strassen import BUFFERS, LARGEST, MOST_BLOCKS, StrassenConvKernel
from sardonyx.kernel.matmul.strassen import MOST_APART, PRODUCTS, SUMS
from sardonyx.target.target import Target

_FLOAT_BYTES: Final = 4
_PIXELS: Final = 4  # whose sums are made together
_MAGNITUDE: Final = 0x7FFFFFFF  # the bits of a float but for its sign


def emit_strassen_conv(kernel: StrassenConvKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a convolution by Strassen's algorithm."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _StrassenConvEmitter(kernel, function, target).emit()
    return function


class _Product(NamedTuple):
    """One of the seven: A and the distance of its blocks of channels in bytes; B, or what it is the difference of; half a strip
    that is read later, to be fetched meanwhile; where tiles go, how they end, and what is added then; which parts of the result
    are complete, from one up to another."""

    a: str
    a_block: str
    b: str
    subtracted: str
    ahead: str
    to: str
    ending: int
    one: str
    other: str
    first: int
    end: int

    @property
    def entries(self) -> list[tuple[str, str]]:
        """What a table has of it, with types."""
        return list(zip(_PRODUCT_TYPES, map(str, self)))


_PRODUCT_TYPES: Final = ("ptr", "i64", "ptr", "ptr", "ptr", "ptr", "i64", "ptr", "ptr", "i64", "i64")


class _Band(NamedTuple):
    """Pixels of an image that are computed together."""

    image: str
    first: str  # pixel
    half: str
    lower: str  # first pixel of the lower half, counted from the first one
    blocks: str
    base: str  # pixels of a block, at least
    higher: str  # blocks that have one more
    x: str  # the first pixel


class _StrassenConvEmitter:
    def __init__(self, kernel: StrassenConvKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.a = Loaded(f, kernel.arguments)
        self.epilogue = EpilogueEmitter(kernel.epilogue, f, kernel.block, target)
        self.operands = Operands(kernel.epilogue, f, self.a.tensors("operands"), kernel.block if kernel.dense else None)
        self.vector = self.epilogue.e.type("f32")
        self.strip = kernel.vectors * kernel.block
        self.tallest = kernel.heights[-1]
        self.tile_size = self.tallest * self.strip
        tile = MatmulTile("f32", kernel.block, self.tallest, kernel.vectors, step=self.strip, block=kernel.block)
        self.plain_tile, self.making_tile = replace(tile, fetches=kernel.parts), replace(tile, difference=True)
        self.tiles_of = Tiles(f)
        self.is_plain = f.let(f"alloca [{MOST_BLOCKS} x i8]", "plain")
        self.zeros = f.let(f"alloca [{self.tile_size} x float], align 64", "zeros")
        f.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.line(f"call void @llvm.memset.p0.i64(ptr {self.zeros}, i8 0, i64 {self.tile_size * _FLOAT_BYTES}, i1 false)")
        self.table = f.let(f"alloca [{PRODUCTS * len(_PRODUCT_TYPES)} x i64], align 16", "table")
        self.sums, self.differences, self.products = (
            f.own_part(base, "float", strides[0]) for base, strides in map(self.a.tensor, ("sums", "differences", "products"))
        )

    def emit(self) -> None:
        f, a = self.f, self.a
        unit = f.loop("%begin", "%end", 1, [("i64", "-1")])
        number = f.let(f"udiv i64 {unit.index}, {a['pairs']}", "i")
        pair = f.sub(unit.index, f.mul(number, a["pairs"]))
        band = self._band(number)
        make, made = f.fresh("make"), f.fresh("made")
        f.branch_if(f.let(f"icmp eq i64 {number}, {unit.carry[0]}", "c"), made, make)
        f.label(make)
        self._prepare(band)
        f.branch(made)
        f.label(made)
        flag = f.let(f"load i8, ptr {f.element(a['unlike'], 'i8', pair)}")
        self._multiply(band, pair, f.let(f"icmp eq i8 {flag}, 0", "c"))
        f.end(unit, [number])

    def _band(self, number: str) -> _Band:
        f, a = self.f, self.a
        image = f.let(f"udiv i64 {number}, {a['bands']}", "i")
        own = f.sub(number, f.mul(image, a["bands"]))
        least = f.let(f"udiv i64 {a['pixels']}, {a['bands']}", "i")
        larger = f.let(f"urem i64 {a['pixels']}, {a['bands']}", "i")
        first = f.add(f.mul(own, least), f.min(own, larger))
        is_larger = f.let(f"icmp slt i64 {own}, {larger}", "c")
        size = f.add(least, f.let(f"zext i1 {is_larger} to i64", "i"))
        half = f.let(f"lshr i64 {f.add(size, 1)}, 1", "i")
        blocks = f.let(f"udiv i64 {f.add(half, self.tallest - 1)}, {self.tallest}", "i")
        x = f.element(a["x"], "float", f.add(f.mul(image, a["x_batch"]), f.mul(first, self.k.block)))
        base, higher = (f.let(f"{operation} i64 {half}, {blocks}", "i") for operation in ("udiv", "urem"))
        return _Band(image, first, half, f.sub(size, half), blocks, base, higher, x)

    def _block(self, band: _Band, number: str) -> tuple[str, str]:
        """The first pixel of a block, and how many it has."""
        f = self.f
        row = f.add(f.mul(number, band.base), f.min(number, band.higher))
        is_higher = f.let(f"icmp slt i64 {number}, {band.higher}", "c")
        return row, f.add(band.base, f.let(f"zext i1 {is_higher} to i64", "i"))

    # What all pairs of sets of a band need

    def _prepare(self, band: _Band) -> None:
        """Write the sums [sum][block of channels][pixel of a half] of a band, and note which blocks of pixels are plain."""
        f = self.f
        number = f.loop(0, band.blocks)
        row, height = self._block(band, number.index)
        end = f.add(row, height)
        whole = f.add(row, f.let(f"and i64 {height}, {-_PIXELS}", "i"))
        apart = "false"
        for begin, stop, together in ((row, whole, _PIXELS), (whole, end, 1)):
            pixel = f.loop(begin, stop, together, [("i1", apart)])
            found = pixel.carry[0]
            for one, other in self._add(band, pixel.index, together):
                found = f.let(f"or i1 {found}, {self._are_apart(one, other)}", "c")
            (apart,) = f.end(pixel, [found])
        f.line(f"store i8 {f.let(f'zext i1 {apart} to i8')}, ptr {f.element(self.is_plain, 'i8', number.index)}")
        f.end(number)

    def _add(self, band: _Band, pixel: str, together: int) -> list[tuple[str, str]]:
        """Sums of some pixels and those they are paired with, and the bits of the largest magnitudes of each, lane by lane."""
        f, a, e, block = self.f, self.a, self.epilogue.e, self.k.block
        words, kind = f"<{block} x i32>", self.vector
        upper = f.element(band.x, "float", f.mul(pixel, block))
        lower = f.element(upper, "float", f.mul(band.lower, block))
        to = f.element(self.sums, "float", f.mul(pixel, block))
        far = f.mul(a["half_depth"], a["x_block"])
        size = f.mul(f.mul(a["half_depth"], band.half), block)
        channel = f.loop(0, a["half_depth"], 1, [(words, "zeroinitializer")] * (2 * together))
        across = f.mul(channel.index, a["x_block"])
        at = [f.element(base, "float", offset) for base in (upper, lower) for offset in (across, f.add(across, far))]
        own = f.element(to, "float", f.mul(channel.index, f.mul(band.half, block)))
        mask = f"<{', '.join([f'i32 {_MAGNITUDE}'] * block)}>"
        largest = list(channel.carry)
        for p in range(together):
            a11, a12, a21, a22 = loaded = [e.load(f.element(each, "float", p * block), "f32") for each in at]
            s1 = f.let(f"fadd {kind} {a21}, {a22}")
            s2 = f.let(f"fsub {kind} {s1}, {a11}")
            sums = (s1, s2, f.let(f"fsub {kind} {a11}, {a21}"), f.let(f"fsub {kind} {a12}, {s2}"))
            for position, value in enumerate(sums):
                e.store(f.element(f.element(own, "float", f.mul(position, size)), "float", p * block), value, "f32")
            for position, value in enumerate(loaded):
                bits = f.let(f"and {words} {f.let(f'bitcast {kind} {value} to {words}')}, {mask}")
                half = 2 * p + position // 2
                largest[half] = f.call(words, f"llvm.umax.v{block}i32", (words, largest[half]), (words, bits))
        ended = f.end(channel, largest)
        return list(zip(ended[::2], ended[1::2]))

    def _are_apart(self, one: str, other: str) -> str:
        """Whether magnitudes of two pixels are too different, or too large; as bits NaN are the largest."""
        f, block = self.f, self.k.block
        bits = [f.call("i32", f"llvm.vector.reduce.umax.v{block}i32", (f"<{block} x i32>", each)) for each in (one, other)]
        limit = int.from_bytes(struct.pack("<f", LARGEST), "little")
        values = [f.let(f"bitcast i32 {each} to float") for each in bits]
        apart = [f.let(f"icmp ugt i32 {each}, {limit}", "c") for each in bits]
        for large, small in (values, values[::-1]):
            bound = f.let(f"fmul float {small}, {MOST_APART:.1f}")
            apart.append(f.let(f"fcmp ogt float {large}, {bound}", "c"))
        found = apart[0]
        for each in apart[1:]:
            found = f.let(f"or i1 {found}, {each}", "c")
        return found

    # Products

    def _buffers(self) -> list[str]:
        """Where tiles of all blocks lie: first the four parts of the result."""
        f, size = self.f, MOST_BLOCKS * self.tile_size
        return [f.element(self.products, "float", number * size) for number in range(BUFFERS)]

    def _strips(self, pair: str) -> tuple[str, str]:
        f, a = self.f, self.a
        left = f.element(a["w"], "float", f.mul(f.mul(pair, 2), a["w_set"]))
        return left, f.element(left, "float", a["w_set"])

    def _seven(self, band: _Band, pair: str) -> list[_Product]:
        """The products, in the order in which each finds the difference it needs, or is made of, and what is added to it."""
        f, a, made, block = self.f, self.a, self.differences, self.k.block
        b11, b12 = left, right = self._strips(pair)
        half_strip = f.mul(a["half_depth"], block * self.strip)
        b21, b22 = (f.element(strip, "float", half_strip) for strip in (left, right))
        far = f.mul(a["half_depth"], a["x_block"])
        a11, a12 = band.x, f.element(band.x, "float", far)
        a22 = f.element(a12, "float", f.mul(band.lower, block))
        size = f.mul(f.mul(a["half_depth"], band.half), block)
        s1, s2, s3, s4 = (f.element(self.sums, "float", f.mul(position, size)) for position in range(SUMS))
        across, sum_across = f.mul(a["x_block"], _FLOAT_BYTES), f.mul(band.half, block * _FLOAT_BYTES)
        c11, c12, c21, c22, u = self._buffers()
        following = f.element(right, "float", a["w_set"])
        added, both, twice = (ending.value for ending in Ending)
        return [
            _Product(a11, across, b11, "null", b12, c11, added, "null", "null", 0, 0),
            _Product(s1, sum_across, b12, b11, b22, c22, added, "null", "null", 0, 0),  # T1
            _Product(s2, sum_across, b22, made, b21, u, added, c11, "null", 0, 0),  # T2
            _Product(a22, across, b21, made, "null", c21, added, u, "null", 0, 0),  # -T4
            _Product(a12, across, b21, "null", "null", c11, added, c11, "null", 0, 1),
            _Product(s4, sum_across, b22, "null", "null", c12, both, u, c22, 1, 2),
            _Product(s3, sum_across, b22, b12, following, c21, twice, c21, c22, 2, 4),  # T3
        ]

    def _multiply(self, band: _Band, pair: str, is_alike: str) -> None:
        """The seven products of all blocks, but for those that are plain, and parts of the result as soon as all is there."""
        f, width = self.f, len(_PRODUCT_TYPES)
        for line, product in enumerate(self._seven(band, pair)):
            for position, (kind, value) in enumerate(product.entries):
                f.line(f"store {kind} {value}, ptr {f.element(self.table, 'i64', line * width + position)}, align 8")
        every = f.loop(0, PRODUCTS)
        entry = f.element(self.table, "i64", f.mul(every.index, width))
        chosen = {
            name: f.let(f"load {kind}, ptr {f.element(entry, 'i64', position)}, align 8", "o")
            for position, (name, kind) in enumerate(zip(_Product._fields, _PRODUCT_TYPES))
        }
        is_given = f.let(f"icmp eq ptr {chosen['subtracted']}, null", "c")
        number = f.loop(0, band.blocks, 1, [("i1", is_given)])
        flag = f.let(f"load i8, ptr {f.element(self.is_plain, 'i8', number.index)}")
        is_halved = f.let(f"and i1 {is_alike}, {f.let(f'icmp eq i8 {flag}, 0', 'c')}", "c")
        wanted, finish = f.fresh("wanted"), f.fresh("finish")
        before = f.block
        f.branch_if(is_halved, wanted, finish)
        f.label(wanted)
        self._product(band, pair, chosen, (every.index, number.index), number.carry[0])
        made = f.block
        f.branch(finish)
        f.label(finish)
        there = f.let(f"phi i1 [ {number.carry[0]}, %{before} ], [ true, %{made} ]", "c")
        quarter = f.loop(chosen["first"], chosen["end"])
        self._quarter(band, pair, number.index, quarter.index, is_halved)
        f.end(quarter)
        f.end(number, [there])
        f.end(every)

    def _product(self, band: _Band, pair: str, chosen: dict[str, str], position: tuple[str, str], there: str) -> None:
        """A tile of a product; if the difference of weights it needs is not there, it is made."""
        f, (_, number) = self.f, position
        row, height = self._block(band, number)
        is_given = f.let(f"icmp eq ptr {chosen['subtracted']}, null", "c")
        factor = f.let(f"select i1 {is_given}, ptr {chosen['b']}, ptr {self.differences}", "p")
        to, one, other = (f.element(chosen[name], "float", f.mul(number, self.tile_size)) for name in ("to", "one", "other"))
        is_nothing = f.let(f"icmp eq ptr {chosen['one']}, null", "c")
        one = f.let(f"select i1 {is_nothing}, ptr {self.zeros}, ptr {one}", "p")
        arguments = TileArguments(
            c=to,
            c_row=str(self.strip * _FLOAT_BYTES),
            a=f.element(chosen["a"], "float", f.mul(row, self.k.block)),
            a_row=chosen["a_block"],
            b=factor,
            depth=self.a["half_depth"],
        )
        ending = (("i64", chosen["ending"]), ("ptr", one), ("ptr", other))
        ready, making, done = (f.fresh(name) for name in ("ready", "making", "multiplied"))
        f.branch_if(there, ready, making)
        f.label(ready)
        ahead = self._fetched(band, pair, chosen["ahead"], position, factor)
        self._tile_of(self.plain_tile, height, arguments, *ending, ("ptr", ahead))
        f.branch(done)
        f.label(making)
        given = (("ptr", chosen["subtracted"]), ("ptr", self.differences))
        self._tile_of(self.making_tile, height, replace(arguments, b=chosen["b"]), *ending, *given)
        f.branch(done)
        f.label(done)

    def _tile_of(self, tile: MatmulTile, height: str, arguments: TileArguments, *more: tuple[str, str]) -> None:
        heights = self.k.heights
        self.tiles_of.call_any(tile, height, range(heights[0], heights[-1] + 1), arguments, *more)

    def _fetched(self, band: _Band, pair: str, ahead: str, position: tuple[str, str], otherwise: str) -> str:
        """What the tile of a product and a block fetches, the first block nothing: activations of the next band if there are
        several, or else a part of the weights that come next. Or what is there already."""
        f, a = self.f, self.a
        product, block = position
        pixels = f.mul(a["half_depth"], self.strip // self.k.parts)  # that are as long as what a tile fetches
        part = f.sub(block, 1)
        is_part = f.let(f"icmp ult i64 {part}, {self.k.parts}", "c")
        is_wanted = f.let(f"and i1 {is_part}, {f.let(f'icmp ne ptr {ahead}, null', 'c')}", "c")
        weights = f.element(ahead, "float", f.mul(part, f.mul(pixels, self.k.block)))
        # A stretch of pixels of one block of channels.
        size = f.add(band.half, band.lower)
        in_run = f.let(f"udiv i64 {f.sub(f.add(size, pixels), 1)}, {pixels}", "i")
        stretch = f.add(f.mul(f.add(f.mul(pair, PRODUCTS), product), band.blocks), block)
        run = f.let(f"udiv i64 {stretch}, {in_run}", "i")
        within = f.sub(stretch, f.mul(run, in_run))
        offset = f.add(f.mul(run, a["x_block"]), f.mul(f.add(size, f.mul(within, pixels)), self.k.block))
        activations = f.element(band.x, "float", offset)
        is_left = f.let(f"icmp slt i64 {run}, {f.mul(a['half_depth'], 2)}", "c")
        is_banded = f.let(f"icmp sgt i64 {a['bands']}, 1", "c")
        chosen = f.let(f"select i1 {is_banded}, ptr {activations}, ptr {weights}", "p")
        wanted = f.let(f"select i1 {is_banded}, i1 {is_left}, i1 {is_wanted}", "c")
        return f.let(f"select i1 {wanted}, ptr {chosen}, ptr {otherwise}", "p")

    # Results

    def _quarter(self, band: _Band, pair: str, number: str, quarter: str, done: str) -> None:
        """Compute a part of the result of a block if that is not done, and store it."""
        f, a, block = self.f, self.a, self.k.block
        is_right = f.let(f"and i64 {quarter}, 1", "i")
        is_lower = f.let(f"lshr i64 {quarter}, 1", "i")
        row, height = self._block(band, number)
        row = f.add(row, f.mul(is_lower, band.lower))
        tile = f.element(self.products, "float", f.mul(f.add(f.mul(quarter, MOST_BLOCKS), number), self.tile_size))
        compute, store = f.fresh("compute"), f.fresh("store")
        f.branch_if(done, store, compute)
        f.label(compute)
        left, right = self._strips(pair)
        strip = f.let(f"select i1 {f.let(f'icmp eq i64 {is_right}, 0', 'c')}, ptr {left}, ptr {right}", "p")
        arguments = TileArguments(
            c=tile,
            c_row=str(self.strip * _FLOAT_BYTES),
            a=f.element(band.x, "float", f.mul(row, block)),
            a_row=f.mul(a["x_block"], _FLOAT_BYTES),
            b=strip,
            depth=f.mul(a["half_depth"], 2),
        )
        ending = (("i64", str(Ending.ADDED.value)), ("ptr", self.zeros), ("ptr", self.zeros))
        self._tile_of(self.plain_tile, height, arguments, *ending, ("ptr", strip))
        f.branch(store)
        f.label(store)
        # The middle pixel of an odd number is stored in the upper half, and is the first of the lower one.
        again = f.let(f"and i1 {f.let(f'trunc i64 {is_lower} to i1', 'c')}, {f.let(f'icmp eq i64 {number}, 0', 'c')}", "c")
        skipped = f.let(f"select i1 {again}, i64 {f.sub(band.half, band.lower)}, i64 0", "i")
        first_block = f.mul(f.add(f.mul(pair, 2), is_right), self.k.vectors)
        column = f.add(band.first, row)
        for v in range(self.k.vectors):
            self._store(band, f.add(first_block, v), column, (skipped, height), f.element(tile, "float", v * block))

    def _store(self, band: _Band, channels: str, column: str, pixels: tuple[str, str], sums: str) -> None:
        """One block of channels: sums, the bias and the epilogue."""
        f, e, block = self.f, self.epilogue.e, self.k.block
        bias = e.load(f.element(self.a["bias"], "float", f.mul(channels, block)), "f32")
        bases = self.operands.at(band.image, channels, "0", "0", column)
        pixel = f.loop(*pixels)
        value = e.load(f.element(sums, "float", f.mul(pixel.index, self.strip)), "f32")
        at = [
            f.element(base, kind, f.mul(pixel.index, step))
            for base, kind, step in zip(bases, self.operands.types, self.operands.columns)
        ]
        self.epilogue.vector(f.let(f"fadd {self.vector} {value}, {bias}"), "f32", at, ["1"] * len(at), 0)
        f.end(pixel)
