"""Matrix products -> LLVM: a tile of sums in registers, one row of B and one element of A at a time.

    for tile in begin .. end:                 (batch, group of row blocks, strip, row block by division and remainder)
      switch on its height:
        for k, UNROLL at a time; then one at a time:
          load a row of the strip; for each row of the tile: broadcast A[row, k], multiply and add
      epilogue: in registers if it is short and the strip is full, else from a tile on the stack, by a function of its own

A deep product does so for a block of k at a time (`codegen.depth_blocks`).
A product that fetches brings the next strip to the second cache meanwhile, each tile of a strip its share of it, evenly.
Tiles too low to keep the multipliers busy sum even and odd k apart and join them at the end, always in the same order.
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.depth_blocks import BLOCK, DepthBlocks
from sardonyx.codegen.element_types import constant, intrinsic_suffix, memory_type
from sardonyx.codegen.epilogue import EpilogueEmitter, Sums
from sardonyx.codegen.function import FunctionBuilder, Loop
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, FLOATS
from sardonyx.kernel.matmul.matmul import MatMulKernel, fetching_rows, vector_lanes
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE, Target

_UNROLL: Final = 4  # of low tiles
_TALL: Final = 12  # sums from which on a tile takes one k at a time: with more, loads are moved up and sums leave their registers
_SHORT: Final = 6  # operations up to which an epilogue is written out for every tile height
_FEW_CONSTANTS: Final = 2  # that may take registers from the sums of a tile
_CHAINS: Final = 8  # sums in flight that keep the multipliers busy
_ROWS_A_POINTER: Final = 3  # rows of A reached from one pointer: itself, one and two strides on
_AHEAD: Final = 4096  # bytes that a strip is fetched ahead of its products


def emit_matmul_kernel(kernel: MatMulKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a matrix product."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    MatMulEmitter(kernel, function, target).emit()
    return function


def multiply_add(e: VectorEmitter, a: str, b: str, total: str, kind: str) -> str:
    """total + a * b, in one instruction where the machine has it."""
    vector = e.type(kind)
    if kind not in FLOATS:
        return e.f.let(f"add {vector} {total}, {e.f.let(f'mul {vector} {a}, {b}')}")
    name = f"llvm.fmuladd.{intrinsic_suffix(kind, e.lanes)}"
    return e.f.call(vector, name, (vector, a), (vector, b), (vector, total))


@dataclass(frozen=True)
class TileLoop:
    """How the loop over the depth works on a tile."""

    size: int  # vectors of sums
    sets: int  # of sums, joined at the end
    unroll: int
    offsets: list[tuple[int, str]]  # for each row, which pointer reaches it, and how many bytes on
    masks: list[str] | None  # of B's vectors
    fetches: bool  # the last of the moving pointers is to what is fetched


class MatMulEmitter:
    """Writes the function of a product. What it does for one k, and how it walks along the depth, others may do differently."""

    def __init__(self, kernel: MatMulKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.target = target
        self.lanes = vector_lanes(kernel.type, target)
        self.e = VectorEmitter(f, self.lanes)
        self.strip = kernel.vectors * self.lanes
        self.short = kernel.epilogue.operations <= _SHORT and kernel.epilogue.constants <= _FEW_CONSTANTS
        self.element = memory_type(kernel.type)
        self.bytes = BITS[kernel.type] // 8
        a = Loaded(f, kernel.arguments)
        self.batch, self.rows, self.columns, self.depth, self.group = (
            a.several("batch"), a["rows"], a["columns"], a["depth"], a["group"],
        )  # fmt: skip
        self.take_a(a)
        self.b, (*self.b_batch, self.b_stride) = a.tensor("b")
        self.tiles = a["tiles"] if kernel.grouped else ""
        self.bases: list[str] = []
        self.batch_strides: list[list[str]] = []
        self.row_strides: list[str] = []
        self.column_strides: list[str] = []
        for operand, (base, (*batch, row, column)) in zip(kernel.epilogue.operands, a.tensors("operands")):
            self.bases.append(base)
            self.batch_strides.append(batch)
            self.row_strides.append(row)
            self.column_strides.append({"unit": "1", "zero": "0"}.get(operand.inner, column))
        self.epilogue = EpilogueEmitter(kernel.epilogue, f, self.lanes, target)
        self.ahead = ("", "")  # of a tile that fetches: from where on, and how many bytes for one k
        self.tile = f.let(f"alloca [{kernel.heights[-1] * self.strip} x {self.element}], align 64", "tile")
        most = max(kernel.heights[-1] * kernel.vectors, 2 * _CHAINS)
        self.in_blocks = DepthBlocks(f, self.e.type(kernel.type), most) if kernel.deep else None
        # Byte strides of A, once: the tiles add them up to addresses.
        self.a_row_bytes = f.mul(self.a_row, BITS[self.a_type] // 8)
        self.a_depth_bytes = str(self.bytes) if kernel.unit_depth else f.mul(self.a_depth, self.bytes)

    def take_a(self, a: Loaded) -> None:
        """The argument that describes A."""
        self.a_type = self.k.type  # its strides count elements of this type
        self.a, (*self.a_batch, self.a_row, self.a_depth) = a.tensor("a")

    def emit(self) -> None:
        f, following = self.f, self.f.fresh("next")
        if self.k.grouped:
            from sardonyx.codegen.matmul.experts import grouped_tile, skip_empty  # lazy: few products are of experts

            unit = f.loop("%begin", "%end")
            tile = grouped_tile(f, self.tiles, unit.index, self.ceildiv(self.columns, self.strip))
            batch, strip, row, height = [tile.group], tile.strip, tile.row, tile.height
            skip_empty(f, tile, following)
        else:
            unit, batch, strip, row, height, share = self._tiles_in_order()
        column = f.mul(strip, self.strip)
        count = f.sub(self.columns, column)

        a = self.first_row(batch, row)
        b_start = f.mul(strip, self.b_stride) if self.k.b == "packed" else column
        b = f.element(self.b, memory_type(self.k.b_type), self.offset_of(batch, self.b_batch, b_start, "1"))
        if self.k.fetches:
            self.ahead = self._share_of_next(strip, share, b)
        pointers = []
        for number, operand in enumerate(self.k.epilogue.operands):
            offset = self.offset_of(batch, self.batch_strides[number], row, self.row_strides[number])
            offset = f.add(offset, f.mul(column, self.column_strides[number]))
            pointers.append(f.element(self.bases[number], memory_type(operand.type), offset))

        spilled = f.fresh("spilled")
        full = ""
        if not self.k.whole:
            full = f.let(f"icmp sge i64 {count}, {self.strip}", "c")
        names = {height_: f.fresh(f"rows{height_}_") for height_ in self.k.heights}
        self._switch(height, names)
        for height_, name in names.items():
            f.label(name)
            self._tile(height_, height, a, b, count, full, pointers, following, spilled)
        if not (self.short and self.k.whole and self._exact):
            f.label(spilled)
            self.store_rows(self.tile, height, count, pointers)
            f.branch(following)
        f.label(following)
        f.end(unit)

    def _tiles_in_order(self) -> tuple[Loop, list[str], str, str, str, tuple[str, str]]:
        """The loop over tiles; the batch indices, strip, first row and height of each; which of how many of its strip it is."""
        f = self.f
        blocks = self.ceildiv(self.rows, self.k.rows)
        strips = self.ceildiv(self.columns, self.strip)
        base = f.let(f"udiv i64 {self.rows}, {blocks}", "i")
        higher = f.let(f"urem i64 {self.rows}, {blocks}", "i")
        group_tiles = f.mul(self.group, strips)
        matrix_tiles = f.mul(blocks, strips)

        unit = f.loop("%begin", "%end")
        batch, within = self.decode(unit.index, matrix_tiles)
        group = f.let(f"udiv i64 {within}, {group_tiles}", "i")
        position = f.sub(within, f.mul(group, group_tiles))
        first = f.mul(group, self.group)
        in_group = f.min(f.sub(blocks, first), self.group)
        strip = f.let(f"udiv i64 {position}, {in_group}", "i")
        of_strip = f.sub(position, f.mul(strip, in_group))
        block = f.add(first, of_strip)
        row = f.add(f.mul(block, base), f.min(block, higher))
        is_higher = f.let(f"icmp slt i64 {block}, {higher}", "c")
        height = f.add(base, f.let(f"zext i1 {is_higher} to i64", "i"))
        return unit, batch, strip, row, height, (of_strip, in_group)

    def _share_of_next(self, strip: str, share: tuple[str, str], b: str) -> tuple[str, str]:
        """What a tile brings to the cache: a share of the next strip, of the last one what is there already."""
        f, (number, tiles) = self.f, share
        row_bytes = self.strip * BITS[self.k.b_type] // 8
        bytes_ = f.min(f.let(f"udiv i64 {f.add(tiles, row_bytes - 1)}, {tiles}", "i"), str(CACHE_LINE))
        is_last = f.let(f"icmp sge i64 {f.add(strip, 1)}, {self.ceildiv(self.columns, self.strip)}", "c")
        start = f.mul(f.add(f.mul(number, bytes_), row_bytes), self.strip_rows())
        return f.element(b, "i8", f.let(f"select i1 {is_last}, i64 0, i64 {start}", "i")), bytes_

    def strip_rows(self) -> str:
        """Rows of B in a strip."""
        return self.depth

    def first_row(self, batch: list[str], row: str) -> str:
        """Where a row of A begins."""
        return self.f.element(self.a, memory_type(self.a_type), self.offset_of(batch, self.a_batch, row, self.a_row))

    @property
    def _exact(self) -> bool:
        """Whether every height has a tile of its own."""
        heights = self.k.heights
        return list(heights) == list(range(heights[0], heights[-1] + 1))

    def ceildiv(self, size: str, by: int) -> str:
        """At least 1: a matrix without elements has no tiles, and nothing may be divided by their number."""
        f = self.f
        parts = f.let(f"udiv i64 {f.add(size, by - 1)}, {by}", "i")
        none = f.let(f"icmp eq i64 {parts}, 0", "c")
        return f.let(f"select i1 {none}, i64 1, i64 {parts}", "i")

    def decode(self, unit: str, tiles: str) -> tuple[list[str], str]:
        """The index on each batch axis, and the tile's number in its matrix."""
        f = self.f
        if not self.batch:
            return [], unit
        within = f.let(f"urem i64 {unit}, {tiles}", "i")
        rest = f.let(f"udiv i64 {unit}, {tiles}", "i")
        return f.indices(rest, self.batch), within

    def offset_of(self, batch: list[str], strides: list[str], row: str, row_stride: str) -> str:
        """How many elements on a row of a matrix begins."""
        return self.f.offset(batch, strides, self.f.mul(row, row_stride))

    def _switch(self, height: str, names: dict[int, str]) -> None:
        """Go to the code for the height, or for the next one above."""
        heights = list(names)
        cases = []
        for height_ in range(1, heights[-1]):
            cases.append(f"i64 {height_}, label {names[next(h for h in heights if h >= height_)]}")
        self.f.line(f"switch i64 {height}, label {names[heights[-1]]} [ {' '.join(cases)} ]")

    # One tile

    def _tile(
        self,
        height: int,
        actual: str,
        a: str,
        b: str,
        count: str,
        full: str,
        pointers: list[str],
        following: str,
        spilled: str,
    ) -> None:
        f = self.f
        exact = height == 1 or height - 1 in self.k.heights or height == self.k.heights[0]
        masked = self.k.b == "rows" and not self.k.whole
        if masked:
            ragged, plain = f.fresh("ragged"), f.fresh("plain")
            f.branch_if(full, plain, ragged)
            f.label(ragged)
            self._spill(self._sums(height, actual, a, b, exact, count))
            f.branch(spilled)
            f.label(plain)
        sums = self._sums(height, actual, a, b, exact, None)
        in_registers = self.short and exact
        if in_registers and not self.k.whole and not masked:
            store, spill = f.fresh("store"), f.fresh("spill")
            f.branch_if(full, store, spill)
            f.label(spill)
            self._spill(sums)
            f.branch(spilled)
            f.label(store)
        if in_registers:
            self._store(height, sums, pointers)
            f.branch(following)
        else:
            self._spill(sums)
            f.branch(spilled)

    def _sums(self, height: int, actual: str, a: str, b: str, exact: bool, count: str | None) -> list[str]:
        """The loop over the depth; the sums of the tile, row by row."""
        f, vectors = self.f, self.k.vectors
        size = height * vectors
        unroll = 1 if size >= _TALL else _UNROLL
        sets = 1
        while sets < unroll and size * sets < _CHAINS:
            sets *= 2
        kind = self.e.type(self.k.type)
        masks = None
        if count is not None:
            masks = [self.e.mask_below(f.sub(count, number * self.lanes)) for number in range(vectors)]
        offsets, starts = self.row_pointers(height, actual, a, exact)
        sums = [constant(self.k.type, 0, self.lanes)] * (size * sets)
        fetches = self.k.fetches and height >= fetching_rows(self.target)
        moving = [b, *starts, self.ahead[0]] if fetches else [b, *starts]
        sums = self.accumulate(TileLoop(size, sets, unroll, offsets, masks, fetches), moving, sums)
        add = "fadd" if self.k.type in FLOATS else "add"
        while sets > 1:
            sets //= 2
            sums = [f.let(f"{add} {kind} {sums[n]}, {sums[n + sets * size]}") for n in range(sets * size)]
        return sums

    def accumulate(self, tile: TileLoop, moving: list[str], sums: list[str]) -> list[str]:
        """All products along the depth, added to sums; `moving` are the pointers to B, to rows of A, and to what is fetched."""
        if self.in_blocks is None:
            return self.walk(tile, self.depth, moving, sums)[1]

        def walk(begin: str, depth: str, moving: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            return self.walk(tile, depth, moving, sums)

        return self.in_blocks.sums(self.depth, BLOCK, moving, sums, walk)

    def walk(self, tile: TileLoop, depth: str, moving: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
        """Products along a consecutive depth: where the pointers are afterwards, and the sums."""
        f, kind = self.f, self.e.type(self.k.type)
        sums, done = list(sums), "0"
        for steps in (tile.unroll, 1) if tile.unroll > 1 else (1,):
            used = tile.size * (tile.sets if steps > 1 else 1)
            stop = f.let(f"and i64 {depth}, {-steps}", "i") if steps > 1 else depth
            loop = f.loop(
                done, stop, steps, [*(("ptr", pointer) for pointer in moving), *((kind, value) for value in sums[:used])]
            )
            carried, now = loop.carry[: len(moving)], list(loop.carry[len(moving) :])
            for step in range(steps):
                at = (step * tile.size) % used
                carried, now[at : at + tile.size] = self._step(carried, tile, now[at : at + tile.size], step)
            ended = f.end(loop, [*self._advance(carried, tile, steps), *now])
            moving, sums[:used] = ended[: len(moving)], ended[len(moving) :]
            done = stop
        return moving, sums

    def row_pointers(self, height: int, actual: str, a: str, exact: bool) -> tuple[list[tuple[int, str]], list[str]]:
        """For each row of the tile which pointer reaches it, and how many bytes on; and those pointers."""
        f = self.f
        if not exact:  # rows beyond the last repeat it: their sums are not stored
            last = f.sub(actual, 1)
            starts = [f.element(a, "i8", f.mul(f.min(row, last), self.a_row_bytes)) for row in range(height)]
            return [(row, "0") for row in range(height)], starts
        steps = ["0", self.a_row_bytes, f.mul(self.a_row_bytes, 2)]
        starts = [f.element(a, "i8", f.mul(self.a_row_bytes, row)) for row in range(0, height, _ROWS_A_POINTER)]
        return [(row // _ROWS_A_POINTER, steps[row % _ROWS_A_POINTER]) for row in range(height)], starts

    def _advance(self, moving: list[str], tile: TileLoop, steps: int) -> list[str]:
        """All pointers a number of k further; A that is not consecutive has moved already."""
        f = self.f
        b_type = memory_type(self.k.b_type)
        if self.k.b == "packed":
            b = f.element(moving[0], b_type, self.strip * steps)
        else:
            b = moving[0]  # moved step by step
        if not self.k.unit_depth:
            return [b, *moving[1:]]
        of_a = moving[1:-1] if tile.fetches else moving[1:]
        ahead = [f.element(moving[-1], "i8", f.mul(self.ahead[1], steps))] if tile.fetches else []
        return [b, *(f.element(pointer, "i8", self.bytes * steps) for pointer in of_a), *ahead]

    def _step(self, moving: list[str], tile: TileLoop, sums: list[str], step: int) -> tuple[list[str], list[str]]:
        """One k: all products of a row of the strip with a column of A's tile."""
        f, vectors = self.f, self.k.vectors
        b_type = memory_type(self.k.b_type)
        packed = self.k.b == "packed"
        if tile.fetches:
            f.fetch_ahead(f.element(moving[-1], "i8", f.mul(self.ahead[1], step)))
        if self.k.streams:
            row_bytes = self.strip * BITS[self.k.b_type] // 8
            for line in range(0, row_bytes, CACHE_LINE):
                f.fetch_ahead(f.element(moving[0], "i8", _AHEAD + row_bytes * step + line), 1)
        b_row = []
        for number in range(vectors):
            at = f.element(moving[0], b_type, (self.strip * step if packed else 0) + number * self.lanes)
            b_row.append(self.load_b(at, None if tile.masks is None else tile.masks[number]))
        made = []
        for row, (pointer, offset) in enumerate(tile.offsets):
            at = f.element(moving[1 + pointer], "i8", offset)
            if self.k.unit_depth:
                at = f.element(at, "i8", step * self.bytes)
            value = self.load_a(at)
            for number in range(vectors):
                made.append(self.multiply(value, b_row[number], sums[row * vectors + number]))
        following = list(moving)
        if not packed:
            following[0] = f.element(moving[0], b_type, self.b_stride)
        if not self.k.unit_depth:
            following[1:] = [f.element(pointer_, "i8", self.a_depth_bytes) for pointer_ in moving[1:]]
        return following, made

    # Operands may be more than one vector.

    def load_a(self, at: str) -> tuple[str, ...]:
        """An element of A in every lane."""
        return (self.e.load_scalar(at, self.k.type),)

    def load_b(self, at: str, mask: str | None) -> tuple[str, ...]:
        """A vector of a row of B."""
        return (convert(self.e, self.e.load(at, self.k.b_type, mask), self.k.b_type, self.k.type),)

    def multiply(self, a: tuple[str, ...], b: tuple[str, ...], total: str) -> str:
        """total + a * b."""
        return multiply_add(self.e, a[0], b[0], total, self.k.type)

    # What becomes of the sums

    def _store(self, height: int, sums: list[str], pointers: list[str]) -> None:
        """The epilogue of a whole tile, in registers."""
        vectors = self.k.vectors
        moving, waiting = list(pointers), []
        numbers = self.epilogue.numbers(pointers)
        for row in range(height):
            known = self.epilogue.uniform(moving, numbers)
            for number in range(vectors):
                waiting.append(Sums(sums[row * vectors + number], moving, number * self.lanes, known))
                if len(waiting) == self.epilogue.together:
                    self.epilogue.vectors(waiting, self.k.type, self.column_strides)
                    waiting = []
            if row + 1 < height:
                moving = self._next_row(moving)
        if waiting:
            self.epilogue.vectors(waiting, self.k.type, self.column_strides)

    def _next_row(self, pointers: list[str]) -> list[str]:
        return [
            self.f.element(pointer, memory_type(operand.type), stride)
            for pointer, operand, stride in zip(pointers, self.k.epilogue.operands, self.row_strides)
        ]

    def _spill(self, sums: list[str]) -> None:
        """The tile to the stack, in the order of `sums`."""
        for number, value in enumerate(sums):
            at = self.f.element(self.tile, self.element, number * self.lanes)
            self.e.store(at, value, self.k.type)

    def store_rows(self, tile: str, height: str, count: str, pointers: list[str]) -> None:
        """The epilogue of a tile on the stack: a function of its own, because constants of a long epilogue would otherwise be
        kept in registers that the sums need."""
        f, operands = self.f, self.k.epilogue.operands
        called = f"{f.name}_rows"
        values = [("ptr", tile), ("i64", height), ("i64", count)]
        for pointer, row_stride, column_stride in zip(pointers, self.row_strides, self.column_strides):
            values += [("ptr", pointer), ("i64", row_stride), ("i64", column_stride)]
        f.line(f"call void @{called}({', '.join(f'{kind} {value}' for kind, value in values)})")
        parameters = [("tile", "ptr"), ("height", "i64"), ("count", "i64")]
        for number in range(len(operands)):
            parameters += [(f"p{number}_base", "ptr"), (f"p{number}_row", "i64"), (f"p{number}_column", "i64")]
        g = FunctionBuilder(called, parameters, "noinline nounwind")
        f.companions.append(g)
        strides = [{"unit": "1", "zero": "0"}.get(operand.inner, f"%p{number}_column") for number, operand in enumerate(operands)]
        self._write_rows(g, [f"%p{number}_base" for number in range(len(operands))], strides)

    def _write_rows(self, f: FunctionBuilder, pointers: list[str], strides: list[str]) -> None:
        """Row by row, vector by vector; the last vector may be partly beyond the matrix."""
        e, epilogue = VectorEmitter(f, self.lanes), EpilogueEmitter(self.k.epilogue, f, self.lanes, self.target)
        limit = f.min("%count", self.strip)
        whole = f.let(f"and i64 {limit}, {-self.lanes}", "i")
        rest = f.sub(limit, whole)
        numbers = epilogue.numbers(pointers)
        row = f.loop(0, "%height", 1, [("ptr", pointer) for pointer in ["%tile", *pointers]])
        tile, moving = row.carry[0], row.carry[1:]
        known = epilogue.uniform(moving, numbers)
        begin = "0"
        if epilogue.together > 1 and self.k.vectors > 1:
            begin = f.mul(f.let(f"udiv i64 {limit}, {self.strip}", "i"), self.strip)
            position = f.loop(0, begin, self.strip)
            at = [f.add(position.index, number * self.lanes) for number in range(self.k.vectors)]
            loaded = [e.load(f.element(tile, self.element, each), self.k.type) for each in at]
            epilogue.vectors([Sums(value, moving, each, known) for value, each in zip(loaded, at)], self.k.type, strides)
            f.end(position)
        position = f.loop(begin, whole, self.lanes)
        sums = e.load(f.element(tile, self.element, position.index), self.k.type)
        epilogue.vector(sums, self.k.type, moving, strides, position.index, known=known)
        f.end(position)
        if not self.k.whole:
            some, after = f.fresh("tail"), f.fresh("after")
            f.branch_if(f.let(f"icmp sgt i64 {rest}, 0", "c"), some, after)
            f.label(some)
            sums = e.load(f.element(tile, self.element, whole), self.k.type)
            epilogue.vector(sums, self.k.type, moving, strides, whole, known=known, count=rest)
            f.branch(after)
            f.label(after)
        following = [
            f.element(pointer, memory_type(operand.type), f"%p{number}_row")
            for number, (pointer, operand) in enumerate(zip(moving, self.k.epilogue.operands))
        ]
        f.end(row, [f.element(tile, self.element, self.strip), *following])
