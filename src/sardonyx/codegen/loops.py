"""Loop kernels -> LLVM: rows of vectors, with reductions kept in registers.

    for unit in begin .. end:                       (which row, by division and remainder)
      for row on the last axis but one:
        for i on the vector axis, UNROLL vectors at a time; then one at a time; then one masked vector:
          load, compute, store

A reduced row keeps UNROLL partial results, so that one addition need not wait for the one before, and joins them in a
fixed order: the result does not depend on how the rows are divided between threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sardonyx.codegen.function import Function
from sardonyx.codegen.target import Target
from sardonyx.codegen.vector import VectorEmitter, constant, intrinsic_suffix, memory_type, scalar_type
from sardonyx.kernel.expr import FLOATS, SIGNED, Expr, load, walk
from sardonyx.kernel.loops import CHUNK, MIDDLE_VECTORS, LoopKernel, Operand, vector_lanes

KERNEL_PARAMETERS: Final = (("args", "ptr"), ("begin", "i64"), ("end", "i64"), ("worker", "i64"))
_HEAVY: Final = 40  # operations from which on fewer vectors are worked on at once: more would not fit the registers

_LARGEST: Final = {"i8": 2**7 - 1, "i16": 2**15 - 1, "i32": 2**31 - 1, "i64": 2**63 - 1}


def emit_loop_kernel(kernel: LoopKernel, name: str, target: Target) -> Function:
    """The function of a loop kernel."""
    function = Function(name, KERNEL_PARAMETERS)
    _LoopEmitter(kernel, function, target).emit()
    return function


class _LoopEmitter:
    def __init__(self, kernel: LoopKernel, function: Function, target: Target) -> None:
        self.k = kernel
        self.f = function
        self.lanes = vector_lanes(kernel, target.lanes)
        self.e = VectorEmitter(function, self.lanes)
        operations = sum(1 for _ in walk(kernel.roots))
        self.unroll = 1 if operations > 3 * _HEAVY else 2 if operations > _HEAVY else 4
        self.sizes = [function.argument("%args", axis) for axis in range(kernel.axes)]
        self.bases: list[str] = []
        self.strides: list[list[str]] = []
        for number, operand in enumerate(kernel.operands):
            at = kernel.axes + number * (1 + kernel.axes)
            self.bases.append(function.argument("%args", at, "ptr"))
            strides = [function.argument("%args", at + 1 + axis) for axis in range(kernel.axes)]
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
        pointers = list(self.bases)
        self._row(pointers, start, stop, [])

    def _emit_rows(self) -> None:
        """All axes but the last make rows; one axis of rows is a loop of its own, the ones above it are decoded."""
        f, axes = self.f, self.k.axes
        rows = axes - 1 if self.k.reduce == "inner" else axes - 2
        unit = f.loop("%begin", "%end")
        indices = self._decode(unit.index, rows)
        pointers = [self._offset(number, indices) for number in range(len(self.bases))]
        if rows == axes - 1:
            self._row(pointers, "0", self.sizes[-1], indices)
        else:
            row = f.loop(0, self.sizes[rows])
            inner = [
                f.element(pointer, memory_type(operand.type), f.mul(row.index, self.strides[number][rows]))
                for number, (pointer, operand) in enumerate(zip(pointers, self.k.operands))
            ]
            self._row(inner, "0", self.sizes[-1], [*indices, row.index])
            f.end(row)
        f.end(unit)

    def _emit_middle(self) -> None:
        """Vectors of the kept axis; the reduced axis is a plain loop around them."""
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
        whole = f.let(f"sdiv i64 {f.sub(stop, start)}, {self.lanes}", "i")
        edge = f.add(start, f.mul(whole, self.lanes))
        column = f.loop(start, edge, self.lanes)
        self._column(pointers, column.index, indices, None)
        f.end(column)
        rest = f.sub(stop, edge)
        some, after = f.fresh("tail"), f.fresh("after")
        f.branch_if(f.let(f"icmp sgt i64 {rest}, 0", "c"), some, after)
        f.label(some)
        self._column(pointers, edge, indices, rest)
        f.branch(after)
        f.label(after)
        f.end(unit)

    def _decode(self, unit: str, axes: int) -> list[str]:
        """The index on each of the first `axes` axes of a place counted through them."""
        indices: list[str] = []
        rest = unit
        for axis in range(axes - 1, -1, -1):
            if axis == 0:
                indices.append(rest)
                break
            indices.append(self.f.let(f"urem i64 {rest}, {self.sizes[axis]}", "i"))
            rest = self.f.let(f"udiv i64 {rest}, {self.sizes[axis]}", "i")
        return indices[::-1]

    def _offset(self, number: int, indices: list[str]) -> str:
        offset = "0"
        for axis, index in enumerate(indices):
            offset = self.f.add(offset, self.f.mul(index, self.strides[number][axis]))
        return self.f.element(self.bases[number], memory_type(self.k.operands[number].type), offset)

    # One row along the vector axis

    def _row(self, pointers: list[str], start: str, stop: str, indices: list[str]) -> None:
        reduced: dict[Expr, str] = {}
        for number, level in enumerate(self.k.levels):
            self._reduce_row(level, number, pointers, start, stop, indices, reduced)
        if self.k.stores:
            uniform = self._uniform(pointers, indices)

            def store(i: str, mask: str | None, count: str | None, carried: list[str]) -> list[str]:
                known = {**uniform, **{node: self.e.splat(value, scalar_type(node.type)) for node, value in reduced.items()}}
                values = [self.k.stashed(value) for _, value in self.k.stores]
                self._read(values, known, pointers, i, mask, count, indices)
                for (operand, _), value in zip(self.k.stores, self.e.emit(values, known)):
                    self._write(operand, value, pointers, i, mask, count)
                return []

            self._walk(start, stop, store, [], [])
        for operand, value in self.k.results:
            one = VectorEmitter(self.f, 1)
            known = dict(reduced)
            known.update({load(n, o.type): one.load_scalar(pointers[n], o.type) for n, o in self._loads([value])})
            known.update(self._scalar_indices([value], indices))
            (result,) = one.emit([value], known)
            one.store(pointers[operand], result, self.k.operands[operand].type)

    def _walk(
        self,
        start: str,
        stop: str,
        body: Callable[[str, str | None, str | None, list[str]], list[str]],
        types: list[str],
        initial: list[str],
    ) -> list[str]:
        """Call `body(i, mask, count, carried)` along a row; returns the carried values, which the caller joins.

        Carried values come UNROLL at a time: the single-vector loop and the tail go on with the first ones.
        """
        f, step = self.f, self.lanes * self.unroll
        length = f.sub(stop, start)
        kinds, values = types * self.unroll, initial * self.unroll
        width = len(types)
        if self.unroll > 1:
            whole = f.add(start, f.mul(f.let(f"sdiv i64 {length}, {step}", "i"), step))
            loop = f.loop(start, whole, step, list(zip(kinds, values)))
            following: list[str] = []
            for number in range(self.unroll):
                carried = loop.carry[number * width : (number + 1) * width]
                following += body(f.add(loop.index, number * self.lanes), None, None, carried)
            values = f.end(loop, following)
        else:
            whole = start
        edge = f.add(start, f.mul(f.let(f"sdiv i64 {length}, {self.lanes}", "i"), self.lanes))
        loop = f.loop(whole, edge, self.lanes, list(zip(kinds[:width], values[:width])))
        values[:width] = f.end(loop, body(loop.index, None, None, loop.carry))
        count = f.sub(stop, edge)
        tail, after = f.fresh("tail"), f.fresh("after")
        before = f.block
        f.branch_if(f.let(f"icmp sgt i64 {count}, 0", "c"), tail, after)
        f.label(tail)
        last = body(edge, self.e.mask_below(count), count, values[:width])
        reached = f.block
        f.branch(after)
        f.label(after)
        for number, (kind, value) in enumerate(zip(types, last)):
            values[number] = f.let(f"phi {kind} [ {values[number]}, %{before} ], [ {value}, %{reached} ]", "r")
        return values

    def _loads(self, values: list[Expr]) -> list[tuple[int, Operand]]:
        used = {node.param for node in walk(values) if node.op == "load"}
        return [(number, self.k.operands[number]) for number in sorted(used)]

    def _uniform(self, pointers: list[str], indices: list[str]) -> dict[Expr, str]:
        """What is the same along the whole row: operands that do not move, indices of outer axes."""
        known: dict[Expr, str] = {}
        for number, operand in enumerate(self.k.operands):
            node = load(number, operand.type)
            if operand.inner == "zero" and any(node in set(walk([value])) for value in self._all_values()):
                known[node] = self.e.load_scalar(pointers[number], operand.type)
        for node in walk(self._all_values()):
            if node.op == "index" and node.param < len(indices):
                known[node] = self.e.splat(indices[node.param], "i64")
        return known

    def _all_values(self) -> list[Expr]:
        return [*self.k.roots, *(value for _, value in self.k.stash)]

    def _scalar_indices(self, values: list[Expr], indices: list[str]) -> dict[Expr, str]:
        return {node: indices[node.param] for node in walk(values) if node.op == "index"}

    def _read(
        self,
        values: list[Expr],
        known: dict[Expr, str],
        pointers: list[str],
        i: str,
        mask: str | None,
        count: str | None,
        indices: list[str],
    ) -> None:
        """Load what the expressions need at position i of the row."""
        vector_axis = self.k.axes - 1
        for node in walk(values):
            if node in known:
                continue
            if node.op == "load":
                operand = self.k.operands[node.param]
                if operand.inner == "unit":
                    at = self.f.element(pointers[node.param], memory_type(operand.type), i)
                    known[node] = self.e.load(at, operand.type, mask)
                else:
                    stride = self.strides[node.param][-1]
                    at = self.f.element(pointers[node.param], memory_type(operand.type), self.f.mul(i, stride))
                    known[node] = self.e.load_strided(at, stride, operand.type, count)
            elif node.op == "index" and node.param == vector_axis:
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

    def _reduce_row(
        self,
        level: tuple[Expr, ...],
        number: int,
        pointers: list[str],
        start: str,
        stop: str,
        indices: list[str],
        reduced: dict[Expr, str],
    ) -> None:
        """Walk the row once for all reductions of a level; their scalar results go to `reduced`."""
        uniform = self._uniform(pointers, indices)
        before = {node: self.e.splat(value, scalar_type(node.type)) for node, value in reduced.items()}
        stashed_now = [
            (operand, value)
            for operand, value in self.k.stash
            if any(value in set(walk(node.args)) for node in level) and not any(self._level_of(value) < n for n in range(number))
        ]
        accumulators = [_Accumulator(self.e, node) for node in level]
        types = [kind for acc in accumulators for kind in acc.types]
        initial = [value for acc in accumulators for value in acc.initial]

        def step(i: str, mask: str | None, count: str | None, carried: list[str]) -> list[str]:
            known = {**uniform, **before}
            values = [node.args[0] for node in level]
            self._read(values, known, pointers, i, mask, count, indices)
            made = self.e.emit(values, known)
            for operand, kept in stashed_now:
                self._write(operand, known[kept], pointers, i, mask, count)
            following: list[str] = []
            position = 0
            for acc, value in zip(accumulators, made):
                width = len(acc.types)
                following += acc.step(value, carried[position : position + width], mask, i)
                position += width
            return following

        results = self._walk(start, stop, step, types, initial)
        width = len(types)
        position = 0
        for node, acc in zip(level, accumulators):
            own = len(acc.types)
            parts = [results[n * width + position : n * width + position + own] for n in range(self.unroll)]
            reduced[node] = acc.finish(parts)
            position += own

    def _level_of(self, value: Expr) -> int:
        inside = {node for node in walk([value]) if node.op == "reduced"}
        return next((n for n in range(len(self.k.levels)) if inside <= {r for lv in self.k.levels[:n] for r in lv}), 0)

    # One column of vectors, the middle axis reduced

    def _column(self, pointers: list[str], i: str, indices: list[str], count: str | None) -> None:
        f = self.f
        mask = None if count is None else self.e.mask_below(count)
        reduce_axis = self.k.axes - 2
        reduced: dict[Expr, str] = {}

        def at_row(row: str) -> list[str]:
            return [
                f.element(pointer, memory_type(operand.type), f.mul(row, self.strides[number][reduce_axis]))
                for number, (pointer, operand) in enumerate(zip(pointers, self.k.operands))
            ]

        def known_at(row: str, moved: list[str], values: list[Expr]) -> dict[Expr, str]:
            known = dict(reduced)
            for node in walk(values):
                if node.op == "load" and self.k.operands[node.param].inner == "zero":
                    known[node] = self.e.load_scalar(moved[node.param], self.k.operands[node.param].type)
                elif node.op == "index" and node.param < len(indices):
                    known[node] = self.e.splat(indices[node.param], "i64")
                elif node.op == "index" and node.param == reduce_axis:
                    known[node] = self.e.splat(row, "i64")
            self._read(values, known, moved, i, mask, count, indices)
            return known

        for level in self.k.levels:
            accumulators = [_Accumulator(self.e, node) for node in level]
            carry = [(kind, value) for acc in accumulators for kind, value in zip(acc.types, acc.initial)]
            loop = f.loop(0, self.sizes[reduce_axis], 1, carry)
            values = [node.args[0] for node in level]
            known = known_at(loop.index, at_row(loop.index), values)
            following: list[str] = []
            position = 0
            for acc, value in zip(accumulators, self.e.emit(values, known)):
                width = len(acc.types)
                following += acc.step_uniform(value, loop.carry[position : position + width], loop.index)
                position += width
            results = f.end(loop, following)
            position = 0
            for node, acc in zip(level, accumulators):
                reduced[node] = acc.result(results[position : position + len(acc.types)])
                position += len(acc.types)
        if self.k.stores:
            loop = f.loop(0, self.sizes[reduce_axis])
            moved = at_row(loop.index)
            values = [value for _, value in self.k.stores]
            known = known_at(loop.index, moved, values)
            for (operand, _), value in zip(self.k.stores, self.e.emit(values, known)):
                self._write(operand, value, moved, i, mask, count)
            f.end(loop)
        if self.k.results:
            values = [value for _, value in self.k.results]
            known = known_at("0", pointers, values)
            for (operand, _), value in zip(self.k.results, self.e.emit(values, known)):
                self._write(operand, value, pointers, i, mask, count)


class _Accumulator:
    """The running state of one reduction, in vectors."""

    def __init__(self, emitter: VectorEmitter, node: Expr) -> None:
        self.e = emitter
        self.kind: str = node.param[0]
        self.source = node.args[0].type
        self.types = [emitter.type(self.source)]
        self.initial = [constant(self.source, _identity(self.kind, self.source), emitter.lanes)]
        if self.kind.startswith("arg"):
            self.types.append(emitter.type("i64"))
            self.initial.append(constant("i64", 2**63 - 1, emitter.lanes))

    def step(self, value: str, state: list[str], mask: str | None, i: str) -> list[str]:
        """Take in the vector at positions i, i + 1, ...; lanes outside the mask change nothing."""
        if self.kind.startswith("arg"):
            return self._take_extreme(value, self.e.iota(i), state, mask)
        if mask is not None:
            value = self.e.choose(mask, value, self.initial[0], self.source)
        return [self._join(state[0], value)]

    def step_uniform(self, value: str, state: list[str], position: str) -> list[str]:
        """Take in a vector whose lanes all stand at one position of the reduced axis."""
        if self.kind.startswith("arg"):
            return self._take_extreme(value, self.e.splat(position, "i64"), state, None)
        return [self._join(state[0], value)]

    def result(self, state: list[str]) -> str:
        """The reduction of each lane on its own."""
        return state[-1]

    def finish(self, parts: list[list[str]]) -> str:
        """The reduction of all lanes of all parts: a scalar."""
        total = parts[0]
        for part in parts[1:]:
            total = self._merge_extreme(total, part) if self.kind.startswith("arg") else [self._join(total[0], part[0])]
        if self.kind.startswith("arg"):
            return self._horizontal_extreme(total)
        return self._horizontal(total[0])

    def _join(self, a: str, b: str) -> str:
        f, kind = self.e.f, self.e.type(self.source)
        floating = self.source in FLOATS
        if self.kind in ("sum", "prod"):
            operation = {"sum": "add", "prod": "mul"}[self.kind]
            return f.let(f"{'f' if floating else ''}{operation} {kind} {a}, {b}")
        if floating:
            return f.call(kind, f"llvm.{self.kind}imum.{intrinsic_suffix(self.source, self.e.lanes)}", (kind, a), (kind, b))
        order = ("s" if self.source in SIGNED else "u") + ("gt" if self.kind == "max" else "lt")
        return self.e.choose(f.let(f"icmp {order} {kind} {a}, {b}"), a, b, self.source)

    def _horizontal(self, vector: str) -> str:
        f, kind, suffix = self.e.f, self.e.type(self.source), intrinsic_suffix(self.source, self.e.lanes)
        element, floating = scalar_type(self.source), self.source in FLOATS
        if floating and self.kind in ("sum", "prod"):
            name = f"llvm.vector.reduce.{'fadd' if self.kind == 'sum' else 'fmul'}.{suffix}"
            start = constant(self.source, 0.0 if self.kind == "sum" else 1.0, 1)
            f.declarations.add(f"declare {element} @{name}({element}, {kind})")
            return f.let(f"call reassoc {element} @{name}({element} {start}, {kind} {vector})")
        if floating:
            name = f"llvm.vector.reduce.f{self.kind}imum.{suffix}"
        else:
            sign = "s" if self.source in SIGNED else "u"
            name = "llvm.vector.reduce." + {"sum": "add", "prod": "mul"}.get(self.kind, sign + self.kind) + f".{suffix}"
        return f.call(element, name, (kind, vector))

    # argmax and argmin: the first extreme wins, or the last with the suffix _last; NaN counts as more extreme than all

    def _beats(self, a: str, b: str) -> str:
        f, kind = self.e.f, self.e.type(self.source)
        largest = self.kind.startswith("argmax")
        if self.source not in FLOATS:
            sign = "s" if self.source in SIGNED else "u"
            return f.let(f"icmp {sign}{'gt' if largest else 'lt'} {kind} {a}, {b}")
        more = f.let(f"fcmp {'ogt' if largest else 'olt'} {kind} {a}, {b}")
        a_nan, b_number = f.let(f"fcmp uno {kind} {a}, {a}"), f.let(f"fcmp ord {kind} {b}, {b}")
        masks = self.e.type("bool")
        only_a = f.let(f"and {masks} {a_nan}, {b_number}")
        return f.let(f"or {masks} {more}, {only_a}")

    def _take_extreme(self, value: str, position: str, state: list[str], mask: str | None) -> list[str]:
        f, masks = self.e.f, self.e.type("bool")
        empty = f.let(f"icmp eq {self.e.type('i64')} {state[1]}, {self.initial[1]}")
        if self.kind.endswith("_last"):
            worse = self._beats(state[0], value)
            wins = f.let(f"xor {masks} {worse}, {constant('bool', True, self.e.lanes)}")
        else:
            wins = self._beats(value, state[0])
        wins = f.let(f"or {masks} {wins}, {empty}")
        if mask is not None:
            wins = f.let(f"and {masks} {wins}, {mask}")
        return [self.e.choose(wins, value, state[0], self.source), self.e.choose(wins, position, state[1], "i64")]

    def _merge_extreme(self, a: list[str], b: list[str]) -> list[str]:
        """Two states into one: the more extreme value; of equal ones the first (or last) position."""
        f, masks, places = self.e.f, self.e.type("bool"), self.e.type("i64")
        b_better, a_better = self._beats(b[0], a[0]), self._beats(a[0], b[0])
        tie = f.let(f"xor {masks} {f.let(f'or {masks} {b_better}, {a_better}')}, {constant('bool', True, self.e.lanes)}")
        a_empty = f.let(f"icmp eq {places} {a[1]}, {self.initial[1]}")
        b_full = f.let(f"icmp ne {places} {b[1]}, {self.initial[1]}")
        order = f.let(f"icmp {'sgt' if self.kind.endswith('_last') else 'slt'} {places} {b[1]}, {a[1]}")
        by_order = f.let(f"and {masks} {tie}, {order}")
        wins = f.let(f"or {masks} {f.let(f'or {masks} {b_better}, {by_order}')}, {a_empty}")
        wins = f.let(f"and {masks} {wins}, {b_full}")
        return [self.e.choose(wins, b[0], a[0], self.source), self.e.choose(wins, b[1], a[1], "i64")]

    def _horizontal_extreme(self, state: list[str]) -> str:
        f, lanes = self.e.f, self.e.lanes
        width = lanes
        while width > 1:
            half = width // 2
            order = ", ".join(f"i32 {(lane + half) % lanes}" for lane in range(lanes))
            moved = [
                f.let(f"shufflevector {kind} {value}, {kind} poison, <{lanes} x i32> <{order}>")
                for kind, value in zip(self.types, state)
            ]
            state = self._merge_extreme(state, moved)
            width = half
        return f.let(f"extractelement {self.types[1]} {state[1]}, i32 0")


def _identity(kind: str, source: str) -> float:
    """What changes nothing when it is joined in; for arguments of extremes any value, their position tells."""
    if kind == "sum" or kind.startswith("arg"):
        return 0
    if kind == "prod":
        return 1
    if source in FLOATS:
        return float("-inf") if kind == "max" else float("inf")
    if source == "bool":
        return kind == "min"
    top = _LARGEST.get(source, 2 ** int(source[1:]) - 1)
    bottom = -top - 1 if source in SIGNED else 0
    return bottom if kind == "max" else top
