"""Non-maximum suppression -> LLVM.

for row:
  words = key of -score, box          for all boxes that take part; vectors of boxes none of which does are passed over
  divide the words into buckets by their keys
  for bucket in order, while there is room:
    sort its words
    for word in order, while there is room:
      compare its box with the chosen ones, a vector at a time; if none overlaps too much, it is chosen, too

Most boxes are worse than all that are chosen: they are never sorted.
"""

from __future__ import annotations

from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.fault import report
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.rows.radix import Words, ordered_key
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import Expr, load, maximum, minimum
from sardonyx.kernel.sampling.suppress import FIELDS, ListKernel, SuppressKernel, corner_room
from sardonyx.target.target import Target


def emit_suppress_kernel(kernel: SuppressKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a suppression."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _SuppressEmitter(kernel, function, target).emit()
    return function


def _corners(kernel: SuppressKernel) -> list[Expr]:
    """The smaller and the larger coordinates of the box that loads 0 to 3 describe, and its area."""
    first, second, third, fourth = (load(number, "f32") for number in range(4))
    if kernel.center:
        halves = (third / 2.0, fourth / 2.0)
        low = [first - halves[0], second - halves[1]]
        high = [first + halves[0], second + halves[1]]
    else:
        low = [minimum(first, third), minimum(second, fourth)]
        high = [maximum(first, third), maximum(second, fourth)]
    area = maximum(high[0] - low[0], 0.0) * maximum(high[1] - low[1], 0.0)
    return [*low, *high, area]


def _overlap() -> Expr:
    """Whether the boxes of loads 0 to 4 and 5 to 9 (corners, area) overlap by more than load 10."""
    a, b = ([load(first + number, "f32") for number in range(FIELDS)] for first in (0, FIELDS))
    low, high = ([of(a[coordinate + at], b[coordinate + at]) for coordinate in (0, 1)] for of, at in ((maximum, 0), (minimum, 2)))
    shared = (high[0] - low[0]) * (high[1] - low[1])
    union = a[4] + b[4] - shared
    touching = (high[0] > low[0]) & (high[1] > low[1])
    return touching & (union > 0.0) & ((shared / union) > load(2 * FIELDS, "f32"))


class _SuppressEmitter:
    def __init__(self, kernel: SuppressKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.target, self.lanes = target, target.lanes
        a = Loaded(f, kernel.arguments)
        self.rows, self.classes, self.boxes, self.room = a["rows"], a["classes"], a["boxes"], a["room"]
        self.box, self.score, most, overlap = a["box"], a["score"], a["most"], a["overlap"]
        least = a["least"] if kernel.scored else ""
        self.chosen, self.counts = a["chosen"], a["counts"]
        self.record, self.code = a["record"], a["code"]
        (words, (word_size,)), (corners, (corner_size,)) = a.tensor("words"), a.tensor("corners")
        self.scratch = f.own_part(words, "i64", word_size)
        self.corners = f.own_part(corners, "float", corner_size)
        self.most = f.min(f.let(f"load i64, ptr {most}, align 8"), self.room)
        self.overlap = f.let(f"load float, ptr {overlap}, align 4")
        self.least = f.let(f"load float, ptr {least}, align 4") if least else ""
        self.words, self.buckets = Words(f, 32), Words(f, 32)
        self.one, self.wide = VectorEmitter(f, 1), VectorEmitter(f, target.lanes)

    def emit(self) -> None:
        f = self.f
        self._check_overlap()
        space = f.let(f"add i64 {self.room}, {corner_room(0, self.target)}", "i")
        words = self.scratch
        spare = f.element(words, "i64", self.boxes)
        fields = [f.element(self.corners, "float", f.mul(space, field)) for field in range(FIELDS)]
        row = f.loop("%begin", "%end")
        image = f.let(f"udiv i64 {row.index}, {self.classes}", "i")
        boxes = f.element(self.box, "float", f.mul(f.mul(image, self.boxes), 4))
        count = self._collected(f.element(self.score, "float", f.mul(row.index, self.boxes)), words)
        chosen = f.element(self.chosen, "i64", f.mul(row.index, self.room))
        lies, other, buckets = self.buckets.buckets(words, spare, count)
        bucket = f.loop(0, buckets, 1, [("i64", "0"), ("i64", "0")])
        begin, so_far = bucket.carry
        end = f.let(f"load i64, ptr {self.buckets.counter(bucket.index)}, align 8")
        size = f.sub(end, begin)
        some, passed = f.fresh("some"), f.fresh("passed")
        here = f.block
        wanted = f.let(f"icmp slt i64 {so_far}, {self.most}", "c"), f.let(f"icmp sgt i64 {size}, 0", "c")
        f.branch_if(f.let(f"and i1 {wanted[0]}, {wanted[1]}", "c"), some, passed)
        f.label(some)
        parts = [f.element(memory, self.words.type, begin) for memory in (lies, other)]
        ordered, _ = self.words.sorted(parts[0], parts[1], size)
        more = self._chosen_of(ordered, size, so_far, boxes, fields, chosen)
        there = f.block
        f.branch(passed)
        f.label(passed)
        _, total = f.end(bucket, [end, f.let(f"phi i64 [ {so_far}, %{here} ], [ {more}, %{there} ]")])
        f.line(f"store i64 {total}, ptr {f.element(self.counts, 'i64', row.index)}, align 8")
        f.end(row)

    def _chosen_of(self, ordered: str, count: str, so_far: str, boxes: str, fields: list[str], chosen: str) -> str:
        """Look at words in their order, while there is room; how many boxes are chosen then."""
        f = self.f
        each = f.loop(0, count, 1, [("i64", so_far)])
        look, after = f.fresh("look"), f.fresh("looked")
        before = f.block
        f.branch_if(f.let(f"icmp slt i64 {each.carry[0]}, {self.most}", "c"), look, after)
        f.label(look)
        more = self._looked_at(self.words.index_of(self.words.load(ordered, each.index)), boxes, fields, each.carry[0], chosen)
        last = f.block
        f.branch(after)
        f.label(after)
        found = f.let(f"phi i64 [ {each.carry[0]}, %{before} ], [ {more}, %{last} ]")
        (total,) = f.end(each, [found])
        return total

    def _check_overlap(self) -> None:
        f = self.f
        inside = [
            f.let(f"fcmp {order} float {self.overlap}, {number}", "c") for order, number in (("oge", "0.0"), ("ole", "1.0"))
        ]
        good, bad = f.fresh("good"), f.fresh("bad")
        f.branch_if(f.let(f"and i1 {inside[0]}, {inside[1]}", "c"), good, bad)
        f.label(bad)
        report(f, self.record, self.code, "0", "0", "1")
        f.branch(good)
        f.label(good)

    def _collected(self, scores: str, words: str) -> str:
        """The words of the boxes that take part; how many there are."""
        f = self.f
        if not self.k.scored:
            each = f.loop(0, self.boxes, 1, [("i64", "0")])
            (count,) = f.end(each, [self._offered(scores, words, each.index, each.carry[0])])
            return count
        whole = f.let(f"and i64 {self.boxes}, {-self.lanes}", "i")
        block = f.loop(0, whole, self.lanes, [("i64", "0")])
        values = self.wide.load(f.element(scores, "float", block.index), "f32")
        above = f.let(f"fcmp ogt {self.wide.type('f32')} {values}, {self.wide.splat(self.least, 'float')}")
        some, passed = f.fresh("some"), f.fresh("passed")
        before = f.block
        masks = f"<{self.lanes} x i1>"
        f.branch_if(f.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (masks, above)), some, passed)
        f.label(some)
        each = f.loop(block.index, f.add(block.index, self.lanes), 1, [("i64", block.carry[0])])
        (more,) = f.end(each, [self._offered(scores, words, each.index, each.carry[0])])
        last = f.block
        f.branch(passed)
        f.label(passed)
        (so_far,) = f.end(block, [f.let(f"phi i64 [ {block.carry[0]}, %{before} ], [ {more}, %{last} ]")])
        rest = f.loop(whole, self.boxes, 1, [("i64", so_far)])
        (count,) = f.end(rest, [self._offered(scores, words, rest.index, rest.carry[0])])
        return count

    def _offered(self, scores: str, words: str, index: str, count: str) -> str:
        """Write the word of a box; it only stays if the box takes part."""
        f = self.f
        pointer = f.element(scores, "float", index)
        negated = f.let(f"xor i32 {f.let(f'load i32, ptr {pointer}, align 4')}, {-(1 << 31)}")
        self.words.store(words, count, self.words.made(ordered_key(f, negated, "f32"), index))
        if not self.k.scored:
            return f.add(count, 1)
        above = f.let(f"fcmp ogt float {f.let(f'load float, ptr {pointer}, align 4')}, {self.least}", "c")
        return f.add(count, f.let(f"zext i1 {above} to i64"))

    def _looked_at(self, candidate: str, boxes: str, fields: list[str], chosen_count: str, chosen: str) -> str:
        """Compare a box with those chosen before; how many are chosen then."""
        f = self.f
        at = f.element(boxes, "float", f.mul(candidate, 4))
        known = {load(number, "f32"): self.one.load(f.element(at, "float", number), "f32") for number in range(4)}
        box = self.one.emit(_corners(self.k), known)
        mine = {load(number, "f32"): self.wide.splat(value, "float") for number, value in enumerate(box)}
        mine[load(2 * FIELDS, "f32")] = self.wide.splat(self.overlap, "float")
        head, compare, choose, done = (f.fresh(hint) for hint in ("head", "compare", "choose", "done"))
        before = f.block
        f.branch(head)
        f.label(head)
        position, following = f.fresh("i"), f.fresh("n")
        f.line(f"{position} = phi i64 [ 0, %{before} ], [ {following}, {compare} ]")
        again = f.fresh("again")
        f.branch_if(f.let(f"icmp slt i64 {position}, {chosen_count}", "c"), again, choose)
        f.label(again)
        others = {
            load(FIELDS + number, "f32"): self.wide.load(f.element(field, "float", position), "f32")
            for number, field in enumerate(fields)
        }
        (overlaps,) = self.wide.emit([_overlap()], {**mine, **others})
        there = self.wide.mask_below(f.sub(chosen_count, position))
        masks = f"<{self.lanes} x i1>"
        hit = f.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (masks, f.let(f"and {masks} {overlaps}, {there}")))
        f.branch(compare)
        f.label(compare)
        f.line(f"{following} = add i64 {position}, {self.lanes}")
        f.branch_if(hit, done, head)
        f.label(choose)
        for field, value in zip(fields, box):
            self.one.store(f.element(field, "float", chosen_count), value, "f32")
        f.line(f"store i64 {candidate}, ptr {f.element(chosen, 'i64', chosen_count)}, align 8")
        more = f.add(chosen_count, 1)
        f.branch(done)
        f.label(done)
        return f.let(f"phi i64 [ {chosen_count}, {compare} ], [ {more}, {choose} ]")


def emit_list_kernel(kernel: ListKernel, name: str, target: Target) -> FunctionBuilder:
    """The function that lists chosen boxes."""
    f = FunctionBuilder(name, KERNEL_PARAMETERS)
    a = Loaded(f, kernel.arguments)
    classes, room = a["classes"], a["room"]
    chosen, counts, starts, result = a["chosen"], a["counts"], a["starts"], a["target"]
    row = f.loop("%begin", "%end")
    image, kind = f.let(f"udiv i64 {row.index}, {classes}", "i"), f.let(f"urem i64 {row.index}, {classes}", "i")
    count, start = (f.let(f"load i64, ptr {f.element(base, 'i64', row.index)}, align 8") for base in (counts, starts))
    each = f.loop(0, count)
    box = f.let(f"load i64, ptr {f.element(chosen, 'i64', f.add(f.mul(row.index, room), each.index))}, align 8")
    at = f.element(result, "i64", f.mul(f.add(start, each.index), 3))
    for number, value in enumerate((image, kind, box)):
        f.line(f"store i64 {value}, ptr {f.element(at, 'i64', number)}, align 8")
    f.end(each)
    f.end(row)
    return f
