"""Runs a Loop or Scan whose body is all native: the turns follow each other in native code (see `turns` in `codegen.driver`).

No turn allocates anything. A carried value has two buffers, written in turn; a stacked result is one array that each turn writes
its slice of, and a value that is both is read from the slice before. A result whose length nobody knows grows by doubling.

Python is asked between rounds of about ten milliseconds, so that a run can be stopped. What this way cannot do (a carried value
that changes its shape, a loop without a turn) is left to the operator's NumPy definition, which runs the body turn by turn.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx import errors
from sardonyx.codegen.driver import (
    ENDED,
    FAULTY,
    LOOP_ENTRIES,
    LOOP_ITERATION,
    LOOP_LIMIT,
    LOOP_STATE,
    MOVE_ENTRIES,
    NO_CONDITION,
)
from sardonyx.ir.graph import Value
from sardonyx.plan.turns import Slices, Turns
from sardonyx.program.image import numpy_type
from sardonyx.runtime.executor import RunControl
from sardonyx.runtime.native_core import NativeCore, RunMemory, SizeConflict, address_of, new_array

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]
Pairs = dict[int, tuple[Array, Array]]

_ENDLESS: Final = 1 << 62
_ROUND: Final = 10_000_000  # nanoseconds in native code until Python is asked
_FIRST_ROUND: Final = 1000  # turns at most before their time is measured: it may have been estimated badly
_TURN: Final = 30  # nanoseconds of a turn beside its steps' work
_AT_ONCE: Final = 1 << 26  # bytes of a stacked result that are taken at once even if the loop may end early
_FIRST: Final = 1 << 16  # bytes of a longer one to begin with
_MOST_PREPARED: Final = 8
_FIRST_NUMBER: Final = np.zeros(1, np.int64)
_TRUE: Final = np.ones(1, np.bool_)  # a turn takes place: what its body is told in every one


def _memory(shape: tuple[int, ...], dtype: Any) -> Array:
    """What turns write to."""
    return new_array(shape, dtype)


@dataclass(slots=True)
class _Call:
    """One call, taken apart: what the turns begin with."""

    trips: int
    arrays: list[Array]  # the body's inputs; sliced ones with the axis in front
    shapes: Shapes  # of what one turn takes
    carried: Sequence[Any]  # as they were given


@dataclass(slots=True)
class _Stack:
    """A result that grows by a slice each turn."""

    array: Array
    capacity: int
    backwards: bool

    def at(self, turn: int) -> int:
        """The place of the slice a turn writes."""
        return self.capacity - 1 - turn if self.backwards else turn


class _Prepared:
    """A context and a loop block; for one call at a time."""

    def __init__(self, core: NativeCore, moving: Sequence[tuple[int, int]], condition_at: int) -> None:
        self.context = core.new_context(1)
        self.table = self.context.table.data
        moves = np.zeros(max(len(moving), 1) * MOVE_ENTRIES, np.int64)
        moves[: len(moving) * MOVE_ENTRIES : MOVE_ENTRIES] = [slot for slot, _ in moving]
        self.moves = moves.data
        steps, count = core.steps_address, core.step_count
        table, faults = self.context.table.ctypes.data, self.context.faults.ctypes.data
        block = np.array([steps, count, table, moves.ctypes.data, len(moving), 0, 0, condition_at, faults, 0], np.int64)
        assert len(block) == LOOP_ENTRIES
        self.block = block.data
        self.address = int(block.ctypes.data)
        self.condition = np.zeros(1, np.bool_)
        self.shapes: Shapes | None = None
        self.told: tuple[int, ...] = ()
        self.offsets: list[int] = []  # of the entries, in bytes
        self.outputs: list[tuple[tuple[int, ...], Any]] = []
        self.turn = 1  # nanoseconds of a turn, estimated


class NativeLoop:
    """The turns of one node, for any number of calls at once."""

    def __init__(self, core: NativeCore, turns: Turns, captured: Sequence[Value], label: str) -> None:
        self._core = core
        self._turns = turns
        self._captured = list(captured)
        self._label = label
        self._inputs = [*turns.body.inputs, *captured]
        self._made = turns.made
        image = core.image
        self._types = [(len(port.dims), numpy_type(port.dtype)) for port in image.inputs]
        self._result_types = [(port.dims, numpy_type(port.dtype)) for port in image.outputs]
        numbers = {value: len(self._inputs) + number for number, value in enumerate(self._made)}
        places = {port.buffer: position for position, port in enumerate((*image.inputs, *image.outputs))}
        entries = [(slot, places[buffer], offset) for slot, buffer, offset in image.address_slots.tolist() if buffer in places]
        self._offset_dims = [offset for _, _, offset in entries]
        self._entries = [(slot, position) for slot, position, _ in entries]
        self._condition_at = NO_CONDITION
        if turns.condition is not None:
            # An entry behind the table follows the condition wherever turns write it.
            self._condition_at = image.table_size
            self._entries.append((self._condition_at, numbers[turns.condition]))
        self._number = numbers
        positions = {value: position for position, value in enumerate(turns.body.inputs)}
        self._carried = [(positions[c.taken], numbers[c.given]) for c in turns.carried if not c.is_fixed]
        self._sliced = [positions[slices.value] for slices in turns.sliced]
        stacked = {numbers[slices.value] for slices in turns.stacked if slices is not None}
        self._paired = sorted({given for _, given in self._carried} - stacked)
        moving = {*stacked, *self._paired, *self._sliced, *(taken for taken, _ in self._carried)}
        self._moving = [(slot, position) for slot, position in self._entries if position in moving]
        self._scalars: Shapes = tuple((1,) * rank for rank, _ in self._types[:2])  # what a Loop's body takes first
        self._free: list[_Prepared] = []

    def run(
        self, inputs: Sequence[Any], outer: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl
    ) -> tuple[Any, ...] | None:
        """The node's outputs, or None if the turns cannot run like this; `outer` and `sizes` are what is known around it."""
        if control.on_node is not None:
            return None
        call = self._loop_call(inputs, outer) if self._turns.counter is not None else self._scan_call(inputs, outer)
        if call is None or call.trips <= 0:
            return None
        prepared = self._prepare(call, sizes)
        if prepared is None:
            return None
        stacks = self._stacks(prepared, call.trips)
        if stacks is None:
            return None
        pairs = {}
        for number in self._paired:
            shape, dtype = prepared.outputs[number - len(self._inputs)]
            pairs[number] = (_memory(shape, dtype), _memory(shape, dtype))
        self._place(prepared, call, stacks, pairs)
        done = self._go(prepared, call.trips, stacks, control)
        results = self._results(call, done, stacks, pairs)
        if len(self._free) < _MOST_PREPARED:
            self._free.append(prepared)
        return results

    # What is given

    def _loop_call(self, inputs: Sequence[Any], outer: Mapping[Value, Any]) -> _Call | None:
        limit, condition = (*inputs[:2], None, None)[:2]
        if (limit is not None and np.size(limit) != 1) or (condition is not None and np.size(condition) != 1):
            return None
        if condition is not None and not condition.item():
            return None
        arrays = self._checked([_FIRST_NUMBER, _TRUE, *inputs[2:]], outer)
        if arrays is None:
            return None
        shapes = (*self._scalars, *[array.shape for array in arrays[2:]])
        return _Call(_ENDLESS if limit is None else int(limit.item()), arrays, shapes, inputs[2:])

    def _scan_call(self, inputs: Sequence[Any], outer: Mapping[Value, Any]) -> _Call | None:
        count = len(self._turns.carried)
        leading: list[Any] = []
        for array, slices in zip(inputs[count:], self._turns.sliced):
            if not isinstance(array, np.ndarray) or not -array.ndim <= slices.axis < array.ndim:
                return None
            leading.append(np.moveaxis(array, slices.axis, 0))
        trips = {len(array) for array in leading}
        arrays = self._checked([*inputs[:count], *leading], outer)
        if arrays is None or len(trips) != 1:
            return None
        shapes = tuple(array.shape[1:] if number in self._sliced else array.shape for number, array in enumerate(arrays))
        return _Call(trips.pop(), arrays, shapes, inputs[:count])

    def _checked(self, given: Sequence[Any], outer: Mapping[Value, Any]) -> list[Array] | None:
        """The body's inputs and what it captures as plain arrays, if they are of the types the body was compiled for."""
        arrays = []
        for array, (_, dtype) in zip([*given, *[outer[value] for value in self._captured]], self._types):
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                return None
            arrays.append(np.asarray(array, order="C"))
        return arrays

    # What is set up

    def _prepare(self, call: _Call, sizes: Mapping[str, int]) -> _Prepared | None:
        """A context for these shapes; None if they do not stay what they are from turn to turn."""
        try:
            prepared = self._free.pop()
        except IndexError:
            prepared = None
        core = self._core
        told = tuple([sizes.get(name, -1) for name in core.told])
        if prepared is not None and prepared.shapes == call.shapes and prepared.told == told:
            return prepared
        if -1 in told:
            return None
        try:
            dims = core.image.sizes(*core.symbols(call.shapes, told))
            outputs = [(tuple([dims[number] for number in numbers]), dtype) for numbers, dtype in self._result_types]
            if not self._is_stable(call.shapes, outputs):
                return None
            prepared = prepared or _Prepared(core, self._moving, self._condition_at)
            prepared.shapes = None  # if setting up fails, nothing may be taken for granted
            core.fit(prepared.context, call.shapes, told)
        except SizeConflict:
            return None
        prepared.offsets = prepared.context.dims[self._offset_dims].tolist()
        if self._turns.condition is not None:
            prepared.offsets.append(0)
        prepared.outputs = outputs
        prepared.turn = core.work(prepared.context) + _TURN
        prepared.shapes, prepared.told = call.shapes, told
        return prepared

    def _is_stable(self, shapes: Shapes, outputs: Sequence[tuple[tuple[int, ...], Any]]) -> bool:
        """Whether a turn gives carried values the shapes it takes them in, and a condition that is one truth value."""
        condition = self._turns.condition
        if condition is not None:
            shape, dtype = outputs[self._number[condition] - len(shapes)]
            if prod(shape) != 1 or dtype != np.bool_:
                return False
        return all(outputs[given - len(shapes)] == (shapes[taken], self._types[taken][1]) for taken, given in self._carried)

    def _stacks(self, prepared: _Prepared, trips: int) -> dict[int, _Stack] | None:
        """Memory for the stacked results; None if one has no such axis."""
        stacks: dict[int, _Stack] = {}
        for slices in self._turns.stacked:
            if slices is None:
                continue
            number = self._number[slices.value]
            shape, dtype = prepared.outputs[number - len(self._inputs)]
            if not -len(shape) - 1 <= slices.axis <= len(shape):
                return None
            if number in stacks:
                continue
            size = max(prod(shape) * dtype.itemsize, 1)
            whole = self._turns.condition is None and trips < _ENDLESS
            capacity = trips if whole or trips * size <= _AT_ONCE else min(trips, max(_FIRST // size, 1))
            stacks[number] = _Stack(_memory((capacity, *shape), dtype), capacity, slices.backwards)
        return stacks

    def _place(self, prepared: _Prepared, call: _Call, stacks: dict[int, _Stack], pairs: Pairs) -> None:
        """Where the first turn finds everything, and how addresses move from there."""
        bases = [*map(address_of, call.arrays), *[address_of(prepared.condition)] * len(self._made)]
        moves: dict[int, tuple[int, int, int]] = {}
        if self._turns.counter is not None:
            bases[0] = prepared.address + 8 * LOOP_ITERATION
        for position, slices in zip(self._sliced, self._turns.sliced):
            step = prod(call.shapes[position]) * call.arrays[position].itemsize
            if slices.backwards:
                bases[position] += step * (call.trips - 1)
                step = -step
            moves[position] = step, step, step
        for number, (first, second) in pairs.items():
            bases[number] = address_of(first)
            distance = address_of(second) - bases[number]
            moves[number] = distance, -distance, distance
        for number, stack in stacks.items():
            step = prod(stack.array.shape[1:]) * stack.array.itemsize
            bases[number] = address_of(stack.array) + step * stack.at(0)
            step = -step if stack.backwards else step
            moves[number] = step, step, step
        for taken, number in self._carried:
            moves[taken] = bases[number] - bases[taken], *moves[number][:2]
        table, rows = prepared.table, prepared.moves
        for (slot, position), offset in zip(self._entries, prepared.offsets):
            table[slot] = bases[position] + offset
        at = 1
        for _, position in self._moving:
            rows[at], rows[at + 1], rows[at + 2] = moves[position]
            at += MOVE_ENTRIES

    # The turns

    def _go(self, prepared: _Prepared, trips: int, stacks: dict[int, _Stack], control: RunControl) -> int:
        """Run turns until the loop is over; how many there were."""
        block, context = prepared.block, prepared.context
        growing = {number: stack for number, stack in stacks.items() if stack.capacity < trips}
        at_once = min(max(_ROUND // prepared.turn, 1), _FIRST_ROUND)
        done = 0
        block[LOOP_ITERATION] = 0
        while True:
            control.stop_if_asked(f"iteration {done} of {self._label}")
            limit = min([done + at_once, trips, *(stack.capacity for stack in growing.values())])
            block[LOOP_LIMIT] = limit
            block[LOOP_STATE] = 0
            start = time.perf_counter_ns()
            self._core.pool.run_turns(prepared.address, context.alone)
            elapsed = time.perf_counter_ns() - start
            before, done, state = done, block[LOOP_ITERATION], block[LOOP_STATE]
            if state == FAULTY:
                self._raise_fault(context, done)
            if state == ENDED or done >= trips:
                return done
            for number, stack in growing.items():
                if stack.capacity <= done:
                    self._grow(prepared, number, stack, min(2 * stack.capacity, trips))
            rate = max(elapsed, 1) // max(done - before, 1) + 1
            at_once = min(max(_ROUND // rate, 1), 4 * at_once)

    def _raise_fault(self, context: RunMemory, turn: int) -> None:
        try:
            self._core.raise_fault(context)
        except errors.InvalidArgument as fault:
            raise errors.BadNodeInput(f"{self._label}: iteration {turn}: {fault.message}") from None

    def _grow(self, prepared: _Prepared, number: int, stack: _Stack, capacity: int) -> None:
        """Give a stacked result more room, and move all addresses in it."""
        grown = _memory((capacity, *stack.array.shape[1:]), stack.array.dtype)
        grown[: stack.capacity] = stack.array
        distance = address_of(grown) - address_of(stack.array)
        inside = [number, *(taken for taken, given in self._carried if given == number)]
        for slot, position in self._entries:
            if position in inside:
                prepared.table[slot] += distance
        stack.array, stack.capacity = grown, capacity

    def _results(self, call: _Call, done: int, stacks: dict[int, _Stack], pairs: Pairs) -> tuple[Any, ...]:
        results: list[Any] = []
        for carried, initial in zip(self._turns.carried, call.carried):
            if carried.is_fixed:
                results.append(initial)
                continue
            number = self._number[carried.given]
            if number in stacks:
                stack = stacks[number]
                results.append(stack.array[stack.at(done - 1), ...].copy())
            else:
                results.append(pairs[number][(done - 1) % 2])
        for stack in stacks.values():
            if done < stack.capacity:
                stack.array.resize((done, *stack.array.shape[1:]), refcheck=False)
        for slices in self._turns.stacked:
            results.append(None if slices is None else self._turned(stacks[self._number[slices.value]], slices))
        return tuple(results)

    def _turned(self, stack: _Stack, slices: Slices) -> Array:
        """A stacked result with its slices along the axis and in the direction that was asked for."""
        array = stack.array[::-1] if slices.backwards != stack.backwards else stack.array
        return np.moveaxis(array, 0, slices.axis)

    def shrink(self) -> None:
        """Give the memory kept for later calls back."""
        self._free = []
