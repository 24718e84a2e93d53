"""Runs a program segment by segment: one call into native code for every series of steps between what Python does.

A context (see `executable`) remembers the sizes it was set up for; a run with the same sizes only fills in the addresses of
inputs and outputs.

Sizes that only the data can tell (how many elements NonZero found) are bound when a kernel has counted them or a call's result
is there; values whose sizes become known together then get an arena of their own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.forks import cached_property
from sardonyx.mapped_file import aligned_array
from sardonyx.program.image import ProgramImage
from sardonyx.program.segments import (
    CONSTANT,
    OMITTED,
    VALUE,
    Axes,
    BoundCall,
    BoundNative,
    BoundSegments,
    BoundSizes,
    BoundView,
    CallSegment,
    Segment,
    SegmentOperand,
    SegmentPlan,
    SizeSegment,
    StepSegment,
)
from sardonyx.program.sizes import SYMBOL
from sardonyx.runtime.captures import Captures
from sardonyx.runtime.executable import Executable, RunContext
from sardonyx.runtime.feed_start import FeedStart
from sardonyx.runtime.long_runs import in_parts
from sardonyx.runtime.mixed_program import MixedProgram
from sardonyx.runtime.native_core import (
    Array,
    NativeCore,
    RunMemory,
    SizeConflict,
    address_of,
    number_at,
)
from sardonyx.runtime.repeated_sizes import RepeatedSizes
from sardonyx.runtime.result_finish import ResultFinish, detached, has_plain_inputs
from sardonyx.runtime.runs import RunControl, borrowed, never, owned

if TYPE_CHECKING:
    from sardonyx.runtime.host_calls import Call
    from sardonyx.runtime.node_timing import NodeTiming
    from sardonyx.runtime.staged_run import StagedRun

_STEP_BYTES = 32
_UNKNOWN = 0  # stands for a size that a later step will tell; every entry computed from it is computed again then
_READ: Final = 0x100  # PyBUF_READ

_UNCONTROLLED: Final = RunControl()
# Operators on texts that native functions compute (`text_steps`)
_TEXT_STEPS: Final = frozenset(
    ("Cast", "RegexFullMatch", "StringSplit", "MurmurHash3", "Tokenizer", "TextPositions", "TokenCounts")
)
_NO_SIZES: Final[Mapping[str, int]] = {}

_memory_at = ctypes.pythonapi.PyMemoryView_FromMemory
_memory_at.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_memory_at.restype = ctypes.py_object

Timing = Callable[[int, Mapping[str, int], int, int], "NodeTiming"]  # step, sizes, start and end -> what is told of it


class KnownSizes:
    """What a context was set up for at some point of a run: the symbols known by then, and their values."""

    __slots__ = ("known", "late_used", "symbols")

    def __init__(self, known: int, symbols: list[int], late_used: int) -> None:
        self.known = known
        self.symbols = symbols
        self.late_used = late_used  # how many late arenas were taken by then


def run_named(program: Executable, feeds: Mapping[str, Any], control: RunControl) -> list[Any]:
    """The results of a program for feeds by name, which were checked; they share no memory with those, nor with weights."""
    if isinstance(program, MixedProgram):
        return program.run_named(feeds, control)
    runner = program.segments
    assert isinstance(runner, SegmentRunner)
    given = [borrowed(feeds[each.name]) if each.name in feeds else runner.constant(each.default) for each in runner.plan.inputs]
    with np.errstate(all="ignore"):
        return owned(program.run_values(given, control))


def executable_of(runner: SegmentRunner) -> Executable:
    """A program that a runner of its segments runs."""
    image, plan = runner.core.image, runner.plan
    known = {symbol for symbol, _, _ in image.bindings.tolist()}
    rows, results = image.sizes.rows, image.sizes.results
    is_one_call = is_native = True
    for segment in plan.segments:
        is_one_call = is_one_call and isinstance(segment, StepSegment)
        is_native = is_native and not isinstance(segment, CallSegment)
        if isinstance(segment, SizeSegment):
            known.update(rows[results[dim]][1] for dim in segment.sizes.dims if rows[results[dim]][0] == SYMBOL)
    start = FeedStart.of(runner) if plan.segments and isinstance(plan.segments[0], CallSegment) else None
    if start is not None:
        known.update(symbol for axes in start.axes for symbol in axes.symbols if symbol >= 0)
    is_native = is_native and len(known) == len(image.symbols)
    takes_arrays = is_native and _has_plain_ends(image, plan)
    finish = None if is_native or len(known) != len(image.symbols) else ResultFinish.of(runner, start)
    if finish is None:
        start = None
    elif start is not None:
        axes = start.axes
        runner.core.add_inputs([each.label for each in axes], [each.dims for each in axes], [each.symbols for each in axes])
    if not is_native and finish is None:
        _quicken(runner)
    # What is passed through may be presented in another form: a sparse tensor.
    made = all(result.kind == VALUE and result.number >= len(plan.inputs) for result in plan.results)
    if not is_native and finish is None and made:
        return MixedProgram(runner.core, runner, plan.inputs, runner.constant)
    is_one_call = (is_one_call and is_native) or finish is not None
    return Executable(runner.core, runner, is_one_call=is_one_call, takes_arrays=takes_arrays, finish=finish, start=start)


def _quicken(runner: SegmentRunner) -> None:
    """Have native functions do what nodes on texts do, where there are such."""
    native_function = runner.core.pool.native_function
    if not any(call.node.op_type in _TEXT_STEPS for call in runner.calls) or not native_function("call"):
        return
    from sardonyx.runtime.text_steps import native_step  # lazy: few programs have texts

    for call in runner.calls:
        node = call.node
        native = native_step(node.domain, node.op_type, node.attrs, native_function) if call.is_plain else None
        if native is not None:
            call.quicken(native)


def _has_plain_ends(image: ProgramImage, plan: SegmentPlan) -> bool:
    """Whether native code reads all inputs and writes all outputs, in arrays as callers have them."""
    results = [(result.kind, result.number) for result in plan.results]
    return has_plain_inputs(image, plan, None) and results == [(VALUE, value) for value in plan.native_outputs]


class SegmentRunner:
    """Runs the segments of a plan.

    `constant` gives the constants that only Python reads, by number; `bound` is what follows from the plan, if that is known
    already; `timing` describes steps.
    """

    def __init__(
        self,
        core: NativeCore,
        plan: SegmentPlan,
        calls: Sequence[Call],
        constant: Callable[[int], Any],
        bound: BoundSegments | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.core = core
        self.plan = plan
        self.calls = calls
        self.constant = constant
        self._timing = timing
        self._given = bound
        self._lasting: dict[BoundView, Array] = {}  # what calls read of constants whose sizes are numbers

    @cached_property
    def bound(self) -> BoundSegments:
        """What follows from the plan; programs that are native as a whole rarely need it."""
        return self._given or BoundSegments(self.core.image, self.plan)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each segment, in order: native, sizes, host, provider, loop or branch."""
        return tuple([self._kind(segment) for segment in self.plan.segments])

    def _kind(self, segment: Segment) -> str:
        if isinstance(segment, CallSegment):
            return self.calls[segment.call].kind
        return "native" if isinstance(segment, StepSegment) else "sizes"

    @cached_property
    def is_host_only(self) -> bool:
        """Whether runs are calls of values alone: there is no native code, nor a body that asks for sizes."""
        for segment in self.bound.segments:
            if type(segment) is not BoundCall or self.calls[segment.call].has_bodies:
                return False
            if segment.captured or any(operand.view is not None for operand in segment.inputs):
                return False
        return not self.bound.outputs

    def run(self, context: RunContext, given: Sequence[Any], control: RunControl, sizes: Mapping[str, int]) -> list[Any]:
        """The results for values in the order of the program's inputs.

        `sizes` tells symbols that the inputs' shapes alone do not: for a body, those of the graph around it.
        """
        plan = self.plan
        frame: list[Any] = [*given, *[None] * (plan.value_count - len(given))]
        if self.is_host_only:
            self._run_calls(frame, control)
            return [self._result(result, frame) for result in plan.results]
        arrays = [np.asarray(given[value], order="C") for value in plan.native_inputs]
        self._begin(context, arrays, sizes)
        for value, array in self._run_segments(context, arrays, frame, control, sizes).items():
            frame[value] = array
        return [self._result(result, frame) for result in plan.results]

    def _run_calls(self, frame: list[Any], control: RunControl) -> None:
        """Compute a program that is calls alone."""
        calls, constant, is_stoppable = self.calls, self.constant, control.terminate is not never
        for segment in self.bound.segments:
            assert type(segment) is BoundCall
            if segment.values is not None:
                inputs = [frame[number] for number in segment.values]
            else:
                inputs = [
                    frame[each.number] if each.kind == VALUE else constant(each.number) if each.kind == CONSTANT else None
                    for each in segment.inputs
                ]
            call = calls[segment.call]
            if is_stoppable:
                control.stop_if_asked(call.node.label)
            for (value, _, _), result in zip(segment.outputs, call(inputs, (), _NO_SIZES, control)):
                if value >= 0:
                    frame[value] = np.asarray(result) if isinstance(result, np.generic) else result
            for value in segment.dead:
                frame[value] = None

    def _result(self, result: SegmentOperand, frame: Sequence[Any]) -> Any:
        return self.constant(result.number) if result.kind == CONSTANT else frame[result.number]

    def run_arrays(
        self,
        context: RunContext,
        arrays: Sequence[Array],
        targets: Sequence[Array | None] = (),
        control: RunControl | None = None,
    ) -> list[Array]:
        """The outputs of a program without calls, for contiguous arrays in the order of the image's inputs.

        They are written to the targets, by position, that turn out to have their shapes and types.
        """
        self._begin(context, arrays, {})
        outputs = self._run_segments(context, arrays, [], control or _UNCONTROLLED, {}, targets)
        return [outputs[output.value] for output in self.bound.outputs]

    def repeated(self, context: RunContext, entries: Array) -> RepeatedSizes | None:
        """How the next run of a program without calls goes if it finds the same sizes; None if it keeps something between runs.

        `entries` tell where the addresses of inputs and outputs stand in the table.
        """
        return None if self.core.image.states else RepeatedSizes(self, context, entries)

    def run_staged(self, context: RunContext, arrays: Sequence[Array]) -> list[Any] | None:
        """The outputs for arrays of the shapes of the run before, without Python between stages; None if that cannot be."""
        staged = context.staged
        if staged is None:
            from sardonyx.runtime.staged_run import StagedRun  # lazy: only programs with such sizes, and not in their first run

            staged = context.staged = StagedRun.of(self, context) or False
        results: list[Any] | None = staged(context, arrays) if staged else None
        if results is None and staged and staged.is_hopeless:
            context.staged = False
        return results

    def open_run(self, context: RunContext, arrays: Sequence[Array]) -> StagedRun | None:
        """How runs of a program without calls go for arrays of any shapes, in a context that serves nothing else."""
        from sardonyx.runtime.staged_run import StagedRun  # lazy: only where shapes change again and again

        self._begin(context, arrays, {})
        return StagedRun.of(self, context, is_open=True)

    def run_from(
        self, context: RunContext, arrays: Sequence[Array], results: Sequence[Array], first: int, stage: int
    ) -> list[Array]:
        """Like `run_arrays`, from a segment on that finds other sizes than the run before did.

        The segments before it have run, with the sizes of that run's first stages, and have written to those results whose sizes
        these tell.
        """
        self._begin(context, arrays, {})
        bound = context.stages[stage]
        context.known_symbols, context.symbols = bound.known, bound.symbols.copy()
        outputs: dict[int, Array] = {}
        for output, array in zip(self.bound.outputs, results):
            if not output.needs & ~bound.known:
                outputs[output.value] = array
                context.bases[output.buffer] = address_of(array)
        outputs = self._run_segments(context, arrays, [], _UNCONTROLLED, {}, (), outputs, first, stage)
        return [outputs[output.value] for output in self.bound.outputs]

    def shrink(self) -> None:
        """Give the memory that calls keep for later runs back."""
        for call in self.calls:
            call.shrink()

    def _run_segments(
        self,
        context: RunContext,
        arrays: Sequence[Array],
        frame: list[Any],
        control: RunControl,
        sizes: Mapping[str, int],
        targets: Sequence[Array | None] = (),
        made: dict[int, Array] | None = None,
        first: int = 0,
        stage: int = 0,
    ) -> dict[int, Array]:
        """The outputs that native code writes, by value; some may be `made` already, by segments before the `first`."""
        bound, core = self.bound, self.core
        bases, table = context.bases.data, context.table_view
        if context.staged:
            context.staged.forget()
        for given, array in zip(bound.inputs, arrays):
            bases[given.buffer] = address_of(array)
        outputs: dict[int, Array] = {} if made is None else made
        self._allocate_outputs(context, bases, outputs, control, targets)
        is_stoppable, has_faults = control.terminate is not never, bool(core.image.faults)
        for segment in bound.segments[first:] if first else bound.segments:
            if type(segment) is BoundNative:
                if is_stoppable:
                    control.stop_if_asked()
                if segment.needs & ~context.known_symbols:
                    self._refuse(context, segment.needs)
                dims = context.sizes
                for slot, buffer, offset in segment.moving:
                    table[slot] = bases[buffer] + dims[offset]
                self._run_steps(context, segment, control, sizes)
                if has_faults:
                    core.raise_fault(context)
                continue
            shapes: list[tuple[Axes, Sequence[int]]]
            if type(segment) is BoundCall:
                shapes = self._run_call(context, segment, frame, control, sizes)
                if not shapes:  # nothing that native code reads
                    continue
            else:
                assert type(segment) is BoundSizes
                if is_stoppable:
                    control.stop_if_asked()
                shapes = [(segment.axes, self._found(segment, bases))]
            before = context.known_symbols
            for axes, shape in shapes:
                _bind(context, axes, shape)
            if context.known_symbols != before:
                stage += 1
                self._set_up(context, stage)
            for axes, shape in shapes:
                self._check(context, axes, shape)
            if context.known_symbols != before and len(outputs) < len(bound.outputs):
                self._allocate_outputs(context, bases, outputs, control, targets)
        return outputs

    def _refuse(self, context: RunContext, needs: int) -> None:
        names = enumerate(self.core.image.symbols)
        missing = [name for number, name in names if needs & ~context.known_symbols & 1 << number]
        raise SizeConflict(f"sizes that nothing has bound: {', '.join(missing)}")

    def _begin(self, context: RunContext, arrays: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Set a context up for what the inputs' shapes tell; nothing to do if it was for the same shapes in its last run."""
        names = self.core.image.symbols
        around = [sizes.get(name, -1) for name in names] if sizes else []
        given = ([array.shape for array in arrays], around)
        if given == context.given:
            first = context.stages[0]
            context.known_symbols, context.symbols = first.known, first.symbols.copy()
            return
        context.given = context.repeated = context.staged = None  # if setting up fails, nothing may be taken for granted
        if context.loop is not None:
            context.loop.shapes = None
        context.known_symbols, context.symbols = 0, [_UNKNOWN] * len(names)
        for number, size in enumerate(around):
            if size >= 0:
                context.known_symbols |= 1 << number
                context.symbols[number] = size
        for port, array in zip(self.bound.inputs, arrays):
            _bind(context, port.axes, array.shape)
        self._set_up(context, 0)
        for port, array in zip(self.bound.inputs, arrays):
            self._check(context, port.axes, array.shape)
        context.given = given

    def _set_up(self, context: RunContext, stage: int) -> None:
        """Evaluate all sizes and lay out memory for those that became known; what has its place keeps it.

        There is nothing to do if the run before knew the same sizes at this stage and all before it.
        """
        stages, known, symbols = context.stages, context.known_symbols, context.symbols
        if stage and stage < len(stages) and stages[stage].known == known and stages[stage].symbols == symbols:
            return
        del stages[stage:]
        context.repeated = None
        core, needs = self.core, self.bound.dim_needs
        core.evaluate(context, tuple(symbols), lambda one, other: bool((needs[one] | needs[other]) & ~known))
        before = 0
        if stage:
            before, context.late_used = stages[-1].known, stages[-1].late_used
        else:
            core.place(context)
        ready = tuple([number for number, needs in self.bound.late_buffers if not needs & ~known and needs & ~before])
        if ready:
            core.place_late(context, ready)
        core.fill_addresses(context)
        stages.append(KnownSizes(known, symbols.copy(), context.late_used))

    def _check(self, context: RunContext, axes: Axes, shape: Sequence[int]) -> None:
        """Compare an actual shape with what is known of it. Kernels rely on sizes: a contradiction is an error."""
        sizes = context.sizes
        for dim, needs, size in zip(axes.dims, axes.needs, shape):
            if sizes[dim] != size and not needs & ~context.known_symbols:
                raise SizeConflict(f"{axes.label!r}: a dimension is {size}, but {self._name(dim)} is {sizes[dim]} here")

    def _name(self, dim: int) -> str:
        """How messages call a size."""
        return self.core.image.dim_texts.get(dim, "the expected size")

    def _allocate_outputs(
        self,
        context: RunContext,
        bases: memoryview,
        outputs: dict[int, Array],
        control: RunControl,
        targets: Sequence[Array | None],
    ) -> None:
        """Find arrays for the outputs whose sizes are known by now: targets that fit, or new ones."""
        sizes, unknown = context.sizes, ~context.known_symbols
        for position, output in enumerate(self.bound.outputs):
            if not output.needs & unknown and output.value not in outputs:
                shape = tuple([sizes[dim] for dim in output.dims])
                target = targets[position] if targets else None
                if target is not None and target.shape == shape and target.dtype == output.dtype:
                    array = target
                else:
                    array = control.new_array((id(self), output.value), shape, output.dtype)
                outputs[output.value] = array
                bases[output.buffer] = address_of(array)

    def _known(self, context: RunContext, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes known by now by name, with those of the graph around."""
        known = dict(sizes)
        for number, name in enumerate(self.core.image.symbols):
            if context.known_symbols >> number & 1:
                known[name] = context.symbols[number]
        return known

    def _run_steps(self, context: RunContext, segment: BoundNative, control: RunControl, sizes: Mapping[str, int]) -> None:
        at, table = self.core.steps_address + segment.first * _STEP_BYTES, context.table_address
        run = self.core.pool.run_alone if context.alone else self.core.pool.run
        if control.on_node is None or self._timing is None:
            if context.long:
                between = None if control.terminate is never else control.stop_if_asked
                in_parts(
                    segment.steps,
                    lambda first, count: run(at + first * _STEP_BYTES, count, table),
                    between,
                    lambda end: self.core.whole_part(segment.first + end) - segment.first,
                )
            else:
                run(at, segment.steps, table)
            return
        known = self._known(context, sizes)
        number, last = segment.first, segment.first + segment.steps
        while number < last:  # watched: one step at a time, but those that are done again together
            # A part may end behind a stretch's first step only if it is the whole stretch.
            count = self.core.whole_part(number + 1) - number
            start = time.perf_counter_ns()
            run(self.core.steps_address + number * _STEP_BYTES, count, table)
            end = time.perf_counter_ns()
            control.on_node(self._timing(number, known, start, end))
            number += count

    def _run_call(
        self, context: RunContext, segment: BoundCall, frame: list[Any], control: RunControl, sizes: Mapping[str, int]
    ) -> list[tuple[Axes, Sequence[int]]]:
        """Compute something in Python; the shapes of its results that native code may read."""
        lent: list[Array] = []  # memory of this run that Python sees only while the call runs
        values = segment.values
        call = self.calls[segment.call]
        inputs: Sequence[Any]
        captured: Sequence[Any] = ()
        if values is not None:
            inputs = [frame[number] for number in values]
        elif call.kind == "branch":
            read = partial(self.operand, context, frame=frame, lent=lent)
            inputs = Captures(context, segment.inputs, self._array, read, lent)
            captured = Captures(context, segment.captured, self._array, read, lent)
        else:
            inputs = [self.operand(context, operand, frame, lent) for operand in segment.inputs]
            captured = [self.operand(context, operand, frame, lent) for operand in segment.captured]
        if control.terminate is not never:
            control.stop_if_asked(call.node.label)
        results = call(inputs, captured, self._known(context, sizes) if call.has_bodies else sizes, control)
        shapes: list[tuple[Axes, Sequence[int]]] = []
        for (value, buffer, axes), result in zip(segment.outputs, results):
            if value < 0 or (result is None and axes is not None):  # an absent optional value is None, too
                continue
            if axes is None:
                frame[value] = (
                    np.asarray(result) if isinstance(result, np.generic) else detached(result, lent) if lent else result
                )
                continue
            made = frame[value] = detached(np.asarray(result, order="C"), lent)
            context.bases[buffer] = address_of(made)
            shapes.append((axes, made.shape))
        for value in segment.dead:
            frame[value] = None
        return shapes

    def operand(self, context: RunContext, operand: SegmentOperand, frame: Sequence[Any], lent: list[Array]) -> Any:
        """What a call reads."""
        kind = operand.kind
        if kind == VALUE:
            return frame[operand.number]
        if kind == OMITTED:
            return None
        if kind == CONSTANT:
            return self.constant(operand.number)
        view = operand.view
        assert view is not None
        if not view.is_constant:
            array = self._array(context, view)
            lent.append(array)
            return array
        known = self._lasting.get(view)
        if known is None:
            known = aligned_array(self._array(context, view))
            needs = self.bound.dim_needs
            if not any(needs[dim] for dim in (*view.shape, *view.strides, view.offset)):
                self._lasting[view] = known
        return known

    def _found(self, segment: BoundSizes, bases: memoryview) -> list[int]:
        """Sizes that a kernel has found."""
        if not bases[segment.counts]:
            raise SizeConflict(f"{segment.axes.label!r}: nothing was counted")
        first = bases[segment.counts]
        found = [number_at(first + 8 * number).value for number in range(len(segment.axes.dims))]
        for size, dim in zip(found, segment.axes.dims):
            if size < 0:
                raise SizeConflict(f"{segment.axes.label!r}: {self._name(dim)} is {size}")
        return found

    def part(self, context: RunMemory, view: BoundView, whole: Array) -> Array:
        """What a view shows of an array, which is all of its buffer."""
        sizes, width = context.sizes, view.dtype.itemsize
        shape, strides = tuple([sizes[dim] for dim in view.shape]), tuple([sizes[dim] * width for dim in view.strides])
        if shape == whole.shape and strides == whole.strides and not sizes[view.offset]:
            return whole
        offset = sizes[view.offset] * width if 0 not in shape else 0
        return np.ndarray(shape, view.dtype, whole, offset, strides)

    def _array(self, context: RunMemory, view: BoundView) -> Array:
        """What lies in a view, as an array that shares its memory."""
        sizes, width = context.sizes, view.dtype.itemsize
        shape = [sizes[dim] for dim in view.shape]
        if view.is_constant:
            memory = self.core.constants[view.buffer].reshape(-1).view(np.uint8)  # not every type tells others what lies there
        else:
            base = int(context.bases[view.buffer])
            if not base:
                raise SizeConflict("a call reads what nothing has written")
            memory = _memory_at(base, max(sizes[view.size], width), _READ)
        strides = [sizes[dim] * width for dim in view.strides]
        offset = sizes[view.offset] * width if 0 not in shape else 0  # an empty part may begin behind the end
        made = np.ndarray(shape, view.dtype, memory, offset, strides)
        made.flags.writeable = False
        return made


def _bind(context: RunContext, axes: Axes, shape: Sequence[int]) -> None:
    """Learn the sizes of symbols from an actual shape."""
    if len(shape) != len(axes.dims):
        raise SizeConflict(f"{axes.label!r} has shape {list(shape)}, expected rank {len(axes.dims)}")
    for number, size in zip(axes.symbols, shape):
        if number >= 0 and not context.known_symbols >> number & 1:
            context.known_symbols |= 1 << number
            context.symbols[number] = size
