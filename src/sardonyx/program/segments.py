"""The segments of a program by numbers: what a run does, in order, in native code and in Python.

A native segment is a series of steps that run without coming back to Python. Between two of them sizes become known that a kernel
has found (size segment), or Python computes something (call segment): a node by its definition, the branch that a condition
chooses, the iterations of a loop, a region of another provider; the program has a list of these calls, each with its kind.

What Python sees of a run is a frame, with an entry for each of the program's *values*: first its inputs, then the results of
calls and the outputs that native code writes. What else a call reads lies in the memory of the run: a `BoundView`. Sizes are the
numbers of dims (see `program.image`); everything else about them follows from the image: `BoundSegments`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, Union

import numpy as np

from sardonyx.program.image import ProgramImage
from sardonyx.program.sizes import NUMBER, SYMBOL, SizeTable

OMITTED, VALUE, VIEW, CONSTANT = range(4)  # kinds of operands; files hold them


class BoundView:
    """A view of a buffer: the dims of its shape, of its strides and offset in elements, and of its buffer's bytes."""

    __slots__ = ("buffer", "dtype", "is_constant", "offset", "shape", "size", "strides")

    def __init__(
        self,
        buffer: int,
        dtype: np.dtype[Any],
        is_constant: bool,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        offset: int,
        size: int,
    ) -> None:
        self.buffer = buffer
        self.dtype = dtype
        self.is_constant = is_constant
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self.size = size


class SegmentOperand:
    """What a call reads, or a program gives out: nothing, an entry of the frame, a view, a constant that only Python reads."""

    __slots__ = ("kind", "number", "view")

    def __init__(self, kind: int, number: int = -1, view: BoundView | None = None) -> None:
        self.kind = kind
        self.number = number  # of the value or constant
        self.view = view


class Sizes:
    """Sizes that a run tells: a shape, or numbers that a kernel has found. A dim that is a symbol gets its value from them."""

    __slots__ = ("dims", "label")

    def __init__(self, label: str, dims: tuple[int, ...]) -> None:
        self.label = label
        self.dims = dims


class CallOutput:
    """A result of a call: its value, and the buffer and sizes by which native code reads it."""

    __slots__ = ("buffer", "sizes", "value")

    def __init__(self, value: int, buffer: int = -1, sizes: Sizes | None = None) -> None:
        self.value = value  # -1: nobody wants it
        self.buffer = buffer
        self.sizes = sizes


class StepSegment:
    """Steps that run in native code; `symbols` are those that must be known by then."""

    __slots__ = ("first", "steps", "symbols")

    def __init__(self, first: int, steps: int, symbols: tuple[int, ...]) -> None:
        self.first = first
        self.steps = steps
        self.symbols = symbols


class SizeSegment:
    """A buffer of 64-bit numbers, and the sizes that they tell."""

    __slots__ = ("counts", "sizes")

    def __init__(self, counts: int, sizes: Sizes) -> None:
        self.counts = counts
        self.sizes = sizes


class CallSegment:
    """Something that Python computes. `captured` is what the bodies of its node read from around them."""

    __slots__ = ("call", "captured", "inputs", "outputs")

    def __init__(
        self, call: int, inputs: tuple[SegmentOperand, ...], captured: tuple[SegmentOperand, ...], outputs: tuple[CallOutput, ...]
    ) -> None:
        self.call = call
        self.inputs = inputs
        self.captured = captured
        self.outputs = outputs


Segment = Union[StepSegment, SizeSegment, CallSegment]


