"""Attention kernels -> LLVM.

for unit in begin .. end:                         (batch entry, head, block of queries)
  for part of the keys:
    strips at its ends that masks hide from the whole block are left out
    scores: a tile for each strip of keys and few rows, or row by row where K is not packed
    for row: score expressions and maximum; exponentials and sum
    for strip of V's columns, tile of rows: O := O * old + S * V, times new
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.attention.blocks import TILE_ROWS, BlockEmitter, ValueProduct
from sardonyx.codegen.attention.hidden_keys import HiddenKeysEmitter, Strips
from sardonyx.codegen.element_types import constant, intrinsic_suffix, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.dot import fold
from sardonyx.codegen.matmul.matmul import multiply_add
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.attention.attention import KEYS, QUERIES, AttentionKernel, key, query
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import BITS, Expr, load
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE, Target

_DOTS = "dots"

_Body: TypeAlias = Callable[[str, list[str], "str | None"], list[str]]  # position, carried values, lanes that exist


def emit_attention(kernel: AttentionKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of an attention kernel."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _AttentionEmitter(kernel, function, target).emit()
    return function


@dataclass(frozen=True)
class _Block:
    """A block of queries: where it stands and where its operands lie."""

    first: str  # query
    rows: str
    shift: str  # from the number of a query to its position
    limit: str  # keys of this batch entry
    q: str
    k: str
    v: str
    o: str
    operands: list[str]
    sink: str  # a vector of the head's, if there are any
    captured: str  # where scores are stored, if they are


class _AttentionEmitter(BlockEmitter):
    def __init__(self, kernel: AttentionKernel, function: FunctionBuilder, target: Target) -> None:
        super().__init__(kernel.type, function, target, kernel.columns, kernel.heights)
        self.k, f = kernel, function
        # Where tiles take half the time, lines of a mask are waited for even if the second cache has them.
        self.fetches_near = target.has_broadcast_operands and target.has_whole_vectors
        self.strip = self.vectors * self.lanes
        a = Loaded(f, kernel.arguments)
        self.batch, self.heads, self.queries, self.keys = a["batch"], a["heads"], a["queries"], a["keys"]
        self.depth, self.columns, self.group = a["depth"], a["columns"], a["group"]
        self.offset, self.left, self.right, scale = a["offset"], a["left"], a["right"], a["scale"]
        self.q, self.key, self.v, self.o = a.tensor("q"), a.tensor("k"), a.tensor("v"), a.tensor("o")
        self.v_strip = self.v.strides[3] if kernel.packed_values else ""
        self.operands = a.tensors("operands")
        self.lengths = a["lengths"] if kernel.lengths else ""
        self.first_positions = a["first_positions"] if kernel.has_first_positions else ""
        self.sinks = a.tensor("sinks") if kernel.has_sinks else None
        self.captured = None if kernel.captured is None else a.tensor("captured")
        self.scale = self.number(scale)
        self.scores = f.let(f"alloca [{QUERIES * KEYS} x {self.element}], align 64", "scores")
        # For each row: the largest score so far; the one of this part, then what is subtracted; the sum of exponentials so far;
        # the factor of what was summed before; the sum of this part, then the factor of the result.
        rows = -(-QUERIES // self.lanes) * self.lanes
        self.largest, self.found, self.sums, self.old, self.new = (
            f.let(f"alloca [{rows} x {self.element}], align 64", "rows") for _ in range(5)
        )
        self.hidden: HiddenKeysEmitter | None = None
        if kernel.hides_strips:
            self.hidden = HiddenKeysEmitter(kernel.type, f, self.e, self.vectors)
            self.squares = f.let(f"alloca {self.e.type(kernel.type)}, align 64", "squares")
            self.has_squares = f.let("alloca i64, align 8", "has")

    # The block of queries

    def emit(self) -> None:
        f = self.f
        blocks, least, larger = self.parts(self.queries, QUERIES)
        unit = f.loop("%begin", "%end")
        block, above = (f.let(f"{op} i64 {unit.index}, {blocks}", "i") for op in ("urem", "udiv"))
        head, entry = (f.let(f"{op} i64 {above}, {self.heads}", "i") for op in ("urem", "udiv"))
        first, rows = self.part(block, least, larger)
        shared = f.let(f"udiv i64 {head}, {self.group}", "i")
        limit, shift = self.keys, self.offset
        if self.lengths:
            limit, shift = self._length(entry)
        operands = [
            self.address(moving, memory_type(operand.type), entry, head, first)
            for moving, operand in zip(self.operands, self.k.operands)
        ]
        own = _Block(
            first,
            rows,
            shift,
            limit,
            self.address(self.q, self.element, entry, head, first),
            self.address(self.key, self.element, entry, shared),
            self.address(self.v, self.element, entry, shared),
            self.address(self.o, self.element, entry, head, first),
            operands,
            "" if self.sinks is None else self.e.load_scalar(self.address(self.sinks, self.element, head), self.k.type),
            self._captured_at(entry, head, first),
        )
        self._attend(own)
        f.end(unit)

    def _captured_at(self, *indices: str) -> str:
        """Where what is stored of a query's scores lies."""
        kernel = self.k.captured
        return "" if self.captured is None or kernel is None else self.address(self.captured, memory_type(kernel.type), *indices)

    def _length(self, entry: str) -> tuple[str, str]:
        """How many keys a batch entry has, and how far its queries stand behind its start."""
        f, kind = self.f, memory_type(self.k.lengths)
        stored = f.let(f"load {kind}, ptr {f.element(self.lengths, kind, entry)}, align {BITS[self.k.lengths] // 8}")
        length = stored if kind == "i64" else f.let(f"sext {kind} {stored} to i64")
        length = f.add(length, self.k.more)
        limit = self.max(f.min(length, self.keys), 0)
        if self.first_positions:
            return limit, f.let(f"load i64, ptr {f.element(self.first_positions, 'i64', entry)}, align 8")
        return limit, f.sub(length, self.queries)

    def _attend(self, block: _Block) -> None:
        f, k = self.f, self.k
        start, stop = "0", block.limit
        if k.banded:  # parts of the keys that no query of the block sees are left out
            low = f.add(block.first, block.shift)
            if self.first_positions:
                low = f.min(low, f.sub(block.limit, 1))
            low = f.sub(low, self.left)
            start = f.mul(f.let(f"udiv i64 {self.max(low, 0)}, {KEYS}", "i"), KEYS)
            last = f.add(f.add(block.first, block.rows), f.add(block.shift, self.right))
            stop = f.min(stop, last)
        if self.hidden is not None:
            f.line(f"store i64 0, ptr {self.has_squares}, align 8")
        # A block that sees nothing still goes through one part, without keys: that writes zeros.
        end = self.max(stop, f.add(start, 1))
        part = f.loop(start, end, KEYS)
        count = self.max(f.min(f.sub(stop, part.index), KEYS), 0)
        is_first = f.let(f"icmp eq i64 {part.index}, {start}", "c")
        is_last = f.let(f"icmp sge i64 {f.add(part.index, KEYS)}, {end}", "c")
        first = part.index
        if self.hidden is not None:
            begin, last = self.hidden.seen(self._strips_of(self.hidden, block, first, count, is_first))
            first, count = f.add(first, begin), f.sub(last, begin)
        if k.packed:
            self._tiled_scores(block, first, count)
        else:
            self._row_scores(block, first, count)
        self._softmax(block, first, count, is_first, is_last)
        v = f.element(block.v, self.element, f.mul(first, self.v.strides[2]))
        product = ValueProduct(block.rows, v, self.v.strides[2], block.o, self.o.strides[2], count, is_first, self.v_strip)
        if k.operands:
            product = replace(product, count=self.seen_keys(product))
        self.multiply_values(product, self.scores, KEYS, self.old, self.new)
        if k.clears_nan:
            self._clear_rows(block, is_last)
        f.end(part)

    # Keys that masks hide

    def _strips_of(self, hidden: HiddenKeysEmitter, block: _Block, first: str, count: str, is_first: str) -> Strips:
        """The strips of a part of the keys."""
        f = self.f

        zero = constant(self.k.type, 0.0, self.lanes)

        def scores(row: str, key: str, left: str | None) -> str:
            known, pointers = self._uniform(block, row)
            mask = None if left is None else self.e.mask_below(left)
            return self._score(zero, known, pointers, f.add(first, key), mask, left)

        def bound(strip: str) -> str:
            return hidden.bound(self._squares_once(block), self._squared_norms(block, f.add(first, strip)), self.scale)

        values = f.element(block.v, self.element, f.mul(first, self.v.strides[2]))
        return Strips(
            count,
            block.rows,
            hidden.floor(lambda row: self._row(self.largest, row), block.rows, is_first),
            scores,
            bound,
            lambda begin, end: self.is_finite(values, self.v.strides[2], begin, end, self.v_strip),
        )

    def _squares_once(self, block: _Block) -> str:
        """The squares of a block's queries, which are computed when they are first needed."""
        f, vector = self.f, self.e.type(self.k.type)
        make, after = f.fresh("make"), f.fresh("made")
        f.branch_if(f.let(f"icmp eq i64 {f.let(f'load i64, ptr {self.has_squares}, align 8', 'i')}, 0", "c"), make, after)
        f.label(make)
        self.e.store(self.squares, self._squares(block), self.k.type)
        f.line(f"store i64 1, ptr {self.has_squares}, align 8")
        f.branch(after)
        f.label(after)
        return f.let(f"load {vector}, ptr {self.squares}, align {self.bytes}")

    def _squares(self, block: _Block) -> str:
        """The squares of the elements of all queries, added up in a vector."""
        f, kind, vector = self.f, self.k.type, self.e.type(self.k.type)
        row = f.loop(0, block.rows, 1, [(vector, constant(kind, 0.0, self.lanes))])
        q = f.element(block.q, self.element, f.mul(row.index, self.q.strides[2]))
        deep = f.loop(0, self.depth, self.lanes, [(vector, row.carry[0])])
        value = self.e.load(f.element(q, self.element, deep.index), kind, self.e.mask_below(f.sub(self.depth, deep.index)))
        (total,) = f.end(deep, [multiply_add(self.e, value, value, deep.carry[0], kind)])
        return f.end(row, [total])[0]

    def _squared_norms(self, block: _Block, first: str) -> str:
        """For each lane the largest squared norm of the keys in it, of the strip with this first key. NaN stays."""
        f, kind, vector = self.f, self.k.type, self.e.type(self.k.type)
        keys = f.element(block.k, self.element, f.mul(first, self.depth))
        zero = constant(kind, 0.0, self.lanes)
        deep = f.loop(0, self.depth, 1, [(vector, zero)] * self.vectors)
        row = f.element(keys, self.element, f.mul(deep.index, self.strip))
        values = [self.e.load(f.element(row, self.element, number * self.lanes), kind) for number in range(self.vectors)]
        norms = f.end(deep, [multiply_add(self.e, value, value, total, kind) for value, total in zip(values, deep.carry)])
        name = f"llvm.maximum.{intrinsic_suffix(kind, self.lanes)}"
        return reduce(lambda a, b: f.call(vector, name, (vector, a), (vector, b)), norms)

    # Scores

    def _tiled_scores(self, block: _Block, start: str, count: str) -> None:
        f = self.f
        keys = f.element(block.k, self.element, f.mul(start, self.depth))
        done = f.let(f"and i64 {count}, {-self.strip}", "i")
        self._strips(block, keys, start, ("0", done), self.vectors)
        width = 1
        while width <= self.vectors:  # of the last strip only the vectors that are needed
            if self._may_be_left(width):
                left = f.sub(count, done)
                some, after = f.fresh("some"), f.fresh("after")
                enough = f.let(f"icmp sle i64 {left}, {width * self.lanes}", "c")
                more = f.let(f"icmp sgt i64 {left}, {width // 2 * self.lanes}", "c")
                f.branch_if(f.let(f"and i1 {enough}, {more}", "c"), some, after)
                f.label(some)
                self._strips(block, keys, start, (done, f.add(done, 1)), width)
                f.branch(after)
                f.label(after)
            width *= 2

    def _may_be_left(self, width: int) -> bool:
        """Whether the last strip of keys can need this many vectors."""
        if self.k.keys is None:
            return True
        return width // 2 * self.lanes < self.k.keys % self.strip <= width * self.lanes

    def _strips(self, block: _Block, keys: str, first: str, inside: tuple[str, str], width: int) -> None:
        """The scores of strips of keys, or of the first vectors of them; `first` is the first key of the part they are in."""
        f = self.f
        strip = f.loop(*inside, self.strip)
        b = f.element(keys, self.element, f.mul(strip.index, self.depth))
        parts, least, larger = self.parts(block.rows, TILE_ROWS)
        tile = f.loop(0, parts)
        row, height = self.part(tile.index, least, larger)
        tile_arguments = TileArguments(
            f.element(self.scores, self.element, f.add(f.mul(row, KEYS), strip.index)),
            str(KEYS * self.bytes),
            f.element(block.q, self.element, f.mul(row, self.q.strides[2])),
            f.mul(self.q.strides[2], self.bytes),
            b,
            self.depth,
        )
        shape = MatmulTile(self.k.type, self.lanes, 1, width, 1, self.strip)
        self._fetch_operands(block, row, height, f.add(first, strip.index), width)
        self.tiles.call_any(shape, height, self.k.heights, tile_arguments)
        f.end(tile)
        f.end(strip)

    def _fetch_operands(self, block: _Block, row: str, height: str, first: str, width: int) -> None:
        """Have what is added to a tile's scores brought near while they are computed: rows of a mask lie far apart."""
        f = self.f
        for position, (moving, operand) in enumerate(zip(self.operands, self.k.operands)):
            if operand.inner != "unit":
                continue
            kind, size = memory_type(operand.type), BITS[operand.type] // 8
            each = f.loop(0, height)
            at = f.add(f.mul(f.add(row, each.index), moving.strides[2]), first)
            pointer = f.element(block.operands[position], kind, at)
            for line in range(-(-width * self.lanes * size // CACHE_LINE)):
                f.fetch_ahead(f.element(pointer, "i8", line * CACHE_LINE), 1 if self.fetches_near else 2)
            f.end(each)

    def _row_scores(self, block: _Block, start: str, count: str) -> None:
        f = self.f
        if all(one.name != _DOTS for one in f.companions):
            f.companions.append(_dots(self.k.type, self.lanes))
        keys = f.element(block.k, self.element, f.mul(start, self.key.strides[2]))
        row = f.loop(0, block.rows)
        scores = f.element(self.scores, self.element, f.mul(row.index, KEYS))
        q = f.element(block.q, self.element, f.mul(row.index, self.q.strides[2]))
        f.line(f"call void @{_DOTS}(ptr {scores}, ptr {q}, ptr {keys}, i64 {self.key.strides[2]}, i64 {self.depth}, i64 {count})")
        f.end(row)

    def is_unseen(self, rows: str, end: str) -> tuple[str, str]:
        """Of the last vector of keys before `end`; behind the last key there are zeros."""
        f, words = self.f, f"<{self.lanes} x i{self.bytes * 8}>"
        begin = f.let(f"and i64 {f.sub(end, 1)}, {-self.lanes}", "i")
        row = f.loop(0, rows, 1, [(words, "zeroinitializer")])
        at = self._row(self.scores, f.add(f.mul(row.index, KEYS), begin))
        (bits,) = f.end(row, [self.some_bits(row.carry[0], at)])
        return begin, self.no_bits(bits)

    # Softmax

    def _softmax(self, block: _Block, start: str, count: str, is_first: str, is_last: str) -> None:
        """Scores to exponentials. What is one number for each row is computed for vectors of rows in between."""
        f, whole = self.f, self.f.let(f"and i64 {count}, {-self.lanes}", "i")
        row = f.loop(0, block.rows)
        self._largest_of(block, row.index, start, count, whole)
        f.end(row)
        rows = f.loop(0, block.rows, self.lanes)
        self._bases(block, rows.index, is_first)
        f.end(rows)
        row = f.loop(0, block.rows)
        self._exponentials(row.index, count, whole)
        f.end(row)
        rows = f.loop(0, block.rows, self.lanes)
        self._factors(rows.index, is_first, is_last)
        f.end(rows)

    def _row(self, base: str, row: str) -> str:
        return self.f.element(base, self.element, row)

    def _largest_of(self, block: _Block, row: str, start: str, count: str, whole: str) -> None:
        """The scores of a row, and the largest of them."""
        f, kind = self.f, self.k.type
        scores = self._row(self.scores, f.mul(row, KEYS))
        lowest = constant(kind, float("-inf"), self.lanes)
        known, pointers = self._uniform(block, row)

        def score(j: str, carried: list[str], left: str | None) -> list[str]:
            at = self._row(scores, j)
            mask = None if left is None else self.e.mask_below(left)
            product = f.let(f"fmul {self.e.type(kind)} {self.e.load(at, kind)}, {self.scale}")
            value = self._score(product, known, pointers, f.add(start, j), mask, left)
            if mask is not None:
                value = self.e.choose(mask, value, lowest, kind)
            if not self.k.plain:
                self.e.store(at, value, kind)
            return [self.larger(carried[0], value)]

        (top,) = self._walk(count, whole, [(self.e.type(kind), lowest)], score)
        distance = self.lanes // 2
        while distance:
            order = ", ".join(f"i32 {(lane + distance) % self.lanes}" for lane in range(self.lanes))
            vector = self.e.type(kind)
            moved = f.let(f"shufflevector {vector} {top}, {vector} poison, <{self.lanes} x i32> <{order}>")
            top = self.larger(top, moved)
            distance //= 2
        found = f.let(f"extractelement {self.e.type(kind)} {top}, i32 0")
        f.line(f"store {self.element} {found}, ptr {self._row(self.found, row)}, align {self.bytes}")

    def _bases(self, block: _Block, row: str, is_first: str) -> None:
        """For some rows: the largest score so far, what is subtracted from scores, and the factor of what was summed before.

        A sink is there before the first part, as a score whose exponential is summed.
        """
        f, kind = self.f, self.k.type
        lowest, zero = (constant(kind, value, self.lanes) for value in (float("-inf"), 0.0))
        old = self.either(is_first, block.sink or lowest, self.e.load(self._row(self.largest, row), kind))
        largest = self.larger(old, self.e.load(self._row(self.found, row), kind))
        nothing = f.let(f"fcmp oeq {self.e.type(kind)} {largest}, {lowest}")
        base = self.e.choose(nothing, zero, largest, kind)
        factor = self.exp(f.let(f"fsub {self.e.type(kind)} {old}, {base}"))
        for array, value in ((self.largest, largest), (self.found, base), (self.old, factor)):
            self.e.store(self._row(array, row), value, kind)

    def _exponentials(self, row: str, count: str, whole: str) -> None:
        """The exponentials of a row, and their sum."""
        f, kind = self.f, self.k.type
        scores = self._row(self.scores, f.mul(row, KEYS))
        vector, zero = self.e.type(kind), constant(kind, 0.0, self.lanes)
        bases = self.e.load_scalar(self._row(self.found, row), kind)
        negated = f.let(f"fneg {vector} {bases}")

        def exponential(j: str, carried: list[str], left: str | None) -> list[str]:
            at = self._row(scores, j)
            value = self.e.load(at, kind)
            if self.k.plain:  # the first walk kept nothing
                value = multiply_add(self.e, value, self.scale, negated, kind)
            else:
                value = f.let(f"fsub {vector} {value}, {bases}")
            value = self.exp(value)
            self.e.store(at, value, kind)
            if left is not None and self.k.plain:
                value = self.e.choose(self.e.mask_below(left), value, zero, kind)
            return [f.let(f"fadd {vector} {carried[0]}, {value}")]

        (total,) = self._walk(count, whole, [(vector, zero)], exponential)
        name = f"llvm.vector.reduce.fadd.{intrinsic_suffix(kind, self.lanes)}"
        f.declarations.add(f"declare {self.element} @{name}({self.element}, {vector})")
        found = f.let(f"call reassoc {self.element} @{name}({self.element} {constant(kind, 0.0, 1)}, {vector} {total})")
        f.line(f"store {self.element} {found}, ptr {self._row(self.new, row)}, align {self.bytes}")

    def _factors(self, row: str, is_first: str, is_last: str) -> None:
        """For some rows: the sum so far, and the factor of the result."""
        f, kind, vector = self.f, self.k.type, self.e.type(self.k.type)
        one, zero = (constant(kind, value, self.lanes) for value in (1.0, 0.0))
        before = zero if self.sinks is None else one
        old = self.either(is_first, before, self.e.load(self._row(self.sums, row), kind))
        summed = multiply_add(
            self.e, old, self.e.load(self._row(self.old, row), kind), self.e.load(self._row(self.new, row), kind), kind
        )
        inverse = f.let(f"fdiv {vector} {one}, {summed}")
        if self.k.nan_rows:  # zero times infinity; but a row of no keys at all is an empty sum
            inverse = self.either(f.let(f"icmp eq i64 {self.keys}, 0", "c"), one, inverse)
        else:
            inverse = self.e.choose(f.let(f"fcmp oeq {vector} {summed}, {zero}"), one, inverse, kind)
        self.e.store(self._row(self.sums, row), summed, kind)
        self.e.store(self._row(self.new, row), self.either(is_last, inverse, one), kind)

    def _clear_rows(self, block: _Block, is_last: str) -> None:
        """Rows whose sum is NaN, when it is complete: weights of 0 times V, in which an infinity would be NaN."""
        f, kind, vector = self.f, self.k.type, self.e.type(self.k.type)
        zero = constant(kind, 0.0, self.lanes)
        look, after = f.fresh("look"), f.fresh("after")
        f.branch_if(is_last, look, after)
        f.label(look)
        row = f.loop(0, block.rows)
        total = f.let(f"load {self.element}, ptr {self._row(self.sums, row.index)}, align {self.bytes}")
        clear, next_ = f.fresh("clear"), f.fresh("next")
        f.branch_if(f.let(f"fcmp uno {self.element} {total}, {total}", "c"), clear, next_)
        f.label(clear)
        column = f.loop(0, self.columns, self.lanes)
        mask = self.e.mask_below(f.sub(self.columns, column.index))
        each = f.loop(0, block.limit, 1, [(vector, zero)])
        at = self.column_of(f.element(block.v, self.element, f.mul(each.index, self.v.strides[2])), column.index, self.v_strip)
        (made,) = f.end(each, [multiply_add(self.e, self.e.load(at, kind, mask), zero, each.carry[0], kind)])
        into = f.element(block.o, self.element, f.add(f.mul(row.index, self.o.strides[2]), column.index))
        self.e.store(into, made, kind, mask)
        f.end(column)
        f.branch(next_)
        f.label(next_)
        f.end(row)
        f.branch(after)
        f.label(after)

    def _walk(self, count: str, whole: str, carry: list[tuple[str, str]], body: _Body) -> list[str]:
        """Along a row of scores, a vector at a time; the last one may be partly there."""
        f = self.f
        loop = f.loop(0, whole, self.lanes, carry)
        values = f.end(loop, body(loop.index, loop.carry, None))
        rest = f.loop(whole, count, self.lanes, [(kind, value) for (kind, _), value in zip(carry, values)])
        return f.end(rest, body(rest.index, rest.carry, f.sub(count, rest.index)))

    def _uniform(self, block: _Block, row: str) -> tuple[dict[Expr, str], list[str]]:
        """What does not change along a row of scores: the query, operands that do not move; and where the others lie."""
        f = self.f
        known: dict[Expr, str] = {}
        number = f.add(block.first, row)
        known[query()] = self.e.splat(f.let(f"trunc i64 {number} to i32"), "i32")
        pointers = []
        for position, (moving, operand) in enumerate(zip(self.operands, self.k.operands)):
            at = f.element(block.operands[position], memory_type(operand.type), f.mul(row, moving.strides[2]))
            pointers.append(at)
            if operand.inner == "zero":
                known[load(position, operand.type)] = self.e.load_scalar(at, operand.type)
        if self.captured is not None and self.k.captured is not None:
            pointers.append(f.element(block.captured, memory_type(self.k.captured.type), f.mul(row, self.captured.strides[2])))
        if self.k.banded:
            of_query = f.add(number, block.shift)
            if self.first_positions:
                of_query = f.min(of_query, f.sub(block.limit, 1))
            low, high = f.sub(of_query, self.left), f.add(of_query, self.right)
            for name, bound in (("low", low), ("high", high)):
                held = self.max(f.min(bound, 0x7FFFFFFF), -0x7FFFFFFF)
                known[Expr(name, "i32")] = self.e.splat(f.let(f"trunc i64 {held} to i32"), "i32")
        return known, pointers

    def _score(
        self, product: str, uniform: dict[Expr, str], pointers: list[str], number: str, mask: str | None, left: str | None
    ) -> str:
        """The scores of some keys, out of their products."""
        f, k = self.f, self.k
        known = {**uniform, accumulator(k.type): product}
        first = self.e.splat(f.let(f"trunc i64 {number} to i32"), "i32")
        steps = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        known[key()] = f.let(f"add <{self.lanes} x i32> {first}, <{steps}>")
        for position, operand in enumerate(k.operands):
            if operand.inner == "zero":
                continue
            kind, stride = memory_type(operand.type), self.operands[position].strides[3]
            node = load(position, operand.type)
            if operand.inner == "unit":
                known[node] = self.e.load(f.element(pointers[position], kind, number), operand.type, mask)
            else:
                pointer = f.element(pointers[position], kind, f.mul(number, stride))
                known[node] = self.e.load_strided(pointer, stride, operand.type, left)
        value, *stored = self.e.emit([k.score] if k.captured is None else [k.score, k.captured], known)
        if k.banded:
            masks, keys = self.e.type("bool"), f"<{self.lanes} x i32>"
            after = f.let(f"icmp sge {keys} {known[key()]}, {known[Expr('low', 'i32')]}")
            before = f.let(f"icmp sle {keys} {known[key()]}, {known[Expr('high', 'i32')]}")
            seen = f.let(f"and {masks} {after}, {before}")
            value = self.e.choose(seen, value, constant(k.type, float("-inf"), self.lanes), k.type)
            if k.captured is not None:
                hidden = constant(k.captured.type, k.hidden, self.lanes)
                stored = [self.e.choose(seen, stored[0], hidden, k.captured.type)]
        if k.captured is not None:
            into = f.element(pointers[-1], memory_type(k.captured.type), number)
            self.e.store(into, stored[0], k.captured.type, mask)
        return value


def _dots(kind: str, lanes: int) -> FunctionBuilder:
    """A row times the rows of a matrix: `count` sums over the depth, written together with those that fill up a vector."""
    element = memory_type(kind)
    parameters = [("c", "ptr"), ("a", "ptr"), ("b", "ptr"), ("b_row", "i64"), ("depth", "i64"), ("count", "i64")]
    f = FunctionBuilder(_DOTS, parameters, "nounwind noinline", "internal")
    e = VectorEmitter(f, lanes)
    vector, zero = e.type(kind), constant(kind, 0.0, lanes)
    whole = f.let(f"and i64 %depth, {-lanes}", "i")
    mask = e.mask_below(f.sub("%depth", whole))
    block = f.loop(0, "%count", lanes)
    last = f.sub(f.sub("%count", block.index), 1)
    base = f.element("%b", element, f.mul(block.index, "%b_row"))
    rows = [f.element(base, element, f.mul(f.min(lane, last), "%b_row")) for lane in range(lanes)]

    def step(position: str, sums: list[str], some: str | None) -> list[str]:
        a = e.load(f.element("%a", element, position), kind, some)
        loaded = [e.load(f.element(pointer, element, position), kind, some) for pointer in rows]
        return [multiply_add(e, a, b, total, kind) for b, total in zip(loaded, sums)]

    loop = f.loop(0, whole, lanes, [(vector, zero)] * lanes)
    sums = f.end(loop, step(loop.index, loop.carry, None))
    rest = f.loop(whole, "%depth", lanes, [(vector, value) for value in sums])
    sums = f.end(rest, step(rest.index, rest.carry, mask))
    e.store(f.element("%c", element, block.index), fold(e, sums, kind), kind)
    f.end(block)
    return f
