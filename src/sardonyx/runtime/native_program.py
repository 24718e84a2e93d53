"""Runs a native plan: one call into native code for every segment between host steps.

A run takes a context (arena and table) out of the program's stock and puts it back, so that several threads can run at once. A
context remembers the sizes it was set up for; a run with the same sizes only fills in the addresses of inputs and outputs.

Sizes that only the data can tell (how many elements NonZero found) are bound when a kernel has counted them or a host step's
result is there; values whose sizes become known together then get an arena of their own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from sardonyx.forks import cached_property
from sardonyx.ir.dims import Dim, evaluate, symbol
from sardonyx.ir.graph import Value
from sardonyx.plan.build import constant_array
from sardonyx.plan.native import NativePlan, NativeSegment, image_of
from sardonyx.plan.ways import Axes, HostWay, NativeWay, Place, SizeWay, Ways
from sardonyx.program.steps import Buffer, HostNodeStep, KernelStep, SizeStep
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.runtime.executor import NodeTiming, RunControl
from sardonyx.runtime.native_core import Array, Context, NativeCore, SizeConflict, address_of, new_array
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.weight_store import WeightStore

_MOST_CONTEXTS = 8  # kept for later runs; more callers than that at once make theirs anew
_STEP_BYTES = 32
_UNKNOWN = 0  # stands for a size that a later step will tell; every entry computed from it is computed again then
_READ: Final = 0x100  # PyBUF_READ

_UNCONTROLLED: Final = RunControl()

_memory_at = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_at.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_memory_at.restype = ctypes.py_object


class HostCall(Protocol):
    """A node that Python computes, from its inputs, all values around it and the sizes of the symbols."""

    def __call__(
        self, inputs: Sequence[Any], values: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]: ...

    def shrink(self) -> None:
        """Give memory kept for later runs back."""


class _Stage(NamedTuple):
    """What a context was set up for at some point of a run: the symbols known by then, and their values."""

    told: int
    symbols: list[int]
    late_used: int  # how many late arenas were taken by then


class _Frame:
    """A context with all it was set up for in its last run, and the sizes known in the run under way."""

    __slots__ = ("context", "given", "stages", "symbols", "table", "table_address", "told")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.table = context.table.data
        self.table_address = address_of(context.table)
        self.given: tuple[Any, ...] | None = None  # the shapes and told sizes that the first stage follows from
        self.stages: list[_Stage] = []
        self.told = 0
        self.symbols: list[int] = []


def _load_constants(plan: NativePlan, weights: WeightStore) -> dict[int, Array]:
    numbered = ((number, buffer.constant) for number, buffer in enumerate(plan.buffers))
    return weights.load((number, constant) for number, constant in numbered if constant is not None)


class NativeProgram:
    """A compiled graph: inputs and outputs are arrays in the order of the plan's."""

    def __init__(
        self,
        plan: NativePlan,
        addresses: Sequence[int],
        pool: Pool,
        host_calls: Mapping[HostNodeStep, HostCall],
        weights: WeightStore,
    ) -> None:
        self.plan = plan
        self.pool = pool
        self._host_calls = host_calls
        # Not a method of this program: it would refer to itself, and keep its memory when it is dropped.
        self.core = NativeCore(image_of(plan), addresses, pool, partial(_load_constants, plan, weights))
        self._free: list[_Frame] = []
        self._host_constants: dict[Value, Array] = {}

    @cached_property
    def _ways(self) -> Ways:
        """The plan by numbers; programs that are native as a whole rarely need it."""
        return Ways(self.plan)

    @cached_property
    def _late_buffers(self) -> list[tuple[int, int]]:
        """Buffers that get their places in the middle of a run, with the symbols in their sizes."""
        return [(number, self._ways.dim_needs[self.plan.sizes[number]]) for number in self.core.image.late[:, 0].tolist()]

    @property
    def is_all_native(self) -> bool:
        """Whether a run never comes back to Python, and the inputs tell all sizes."""
        return all(isinstance(segment, NativeSegment) for segment in self.plan.segments) and not self.core.told

    @property
    def is_without_host(self) -> bool:
        """Whether Python computes nothing in a run, and inputs and kernels tell all sizes."""
        told: set[Dim] = set()
        for segment in self.plan.segments:
            if isinstance(segment, HostNodeStep):
                return False
            if isinstance(segment, SizeStep):
                told.update(segment.sizes)
        return {symbol(name) for name in self.core.told} <= told

    @property
    def constants(self) -> dict[int, Array]:
        """The arrays of constant buffers, by number; made when they are first needed."""
        return self.core.constants

    def run(self, feeds: Mapping[Value, Any], control: RunControl, sizes: Mapping[str, int] | None = None) -> dict[Value, Any]:
        """The values of the graph's outputs, and of all host steps' results, for feeds by graph value.

        `sizes` tells symbols that the feeds' shapes alone do not: for a body, those of the graph around it.
        """
        values: dict[Value, Any] = dict(feeds)
        arrays = [np.asarray(feeds[value], order="C") for value, _, _ in self._ways.inputs]
        values.update(self._run(arrays, values, control, sizes or {}))
        return values

    def run_arrays(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of a program without host steps, for contiguous arrays in the order of the plan's inputs."""
        outputs = self._run(arrays, {}, _UNCONTROLLED, {})
        return [outputs[output.value] for output in self._ways.outputs]

    def shrink(self) -> None:
        """Give the memory kept for later runs back."""
        self._free.clear()
        for call in self._host_calls.values():
            call.shrink()

    def _run(
        self, arrays: Sequence[Array], values: dict[Value, Any], control: RunControl, sizes: Mapping[str, int]
    ) -> dict[Value, Array]:
        """The outputs that native code writes; the results of host steps join `values`."""
        try:
            frame = self._free.pop()
        except IndexError:
            frame = _Frame(self.core.new_context())
        try:
            self._begin(frame, arrays, sizes)
            return self._run_ways(frame, arrays, values, control, sizes)
        finally:
            if len(self._free) < _MOST_CONTEXTS:
                self._free.append(frame)

    def _run_ways(
        self,
        frame: _Frame,
        arrays: Sequence[Array],
        values: dict[Value, Any],
        control: RunControl,
        sizes: Mapping[str, int],
    ) -> dict[Value, Array]:
        ways = self._ways
        context = frame.context
        bases, table = context.bases.data, frame.table
        for (_, number, _), array in zip(ways.inputs, arrays):
            bases[number] = address_of(array)
        outputs: dict[Value, Array] = {}
        self._allocate_outputs(frame, bases, outputs)
        stage = 0
        for way in ways.segments:
            control.stop_if_asked()
            if isinstance(way, NativeWay):
                if way.needs & ~frame.told:
                    missing = [name for number, name in enumerate(self.plan.symbols) if way.needs & ~frame.told & 1 << number]
                    raise SizeConflict(f"sizes nobody told: {', '.join(missing)}")
                dims = context.sizes
                for slot, buffer, offset in way.moving:
                    table[slot] = bases[buffer] + dims[offset]
                self._run_segment(frame, way, control, sizes)
                self.core.raise_fault(context)
                continue
            before = frame.told
            shapes: list[tuple[Axes, Sequence[int]]]
            if isinstance(way, SizeWay):
                shapes = [(way.axes, self._found(way, bases))]
            else:
                shapes = self._run_host(frame, way, values, control, sizes)
            for axes, shape in shapes:
                _bind(frame, axes, shape)
            if frame.told != before:
                stage += 1
                self._set_up(frame, stage)
            for axes, shape in shapes:
                self._check(frame, axes, shape)
            if frame.told != before:
                self._allocate_outputs(frame, bases, outputs)
        return outputs

    def _begin(self, frame: _Frame, arrays: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Set a context up for what the inputs' shapes tell; nothing to do if it was for the same shapes in its last run."""
        around = [sizes.get(name, -1) for name in self.plan.symbols] if sizes else []
        given = ([array.shape for array in arrays], around)
        if given == frame.given:
            first = frame.stages[0]
            frame.told, frame.symbols = first.told, first.symbols.copy()
            return
        frame.given = None  # if setting up fails, nothing may be taken for granted
        frame.told, frame.symbols = 0, [_UNKNOWN] * len(self.plan.symbols)
        for number, size in enumerate(around):
            if size >= 0:
                frame.told |= 1 << number
                frame.symbols[number] = size
        for (_, _, axes), array in zip(self._ways.inputs, arrays):
            _bind(frame, axes, array.shape)
        self._set_up(frame, 0)
        for (_, _, axes), array in zip(self._ways.inputs, arrays):
            self._check(frame, axes, array.shape)
        frame.given = given

    def _set_up(self, frame: _Frame, stage: int) -> None:
        """Evaluate all sizes and lay out memory for those that became known; what has its place keeps it.

        There is nothing to do if the run before knew the same sizes at this stage and all before it.
        """
        stages, told, symbols = frame.stages, frame.told, frame.symbols
        if stage and stage < len(stages) and stages[stage].told == told and stages[stage].symbols == symbols:
            return
        del stages[stage:]
        core, context, needs = self.core, frame.context, self._ways.dim_needs
        core.evaluate(context, tuple(symbols), lambda one, other: bool((needs[one] | needs[other]) & ~told))
        before = 0
        if stage:
            before, _, context.late_used = stages[-1]
        else:
            core.place(context)
        ready = tuple([number for number, needs in self._late_buffers if not needs & ~told and needs & ~before])
        if ready:
            core.place_late(context, ready)
        core.fill_addresses(context)
        stages.append(_Stage(told, symbols.copy(), context.late_used))

    def _check(self, frame: _Frame, axes: Axes, shape: Sequence[int]) -> None:
        """Compare an actual shape with what is known of it. Kernels rely on sizes: a contradiction is an error."""
        sizes = frame.context.sizes
        for dim, needs, size in zip(axes.dims, axes.needs, shape):
            if sizes[dim] != size and not needs & ~frame.told:
                raise SizeConflict(f"{axes.label!r}: a dimension is {size}, but {self.plan.dims[dim]} is {sizes[dim]} here")

    def _allocate_outputs(self, frame: _Frame, bases: memoryview, outputs: dict[Value, Array]) -> None:
        """Make arrays for the outputs whose sizes are known by now."""
        sizes = frame.context.sizes
        for output in self._ways.outputs:
            if not output.needs & ~frame.told and output.value not in outputs:
                array = new_array([sizes[dim] for dim in output.dims], output.dtype)
                outputs[output.value] = array
                bases[output.buffer] = address_of(array)

    def _known(self, frame: _Frame, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes known by now by name, with those of the graph around."""
        known = dict(sizes)
        for number, name in enumerate(self.plan.symbols):
            if frame.told >> number & 1:
                known[name] = frame.symbols[number]
        return known

    def _run_segment(self, frame: _Frame, way: NativeWay, control: RunControl, sizes: Mapping[str, int]) -> None:
        at, table = self.core.steps_address + way.first * _STEP_BYTES, frame.table_address
        run = self.pool.run_alone if frame.context.alone else self.pool.run
        if control.on_node is None:
            run(at, way.count, table)
            return
        known = self._known(frame, sizes)
        for number in range(way.count):  # watched: one step at a time
            step = self.plan.steps[way.first + number]
            start = time.perf_counter_ns()
            run(at + number * _STEP_BYTES, 1, table)
            end = time.perf_counter_ns()
            facts = _facts(step, known, end - start)
            control.on_node(NodeTiming(step.label, step.label, step.label, CPU_PROVIDER, start, end, (), (), facts))

    def _run_host(
        self, frame: _Frame, way: HostWay, values: dict[Value, Any], control: RunControl, sizes: Mapping[str, int]
    ) -> list[tuple[Axes, Sequence[int]]]:
        """Compute a node in Python; the shapes of its results that native code may read."""
        inputs: list[Any] = []
        lent: list[Array] = []  # memory of this run that Python sees only while the step runs
        for value, place in way.inputs:
            if value is None:
                inputs.append(None)
            elif value in values:
                inputs.append(values[value])
            elif place is None:
                inputs.append(self._host_constant(value))
            else:
                inputs.append(self._array(frame.context, place))
                if not place.is_constant:
                    lent.append(inputs[-1])
        captured = {value: self._array(frame.context, place) for value, place in way.captured if value not in values}
        lent += captured.values()
        around = {**values, **captured} if captured else values
        results = self._host_calls[way.step](inputs, around, self._known(frame, sizes), control)
        shapes: list[tuple[Axes, Sequence[int]]] = []
        for (value, axes, number), result in zip(way.outputs, results):
            if not value.name or (result is None and axes is not None):  # an absent optional value is None, too
                continue
            if axes is None:
                values[value] = _detached(result, lent)
                continue
            made = values[value] = _detached(np.asarray(result, order="C"), lent)
            frame.context.bases[number] = address_of(made)
            shapes.append((axes, made.shape))
        return shapes

    def _host_constant(self, value: Value) -> Array:
        """A constant that only host steps can read: strings, floats of 8 bits, integers of 4. Decoded once."""
        found = self._host_constants.get(value)
        if found is None:
            found = self._host_constants[value] = constant_array(value)
        return found

    def _found(self, way: SizeWay, bases: memoryview) -> list[int]:
        """Sizes that a kernel has found."""
        found = [ctypes.c_int64.from_address(bases[way.counts] + 8 * number).value for number in range(len(way.axes.dims))]
        for size, dim in zip(found, way.axes.dims):
            if size < 0:
                raise SizeConflict(f"{way.axes.label!r}: {self.plan.dims[dim]} is {size}")
        return found

    def _array(self, context: Context, place: Place) -> Array:
        """What lies in a view, as an array that shares its memory."""
        sizes, width = context.sizes, place.dtype.itemsize
        shape = [sizes[dim] for dim in place.shape]
        if place.is_constant:
            memory = self.constants[place.buffer].reshape(-1).view(np.uint8)  # not every type tells others what lies there
        else:
            memory = _memory_at(int(context.bases[place.buffer]), max(sizes[place.size], width), _READ)
        strides = [sizes[dim] * width for dim in place.strides]
        offset = sizes[place.offset] * width if 0 not in shape else 0  # an empty part may begin behind the end
        made = np.ndarray(shape, place.dtype, memory, offset, strides)
        made.flags.writeable = False
        return made


def _facts(step: KernelStep, known: Mapping[str, int], nanoseconds: int) -> dict[str, str]:
    """What a trace tells about a kernel: everything it reads and writes is counted once, and as a whole."""

    def size(buffers: Sequence[Buffer]) -> str:
        return str(sum(evaluate(each.size, known) * each.dtype.bits // 8 for each in buffers))

    facts = {
        "kernel": type(step.kernel).__name__,
        "nodes": "; ".join(step.nodes),
        "bytes_read": size(step.reads),
        "bytes_written": size(step.writes),
    }
    flops = evaluate(step.flops, known)
    if flops:
        facts["gflops_per_second"] = f"{flops / max(nanoseconds, 1):.3g}"
    return facts


def _detached(result: Any, lent: Sequence[Array]) -> Any:
    """A host step's result without views of memory that will be used for something else; sequences are looked through."""
    if isinstance(result, np.ndarray):
        return result.copy() if any(np.may_share_memory(result, array) for array in lent) else result
    if isinstance(result, list):
        return [_detached(item, lent) for item in result]
    return result


def _bind(frame: _Frame, axes: Axes, shape: Sequence[int]) -> None:
    """Learn the sizes of symbols from an actual shape."""
    if len(shape) != len(axes.dims):
        raise SizeConflict(f"{axes.label!r} has shape {list(shape)}, expected rank {len(axes.dims)}")
    for number, size in zip(axes.symbols, shape):
        if number >= 0 and not frame.told >> number & 1:
            frame.told |= 1 << number
            frame.symbols[number] = size
