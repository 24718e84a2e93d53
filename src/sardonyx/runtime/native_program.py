"""Runs a native plan: one call into native code for every segment between host steps.

A run takes a context (arena and table) out of the program's stock and puts it back, so that several threads can run at once. A
context remembers the sizes it was set up for; a run with the same sizes only fills in the addresses of inputs and outputs.

Sizes that only the data can tell (how many elements NonZero found) are bound when a kernel has counted them or a host step's
result is there; the memory of values that depend on them is then taken piece by piece instead of from the arena.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx import errors
from sardonyx.ir.dims import Dim, Expr, evaluate, symbols_of
from sardonyx.ir.graph import Value
from sardonyx.lower.steps import FAULT_ENTRIES, Address, Buffer, HostNodeStep, SizeStep, View
from sardonyx.plan.memory import ALIGNMENT
from sardonyx.plan.native import PARALLEL_FROM, NativePlan, NativeSegment, size_function
from sardonyx.runtime.arena import ArenaLayout
from sardonyx.runtime.executor import NodeTiming, RunControl
from sardonyx.runtime.pool import Pool

Array = np.ndarray[Any, Any]
HostCall = Callable[[Sequence[Any], Mapping[Value, Any], Mapping[str, int], RunControl], Sequence[Any]]

_MOST_CONTEXTS = 8  # kept for later runs; more callers than that at once make theirs anew
_BARRIER = 1
_STEP_BYTES = 32
_UNKNOWN = 0  # stands for a size that a later step will tell; every entry computed from it is computed again then


class SizeConflict(Exception):
    """Actual sizes contradict what the kernels were made for: one name fed with two sizes, or a shape rule that was wrong."""


@dataclass(eq=False)
class Context:
    """Memory of one run at a time."""

    table: Array
    known: tuple[int, ...] | None = None  # the symbols' values the table was filled for
    arena: Array = field(default_factory=lambda: np.empty(0, np.uint8))
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
        self._lock = threading.Lock()
        # Symbols that inputs bind; all others come from what is computed.
        bound = {str(dim) for view in plan.inputs for dim in view.shape if isinstance(dim, Expr) and dim.is_symbol}
        self._late_symbols = frozenset(plan.symbols) - bound
        self._needs = [self._symbols_of(segment) for segment in plan.segments]
        self._late_buffers = {
            number: symbols_of(buffer.size)
            for number, buffer in enumerate(plan.buffers)
            if buffer.kind == "arena" and symbols_of(buffer.size) & self._late_symbols
        }
        self._layout = ArenaLayout(plan, list(self._late_buffers), self._sizes)
        self._fault_buffers = np.array([n for n, buffer in enumerate(plan.buffers) if buffer.kind == "fault"], np.int64)
        self._fixed_bases = np.zeros(len(plan.buffers), np.int64)

    def _symbols_of(self, segment: NativeSegment | HostNodeStep | SizeStep) -> frozenset[str]:
        """The sizes that must be known before a segment runs."""
        if not isinstance(segment, NativeSegment):
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
        with self._lock:
            context = self._free.pop() if self._free else None
        if context is None:
            context = self.new_context()
        try:
            return self._run(context, feeds, control, dict(sizes or {}))
        finally:
            with self._lock:
                if len(self._free) < _MOST_CONTEXTS:
                    self._free.append(context)

    def new_context(self) -> Context:
        """Memory for one more run at a time."""
        return Context(np.zeros(max(self.plan.table_size, 1), np.int64))

    # What the fast path needs

    @property
    def is_all_native(self) -> bool:
        """Whether a run never comes back to Python."""
        return all(isinstance(segment, NativeSegment) for segment in self.plan.segments) and not self._late_symbols

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
        return self._load_constants()

    def _load_constants(self) -> dict[int, Array]:
        loaded = self._constants
        if loaded is None:
            with self._lock:
                loaded = {
                    number: np.ascontiguousarray(buffer.load())
                    for number, buffer in enumerate(self.plan.buffers)
                    if buffer.kind == "constant" and buffer.load is not None
                }
                for number, array in loaded.items():
                    self._fixed_bases[number] = array.ctypes.data
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
        with self._lock:
            self._free.clear()

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
        keep: list[Any] = [arrays]
        self._set_up(context, known)
        for number, array in zip(self._input_numbers, arrays):
            context.bases[number] = array.ctypes.data
        outputs = self._allocate_outputs(context, known, values)
        self._fill_addresses(context)
        for segment, needs in zip(plan.segments, self._needs):
            if self._late_symbols and not needs <= known.keys():
                raise SizeConflict(f"sizes nobody told: {', '.join(sorted(needs - known.keys()))}")
            if control.terminate():
                raise errors.Fail("Exiting due to terminate flag being set to true.")
            if isinstance(segment, NativeSegment):
                self._run_segment(context, segment, control)
                self.raise_fault(context)
                continue
            if isinstance(segment, SizeStep):
                learnt = self._read_sizes(context, segment, known)
            else:
                learnt = self._run_host(context, segment, values, known, control, keep)
                self._rebase(context, values)
            if learnt:
                self._set_up(context, known, keep)
                outputs.update(self._allocate_outputs(context, known, values, outputs))
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
        keep: list[Any],
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
            keep.append(made)
        return learnt

    def _read_sizes(self, context: Context, step: SizeStep, known: dict[str, int]) -> bool:
        """Bind sizes that a kernel has found; whether any was new."""
        address = int(context.bases[self._number[id(step.counts)]])
        found = (ctypes.c_int64 * len(step.sizes)).from_address(address)
        learnt = False
        for dim, size in zip(step.sizes, found):
            if size < 0:
                raise SizeConflict(f"{step.counts.label!r}: {dim} is {size}")
            learnt |= _bind_dim(known, dim, size, step.counts)
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

    def _set_up(self, context: Context, known: Mapping[str, int], keep: list[Any] | None = None) -> None:
        """Evaluate all sizes and lay out the arena for them; nothing to do if they are those of the run before."""
        plan = self.plan
        symbols = tuple(known.get(name, _UNKNOWN) for name in plan.symbols)
        if symbols == context.known and not self._late_symbols:
            return
        first_time = keep is None
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
        if first_time:
            self._place(context, symbols)
        else:
            assert keep is not None
            for number, needs in self._late_buffers.items():
                size = int(context.dims[plan.sizes[number]])
                if size > 0 and not context.bases[number] and needs <= known.keys():
                    piece = np.empty(size + ALIGNMENT, np.uint8)
                    keep.append(piece)
                    context.bases[number] = aligned(piece)
        context.known = symbols

    def _is_open(self, size: int, target: int, known: Mapping[str, int]) -> bool:
        """Whether a check must wait for sizes that a host step will tell."""
        return bool((symbols_of(self.plan.dims[size]) | symbols_of(self.plan.dims[target])) - known.keys())

    def _place(self, context: Context, symbols: tuple[int, ...]) -> None:
        """Give every buffer of the arena its place, and constants theirs."""
        offsets, total = self._layout.place(symbols, context.dims)
        if not total <= context.arena.nbytes - ALIGNMENT <= 4 * total + (1 << 20):  # too small, or far larger than needed
            context.arena = np.empty(total + ALIGNMENT, np.uint8)
        start = aligned(context.arena)
        self._load_constants()
        bases = context.bases = self._fixed_bases.copy()
        bases[self._layout.buffers] = start + offsets
        bases[self._layout.shared] = bases[self._layout.roots]
        bases[self._fault_buffers] = context.faults.ctypes.data

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


def aligned(memory: Array) -> int:
    """The first address in some bytes that a cache line starts at."""
    return -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT


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
        learnt |= _bind_dim(known, dim, size, view.buffer)
    return learnt


def _bind_dim(known: dict[str, int], dim: Dim, size: int, source: Buffer) -> bool:
    if isinstance(dim, Expr) and dim.is_symbol and str(dim) not in known:
        known[str(dim)] = size
        return True
    expected = evaluate(dim, known) if not symbols_of(dim) - known.keys() else size
    if expected != size:
        raise SizeConflict(f"{source.label!r}: a dimension is {size}, but {dim} is {expected} here")
    return False