class ProgramInput:
    """What a program is given: its name, and the constant that stands for it if it is not (-1: it must be)."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: int = -1) -> None:
        self.name = name
        self.default = default


class SegmentPlan:
    """All that a program does in a run. Its first values are its inputs."""

    __slots__ = ("inputs", "native_inputs", "native_outputs", "results", "segments", "value_count")

    def __init__(
        self,
        inputs: tuple[ProgramInput, ...],
        value_count: int,
        native_inputs: tuple[int, ...],
        native_outputs: tuple[int, ...],
        results: tuple[SegmentOperand, ...],
        segments: tuple[Segment, ...],
    ) -> None:
        self.inputs = inputs
        self.value_count = value_count
        self.native_inputs = native_inputs  # the values of the image's inputs
        self.native_outputs = native_outputs  # the values of the image's outputs
        self.results = results  # values and constants
        self.segments = segments


# What follows from a plan and its image. A set of symbols is an integer with a bit for each, the first symbol's the lowest.


class Axes:
    """Sizes that a run tells, with what they are."""

    __slots__ = ("dims", "label", "needs", "symbols")

    def __init__(self, label: str, symbols: tuple[int, ...], dims: tuple[int, ...], needs: tuple[int, ...]) -> None:
        self.label = label
        self.symbols = symbols  # the symbol each is, or -1
        self.dims = dims
        self.needs = needs  # the symbols in each


class BoundNative:
    """A native segment. `moving` has the table slot, the buffer and the offset's dim of addresses that change with every run."""

    __slots__ = ("first", "moving", "needs", "steps")

    def __init__(self, first: int, steps: int, needs: int, moving: tuple[tuple[int, int, int], ...]) -> None:
        self.first = first
        self.steps = steps
        self.needs = needs
        self.moving = moving


class BoundSizes:
    """A size segment."""

    __slots__ = ("axes", "counts")

    def __init__(self, counts: int, axes: Axes) -> None:
        self.counts = counts
        self.axes = axes


class BoundCall:
    """A call segment; `dead` are values that nothing reads behind it, `values` its inputs if it reads but the frame."""

    __slots__ = ("call", "captured", "dead", "inputs", "outputs", "values")

    def __init__(
        self,
        call: int,
        inputs: tuple[SegmentOperand, ...],
        captured: tuple[SegmentOperand, ...],
        outputs: tuple[tuple[int, int, Axes | None], ...],
        dead: tuple[int, ...],
    ) -> None:
        self.call = call
        self.inputs = inputs
        self.captured = captured
        self.outputs = outputs  # value, buffer, sizes
        self.dead = dead
        from_frame = not captured and all(operand.kind == VALUE for operand in inputs)
        self.values = [operand.number for operand in inputs] if from_frame else None


class BoundInput:
    """An input that native code reads."""

    __slots__ = ("axes", "buffer", "value")

    def __init__(self, value: int, buffer: int, axes: Axes) -> None:
        self.value = value
        self.buffer = buffer
        self.axes = axes


class BoundOutput:
    """A result that native code writes, and the symbols in its shape."""

    __slots__ = ("buffer", "dims", "dtype", "needs", "value")

    def __init__(self, value: int, buffer: int, dtype: np.dtype[Any], dims: tuple[int, ...], needs: int) -> None:
        self.value = value
        self.buffer = buffer
        self.dtype = dtype
        self.dims = dims
        self.needs = needs


BoundSegment = Union[BoundNative, BoundSizes, BoundCall]

_NOTHING: Final = 0


def symbols_of_dims(sizes: SizeTable) -> list[int]:
    """The symbols that each size of a table depends on."""
    found: list[int] = []
    for op, a, b in sizes.rows:
        found.append(_NOTHING if op == NUMBER else 1 << a if op == SYMBOL else found[a] | found[b])
    return [found[row] for row in sizes.results]


