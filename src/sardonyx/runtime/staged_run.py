"""Short programs whose sizes become known in stages, as one series of instructions (`codegen.staged_run`): no Python in between.

    run = StagedRun.of(runner, context)    # None if the program does what only Python can follow
    run(context, arrays)    ->    [result, ...], or None if this run is to be done in the other way

The instructions are written when a context is used for the same shapes again. What the inputs' shapes determine has been set
up by then and stays; whatever sizes the data tell from then on, a run comes back to Python only to allocate results.

An open run begins with the shapes of its arrays: whatever these are, nothing is set up in Python (`open_runs`).

Buffers whose sizes become known on the way share a piece of memory if their lifetimes do not meet. Which of them do is
decided once, their sizes are not looked at: that may take somewhat more memory than a plan for the sizes, but no time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.codegen.blocks import (
    STAGED_ADD,
    STAGED_ADDRESS,
    STAGED_AT,
    STAGED_BASES,
    STAGED_BIND,
    STAGED_BROADCAST,
    STAGED_CHANGED,
    STAGED_CHECK,
    STAGED_CODE,
    STAGED_COUNT,
    STAGED_DONE,
    STAGED_END,
    STAGED_ENTRIES,
    STAGED_EQUAL,
    STAGED_EXPECT,
    STAGED_EXPECT_EXTENT,
    STAGED_EXTENT,
    STAGED_FAULTS,
    STAGED_FAULTY,
    STAGED_FLOORDIV,
    STAGED_FROM,
    STAGED_LIMIT,
    STAGED_MAX,
    STAGED_MIN,
    STAGED_MOD,
    STAGED_MUL,
    STAGED_NEED,
    STAGED_NEXT,
    STAGED_OBJECTS,
    STAGED_RESERVE,
    STAGED_ROOM,
    STAGED_RUN,
    STAGED_SAVE,
    STAGED_SHARE,
    STAGED_SKIP,
    STAGED_SLOT,
    STAGED_STATE,
    STAGED_STOP,
    STAGED_TABLE,
    STAGED_TOTAL,
    STAGED_VALUES,
    STAGED_WORK,
    STEP_ENTRIES,
)
from sardonyx.program import sizes as table
from sardonyx.program.image import PARALLEL_FROM, SHARED_FROM
from sardonyx.program.segments import BoundNative, BoundSizes
from sardonyx.runtime.arena import LARGE_FROM, ArenaLayout, mapped_memory
from sardonyx.runtime.native_core import ADDRESS_FIRST, Array, address_of, new_array

if TYPE_CHECKING:
    from sardonyx.runtime.executable import RunContext
    from sardonyx.runtime.segment_runner import SegmentRunner

_ROOM: Final = LARGE_FROM - (1 << 16)  # bytes for buffers of all stages; the system provides what is touched of them
_LONGEST: Final = 1_000_000  # nanoseconds of a step: programs with longer ones have no use for this
_LONGEST_RUN: Final = 20_000_000  # of all steps
_MOST_ROWS: Final = 1 << 16
_REFUSED, _PATIENCE = 4, 16  # a run done in the other way counts four, one less with every other run; when that is given up
_CODES: Final = {
    table.ADD: STAGED_ADD, table.MUL: STAGED_MUL, table.FLOORDIV: STAGED_FLOORDIV, table.MOD: STAGED_MOD,
    table.BROADCAST: STAGED_BROADCAST, table.MAX: STAGED_MAX, table.MIN: STAGED_MIN,
}  # fmt: skip
_FUNCTION: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class StagedRun:
    """The instructions of a program for a context, with what they work on."""

    def __init__(self, runner: SegmentRunner, context: RunContext, writer: _Writer, code: int) -> None:
        self._runner, self._core = runner, runner.core
        self._run = _FUNCTION(code)
        self._refused = 0
        self._code = np.array(writer.code, np.int64)
        self._values = np.array(writer.values, np.int64)
        self._bases = context.bases.copy()
        self._memory = mapped_memory(_ROOM)
        self._values[writer.room_row] = address_of(self._memory)
        block = np.zeros(STAGED_ENTRIES, np.int64)
        block[STAGED_CODE], block[STAGED_TABLE] = address_of(self._code), context.table_address
        block[STAGED_VALUES], block[STAGED_BASES] = address_of(self._values), address_of(self._bases)
        block[STAGED_OBJECTS], block[STAGED_FAULTS] = address_of(context.objects), address_of(context.faults)
        block[STAGED_ROOM], block[STAGED_CHANGED] = _ROOM, 1
        block[STAGED_LIMIT], block[STAGED_TOTAL] = writer.limits
        self._block, self._view, self._address = block, block.data, address_of(block)
        self._sizes = self._values.data
        self._types = [output.dtype for output in runner.bound.outputs]
        # At the beginning, and at each stop: the results that are allocated then, with the rows of their sizes
        self._made = writer.made

    @classmethod
    def of(cls, runner: SegmentRunner, context: RunContext, *, is_open: bool = False) -> StagedRun | None:
        """The run of a program in a context that was set up for it; None if it has none.

        An open one takes arrays of any shapes: their sizes are the first stage.
        """
        core = runner.core
        code = core.pool.native_function("staged")
        image = core.image
        is_plain = ADDRESS_FIRST and not image.states and core.apart is None and (is_open or (context.alone and not context.long))
        if not code or not is_plain or not context.stages or len(image.sizes.rows) > _MOST_ROWS:
            return None
        writer = _Writer(runner, context, is_open)
        return cls(runner, context, writer, code) if writer.write() else None

    @property
    def is_hopeless(self) -> bool:
        """Whether too many runs had to be done in the other way."""
        return self._refused >= _PATIENCE

    def forget(self) -> None:
        """The table has been written by others: the next run computes all that follows from sizes anew."""
        self._view[STAGED_CHANGED] = 1

    def __call__(self, context: RunContext, arrays: Sequence[Array]) -> list[Array] | None:
        """The results for arrays of the shapes that the context was set up for; None if the other way has to compute them."""
        context.repeated = None  # what the other way has set up for later stages is overwritten here
        del context.stages[1:]
        results: list[Any] = [None] * len(self._types)
        view, objects, run, address = self._view, context.object_view, self._run, self._address
        position = 0
        for array in arrays:
            objects[position] = id(array)
            position += 1
        view[STAGED_NEXT] = state = 0
        while True:
            sizes = self._sizes
            for number, rows in self._made[state]:
                array = new_array([sizes[row] for row in rows], self._types[number])
                results[number] = array
                objects[position + number] = id(array)
            run(address)
            state = view[STAGED_STATE]
            if state == STAGED_DONE:
                if self._refused:
                    self._refused -= 1
                return results
            if state < 0:
                break
        self.forget()
        if state == STAGED_FAULTY:
            self._core.raise_fault(context)
        self._refused += _REFUSED
        return None


class _Writer:
    """Writes the instructions of a program.

    Values are the rows of the table of sizes; behind them lie the beginning of the room and how much of it is taken at the
    beginning of each stage.
    """

    def __init__(self, runner: SegmentRunner, context: RunContext, is_open: bool) -> None:
        self.runner, self.core, self.image = runner, runner.core, runner.core.image
        self.bound = runner.bound
        self.code: list[tuple[int, int, int, int]] = []
        self.made: list[list[tuple[int, list[int]]]] = [[]]
        self.given = len(self.bound.inputs)
        is_shared = self.core.pool.workers > 1
        self.limits = 2 * PARALLEL_FROM - 1 if is_shared else _LONGEST, _LONGEST_RUN
        if is_open and is_shared:  # longer ones gain more from workers that are awake than from anything here
            self.limits = self.limits[0], 2 * PARALLEL_FROM
        self._rows, self._results = self.image.sizes.rows, self.image.sizes.results
        self._is_open = is_open
        self._known = 0 if is_open else context.stages[0].known
        self.values = self._first_values([0] * len(self.image.symbols) if is_open else context.stages[0].symbols)
        self.room_row = len(self.values)
        self.values += [0, 0]  # the room's beginning, and where the first stage's part begins in it
        self._symbol_rows = {a: row for row, (op, a, _) in enumerate(self._rows) if op == table.SYMBOL}
        self._row_needs = self._needs_of_rows()
        ports = [*(port.buffer for port in self.bound.inputs), *(output.buffer for output in self.bound.outputs)]
        self._port_of = {buffer: number for number, buffer in enumerate(ports)}
        self._bound_ports: set[int] = set()  # buffers of inputs, and of results that are allocated
        arena = self.image.arena[:, :2].tolist() if is_open else []
        needs = self.bound.dim_needs
        # Buffers that get their addresses here, with the symbols in their sizes; and those that have them
        self._buffers = [(number, needs[dim]) for number, dim in arena] if is_open else self.bound.late_buffers
        self._own = {number for number, _ in self._buffers}
        self._laid_out = set() if is_open else {number for number, needs in self._buffers if not needs & ~self._known}
        self._slots_left = [(slot, buffer, self._results[dim]) for slot, buffer, dim in self.image.address_slots.tolist()]

    def _first_values(self, symbols: Sequence[int]) -> list[int]:
        """All rows for the symbols known at first; the others are written before they are read."""
        every = table.SizeTable(self._rows, range(len(self._rows)), len(symbols))
        return list(every(*symbols))

    def _needs_of_rows(self) -> list[int]:
        needs: list[int] = []
        for op, a, b in self._rows:
            needs.append(0 if op == table.NUMBER else 1 << a if op == table.SYMBOL else needs[a] | needs[b])
        return needs

    def _put(self, code: int, a: int = 0, b: int = 0, c: int = 0) -> None:
        self.code.append((code, a, b, c))

    def write(self) -> bool:
        """Write all instructions; whether that was possible."""
        if any(abs(value) >= 1 << 63 for value in self.values) or len(self._port_of) < self.given + len(self.bound.outputs):
            return False
        for number, port in enumerate(self.bound.inputs):
            self._bind(port.buffer, number)
        if not self._is_open:
            self.made[0] = self._ready_outputs()
            self._bind_outputs(self.made[0])
        self._write_port_addresses()
        # What remains of the first stage was written when the context was set up.
        self._slots_left = [entry for entry in self._slots_left if self._is_left(*entry[1:])]
        if self._is_open:
            extents = [
                (STAGED_EXTENT, STAGED_EXPECT_EXTENT, number, axis, dim, symbol)
                for number, port in enumerate(self.bound.inputs)
                for axis, (dim, symbol) in enumerate(zip(port.axes.dims, port.axes.symbols))
            ]
            self._write_stage(extents)
        for segment in self.bound.segments:
            if isinstance(segment, BoundNative):
                if segment.needs & ~self._known:
                    return False
                first = self.core.steps_address + segment.first * 8 * STEP_ENTRIES
                self._put(STAGED_RUN, first, segment.steps, int(bool(self.image.faults)))
            elif isinstance(segment, BoundSizes):
                numbers = enumerate(zip(segment.axes.dims, segment.axes.symbols))
                self._write_stage([(STAGED_COUNT, STAGED_EXPECT, segment.counts, *(at, *each)) for at, each in numbers])
            else:
                return False
        self._put(STAGED_END)
        return len(self._bound_ports) == len(self._port_of)

    def _bind(self, buffer: int, number: int) -> None:
        self._put(STAGED_BIND, number, 0, buffer)
        self._bound_ports.add(buffer)

    def _ready_outputs(self) -> list[tuple[int, list[int]]]:
        """The results whose sizes are known by now and that are not allocated yet, with the rows of their sizes."""
        return [
            (number, [self._results[dim] for dim in output.dims])
            for number, output in enumerate(self.bound.outputs)
            if not output.needs & ~self._known and output.buffer not in self._bound_ports
        ]

    def _bind_outputs(self, made: Sequence[tuple[int, list[int]]]) -> None:
        for number, _ in made:
            self._bind(self.bound.outputs[number].buffer, self.given + number)

    def _write_port_addresses(self) -> None:
        """Addresses of inputs and results: they change with every run."""
        left = []
        for slot, buffer, row in self._slots_left:
            if buffer in self._bound_ports and not self._row_needs[row] & ~self._known:
                self._put(STAGED_ADDRESS, buffer, row, slot)
            else:
                left.append((slot, buffer, row))
        self._slots_left = left

    def _is_left(self, buffer: int, row: int) -> bool:
        """Whether the address of a part of a buffer is still to be written."""
        if buffer in self._own:
            return buffer not in self._laid_out or bool(self._row_needs[row] & ~self._known)
        return buffer in self._port_of or bool(self._row_needs[row] & ~self._known)

    def _write_stage(self, found: Sequence[tuple[int, int, int, int, int, int]]) -> None:
        """Read sizes; compute what follows from it, unless nothing has changed; allocate results.

        For each there are the instructions that read a new size and one that is known, where it stands, its dim and symbol.
        """
        before, expected = self._known, []
        for learn, expect, source, position, dim, symbol in found:
            if symbol >= 0 and not self._known >> symbol & 1:
                self._known |= 1 << symbol
                self._put(learn, source, position, self._symbol_rows[symbol])
            else:
                expected.append((expect, source, position, dim))
        is_first = self._is_open and not self._laid_out
        if self._known != before or is_first:
            skip = len(self.code)
            self._put(STAGED_SKIP)
            self._write_sizes(before)
            self._write_locations()
            self.code[skip] = (STAGED_SKIP, len(self.code) - skip - 1, 0, 0)
        for expect, source, position, dim in expected:
            row = self._results[dim]
            if not self._row_needs[row] & ~self._known:
                self._put(expect, source, position, row)
        made = self._ready_outputs()
        if made:
            self._put(STAGED_STOP, len(self.made))
            self.made.append(made)
            self._bind_outputs(made)
        if self._known != before or made:
            self._write_port_addresses()

    def _is_new(self, needs: int, before: int) -> bool:
        return bool(needs & ~before) and not needs & ~self._known

    def _write_sizes(self, before: int) -> None:
        """All that follows from sizes that are known now and were not before: rows, rules, entries of the table."""
        for row, (op, a, b) in enumerate(self._rows):
            if op in _CODES and self._is_new(self._row_needs[row], before):
                self._put(_CODES[op], a, b, row)
        results, needs = self._results, self._row_needs
        for code, pairs in ((STAGED_CHECK, self.image.checks), (STAGED_EQUAL, self.image.equalities)):
            for one, other in pairs.tolist():
                if self._is_new(needs[results[one]] | needs[results[other]], before):
                    self._put(code, results[one], results[other])
        for slot, dim in self.image.dim_slots.tolist():
            if self._is_new(needs[results[dim]], before):
                self._put(STAGED_SLOT, results[dim], 0, slot)
        for slot, dim in self.image.work_slots.tolist():
            if self._is_new(needs[results[dim]], before):
                self._put(STAGED_WORK, results[dim], SHARED_FROM, slot)

    def _write_locations(self) -> None:
        """Addresses of buffers whose sizes are known now, and of parts of any buffer that begin where that is known now."""
        members = [number for number, needs in self._buffers if not needs & ~self._known and number not in self._laid_out]
        taken = len(self.values) - 1
        self._put(STAGED_FROM, taken)
        layout = ArenaLayout(self.image, members, self.core.pool.workers)
        for piece in layout.pieces():
            for _, dim, parts in piece:
                self._put(STAGED_NEED, self._results[dim], parts)
            self._put(STAGED_RESERVE)
            for buffer, _, _ in piece:
                self._put(STAGED_AT, self.room_row, 0, buffer)
        for buffer, root in zip(layout.shared.tolist(), layout.roots.tolist()):
            self._put(STAGED_SHARE, root, 0, buffer)
        self._put(STAGED_SAVE, 0, 0, taken + 1)
        self.values.append(0)
        self._laid_out.update(members)
        left = []
        for slot, buffer, row in self._slots_left:
            is_there = buffer in self._laid_out if buffer in self._own else buffer not in self._port_of
            if is_there and not self._row_needs[row] & ~self._known:
                self._put(STAGED_ADDRESS, buffer, row, slot)
            else:
                left.append((slot, buffer, row))
        self._slots_left = left
