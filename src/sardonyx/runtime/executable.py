"""A program ready to run: one pool of contexts for every way through its segments.

A program all of whose steps are one native segment is run by a single call into native code: no dictionaries, no conversions.
`run` takes a user's feeds and only checks that nothing changed: plain contiguous arrays of the types and shapes of the last run
that was checked in full. Anything else is left to the full path (`run` gives None), which hands checked arrays to `run_checked`.
The addresses of arrays are read in native code, from the array objects.

Where Python only finishes results (a table of labels, dictionaries of scores), the single call is followed by that (`finish`);
where it looks texts up first, it comes behind that (`start`).

Other programs come back to Python between segments (see `program.segments`): for sizes that kernels find out, for nodes that
their definitions compute, for loops, for branches that are programs of their own, and for what other providers compute. A
program may have no native segment at all: that is how NumPy computes a model (see `reference_model`). `segments` runs them (see
`segment_runner`), in a context of the same pool; so do the iterations of a loop whose body the program is (see `native_loop`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sardonyx.codegen.blocks import (
    ARRAY_READABLE,
    ARRAY_WRITABLE,
    BIND_ENTRIES,
    BLOCK_COUNT,
    BLOCK_POOL,
    BLOCK_STEPS,
    STEP_ENTRIES,
)
from sardonyx.forks import importing
from sardonyx.program.image import numpy_type
from sardonyx.runtime.native_core import ADDRESS_FIRST, Array, NativeCore, RunMemory, SizeConflict, address_of

if TYPE_CHECKING:
    from sardonyx.runtime.array_call import ArrayCall
    from sardonyx.runtime.open_runs import OpenRuns
    from sardonyx.runtime.runs import RunControl
    from sardonyx.runtime.state import StateSet

Shapes = tuple[tuple[int, ...], ...]

_MOST_CONTEXTS = 8  # kept for later runs; more callers than that at once make theirs anew
_REPEATED = 8  # runs of the same types and shapes after which they get a call of their own
_VARIED = 8  # changes of shapes after which they are expected to go on
_SHORT = 100_000  # nanoseconds of a run, by estimate, up to which that is worth the memory of another context


class RunContext(RunMemory):
    """Memory of one run at a time, and what it was last set up for: a single call, segments, or a loop. Never two of these."""

    __slots__ = (
        "addresses", "binds", "block", "block_address", "block_view", "given", "known_symbols", "lasting", "loop", "object_view",
        "objects", "operands", "outputs", "repeated", "shapes", "staged", "stages", "symbols", "table_address", "table_view",
    )  # fmt: skip

    def __init__(self, core: NativeCore, entries: Array, values: int) -> None:
        super().__init__(core.image.table_size + 1, core.image.fault_entries)  # loops use the entry behind the table
        self.table_view = self.table.data
        self.table_address = address_of(self.table)
        # For the single call
        self.binds = entries.copy()
        self.objects = np.zeros(max(values, 1), np.int64)
        binds, where = self.binds.ctypes.data, self.objects.ctypes.data
        steps, count = core.steps_address, core.step_count
        self.block = np.array([steps, count, self.table_address, binds, len(entries), where, 0], np.int64)
        self.block_view = self.block.data
        self.block_address = self.block.ctypes.data
        self.object_view = self.objects.data
        self.addresses: Array | None = None  # of inputs and then outputs, for runs that are given addresses instead of arrays
        self.shapes: Shapes | None = None
        self.outputs: list[tuple[tuple[int, ...], Any]] = []
        self.operands: list[Any] | None = None  # what Python reads behind the call, as arrays that look into this memory
        # For runs segment by segment
        self.given: tuple[Any, ...] | None = None  # the shapes and sizes from around that the first stage follows from
        self.stages: list[Any] = []  # what it was set up for after each segment that bound sizes
        # The next run, if it finds the sizes of the last one again (see `repeated_sizes`); None if sizes were set up in that.
        self.repeated: Any = None
        # How runs of these shapes go without Python between stages (see `staged_run`); None before that was asked, else False.
        self.staged: Any = None
        self.known_symbols = 0  # in the run under way: a bit for each
        self.symbols: list[int] = []  # their values
        self.lasting: dict[
            Any, tuple[Any, int, Array]
        ] = {}  # arrays that look into this memory, by view: for which sizes, and where
        self.loop: Any = None  # what iterations in native code need (see `native_loop`)

    def point_to(self, arrays: Sequence[Array], results: Sequence[Array]) -> None:
        """Tell the launch which objects it takes addresses from: inputs, then outputs."""
        view, position = self.object_view, 0
        for array in arrays:
            view[position] = id(array)
            position += 1
        for array in results:
            view[position] = id(array)
            position += 1


class Segments(Protocol):
    """Runs a program segment by segment."""

    calls: Sequence[Any]  # what is computed in Python

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def run(self, context: RunContext, given: Sequence[Any], control: RunControl, sizes: Mapping[str, int]) -> list[Any]: ...

    def run_arrays(
        self,
        context: RunContext,
        arrays: Sequence[Array],
        targets: Sequence[Array | None] = (),
        control: RunControl | None = None,
    ) -> list[Array]: ...

    def repeated(self, context: RunContext, entries: Array) -> Any: ...

    def run_staged(self, context: RunContext, arrays: Sequence[Array]) -> list[Any] | None: ...

    def open_run(self, context: RunContext, arrays: Sequence[Array]) -> Any: ...

    def shrink(self) -> None: ...


class Start(Protocol):
    """Makes values that native code reads of feeds that it cannot read."""

    buffers: Sequence[int]  # where native code reads them
    names: frozenset[str]  # of the feeds

    def __call__(self, feeds: Mapping[str, Any]) -> list[Array] | None: ...


class Finish(Protocol):
    """Makes results of what native code has written."""

    def __call__(self, context: RunContext, written: list[Array]) -> list[Any]: ...


class Executable:
    """A program with its code and constants, for any number of runs at once."""

    def __init__(
        self,
        core: NativeCore,
        segments: Segments | None = None,
        *,
        is_one_call: bool = True,
        takes_arrays: bool = True,
        finish: Finish | None = None,
        start: Start | None = None,
    ) -> None:
        self.core = core
        self.finish = finish
        self.start = start
        self.keeps: Any = None  # what must live as long as it, as the memory of its code
        self.source: Any = None  # what it was compiled from, for whoever saves it
        self.takes_arrays = takes_arrays  # native code reads all inputs and writes all outputs: plain arrays are all it needs
        self.segments = segments
        self.is_one_call = is_one_call  # every run is a single call into native code
        image = core.image
        self._declared = [(port.name, numpy_type(port.dtype), len(port.dims)) for port in image.inputs]
        self._result_types = [(numpy_type(port.dtype), list(port.dims)) for port in image.outputs]
        made = () if start is None else start.buffers
        self._value_count = len(image.inputs) + len(made) + len(image.outputs)
        self._feed_count = len(image.inputs) + (0 if start is None else len(start.names))
        ports = (*(port.buffer for port in image.inputs), *made, *(port.buffer for port in image.outputs))
        positions = {buffer: position for position, buffer in enumerate(ports)}
        rows = [(slot, positions[buffer], dim) for slot, buffer, dim in image.address_slots.tolist() if buffer in positions]
        # Where the addresses of inputs and outputs stand in the table: slot, number of the value, the offset's dim.
        self._entries = np.array(rows, np.int64).reshape(-1, BIND_ENTRIES)
        inputs = {port.buffer: port.name for port in image.inputs}
        outputs = {port.buffer: position for position, port in enumerate(image.outputs)}
        # Inputs, by name, and outputs, by position, that may be the same memory.
        self._in_place = {(inputs[read], outputs[written]) for read, written in image.shared.tolist()}
        # Runs of plain arrays need nothing but this object: no segments, no dictionaries.
        self.has_fast_path = takes_arrays or finish is not None
        # Name, type and shape of each input in the last run that was checked in full, and the shapes alone.
        self._expected: tuple[list[tuple[str, Any, tuple[int, ...]]], Shapes] | None = None
        self._repeats = 0  # runs since these were other ones
        self._others = 0  # how often they were
        self._open: OpenRuns | None = None  # runs of shapes that change again and again
        self._call: ArrayCall | None = None  # does without Python what `run` does for the types and shapes it was made for
        self._launch_alone = core.pool.launch_alone
        self._has_faults = bool(image.faults)
        self._free: list[RunContext] = []
        self._free_by_address: list[RunContext] = []

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of each of its segments, in order: native, sizes, host, provider, loop or branch."""
        return ("native",) if self.segments is None else self.segments.kinds

    @property
    def constants(self) -> dict[int, Array]:
        """The arrays of constant buffers, by number; made when they are first needed."""
        return self.core.constants

    def run(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, or None if this run needs the full path."""
        call = self._call
        made: Sequence[Array] = ()
        if self.start is not None:
            try:
                found = self.start(feeds)
            except (MemoryError, OverflowError):
                return None
            if found is None:
                return None
            made = found
        if call is not None:
            written = call.run(feeds, *made)
            if written is not None:
                return written if self.finish is None else self._finished(call, written)
        expected = self._expected
        if expected is None or len(feeds) != self._feed_count:
            return self._run_declared(feeds, made)
        inputs, shapes = expected
        arrays = []
        for name, dtype, shape in inputs:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                return self._run_declared(feeds, made)
            arrays.append(array)
        if not self.is_one_call:
            try:
                return self._launch_segments(arrays, (), shapes)
            except (SizeConflict, MemoryError, OverflowError):  # sizes may turn out not to fit in the middle of any run
                return None
        self._repeats += 1
        if self._repeats == _REPEATED:
            self._make_call([*arrays, *made])
        if not made:
            return self._launch(arrays, shapes=shapes)
        try:
            return self._launch([*arrays, *made])
        except (SizeConflict, MemoryError, OverflowError):
            return None

    def _finished(self, call: ArrayCall, written: list[Array]) -> list[Any]:
        """The results of what a call has written; afterwards others may have its memory."""
        assert self.finish is not None
        try:
            return self.finish(call.context, written)
        finally:
            call.free()

    def _make_call(self, arrays: Sequence[Array]) -> None:
        """From now on runs of arrays like these are a single call from Python, if they are short and need one worker."""
        with importing:
            from sardonyx.runtime.array_call import ArrayCall, GivenArray  # lazy: not for programs that run a few times

        context = self._short_context(arrays)
        if context is None:
            return
        names = [*(name for name, _, _ in self._declared), *(None for _ in arrays[len(self._declared) :])]
        inputs = [GivenArray(name, array.dtype, array.shape) for name, array in zip(names, arrays)]
        outputs = [(dtype, shape) for shape, dtype in context.outputs]
        keeps, is_held = (self.core, self.keeps), self.finish is not None
        code = self.core.pool.native_function("call")
        self._call = ArrayCall.of(code, keeps, context, inputs, outputs, self._feed_count, is_held=is_held) or self._call

    def bound_call(self, feeds: Mapping[str, Array], targets: Sequence[Array]) -> Callable[[], list[Any] | None] | None:
        """A run of these very arrays, whose results are written to these targets, as a single call; None if it cannot be one.

        It gives None if it could not run, as one of them has changed its type, shape or place. Whoever asks for it has made sure
        that targets share no memory with feeds or other targets.
        """
        with importing:
            from sardonyx.runtime.array_call import ArrayCall, GivenArray  # lazy: not for programs that run a few times

        arrays = [feeds.get(name) for name, _, _ in self._declared]
        if self.finish is not None or not self.takes_arrays or len(feeds) != self._feed_count:
            return None
        for array, (_, dtype, rank) in zip(arrays, self._declared):
            if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != rank or not array.flags.c_contiguous:
                return None
        inputs = [array for array in arrays if array is not None]
        context = self._short_context(inputs)
        if context is None:
            return None
        if [(target.shape, target.dtype) for target in targets] != context.outputs:
            self.give(context)
            return None
        named = [
            GivenArray(name, each.dtype, each.shape, ARRAY_READABLE, address_of(each))
            for (name, _, _), each in zip(self._declared, inputs)
        ]
        written = [GivenArray(None, each.dtype, each.shape, ARRAY_WRITABLE, address_of(each)) for each in targets]
        code, keeps = self.core.pool.native_function("call"), (self.core, self.keeps)
        call = ArrayCall.of(code, keeps, context, [*named, *written], [], self._feed_count, is_held=False)
        return None if call is None else partial(call.run, feeds, *targets)

    def _short_context(self, arrays: Sequence[Array]) -> RunContext | None:
        """A context for arrays like these, for one caller's runs from now on; None if they are not short, or no single call."""
        if not self.core.pool.native_function("call") or not self.is_one_call or len(self.core.image.state):
            return None
        context = self._free.pop() if self._free else self.new_context()
        shapes = tuple([array.shape for array in arrays])
        try:
            if shapes != context.shapes:
                self._fit(context, shapes)
        except (SizeConflict, MemoryError, OverflowError):
            return None
        if context.alone and not context.short and self.core.work(context) <= _SHORT:
            return context
        self.give(context)
        return None

    def _run_declared(self, feeds: Mapping[str, Any], made: Sequence[Array]) -> list[Any] | None:
        """The outputs for arrays of the declared types and ranks; None for other feeds, and for sizes that do not fit."""
        if len(feeds) != self._feed_count:
            return None
        for name, dtype, rank in self._declared:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.ndim != rank:
                return None
        try:
            return self._run_open(feeds) or self._run_first(feeds, made)
        except (SizeConflict, MemoryError, OverflowError):
            return None  # the full path says what is wrong

    def _run_open(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs for feeds whose shapes have changed, if they have changed often; None if they are to be set up for."""
        self._others += 1
        if self._others < _VARIED:
            return None
        if self._open is None:
            with importing:
                from sardonyx.runtime.open_runs import OpenRuns  # lazy: for shapes that change again and again

            self._open = OpenRuns(self, [name for name, _, _ in self._declared])
        return self._open(feeds)

    def run_checked(
        self,
        feeds: Mapping[str, Any],
        targets: Sequence[Array | None] = (),
        shared: Mapping[int, str] | None = None,
        control: RunControl | None = None,
    ) -> list[Any]:
        """The outputs for feeds whose types and shapes fit the model; later runs of the same shapes take the fast path.

        `targets` are arrays that outputs are written to, if type and shape are theirs; whoever gives one has made sure that it is
        in C order and shares no memory with feeds or other targets. `shared` names those, by position, that are the memory of the
        feed of a name: they are written if the program appends to that feed in place. `control` may stop a run that takes long.
        """
        if self.finish is not None:
            targets, shared = (), None  # those are for outputs that native code writes
        if shared:
            refused = [position for position, name in shared.items() if (name, position) not in self._in_place]
            targets = [None if position in refused else target for position, target in enumerate(targets)]
        made: Sequence[Array] | None = () if self.start is None else self.start(feeds)
        if made is None:
            raise SizeConflict("a feed is no array of texts")
        return self._run_first(feeds, made, targets, control)

    def _run_first(
        self,
        feeds: Mapping[str, Any],
        made: Sequence[Array],
        targets: Sequence[Array | None] = (),
        control: RunControl | None = None,
    ) -> list[Any]:
        """The outputs for feeds, and what was made of them, that have not been like these before."""
        arrays = [np.asarray(feeds[name], order="C") for name, _, _ in self._declared]
        shapes = tuple([array.shape for array in arrays])
        results = self._launch([*arrays, *made], targets, None if made else shapes, control)
        self._expected = [(name, array.dtype, array.shape) for (name, _, _), array in zip(self._declared, arrays)], shapes
        self._repeats = 0
        return results

    def run_arrays(self, arrays: Sequence[Array]) -> list[Any]:
        """The outputs for checked arrays in the order of the inputs."""
        return self._launch([np.asarray(array, order="C") for array in arrays])

    @property
    def takes_addresses(self) -> bool:
        """Whether runs may be given addresses of inputs and outputs (`take_by_address`)."""
        return ADDRESS_FIRST and self.is_one_call and self.takes_arrays and self.finish is None and self.start is None

    def take_by_address(self, shapes: Shapes) -> RunContext:
        """A context for a run whose inputs have these shapes; the caller fills `addresses`, runs it, and gives it back.

        SizeConflict if the program was not made for such shapes.
        """
        try:
            context = self._free_by_address.pop()
        except IndexError:
            context = self.new_context()
            # Native code reads the address behind the header of an object: here the objects are the addresses themselves.
            context.addresses = np.zeros(len(context.objects), np.int64)
            first = address_of(context.addresses) - object.__basicsize__
            context.objects[:] = np.arange(first, first + 8 * len(context.objects), 8)
        if shapes != context.shapes:
            self._fit(context, shapes)
        return context

    def run_by_address(self, context: RunContext) -> None:
        """Run a context whose addresses are filled in, and take it back."""
        self._launch_block(context)
        self._take_back(context)

    def last_reads(self) -> list[int]:
        """For each input the last step that its address is given to; -1 if none is."""
        image = self.core.image
        last = dict.fromkeys((port.buffer for port in image.inputs), -1)
        # Every step has its arguments behind those of the step before.
        steps = np.searchsorted(image.steps[:, 0], image.address_slots[:, 0], "right") - 1
        for step, buffer in zip(steps.tolist(), image.address_slots[:, 1].tolist()):
            if buffer in last:
                last[buffer] = max(last[buffer], step)
        return [self.core.whole_part(last[port.buffer] + 1) - 1 for port in image.inputs]  # what is done again reads again

    def run_parts(self, context: RunContext, ends: Sequence[int], between: Callable[[int], None]) -> None:
        """Like `run_by_address`, in parts: each ends in front of the step of a number, and `between` is told of it."""
        block, steps, count = context.block, self.core.steps_address, self.core.step_count
        first = 0
        try:
            for part, end in enumerate((*ends, count)):
                block[BLOCK_STEPS], block[BLOCK_COUNT] = steps + first * 8 * STEP_ENTRIES, end - first
                self._launch_block(context)
                first = end
                if part < len(ends):
                    between(part)
        finally:
            block[BLOCK_STEPS], block[BLOCK_COUNT] = steps, count
        self._take_back(context)

    def _launch_block(self, context: RunContext) -> None:
        if context.short:
            self.core.pool.launch_short(context.block_address, context.block_view, BLOCK_POOL)
        elif context.alone:
            self._launch_alone(context.block_address)
        else:
            self.core.pool.launch(context.block_address, context.block_view, BLOCK_POOL)

    def _take_back(self, context: RunContext) -> None:
        if self._has_faults:
            self.core.raise_fault(context)
        if len(self._free_by_address) < _MOST_CONTEXTS:
            self._free_by_address.append(context)

    def prepare(self, arrays: Sequence[Array], states: StateSet) -> None:
        """Set the context of the next run up for these arrays and states; for one caller at a time."""
        context = self._free.pop() if self._free else self.new_context()
        context.states = states
        shapes = tuple([array.shape for array in arrays])
        try:
            if shapes != context.shapes:
                self._fit(context, shapes)
            elif self.core.place_states(context):
                self.core.fill_addresses(context)
        finally:
            context.states = None  # the context does not keep them
        self._free.append(context)

    def run_values(self, given: Sequence[Any], control: RunControl, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """The results for values in the order of the program's inputs, segment by segment; they may share memory with them.

        `sizes` tells symbols that the inputs' shapes alone do not: for a body, those of the graph around it.
        """
        assert self.segments is not None
        context = self.take()
        try:
            return self.segments.run(context, given, control, sizes or {})
        finally:
            self.give(context)

    def _launch(
        self,
        arrays: list[Array],
        targets: Sequence[Array | None] = (),
        shapes: Shapes | None = None,
        control: RunControl | None = None,
    ) -> list[Any]:
        """The outputs for arrays, whose shapes need not be looked up if they are given."""
        if not self.is_one_call:
            return self._launch_segments(arrays, targets, shapes, control)
        free = self._free
        try:
            context = free.pop()
        except IndexError:
            context = self.new_context()
        if shapes is None:
            shapes = tuple([array.shape for array in arrays])
        if shapes is not context.shapes:
            if shapes != context.shapes:
                self._fit(context, shapes)
            context.shapes = shapes  # this very tuple: the next run sees at a glance that nothing changed
        if targets:
            results = [_fitting(target, shape, dtype) for target, (shape, dtype) in zip(targets, context.outputs)]
        else:
            try:
                results = [np.empty(shape, dtype) for shape, dtype in context.outputs]
            except ValueError as error:  # NumPy's other word for sizes that cannot be had
                raise MemoryError(str(error)) from None
        context.point_to(arrays, results)
        if context.long:
            self._launch_long(context, control)
        elif context.short:
            self.core.pool.launch_short(context.block_address, context.block_view, BLOCK_POOL)
        elif context.alone:
            self._launch_alone(context.block_address)
        else:
            self.core.pool.launch(context.block_address, context.block_view, BLOCK_POOL)
        if self._has_faults:
            self.core.raise_fault(context)
        if self.finish is not None:
            results = self.finish(context, results)
        if len(free) < _MOST_CONTEXTS:
            free.append(context)
        return results

    def _launch_long(self, context: RunContext, control: RunControl | None) -> None:
        with importing:
            from sardonyx.runtime.long_runs import in_parts  # lazy: most runs are not

        block, steps, count = context.block_view, self.core.steps_address, self.core.step_count

        def run(first: int, number: int) -> None:
            block[BLOCK_STEPS], block[BLOCK_COUNT] = steps + first * 8 * STEP_ENTRIES, number
            self._launch_block(context)

        try:
            in_parts(count, run, None if control is None else control.stop_if_asked, self.core.whole_part)
        finally:
            block[BLOCK_STEPS], block[BLOCK_COUNT] = steps, count

    def _launch_segments(
        self,
        arrays: list[Array],
        targets: Sequence[Array | None] = (),
        shapes: Shapes | None = None,
        control: RunControl | None = None,
    ) -> list[Any]:
        """The outputs of a program without host steps, whose sizes become known while it runs."""
        assert self.segments is not None
        free = self._free
        try:
            context = free.pop()
        except IndexError:
            context = self.new_context()
        is_again, context.shapes = shapes is not None and shapes is context.shapes and not targets, None
        try:
            results = self.segments.run_staged(context, arrays) if is_again and context.staged is not False else None
            if results is not None:
                pass
            elif is_again and context.repeated and not context.long:
                results = context.repeated.run(context, arrays)
            else:
                if is_again:
                    context.repeated = False  # unless something has to be set up, this run finds the sizes of the one before
                results = self.segments.run_arrays(context, arrays, targets, control)
                if context.repeated is False:
                    context.repeated = self.segments.repeated(context, self._entries)
            context.shapes = shapes
        finally:
            self.give(context)
        return results

    def new_context(self) -> RunContext:
        """Memory for runs that share none with others at the same time."""
        return RunContext(self.core, self._entries, self._value_count)

    def take(self) -> RunContext:
        """A context for a run that is no single call; `give` it back."""
        try:
            context = self._free.pop()
        except IndexError:
            context = self.new_context()
        context.shapes = None  # what was set up for the single call does not hold afterwards
        return context

    def give(self, context: RunContext) -> None:
        """Keep a context for later runs."""
        if len(self._free) < _MOST_CONTEXTS:
            self._free.append(context)

    def _fit(self, context: RunContext, shapes: Shapes) -> None:
        """Set a context up for other shapes."""
        context.shapes = context.given = context.operands = None  # if setting up fails, nothing may be taken for granted
        if context.loop is not None:
            context.loop.shapes = None
        self.core.fit(context, shapes)
        context.block_view[BLOCK_POOL] = 0  # no workers, unless the pool takes part
        context.binds[:, 2] = context.dims[self._entries[:, 2]]
        sizes = context.sizes
        context.outputs = [(tuple([sizes[dim] for dim in dims]), dtype) for dtype, dims in self._result_types]
        context.shapes = shapes

    def shrink(self) -> None:
        """Give the memory kept for later runs back."""
        self._free, self._free_by_address = [], []
        self._call, self._repeats, self._others, self._open = None, 0, 0, None
        if self.segments is not None:
            self.segments.shrink()


def _fitting(target: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The target, if it has this shape and type; else a new array."""
    return target if target is not None and target.shape == shape and target.dtype == dtype else np.empty(shape, dtype)
