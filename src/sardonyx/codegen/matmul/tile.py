"""Small matrix products as functions of their own, for kernels that need several of them.

A tile is C := A * B with a few rows and a few vectors of columns, summed over the whole depth in registers. It is a function
inside the kernel's module: the code around it, however long, then takes no registers from its loop.

A lies along its depth, rows a stride apart, or transposed: along its rows. B lies in strips: row k of a strip is `vectors`
vectors, and the next row is `step` elements on (an argument, if it is not known). C's rows are a stride apart; strips lie next
to each other in it. The order of summation is the same for all tiles: results do not depend on how rows are divided into tiles.
B may also be the difference of two strips, which is stored on the way: whoever needs it next finds it made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sardonyx.codegen.depth_blocks import BLOCK, DepthBlocks
from sardonyx.codegen.element_types import constant, intrinsic_suffix, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE

_UNROLL: Final = 4
_MANY_SUMS: Final = 12  # in flight that need not be unrolled
_QUARTERS: Final = 4
_ROWS_A_POINTER: Final = 3  # rows of A reached from one pointer: itself, one and two strides on
_PARAMETERS: Final = (
    ("c", "ptr"), ("c_row", "i64"), ("a", "ptr"), ("a_row", "i64"), ("b", "ptr"),
    ("b_step", "i64"), ("b_strip", "i64"), ("depth", "i64"),
)  # fmt: skip


@dataclass(frozen=True)
class MatmulTile:
    """What decides the code of a tile's function."""

    type: str
    lanes: int
    rows: int
    vectors: int  # in a row of a strip
    strips: int = 1
    step: int | None = None  # elements from a row of B to the next, if known
    ragged: bool = False  # the last vector is only partly there: one more argument, the number of its lanes
    # Three more arguments: whether there is nothing in C yet; addresses of a factor for each row: of what C holds and is added
    # to, and of the result.
    joined: bool = False
    transposed: bool = False  # A's rows lie beside each other, and `a_row` is the stride along the depth
    # B is what two strips differ by. Two more arguments: the address of what is subtracted, and where the difference is stored,
    # which may be the place of either.
    difference: bool = False
    # One more argument, the last: an address from which on memory is brought to the second cache meanwhile, a quarter of the
    # bytes that the strip has.
    fetches: bool = False
    deep: bool = False  # the depth may be long: it is summed up in blocks (`codegen.depth_blocks`)
    compact: bool = False  # one row of B at a time, if sums are enough to keep the multipliers busy: the code is shorter

    @property
    def name(self) -> str:
        """Of the function."""
        step = "any" if self.step is None else str(self.step)
        kind = f"{'_ragged' if self.ragged else ''}{'_joined' if self.joined else ''}{'_transposed' if self.transposed else ''}"
        kind += (
            f"{'_difference' if self.difference else ''}{'_fetches' if self.fetches else ''}{'_compact' if self.compact else ''}"
            f"{'_deep' if self.deep else ''}"
        )
        return f"tile_{self.type}_{self.rows}x{self.strips}x{self.vectors}_{step}{kind}"


@dataclass(frozen=True)
class TileArguments:
    """Arguments of a tile: strides in bytes."""

    c: str
    c_row: str
    a: str
    a_row: str
    b: str
    depth: str
    b_step: str = "0"
    b_strip: str = "0"


class Tiles:
    """The tiles a kernel calls: each becomes a function of its module when it is first used."""

    def __init__(self, function: FunctionBuilder) -> None:
        self.f = function
        self._made: set[MatmulTile] = set()

    def call(self, tile: MatmulTile, arguments: TileArguments, *more: tuple[str, str]) -> None:
        """Compute one tile; `more` are the further arguments of ragged and joined tiles, with their types."""
        if tile not in self._made:
            self._made.add(tile)
            self.f.companions.append(_TileEmitter(tile).function)
        values = (
            arguments.c,
            arguments.c_row,
            arguments.a,
            arguments.a_row,
            arguments.b,
            arguments.b_step,
            arguments.b_strip,
            arguments.depth,
        )
        given = [f"{kind} {value}" for (_, kind), value in zip(_PARAMETERS, values)] + [f"{kind} {value}" for kind, value in more]
        self.f.line(f"call void @{tile.name}({', '.join(given)})")

    def call_any(self, tile: MatmulTile, height: str, heights: range, arguments: TileArguments, *more: tuple[str, str]) -> None:
        """Compute a tile of a height that is known only at run time."""
        f = self.f
        done = f.fresh("tiled")
        names = {rows: f.fresh(f"rows{rows}_") for rows in heights}
        cases = " ".join(f"i64 {rows}, label {name}" for rows, name in list(names.items())[:-1])
        f.line(f"switch i64 {height}, label {names[heights[-1]]} [ {cases} ]")
        for rows, name in names.items():
            f.label(name)
            self.call(replace(tile, rows=rows), arguments, *more)
            f.branch(done)
        f.label(done)


