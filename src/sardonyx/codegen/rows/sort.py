"""Sorts of rows -> LLVM.

for row:
  words = the first elements, as many as there is room for, each as key and index
  for the others, a block at a time:
    append those that beat the last one wanted of the words sorted so far
    no room for another block:   sort the words;  only those wanted stay
  sort the words
  for i in k:          indices[i] = index in words[i];  values[i] = row[indices[i]]

A row of random elements is looked at once, and a few times k of them are sorted; at worst, in a row whose elements come from the
last to the first, twice as many words are sorted as there are elements.
"""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.rows.radix import Words, ordered_key
from sardonyx.codegen.rows.topk import RowPointers, RowSelection, for_each_bit, select_by_insertion
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.rows import topk
from sardonyx.kernel.rows.sort import SortKernel
from sardonyx.target.target import Target


def emit_sort_kernel(kernel: SortKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a sort."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    emitter = _SortEmitter(kernel, f, target)
    if not kernel.few:
        emitter.emit()
        return f
    insertion, sort, done = f.fresh("insertion"), f.fresh("sort"), f.fresh("selected")
    f.branch_if(f.let(f"icmp sle i64 {emitter.wanted}, {topk.MOST}", "c"), insertion, sort)
    f.label(insertion)
    select_by_insertion(emitter)
    f.branch(done)
    f.label(sort)
    emitter.emit()
    f.branch(done)
    f.label(done)
    return f


class _SortEmitter(RowSelection):
    def __init__(self, kernel: SortKernel, function: FunctionBuilder, target: Target) -> None:
        super().__init__(kernel, function, target)
        self.key = f"i{kernel.bits}"
        self.largest = kernel.largest
        self.bits = kernel.bits
        arguments = Loaded(function, kernel.arguments)
        self.room = arguments["room"]
        words, (size,) = arguments.tensor("scratch")
        self.scratch = function.own_part(words, "i64", size)
        self.words = Words(function, kernel.bits)

    def emit(self) -> None:
        f = self.f
        words = self.scratch
        spare = f.element(words, self.words.type, self.room)
        unit = f.loop("%begin", "%end")
        row = self.row(unit.index)
        each = f.loop(0, self.room)
        self.words.store(words, each.index, self._word(row, each.index))
        f.end(each)
        words, spare, count = self._candidates(row, words, spare)
        result, _ = self.words.sorted(words, spare, count)
        self._results(row, result)
        f.end(unit)

    def _word(self, row: RowPointers, index: str) -> str:
        f = self.f
        pointer = f.element(row.elements, self.element, index)
        key = ordered_key(f, f.let(f"load {self.key}, ptr {pointer}, align {self.bits // 8}"), self.k.type)
        if self.largest:
            key = f.let(f"xor {self.key} {key}, -1")
        return self.words.made(key, index)

    def _candidates(self, row: RowPointers, words: str, spare: str) -> tuple[str, str, str]:
        """Go through the elements that there was no room for: where words and spare memory lie then, and how many words."""
        f, one, kind = self.f, VectorEmitter(self.f, 1), self.k.type
        more, after = f.fresh("more"), f.fresh("chosen")
        before = f.block
        some = f.let(f"icmp sgt i64 {self.wanted}, 0", "c")
        left = f.let(f"icmp sgt i64 {self.length}, {self.room}", "c")
        f.branch_if(f.let(f"and i1 {some}, {left}", "c"), more, after)
        f.label(more)
        whole = f.add(self.room, f.let(f"and i64 {f.sub(self.length, self.room)}, {-self.lanes}", "i"))
        start = self._only_wanted(row, words, spare, self.room)
        state = list(zip(("ptr", "ptr", "i64", one.type(kind)), start))
        block = f.loop(self.room, whole, self.lanes, state)
        bits = self.which(row, block.index, block.carry[3])
        (count,) = for_each_bit(
            f,
            bits,
            self.lanes,
            lambda lane, count: [self._appended(row, block.carry[0], count[0], f.add(block.index, lane))],
            [("i64", block.carry[2])],
        )
        crowded, following = f.fresh("crowded"), f.fresh("following")
        here = f.block
        f.branch_if(f.let(f"icmp sgt i64 {count}, {f.sub(self.room, self.lanes)}", "c"), crowded, following)
        f.label(crowded)
        fewer = self._only_wanted(row, block.carry[0], block.carry[1], count)
        end = f.block
        f.branch(following)
        f.label(following)
        same = [block.carry[0], block.carry[1], count, block.carry[3]]
        joined = [
            f.let(f"phi {kind} [ {one}, %{here} ], [ {other}, %{end} ]") for (kind, _), one, other in zip(state, same, fewer)
        ]
        words_, spare_, count, least = f.end(block, joined)
        # There is room for as many as a block has.
        rest = f.loop(whole, self.length, 1, [("i64", count)])
        value = one.load(f.element(row.elements, self.element, rest.index), kind)
        self._appended(row, words_, rest.carry[0], rest.index)
        beats = f.let(f"zext i1 {self.better(one, value, least)} to i64")
        (count,) = f.end(rest, [f.add(rest.carry[0], beats)])
        end = f.block
        f.branch(after)
        f.label(after)
        kinds, initial = ("ptr", "ptr", "i64"), (words, spare, self.room)
        found = [
            f.let(f"phi {kind} [ {one}, %{before} ], [ {other}, %{end} ]")
            for kind, one, other in zip(kinds, initial, (words_, spare_, count))
        ]
        return found[0], found[1], found[2]

    def _appended(self, row: RowPointers, words: str, count: str, index: str) -> str:
        """Write an element behind so many words; how many there are then."""
        self.words.store(words, count, self._word(row, index))
        return self.f.add(count, 1)

    def _only_wanted(self, row: RowPointers, words: str, spare: str, count: str) -> list[str]:
        """Sort: where words and spare memory lie then, how many words are wanted, and the element of the last one."""
        f, one = self.f, VectorEmitter(self.f, 1)
        now, other = self.words.sorted(words, spare, count)
        last = self.words.index_of(self.words.load(now, f.sub(self.wanted, 1)))
        return [now, other, self.wanted, one.load(f.element(row.elements, self.element, last), self.k.type)]

    def _results(self, row: RowPointers, words: str) -> None:
        f, one, kind = self.f, VectorEmitter(self.f, 1), self.k.type
        each = f.loop(0, self.wanted)
        index = self.words.index_of(self.words.load(words, each.index))
        f.line(f"store i64 {index}, ptr {self.index_at(row, each.index)}, align 8")
        one.store(self.value_at(row, each.index), one.load(f.element(row.elements, self.element, index), kind), kind)
        f.end(each)
