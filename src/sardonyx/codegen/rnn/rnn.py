"""Recurrent layers -> LLVM.

for direction:                                   (those this worker has rows of)
  initial values into the state
  for time step:
    for pass:
      for block of hidden units, tile of rows:
        for k: load the weights of all gates at k, multiply with state[row, k], add    (sums go to a tile on the stack)
        for row, block: gates and new states in registers
  final values out of the state
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Final

from sardonyx.codegen.arguments import Loaded, MemRef
from sardonyx.codegen.conversions import convert
from sardonyx.codegen.element_types import constant, memory_type
from sardonyx.codegen.fault import report_unless
from sardonyx.codegen.function import FunctionBuilder, Loop
from sardonyx.codegen.indexing.rounds import rounds_done, start_rounds
from sardonyx.codegen.loops import KERNEL_PARAMETERS
from sardonyx.codegen.matmul.tile import MatmulTile, TileArguments, Tiles
from sardonyx.codegen.rnn.inputs_ahead import InputsAhead
from sardonyx.codegen.rnn.integer_totals import IntegerTotals
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import BITS, Expr, walk
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.kernel.rnn.rnn import RecurrentKernel, RecurrentPass, tile_sizes
from sardonyx.records import dataclass
from sardonyx.target.target import CACHE_LINE, Target

_TOGETHER: Final = 2  # places of a tile whose gates are computed at once: more gain nothing
_TILES: Final = 4  # of rows that are multiplied by half of the gates before the others
_BYTE_TILES: Final = (4, 2, 1)  # heights, of sums of integers


def emit_recurrent(kernel: RecurrentKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a recurrent layer."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _RecurrentEmitter(kernel, function, target).emit()
    return function


@dataclass(frozen=True)
class _Step:
    """Where a pass stands: direction, its rows, time, and the planes of slot 0."""

    direction: str
    backwards: str  # i1
    first: str  # of this worker's rows
    rows: str
    time: str
    read: str  # plane of the hidden state that is read, at this direction
    written: str


class _RecurrentEmitter:
    def __init__(self, kernel: RecurrentKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = f = function
        self.lanes = vector_lanes(kernel.type, target)
        self.target = target
        self.e = VectorEmitter(f, self.lanes, target)
        self.tiles = Tiles(f)
        self.element = memory_type(kernel.type)
        self.bytes = BITS[kernel.type] // 8
        self.outer = memory_type(kernel.outside)
        a = Loaded(f, kernel.arguments)
        self.steps, self.rows, self.hidden, self.backwards = a["steps"], a["rows"], a["hidden"], a["backwards"]
        self.projected, self.state = (a.tensor("projected") if kernel.gates and not kernel.ahead else None), a.tensor("state")
        self.weights, self.vectors = a.several("weights"), a.several("vectors")
        self.result = a.tensor("result") if kernel.output else None
        self.given, traces = a.tensors("given"), iter(a.tensors("traces"))
        self.traces = {id(one): [next(traces) for _ in one.traces] for one in kernel.passes}
        initial, final = iter(a.tensors("initial")), iter(a.tensors("final"))
        self.initial = [next(initial) if given else None for given in kernel.initial]
        self.final = [next(final) if wanted else None for wanted in kernel.final]
        self.lengths, self.record, self.code = (a["lengths"], a["record"], a["code"]) if kernel.ragged else ("", "", "")
        self.counter = a["counter"] if kernel.has_counter else ""
        self.blocks = f.let(f"udiv i64 {f.add(self.hidden, self.lanes - 1)}, {self.lanes}", "i")
        self.width = f.mul(self.blocks, self.lanes)  # of a part of a row of state
        self.depth = f.mul(self.hidden, kernel.wide)  # of the products
        self.row = self.width if kernel.wide == 1 else f.add(f.mul(self.width, kernel.wide), self.lanes)
        most = max(
            max(alone, self._group(rows) * blocks) * one.gates
            for one in kernel.passes
            for alone, blocks, rows in [self._sizes(one)]
        )
        self.tile = f.let(f"alloca [{most} x {self.e.type(kernel.type)}], align 64", "tile")
        self.ahead = InputsAhead(kernel, a, f, self.tiles, target) if kernel.ahead else None
        columns = a.several("columns")
        self.totals = IntegerTotals(f, self.lanes, target, self.hidden, self.blocks, self.width, columns) if columns else None

    def _sizes(self, one: RecurrentPass) -> tuple[int, int, int]:
        alone, together, rows = tile_sizes(one.gates // self.k.halves, self.target)
        return alone, together, min(rows, self.k.rows)

    def _group(self, rows: int) -> int:
        """Rows that are multiplied before gates are computed, given those of a tile; ended sequences are left out by tiles."""
        return rows * _TILES if self.k.halved and not self.lengths else rows

    def _max(self, a: str, b: str | int) -> str:
        more = self.f.let(f"icmp sgt i64 {a}, {b}", "c")
        return self.f.let(f"select i1 {more}, i64 {a}, i64 {b}", "i")

    def _choose(self, condition: str, yes: str, no: str) -> str:
        return self.f.let(f"select i1 {condition}, i64 {yes}, i64 {no}", "i")

    def emit(self) -> None:
        if self.k.part.isdigit():
            self._emit_pass(int(self.k.part))
            return
        if self.k.part in ("window", "bytes"):
            (self._emit_window if self.k.part == "window" else self._emit_bytes)()
            return
        f = self.f
        if self.k.part == "enter":
            begins, going, set_ = f.fresh("begins"), f.fresh("going"), f.let("icmp eq i64 %begin, 0", "c")
            f.branch_if(set_, begins, going)
            f.label(begins)
            start_rounds(f, self.counter)
            f.branch(going)
            f.label(going)
        if self.totals is not None and self.k.part == "all":  # all rows of a direction are one unit: their range is that of all
            direction, _, _, planes = self._directions("1")
            low, high = "0", self.rows
        else:
            direction, low, high, planes = self._directions(self.rows)
        if self.k.part in ("all", "enter"):
            self._enter(direction.index, low, high, planes)
        last = planes[0]
        if self.k.part == "all":
            if self.ahead is not None:
                self.ahead.first_window(direction.index, self._is_backwards(direction.index), "0", self.blocks, self.tile)
            time = f.loop(0, self.steps, 1, [("ptr", plane) for plane in planes[:2]])
            read, written = time.carry
            step = _Step(direction.index, self._is_backwards(direction.index), low, f.sub(high, low), time.index, read, written)
            for number, one in enumerate(self.k.passes):
                self._pass(number, one, step, planes, "0", self.blocks)
            last = f.end(time, [written, read])[0]
        elif self.k.part == "leave":
            last, _ = self._planes_at(planes, self.steps)
        if self.k.part in ("all", "leave"):
            self._leave(direction.index, low, high, [last, *planes[2 : self.k.slots + 1]])
        f.end(direction)

    def _emit_pass(self, number: int) -> None:
        """One pass at one time, for some blocks."""
        direction, low, high, planes = self._directions(self.blocks)
        time = rounds_done(self.f, self.counter)
        read, written = self._planes_at(planes, time)
        step = _Step(direction.index, self._is_backwards(direction.index), "0", self.rows, time, read, written)
        self._pass(number, self.k.passes[number], step, planes, low, high)
        self.f.end(direction)

    def _emit_window(self) -> None:
        """The inputs of the first window, for some blocks."""
        assert self.ahead is not None
        direction, low, high, _ = self._directions(self.blocks)
        self.ahead.first_window(direction.index, self._is_backwards(direction.index), low, high, self.tile)
        self.f.end(direction)

    def _emit_bytes(self) -> None:
        """The bytes of the state of all rows at one time."""
        assert self.totals is not None
        direction, _, _, planes = self._directions("1")
        read, _ = self._planes_at(planes, rounds_done(self.f, self.counter))
        self.totals.quantize(self.rows, read, planes[-1])
        self.f.end(direction)

    def _directions(self, size: str) -> tuple[Loop, str, str, list[str]]:
        """Open a loop over directions of `size` units each: the loop, its units here, the planes of the state."""
        f = self.f
        units = self._max(size, 1)  # without rows there is nothing to do, and nothing to divide by
        first = f.let(f"udiv i64 %begin, {units}", "i")
        stop = f.let(f"udiv i64 {f.add('%end', f.sub(units, 1))}, {units}", "i")
        direction = f.loop(first, stop)
        start = f.mul(direction.index, size)
        low = self._max(f.sub("%begin", start), 0)
        high = f.min(f.sub("%end", start), size)
        rows = f.mul(direction.index, self.rows)
        count = self.k.slots + 1 + self.k.is_quantized
        return direction, low, high, [self._plane(number, rows) for number in range(count)]

    def _is_backwards(self, direction: str) -> str:
        return self.f.let(f"icmp ne i64 {self.f.add(self.backwards, direction)}, 0", "c")

    def _planes_at(self, planes: list[str], time: str) -> tuple[str, str]:
        """The plane of the hidden state that is read at a time, and the one that is written."""
        f = self.f
        odd = f.let(f"trunc i64 {time} to i1")
        first, second = planes[:2]
        return (
            f.let(f"select i1 {odd}, ptr {second}, ptr {first}", "p"),
            f.let(f"select i1 {odd}, ptr {first}, ptr {second}", "p"),
        )

    def _plane(self, number: int, first_row: str) -> str:
        f = self.f
        offset = f.add(f.mul(self.state.strides[0], number), f.mul(first_row, self.row))
        return f.element(self.state.base, self.element, offset)

    # Values from and to the outside

    def _enter(self, direction: str, low: str, high: str, planes: list[str]) -> None:
        f = self.f
        row = f.loop(low, high)
        if self.lengths:
            self._check_length(row.index)
        block = f.loop(0, self.blocks)
        column = f.mul(block.index, self.lanes)
        mask = self.e.mask_below(f.sub(self.hidden, column))
        for slot, given in enumerate(self.initial):
            value = constant(self.k.type, 0.0, self.lanes)
            if given is not None:
                offset = f.add(f.add(f.mul(direction, given.strides[0]), f.mul(row.index, given.strides[1])), column)
                loaded = self.e.load(f.element(given.base, self.outer, offset), self.k.outside, mask)
                value = convert(self.e, loaded, self.k.outside, self.k.type)
            plane = planes[0 if slot == 0 else slot + 1]
            self.e.store(self._pointer(plane, row.index, column), value, self.k.type)
            for part in range(1, self.k.wide if slot == 0 else 1):
                zero = constant(self.k.type, 0.0, self.lanes)
                self.e.store(self._pointer(plane, row.index, self._in_part(part, column)), zero, self.k.type)
        f.end(block)
        f.end(row)

    def _in_part(self, part: int, column: str) -> str:
        return self.f.add(column, self.f.mul(self.width, part)) if part else column

    def _check_length(self, row: str) -> None:
        f = self.f
        length = self._length(row)
        inside = f.let(f"icmp ule i64 {length}, {self.steps}", "c")
        report_unless(f, inside, self.record, self.code, row, length, self.steps)

    def _length(self, row: str) -> str:
        stored = self.f.let(f"load i32, ptr {self.f.element(self.lengths, 'i32', row)}, align 4")
        return self.f.let(f"sext i32 {stored} to i64")

    def _leave(self, direction: str, low: str, high: str, slots: list[str]) -> None:
        f = self.f
        if not any(self.k.final):
            return
        row = f.loop(low, high)
        block = f.loop(0, self.blocks)
        column = f.mul(block.index, self.lanes)
        count = f.sub(self.hidden, column)
        for plane, wanted in zip(slots, self.final):
            if wanted is not None:
                value = self.e.load(self._pointer(plane, row.index, column), self.k.type)
                offset = f.add(f.add(f.mul(direction, wanted.strides[0]), f.mul(row.index, wanted.strides[1])), column)
                self._store_outside(f.element(wanted.base, self.outer, offset), value, count)
        f.end(block)
        f.end(row)

    def _pointer(self, plane: str, row: str, column: str) -> str:
        return self.f.element(plane, self.element, self.f.add(self.f.mul(row, self.row), column))

    def _store_outside(self, pointer: str, value: str, count: str) -> None:
        """A vector of which the first `count` lanes exist."""
        f, k = self.f, self.k
        value = convert(self.e, value, k.type, k.outside)
        full, ragged, stored = f.fresh("full"), f.fresh("ragged"), f.fresh("stored")
        f.branch_if(f.let(f"icmp sge i64 {count}, {self.lanes}", "c"), full, ragged)
        f.label(full)
        self.e.store(pointer, value, k.outside)
        f.branch(stored)
        f.label(ragged)
        self.e.store(pointer, value, k.outside, self.e.mask_below(count))
        f.branch(stored)
        f.label(stored)

    # One pass over the hidden units

    def _pass(self, number: int, one: RecurrentPass, step: _Step, planes: list[str], low: str, high: str) -> None:
        f = self.f
        alone, together, most = self._sizes(one)
        source = step.read if one.source == 0 else planes[one.source + 1]
        depth = self.depth if self.totals is None else self.totals.quads
        strip = f.mul(depth, one.gates // self.k.halves * self.lanes)  # elements, or words, of a block's weights, or half of them
        first, halves = f.mul(f.mul(step.direction, self.blocks), strip), self.k.halves
        weights = [f.element(each, self.element, first) for each in self.weights[number * halves : (number + 1) * halves]]
        if self.totals is not None:
            if self.k.part == "all":
                self.totals.quantize(step.rows, source, planes[-1])
            source = planes[-1]
        if self.k.rows == 1:
            self._blocks(one, step, planes, source, weights, strip, (low, high), alone, 1)
            return
        single, several, done = f.fresh("single"), f.fresh("several"), f.fresh("passed")
        f.branch_if(f.let(f"icmp eq i64 {step.rows}, 1", "c"), single, several)
        f.label(single)
        self._blocks(one, step, planes, source, weights, strip, (low, high), alone, 1)
        f.branch(done)
        f.label(several)
        self._blocks(one, step, planes, source, weights, strip, (low, high), together, most)
        f.branch(done)
        f.label(done)

    def _blocks(
        self,
        one: RecurrentPass,
        step: _Step,
        planes: list[str],
        source: str,
        weights: list[str],
        strip: str,
        blocks: tuple[str, str],
        width: int,
        most: int,
    ) -> None:
        """Blocks from one to another, `width` at a time, then those that are left one at a time.

        At odd times they come in the opposite order, so that what the cache still has of the weights is what is needed first.
        """
        f = self.f
        low, high = blocks
        is_odd = f.let(f"trunc i64 {step.time} to i1", "c")
        whole = f.add(low, f.mul(f.let(f"udiv i64 {f.sub(high, low)}, {width}", "i"), width))
        for start, stop, count in ((low, whole, width), (whole, high, 1)) if width > 1 else ((low, high, 1),):
            loop = f.loop(start, stop, count)
            mirrored = f.sub(f.sub(f.add(start, stop), count), loop.index)
            block = self._choose(is_odd, mirrored, loop.index)
            at = [f.element(each, self.element, f.mul(block, strip)) for each in weights]
            self._row_tiles(one, step, planes, source, at, strip, block, count, most)
            f.end(loop)

    def _row_tiles(
        self,
        one: RecurrentPass,
        step: _Step,
        planes: list[str],
        source: str,
        weights: list[str],
        strip: str,
        block: str,
        count: int,
        most: int,
    ) -> None:
        """Rows in tiles of nearly equal height."""
        f = self.f
        if self.totals is not None:
            first, done = f.add(f.mul(step.direction, self.blocks), block), "0"
            for several in _BYTE_TILES:
                if several > most:
                    continue
                whole = f.sub(step.rows, f.let(f"urem i64 {f.sub(step.rows, done)}, {several}", "i"))
                each = f.loop(done, whole, several)
                row = f.add(step.first, each.index)
                behind = self._unless_ended(one, step, row, str(several), block, count)
                self.totals.product(source, row, several, weights[0], strip, first, count, one.gates, self.tile)
                self._gates(one, step, planes, row, str(several), block, count)
                self._go_on(behind)
                f.end(each)
                done = whole
            return
        columns = one.gates // self.k.halves * self.lanes
        tile = MatmulTile(self.k.type, self.lanes, 1, columns // self.lanes, count, columns)
        row_bytes = f.mul(self.row, self.bytes)
        size = columns * count * self.bytes  # of a row's sums, of all gates or half of them
        halves = [
            TileArguments(
                f.element(self.tile, "i8", number * size),
                str(size * self.k.halves),
                "",
                row_bytes,
                each,
                self.depth,
                b_strip=f.mul(strip, self.bytes),
            )
            for number, each in enumerate(weights)
        ]
        if most == 1:
            at = f.element(source, "i8", f.mul(step.first, row_bytes))
            behind = self._unless_ended(one, step, step.first, "1", block, count)
            for arguments in halves:
                if self.ahead is None:
                    self.tiles.call(tile, replace(arguments, a=at))
                else:
                    self.ahead.multiply(step.direction, step.backwards, step.time, block, tile, replace(arguments, a=at))
            self._gates(one, step, planes, step.first, "1", block, count)
            self._go_on(behind)
            return
        group = self._group(most)
        row, rows, groups = self._parts(step.first, step.rows, group)
        behind = self._unless_ended(one, step, row, rows, block, count)
        self._fetch_projected(step, row, rows, block, count)
        for arguments in halves:
            if group == most:
                at = f.element(source, "i8", f.mul(row, row_bytes))
                self.tiles.call_any(tile, rows, range(1, most + 1), replace(arguments, a=at))
                continue
            below, height, loop = self._parts("0", rows, most)
            at = f.element(source, "i8", f.mul(f.add(row, below), row_bytes))
            c = f.element(arguments.c, "i8", f.mul(below, arguments.c_row))
            self.tiles.call_any(tile, height, range(1, most + 1), replace(arguments, a=at, c=c))
            f.end(loop)
        self._gates(one, step, planes, row, rows, block, count)
        self._go_on(behind)
        f.end(groups)

    def _parts(self, first: str, count: str, most: int) -> tuple[str, str, Loop]:
        """Open a loop over nearly equal parts of some rows: the first row of one, how many it has, the loop."""
        f = self.f
        parts = self._max(f.let(f"udiv i64 {f.add(count, most - 1)}, {most}", "i"), 1)
        least = f.let(f"udiv i64 {count}, {parts}", "i")
        higher = f.let(f"urem i64 {count}, {parts}", "i")
        loop = f.loop(0, parts)
        row = f.add(first, f.add(f.mul(loop.index, least), f.min(loop.index, higher)))
        more = f.let(f"icmp slt i64 {loop.index}, {higher}", "c")
        return row, f.add(least, f.let(f"zext i1 {more} to i64", "i")), loop

    def _fetch_projected(self, step: _Step, row: str, height: str, block: str, count: int) -> None:
        """Have the products of a tile's inputs brought near while those of its states are computed: rows lie far apart."""
        f = self.f
        if self.projected is None:
            return
        rows = f.loop(0, height)
        index = f.add(row, rows.index)
        at = self._projected_at(step, self._time(step, index)[1], index, f.mul(block, self.lanes))
        for line in range(0, count * self.k.gates * self.lanes * self.bytes, CACHE_LINE):
            f.fetch_ahead(f.element(at, "i8", line))
        f.end(rows)

    def _unless_ended(self, one: RecurrentPass, step: _Step, row: str, height: str, block: str, count: int) -> str:
        """What follows, up to `_go_on`, is for rows of which a sequence goes on; if all have ended, they keep their state."""
        f = self.f
        if not self.lengths:
            return ""
        each = f.loop(0, height, 1, [("i64", "0")])
        length = self._length(f.add(row, each.index))
        is_running = f.let(f"icmp slt i64 {step.time}, {length}", "c")
        [some] = f.end(each, [f.let(f"or i64 {each.carry[0]}, {f.let(f'zext i1 {is_running} to i64')}", "i")])
        running, ended, behind = f.fresh("running"), f.fresh("ended"), f.fresh("behind")
        f.branch_if(f.let(f"icmp ne i64 {some}, 0", "c"), running, ended)
        f.label(ended)
        rows = f.loop(0, height)
        blocks = f.loop(0, count)
        index, column = f.add(row, rows.index), f.mul(f.add(block, blocks.index), self.lanes)
        if any(slot == 0 for slot, _ in one.stores):
            kept = self.e.load(self._pointer(step.read, index, column), self.k.type)
            self.e.store(self._pointer(step.written, index, column), kept, self.k.type)
        if one.output is not None and self.result is not None:
            at = self._outside(self.result, step, step.time, index, column)
            self._store_outside(at, constant(self.k.type, 0.0, self.lanes), f.sub(self.hidden, column))
        f.end(blocks)
        f.end(rows)
        f.branch(behind)
        f.label(running)
        return behind

    def _go_on(self, label: str) -> None:
        if label:
            self.f.branch(label)
            self.f.label(label)

    # What becomes of the sums

    def _gates(self, one: RecurrentPass, step: _Step, planes: list[str], row: str, height: str, block: str, count: int) -> None:
        """Gates and new states of a tile, at two positions together: each of their operations waits for the one before it.

        If the positions are odd in number, the last one is computed twice: all is read before anything is written.
        """
        f = self.f
        kind = self.e.type(self.k.type)
        total = f.mul(height, count)
        position = f.loop(0, total, _TOGETHER)
        last = f.sub(total, 1)
        results = [one.output] if one.output is not None and self.result is not None else []
        roots = [*(value for _, value in one.stores), *results, *one.traces]
        positions = []
        for offset in range(_TOGETHER if total != "1" else 1):
            number = f.min(f.add(position.index, offset), last) if offset else position.index
            index, here, at = f.add(row, number), block, f.mul(number, one.gates)
            if count > 1:
                above, beside = (f.let(f"{op} i64 {number}, {count}", "i") for op in ("udiv", "urem"))
                index, here = f.add(row, above), f.add(block, beside)
                at = f.add(f.mul(above, one.gates * count), f.mul(beside, one.gates // self.k.halves))
            is_running, time = self._time(step, index)
            sums = [f.element(self.tile, kind, f.add(at, self._sum_of(gate, one, count))) for gate in range(one.gates)]
            column = f.mul(here, self.lanes)
            known = self._known(roots, step, planes, index, column, sums, is_running, time)
            positions.append((index, column, time, known))
        for (index, column, time, _), made in zip(positions, self.e.emit_together(roots, [known for *_, known in positions])):
            parts = itertools.count()
            for (slot, _), value in zip(one.stores, made):
                plane = step.written if slot == 0 else planes[slot + 1]
                at = self._in_part(next(parts), column) if slot == 0 else column
                self.e.store(self._pointer(plane, index, at), value, self.k.type)
            tensors = [*([self.result] if results and self.result is not None else []), *self.traces[id(one)]]
            for tensor, value in zip(tensors, made[len(one.stores) :], strict=True):
                self._store_outside(self._outside(tensor, step, time, index, column), value, f.sub(self.hidden, column))
        f.end(position)

    def _sum_of(self, gate: int, one: RecurrentPass, count: int) -> int:
        """Where a gate's sum lies behind the first of its block, among those of `count` blocks."""
        each = one.gates // self.k.halves
        return gate // each * each * count + gate % each

    def _outside(self, tensor: MemRef, step: _Step, time: str, row: str, column: str) -> str:
        """Where a tensor of the outside has what belongs to a time, row and column."""
        f = self.f
        by_time, by_direction, by_row = tensor.strides
        offset = f.add(f.mul(time, by_time), f.mul(step.direction, by_direction))
        return f.element(tensor.base, self.outer, f.add(f.add(offset, f.mul(row, by_row)), column))

    def _projected_at(self, step: _Step, time: str, row: str, column: str) -> str:
        """Where the products of the inputs of a time, row and column lie, of all gates."""
        f = self.f
        assert self.projected is not None
        by_time, by_row, by_direction = self.projected.strides
        offset = f.add(f.add(f.mul(time, by_time), f.mul(row, by_row)), f.mul(step.direction, by_direction))
        return f.element(self.projected.base, self.element, f.add(offset, f.mul(column, self.k.gates)))

    def _time(self, step: _Step, row: str) -> tuple[str, str]:
        """Whether a row's sequence goes on at this step, and which of its times it is."""
        f = self.f
        if not self.lengths:
            other = f.sub(f.sub(self.steps, 1), step.time)
            return "true", self._choose(step.backwards, other, step.time)
        length = f.min(self._length(row), self.steps)
        is_running = f.let(f"icmp slt i64 {step.time}, {length}", "c")
        reversed_ = f.let(f"and i1 {is_running}, {step.backwards}", "c")
        return is_running, self._choose(reversed_, f.sub(f.sub(length, 1), step.time), step.time)

    def _known(
        self,
        roots: list[Expr],
        step: _Step,
        planes: list[str],
        row: str,
        column: str,
        sums: list[str],
        is_running: str,
        time: str,
    ) -> dict[Expr, str]:
        """The leaves of the expressions at a row and block."""
        f, k, kind = self.f, self.k, self.k.type
        inputs: list[str] = []
        if self.projected is not None:
            base = self._projected_at(step, time, row, column)
            inputs = [f.element(base, self.element, gate * self.lanes) for gate in range(k.gates)]
        elif self.ahead is not None:
            inputs = self.ahead.projected(step.direction, step.time, column)
        weights = f.add(f.mul(step.direction, self.width), column)
        known: dict[Expr, str] = {}
        for node in walk(roots):
            if node.op == "total":
                known[node] = self.e.load(sums[node.param], kind)
            elif node.op == "projected":
                known[node] = self.e.load(inputs[node.param], kind)
            elif node.op == "state":
                plane = step.read if node.param == 0 else planes[node.param + 1]
                known[node] = self.e.load(self._pointer(plane, row, column), kind)
            elif node.op == "vector":
                known[node] = self.e.load(f.element(self.vectors[node.param], self.element, weights), kind)
            elif node.op == "given":
                pointer = self._outside(self.given[node.param], step, time, row, column)
                known[node] = convert(self.e, self.e.load(pointer, k.outside), k.outside, kind)
            elif node.op == "running":
                known[node] = self.e.splat(is_running, "i1")
        return known
