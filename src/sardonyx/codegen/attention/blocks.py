"""What the kernels of attention have in common: numbers and parts, exponentials, and the product with V."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sardonyx.codegen.arguments import MemRef
from sardonyx.codegen.element_types import memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments, Tiles
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.attention.attention import strip_vectors
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import BITS
from sardonyx.kernel.math import exp_not_positive
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.records import dataclass
from sardonyx.target.target import Target

TILE_ROWS = 6


@dataclass(frozen=True)
class ValueProduct:
    """The product of a block's probabilities with some rows of V."""

    rows: str  # queries
    v: str  # the first of V's rows
    v_row: str  # elements between them
    o: str
    o_row: str
    count: str  # of keys
    is_first: str  # there is nothing in O yet
    v_strip: str = ""  # elements between strips of V's columns, if it is packed


class BlockEmitter(ABC):
    """Writes a kernel that goes through the keys part by part, for a block of queries."""

    columns: str  # of V

    def __init__(
        self,
        kind: str,
        function: FunctionBuilder,
        target: Target,
        known_columns: int | None,
        heights: range,
        *,
        transposed: bool = False,
    ) -> None:
        self.type = kind
        self.f = function
        self.lanes = vector_lanes(kind, target)
        self.e = VectorEmitter(function, self.lanes, target)
        self.tiles = Tiles(function)
        self.element = memory_type(kind)
        self.bytes = BITS[kind] // 8
        self.vectors = strip_vectors(target)
        self.known_columns = known_columns
        self.heights = heights
        self.transposed = transposed  # how probabilities lie: a row for each query, or for each key
        self._seen = function.let("alloca i64, align 8")

    # Numbers

    def number(self, bits: str) -> str:
        """A vector of a number whose bits as f64 are given."""
        double = self.f.let(f"bitcast i64 {bits} to double")
        single = double if self.type == "f64" else self.f.let(f"fptrunc double {double} to float")
        return self.e.splat(single, self.element)

    def max(self, a: str, b: str | int) -> str:
        """The larger of two integers."""
        more = self.f.let(f"icmp sgt i64 {a}, {b}", "c")
        return self.f.let(f"select i1 {more}, i64 {a}, i64 {b}", "i")

    def parts(self, count: str, most: int) -> tuple[str, str, str]:
        """How many nearly equal parts of at most so many; the least size, and how many parts are one larger."""
        f = self.f
        parts = self.max(f.let(f"udiv i64 {f.add(count, most - 1)}, {most}", "i"), 1)
        return parts, f.let(f"udiv i64 {count}, {parts}", "i"), f.let(f"urem i64 {count}, {parts}", "i")

    def part(self, index: str, least: str, larger: str) -> tuple[str, str]:
        """Where a part begins, and its size."""
        f = self.f
        more = f.let(f"icmp slt i64 {index}, {larger}", "c")
        return f.add(f.mul(index, least), f.min(index, larger)), f.add(least, f.let(f"zext i1 {more} to i64", "i"))

    def address(self, moving: MemRef, kind: str, *indices: str) -> str:
        """Where the element with these indices lies."""
        offset = "0"
        for index, stride in zip(indices, moving.strides):
            offset = self.f.add(offset, self.f.mul(index, stride))
        return self.f.element(moving.base, kind, offset)

    # Vectors

    def larger(self, a: str, b: str) -> str:
        """The larger ones. NaN may get lost: it comes back as an exponential."""
        more = self.f.let(f"fcmp ogt {self.e.type(self.type)} {a}, {b}")
        return self.e.choose(more, a, b, self.type)

    def either(self, condition: str, yes: str, no: str) -> str:
        """One of two vectors."""
        vector = self.e.type(self.type)
        return self.f.let(f"select i1 {condition}, {vector} {yes}, {vector} {no}")

    def exp(self, value: str) -> str:
        """Exponentials of numbers that are not positive."""
        x = accumulator(self.type)
        (made,) = self.e.emit([exp_not_positive(x)], {x: value})
        return made

    # Keys that nobody sees

    @abstractmethod
    def is_unseen(self, rows: str, end: str) -> tuple[str, str]:
        """Where the last keys before `end` begin, and whether their probabilities are 0 for all queries."""

    def some_bits(self, found: str, pointer: str) -> str:
        """The bits of a vector of probabilities beside those found before."""
        f, words = self.f, f"<{self.lanes} x i{self.bytes * 8}>"
        return f.let(f"or {words} {found}, {f.let(f'load {words}, ptr {pointer}, align {self.bytes}')}")

    def no_bits(self, bits: str) -> str:
        """Whether there are none: all were 0."""
        f, word = self.f, f"i{self.bytes * 8}"
        name = f"llvm.vector.reduce.or.v{self.lanes}{word}"
        any_ = f.call(word, name, (f"<{self.lanes} x {word}>", bits))
        return f.let(f"icmp eq {word} {any_}, 0", "c")

    def seen_keys(self, product: ValueProduct) -> str:
        """How many keys are left without the last ones, if those have no probability and finite values.

        Masked keys are left out of the product with V so; an infinity or NaN times 0 is NaN, as in a product of all.
        """
        f = self.f
        cell = self._seen
        f.line(f"store i64 {product.count}, ptr {cell}, align 8")
        check, look, skip, found = (f.fresh(name) for name in ("check", "look", "skip", "found"))
        f.branch(check)
        f.label(check)
        end = f.let(f"load i64, ptr {cell}, align 8", "i")
        f.branch_if(f.let(f"icmp sgt i64 {end}, 0", "c"), look, found)
        f.label(look)
        begin, unseen = self.is_unseen(product.rows, end)
        f.branch_if(unseen, skip, found)
        f.label(skip)
        f.line(f"store i64 {begin}, ptr {cell}, align 8")
        f.branch(check)
        f.label(found)
        end = f.let(f"load i64, ptr {cell}, align 8", "i")
        finite = self.is_finite(product.v, product.v_row, end, product.count, product.v_strip)
        return f.let(f"select i1 {finite}, i64 {end}, i64 {product.count}", "i")

    def is_finite(self, v: str, v_row: str, start: str, stop: str, v_strip: str = "") -> str:
        """Whether some rows of V are finite: infinities and NaN have the largest bits, without the sign."""
        f, word = self.f, f"i{self.bytes * 8}"
        words = f"<{self.lanes} x {word}>"
        name = f"llvm.umax.v{self.lanes}{word}"
        size = self.e.splat(str((1 << (self.bytes * 8 - 1)) - 1), word)
        key = f.loop(start, stop, 1, [(words, "zeroinitializer")])
        row = f.element(v, self.element, f.mul(key.index, v_row))
        largest = key.carry[0]
        whole = f.let(f"and i64 {self.columns}, {-self.lanes}", "i")
        for begin, end in (("0", whole), (whole, self.columns)):
            column = f.loop(begin, end, self.lanes, [(words, largest)])
            mask = None if end is whole else self.e.mask_below(f.sub(self.columns, column.index))
            value = self.e.load(self.column_of(row, column.index, v_strip), self.type, mask)
            bits = f.let(f"and {words} {f.let(f'bitcast {self.e.type(self.type)} {value} to {words}')}, {size}")
            (largest,) = f.end(column, [f.call(words, name, (words, column.carry[0]), (words, bits))])
        (largest,) = f.end(key, [largest])
        found = f.call(word, f"llvm.vector.reduce.umax.v{self.lanes}{word}", (words, largest))
        infinity = 0x7F800000 if self.bytes == 4 else 0x7FF0000000000000
        return f.let(f"icmp ult {word} {found}, {infinity}", "c")

    # Values

    def column_of(self, v: str, column: str, strip: str) -> str:
        """Where a row of V has a column, given its first one, and how far strips lie apart if it is packed."""
        f, width = self.f, self.vectors * self.lanes
        if not strip:
            return f.element(v, self.element, column)
        number, inside = (f.let(f"{op} i64 {column}, {width}", "i") for op in ("udiv", "urem"))
        return f.element(v, self.element, f.add(f.mul(number, strip), inside))

    def multiply_values(self, product: ValueProduct, scores: str, row: int, old: str, new: str) -> None:
        """O := (O * old + probabilities * V) * new, with a factor for each query; rows of `scores` are `row` elements apart."""
        f, known = self.f, self.known_columns
        done = "0"
        width = self.vectors
        while width:
            size = width * self.lanes
            stop = f.add(done, f.mul(f.let(f"udiv i64 {f.sub(self.columns, done)}, {size}", "i"), size))
            if known is None or known % (size * 2 if width < self.vectors else 1 << 30) >= size:
                self._columns(product, (scores, row), (old, new), (done, stop), width, None)
            done = stop
            width //= 2
        if known is None or known % self.lanes:
            self._columns(product, (scores, row), (old, new), (done, self.columns), 1, f.sub(self.columns, done))

    def _columns(
        self,
        product: ValueProduct,
        scores: tuple[str, int],
        factors: tuple[str, str],
        columns: tuple[str, str],
        width: int,
        left: str | None,
    ) -> None:
        """The product with some columns of V."""
        f = self.f
        column = f.loop(*columns, width * self.lanes)
        parts, least, larger = self.parts(product.rows, TILE_ROWS)
        tile = f.loop(0, parts)
        row, height = self.part(tile.index, least, larger)
        arguments = TileArguments(
            f.element(product.o, self.element, f.add(f.mul(row, product.o_row), column.index)),
            f.mul(product.o_row, self.bytes),
            f.element(scores[0], self.element, row if self.transposed else f.mul(row, scores[1])),
            str(scores[1] * self.bytes),
            self.column_of(product.v, column.index, product.v_strip),
            product.count,
            f.mul(product.v_row, self.bytes),
        )
        more = [] if left is None else [("i64", left)]
        pointers = [("ptr", f.element(base, self.element, row)) for base in factors]
        shape = MatmulTile(self.type, self.lanes, 1, width, ragged=left is not None, joined=True, transposed=self.transposed)
        self.tiles.call_any(shape, height, self.heights, arguments, *more, ("i1", product.is_first), *pointers)
        f.end(tile)
        f.end(column)
