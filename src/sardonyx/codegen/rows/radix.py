"""Radix sort of words -> LLVM: a word has a key in its upper half and the index it came from in its lower one.

Words are sorted by one byte of the key after the other, the last byte first; that keeps words with equal keys in their order. A
byte that is the same in all words costs one look at them. A few words are inserted one after the other: going through the
counters of all bytes takes longer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.rows.insertion import SortedEntries, insert_sorted
from sardonyx.kernel.expr import BITS, FLOATS, SIGNED

_BYTE: Final = 8
_FEW: Final = 40  # words that are inserted
_MANTISSA: Final = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def ordered_key(f: FunctionBuilder, bits: str, type: str) -> str:
    """An element's bits as an unsigned number that compares as the element does; NaN is greater than all, zeros are equal."""
    width = BITS[type]
    kind, sign = f"i{width}", -(1 << (width - 1))
    if type in SIGNED:
        return f.let(f"xor {kind} {bits}, {sign}")
    if type not in FLOATS:
        return bits
    infinity = (1 << (width - 1)) - (1 << _MANTISSA[type])
    magnitude = f.let(f"and {kind} {bits}, {-1 - sign}")
    nan = f.let(f"icmp ugt {kind} {magnitude}, {infinity}", "c")
    zero = f.let(f"icmp eq {kind} {magnitude}, 0", "c")
    plain = f.let(f"select i1 {zero}, {kind} 0, {kind} {bits}")
    negative = f.let(f"ashr {kind} {plain}, {width - 1}")
    flipped = f.let(f"xor {kind} {plain}, {f.let(f'or {kind} {negative}, {sign}')}")
    return f.let(f"select i1 {nan}, {kind} -1, {kind} {flipped}")


