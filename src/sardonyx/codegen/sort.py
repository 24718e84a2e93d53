"""Sorts of rows -> LLVM.

for row:
  for i in row:        words[i] = key, i;  count the leading bits of the keys
  few wanted:          keep the words whose leading bits are not beyond those of the last one wanted
  for byte of the key, the last first:
    count it in all words; if they differ, move every word to its place among those with the same byte
  for i in k:          places[i] = place in words[i];  values[i] = row[places[i]]
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.function import Function
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.target import Target
from sardonyx.codegen.vector import VectorEmitter, memory_type
from sardonyx.kernel.expr import FLOATS, SIGNED
from sardonyx.kernel.sort import UNITS, SortKernel

_BYTE: Final = 8
_LEADING: Final = 11  # bits: of an f32 the sign, the exponent and two more
_FEW: Final = 4  # that many times k in a row pay for a look at the leading bits
_MANTISSA: Final = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def emit_sort_kernel(kernel: SortKernel, name: str, target: Target) -> Function:
    """The function of a sort."""
    function = Function(name, KERNEL_PARAMETERS)
    _SortEmitter(kernel, function).emit()
    return function


class _SortEmitter:
    def __init__(self, kernel: SortKernel, function: Function) -> None:
        self.k = kernel
        self.f = f = function
        self.key, self.word = f"i{kernel.bits}", f"i{2 * kernel.place_bits}"
        self.leading = min(_LEADING, kernel.bits)
        at = iter(range(kernel.argument_count()))

        def number() -> str:
            return f.argument("%args", next(at))

        self.outer = [number() for _ in range(kernel.outer)]
        self.length, self.wanted = number(), number()
        self.sides = [(f.argument("%args", next(at), "ptr"), [number() for _ in self.outer], number()) for _ in range(3)]
        self.scratch = f.argument("%args", next(at), "ptr")
        self.counts = f.let(f"alloca [{1 << self.leading} x i64], align 64", "counts")

    def emit(self) -> None:
        f = self.f
        rows = "1"
        for size in self.outer:
            rows = f.mul(rows, size)
        unit = f.loop("%begin", "%end")
        words = f.element(self.scratch, self.word, f.mul(f.mul(unit.index, 2), self.length))
        spare = f.element(words, self.word, self.length)
        row = f.loop(unit.index, rows, UNITS)
        source, values, places = self._row(row.index)
        self._zero(1 << self.leading)
        self._build(source, words)
        count = self._kept(words)
        self._results(source, values, places, self._sorted(words, spare, count))
        f.end(row)
        f.end(unit)

    def _row(self, row: str) -> list[str]:
        f, rest = self.f, row
        offsets = ["0"] * 3
        for axis in range(self.k.outer - 1, -1, -1):
            index = rest if axis == 0 else f.let(f"urem i64 {rest}, {self.outer[axis]}", "i")
            if axis:
                rest = f.let(f"udiv i64 {rest}, {self.outer[axis]}", "i")
            offsets = [f.add(offset, f.mul(index, side[1][axis])) for offset, side in zip(offsets, self.sides)]
        element = memory_type(self.k.type)
        return [f.element(side[0], kind, offset) for side, kind, offset in zip(self.sides, (element, element, "i64"), offsets)]

    # Keys

    def _key(self, bits: str) -> str:
        """The bits of an element as an unsigned number that compares as the element does."""
        f, kind, sign = self.f, self.key, -(1 << (self.k.bits - 1))
        key = bits
        if self.k.type in SIGNED:
            key = f.let(f"xor {kind} {bits}, {sign}")
        elif self.k.type in FLOATS:
            infinity = (1 << (self.k.bits - 1)) - (1 << _MANTISSA[self.k.type])
            magnitude = f.let(f"and {kind} {bits}, {-1 - sign}")
            nan = f.let(f"icmp ugt {kind} {magnitude}, {infinity}", "c")
            zero = f.let(f"icmp eq {kind} {magnitude}, 0", "c")
            plain = f.let(f"select i1 {zero}, {kind} 0, {kind} {bits}")
            negative = f.let(f"ashr {kind} {plain}, {self.k.bits - 1}")
            flipped = f.let(f"xor {kind} {plain}, {f.let(f'or {kind} {negative}, {sign}')}")
            key = f.let(f"select i1 {nan}, {kind} -1, {kind} {flipped}")
        return f.let(f"xor {kind} {key}, -1") if self.k.largest else key

    def _build(self, source: str, words: str) -> None:
        f, element = self.f, memory_type(self.k.type)
        each = f.loop(0, self.length)
        pointer = f.element(source, element, f.mul(each.index, self.sides[0][2]))
        key = self._key(f.let(f"load {self.key}, ptr {pointer}, align {self.k.bits // 8}"))
        self._count(self._widened(f.let(f"lshr {self.key} {key}, {self.k.bits - self.leading}"), self.key))
        high = f.let(f"shl {self.word} {self._widened(key, self.key, self.word)}, {self.k.place_bits}")
        place = self._widened(each.index, "i64", self.word)
        self._store(words, each.index, f.let(f"or {self.word} {high}, {place}"))
        f.end(each)

    def _widened(self, value: str, kind: str, target: str = "i64") -> str:
        return value if kind == target else self.f.let(f"zext {kind} {value} to {target}")

    def _key_of(self, word: str) -> str:
        """The key of a word, as 64 bits."""
        high = self.f.let(f"lshr {self.word} {word}, {self.k.place_bits}")
        return high if self.word == "i64" else self.f.let(f"trunc {self.word} {high} to i64")

    def _load(self, words: str, index: str) -> str:
        return self.f.let(f"load {self.word}, ptr {self.f.element(words, self.word, index)}, align 8")

    def _store(self, words: str, index: str, word: str) -> None:
        self.f.line(f"store {self.word} {word}, ptr {self.f.element(words, self.word, index)}, align 8")

    # Counts

    def _zero(self, entries: int) -> None:
        f = self.f
        f.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.line(f"call void @llvm.memset.p0.i64(ptr align 64 {self.counts}, i8 0, i64 {8 * entries}, i1 false)")

    def _count(self, entry: str) -> None:
        f = self.f
        at = f.element(self.counts, "i64", entry)
        f.line(f"store i64 {f.add(f.let(f'load i64, ptr {at}, align 8'), 1)}, ptr {at}, align 8")

    def _kept(self, words: str) -> str:
        """Drop words that cannot be among the wanted ones, if that pays; how many are left."""
        f = self.f
        few, after = f.fresh("few"), f.fresh("kept")
        before = f.block
        f.branch_if(f.let(f"icmp sgt i64 {self.length}, {f.mul(self.wanted, _FEW)}", "c"), few, after)
        f.label(few)
        # How many entries it takes to hold all that are wanted: `beyond` is the first one after them.
        each = f.loop(0, 1 << self.leading, 1, [("i64", "0"), ("i64", "0")])
        short = f.let(f"icmp slt i64 {each.carry[0]}, {self.wanted}", "c")
        count = f.let(f"load i64, ptr {f.element(self.counts, 'i64', each.index)}, align 8")
        beyond = f.let(f"select i1 {short}, i64 {f.add(each.index, 1)}, i64 {each.carry[1]}")
        _, limit = f.end(each, [f.add(each.carry[0], count), beyond])
        walk = f.loop(0, self.length, 1, [("i64", "0")])
        word = self._load(words, walk.index)
        entry = f.let(f"lshr i64 {self._key_of(word)}, {self.k.bits - self.leading}")
        self._store(words, walk.carry[0], word)
        taken = f.let(f"zext i1 {f.let(f'icmp ult i64 {entry}, {limit}', 'c')} to i64")
        (left,) = f.end(walk, [f.add(walk.carry[0], taken)])
        last = f.block
        f.branch(after)
        f.label(after)
        return f.let(f"phi i64 [ {self.length}, %{before} ], [ {left}, %{last} ]")

    # Passes

    def _sorted(self, words: str, spare: str, count: str) -> str:
        """Sort the first words; where the result lies."""
        f = self.f
        some, done = f.fresh("some"), f.fresh("sorted")
        before = f.block
        f.branch_if(f.let(f"icmp sgt i64 {count}, 1", "c"), some, done)
        f.label(some)
        byte = f.loop(0, self.k.bits, _BYTE, [("ptr", words), ("ptr", spare)])
        source, target = byte.carry
        self._zero(1 << _BYTE)
        each = f.loop(0, count)
        self._count(self._digit(self._load(source, each.index), byte.index))
        f.end(each)
        first = f.element(self.counts, "i64", self._digit(self._load(source, "0"), byte.index))
        same = f.let(f"icmp eq i64 {f.let(f'load i64, ptr {first}, align 8')}, {count}", "c")
        move, following = f.fresh("move"), f.fresh("following")
        here = f.block
        f.branch_if(same, following, move)
        f.label(move)
        self._move(source, target, count, byte.index)
        moved = f.block
        f.branch(following)
        f.label(following)
        now = f.let(f"phi ptr [ {source}, %{here} ], [ {target}, %{moved} ]")
        other = f.let(f"phi ptr [ {target}, %{here} ], [ {source}, %{moved} ]")
        result, _ = f.end(byte, [now, other])
        last = f.block
        f.branch(done)
        f.label(done)
        return f.let(f"phi ptr [ {words}, %{before} ], [ {result}, %{last} ]")

    def _digit(self, word: str, shift: str) -> str:
        f = self.f
        return f.let(f"and i64 {f.let(f'lshr i64 {self._key_of(word)}, {shift}')}, {(1 << _BYTE) - 1}")

    def _move(self, source: str, target: str, count: str, shift: str) -> None:
        f = self.f
        each = f.loop(0, 1 << _BYTE, 1, [("i64", "0")])
        at = f.element(self.counts, "i64", each.index)
        found = f.let(f"load i64, ptr {at}, align 8")
        f.line(f"store i64 {each.carry[0]}, ptr {at}, align 8")
        f.end(each, [f.add(each.carry[0], found)])
        walk = f.loop(0, count)
        word = self._load(source, walk.index)
        at = f.element(self.counts, "i64", self._digit(word, shift))
        place = f.let(f"load i64, ptr {at}, align 8")
        self._store(target, place, word)
        f.line(f"store i64 {f.add(place, 1)}, ptr {at}, align 8")
        f.end(walk)

    def _results(self, source: str, values: str, places: str, words: str) -> None:
        f, one, kind = self.f, VectorEmitter(self.f, 1), self.k.type
        element, moves = memory_type(kind), [side[2] for side in self.sides]
        each = f.loop(0, self.wanted)
        word = self._load(words, each.index)
        low = word if self.word == "i64" else f.let(f"trunc {self.word} {word} to i64")
        place = low if self.k.place_bits == 64 else f.let(f"and i64 {low}, {(1 << self.k.place_bits) - 1}")
        f.line(f"store i64 {place}, ptr {f.element(places, 'i64', f.mul(each.index, moves[2]))}, align 8")
        value = one.load(f.element(source, element, f.mul(place, moves[0])), kind)
        one.store(f.element(values, element, f.mul(each.index, moves[1])), value, kind)
        f.end(each)
