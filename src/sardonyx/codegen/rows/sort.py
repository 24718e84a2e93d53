"""Sorts of rows -> LLVM.

for row:
  for i in row:        words[i] = key, i;  count the leading bits of the keys
  few wanted:          keep the words whose leading bits are not beyond those of the last one wanted
  sort the words
  for i in k:          indices[i] = index in words[i];  values[i] = row[indices[i]]
"""

from __future__ import annotations

from typing import Final

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.rows.radix import Words, ordered_key
from sardonyx.codegen.vector import VectorEmitter, memory_type
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.target.target import Target

_LEADING: Final = 11  # bits: of an f32 the sign, the exponent and two more
_FEW: Final = 4  # that many times k in a row pay for a look at the leading bits


def emit_sort_kernel(kernel: SortKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a sort."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _SortEmitter(kernel, function).emit()
    return function


class _SortEmitter:
    def __init__(self, kernel: SortKernel, function: FunctionBuilder) -> None:
        self.k = kernel
        self.f = f = function
        self.key = f"i{kernel.bits}"
        self.leading = min(_LEADING, kernel.bits)
        a = Loaded(f, kernel.arguments)
        self.outer, self.length, self.wanted = a.several("outer"), a["length"], a["wanted"]
        self.sides: list[tuple[str, list[str], str]] = []
        for base, (*strides, along) in (a.tensor("rows"), a.tensor("values"), a.tensor("indices")):
            self.sides.append((base, strides, along))
        words, (size,) = a.tensor("scratch")
        self.scratch = f.own_part(words, "i64", size)
        self.words = Words(f, kernel.bits, 1 << self.leading)

    def emit(self) -> None:
        f = self.f
        words = self.scratch
        spare = f.element(words, self.words.type, self.length)
        row = f.loop("%begin", "%end")
        source, values, indices = self._row(row.index)
        self.words.zero(1 << self.leading)
        self._build(source, words)
        count = self._kept(words)
        self._results(source, values, indices, self.words.sorted(words, spare, count))
        f.end(row)

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

    def _build(self, source: str, words: str) -> None:
        f, element = self.f, memory_type(self.k.type)
        each = f.loop(0, self.length)
        pointer = f.element(source, element, f.mul(each.index, self.sides[0][2]))
        key = ordered_key(f, f.let(f"load {self.key}, ptr {pointer}, align {self.k.bits // 8}"), self.k.type)
        if self.k.largest:
            key = f.let(f"xor {self.key} {key}, -1")
        word = self.words.made(key, each.index)
        self.words.count(f.let(f"lshr i64 {self.words.key_of(word)}, {self.k.bits - self.leading}"))
        self.words.store(words, each.index, word)
        f.end(each)

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
        count = f.let(f"load i64, ptr {self.words.counter(each.index)}, align 8")
        beyond = f.let(f"select i1 {short}, i64 {f.add(each.index, 1)}, i64 {each.carry[1]}")
        _, limit = f.end(each, [f.add(each.carry[0], count), beyond])
        walk = f.loop(0, self.length, 1, [("i64", "0")])
        word = self.words.load(words, walk.index)
        entry = f.let(f"lshr i64 {self.words.key_of(word)}, {self.k.bits - self.leading}")
        self.words.store(words, walk.carry[0], word)
        taken = f.let(f"zext i1 {f.let(f'icmp ult i64 {entry}, {limit}', 'c')} to i64")
        (left,) = f.end(walk, [f.add(walk.carry[0], taken)])
        last = f.block
        f.branch(after)
        f.label(after)
        return f.let(f"phi i64 [ {self.length}, %{before} ], [ {left}, %{last} ]")

    def _results(self, source: str, values: str, indices: str, words: str) -> None:
        f, one, kind = self.f, VectorEmitter(self.f, 1), self.k.type
        element, axis_strides = memory_type(kind), [side[2] for side in self.sides]
        each = f.loop(0, self.wanted)
        index = self.words.index_of(self.words.load(words, each.index))
        f.line(f"store i64 {index}, ptr {f.element(indices, 'i64', f.mul(each.index, axis_strides[2]))}, align 8")
        value = one.load(f.element(source, element, f.mul(index, axis_strides[0])), kind)
        one.store(f.element(values, element, f.mul(each.index, axis_strides[1])), value, kind)
        f.end(each)