class BoundSegments:
    """The segments of a program with all that running them asks for: nothing is looked up by name while they run."""

    def __init__(self, image: ProgramImage, plan: SegmentPlan) -> None:
        self.plan = plan
        self.dim_needs = symbols_of_dims(image.sizes)
        rows, results = image.sizes.rows, image.sizes.results
        self._symbols = [rows[row][1] if rows[row][0] == SYMBOL else -1 for row in results]
        self.inputs = [
            BoundInput(value, port.buffer, self._axes(Sizes(port.name, port.dims)))
            for value, port in zip(plan.native_inputs, image.inputs)
        ]
        self.outputs = [
            BoundOutput(value, port.buffer, port.numpy_type, port.dims, self._needs(port.dims))
            for value, port in zip(plan.native_outputs, image.outputs)
        ]
        made = [output for segment in plan.segments if isinstance(segment, CallSegment) for output in segment.outputs]
        ports = [port.buffer for port in (*image.inputs, *image.outputs)]
        moving = _moving_slots(image, {*ports, *(output.buffer for output in made)})
        self.segments = [self._bound(segment, moving) for segment in plan.segments]
        self._drop_early()
        arena_sizes = dict(image.arena[:, :2].tolist())
        # Buffers that get their places in the middle of a run, with the symbols in their sizes.
        self.late_buffers = [(number, self.dim_needs[arena_sizes[number]]) for number in image.late[:, 0].tolist()]

    def _needs(self, dims: Sequence[int]) -> int:
        needs = 0
        for dim in dims:
            needs |= self.dim_needs[dim]
        return needs

    def _axes(self, sizes: Sizes) -> Axes:
        dims = sizes.dims
        symbols = tuple([self._symbols[dim] for dim in dims])
        return Axes(sizes.label, symbols, dims, tuple([self.dim_needs[dim] for dim in dims]))

    def _bound(self, segment: Segment, moving: Sequence[Sequence[tuple[int, int, int]]]) -> BoundSegment:
        if isinstance(segment, SizeSegment):
            return BoundSizes(segment.counts, self._axes(segment.sizes))
        if isinstance(segment, StepSegment):
            slots = [slot for step in moving[segment.first : segment.first + segment.steps] for slot in step]
            needs = sum(1 << symbol for symbol in segment.symbols)
            return BoundNative(segment.first, segment.steps, needs, tuple(slots))
        outputs = [
            (output.value, output.buffer, None if output.sizes is None else self._axes(output.sizes))
            for output in segment.outputs
        ]
        return BoundCall(segment.call, segment.inputs, segment.captured, tuple(outputs), ())

    def _drop_early(self) -> None:
        """Note behind which call the results of calls are read for the last time; native code reads them by their buffers."""
        kept = {operand.number for operand in self.plan.results if operand.kind == VALUE}
        buffers: dict[int, int] = {}  # of results that native code reads -> their values
        last: dict[int, int] = {}
        calls: list[int] = []
        for position, segment in enumerate(self.segments):
            if isinstance(segment, BoundNative):
                for _, buffer, _ in segment.moving:
                    if buffer in buffers:
                        last[buffers[buffer]] = position
            elif isinstance(segment, BoundCall):
                calls.append(position)
                for operand in (*segment.inputs, *segment.captured):
                    if operand.kind == VALUE:
                        last[operand.number] = position
                    elif operand.view is not None and operand.view.buffer in buffers:
                        last[buffers[operand.view.buffer]] = position
                for value, buffer, _ in segment.outputs:
                    if value >= 0:
                        last[value] = position
                        if buffer >= 0:
                            buffers[buffer] = value
        dead: dict[int, list[int]] = {}
        for value, position in last.items():
            after = next((call for call in calls if call >= position), -1)
            if value not in kept and value >= len(self.plan.inputs) and after >= 0:
                dead.setdefault(after, []).append(value)
        for position, values in dead.items():
            segment = self.segments[position]
            assert isinstance(segment, BoundCall)
            segment.dead = tuple(values)


def _moving_slots(image: ProgramImage, buffers: set[int]) -> list[list[tuple[int, int, int]]]:
    """For each step, the addresses among its arguments of buffers that lie elsewhere in every run."""
    starts = image.steps[:, 0].tolist()
    slots: list[list[tuple[int, int, int]]] = [[] for _ in starts]
    for slot, buffer, offset in image.address_slots.tolist():
        if buffer in buffers:
            slots[bisect_right(starts, slot) - 1].append((slot, buffer, offset))
    return slots
