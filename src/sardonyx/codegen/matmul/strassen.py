"""Products by Strassen's algorithm -> LLVM (see `kernel.matmul.strassen`).

    for run of units of one pair of strips in begin .. end:
      for block of the run: where it lies, and whether it is computed plainly
      for each of seven products, block of the run:  P = A B        a tile; the first makes a difference of strips if B is one
      for block of the run:
        the four parts of C of the seven P, if all are numbers; else, and where plain: four tiles over the whole depth
        epilogue of each part

Tiles are functions (`codegen.matmul.tile`): all sum in the same order, whatever their height.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.matmul import MatMulEmitter
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments, Tiles
from sardonyx.kernel.matmul.matmul import fetching_rows, waits_for_strips
from sardonyx.kernel.matmul.strassen import MOST_APART, MOST_BLOCKS, PRODUCTS, SUMS, StrassenKernel
from sardonyx.target.target import Target

_FLOAT_BYTES: Final = 4
_PARTS: Final = 4  # in which a half of a strip is fetched: a tile fetches one
_QUARTERS: Final = 4  # of C: upper left, upper right, lower left, lower right


def emit_strassen_kernel(kernel: StrassenKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a product by Strassen's algorithm."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _StrassenEmitter(kernel, function, target).emit()
    return function


class _Operands(NamedTuple):
    """Of one of the seven products: A and the distance of its rows in bytes, and whether it is one of the sums; B, or what it is
    the difference of; a half of a strip that a later product reads first, to be fetched meanwhile."""

    a: str
    a_row: str
    is_sum: str
    b: str
    subtracted: str = "null"
    ahead: str = "null"


_OPERAND_TYPES: Final = ("ptr", "i64", "i64", "ptr", "ptr", "ptr")


class _Run(NamedTuple):
    """Units that are computed together: blocks of rows, with one pair of strips."""

    first: str  # block, of those of all entries
    blocks: str
    strip: str  # the left one
    has_right: str
    is_last: str  # of those with these strips


class _Block(NamedTuple):
    """A block of rows of the upper half; with it goes one of the lower."""

    entry: str
    row: str
    height: str


class _StrassenEmitter(MatMulEmitter):
    def __init__(self, kernel: StrassenKernel, function: FunctionBuilder, target: Target) -> None:
        super().__init__(kernel, function, target)
        f = function
        self.tiles_of = Tiles(f)
        tile = MatmulTile("f32", self.lanes, kernel.rows, kernel.vectors, step=self.strip, compact=True, deep=kernel.deep)
        self.plain_tile, self.making_tile = replace(tile, fetches=True), replace(tile, difference=True)
        self.lowest = kernel.lowest
        self.tile_size = kernel.rows * self.strip
        self.quarters = f.let(f"alloca [{_QUARTERS * self.tile_size} x float], align 64", "quarters")
        self.is_plain = f.let(f"alloca [{MOST_BLOCKS} x i8]", "plain")
        self.table = f.let(f"alloca [{PRODUCTS * len(_OPERAND_TYPES)} x i64], align 16", "table")
        # Halves of rows and depth; where nothing goes together, the lower half is not there.
        self.pairs_up = f.let(f"icmp sgt i64 {self.together}, 1", "c")
        self.half = f.let(f"udiv i64 {f.sub(f.add(self.rows, self.together), 1)}, {self.together}", "i")
        self.lower = f.sub(self.rows, self.half)
        self.twice = f.sub(self.half, self.lower)  # 1 if the middle row is in both halves
        self.half_depth = f.let(f"lshr i64 {self.depth}, 1", "i")
        self.sum_size = f.mul(self.half, self.half_depth)
        self.blocks = self.ceildiv(self.half, kernel.rows)
        self.base = f.let(f"udiv i64 {self.half}, {self.blocks}", "i")
        self.higher = f.let(f"urem i64 {self.half}, {self.blocks}", "i")

    def take_a(self, a: Loaded) -> None:
        super().take_a(a)
        self.together, self.sums, self.maxima = a["together"], a["sums"], a["maxima"]
        differences, (differences_size,) = a.tensor("differences")
        products, (products_size,) = a.tensor("products")
        self.differences = self.f.own_part(differences, "float", differences_size)
        self.products = self.f.own_part(products, "float", products_size)

    def emit(self) -> None:
        f = self.f
        unit = f.loop("%begin", "%end")
        run = self._run(unit.index)
        unit.step = run.blocks
        self._mark_plain(run)
        paired, finish = f.fresh("paired"), f.fresh("finish")
        f.branch_if(run.has_right, paired, finish)
        f.label(paired)
        self._multiply_halves(run)
        f.branch(finish)
        f.label(finish)
        self._finish(run)
        f.end(unit)

    def _run(self, unit: str) -> _Run:
        """The units from this one on that have its strips, as many as go together."""
        f = self.f
        strips = self.ceildiv(self.columns, self.strip)
        pairs = f.let(f"udiv i64 {f.sub(f.add(strips, self.together), 1)}, {self.together}", "i")
        blocks = self.blocks
        for size in self.batch:
            blocks = f.mul(blocks, size)
        group_units = f.mul(self.group, pairs)
        group = f.let(f"udiv i64 {unit}, {group_units}", "i")
        position = f.sub(unit, f.mul(group, group_units))
        first = f.mul(group, self.group)
        in_group = f.min(f.sub(blocks, first), self.group)
        pair = f.let(f"udiv i64 {position}, {in_group}", "i")
        within = f.sub(position, f.mul(pair, in_group))
        left = f.sub(in_group, within)
        count = f.min(left, f.sub("%end", unit))
        # Two runs of equal length are better than a long one and a short one.
        half = f.let(f"lshr i64 {f.add(count, 1)}, 1", "i")
        is_short = f.let(f"icmp sle i64 {count}, {MOST_BLOCKS}", "c")
        count = f.min(f.let(f"select i1 {is_short}, i64 {count}, i64 {half}", "i"), MOST_BLOCKS)
        strip = f.mul(pair, self.together)
        is_pair = f.let(f"icmp slt i64 {f.add(strip, 1)}, {strips}", "c")
        has_right = f.let(f"and i1 {self.pairs_up}, {is_pair}", "c")
        is_last = f.let(f"icmp eq i64 {count}, {left}", "c")
        return _Run(f.add(first, within), count, strip, has_right, is_last)

    def _block(self, run: _Run, number: str) -> _Block:
        f = self.f
        at = f.add(run.first, number)
        entry = f.let(f"udiv i64 {at}, {self.blocks}", "i")
        block = f.sub(at, f.mul(entry, self.blocks))
        row = f.add(f.mul(block, self.base), f.min(block, self.higher))
        is_higher = f.let(f"icmp slt i64 {block}, {self.higher}", "c")
        return _Block(entry, row, f.add(self.base, f.let(f"zext i1 {is_higher} to i64", "i")))

    def _mark_plain(self, run: _Run) -> None:
        """Note which blocks are computed as the definition says: by magnitudes of rows, or all without a right strip."""
        f = self.f
        f.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.line(f"call void @llvm.memset.p0.i64(ptr {self.is_plain}, i8 1, i64 {MOST_BLOCKS}, i1 false)")
        look, after = f.fresh("look"), f.fresh("looked")
        f.branch_if(run.has_right, look, after)
        f.label(look)
        number = f.loop(0, run.blocks)
        block = self._block(run, number.index)
        maxima = f.element(self.maxima, "float", f.add(f.mul(block.entry, self.rows), block.row))
        row = f.loop(0, block.height, 1, [("i1", "false")])
        upper = f.element(maxima, "float", row.index)
        one, other = (f.let(f"load float, ptr {at}, align 4", "m") for at in (upper, f.element(upper, "float", self.lower)))
        near = []
        for large, small in ((one, other), (other, one)):
            bound = f.let(f"fmul float {small}, {MOST_APART:.1f}")
            near.append(f.let(f"fcmp ole float {large}, {bound}", "c"))
        apart = f.let(f"xor i1 {f.let(f'and i1 {near[0]}, {near[1]}', 'c')}, true", "c")
        (any_apart,) = f.end(row, [f.let(f"or i1 {row.carry[0]}, {apart}", "c")])
        f.line(f"store i8 {f.let(f'zext i1 {any_apart} to i8')}, ptr {f.element(self.is_plain, 'i8', number.index)}")
        f.end(number)
        f.branch(after)
        f.label(after)

    def _is_halved(self, number: str) -> str:
        flag = self.f.let(f"load i8, ptr {self.f.element(self.is_plain, 'i8', number)}")
        return self.f.let(f"icmp eq i8 {flag}, 0", "c")

    def _strips(self, run: _Run) -> tuple[str, str]:
        f = self.f
        left = f.element(self.b, "float", f.mul(run.strip, self.b_stride))
        return left, f.element(left, "float", self.b_stride)

    def _operands(self, run: _Run) -> list[_Operands]:
        """Of the seven products, in the order in which each finds the difference it needs, or is made of."""
        f, made = self.f, self.differences
        b11, b12 = left, right = self._strips(run)
        half_strip = f.mul(self.half_depth, self.strip)
        b21, b22 = (f.element(strip, "float", half_strip) for strip in (left, right))
        a11, a12 = self.a, f.element(self.a, "float", self.half_depth)
        a22 = f.element(a12, "i8", f.mul(self.lower, self.a_row_bytes))
        s1, s2, s3, s4 = (f.element(self.sums, "float", f.mul(number, self.sum_size)) for number in range(SUMS))
        row, sum_row = self.a_row_bytes, f.mul(self.half_depth, _FLOAT_BYTES)
        following = f.element(right, "float", f.let(f"select i1 {run.is_last}, i64 {self.b_stride}, i64 0", "i"))
        return [
            _Operands(a11, row, "0", b11, ahead=b12),
            _Operands(s1, sum_row, "1", b12, b11, b22),  # T1
            _Operands(s2, sum_row, "1", b22, made, b21),  # T2
            _Operands(a22, row, "0", made, b21),  # T4
            # Rows of A have passed through the cache meanwhile: what was read first may have left it.
            _Operands(a12, row, "0", b21, ahead=b22),
            _Operands(s4, sum_row, "1", b22, ahead=b12),
            _Operands(s3, sum_row, "1", b22, b12, following),  # T3
        ]

    def _combined(self, products: list[str]) -> list[str]:
        """The quarters of C, of products in that order."""
        p1, p5, p6, p4, p2, p3, p7 = products
        f, vector = self.f, self.e.type("f32")

        def add(a: str, b: str) -> str:
            return f.let(f"fadd {vector} {a}, {b}")

        shared = add(p1, p6)
        lower = add(shared, p7)
        return [add(p1, p2), add(add(shared, p5), p3), f.let(f"fsub {vector} {lower}, {p4}"), add(lower, p5)]

    def _multiply_halves(self, run: _Run) -> None:
        """The seven products of all blocks that are not plain."""
        f, width = self.f, len(_OPERAND_TYPES)
        for row, operands in enumerate(self._operands(run)):
            for position, (kind, value) in enumerate(zip(_OPERAND_TYPES, operands)):
                f.line(f"store {kind} {value}, ptr {f.element(self.table, 'i64', row * width + position)}, align 8")
        product = f.loop(0, PRODUCTS)
        entry = f.element(self.table, "i64", f.mul(product.index, width))
        a, a_row, is_sum, b, subtracted, ahead = (
            f.let(f"load {kind}, ptr {f.element(entry, 'i64', position)}, align 8", "o")
            for position, kind in enumerate(_OPERAND_TYPES)
        )
        is_given = f.let(f"icmp eq ptr {subtracted}, null", "c")
        factor = f.let(f"select i1 {is_given}, ptr {b}, ptr {self.differences}", "p")
        products = f.element(self.products, "float", f.mul(product.index, MOST_BLOCKS * self.tile_size))
        number = f.loop(0, run.blocks, 1, [("i1", is_given)])
        there = number.carry[0]
        wanted, ready, making, following = (f.fresh(name) for name in ("wanted", "ready", "making", "next"))
        before = f.block
        f.branch_if(self._is_halved(number.index), wanted, following)
        f.label(wanted)
        block = self._block(run, number.index)
        batch, _ = self.decode(block.entry, "1")
        in_a = f.mul(self.offset_of(batch, self.a_batch, block.row, self.a_row), _FLOAT_BYTES)
        in_sums = f.mul(f.add(f.mul(block.entry, f.mul(SUMS, self.sum_size)), f.mul(block.row, self.half_depth)), _FLOAT_BYTES)
        offset = f.let(f"select i1 {f.let(f'icmp ne i64 {is_sum}, 0', 'c')}, i64 {in_sums}, i64 {in_a}", "i")
        arguments = TileArguments(
            c=f.element(products, "float", f.mul(number.index, self.tile_size)),
            c_row=str(self.strip * _FLOAT_BYTES),
            a=f.element(a, "i8", offset),
            a_row=a_row,
            b=factor,
            depth=self.half_depth,
        )
        f.branch_if(there, ready, making)
        f.label(ready)
        self._tile_of(block.height, arguments, self._fetched(ahead, number.index, factor))
        after_ready = f.block
        f.branch(following)
        f.label(making)
        self._making_tile_of(block.height, replace(arguments, b=b), subtracted)
        after_making = f.block
        f.branch(following)
        f.label(following)
        now = f.let(f"phi i1 [ {there}, %{before} ], [ true, %{after_ready} ], [ true, %{after_making} ]", "c")
        f.end(number, [now])
        f.end(product)

    def _fetched(self, ahead: str, block: str, otherwise: str) -> str:
        """What the tile of a block fetches: one of four parts, the first block none of them; or else what is there already."""
        f = self.f
        part = f.sub(block, 1)
        is_part = f.let(f"icmp ult i64 {part}, {_PARTS}", "c")
        is_wanted = f.let(f"and i1 {is_part}, {f.let(f'icmp ne ptr {ahead}, null', 'c')}", "c")
        size = f.mul(self.half_depth, self.strip * _FLOAT_BYTES // _PARTS)
        return f.let(f"select i1 {is_wanted}, ptr {f.element(ahead, 'i8', f.mul(part, size))}, ptr {otherwise}", "p")

    def _following(self, run: _Run, block: str, otherwise: str) -> str:
        """What a tile over the whole depth fetches: where few rows are computed plainly, a part of the next strip."""
        if not waits_for_strips(self.target, self.k.vectors):
            return otherwise
        f = self.f
        is_part = f.let(f"icmp slt i64 {block}, {_PARTS}", "c")
        is_within = f.let(f"icmp slt i64 {f.add(run.strip, 1)}, {self.ceildiv(self.columns, self.strip)}", "c")
        is_plain = f.let(f"xor i1 {self.pairs_up}, true", "c")
        is_wanted = f.let(f"and i1 {is_plain}, {f.let(f'and i1 {is_part}, {is_within}', 'c')}", "c")
        part = f.mul(f.mul(self.depth, self.strip * _FLOAT_BYTES // _PARTS), block)
        ahead = f.element(f.element(otherwise, "float", self.b_stride), "i8", part)
        return f.let(f"select i1 {is_wanted}, ptr {ahead}, ptr {otherwise}", "p")

    def _tile_of(self, height: str, arguments: TileArguments, ahead: str) -> None:
        """Compute a tile. It fetches a part of a strip meanwhile, unless it has so few rows that it waits for its own."""
        f, least, heights = self.f, fetching_rows(self.target), self.k.heights
        low, tall = range(heights[0], min(least, heights[-1] + 1)), range(max(heights[0], least), heights[-1] + 1)
        is_low, is_tall, computed = f.fresh("low"), f.fresh("tall"), f.fresh("computed")
        if low and tall:
            f.branch_if(f.let(f"icmp slt i64 {height}, {least}", "c"), is_low, is_tall)
            f.label(is_low)
        if low:
            self.tiles_of.call_any(replace(self.plain_tile, fetches=False), height, low, arguments)
        if low and tall:
            f.branch(computed)
            f.label(is_tall)
        if tall:
            self.tiles_of.call_any(self.plain_tile, height, tall, arguments, ("ptr", ahead))
        if low and tall:
            f.branch(computed)
            f.label(computed)

    def _making_tile_of(self, height: str, arguments: TileArguments, subtracted: str) -> None:
        more = (("ptr", subtracted), ("ptr", self.differences))
        self.tiles_of.call_any(self.making_tile, height, range(self.lowest, self.k.heights[-1] + 1), arguments, *more)

    def _finish(self, run: _Run) -> None:
        """The parts of C of all blocks."""
        f = self.f
        number = f.loop(0, run.blocks)
        block = self._block(run, number.index)
        combine, store = f.fresh("combine"), f.fresh("store")
        before = f.block
        f.branch_if(self._is_halved(number.index), combine, store)
        f.label(combine)
        is_finite = self._combine(f.element(self.products, "float", f.mul(number.index, self.tile_size)), block.height)
        combined = f.block
        f.branch(store)
        f.label(store)
        done = f.let(f"phi i1 [ false, %{before} ], [ {is_finite}, %{combined} ]", "c")
        quarter = f.loop(0, f.let(f"select i1 {self.pairs_up}, i64 {_QUARTERS}, i64 1", "i"))
        self._quarter(run, block, quarter.index, done, number.index)
        f.end(quarter)
        f.end(number)

    def _combine(self, products: str, height: str) -> str:
        """The parts of C out of seven products, and whether all of them are numbers."""
        f, e, vector = self.f, self.e, self.e.type("f32")
        position = f.loop(0, f.mul(height, self.strip), self.lanes, [(vector, "zeroinitializer")])
        own = f.element(products, "float", position.index)
        loaded = [e.load(f.element(own, "float", number * MOST_BLOCKS * self.tile_size), "f32") for number in range(PRODUCTS)]
        found = self._combined(loaded)
        to = f.element(self.quarters, "float", position.index)
        for number, value in enumerate(found):
            e.store(f.element(to, "float", number * self.tile_size), value, "f32")
        # A sum that is no finite number leaves NaN when it is subtracted from itself.
        total = found[0]
        for value in found[1:]:
            total = f.let(f"fadd {vector} {total}, {value}")
        none = f.let(f"fsub {vector} {total}, {total}")
        (kept,) = f.end(position, [f.let(f"fadd {vector} {position.carry[0]}, {none}")])
        ordered = f.let(f"fcmp ord {vector} {kept}, zeroinitializer")
        return f.call("i1", f"llvm.vector.reduce.and.v{self.lanes}i1", (f"<{self.lanes} x i1>", ordered))

    def _quarter(self, run: _Run, block: _Block, number: str, done: str, in_run: str) -> None:
        """Compute a part of C if that is not done, and store it."""
        f = self.f
        is_right = f.let(f"trunc i64 {number} to i1", "c")
        is_lower = f.let(f"icmp ugt i64 {number}, 1", "c")
        exists = f.let(f"or i1 {f.let(f'xor i1 {is_right}, true', 'c')}, {run.has_right}", "c")
        present, compute, ready, following = (f.fresh(name) for name in ("present", "compute", "computed", "after"))
        f.branch_if(exists, present, following)
        f.label(present)
        batch, _ = self.decode(block.entry, "1")
        row = f.add(block.row, f.let(f"select i1 {is_lower}, i64 {self.lower}, i64 0", "i"))
        tile = f.element(self.quarters, "float", f.mul(number, self.tile_size))
        f.branch_if(done, ready, compute)
        f.label(compute)
        left, right = self._strips(run)
        arguments = TileArguments(
            c=tile,
            c_row=str(self.strip * _FLOAT_BYTES),
            a=self.first_row(batch, row),
            a_row=self.a_row_bytes,
            b=f.let(f"select i1 {is_right}, ptr {right}, ptr {left}", "p"),
            depth=self.depth,
        )
        self._tile_of(block.height, arguments, self._following(run, in_run, arguments.b))
        f.branch(ready)
        f.label(ready)
        # The middle row of an odd number is stored in the upper half, and is the first of the lower one.
        again = f.let(f"and i1 {is_lower}, {f.let(f'icmp eq i64 {block.row}, 0', 'c')}", "c")
        skipped = f.let(f"select i1 {again}, i64 {self.twice}, i64 0", "i")
        column = f.mul(f.add(run.strip, f.let(f"zext i1 {is_right} to i64", "i")), self.strip)
        pointers = []
        for operand, base, strides, row_stride, column_stride in zip(
            self.k.epilogue.operands, self.bases, self.batch_strides, self.row_strides, self.column_strides
        ):
            offset = f.add(self.offset_of(batch, strides, f.add(row, skipped), row_stride), f.mul(column, column_stride))
            pointers.append(f.element(base, memory_type(operand.type), offset))
        stored = f.element(tile, "float", f.mul(skipped, self.strip))
        self.store_rows(stored, f.sub(block.height, skipped), f.sub(self.columns, column), pointers)
        f.branch(following)
        f.label(following)
