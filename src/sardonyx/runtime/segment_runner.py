"""Runs a native plan segment by segment: one call into native code for every segment between what Python does.

A context (see `executable`) remembers the sizes it was set up for; a run with the same sizes only fills in the addresses of
inputs and outputs.

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
from sardonyx.plan.bound_segments import Axes, BoundHostStep, BoundNativeSegment, BoundSegments, BoundSizeStep, BoundView
from sardonyx.plan.build import constant_array
from sardonyx.plan.native import NativePlan, NativeSegment, image_of
from sardonyx.program.steps import Buffer, HostNodeStep, KernelStep, SizeStep
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.runtime.executable import Executable, RunContext
from sardonyx.runtime.executor import NodeTiming, RunControl
from sardonyx.runtime.native_core import Array, NativeCore, RunMemory, SizeConflict, address_of, new_array
from sardonyx.runtime.pool import Pool
from sardonyx.runtime.weight_store import WeightStore

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


class KnownSizes(NamedTuple):
    """What a context was set up for at some point of a run: the symbols known by then, and their values."""

    known: int
    symbols: list[int]
    late_used: int  # how many late arenas were taken by then


def _load_constants(plan: NativePlan, weights: WeightStore) -> dict[int, Array]:
    numbered = ((number, buffer.constant) for number, buffer in enumerate(plan.buffers))
    return weights.load((number, constant) for number, constant in numbered if constant is not None)


def executable_of(
    plan: NativePlan,
    addresses: Sequence[int],
    pool: Pool,
    host_calls: Mapping[HostNodeStep, HostCall],
    weights: WeightStore,
) -> tuple[Executable, SegmentRunner]:
    """The program of a plan, and what runs its segments."""
    # Not a method of the program: it would refer to itself, and keep its memory when it is dropped.
    core = NativeCore(image_of(plan), addresses, pool, partial(_load_constants, plan, weights))
    runner = SegmentRunner(plan, core, host_calls)
    return Executable(core, runner, is_one_call=runner.is_one_call), runner


class SegmentRunner:
    """Runs the segments of a plan; inputs and outputs are arrays in the order of the plan's."""

    def __init__(self, plan: NativePlan, core: NativeCore, host_calls: Mapping[HostNodeStep, HostCall]) -> None:
        self.plan = plan
        self.core = core
        self._host_calls = host_calls
        self._host_constants: dict[Value, Array] = {}

    @cached_property
    def _bound(self) -> BoundSegments:
        """The plan by numbers; programs that are native as a whole rarely need it."""
        return BoundSegments(self.plan)

    @cached_property
    def _late_buffers(self) -> list[tuple[int, int]]:
        """Buffers that get their places in the middle of a run, with the symbols in their sizes."""
        return [(number, self._bound.dim_needs[self.plan.sizes[number]]) for number in self.core.image.late[:, 0].tolist()]

    @property
    def is_one_call(self) -> bool:
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

    def run(
        self, context: RunContext, feeds: Mapping[Value, Any], control: RunControl, sizes: Mapping[str, int]
    ) -> dict[Value, Any]:
        """The values of the graph's outputs, and of all host steps' results, for feeds by graph value.

        `sizes` tells symbols that the feeds' shapes alone do not: for a body, those of the graph around it.
        """
        values: dict[Value, Any] = dict(feeds)
        arrays = [np.asarray(feeds[value], order="C") for value, _, _ in self._bound.inputs]
        self._begin(context, arrays, sizes)
        values.update(self._run_segments(context, arrays, values, control, sizes))
        return values

    def run_arrays(self, context: RunContext, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of a program without host steps, for contiguous arrays in the order of the plan's inputs."""
        self._begin(context, arrays, {})
        outputs = self._run_segments(context, arrays, {}, _UNCONTROLLED, {})
        return [outputs[output.value] for output in self._bound.outputs]

    def shrink(self) -> None:
        """Give the memory that host steps keep for later runs back."""
        for call in self._host_calls.values():
            call.shrink()

    def _run_segments(
        self,
        context: RunContext,
        arrays: Sequence[Array],
        values: dict[Value, Any],
        control: RunControl,
        sizes: Mapping[str, int],
    ) -> dict[Value, Array]:
        bound = self._bound
        bases, table = context.bases.data, context.table_view
        for (_, number, _), array in zip(bound.inputs, arrays):
            bases[number] = address_of(array)
        outputs: dict[Value, Array] = {}
        self._allocate_outputs(context, bases, outputs)
        stage = 0
        for segment in bound.segments:
            control.stop_if_asked()
            if isinstance(segment, BoundNativeSegment):
                if segment.needs & ~context.known_symbols:
                    missing = [
                        name
                        for number, name in enumerate(self.plan.symbols)
                        if segment.needs & ~context.known_symbols & 1 << number
                    ]
                    raise SizeConflict(f"sizes nobody told: {', '.join(missing)}")
                dims = context.sizes
                for slot, buffer, offset in segment.moving:
                    table[slot] = bases[buffer] + dims[offset]
                self._run_segment(context, segment, control, sizes)
                self.core.raise_fault(context)
                continue
            before = context.known_symbols
            shapes: list[tuple[Axes, Sequence[int]]]
            if isinstance(segment, BoundSizeStep):
                shapes = [(segment.axes, self._found(segment, bases))]
            else:
                shapes = self._run_host(context, segment, values, control, sizes)
            for axes, shape in shapes:
                _bind(context, axes, shape)
            if context.known_symbols != before:
                stage += 1
                self._set_up(context, stage)
            for axes, shape in shapes:
                self._check(context, axes, shape)
            if context.known_symbols != before:
                self._allocate_outputs(context, bases, outputs)
        return outputs

    def _begin(self, context: RunContext, arrays: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Set a context up for what the inputs' shapes tell; nothing to do if it was for the same shapes in its last run."""
        around = [sizes.get(name, -1) for name in self.plan.symbols] if sizes else []
        given = ([array.shape for array in arrays], around)
        if given == context.given:
            first = context.stages[0]
            context.known_symbols, context.symbols = first.known, first.symbols.copy()
            return
        context.given = None  # if setting up fails, nothing may be taken for granted
        context.known_symbols, context.symbols = 0, [_UNKNOWN] * len(self.plan.symbols)
        for number, size in enumerate(around):
            if size >= 0:
                context.known_symbols |= 1 << number
                context.symbols[number] = size
        for (_, _, axes), array in zip(self._bound.inputs, arrays):
            _bind(context, axes, array.shape)
        self._set_up(context, 0)
        for (_, _, axes), array in zip(self._bound.inputs, arrays):
            self._check(context, axes, array.shape)
        context.given = given

    def _set_up(self, context: RunContext, stage: int) -> None:
        """Evaluate all sizes and lay out memory for those that became known; what has its place keeps it.

        There is nothing to do if the run before knew the same sizes at this stage and all before it.
        """
        stages, told, symbols = context.stages, context.known_symbols, context.symbols
        if stage and stage < len(stages) and stages[stage].known == told and stages[stage].symbols == symbols:
            return
        del stages[stage:]
        core, needs = self.core, self._bound.dim_needs
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
        stages.append(KnownSizes(told, symbols.copy(), context.late_used))

    def _check(self, context: RunContext, axes: Axes, shape: Sequence[int]) -> None:
        """Compare an actual shape with what is known of it. Kernels rely on sizes: a contradiction is an error."""
        sizes = context.sizes
        for dim, needs, size in zip(axes.dims, axes.needs, shape):
            if sizes[dim] != size and not needs & ~context.known_symbols:
                raise SizeConflict(f"{axes.label!r}: a dimension is {size}, but {self.plan.dims[dim]} is {sizes[dim]} here")

    def _allocate_outputs(self, context: RunContext, bases: memoryview, outputs: dict[Value, Array]) -> None:
        """Make arrays for the outputs whose sizes are known by now."""
        sizes = context.sizes
        for output in self._bound.outputs:
            if not output.needs & ~context.known_symbols and output.value not in outputs:
                array = new_array([sizes[dim] for dim in output.dims], output.dtype)
                outputs[output.value] = array
                bases[output.buffer] = address_of(array)

    def _known(self, context: RunContext, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes known by now by name, with those of the graph around."""
        known = dict(sizes)
        for number, name in enumerate(self.plan.symbols):
            if context.known_symbols >> number & 1:
                known[name] = context.symbols[number]
        return known

    def _run_segment(
        self, context: RunContext, segment: BoundNativeSegment, control: RunControl, sizes: Mapping[str, int]
    ) -> None:
        at, table = self.core.steps_address + segment.first * _STEP_BYTES, context.table_address
        run = self.core.pool.run_alone if context.alone else self.core.pool.run
        if control.on_node is None:
            run(at, segment.count, table)
            return
        known = self._known(context, sizes)
        for number in range(segment.count):  # watched: one step at a time
            step = self.plan.steps[segment.first + number]
            start = time.perf_counter_ns()
            run(at + number * _STEP_BYTES, 1, table)
            end = time.perf_counter_ns()
            facts = _facts(step, known, end - start)
            control.on_node(NodeTiming(step.label, step.label, step.label, CPU_PROVIDER, start, end, (), (), facts))

    def _run_host(
        self, context: RunContext, segment: BoundHostStep, values: dict[Value, Any], control: RunControl, sizes: Mapping[str, int]
    ) -> list[tuple[Axes, Sequence[int]]]:
        """Compute a node in Python; the shapes of its results that native code may read."""
        inputs: list[Any] = []
        lent: list[Array] = []  # memory of this run that Python sees only while the step runs
        for value, place in segment.inputs:
            if value is None:
                inputs.append(None)
            elif value in values:
                inputs.append(values[value])
            elif place is None:
                inputs.append(self._host_constant(value))
            else:
                inputs.append(self._array(context, place))
                if not place.is_constant:
                    lent.append(inputs[-1])
        captured = {value: self._array(context, place) for value, place in segment.captured if value not in values}
        lent += captured.values()
        around = {**values, **captured} if captured else values
        results = self._host_calls[segment.step](inputs, around, self._known(context, sizes), control)
        shapes: list[tuple[Axes, Sequence[int]]] = []
        for (value, axes, number), result in zip(segment.outputs, results):
            if not value.name or (result is None and axes is not None):  # an absent optional value is None, too
                continue
            if axes is None:
                values[value] = _detached(result, lent)
                continue
            made = values[value] = _detached(np.asarray(result, order="C"), lent)
            context.bases[number] = address_of(made)
            shapes.append((axes, made.shape))
        return shapes

    def _host_constant(self, value: Value) -> Array:
        """A constant that only host steps can read: strings, floats of 8 bits, integers of 4. Decoded once."""
        found = self._host_constants.get(value)
        if found is None:
            found = self._host_constants[value] = constant_array(value)
        return found

    def _found(self, segment: BoundSizeStep, bases: memoryview) -> list[int]:
        """Sizes that a kernel has found."""
        found = [
            ctypes.c_int64.from_address(bases[segment.counts] + 8 * number).value for number in range(len(segment.axes.dims))
        ]
        for size, dim in zip(found, segment.axes.dims):
            if size < 0:
                raise SizeConflict(f"{segment.axes.label!r}: {self.plan.dims[dim]} is {size}")
        return found

    def _array(self, context: RunMemory, place: BoundView) -> Array:
        """What lies in a view, as an array that shares its memory."""
        sizes, width = context.sizes, place.dtype.itemsize
        shape = [sizes[dim] for dim in place.shape]
        if place.is_constant:
            memory = self.core.constants[place.buffer].reshape(-1).view(np.uint8)  # not every type tells others what lies there
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


def _bind(context: RunContext, axes: Axes, shape: Sequence[int]) -> None:
    """Learn the sizes of symbols from an actual shape."""
    if len(shape) != len(axes.dims):
        raise SizeConflict(f"{axes.label!r} has shape {list(shape)}, expected rank {len(axes.dims)}")
    for number, size in zip(axes.symbols, shape):
        if number >= 0 and not context.known_symbols >> number & 1:
            context.known_symbols |= 1 << number
            context.symbols[number] = size
