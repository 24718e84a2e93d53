"""The segments of a plan by numbers, for runs that come back to Python: nothing is looked up by name while they run.

A set of symbols is an integer with a bit for each, the first symbol's the lowest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np

from sardonyx.ir.dims import Dim, DimExpr, symbols_of
from sardonyx.ir.graph import Value
from sardonyx.plan.native import NativePlan, NativeSegment
from sardonyx.program.steps import Address, HostNodeStep, SizeStep, Storage, View

_MOVING = (Storage.INPUT, Storage.OUTPUT, Storage.HOST)  # buffers that lie elsewhere in every run


@dataclass(frozen=True, slots=True)
class Axes:
    """Sizes that a run tells: a shape, or numbers that a kernel has found. One that is a symbol tells its value."""

    label: str
    symbols: tuple[int, ...]  # the symbol each is, or -1
    dims: tuple[int, ...]
    needs: tuple[int, ...]  # the symbols in each


@dataclass(frozen=True, slots=True)
class BoundView:
    """A view: the dims of its shape, of its strides and offset in elements, and of its buffer's bytes."""

    buffer: int
    dtype: np.dtype[Any]
    is_constant: bool
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class BoundNativeSegment:
    """Steps that run in native code. `moving` has the table slot, the buffer and the offset's dim of addresses."""

    first: int
    count: int
    needs: int
    moving: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class BoundSizeStep:
    """Numbers in a buffer that tell sizes."""

    counts: int
    axes: Axes


@dataclass(frozen=True, slots=True)
class BoundHostStep:
    """A node that Python computes."""

    step: HostNodeStep
    inputs: tuple[tuple[Value | None, BoundView | None], ...]
    captured: tuple[tuple[Value, BoundView], ...]
    outputs: tuple[tuple[Value, Axes | None, int], ...]  # with the number of the buffer


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """A result that native code writes, and the symbols in its shape."""

    value: Value
    buffer: int
    dtype: np.dtype[Any]
    dims: tuple[int, ...]
    needs: int


BoundSegment: TypeAlias = Union[BoundNativeSegment, BoundSizeStep, BoundHostStep]


class BoundSegments:
    """All that a run of a plan does, in order."""

    def __init__(self, plan: NativePlan) -> None:
        self._plan = plan
        self._buffers = {buffer: number for number, buffer in enumerate(plan.buffers)}
        self._dims = {dim: number for number, dim in enumerate(plan.dims)}
        self._bits = {name: 1 << number for number, name in enumerate(plan.symbols)}
        self.dim_needs = [self._needs(dim) for dim in plan.dims]
        self.inputs = [
            (self._value(view), self._buffers[view.buffer], self._axes(view.buffer.label, view.shape)) for view in plan.inputs
        ]
        self.outputs = [self._output(view) for view in plan.outputs]
        moving = self._moving()
        self.segments = [self._bound(segment, moving) for segment in plan.segments]

    def _needs(self, dim: Dim) -> int:
        """The symbols in a dim."""
        return sum(self._bits[name] for name in symbols_of(dim))

    def _value(self, view: View) -> Value:
        assert view.buffer.value is not None
        return view.buffer.value

    def _axes(self, label: str, sizes: Sequence[Dim]) -> Axes:
        symbols = [str(size) if isinstance(size, DimExpr) and size.is_symbol else "" for size in sizes]
        numbers = [self._bits[name].bit_length() - 1 if name else -1 for name in symbols]
        return Axes(label, tuple(numbers), self._numbers(sizes), tuple(self._needs(size) for size in sizes))

    def _numbers(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        return tuple(self._dims[dim] for dim in dims)

    def _place(self, view: View) -> BoundView:
        buffer, number = view.buffer, self._buffers[view.buffer]
        shape, strides, offset = self._numbers(view.shape), self._numbers(view.strides), self._dims[view.offset]
        is_constant = buffer.storage is Storage.CONSTANT
        return BoundView(number, buffer.dtype.numpy, is_constant, shape, strides, offset, self._plan.sizes[number])

    def _output(self, view: View) -> BoundOutput:
        needs = 0
        for size in view.shape:
            needs |= self._needs(size)
        number = self._buffers[view.buffer]
        return BoundOutput(self._value(view), number, view.buffer.dtype.numpy, self._numbers(view.shape), needs)

    def _bound(
        self, segment: NativeSegment | HostNodeStep | SizeStep, moving: Sequence[Sequence[tuple[int, int, int]]]
    ) -> BoundSegment:
        if isinstance(segment, SizeStep):
            return BoundSizeStep(self._buffers[segment.counts], self._axes(segment.counts.label, segment.sizes))
        if isinstance(segment, NativeSegment):
            end = segment.first + segment.count
            slots = tuple(slot for step in moving[segment.first : end] for slot in step)
            return BoundNativeSegment(segment.first, segment.count, self._needs_of(segment), slots)
        inputs = [
            (value, None if view is None else self._place(view)) for value, view in zip(segment.node.inputs, segment.inputs)
        ]
        captured = [(value, self._place(view)) for value, view in segment.captured]
        outputs = [
            (value, None, -1) if view is None else (value, self._axes(view.buffer.label, view.shape), self._buffers[view.buffer])
            for value, view in zip(segment.node.outputs, segment.outputs)
        ]
        return BoundHostStep(segment, tuple(inputs), tuple(captured), tuple(outputs))

    def _needs_of(self, segment: NativeSegment) -> int:
        """The symbols that must be known before a segment runs."""
        sizes: set[Dim] = set()
        for step in self._plan.steps[segment.first : segment.first + segment.count]:
            sizes |= {step.units, *(entry.offset if isinstance(entry, Address) else entry for entry in step.arguments)}
            sizes |= {buffer.size for buffer in (*step.reads, *step.writes)}
        needs = 0
        for size in sizes:
            needs |= self._needs(size)
        return needs

    def _moving(self) -> list[list[tuple[int, int, int]]]:
        """For each step, the addresses among its arguments that are others in every run."""
        starts = [arguments for arguments, _ in self._plan.step_slots]
        slots: list[list[tuple[int, int, int]]] = [[] for _ in starts]
        for entry in self._plan.address_slots:
            if self._plan.buffers[entry.buffer].storage in _MOVING:
                slots[bisect_right(starts, entry.slot) - 1].append((entry.slot, entry.buffer, entry.offset))
        return slots
