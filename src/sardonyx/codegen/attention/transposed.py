"""Attention kernels with transposed scores -> LLVM.

for unit in begin .. end:                         (batch entry, head, block of queries)
  the block of Q, transposed, times the scale
  for part of the keys:
    V's rows into strips of columns, where that is asked for
    for strip of queries:
      scores: a tile for few keys
      for vector of queries: score expressions and maximum; exponentials and sum, key by key
      for strip of V's columns, tile of queries: O := O * old + S * V, times new
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.attention.blocks import TILE_ROWS, BlockEmitter, ValueProduct
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.matmul import multiply_add
from sardonyx.codegen.matmul.pack import transpose
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments
from sardonyx.kernel.attention.transposed import BLOCK, KEYS, TransposedAttentionKernel, block_vectors
from sardonyx.kernel.epilogue import accumulator
from sardonyx.kernel.expr import Expr, load
from sardonyx.target.target import Target

_CHAINS = 4  # of maxima and sums: keys that do not wait for each other


def emit_transposed_attention(kernel: TransposedAttentionKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of an attention kernel with transposed scores."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _TransposedEmitter(kernel, function, target).emit()
    return function


class _TransposedEmitter(BlockEmitter):
    def __init__(self, kernel: TransposedAttentionKernel, function: FunctionBuilder, target: Target) -> None:
        super().__init__(kernel.type, function, target, kernel.columns, range(1, TILE_ROWS + 1), transposed=True)
        self.k, f = kernel, function
        total, blocks = block_vectors(kernel.queries, self.lanes)
        self.total, self.blocks = total, blocks
        self.strip = self.vectors * self.lanes
        self.sizes = sorted({total // blocks, -(-total // blocks)})  # of blocks, in vectors
        a = Loaded(f, kernel.arguments)
        self.heads, self.keys, self.columns, self.group = a["heads"], a["keys"], a["columns"], a["group"]
        self.scale = self.number(a["scale"])
        self.q, self.key, self.v, self.o = a.tensor("q"), a.tensor("k"), a.tensor("v"), a.tensor("o")
        self.operands = a.tensors("operands")
        self.columns_of_q = f.let(f"alloca [{kernel.depth * BLOCK} x {self.element}], align 64", "queries")
        self.scores = f.let(f"alloca [{KEYS * self.strip} x {self.element}], align 64", "scores")
        if kernel.columns is not None and kernel.copies_values:
            self.copy = f.let(
                f"alloca [{-(-kernel.columns // self.strip) * self.strip * KEYS} x {self.element}], align 64", "values"
            )
        # For each query: the largest score so far; the sum of exponentials so far; the factors of what was summed before and of
        # the result.
        self.largest, self.sums, self.old, self.new = (
            f.let(f"alloca [{BLOCK} x {self.element}], align 64", "rows") for _ in range(4)
        )

    def emit(self) -> None:
        f = self.f
        least, larger = divmod(self.total, self.blocks)
        unit = f.loop("%begin", "%end")
        block, above = (f.let(f"{op} i64 {unit.index}, {self.blocks}", "i") for op in ("urem", "udiv"))
        head, entry = (f.let(f"{op} i64 {above}, {self.heads}", "i") for op in ("urem", "udiv"))
        vector, vectors = self.part(block, str(least), str(larger))
        first = f.mul(vector, self.lanes)
        rows = f.min(f.mul(vectors, self.lanes), f.sub(str(self.k.queries), first))
        shared = f.let(f"udiv i64 {head}, {self.group}", "i")
        self._transpose(self.address(self.q, self.element, entry, head, first), rows, vectors)
        operands = [self.address(moving, memory_type(kind), entry, head) for moving, kind in zip(self.operands, self.k.operands)]
        k, v = (self.address(moving, self.element, entry, shared) for moving in (self.key, self.v))
        o = self.address(self.o, self.element, entry, head, first)
        end = self.max(self.keys, 1)  # without keys there is one part of none: it writes zeros
        part = f.loop(0, end, KEYS)
        count = f.min(f.sub(self.keys, part.index), KEYS)
        is_first = f.let(f"icmp eq i64 {part.index}, 0", "c")
        is_last = f.let(f"icmp sge i64 {f.add(part.index, KEYS)}, {end}", "c")
        keys = f.element(k, self.element, f.mul(part.index, self.key.strides[2]))
        values = f.element(v, self.element, f.mul(part.index, self.v.strides[2]))
        v_row, v_strip = self.v.strides[2], ""
        if self.k.copies_values:
            self._copy(values, count)
            values, v_row, v_strip = self.copy, str(self.strip), str(self.strip * KEYS)
        moved = [
            f.element(at, memory_type(kind), f.mul(part.index, moving.strides[2]))
            for at, moving, kind in zip(operands, self.operands, self.k.operands)
        ]
        strip = f.loop(0, vectors, self.vectors)
        query = f.mul(strip.index, self.lanes)
        own = f.min(f.sub(vectors, strip.index), self.vectors)
        self._scores_of(keys, query, own, count)
        self._softmax(query, own, count, moved, is_first, is_last)
        product = ValueProduct(
            f.min(f.sub(rows, query), self.strip),
            values,
            v_row,
            f.element(o, self.element, f.mul(query, self.o.strides[2])),
            self.o.strides[2],
            count,
            is_first,
            v_strip,
        )
        if self.k.operands:
            product = replace(product, count=self.seen_keys(product))
        old, new = (f.element(base, self.element, query) for base in (self.old, self.new))
        self.multiply_values(product, self.scores, self.strip, old, new)
        f.end(strip)
        f.end(part)
        f.end(unit)

    # Values

    def _copy(self, v: str, count: str) -> None:
        """Rows of V into strips of columns."""
        f, columns = self.f, self.k.columns or 0
        key = f.loop(0, count)
        row = f.element(v, self.element, f.mul(key.index, self.v.strides[2]))
        to = f.element(self.copy, self.element, f.mul(key.index, self.strip))
        for column in range(0, columns, self.lanes):
            mask = None if column + self.lanes <= columns else self.e.mask_below(str(columns - column))
            value = self.e.load(f.element(row, self.element, column), self.type, mask)
            strip, inside = divmod(column, self.strip)
            self.e.store(f.element(to, self.element, strip * self.strip * KEYS + inside), value, self.type)
        f.end(key)

    # Queries

    def _transpose(self, q: str, rows: str, vectors: str) -> None:
        """The block of Q: a row for every element of depth. In vectors that are not full the last query is repeated."""
        f, depth = self.f, self.k.depth
        vector = f.loop(0, vectors)
        start = f.mul(vector.index, self.lanes)
        last = f.sub(f.sub(rows, start), 1)
        pointers = [
            f.element(q, self.element, f.mul(f.add(start, f.min(lane, last)), self.q.strides[2])) for lane in range(self.lanes)
        ]
        strip = f.let(f"udiv i64 {vector.index}, {self.vectors}", "i")
        inside = f.let(f"urem i64 {vector.index}, {self.vectors}", "i")
        at = f.add(f.mul(strip, self.strip * depth), f.mul(inside, self.lanes))
        target = f.element(self.columns_of_q, self.element, at)
        whole = depth - depth % self.lanes
        if whole:
            deep = f.loop(0, whole, self.lanes)
            loaded = [self.e.load(f.element(pointer, self.element, deep.index), self.type) for pointer in pointers]
            for number, value in enumerate(transpose(self.e, loaded, self.type)):
                self._put(target, f.add(deep.index, number), value)
            f.end(deep)
        if whole < depth:
            deep = f.loop(whole, depth)
            value = "poison"
            for lane, pointer in enumerate(pointers):
                one = f.let(f"load {self.element}, ptr {f.element(pointer, self.element, deep.index)}, align {self.bytes}")
                value = f.let(f"insertelement {self.e.type(self.type)} {value}, {self.element} {one}, i32 {lane}")
            self._put(target, deep.index, value)
            f.end(deep)
        f.end(vector)

    def _put(self, target: str, row: str, value: str) -> None:
        scaled = self.f.let(f"fmul {self.e.type(self.type)} {value}, {self.scale}")
        self.e.store(self.f.element(target, self.element, self.f.mul(row, self.strip)), scaled, self.type)

    # Scores

    def _scores_of(self, k: str, query: str, vectors: str, count: str) -> None:
        """The scores of a strip of queries, which may have fewer vectors than others."""
        f = self.f
        b = f.element(self.columns_of_q, self.element, f.mul(query, self.k.depth))
        for width in sorted({min(left, self.vectors) for size in self.sizes for left in range(size, 0, -self.vectors)}):
            some, after = f.fresh("some"), f.fresh("after")
            f.branch_if(f.let(f"icmp eq i64 {vectors}, {width}", "c"), some, after)
            f.label(some)
            parts, least, larger = self.parts(count, TILE_ROWS)
            tile = f.loop(0, f.min(parts, count))
            row, height = self.part(tile.index, least, larger)
            arguments = TileArguments(
                f.element(self.scores, self.element, f.mul(row, self.strip)),
                str(self.strip * self.bytes),
                f.element(k, self.element, f.mul(row, self.key.strides[2])),
                f.mul(self.key.strides[2], self.bytes),
                b,
                str(self.k.depth),
            )
            self.tiles.call_any(MatmulTile(self.type, self.lanes, 1, width, 1, self.strip), height, self.heights, arguments)
            f.end(tile)
            f.branch(after)
            f.label(after)

    def is_unseen(self, rows: str, end: str) -> tuple[str, str]:
        """Of the last key before `end`."""
        f, words = self.f, f"<{self.lanes} x i{self.bytes * 8}>"
        begin = f.sub(end, 1)
        query = f.loop(0, rows, self.lanes, [(words, "zeroinitializer")])
        at = f.element(self.scores, self.element, f.add(f.mul(begin, self.strip), query.index))
        (bits,) = f.end(query, [self.some_bits(query.carry[0], at)])
        return begin, self.no_bits(bits)

    # Softmax

    def _softmax(self, query: str, vectors: str, count: str, operands: list[str], is_first: str, is_last: str) -> None:
        """Scores to exponentials, a vector of queries after the other."""
        f, kind, vector = self.f, self.type, self.e.type(self.type)
        lowest, zero, one = (constant(kind, value, self.lanes) for value in (float("-inf"), 0.0, 1.0))
        block = f.loop(0, vectors)
        inside = f.mul(block.index, self.lanes)
        scores = f.element(self.scores, self.element, inside)
        largest, sums, old, new = (
            f.element(base, self.element, f.add(query, inside)) for base in (self.largest, self.sums, self.old, self.new)
        )

        def score(at: str, key: str) -> str:
            value = self.e.load(at, kind)
            if not self.k.plain:
                value = self._score(value, operands, key)
                self.e.store(at, value, kind)
            return value

        tops = self._walk(scores, count, lowest, lambda at, key, top: self.larger(top, score(at, key)))
        top = self._joined(tops, self.larger)
        before = self.either(is_first, lowest, self.e.load(largest, kind))
        top = self.larger(before, top)
        nothing = f.let(f"fcmp oeq {vector} {top}, {lowest}")
        base = self.e.choose(nothing, zero, top, kind)
        factor = self.exp(f.let(f"fsub {vector} {before}, {base}"))

        def exponential(at: str, key: str, total: str) -> str:
            value = self.exp(f.let(f"fsub {vector} {self.e.load(at, kind)}, {base}"))
            self.e.store(at, value, kind)
            return f.let(f"fadd {vector} {total}, {value}")

        total = self._joined(self._walk(scores, count, zero, exponential), lambda a, b: f.let(f"fadd {vector} {a}, {b}"))
        summed = multiply_add(self.e, self.either(is_first, zero, self.e.load(sums, kind)), factor, total, kind)
        inverse = f.let(f"fdiv {vector} {one}, {summed}")
        if self.k.nan_rows:  # zero times infinity; but a row of no keys at all is an empty sum
            inverse = self.either(f.let(f"icmp eq i64 {self.keys}, 0", "c"), one, inverse)
        else:
            inverse = self.e.choose(f.let(f"fcmp oeq {vector} {summed}, {zero}"), one, inverse, kind)
        for pointer, value in ((largest, top), (sums, summed), (old, factor), (new, self.either(is_last, inverse, one))):
            self.e.store(pointer, value, kind)
        f.end(block)

    def _walk(self, scores: str, count: str, start: str, step: Callable[[str, str, str], str]) -> list[str]:
        """Along the keys, some at a time, each in a chain of its own; then the last ones."""
        f, vector = self.f, self.e.type(self.type)
        whole = f.let(f"and i64 {count}, {-_CHAINS}", "i")
        chains = [start] * _CHAINS
        for begin, end, width in (("0", whole, _CHAINS), (whole, count, 1)):
            key = f.loop(begin, end, width, [(vector, chain) for chain in chains[:width]])
            made = []
            for number, carried in enumerate(key.carry):
                index = f.add(key.index, number)
                made.append(step(f.element(scores, self.element, f.mul(index, self.strip)), index, carried))
            chains[:width] = f.end(key, made)
        return chains

    def _joined(self, chains: list[str], join: Callable[[str, str], str]) -> str:
        while len(chains) > 1:
            chains = [join(a, b) for a, b in zip(chains[::2], chains[1::2])]
        return chains[0]

    def _score(self, value: str, operands: list[str], number: str) -> str:
        """The scores of a key, out of its products."""
        f, k = self.f, self.k
        known: dict[Expr, str] = {accumulator(k.type): value}
        for position, (at, kind) in enumerate(zip(operands, k.operands)):
            pointer = f.element(at, memory_type(kind), f.mul(number, self.operands[position].strides[2]))
            known[load(position, kind)] = self.e.load_scalar(pointer, kind)
        (made,) = self.e.emit([k.score], known)
        return made
