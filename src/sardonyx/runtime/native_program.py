"""Runs a native plan: one call into native code for every segment between host steps.

A run takes a context (arena and table) out of the program's stock and puts it back, so that several threads can run at once. A
context remembers the sizes it was set up for; a run with the same sizes only fills in the addresses of inputs and outputs.

Sizes that only a host step can tell (how many elements NonZero found) are bound when its result is there; values whose sizes
become known together then get an arena of their own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from sardonyx import errors
from sardonyx.ir.dims import Dim, Expr, evaluate, symbols_of
from sardonyx.ir.graph import Value
from sardonyx.lower.steps import FAULT_ENTRIES, Address, HostNodeStep, View
from sardonyx.plan.native import PARALLEL_FROM, NativePlan, NativeSegment, size_function
from sardonyx.runtime.arena import Arena, ArenaLayout
from sardonyx.runtime.executor import NodeTiming, RunControl
from sardonyx.runtime.locks import ForkSafeLock
from sardonyx.runtime.pool import Pool

Array = np.ndarray[Any, Any]

_MOST_CONTEXTS = 8  # kept for later runs; more callers than that at once make theirs anew
_RELEASED_AT_ONCE = 16 << 20  # bytes of constants
_BARRIER = 1
_STEP_BYTES = 32
_UNKNOWN = 0  # stands for a size that a host step will tell; every entry computed from it is computed again then


class HostCall(Protocol):
    """A node that Python computes, from its inputs, all values around it and the sizes of the symbols."""

    def __call__(
        self, inputs: Sequence[Any], values: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]: ...

    def shrink(self) -> None:
        """Give memory kept for later runs back."""


class SizeConflict(Exception):
    """Actual sizes contradict what the kernels were made for: one name fed with two sizes, or a shape rule that was wrong."""


@dataclass(eq=False)
class Context:
    """Memory of one run at a time."""

    table: Array
    known: tuple[int, ...] | None = None  # the symbols' values the table was filled for
    arena: Arena = field(default_factory=Arena)
    late: list[Arena] = field(default_factory=list)  # for values whose sizes host steps tell, in the order they do
    late_used: int = 0  # how many of those belong to the run under way
    bases: Array = field(default_factory=lambda: np.empty(0, np.int64))
    dims: Array = field(default_factory=lambda: np.empty(0, np.int64))
    alone: bool = True  # the whole program is too small to gain from a second worker
    faults: Array = field(default_factory=lambda: np.zeros(FAULT_ENTRIES, np.int64))  # where kernels report bad data


class NativeProgram:
    """A compiled graph: inputs and outputs are arrays in the order of the plan's."""

    def __init__(
        self,
        plan: NativePlan,
        addresses: Sequence[int],
        pool: Pool,
        host_calls: Mapping[HostNodeStep, HostCall],
        sizes: Callable[..., tuple[int, ...]] | None = None,
    ) -> None:
        self.plan = plan
        self.pool = pool
        self._host_calls = host_calls
        self._sizes = sizes or size_function(plan.dims, plan.symbols)
        records = [(address, arguments, units, _BARRIER) for address, (arguments, units) in zip(addresses, plan.step_slots)]
        self._steps = np.array(records, np.int64).reshape(-1)
        self._steps_address = self._steps.ctypes.data
        self._dim_slots = np.array([slot for slot, _ in plan.dim_slots], np.int64)
        self._dim_numbers = np.array([dim for _, dim in plan.dim_slots], np.int64)
        self._work_slots = np.array([slot for slot, _ in plan.work_slots], np.int64)
        self._work_numbers = np.array([dim for _, dim in plan.work_slots], np.int64)
        addressed = np.array([(a.slot, a.buffer, a.offset) for a in plan.address_slots], np.int64).reshape(-1, 3)
        self._address_slots, self._address_buffers, self._address_offsets = (np.ascontiguousarray(c) for c in addressed.T)
        numbers = {id(buffer): number for number, buffer in enumerate(plan.buffers)}
        self._number = numbers
        self._constants: dict[int, Array] | None = None
        self._by_value = {buffer.value: number for number, buffer in enumerate(plan.buffers) if buffer.value is not None}
        self._by_value.update(
            {view.buffer.value: numbers[id(view.buffer)] for view in plan.outputs if view.buffer.value is not None}
        )
        self._input_numbers = [numbers[id(view.buffer)] for view in plan.inputs]
        self._free: list[Context] = []
        self._lock = ForkSafeLock()  # while constants are loaded
        # Symbols that inputs bind; all others come from host steps.
        bound = {str(dim) for view in plan.inputs for dim in view.shape if isinstance(dim, Expr) and dim.is_symbol}
        self._late_symbols = frozenset(plan.symbols) - bound
        self._needs = [self._symbols_of(segment) for segment in plan.segments]
        in_arena = {number: symbols_of(buffer.size) for number, buffer in enumerate(plan.buffers) if buffer.kind == "arena"}
        self._late_buffers = {number: needed for number, needed in in_arena.items() if needed & self._late_symbols}
        at_once = [number for number in in_arena if number not in self._late_buffers]
        self._layout = ArenaLayout(plan, at_once, self._sizes)
        self._late_layouts: dict[tuple[int, ...], ArenaLayout] = {}
        self._fault_buffers = np.array([n for n, buffer in enumerate(plan.buffers) if buffer.kind == "fault"], np.int64)
        self._fixed_bases = np.zeros(len(plan.buffers), np.int64)

    def _symbols_of(self, segment: NativeSegment | HostNodeStep) -> frozenset[str]:
        """The sizes that must be known before a segment runs."""
        if isinstance(segment, HostNodeStep):
            return frozenset()
        steps = self.plan.steps[segment.first : segment.first + segment.count]
        sizes: list[Dim] = []
        for step in steps:
            sizes += [step.units, *(entry.offset if isinstance(entry, Address) else entry for entry in step.arguments)]
            sizes += [buffer.size for buffer in (*step.reads, *step.writes)]
        return frozenset().union(*(symbols_of(size) for size in set(sizes)))

    def run(self, feeds: Mapping[Value, Any], control: RunControl, sizes: Mapping[str, int] | None = None) -> dict[Value, Any]:
        """The values of the graph's outputs, and of all host steps' results, for feeds by graph value.

        `sizes` tells symbols that the feeds' shapes alone do not: for a body, those of the graph around it.
        """
        try:
            context = self._free.pop()
        except IndexError:
            context = self.new_context()
        try:
            return self._run(context, feeds, control, dict(sizes or {}))
        finally:
            if len(self._free) < _MOST_CONTEXTS:
                self._free.append(context)

    def new_context(self) -> Context:
        """Memory for one more run at a time."""
        return Context(np.zeros(max(self.plan.table_size, 1), np.int64))

    # What the fast path needs

    @property
    def is_all_native(self) -> bool:
        """Whether a run never comes back to Python."""
        return not any(isinstance(segment, HostNodeStep) for segment in self.plan.segments) and not self._late_symbols

    def set_up_for(self, context: Context, shapes: Mapping[Value, Sequence[int]]) -> dict[str, int]:
        """Set a context up for inputs of these shapes; inputs and outputs get no addresses. The symbols' values."""
        known: dict[str, int] = {}
        for view in self.plan.inputs:
            assert view.buffer.value is not None
            bind_shape(known, view, shapes[view.buffer.value])
        self._set_up(context, known)
        self._fill_addresses(context)
        return known

    def address_entries(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Array:
        """Where the addresses of inputs and outputs stand in the table: rows of (slot, position, offset's dim).

        Positions count the inputs, then the outputs. A value may be both, and has a buffer for each then.
        """
        fed = {view.buffer.value: self._number[id(view.buffer)] for view in self.plan.inputs}
        given = {view.buffer.value: self._number[id(view.buffer)] for view in self.plan.outputs}
        numbers = [*(fed[value] for value in inputs), *(given[value] for value in outputs)]
        positions = {number: position for position, number in enumerate(numbers)}
        rows = [
            (slot, positions[buffer], offset)
            for slot, buffer, offset in zip(
                self._address_slots.tolist(), self._address_buffers.tolist(), self._address_offsets.tolist()
            )
            if buffer in positions
        ]
        return np.array(rows, np.int64).reshape(-1, 3)

    def whole_program(self) -> tuple[int, int]:
        """Address and number of all steps."""
        return self._steps_address, len(self.plan.steps)

    def output_shapes(self, outputs: Sequence[Value], known: Mapping[str, int]) -> list[tuple[tuple[int, ...], Any]]:
        """Shape and dtype of outputs."""
        views = {view.buffer.value: view for view in self.plan.outputs}
        return [(tuple(evaluate(dim, known) for dim in views[value].shape), views[value].buffer.dtype.numpy) for value in outputs]

    @property
    def constants(self) -> dict[int, Array]:
        """The arrays of constant buffers, by number; made when they are first needed."""
        return self.load_constants()

    def load_constants(self, release: Callable[[], None] | None = None) -> dict[int, Array]:
        """Make the arrays of constant buffers. `release` is called now and then: what was read so far is not needed again."""
        if self._constants is not None:
            return self._constants
        with self._lock:
            loaded: dict[int, Array] = {}
            unreleased = 0
            for number, buffer in enumerate(self.plan.buffers):
                if buffer.kind != "constant" or buffer.load is None:
                    continue
                array = loaded[number] = np.ascontiguousarray(buffer.load())
                self._fixed_bases[number] = array.ctypes.data
                unreleased += array.nbytes
                if release is not None and unreleased > _RELEASED_AT_ONCE:
                    release()
                    unreleased = 0
            self._constants = loaded
        return loaded

    @property
    def sizes(self) -> Callable[..., tuple[int, ...]]:
        """The function from the symbols' values to those of all dims."""
        return self._sizes

    def raise_fault(self, context: Context) -> None:
        """Raise what a kernel reported in the run before, if anything."""
        if self.plan.faults and context.faults[1]:
            raise self._fault(context)

    def shrink(self) -> None:
        """Give the memory kept for later runs back."""
        self._free.clear()
        for call in self._host_calls.values():
            call.shrink()

    def _run(self, context: Context, feeds: Mapping[Value, Any], control: RunControl, known: dict[str, int]) -> dict[Value, Any]:
        plan = self.plan
        values: dict[Value, Any] = dict(feeds)
        arrays = []
        for view, number in zip(plan.inputs, self._input_numbers):
            value = plan.buffers[number].value
            assert value is not None
            array = np.asarray(feeds[value], order="C")
            bind_shape(known, view, array.shape)
            arrays.append(array)
        self._set_up(context, known)
        for number, array in zip(self._input_numbers, arrays):
            context.bases[number] = array.ctypes.data
        outputs = self._allocate_outputs(context, known, values)
        self._fill_addresses(context)
        for segment, needs in zip(plan.segments, self._needs):
            if self._late_symbols and not needs <= known.keys():
                raise SizeConflict(f"sizes nobody told: {', '.join(sorted(needs - known.keys()))}")
            control.stop_if_asked()
            if isinstance(segment, NativeSegment):
                self._run_segment(context, segment, control)
                self.raise_fault(context)
            else:
                learnt = self._run_host(context, segment, values, known, control)
                if learnt:
                    self._set_up(context, known, more=True)
                    for number, array in zip(self._input_numbers, arrays):
                        context.bases[number] = array.ctypes.data
                    outputs.update(self._allocate_outputs(context, known, values, outputs))
                self._rebase(context, values)
                for value, array in outputs.items():
                    context.bases[self._by_value[value]] = array.ctypes.data
                self._fill_addresses(context)
        values.update(outputs)
        return values

    def _fault(self, context: Context) -> errors.InvalidArgument:
        """What a kernel reported: of several places the first one, on any number of workers."""
        _, code, _, found, limit = context.faults.tolist()
        context.faults[:] = 0
        return errors.InvalidArgument(self.plan.faults[code - 1].message(found, limit))

    def _run_segment(self, context: Context, segment: NativeSegment, control: RunControl) -> None:
        at, table = self._steps_address + segment.first * _STEP_BYTES, context.table.ctypes.data
        run = self.pool.run_alone if context.alone else self.pool.run
        if control.on_node is None:
            run(at, segment.count, table)
            return
        for number in range(segment.count):  # watched: one step at a time
            step = self.plan.steps[segment.first + number]
            start = time.perf_counter_ns()
            run(at + number * _STEP_BYTES, 1, table)
            end = time.perf_counter_ns()
            control.on_node(NodeTiming(step.label, step.label, step.label, "CPUExecutionProvider", start, end, (), ()))

    def _run_host(
        self,
        context: Context,
        step: HostNodeStep,
        values: dict[Value, Any],
        known: dict[str, int],
        control: RunControl,
    ) -> bool:
        """Compute a node in Python; whether new sizes became known."""
        inputs: list[Any] = []
        lent: list[Array] = []  # memory of this run that Python sees only while the step runs
        for value, view in zip(step.node.inputs, step.inputs):
            if value is None:
                inputs.append(None)
            elif value in values:
                inputs.append(values[value])
            else:
                assert view is not None
                lent.append(self._array(context, view, known))
                inputs.append(lent[-1])
        captured = {value: self._array(context, view, known) for value, view in step.captured if value not in values}
        results = self._host_calls[step](inputs, {**values, **captured}, known, control)
        lent += captured.values()
        learnt = False
        for value, view, result in zip(step.node.outputs, step.outputs, results):
            if not value.name or (result is None and view is not None):  # an absent optional value is None, too
                continue
            made = _detached(result if view is None else np.asarray(result, order="C"), lent)
            if view is not None:
                learnt |= bind_shape(known, view, made.shape)
            values[value] = made
        return learnt

    def _array(self, context: Context, view: View, known: Mapping[str, int]) -> Array:
        """What lies in a view, as an array that shares its memory."""
        number = self._number[id(view.buffer)]
        dtype = view.buffer.dtype.numpy
        shape = tuple(evaluate(dim, known) for dim in view.shape)
        if number in self.constants:
            flat = self.constants[number].reshape(-1)
        else:
            count = max(evaluate(view.buffer.size, known), 1)
            raw = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(int(context.bases[number]))
            flat = np.frombuffer(memoryview(raw), dtype, count)
        offset = evaluate(view.offset, known)
        strides = tuple(evaluate(stride, known) * dtype.itemsize for stride in view.strides)
        if not flat.size:
            return flat.reshape(shape)
        return np.lib.stride_tricks.as_strided(flat[offset:], shape, strides, writeable=False)

    def _set_up(self, context: Context, known: Mapping[str, int], *, more: bool = False) -> None:
        """Evaluate all sizes and lay out the arena for them; nothing to do if they are those of the run before.

        `more`: the run is under way and a host step told more sizes; what has its place keeps it.
        """
        plan = self.plan
        symbols = tuple(known.get(name, _UNKNOWN) for name in plan.symbols)
        if symbols == context.known and not self._late_symbols:
            return
        context.known = None  # if setting up fails, nothing may be taken for granted
        context.dims = np.array(self._sizes(*symbols), np.int64)
        context.table[self._dim_slots] = context.dims[self._dim_numbers]
        for size, target in plan.checks:
            if context.dims[size] not in (1, context.dims[target]) and not self._is_open(size, target, known):
                raise SizeConflict(
                    f"{plan.dims[size]} is {context.dims[size]}, which does not broadcast to {context.dims[target]}"
                )
        for size, other in plan.equalities:
            if context.dims[size] != context.dims[other] and not self._is_open(size, other, known):
                raise SizeConflict(
                    f"{plan.dims[size]} is {context.dims[size]}, but {plan.dims[other]} is {context.dims[other]}: they must agree"
                )
        worth = np.maximum(context.dims[self._work_numbers] // PARALLEL_FROM, 1)
        context.table[self._work_slots] = worth
        context.alone = self.pool.workers == 1 or not (worth > 1).any()
        if not more:
            self._place(context, symbols)
        if self._late_buffers:
            self._place_late(context, symbols, known)
        context.known = symbols

    def _is_open(self, size: int, target: int, known: Mapping[str, int]) -> bool:
        """Whether a check must wait for sizes that a host step will tell."""
        return bool((symbols_of(self.plan.dims[size]) | symbols_of(self.plan.dims[target])) - known.keys())

    def _place(self, context: Context, symbols: tuple[int, ...]) -> None:
        """Give every buffer of the arena its place, and constants theirs."""
        offsets, total = self._layout.place(symbols, context.dims)
        self.load_constants()
        bases = context.bases = self._fixed_bases.copy()
        self._layout.assign(bases, context.arena.fit(total), offsets)
        bases[self._fault_buffers] = context.faults.ctypes.data
        context.late_used = 0

    def _place_late(self, context: Context, symbols: tuple[int, ...], known: Mapping[str, int]) -> None:
        """Give a place to the buffers whose sizes are all known by now."""
        ready = tuple(
            number for number, needed in self._late_buffers.items() if not context.bases[number] and needed <= known.keys()
        )
        if not ready:
            return
        layout = self._late_layouts.get(ready)
        if layout is None:
            layout = self._late_layouts[ready] = ArenaLayout(self.plan, ready, self._sizes)
        if context.late_used == len(context.late):
            context.late.append(Arena())
        offsets, total = layout.place(symbols, context.dims)
        layout.assign(context.bases, context.late[context.late_used].fit(total), offsets)
        context.late_used += 1

    def _allocate_outputs(
        self, context: Context, known: Mapping[str, int], values: Mapping[Value, Any], made: Mapping[Value, Array] | None = None
    ) -> dict[Value, Array]:
        """Arrays for the outputs whose sizes are known by now."""
        outputs: dict[Value, Array] = {}
        for view in self.plan.outputs:
            value = view.buffer.value
            assert value is not None
            if (made is not None and value in made) or any(symbols_of(dim) - known.keys() for dim in view.shape):
                continue
            array = np.empty(tuple(evaluate(dim, known) for dim in view.shape), view.buffer.dtype.numpy)
            outputs[value] = array
            context.bases[self._by_value[value]] = array.ctypes.data
        return outputs

    def _rebase(self, context: Context, values: Mapping[Value, Any]) -> None:
        """The addresses of what host steps have made so far."""
        for value, result in values.items():
            number = self._by_value.get(value)
            if number is not None and isinstance(result, np.ndarray) and self.plan.buffers[number].kind == "host":
                context.bases[number] = result.ctypes.data

    def _fill_addresses(self, context: Context) -> None:
        if len(self._address_slots):
            context.table[self._address_slots] = context.bases[self._address_buffers] + context.dims[self._address_offsets]


def _detached(result: Any, lent: Sequence[Array]) -> Any:
    """A host step's result without views of memory that will be used for something else; sequences are looked through."""
    if isinstance(result, np.ndarray):
        return result.copy() if any(np.may_share_memory(result, array) for array in lent) else result
    if isinstance(result, list):
        return [_detached(item, lent) for item in result]
    return result


def bind_shape(known: dict[str, int], view: View, shape: Sequence[int]) -> bool:
    """Learn the sizes of symbols from an actual shape; whether any was new. Kernels rely on them: a contradiction is an error."""
    if len(shape) != len(view.shape):
        raise SizeConflict(f"{view.buffer.label!r} has shape {list(shape)}, expected rank {len(view.shape)}")
    learnt = False
    for dim, size in zip(view.shape, shape):
        learnt |= _bind_dim(known, dim, size, view)
    return learnt


def _bind_dim(known: dict[str, int], dim: Dim, size: int, view: View) -> bool:
    if isinstance(dim, Expr) and dim.is_symbol and str(dim) not in known:
        known[str(dim)] = size
        return True
    expected = evaluate(dim, known) if not symbols_of(dim) - known.keys() else size
    if expected != size:
        raise SizeConflict(f"{view.buffer.label!r}: a dimension is {size}, but {dim} is {expected} here")
    return False
