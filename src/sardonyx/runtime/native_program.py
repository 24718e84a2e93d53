"""Runs a native plan: one call into native code for every segment between host steps.

A run takes a context (arena and table) out of the program's stock and puts it back, so that several threads can run at once. A
context remembers the sizes it was set up for; a run with the same sizes only fills in the addresses of inputs and outputs.

Sizes that only the data can tell (how many elements NonZero found) are bound when a kernel has counted them or a host step's
result is there; values whose sizes become known together then get an arena of their own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.ir.graph import Value
from sardonyx.lower.steps import Address, Buffer, HostNodeStep, KernelStep, SizeStep, View
from sardonyx.plan.native import NativePlan, NativeSegment, image_of
from sardonyx.runtime.executor import NodeTiming, RunControl
from sardonyx.runtime.native_core import Array, Context, NativeCore, SizeConflict, address_of
from sardonyx.runtime.pool import Pool

_MOST_CONTEXTS = 8  # kept for later runs; more callers than that at once make theirs anew
_RELEASED_AT_ONCE = 16 << 20  # bytes of constants
_STEP_BYTES = 32
_UNKNOWN = 0  # stands for a size that a later step will tell; every entry computed from it is computed again then


class HostCall(Protocol):
    """A node that Python computes, from its inputs, all values around it and the sizes of the symbols."""

    def __call__(
        self, inputs: Sequence[Any], values: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]: ...

    def shrink(self) -> None:
        """Give memory kept for later runs back."""


class NativeProgram:
    """A compiled graph: inputs and outputs are arrays in the order of the plan's."""

    def __init__(
        self,
        plan: NativePlan,
        addresses: Sequence[int],
        pool: Pool,
        host_calls: Mapping[HostNodeStep, HostCall],
        release: Callable[[], None] | None = None,
    ) -> None:
        """`release` is called now and then while constants are loaded: what was read so far is not needed again."""
        self.plan = plan
        self._release = release
        self.pool = pool
        self._host_calls = host_calls
        image = image_of(plan)
        self.core = NativeCore(image, addresses, pool, self._load_constants)
        self._number = {id(buffer): number for number, buffer in enumerate(plan.buffers)}
        self._by_value = {buffer.value: number for number, buffer in enumerate(plan.buffers) if buffer.value is not None}
        self._by_value.update(
            {view.buffer.value: self._number[id(view.buffer)] for view in plan.outputs if view.buffer.value is not None}
        )
        self._input_numbers = [port.buffer for port in image.inputs]
        self._free: list[Context] = []
        told = {image.symbols[symbol] for symbol in image.bindings[:, 0].tolist()}
        self._late_symbols = frozenset(plan.symbols) - told  # what is computed tells these
        self._needs = [self._symbols_of(segment) for segment in plan.segments]
        self._late_buffers = {number: symbols_of(plan.buffers[number].size) for number in image.late[:, 0].tolist()}

    def _load_constants(self) -> dict[int, Array]:
        loaded: dict[int, Array] = {}
        unreleased = 0
        for number, buffer in enumerate(self.plan.buffers):
            if buffer.kind != "constant" or buffer.load is None:
                continue
            array = loaded[number] = np.ascontiguousarray(buffer.load())
            unreleased += array.nbytes
            if self._release is not None and unreleased > _RELEASED_AT_ONCE:
                self._release()
                unreleased = 0
        return loaded

    def _symbols_of(self, segment: NativeSegment | HostNodeStep | SizeStep) -> frozenset[str]:
        """The sizes that must be known before a segment runs."""
        if not isinstance(segment, NativeSegment) or not self._late_symbols:
            return frozenset()
        steps = self.plan.steps[segment.first : segment.first + segment.count]
        sizes: list[Dim] = []
        for step in steps:
            sizes += [step.units, *(entry.offset if isinstance(entry, Address) else entry for entry in step.arguments)]
            sizes += [buffer.size for buffer in (*step.reads, *step.writes)]
        return frozenset().union(*(symbols_of(size) for size in set(sizes)))

    @property
    def is_all_native(self) -> bool:
        """Whether a run never comes back to Python, and the inputs tell all sizes."""
        return all(isinstance(segment, NativeSegment) for segment in self.plan.segments) and not self._late_symbols

    @property
    def constants(self) -> dict[int, Array]:
        """The arrays of constant buffers, by number; made when they are first needed."""
        return self.core.constants

    def run(self, feeds: Mapping[Value, Any], control: RunControl, sizes: Mapping[str, int] | None = None) -> dict[Value, Any]:
        """The values of the graph's outputs, and of all host steps' results, for feeds by graph value.

        `sizes` tells symbols that the feeds' shapes alone do not: for a body, those of the graph around it.
        """
        try:
            context = self._free.pop()
        except IndexError:
            context = self.core.new_context()
        try:
            return self._run(context, feeds, control, dict(sizes or {}))
        finally:
            if len(self._free) < _MOST_CONTEXTS:
                self._free.append(context)

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
            context.bases[number] = address_of(array)
        outputs = self._allocate_outputs(context, known, values)
        self.core.fill_addresses(context)
        last = plan.segments[-1] if plan.segments else None
        for segment, needs in zip(plan.segments, self._needs):
            if self._late_symbols and not needs <= known.keys():
                raise SizeConflict(f"sizes nobody told: {', '.join(sorted(needs - known.keys()))}")
            control.stop_if_asked()
            if isinstance(segment, NativeSegment):
                self._run_segment(context, segment, control, known)
                self.core.raise_fault(context)
                continue
            if isinstance(segment, SizeStep):
                learnt = self._read_sizes(context, segment, known)
            else:
                learnt = self._run_host(context, segment, values, known, control)
                if segment is last and not learnt:
                    break  # nothing follows that would have to find its results
                self._rebase(context, values)
            if learnt:
                self._set_up(context, known, again=True)
                outputs.update(self._allocate_outputs(context, known, values, outputs))
            self.core.fill_addresses(context)
        values.update(outputs)
        return values

    def _run_segment(self, context: Context, segment: NativeSegment, control: RunControl, known: Mapping[str, int]) -> None:
        at, table = self.core.steps_address + segment.first * _STEP_BYTES, context.table.ctypes.data
        run = self.pool.run_alone if context.alone else self.pool.run
        if control.on_node is None:
            run(at, segment.count, table)
            return
        for number in range(segment.count):  # watched: one step at a time
            step = self.plan.steps[segment.first + number]
            start = time.perf_counter_ns()
            run(at + number * _STEP_BYTES, 1, table)
            end = time.perf_counter_ns()
            facts = _facts(step, known, end - start)
            control.on_node(NodeTiming(step.label, step.label, step.label, "CPUExecutionProvider", start, end, (), (), facts))

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
                inputs.append(self._array(context, view, known))
                if view.buffer.kind != "constant":
                    lent.append(inputs[-1])
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

    def _set_up(self, context: Context, known: Mapping[str, int], *, again: bool = False) -> None:
        """Evaluate all sizes and lay out the arena for them; nothing to do if they are those of the run before.

        `again` is for sizes that became known in the middle of a run: what lies in the arena stays.
        """
        symbols = tuple(known.get(name, _UNKNOWN) for name in self.plan.symbols)
        if symbols == context.known and not self._late_symbols:
            return
        self.core.evaluate(context, symbols, lambda one, other: self._is_open(one, other, known))
        if not again:
            self.core.place(context)
        ready = tuple(n for n, needs in self._late_buffers.items() if not context.bases[n] and needs <= known.keys())
        if ready:
            self.core.place_late(context, ready)

    def _is_open(self, size: int, target: int, known: Mapping[str, int]) -> bool:
        """Whether a check must wait for sizes that a host step will tell."""
        return bool((symbols_of(self.plan.dims[size]) | symbols_of(self.plan.dims[target])) - known.keys())

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
            context.bases[self._by_value[value]] = address_of(array)
        return outputs

    def _rebase(self, context: Context, values: Mapping[Value, Any]) -> None:
        """The addresses of what host steps have made so far."""
        for value, result in values.items():
            number = self._by_value.get(value)
            if number is not None and isinstance(result, np.ndarray) and self.plan.buffers[number].kind == "host":
                context.bases[number] = address_of(result)


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


def bind_shape(known: dict[str, int], view: View, shape: Sequence[int]) -> bool:
    """Learn the sizes of symbols from an actual shape; whether any was new. Kernels rely on them: a contradiction is an error."""
    if len(shape) != len(view.shape):
        raise SizeConflict(f"{view.buffer.label!r} has shape {list(shape)}, expected rank {len(view.shape)}")
    learnt = False
    for dim, size in zip(view.shape, shape):
        learnt |= _bind_dim(known, dim, size, view.buffer)
    return learnt


def _bind_dim(known: dict[str, int], dim: Dim, size: int, source: Buffer) -> bool:
    if isinstance(dim, int):
        expected = dim
    elif dim.is_symbol and str(dim) not in known:
        known[str(dim)] = size
        return True
    else:
        expected = evaluate(dim, known) if not symbols_of(dim) - known.keys() else size
    if expected != size:
        raise SizeConflict(f"{source.label!r}: a dimension is {size}, but {dim} is {expected} here")
    return False
