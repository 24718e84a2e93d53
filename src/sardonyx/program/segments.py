"""The segments of a program by numbers: what a run does, in order, in native code and in Python.

A native segment is a series of steps that run without coming back to Python. Between two of them sizes become known that a kernel
has found (size segment), or Python computes something (call segment): a node by its definition, the iterations of a loop, a
region of another provider; the program has a list of these calls.

What Python sees of a run is a frame, with an entry for each of the program's *values*: first its inputs, then the results of
calls and the outputs that native code writes. What else a call reads lies in the memory of the run: a `BoundView`. Sizes are the
numbers of dims (see `program.image`); everything else about them follows from the image: `BoundSegments`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Union

import numpy as np

from sardonyx.program.image import ProgramImage
from sardonyx.program.sizes import NUMBER, SYMBOL, SizeTable
from sardonyx.records import dataclass

OMITTED, VALUE, VIEW, CONSTANT = range(4)  # kinds of operands; files hold them


class BoundView(NamedTuple):
    """A view of a buffer: the dims of its shape, of its strides and offset in elements, and of its buffer's bytes."""

    buffer: int
    dtype: np.dtype[Any]
    is_constant: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size: int


class SegmentOperand(NamedTuple):
    """What a call reads or a program returns: nothing, an entry of the frame, a view, a constant that only Python reads."""

    kind: int
    number: int = -1  # of the value or constant
    view: BoundView | None = None


class Sizes(NamedTuple):
    """Sizes that a run tells: a shape, or numbers that a kernel has found. A dim that is a symbol gets its value from them."""

    label: str
    dims: tuple[int, ...]


class CallOutput(NamedTuple):
    """A result of a call: its value, and the buffer and sizes by which native code reads it."""

    value: int  # -1: nobody wants it
    buffer: int = -1
    sizes: Sizes | None = None


class StepSegment(NamedTuple):
    """Steps that run in native code; `symbols` are those that must be known by then."""

    first: int
    steps: int
    symbols: tuple[int, ...]


class SizeSegment(NamedTuple):
    """A buffer of 64-bit numbers, and the sizes that they tell."""

    counts: int
    sizes: Sizes


class CallSegment(NamedTuple):
    """Something that Python computes. `captured` is what the bodies of its node read from around them."""

    call: int
    inputs: tuple[SegmentOperand, ...]
    captured: tuple[SegmentOperand, ...]
    outputs: tuple[CallOutput, ...]


Segment = Union[StepSegment, SizeSegment, CallSegment]


class ProgramInput(NamedTuple):
    """What a program is given: its name, and the constant that stands for it if it is not (-1: it must be)."""

    name: str
    default: int = -1


class SegmentPlan(NamedTuple):
    """All that a program does in a run. Its first values are its inputs."""

    inputs: tuple[ProgramInput, ...]
    value_count: int
    native_inputs: tuple[int, ...]  # the values of the image's inputs
    native_outputs: tuple[int, ...]  # the values of the image's outputs
    results: tuple[SegmentOperand, ...]  # values and constants
    segments: tuple[Segment, ...]


# What follows from a plan and its image. A set of symbols is an integer with a bit for each, the first symbol's the lowest.


@dataclass(frozen=True, slots=True)
class Axes:
    """Sizes that a run tells, with what they are."""

    label: str
    symbols: tuple[int, ...]  # the symbol each is, or -1
    dims: tuple[int, ...]
    needs: tuple[int, ...]  # the symbols in each


@dataclass(frozen=True, slots=True)
class BoundNative:
    """A native segment. `moving` has the table slot, the buffer and the offset's dim of addresses that change with every run."""

    first: int
    steps: int
    needs: int
    moving: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class BoundSizes:
    """A size segment."""

    counts: int
    axes: Axes


@dataclass(frozen=True, slots=True)
class BoundCall:
    """A call segment; `dead` are values that nothing reads behind it."""

    call: int
    inputs: tuple[SegmentOperand, ...]
    captured: tuple[SegmentOperand, ...]
    outputs: tuple[tuple[int, int, Axes | None], ...]  # value, buffer, sizes
    dead: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BoundInput:
    """An input that native code reads."""

    value: int
    buffer: int
    axes: Axes


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """A result that native code writes, and the symbols in its shape."""

    value: int
    buffer: int
    dtype: np.dtype[Any]
    dims: tuple[int, ...]
    needs: int


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
            self.segments[position] = replace(segment, dead=tuple(values))


def _moving_slots(image: ProgramImage, buffers: set[int]) -> list[list[tuple[int, int, int]]]:
    """For each step, the addresses among its arguments of buffers that lie elsewhere in every run."""
    starts = image.steps[:, 0].tolist()
    slots: list[list[tuple[int, int, int]]] = [[] for _ in starts]
    for slot, buffer, offset in image.address_slots.tolist():
        if buffer in buffers:
            slots[bisect_right(starts, slot) - 1].append((slot, buffer, offset))
    return slots
