"""Runs a Loop or Scan whose body is all native: the iterations follow each other in native code (see `loop` in `codegen.driver`).

No iteration allocates anything. A carried value has two buffers, written in turn; a stacked result is one array that each
iteration writes its slice of, and a value that is both is read from the slice before. A result whose length nobody knows grows by
doubling. Carried values of a Loop may change their sizes (`growing_loop`).

Python is asked between rounds of about ten milliseconds, so that a run can be stopped. What this way cannot do (a carried value
that changes its rank, a loop without an iteration) is left to the operator's NumPy definition, which runs the body iteration by
iteration.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.codegen.blocks import (
    ENDED,
    FAULTY,
    INCREMENT_ENTRIES,
    LOOP_ENTRIES,
    LOOP_INCREMENT_COUNT,
    LOOP_ITERATION,
    LOOP_LIMIT,
    LOOP_ROW,
    LOOP_SLOT_COUNT,
    LOOP_SLOTS,
    LOOP_STATE,
    NO_CONDITION,
)
from sardonyx.program.calls import LoopSignature, SlicedPort
from sardonyx.records import dataclass
from sardonyx.runtime.executable import Executable, RunContext
from sardonyx.runtime.growing_loop import Stretch, Stretches, write_rows
from sardonyx.runtime.native_core import RunMemory, SizeConflict, address_of, new_array
from sardonyx.runtime.runs import RunControl, never

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]
Pairs = dict[int, tuple[Array, Array]]

_ENDLESS: Final = 1 << 62
_ROUND: Final = 10_000_000  # nanoseconds in native code until Python is asked
_FIRST_ROUND: Final = 1000  # iterations at most before their time is measured: it may have been estimated badly
_ITERATION: Final = 30  # nanoseconds of an iteration beside its steps' work
_AT_ONCE: Final = 1 << 26  # bytes of a stacked result that are taken at once even if the loop may end early
_FIRST: Final = 1 << 16  # bytes of a longer one to begin with
_KEPT: Final = 1 << 14  # bytes of a carried value up to which its buffers are kept for later calls, and results are copies
_FIRST_NUMBER: Final = np.zeros(1, np.int64)
_TRUE: Final = np.ones(1, np.bool_)  # an iteration takes place: what its body is told in every one


def _memory(shape: tuple[int, ...], dtype: Any) -> Array:
    """What iterations write to."""
    return new_array(shape, dtype)


@dataclass(slots=True)
class _Call:
    """One call, taken apart: what the iterations begin with."""

    trips: int
    arrays: list[Array]  # the body's inputs; sliced ones with the axis in front
    shapes: Shapes  # of what one iteration takes
    carried: Sequence[Any]  # as they were given


@dataclass(slots=True)
class _Stack:
    """A result that grows by a slice each iteration."""

    array: Array
    capacity: int
    backwards: bool

    def at(self, iteration: int) -> int:
        """The position of the slice an iteration writes."""
        return self.capacity - 1 - iteration if self.backwards else iteration


class _Pace:
    """How many iterations run before Python is asked whether to go on."""

    def __init__(self, nanoseconds: int) -> None:
        self.at_once = min(max(_ROUND // nanoseconds, 1), _FIRST_ROUND)

    def measure(self, elapsed: int, iterations: int) -> None:
        """Take into account how long some iterations took."""
        rate = max(elapsed, 1) // max(iterations, 1) + 1
        self.at_once = min(max(_ROUND // rate, 1), 4 * self.at_once)


class LoopBlock:
    """What a context holds for iterations in native code: the block that the driver reads, and what it was set up for."""

    def __init__(self, context: RunContext, steps: tuple[int, int], moving: Sequence[tuple[int, int]], condition_at: int) -> None:
        increments = np.zeros(max(len(moving), 1) * INCREMENT_ENTRIES, np.int64)
        increments[: len(moving) * INCREMENT_ENTRIES : INCREMENT_ENTRIES] = [slot for slot, _ in moving]
        self.rows = increments
        self.increments = increments.data
        table, faults = context.table_address, context.faults.ctypes.data
        block = np.array([*steps, table, increments.ctypes.data, len(moving), 0, 0, condition_at, faults, 0, 0, 0, 0], np.int64)
        assert len(block) == LOOP_ENTRIES
        self.block = block.data
        self.address = int(block.ctypes.data)
        self.condition = np.zeros(1, np.bool_)
        self.shapes: Shapes | None = None
        self.data_dependent: tuple[int, ...] = ()
        self.offsets: list[int] = []  # of the entries, in bytes
        self.outputs: list[tuple[tuple[int, ...], Any]] = []
        self.iteration = 1  # nanoseconds of an iteration, estimated
        self.beginning: _Beginning | None = None  # if the next call is like the last one
        self.stretches: Stretches | None = None  # if carried values change their sizes

    def use_increments(self, count: int) -> None:
        """From now on, addresses move by what the increments say."""
        self.block[LOOP_INCREMENT_COUNT], self.block[LOOP_SLOT_COUNT] = count, 0

    def use_rows(self, stretch: Stretch) -> None:
        """From now on, iterations read the rows of a stretch."""
        self.block[LOOP_INCREMENT_COUNT], self.block[LOOP_SLOT_COUNT] = 0, len(stretch.slots)
        self.block[LOOP_SLOTS] = address_of(stretch.slots)


@dataclass(slots=True)
class _Beginning:
    """How a call begins whose shapes are those of the call before: nothing but addresses of what is given changes."""

    shapes: Shapes  # of that call, the very tuple that the block was set up for
    pairs: Pairs
    table: Array  # as it is before the first iteration
    increments: Array
    entries: list[tuple[int, int, int]]  # of what is given, and of stacked results: slot, position, offset
    distances: list[tuple[int, int, int]]  # of an increment: where it stands, to which position, from which


class NativeLoop:
    """The iterations of one node, for any number of calls at once, in the contexts of its body's program.

    The inputs of that program are those of the body, then what it captures; `captures` are the positions of these among all that
    the node captures.
    """

    def __init__(self, program: Executable, signature: LoopSignature, captures: Sequence[int], label: str) -> None:
        self.program = program
        self.signature = signature
        self.captures = tuple(captures)
        self._core = program.core
        self._label = label
        image = program.core.image
        first = self._first_output = len(image.inputs)  # inputs and outputs are numbered in one series
        self._types = [(len(port.dims), port.numpy_type) for port in image.inputs]
        self._result_types = [(port.dims, port.numpy_type) for port in image.outputs]
        positions = {port.buffer: position for position, port in enumerate((*image.inputs, *image.outputs))}
        entries = [
            (slot, positions[buffer], offset) for slot, buffer, offset in image.address_slots.tolist() if buffer in positions
        ]
        self._offset_dims = [offset for _, _, offset in entries]
        self._port_positions = [position for _, position, _ in entries]
        self._port_columns = [column for column, buffer in enumerate(image.address_slots[:, 1].tolist()) if buffer in positions]
        self._entries = [(slot, position) for slot, position, _ in entries]
        self._condition_at = NO_CONDITION
        if signature.condition >= 0:
            # The entry behind the table follows the condition wherever iterations write it.
            self._condition_at = image.table_size
            self._entries.append((self._condition_at, first + signature.condition))
        self._carried = [(taken, first + given) for taken, given in signature.carried if given >= 0]
        self._sliced = [slices.position for slices in signature.sliced]
        stacked = {first + slices.position for slices in signature.stacked if slices is not None}
        self._paired = sorted({given for _, given in self._carried} - stacked)
        moving = {*stacked, *self._paired, *self._sliced, *(taken for taken, _ in self._carried)}
        self._moving = [(slot, position) for slot, position in self._entries if position in moving]
        self._scalars: Shapes = tuple((1,) * rank for rank, _ in self._types[:2])  # what a Loop's body takes first

    def run(
        self, inputs: Sequence[Any], outer: Sequence[Any], sizes: Mapping[str, int], control: RunControl
    ) -> tuple[Any, ...] | None:
        """The node's outputs, or None if the iterations cannot run like this; `outer` is what the node captures."""
        if control.on_node is not None:
            return None
        captured = [outer[position] for position in self.captures]
        call = self._loop_call(inputs, captured) if self.signature.has_counter else self._scan_call(inputs, captured)
        if call is None or call.trips <= 0:
            return None
        context = self.program.take()
        try:
            if self._begins_as_before(context, call, sizes):
                return self._run_again(context, call, control)
            data_dependent = tuple([sizes.get(name, -1) for name in self._core.data_dependent])
            if self._knows_growth(context, call.shapes, data_dependent) or not self._prepare(context, call, data_dependent):
                return self._run_growing(context, call, data_dependent, control)
            block = context.loop
            stacks = self._stacks(block, call.trips, control)
            if stacks is None:
                return None
            pairs, are_kept = {}, True
            for number in self._paired:
                shape, dtype = block.outputs[number - self._first_output]
                pairs[number] = (_memory(shape, dtype), _memory(shape, dtype))
                are_kept = are_kept and pairs[number][0].nbytes <= _KEPT
            self._place(context, call, stacks, pairs)
            if are_kept and all(stack.capacity == call.trips for stack in stacks.values()):
                self._keep_beginning(context, pairs)
            done = self._go(context, call.trips, stacks, control)
            return self._results(call, done, stacks, pairs, are_kept=are_kept)
        finally:
            self.program.give(context)

    # What is given

    def _loop_call(self, inputs: Sequence[Any], captured: Sequence[Any]) -> _Call | None:
        limit, condition = (*inputs[:2], None, None)[:2]
        if limit is not None and (type(limit) is not np.ndarray or limit.size != 1):
            return None
        if condition is not None and (type(condition) is not np.ndarray or condition.size != 1 or not condition.item()):
            return None
        arrays = self._checked([_FIRST_NUMBER, _TRUE, *inputs[2:], *captured])
        if arrays is None:
            return None
        shapes = (*self._scalars, *[array.shape for array in arrays[2:]])
        return _Call(_ENDLESS if limit is None else int(limit.item()), arrays, shapes, inputs[2:])

    def _scan_call(self, inputs: Sequence[Any], captured: Sequence[Any]) -> _Call | None:
        count = len(self.signature.carried)
        leading: list[Any] = []
        for array, slices in zip(inputs[count:], self.signature.sliced):
            if not isinstance(array, np.ndarray) or not -array.ndim <= slices.axis < array.ndim:
                return None
            leading.append(np.moveaxis(array, slices.axis, 0) if slices.axis else array)
        trips = {len(array) for array in leading}
        arrays = self._checked([*inputs[:count], *leading, *captured])
        if arrays is None or len(trips) != 1:
            return None
        shapes = tuple(array.shape[1:] if number in self._sliced else array.shape for number, array in enumerate(arrays))
        return _Call(trips.pop(), arrays, shapes, inputs[:count])

    def _checked(self, given: Sequence[Any]) -> list[Array] | None:
        """The body's inputs and what it captures as plain arrays, if they are of the types the body was compiled for."""
        arrays = []
        for array, (_, dtype) in zip(given, self._types):
            if not isinstance(array, np.ndarray) or (array.dtype is not dtype and array.dtype != dtype):
                return None
            arrays.append(array if array.flags.c_contiguous else np.asarray(array, order="C"))
        return arrays

    # What is set up

    def _prepare(self, context: RunContext, call: _Call, data_dependent: tuple[int, ...]) -> bool:
        """Set a context up for these shapes; False if they do not stay what they are from one iteration to the next."""
        core, block = self._core, context.loop
        if block is not None and block.shapes == call.shapes and block.data_dependent == data_dependent:
            return True
        if -1 in data_dependent:
            return False
        try:
            dims = core.image.sizes(*core.symbols(call.shapes, data_dependent))
            outputs = [(tuple([dims[number] for number in numbers]), dtype) for numbers, dtype in self._result_types]
            if not self._is_stable(call.shapes, outputs):
                return False
            block = self._block(context)
            core.fit(context, call.shapes, data_dependent)
        except SizeConflict:
            return False
        block.offsets = context.dims[self._offset_dims].tolist()
        if self._condition_at != NO_CONDITION:
            block.offsets.append(0)
        block.outputs = outputs
        block.iteration = core.work(context) + _ITERATION
        block.shapes, block.data_dependent = call.shapes, data_dependent
        return True

    def _block(self, context: RunContext) -> LoopBlock:
        """The context's block, which is set up for nothing: if setting it up fails, nothing may be taken for granted."""
        if context.loop is None:
            steps = self._core.steps_address, self._core.step_count
            context.loop = LoopBlock(context, steps, self._moving, self._condition_at)
        block: LoopBlock = context.loop
        block.shapes = context.shapes = context.given = None
        return block

    def _is_stable(self, shapes: Shapes, outputs: Sequence[tuple[tuple[int, ...], Any]]) -> bool:
        """Whether an iteration gives carried values the shapes it takes them in, and a condition that is one truth value."""
        return self._has_condition([shape for shape, _ in outputs]) and all(
            outputs[given - len(shapes)] == (shapes[taken], self._types[taken][1]) for taken, given in self._carried
        )

    def _has_condition(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether the condition among an iteration's results, if there is one, is a single truth value."""
        position = self.signature.condition
        return position < 0 or (prod(shapes[position]) == 1 and self._result_types[position][1] == np.bool_)

    def _stacks(self, block: LoopBlock, trips: int, control: RunControl) -> dict[int, _Stack] | None:
        """Memory for the stacked results; None if one has no such axis."""
        stacks: dict[int, _Stack] = {}
        for slices in self.signature.stacked:
            if slices is None:
                continue
            number = self._first_output + slices.position
            shape, dtype = block.outputs[slices.position]
            if not -len(shape) - 1 <= slices.axis <= len(shape):
                return None
            if number in stacks:
                continue
            size = max(prod(shape) * dtype.itemsize, 1)
            whole = self.signature.condition < 0 and trips < _ENDLESS
            capacity = trips if whole or trips * size <= _AT_ONCE else min(trips, max(_FIRST // size, 1))
            made = control.new_array((id(self), number), (capacity, *shape), dtype)
            stacks[number] = _Stack(made, capacity, slices.backwards)
        return stacks

    def _bases(self, block: LoopBlock, call: _Call) -> list[int]:
        """The addresses of an iteration's inputs, and those of results that nobody asks for."""
        bases = [*map(address_of, call.arrays), *[address_of(block.condition)] * len(self._result_types)]
        if self.signature.has_counter:
            bases[0] = block.address + 8 * LOOP_ITERATION
        return bases

    def _place(self, context: RunContext, call: _Call, stacks: dict[int, _Stack], pairs: Pairs) -> None:
        """Where the first iteration finds everything, and how addresses move from there."""
        block: LoopBlock = context.loop
        block.use_increments(len(self._moving))
        bases = self._bases(block, call)
        increments: dict[int, tuple[int, int, int]] = {}
        for position, slices in zip(self._sliced, self.signature.sliced):
            step = prod(call.shapes[position]) * call.arrays[position].itemsize
            if slices.backwards:
                bases[position] += step * (call.trips - 1)
                step = -step
            increments[position] = step, step, step
        for number, (first, second) in pairs.items():
            bases[number] = address_of(first)
            distance = address_of(second) - bases[number]
            increments[number] = distance, -distance, distance
        for number, stack in stacks.items():
            step = prod(stack.array.shape[1:]) * stack.array.itemsize
            bases[number] = address_of(stack.array) + step * stack.at(0)
            step = -step if stack.backwards else step
            increments[number] = step, step, step
        for taken, number in self._carried:
            increments[taken] = bases[number] - bases[taken], *increments[number][:2]
        table, rows = context.table_view, block.increments
        for (slot, position), offset in zip(self._entries, block.offsets):
            table[slot] = bases[position] + offset
        at = 1
        for _, position in self._moving:
            rows[at], rows[at + 1], rows[at + 2] = increments[position]
            at += INCREMENT_ENTRIES

    # What a call like the one before begins with

    def _keep_beginning(self, context: RunContext, pairs: Pairs) -> None:
        """Keep what was set up, for calls of the same shapes."""
        block: LoopBlock = context.loop
        if any(slices.backwards for slices in (*self.signature.sliced, *self.signature.stacked) if slices is not None):
            return  # where these begin depends on the number of iterations
        entries = [(slot, position, offset) for (slot, position), offset in zip(self._entries, block.offsets)]
        fixed = {0} if self.signature.has_counter else set()
        handed_on = dict(self._carried)
        block.beginning = _Beginning(
            block.shapes or (),
            pairs,
            context.table.copy(),
            block.rows.copy(),
            [each for each in entries if each[1] not in pairs and each[1] not in fixed],
            [
                (1 + row * INCREMENT_ENTRIES, handed_on[position], position)
                for row, (_, position) in enumerate(self._moving)
                if position in handed_on
            ],
        )

    def _begins_as_before(self, context: RunContext, call: _Call, sizes: Mapping[str, int]) -> bool:
        block: LoopBlock | None = context.loop
        if block is None or block.beginning is None or block.beginning.shapes is not block.shapes:
            return False
        if call.shapes != block.shapes:
            return False
        names = self._core.data_dependent
        return not names or block.data_dependent == tuple([sizes.get(name, -1) for name in names])

    def _run_again(self, context: RunContext, call: _Call, control: RunControl) -> tuple[Any, ...] | None:
        """The node's outputs, for a call that begins as the one before did."""
        block: LoopBlock = context.loop
        beginning = block.beginning
        assert beginning is not None
        pairs = beginning.pairs
        stacks = self._stacks(block, call.trips, control)
        if stacks is None:
            return None
        block.use_increments(len(self._moving))
        bases = self._bases(block, call)
        for number, (buffer, _) in pairs.items():
            bases[number] = address_of(buffer)
        for number, stack in stacks.items():
            bases[number] = address_of(stack.array)
        context.table[:], block.rows[:] = beginning.table, beginning.increments
        table, rows = context.table_view, block.increments
        for slot, position, offset in beginning.entries:
            table[slot] = bases[position] + offset
        for at, given, taken in beginning.distances:
            rows[at] = bases[given] - bases[taken]
        done = self._go(context, call.trips, stacks, control)
        return self._results(call, done, stacks, pairs, are_kept=True)

    # The iterations

    def _go(self, context: RunContext, trips: int, stacks: dict[int, _Stack], control: RunControl) -> int:
        """Run iterations until the loop is over; how many there were."""
        loop: LoopBlock = context.loop
        growing = {number: stack for number, stack in stacks.items() if stack.capacity < trips}
        pace = _Pace(loop.iteration)
        done = 0
        loop.block[LOOP_ITERATION] = 0
        if trips <= pace.at_once and not growing:
            return self._round(context, 0, trips, None, control)[0]
        while True:
            limit = min([done + pace.at_once, trips, *(stack.capacity for stack in growing.values())])
            done, has_ended = self._round(context, done, limit, pace, control)
            if has_ended or done >= trips:
                return done
            for number, stack in growing.items():
                if stack.capacity <= done:
                    self._grow(context, number, stack, min(2 * stack.capacity, trips))

    def _round(self, context: RunContext, done: int, limit: int, pace: _Pace | None, control: RunControl) -> tuple[int, bool]:
        """Run iterations up to a limit; how many were done then, and whether the condition has ended the loop."""
        block = context.loop.block
        if control.terminate is not never:
            control.stop_if_asked(f"iteration {done} of {self._label}")
        block[LOOP_LIMIT] = limit
        block[LOOP_STATE] = 0
        start = 0 if pace is None else time.perf_counter_ns()
        self._core.pool.run_loop(context.loop.address, context.alone)
        after, state = block[LOOP_ITERATION], block[LOOP_STATE]
        if state == FAULTY:
            self._raise_fault(context, after)
        if pace is not None:
            pace.measure(time.perf_counter_ns() - start, after - done)
        return after, state == ENDED

    # Carried values that change their sizes

    def _knows_growth(self, context: RunContext, shapes: Shapes, data_dependent: tuple[int, ...]) -> bool:
        block: LoopBlock | None = context.loop
        return block is not None and block.stretches is not None and block.stretches.knows(shapes, data_dependent)

    def _run_growing(
        self, context: RunContext, call: _Call, data_dependent: tuple[int, ...], control: RunControl
    ) -> tuple[Any, ...] | None:
        """The node's outputs where sizes change from one iteration to the next; None if they cannot be computed like this."""
        image = self._core.image
        if not self.signature.has_counter or -1 in data_dependent or len(image.late) or len(image.state):
            return None
        block = self._block(context)
        if block.stretches is None:
            carried = [(taken, number - self._first_output) for taken, number in self._carried]
            block.stretches = Stretches(self._core, carried, self._result_types)
        pace = _Pace(_ITERATION)
        stacks: dict[int, _Stack] = {}
        arrays, shapes, done = list(call.arrays), call.shapes, 0
        block.block[LOOP_ITERATION] = 0
        while True:
            stretch = block.stretches.beginning(context, shapes, data_dependent, self._goes_on, done, call.trips)
            if stretch is None or not self._make_room(stacks, stretch, done, call.trips):
                return None
            buffers = {}
            for number in self._paired:
                at = number - self._first_output
                elements = max([prod(given[at]) for given in stretch.given])
                buffers[number] = _memory((2, elements), self._result_types[at][1])
            ports, condition = self._addresses(block, stretch, arrays, stacks, buffers, done)
            write_rows(self._core, context, stretch, self._port_columns, ports, condition)
            block.use_rows(stretch)
            begin, end, has_ended = done, min(done + len(stretch), call.trips), False
            while done < end and not has_ended:
                row = stretch.rows[done - begin]
                context.table[stretch.slots] = row
                block.block[LOOP_ROW] = address_of(row) + row.nbytes
                done, has_ended = self._round(context, done, min(done + pace.at_once, end), pace, control)
            made = stretch.given[done - begin - 1]
            for taken, number in self._carried:
                shape = made[number - self._first_output]
                if number in stacks:
                    arrays[taken] = stacks[number].array[done - 1, ...]
                else:
                    arrays[taken] = buffers[number][(done - begin - 1) % 2, : prod(shape)].reshape(shape)
            if has_ended or done >= call.trips:
                break
            shapes = stretch.taken[done - begin]
        results: list[Any] = []
        for (taken, given), initial in zip(self.signature.carried, call.carried):
            results.append(initial if given < 0 else arrays[taken].copy())
        for slices in self.signature.stacked:
            results.append(None if slices is None else stacks[self._first_output + slices.position].array[:done])
        return tuple(results)

    def _goes_on(self, outputs: Sequence[tuple[int, ...]]) -> bool:
        """Whether an iteration's results have ranks and types that the next one takes."""
        return self._has_condition(outputs) and all(
            (len(outputs[number - self._first_output]), self._result_types[number - self._first_output][1]) == self._types[taken]
            for taken, number in self._carried
        )

    def _make_room(self, stacks: dict[int, _Stack], stretch: Stretch, done: int, trips: int) -> bool:
        """Memory for the slices that a stretch writes; False if these do not keep their shape."""
        for slices in self.signature.stacked:
            if slices is None:
                continue
            number, end = self._first_output + slices.position, min(done + len(stretch), trips)
            shape, dtype = stretch.given[0][slices.position], self._result_types[slices.position][1]
            stack = stacks.get(number)
            if any(given[slices.position] != shape for given in stretch.given):
                return False
            if stack is not None and stack.array.shape[1:] != shape:
                return False
            if stack is None or stack.capacity < end:
                capacity = max(end, min(2 * end, trips))
                grown = _memory((capacity, *shape), dtype)
                if stack is not None:
                    grown[:done] = stack.array[:done]
                stacks[number] = _Stack(grown, capacity, backwards=False)
        return True

    def _addresses(
        self,
        block: LoopBlock,
        stretch: Stretch,
        arrays: Sequence[Array],
        stacks: dict[int, _Stack],
        buffers: dict[int, Array],
        done: int,
    ) -> tuple[Array, Array]:
        """Where the iterations of a stretch find what is given, a row for each buffer, and where they write the condition."""
        count = len(stretch)
        numbers = np.arange(count)
        bases = [*map(address_of, arrays), *[address_of(block.condition)] * len(self._result_types)]
        bases[0] = block.address + 8 * LOOP_ITERATION
        where = np.repeat(np.array(bases, np.int64)[:, None], count, axis=1)
        for number, buffer in buffers.items():
            where[number] += address_of(buffer) - bases[number] + numbers % 2 * buffer.strides[0]
        for number, stack in stacks.items():
            where[number] += address_of(stack.array) - bases[number] + (done + numbers) * stack.array.strides[0]
        for taken, number in self._carried:
            where[taken, 1:] = where[number, :-1]
        condition = self.signature.condition
        written = where[self._first_output + condition] if condition >= 0 else np.zeros(count, np.int64)
        return where[self._port_positions], written

    def _raise_fault(self, context: RunMemory, iteration: int) -> None:
        try:
            self._core.raise_fault(context)
        except errors.InvalidArgument as fault:
            raise errors.BadNodeInput(f"{self._label}: iteration {iteration}: {fault.message}") from None

    def _grow(self, context: RunContext, number: int, stack: _Stack, capacity: int) -> None:
        """Give a stacked result more room, and move all addresses in it."""
        grown = _memory((capacity, *stack.array.shape[1:]), stack.array.dtype)
        grown[: stack.capacity] = stack.array
        distance = address_of(grown) - address_of(stack.array)
        inside = [number, *(taken for taken, given in self._carried if given == number)]
        for slot, position in self._entries:
            if position in inside:
                context.table_view[slot] += distance
        stack.array, stack.capacity = grown, capacity

    def _results(self, call: _Call, done: int, stacks: dict[int, _Stack], pairs: Pairs, *, are_kept: bool) -> tuple[Any, ...]:
        """The node's outputs; those that lie in buffers that are kept are copied."""
        results: list[Any] = []
        for (_, given), initial in zip(self.signature.carried, call.carried):
            if given < 0:
                results.append(initial)
                continue
            number = self._first_output + given
            if number in stacks:
                stack = stacks[number]
                results.append(stack.array[stack.at(done - 1), ...].copy())
            else:
                last = pairs[number][(done - 1) % 2]
                results.append(last.copy() if are_kept else last)
        for stack in stacks.values():
            if done < stack.capacity:
                stack.array.resize((done, *stack.array.shape[1:]), refcheck=False)
        for slices in self.signature.stacked:
            results.append(None if slices is None else self._stacked_result(stacks[self._first_output + slices.position], slices))
        return tuple(results)

    def _stacked_result(self, stack: _Stack, slices: SlicedPort) -> Array:
        """A stacked result with its slices along the axis and in the direction that was asked for."""
        array = stack.array[::-1] if slices.backwards != stack.backwards else stack.array
        return np.moveaxis(array, 0, slices.axis) if slices.axis else array  # NumPy takes 3 microseconds to move nothing

    def shrink(self) -> None:
        """Give the memory kept for later calls back."""
        self.program.shrink()