class Words:
    """Writes code that makes, reads and sorts words; `entries` is how many counters there are on the stack, at least 256."""

    def __init__(self, function: FunctionBuilder, key_bits: int, entries: int = 1 << _BYTE) -> None:
        self.f = function
        self.key_bits = key_bits
        self.index_bits = 32 if key_bits <= 32 else 64
        self.type = f"i{2 * self.index_bits}"
        self._counts = function.let(f"alloca [{entries} x i64], align 64", "counts")

    def made(self, key: str, index: str) -> str:
        """A word."""
        f = self.f
        high = f.let(f"shl {self.type} {self._widened(key, f'i{self.key_bits}', self.type)}, {self.index_bits}")
        return f.let(f"or {self.type} {high}, {self._widened(index, 'i64', self.type)}")

    def key_of(self, word: str) -> str:
        """The key of a word, as 64 bits."""
        high = self.f.let(f"lshr {self.type} {word}, {self.index_bits}")
        return high if self.type == "i64" else self.f.let(f"trunc {self.type} {high} to i64")

    def index_of(self, word: str) -> str:
        """The index of a word."""
        low = word if self.type == "i64" else self.f.let(f"trunc {self.type} {word} to i64")
        return low if self.index_bits == 64 else self.f.let(f"and i64 {low}, {(1 << self.index_bits) - 1}")

    def load(self, words: str, index: str) -> str:
        return self.f.let(f"load {self.type}, ptr {self.f.element(words, self.type, index)}, align 8")

    def store(self, words: str, index: str, word: str) -> None:
        self.f.line(f"store {self.type} {word}, ptr {self.f.element(words, self.type, index)}, align 8")

    def _widened(self, value: str, kind: str, target: str) -> str:
        return value if kind == target else self.f.let(f"zext {kind} {value} to {target}")

    # Counters

    def counter(self, entry: str) -> str:
        """Where a counter lies."""
        return self.f.element(self._counts, "i64", entry)

    def zero(self, entries: int = 1 << _BYTE) -> None:
        """Start counting anew."""
        f = self.f
        f.declarations.add("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        f.line(f"call void @llvm.memset.p0.i64(ptr align 64 {self._counts}, i8 0, i64 {8 * entries}, i1 false)")

    def count(self, entry: str) -> None:
        """Count one more."""
        at = self.counter(entry)
        self.f.line(f"store i64 {self.f.add(self.f.let(f'load i64, ptr {at}, align 8'), 1)}, ptr {at}, align 8")

    # Passes

    def sorted(self, words: str, spare: str, count: str) -> tuple[str, str]:
        """Sort the first words, with as much spare memory; where the result lies, and which memory is spare then."""
        f = self.f
        few, some, done = f.fresh("few"), f.fresh("some"), f.fresh("sorted")
        f.branch_if(f.let(f"icmp sle i64 {count}, {_FEW}", "c"), few, some)
        f.label(few)
        self._insert_each(words, count)
        before = f.block
        f.branch(done)
        f.label(some)
        byte = f.loop(0, self.key_bits, _BYTE, [("ptr", words), ("ptr", spare)])
        source, target = byte.carry
        self.zero()
        each = f.loop(0, count)
        self.count(self._digit(self.load(source, each.index), byte.index))
        f.end(each)
        first = self.counter(self._digit(self.load(source, "0"), byte.index))
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
        result, rest = f.end(byte, [now, other])
        last = f.block
        f.branch(done)
        f.label(done)
        found = f.let(f"phi ptr [ {words}, %{before} ], [ {result}, %{last} ]")
        return found, f.let(f"phi ptr [ {spare}, %{before} ], [ {rest}, %{last} ]")

    def buckets(self, words: str, spare: str, count: str) -> tuple[str, str, str]:
        """Divide words into buckets, each of which has smaller keys than the next one and keeps their order.

        Where they lie then, which memory is spare, and how many buckets there are; the counters say where each of them ends. A
        few words stay where they are: they are one bucket. So whoever needs the first words only need not sort the others.
        """
        f = self.f
        few, some, done = f.fresh("few"), f.fresh("some"), f.fresh("divided")
        f.branch_if(f.let(f"icmp sle i64 {count}, {_FEW}", "c"), few, some)
        f.label(few)
        f.line(f"store i64 {count}, ptr {self.counter('0')}, align 8")
        before = f.block
        f.branch(done)
        f.label(some)
        each = f.loop(0, count, 1, [("i64", "-1"), ("i64", "0")])
        key = self.key_of(self.load(words, each.index))
        least, greatest = f.end(each, [self._of(name, key, known) for name, known in zip(("umin", "umax"), each.carry)])
        span = f.let(f"sub i64 {greatest}, {least}")
        zeros = f.call("i64", "llvm.ctlz.i64", ("i64", span), ("i1", "false"))
        shift = self._of("smax", f.let(f"sub i64 {64 - _BYTE}, {zeros}"), "0")

        def bucket(word: str) -> str:
            return f.let(f"lshr i64 {f.let(f'sub i64 {self.key_of(word)}, {least}')}, {shift}")

        self.zero()
        each = f.loop(0, count)
        self.count(bucket(self.load(words, each.index)))
        f.end(each)
        self._distribute(words, spare, count, bucket)
        number = f.add(f.let(f"lshr i64 {span}, {shift}"), 1)
        last = f.block
        f.branch(done)
        f.label(done)
        lies = f.let(f"phi ptr [ {words}, %{before} ], [ {spare}, %{last} ]")
        other = f.let(f"phi ptr [ {spare}, %{before} ], [ {words}, %{last} ]")
        return lies, other, f.let(f"phi i64 [ 1, %{before} ], [ {number}, %{last} ]")

    def _of(self, name: str, first: str, second: str) -> str:
        """The lesser or greater of two numbers."""
        return self.f.call("i64", f"llvm.{name}.i64", ("i64", first), ("i64", second))

    def _insert_each(self, words: str, count: str) -> None:
        """Sort words where they are, each behind those before it that have no greater key."""
        f = self.f
        each = f.loop(1, count)
        word = self.load(words, each.index)
        key = self.key_of(word)
        entries = SortedEntries(
            value=lambda position: self.load(words, position),
            comes_first=lambda other: f.let(f"icmp ult i64 {key}, {self.key_of(other)}", "c"),
            shift=lambda position, above, previous: self.store(words, position, previous),
            put=lambda position: self.store(words, position, word),
        )
        insert_sorted(f, entries, each.index, each.index)
        f.end(each)

    def _digit(self, word: str, shift: str) -> str:
        f = self.f
        return f.let(f"and i64 {f.let(f'lshr i64 {self.key_of(word)}, {shift}')}, {(1 << _BYTE) - 1}")

    def _move(self, source: str, target: str, count: str, shift: str) -> None:
        self._distribute(source, target, count, lambda word: self._digit(word, shift))

    def _distribute(self, source: str, target: str, count: str, digit: Callable[[str], str]) -> None:
        """Move words behind those of smaller digits, which were counted; afterwards the counters say where each digit ends."""
        f = self.f
        each = f.loop(0, 1 << _BYTE, 1, [("i64", "0")])
        at = self.counter(each.index)
        found = f.let(f"load i64, ptr {at}, align 8")
        f.line(f"store i64 {each.carry[0]}, ptr {at}, align 8")
        f.end(each, [f.add(each.carry[0], found)])
        walk = f.loop(0, count)
        word = self.load(source, walk.index)
        at = self.counter(digit(word))
        index = f.let(f"load i64, ptr {at}, align 8")
        self.store(target, index, word)
        f.line(f"store i64 {f.add(index, 1)}, ptr {at}, align 8")
        f.end(walk)