class _TileEmitter:
    def __init__(self, tile: MatmulTile) -> None:
        self.tile = tile
        parameters = [*_PARAMETERS]
        if tile.ragged:
            parameters.append(("count", "i64"))
        if tile.joined:
            parameters += [("first", "i1"), ("old", "ptr"), ("new", "ptr")]
        if tile.difference:
            parameters += [("subtracted", "ptr"), ("made", "ptr")]
        if tile.fetches:
            parameters.append(("ahead", "ptr"))
        self.function = self.f = FunctionBuilder(tile.name, parameters, "nounwind noinline", "internal")
        self.e = VectorEmitter(self.f, tile.lanes)
        self.kind = self.e.type(tile.type)
        self.element = memory_type(tile.type)
        self.size = BITS[tile.type] // 8
        self.step_bytes = "%b_step" if tile.step is None else str(tile.step * self.size)
        self.mask = self.e.mask_below("%count") if tile.ragged else None
        self._emit()

    @property
    def columns(self) -> int:
        """Vectors of a row of C."""
        return self.tile.strips * self.tile.vectors

    def _emit(self) -> None:
        f, tile = self.f, self.tile
        sums = self._start()
        starts = [f.element("%a", "i8", f.mul("%a_row", row)) for row in range(0, tile.rows, _ROWS_A_POINTER)]
        if tile.transposed:
            starts = ["%a"]
        steps = ["0", "%a_row", f.mul("%a_row", 2)]
        strips = ["0", *(f.mul("%b_strip", number) for number in range(1, tile.strips))]
        beside = ["%subtracted", "%made"] if tile.difference else []  # strips that move along with B
        pointers = ["%b", *beside, *starts]
        ahead = ["%ahead"] if tile.fetches else []

        def walk(begin: str, depth: str, moving: list[str], sums: list[str]) -> tuple[list[str], list[str]]:
            return self._walk(depth, moving, sums, strips, steps)

        if tile.deep:
            blocks = DepthBlocks(f, self.kind, tile.rows * self.columns)
            sums = blocks.sums("%depth", BLOCK, [*pointers, *ahead], sums, walk)
        else:
            sums = walk("0", "%depth", [*pointers, *ahead], sums)[1]
        self._store(sums)

    def _walk(
        self, depth: str, moving: list[str], sums: list[str], strips: list[str], steps: list[str]
    ) -> tuple[list[str], list[str]]:
        """Products along a depth. What moves: B, strips beside it, rows of A, and what is fetched ahead."""
        f, tile = self.f, self.tile
        at_once = 1 if tile.compact and tile.rows * self.columns >= _MANY_SUMS else _UNROLL
        whole = f.let(f"and i64 {depth}, {-_UNROLL}", "i") if at_once > 1 else depth
        of_b = 3 if tile.difference else 1
        pointers, ahead = moving[: len(moving) - int(tile.fetches)], moving[-1]
        for begin, end, unroll in (("0", whole, at_once), (whole, depth, 1))[:at_once]:
            loop = f.loop(begin, end, unroll, [*(("ptr", at) for at in pointers), *((self.kind, value) for value in sums)])
            b_pointers, a_pointers = loop.carry[:of_b], loop.carry[of_b : len(pointers)]
            sums = loop.carry[len(pointers) :]
            if tile.fetches and unroll == at_once:
                self._fetch(ahead, loop.index, unroll)
            for k in range(unroll):
                sums = self._multiply(b_pointers, strips, a_pointers, steps, sums, k)
                b_pointers = [f.element(at, "i8", self.step_bytes) for at in b_pointers]
            forward = f.mul("%a_row", unroll) if tile.transposed else str(self.size * unroll)
            ended = f.end(loop, [*b_pointers, *(f.element(at, "i8", forward) for at in a_pointers), *sums])
            pointers, sums = ended[: len(pointers)], ended[len(pointers) :]
        if tile.fetches:
            pointers = [*pointers, f.element(ahead, "i8", f.mul(depth, self._fetched_bytes))]
        return pointers, sums

    @property
    def _fetched_bytes(self) -> int:
        """That are fetched ahead beside a row of the strip."""
        return self.columns * self.tile.lanes * self.size // _QUARTERS

    def _fetch(self, ahead: str, k: str, rows: int) -> None:
        """Bring what is needed later to the second cache: a quarter of what so many rows of the strip are."""
        f, bytes_ = self.f, self._fetched_bytes
        at = f.element(ahead, "i8", f.mul(k, bytes_))
        for line in range(0, bytes_ * rows, CACHE_LINE):
            f.fetch_ahead(f.element(at, "i8", line))

    def _weights(self, b: list[str], strips: list[str]) -> list[str]:
        """A row of B."""
        f, tile = self.f, self.tile
        weights = []
        for strip in strips:
            for number in range(tile.vectors):
                mask = self.mask if number == tile.vectors - 1 else None
                at = [f.element(f.element(base, "i8", strip), self.element, number * tile.lanes) for base in b]
                weight = self.e.load(at[0], tile.type, mask)
                if tile.difference:
                    weight = f.let(f"fsub {self.kind} {weight}, {self.e.load(at[1], tile.type, mask)}")
                    self.e.store(at[2], weight, tile.type, mask)
                weights.append(weight)
        return weights

    def _multiply(
        self, b: list[str], strips: list[str], starts: list[str], steps: list[str], sums: list[str], k: int
    ) -> list[str]:
        f, tile = self.f, self.tile
        made = list(sums)
        name = f"llvm.fmuladd.{intrinsic_suffix(tile.type, tile.lanes)}"
        weights = self._weights(b, strips)
        for row in range(tile.rows):
            if tile.transposed:
                at = f.element(f.element(starts[0], "i8", f.mul("%a_row", k)), self.element, row)
            else:
                at = f.element(starts[row // _ROWS_A_POINTER], "i8", steps[row % _ROWS_A_POINTER])
                at = f.element(at, self.element, k)
            value = self.e.load_scalar(at, tile.type)
            for column, weight in enumerate(weights):
                index = row * self.columns + column
                made[index] = f.call(self.kind, name, (self.kind, value), (self.kind, weight), (self.kind, sums[index]))
        return made

    def _row(self, row: int) -> str:
        return self.f.element("%c", "i8", self.f.mul("%c_row", row))

    def _factor(self, base: str, row: int) -> str:
        return self.e.load_scalar(self.f.element(base, self.element, row), self.tile.type)

    def _is_last(self, column: int) -> bool:
        return column == self.columns - 1

    def _start(self) -> list[str]:
        f, tile = self.f, self.tile
        zero = constant(tile.type, 0.0, tile.lanes)
        if not tile.joined:
            return [zero] * (tile.rows * self.columns)
        old, start, before = f.fresh("old"), f.fresh("start"), f.block
        f.branch_if("%first", start, old)
        f.label(old)
        held = []
        for row in range(tile.rows):
            factor, at = self._factor("%old", row), self._row(row)
            for column in range(self.columns):
                mask = self.mask if self._is_last(column) else None
                value = self.e.load(f.element(at, self.element, column * tile.lanes), tile.type, mask)
                held.append(f.let(f"fmul {self.kind} {value}, {factor}"))
        f.branch(start)
        f.label(start)
        return [f.let(f"phi {self.kind} [ {zero}, %{before} ], [ {value}, {old} ]", "r") for value in held]

    def _store(self, sums: list[str]) -> None:
        f, tile = self.f, self.tile
        for row in range(tile.rows):
            at = self._row(row)
            factor = self._factor("%new", row) if tile.joined else ""
            for column in range(self.columns):
                value = sums[row * self.columns + column]
                if factor:
                    value = f.let(f"fmul {self.kind} {value}, {factor}")
                mask = self.mask if self._is_last(column) else None
                self.e.store(f.element(at, self.element, column * tile.lanes), value, tile.type, mask)
