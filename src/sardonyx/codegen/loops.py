"""Loop kernels -> LLVM: rows of vectors, with reductions kept in registers.

    for row in begin .. end:                        (all axes but the last, counted through)
      for i on the vector axis, UNROLL vectors at a time; then one at a time; then one masked vector:
        load, compute, store

A reduced row keeps UNROLL partial results, so that one addition need not wait for the one before, and joins them in a
fixed order: the result does not depend on how the rows are divided between threads. Sums of floats begin anew after some steps,
and the sums of these stretches are added up: errors grow with the length of the longer of both, not of the row. What is the same
along a row is computed once, before its walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import partial
from typing import Final

from sardonyx.codegen.accumulators import Accumulator, joined, states_of
from sardonyx.codegen.arguments import Loaded
from sardonyx.codegen.element_types import constant, memory_type, scalar_type
from sardonyx.codegen.function import FunctionBuilder
from sardonyx.codegen.vector import VectorEmitter
from sardonyx.kernel.expr import Expr
from sardonyx.kernel.loops import CHUNK, MIDDLE_VECTORS, LoopKernel, Walk, surface, vector_lanes, walks
from sardonyx.records import dataclass
from sardonyx.target.target import Target

KERNEL_PARAMETERS: Final = (("args", "ptr"), ("begin", "i64"), ("end", "i64"), ("worker", "i64"))
_HEAVY: Final = 40  # operations from which on fewer vectors are worked on at once: more would not fit the registers

_LIGHT: Final = 8  # operations up to which all vectors of an iteration are worked on at once
_MIXED: Final = 4  # vectors worked on at once if there are more operations
_ROWS: Final = 4  # short rows worked on at once; half as many if there are more operations
_STRETCH: Final = 128  # steps after which a sum of floats begins anew, so that rounding does not grow with the length of a row
_SHORT_ROW: Final = 1280  # elements of a row of which that many rows fit the first cache beside their results

_WalkBody = Callable[["list[str]", "str | None", "str | None", "list[str]"], "list[str]"]
_Body = Callable[["list[_Row]", "list[str]", "str | None", "str | None", "list[str]"], "list[str]"]


@dataclass
class _Row:
    """Where a row lies, and what is known of it: the indices of its axes, finished reductions, what is the same along it."""

    pointers: list[str]
    indices: list[str]
    reduced: dict[Expr, str] = field(default_factory=dict)  # scalars
    known: dict[Expr, str] = field(default_factory=dict)  # vectors, for the walk at hand


def emit_loop_kernel(kernel: LoopKernel, name: str, target: Target) -> FunctionBuilder:
    """The function of a loop kernel."""
    function = FunctionBuilder(name, KERNEL_PARAMETERS)
    _LoopEmitter(kernel, function, target).emit()
    return function


class _LoopEmitter:
    def __init__(self, kernel: LoopKernel, function: FunctionBuilder, target: Target) -> None:
        self.k = kernel
        self.f = function
        self.lanes = vector_lanes(kernel, target)
        self.e = VectorEmitter(function, self.lanes, target)
        self.walks = walks(kernel)
        a = Loaded(function, kernel.arguments)
        self.sizes = a.several("sizes")
        self.bases: list[str] = []
        self.strides: list[list[str]] = []
        for operand, (base, strides) in zip(kernel.operands, a.tensors("operands")):
            self.bases.append(base)
            if operand.inner != "any":
                strides[-1] = "1" if operand.inner == "unit" else "0"
            self.strides.append(strides)

    # The parts of the iteration space

    def emit(self) -> None:
        if self.k.reduce == "middle":
            self._emit_middle()
        elif self.k.axes == 1 and self.k.reduce == "none":
            self._emit_flat()
        else:
            self._emit_rows()

    def _emit_flat(self) -> None:
        """One axis, cut into chunks."""
        f = self.f
        start = f.mul("%begin", CHUNK)
        stop = f.min(f.mul("%end", CHUNK), self.sizes[0])
        self._rows([_Row(list(self.bases), [])], start, stop)

    def _emit_rows(self) -> None:
        """All axes but the last make rows. The innermost of them is a loop of its own; the ones above it are decoded."""
        f, rows = self.f, self.k.row_axes
        if rows == 0:
            only = f.loop("%begin", "%end")
            self._rows([_Row(list(self.bases), [])], "0", self.sizes[-1])
            f.end(only)
            return
        if rows == 1:
            self._row_loop(list(self.bases), [], "%begin", "%end")
            return
        count = self.sizes[rows - 1]
        divisor = f.let(f"call i64 @llvm.umax.i64(i64 {count}, i64 1)", "i")  # no rows: nothing to do, but no trap either
        f.declarations.add("declare i64 @llvm.umax.i64(i64, i64)")
        first = f.let(f"udiv i64 %begin, {divisor}", "i")
        last = f.let(f"udiv i64 {f.add('%end', f.sub(divisor, 1))}, {divisor}", "i")
        outer = f.loop(first, last)
        indices = self._decode(outer.index, rows - 1)
        pointers = [self._offset(number, indices) for number in range(len(self.bases))]
        base = f.mul(outer.index, count)
        start = f.let(f"call i64 @llvm.smax.i64(i64 {f.sub('%begin', base)}, i64 0)", "i")
        f.declarations.add("declare i64 @llvm.smax.i64(i64, i64)")
        self._row_loop(pointers, indices, start, f.min(f.sub("%end", base), count))
        f.end(outer)

    def _row_loop(self, pointers: list[str], indices: list[str], start: str, stop: str) -> None:
        """Rows one after the other; short ones several at a time first, so that nothing waits for the end of a reduction."""
        f, axis, together = self.f, self.k.row_axes - 1, self._rows_together()
        if together > 1:
            least = f.let(f"icmp sle i64 {self.sizes[-1]}, {_SHORT_ROW}", "c")
            count = f.let(f"select i1 {least}, i64 {f.sub(stop, start)}, i64 0", "i")
            whole = f.add(start, f.let(f"and i64 {count}, {-together}", "i"))
            block = f.loop(start, whole, together)
            positions = [f.add(block.index, number) for number in range(together)]
            self._rows(
                [_Row(self._moved(pointers, axis, position), [*indices, position]) for position in positions], "0", self.sizes[-1]
            )
            f.end(block)
            start = whole
        row = f.loop(start, stop)
        self._rows([_Row(self._moved(pointers, axis, row.index), [*indices, row.index])], "0", self.sizes[-1])
        f.end(row)

    def _rows_together(self) -> int:
        """How many short rows are worked on at once: if something is reduced, or rows share what they read.

        Loads with branches around them are not mixed with those of other rows.
        """
        if any(map(self._is_strided, self.walks)):
            return 1
        shared = any(operand.same_rows and operand.inner == "unit" for operand in self.k.operands)
        if self.k.reduce != "inner" and not shared:
            return 1
        most = max(_moving_operations(found, self.k) for found in self.walks)
        return _ROWS if most <= _LIGHT else _ROWS // 2

    def _are_short(self, rows: list[_Row]) -> bool:
        """Whether it is known that rows are short: long ones are not worked on together."""
        return len(rows) > 1 and self.k.reduce != "parts"

    def _stretch(self, step: int) -> int:
        """The elements of a stretch, if a step takes in so many; a short row, which may be summed beside others, is one."""
        return max(_STRETCH * step, 2 * _SHORT_ROW // step * step)

    def _moved(self, pointers: Sequence[str], axis: int, index: str) -> list[str]:
        return [
            self.f.element(pointer, memory_type(operand.type), self.f.mul(index, self.strides[number][axis]))
            for number, (pointer, operand) in enumerate(zip(pointers, self.k.operands))
        ]

    def _emit_middle(self) -> None:
        """Some vectors of the kept axis at a time; the reduced axis is a plain loop around them."""
        f, axes = self.f, self.k.axes
        width = self.lanes * MIDDLE_VECTORS
        blocks = f.let(f"sdiv i64 {f.add(self.sizes[-1], width - 1)}, {width}", "i")
        unit = f.loop("%begin", "%end")
        outer = f.let(f"sdiv i64 {unit.index}, {blocks}", "i")
        block = f.let(f"srem i64 {unit.index}, {blocks}", "i")
        indices = self._decode(outer, axes - 2)
        pointers = [self._offset(number, indices) for number in range(len(self.bases))]
        start = f.mul(block, width)
        stop = f.min(f.add(start, width), self.sizes[-1])
        together = MIDDLE_VECTORS if max(map(_operations, self.walks)) <= _HEAVY else 1
        whole = start
        for vectors in dict.fromkeys((together, 1)):
            step = vectors * self.lanes
            length = f.let(f"and i64 {f.sub(stop, whole)}, {-step}", "i")
            following = f.add(whole, length)
            column = f.loop(whole, following, step)
            positions = [f.add(column.index, number * self.lanes) for number in range(vectors)]
            self._columns(pointers, positions, indices, None)
            f.end(column)
            whole = following
        rest = f.sub(stop, whole)
        some, after = f.fresh("tail"), f.fresh("after")
        f.branch_if(f.let(f"icmp sgt i64 {rest}, 0", "c"), some, after)
        f.label(some)
        self._columns(pointers, [whole], indices, rest)
        f.branch(after)
        f.label(after)
        f.end(unit)

    def _decode(self, unit: str, axes: int) -> list[str]:
        """The index on each of the first `axes` axes of a position counted through them."""
        return self.f.indices(unit, self.sizes[:axes])

    def _offset(self, number: int, indices: list[str]) -> str:
        offset = self.f.offset(indices, self.strides[number])
        return self.f.element(self.bases[number], memory_type(self.k.operands[number].type), offset)

    def _axis(self, node: Expr) -> int:
        """The axis an index or a size speaks of; negative ones count from the last."""
        axis: int = node.param
        return axis + self.k.axes if axis < 0 else axis

    # Rows along the vector axis

    def _rows(self, rows: list[_Row], start: str, stop: str) -> None:
        for found in self.walks:
            if any(node.param[0] == "squared_deviations" for node in found.reductions):
                self._squared_deviation_rows(found, rows, start, stop)
            elif found.reductions:
                self._reduce_rows(found, rows, start, stop)
            else:
                self._store_rows(found, rows, start, stop)
        one = VectorEmitter(self.f, 1, self.e.target)
        for row in rows:
            for operand, value in self.k.results:
                (result,) = one.emit([value], self._scalars([value], row))
                one.store(row.pointers[operand], result, self.k.operands[operand].type)

    def _store_rows(self, found: Walk, rows: list[_Row], start: str, stop: str) -> None:
        def body(rows: list[_Row], positions: list[str], mask: str | None, count: str | None, carried: list[str]) -> list[str]:
            for vectors in _portions([(row, i) for i in positions for row in rows], found):
                known = self._read_vectors(found.roots, vectors, mask, count)
                for (row, i), made in zip(vectors, self.e.emit_together(found.values, known)):
                    for operand, value in zip(found.stores, made):
                        self._write(operand, value, row.pointers, i, mask, count)
            return []

        self._walk_parts(found, rows, start, stop, body, [])

    def _reduce_rows(self, found: Walk, rows: list[_Row], start: str, stop: str) -> None:
        """Walk rows once for all reductions of a level; their scalar results go to `reduced` of each."""
        accumulators = [Accumulator(self.e, node) for node in found.reductions]

        def body(rows: list[_Row], positions: list[str], mask: str | None, count: str | None, carried: list[str]) -> list[str]:
            following: list[str] = []
            products, needed = _needed(found, accumulators, rows[0].known)
            for vectors in _portions([(row, i) for i in positions for row in rows], found):
                knowns = self._read_vectors(found.roots, vectors, mask, count)
                self.e.emit_together(needed, knowns)
                for (row, i), known in zip(vectors, knowns):
                    for acc, value, product in zip(accumulators, found.values, products):
                        state = carried[len(following) : len(following) + len(acc.types)]
                        if product:
                            following += acc.step_product(known[value.args[0]], known[value.args[1]], state, mask)
                        else:
                            following += acc.step(known[value], state, mask, i)
                    for operand, value in found.stash:
                        self._write(operand, known[value], row.pointers, i, mask, count)
            return following

        unroll = self._unroll(found)
        results = self._walk_parts(found, rows, start, stop, body, accumulators)
        width, position = len(results) // unroll, 0
        for row in rows:
            for node, acc in zip(found.reductions, accumulators):
                own = len(acc.types)
                parts = [results[n * width + position : n * width + position + own] for n in range(unroll)]
                row.reduced[node] = acc.finish(parts)
                position += own

    def _squared_deviation_rows(self, found: Walk, rows: list[_Row], start: str, stop: str) -> None:
        """The sum and the squared deviations of one value, in one walk."""
        value = found.values[0]
        kind = scalar_type(value.type)
        inside = rows

        def read(row: int, positions: list[str], mask: str | None, count: str | None, *, sample: bool = False) -> list[str]:
            vectors = [(inside[row], i) for i in positions]
            roots, stash = ([value], []) if sample else (found.roots, found.stash)
            knowns = self._read_vectors(roots, vectors, mask, count)
            self.e.emit_together(roots, knowns)
            for (at, i), known in zip(vectors, knowns):
                for operand, kept in stash:
                    self._write(operand, known[kept], at.pointers, i, mask, count)
            return [known[value] for known in knowns]

        from sardonyx.codegen.squared_deviations import SquaredDeviationsWalk  # lazy: few loops have one

        walk = SquaredDeviationsWalk(self.e, value.type, read)
        stretch = None if self._are_short(rows) else self._stretch(walk.step)
        if self.k.reduce == "parts":
            nothing = [(kind, constant(value.type, 0, 1))] * (3 * len(rows))
            part = self.f.loop(0, self.sizes[-2], 1, nothing)
            inside = self._rows_of_part(found, rows, part.index)
            following: list[str] = []
            for number, (total, deviations) in enumerate(walk.finish(walk.walk(range(len(rows)), start, stop, stretch))):
                elements, sum_, squares = part.carry[3 * number : 3 * number + 3]
                following += walk.join((elements, sum_, squares), total, deviations, self.sizes[-1])
            ended = self.f.end(part, following)
            results = [(ended[3 * number + 1], ended[3 * number + 2]) for number in range(len(rows))]
        else:
            for row in rows:
                row.known = self._uniform(found.roots, row, self.k.axes - 1)
            # Two at a time fill the machine; their ends, which are chains of few instructions, come together.
            pairs = [range(first, min(first + 2, len(rows))) for first in range(0, len(rows), 2)]
            walked = [walk.walk(pair, start, stop, stretch) for pair in pairs]
            results = [result for pair in walked for result in walk.finish(pair)]
        for row, (total, deviations) in zip(rows, results):
            for node in found.reductions:
                row.reduced[node] = deviations if node.param[0] == "squared_deviations" else total

    def _rows_of_part(self, found: Walk, rows: list[_Row], part: str) -> list[_Row]:
        """Where a part of each row lies, and what is the same along it."""
        axis, inside = self.k.axes - 2, []
        for row in rows:
            moved = _Row(self._moved(row.pointers, axis, part), [*row.indices, part], row.reduced)
            moved.known = self._uniform(found.roots, moved, self.k.axes - 1)
            inside.append(moved)
        return inside

    def _walk_parts(
        self, found: Walk, rows: list[_Row], start: str, stop: str, body: _Body, accumulators: list[Accumulator]
    ) -> list[str]:
        """Walk along rows, part by part if they have parts: the state of each accumulator for each row and unrolled position."""
        f, each = self.f, accumulators * (len(rows) * self._unroll(found))
        if self.k.reduce != "parts":
            for row in rows:
                row.known = self._uniform(found.roots, row, self.k.axes - 1)
            return self._walk_stretches(found, start, stop, partial(body, rows), each, short=self._are_short(rows))
        part = f.loop(0, self.sizes[-2], 1, states_of(each))
        inside = partial(body, self._rows_of_part(found, rows, part.index))
        if not any(acc.rounds for acc in each):
            return f.end(part, self._walk(start, stop, self._unroll(found), inside, each, part.carry))
        return f.end(part, joined(each, part.carry, self._walk_stretches(found, start, stop, inside, each, short=False)))

    def _walk_stretches(
        self, found: Walk, start: str, stop: str, body: _WalkBody, each: list[Accumulator], *, short: bool
    ) -> list[str]:
        """Walk along a row or part; one that is not known to be short in stretches, if it adds floats."""
        f, unroll = self.f, self._unroll(found)
        nothing = [value for _, value in states_of(each)]
        if short or not any(acc.rounds for acc in each):
            return self._walk(start, stop, unroll, body, each, nothing)
        step = self._stretch(unroll * self.lanes)
        stretch = f.loop(start, stop, step, states_of(each))
        end = f.min(f.add(stretch.index, step), stop)
        return f.end(stretch, joined(each, stretch.carry, self._walk(stretch.index, end, unroll, body, each, nothing)))

    def _walk(
        self, start: str, stop: str, unroll: int, body: _WalkBody, each: list[Accumulator], initial: list[str]
    ) -> list[str]:
        """Call `body(positions, mask, count, carried)` along a row or part; returns the carried values, which the caller joins.

        Carried values come once for each of `unroll` positions: the single-vector loop and the tail go on with the first ones.
        """
        f, step = self.f, self.lanes * unroll
        length = f.sub(stop, start)
        kinds, values = [kind for kind, _ in states_of(each)], list(initial)
        width = len(kinds) // unroll
        whole = start
        if unroll > 1:
            whole = f.add(start, f.let(f"and i64 {length}, {-step}", "i"))
            loop = f.loop(start, whole, step, list(zip(kinds, values)))
            positions = [f.add(loop.index, number * self.lanes) for number in range(unroll)]
            values = f.end(loop, body(positions, None, None, loop.carry))
        edge = f.add(start, f.let(f"and i64 {length}, {-self.lanes}", "i"))
        loop = f.loop(whole, edge, self.lanes, list(zip(kinds[:width], values[:width])))
        values[:width] = f.end(loop, body([loop.index], None, None, loop.carry))
        count = f.sub(stop, edge)
        tail, after = f.fresh("tail"), f.fresh("after")
        before = f.block
        f.branch_if(f.let(f"icmp sgt i64 {count}, 0", "c"), tail, after)
        f.label(tail)
        last = body([edge], self.e.mask_below(count), count, values[:width])
        reached = f.block
        f.branch(after)
        f.label(after)
        for number, (kind, value) in enumerate(zip(kinds, last)):
            values[number] = f.let(f"phi {kind} [ {values[number]}, %{before} ], [ {value}, %{reached} ]", "r")
        return values

    def _unroll(self, found: Walk) -> int:
        """How many vectors are worked on at once.

        One, where the stride of something is known only then: every vector has branches around it, so that nothing is mixed, and
        each way to load it is written out for every vector.
        """
        operations = _operations(found)
        if not found.reductions and self._is_strided(found):
            return 1
        return 1 if operations > 3 * _HEAVY else 2 if operations > _HEAVY else 4

    def _is_strided(self, found: Walk) -> bool:
        """Whether a walk reads or writes elements whose distance is not known."""
        read = {node.param for node in surface(found.roots) if node.op == "load"}
        return any(self.k.operands[number].inner == "any" for number in (*read, *found.stores, *(at for at, _ in found.stash)))

    def _uniform(self, values: Iterable[Expr], row: _Row, moving: int) -> dict[Expr, str]:
        """What is the same along the whole row, in vectors: operands that do not move, outer indices, and what follows from them.

        It is computed for one element and then put into all lanes. `moving` is the axis that is walked.
        """
        nodes = surface(values)
        one = VectorEmitter(self.f, 1, self.e.target)
        known: dict[Expr, str] = {}
        fixed: set[Expr] = set()
        for node in nodes:
            if node in row.reduced:
                known[node] = row.reduced[node]
            elif node.op == "load" and self.k.operands[node.param].inner == "zero":
                known[node] = one.load_scalar(row.pointers[node.param], node.type)
            elif node.op == "size":
                known[node] = self.sizes[self._axis(node)]
            elif node.op == "index" and self._axis(node) != moving:
                known[node] = row.indices[self._axis(node)]
            elif node.op != "const" and not (node.args and all(arg in fixed or arg.op == "const" for arg in node.args)):
                continue
            if node.op != "const":
                fixed.add(node)
        wanted = dict.fromkeys(arg for node in nodes if node not in fixed for arg in node.args if arg in fixed)
        wanted.update(dict.fromkeys(value for value in values if value in fixed))
        made = one.emit(wanted, known)
        return {node: self.e.splat(value, scalar_type(node.type)) for node, value in zip(wanted, made)}

    def _scalars(self, values: list[Expr], row: _Row) -> dict[Expr, str]:
        """The leaves of expressions that are evaluated once per row."""
        one = VectorEmitter(self.f, 1, self.e.target)
        known = dict(row.reduced)
        for node in _leaves(values, known):
            if node.op == "load":
                known[node] = one.load_scalar(row.pointers[node.param], node.type)
            elif node.op == "size":
                known[node] = self.sizes[self._axis(node)]
            elif node.op == "index":
                known[node] = row.indices[self._axis(node)]
        return known

    def _read_vectors(
        self, values: list[Expr], vectors: Sequence[tuple[_Row, str]], mask: str | None, count: str | None
    ) -> list[dict[Expr, str]]:
        """What is known at some positions after loading; rows that lie in the same memory are read once."""
        knowns = []
        shared: dict[str, dict[Expr, str]] = {}
        for row, i in vectors:
            known = {**row.known, **shared.get(i, {})}
            self._read(values, known, row.pointers, i, mask, count)
            shared[i] = {
                node: value for node, value in known.items() if node.op == "load" and self.k.operands[node.param].same_rows
            }
            knowns.append(known)
        return knowns

    def _read(
        self, values: list[Expr], known: dict[Expr, str], pointers: list[str], i: str, mask: str | None, count: str | None
    ) -> None:
        """Load what the expressions need at position i of the row."""
        for node in _leaves(values, known):
            if node.op == "load":
                operand = self.k.operands[node.param]
                if operand.inner == "unit":
                    at = self.f.element(pointers[node.param], memory_type(operand.type), i)
                    known[node] = self.e.load(at, operand.type, mask)
                else:
                    stride = self.strides[node.param][-1]
                    at = self.f.element(pointers[node.param], memory_type(operand.type), self.f.mul(i, stride))
                    known[node] = self.e.load_any(at, stride, operand.type, mask, count)
            elif node.op == "index" and self._axis(node) == self.k.axes - 1:
                known[node] = self.e.iota(i)

    def _write(self, number: int, value: str, pointers: list[str], i: str, mask: str | None, count: str | None) -> None:
        operand = self.k.operands[number]
        if operand.inner == "unit":
            at = self.f.element(pointers[number], memory_type(operand.type), i)
            self.e.store(at, value, operand.type, mask)
        else:
            stride = self.strides[number][-1]
            at = self.f.element(pointers[number], memory_type(operand.type), self.f.mul(i, stride))
            self.e.store_strided(at, stride, value, operand.type, count)

    # Some columns of vectors, the middle axis reduced

    def _columns(self, pointers: list[str], positions: list[str], indices: list[str], count: str | None) -> None:
        f = self.f
        mask = None if count is None else self.e.mask_below(count)
        axis = self.k.axes - 2
        reduced: list[dict[Expr, str]] = [{} for _ in positions]

        def known_at(row: str, moved: list[str], values: list[Expr]) -> list[dict[Expr, str]]:
            shared: dict[Expr, str] = {}
            for node in _leaves(values, reduced[0]):
                if node.op == "load" and self.k.operands[node.param].inner == "zero":
                    shared[node] = self.e.load_scalar(moved[node.param], node.type)
                elif node.op == "size":
                    shared[node] = self.e.splat(self.sizes[self._axis(node)], "i64")
                elif node.op == "index" and self._axis(node) <= axis:
                    position = row if self._axis(node) == axis else indices[self._axis(node)]
                    shared[node] = self.e.splat(position, "i64")
            made = [{**shared, **results} for results in reduced]
            for known, i in zip(made, positions):
                self._read(values, known, moved, i, mask, count)
            return made

        for found in self.walks:
            accumulators = [Accumulator(self.e, node) for node in found.reductions]
            each = accumulators * len(positions)
            width = len(states_of(accumulators))
            constants = self._constants_of(found, reduced, positions)
            rounds = any(acc.rounds for acc in accumulators)
            stretch = f.loop(0, self.sizes[axis], _STRETCH, states_of(each)) if rounds else None
            begin, end = (
                (stretch.index, f.min(f.add(stretch.index, _STRETCH), self.sizes[axis])) if stretch else ("0", self.sizes[axis])
            )
            loop = f.loop(begin, end, 1, states_of(each))
            moved = self._moved(pointers, axis, loop.index)
            following: list[str] = []
            knowns = [{**known, **own} for known, own in zip(known_at(loop.index, moved, found.roots), constants)]
            products, needed = _needed(found, accumulators, knowns[0])
            self.e.emit_together(needed, knowns)
            for number, (known, i) in enumerate(zip(knowns, positions)):
                state = loop.carry[number * width : (number + 1) * width]
                for acc, value, product in zip(accumulators, found.values, products):
                    if product:
                        following += acc.step_product(known[value.args[0]], known[value.args[1]], state, None)
                    else:
                        following += acc.step_uniform(known[value], state[: len(acc.types)], loop.index)
                    state = state[len(acc.types) :]
                for operand, value in zip(found.stores, found.values):
                    self._write(operand, known[value], moved, i, mask, count)
                for operand, value in found.stash:
                    self._write(operand, known[value], moved, i, mask, count)
            states = f.end(loop, following)
            if stretch:
                states = f.end(stretch, joined(each, stretch.carry, states))
            for results in reduced:
                for node, acc in zip(found.reductions, accumulators):
                    results[node] = acc.result(states[: len(acc.types)])
                    states = states[len(acc.types) :]
        if self.k.results:
            values = [value for _, value in self.k.results]
            for known, i in zip(known_at("0", pointers, values), positions):
                for (operand, _), made in zip(self.k.results, self.e.emit(values, known)):
                    self._write(operand, made, pointers, i, mask, count)

    def _constants_of(self, found: Walk, reduced: list[dict[Expr, str]], positions: list[str]) -> list[dict[Expr, str]]:
        """What follows from finished reductions alone, computed once for each column."""
        fixed: set[Expr] = set()
        for node in surface(found.roots):
            if node in reduced[0] or (node.args and all(arg in fixed or arg.op == "const" for arg in node.args)):
                fixed.add(node)
        result = []
        for results in reduced:
            known = dict(results)
            self.e.emit([arg for node in surface(found.roots) if node not in fixed for arg in node.args if arg in fixed], known)
            result.append(known)
        return result


def _portions(vectors: list[tuple[_Row, str]], found: Walk) -> list[list[tuple[_Row, str]]]:
    """The positions whose instructions are mixed, so that one does not wait for the other: as many as the registers hold."""
    most = len(vectors) if _operations(found) <= _LIGHT else _MIXED
    return [vectors[start : start + most] for start in range(0, len(vectors), most)]


def _needed(found: Walk, accumulators: list[Accumulator], known: Iterable[Expr]) -> tuple[list[bool], list[Expr]]:
    """Which reductions add up products, multiplied and added at once, and what must be computed before they take it in."""
    there = {*known, *(value for _, value in found.stash)}
    products = [acc.adds_products and value.op == "mul" and value not in there for acc, value in zip(accumulators, found.values)]
    needed: list[Expr] = []
    for value, product in zip(found.values, products or [False] * len(found.values)):
        needed += value.args if product else [value]
    return products, [*needed, *(value for _, value in found.stash)]


def _leaves(values: Iterable[Expr], known: dict[Expr, str]) -> list[Expr]:
    """The nodes without arguments that expressions still need, given what is known."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = list(values)[::-1]
    while stack:
        node = stack.pop()
        if node in known or node in seen:
            continue
        seen.add(node)
        if not node.args and node.op != "const":
            found[node] = None
        stack.extend(node.args[::-1])
    return list(found)


def _operations(found: Walk) -> int:
    return sum(1 for node in surface(found.roots) if node.op != "const")


def _moving_operations(found: Walk, kernel: LoopKernel) -> int:
    """Operations for each element: without what is the same along a row."""
    moving: set[Expr] = set()
    for node in surface(found.roots):
        leaf = node.op == "index" or (node.op == "load" and kernel.operands[node.param].inner != "zero")
        if leaf or (node.op != "reduced" and any(arg in moving for arg in node.args)):
            moving.add(node)
    return len(moving)
