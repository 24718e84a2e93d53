"""A training step by address: the native programs of both passes, on memory that others own.

    run = StepRun(program)
    block = run.forward(Given(shapes, addresses, keeps), results, seed)       what backward needs lies in the block
    run.backward(block, seeds, gradients)

Nothing is checked here that the caller has checked: types and layouts of all that is at the addresses. Sizes are: a program that
was not made for the shapes raises SizeConflict, before anything is written. Everything that follows from the shapes alone is made
once for each; a step like the one before fills in addresses and is two native calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx.program.image import ALIGNMENT
from sardonyx.runtime.executable import Executable, RunContext, Shapes
from sardonyx.training.kept_memory import Departures, KeptBlock, KeptPool, departures

Spec = tuple[tuple[int, ...], Any]  # shape and type of an array

_MOST_LAYOUTS: Final = 64


class Given(NamedTuple):
    """The inputs of a forward pass: shapes, addresses, and what keeps that memory alive until backward is done."""

    shapes: Shapes
    addresses: list[int]
    keeps: Any


class StepLayout(NamedTuple):
    """What of a step follows from the shapes of its inputs."""

    results: list[Spec]  # outputs that are not kept inside
    offsets: list[int]  # of the kept values in a block
    size: int  # of the block
    backward: Shapes  # of all inputs of the backward pass
    measured: int  # inputs of the backward pass of which only the sizes count
    seeds: list[Spec]  # gradients that the backward pass takes
    departures: Departures | None  # of what is kept, if it is much


class Allocate(NamedTuple):
    """How memory for results is had: objects of some shapes and types, and the addresses of such objects."""

    make: Callable[[list[Spec]], list[Any]]
    address: Callable[[Any], int]


class StepPlan(NamedTuple):
    """What a step's passes take and give, by position."""

    results: int  # outputs of the forward pass in front of the kept values
    held: tuple[int, ...]  # inputs of the forward pass that the backward pass reads
    shapes: Callable[[Sequence[Sequence[int]]], list[tuple[int, ...]]]  # of inputs that backward only measures
    seeds: tuple[int, ...]  # outputs whose gradients the backward pass takes
    draws: bool  # whether the last input of the forward pass is the seed of its random numbers


class StepRun:
    """The two passes of a training program, if each is one native call."""

    def __init__(self, forward: Executable, backward: Executable, plan: StepPlan) -> None:
        self._forward, self._backward = forward, backward
        self._plan = plan
        self.pool = KeptPool()
        self._layouts: dict[Shapes, StepLayout] = {}
        self._last: tuple[Shapes, StepLayout] | None = None

    @property
    def last_shapes(self) -> Shapes | None:
        """The shapes of the inputs of the last forward pass."""
        return None if self._last is None else self._last[0]

    @property
    def much_kept(self) -> int:
        """The bytes that the last forward pass kept, if they were so many that memory may be short; otherwise 0."""
        last = self._last
        return 0 if last is None or last[1].departures is None else last[1].size

    def forward(self, given: Given, allocate: Allocate, seed: int = 0) -> tuple[list[Any], KeptBlock]:
        """The results, as they were allocated, and the block that backward reads."""
        shapes = given.shapes
        context = self._forward.take_by_address(shapes)
        last = self._last
        layout = last[1] if last is not None and last[0] is shapes else self._layout(shapes, context.outputs)
        block = self.pool.take(layout.size)
        results = allocate.make(layout.results)
        base = block.address
        addresses = given.addresses
        if self._plan.draws:
            block[:8].view(np.int64)[0] = seed
            addresses[-1] = base
        kept = [base + offset for offset in layout.offsets]
        _write(context, [*addresses, *map(allocate.address, results), *kept])
        # Nothing is read of what backward only measures.
        block.run = (
            layout,
            [*kept, *[addresses[position] for position in self._plan.held], *[base] * layout.measured],
            given.keeps,
        )
        self._forward.run_by_address(context)
        self.pool.watch(block)
        return results, block

    def backward(self, block: KeptBlock, seeds: Sequence[int], allocate: Allocate, *, is_last: bool = False) -> list[Any]:
        """The gradients, as they were allocated, for the addresses of the gradients of the outputs.

        `is_last` says that nobody will ask for them again: then, if much is kept, memory goes back to the system on the way.
        """
        layout, inputs, keeps = block.run
        context = self._backward.take_by_address(layout.backward)
        results = allocate.make(context.outputs)
        _write(context, [*inputs, *seeds, *map(allocate.address, results)])
        leaving: Departures | None = layout.departures
        if leaving is None or not is_last:
            self._backward.run_by_address(context)
            return results
        block.run = None  # if this pass is broken off there is no other
        self._backward.run_parts(context, leaving.ends, lambda part: leaving.leave(block, part))
        del keeps  # what the pass has read had to live so long
        return results

    def seeds_of(self, block: KeptBlock) -> list[Spec]:
        """Shapes and types of the gradients that backward takes for this run."""
        layout: StepLayout = block.run[0]
        return layout.seeds

    def _layout(self, shapes: Shapes, outputs: list[Spec]) -> StepLayout:
        found = self._layouts.get(shapes)
        if found is None:
            plan = self._plan
            kept = outputs[plan.results :]
            sizes = [-(-_bytes_of(each) // ALIGNMENT) * ALIGNMENT for each in kept]
            *offsets, size = accumulate(sizes, initial=ALIGNMENT)  # the first line is for the seed
            seeds = [outputs[position] for position in plan.seeds]
            held = [shapes[position] for position in plan.held]
            measured = plan.shapes(shapes)
            backward = (*(shape for shape, _ in kept), *held, *measured, *(shape for shape, _ in seeds))
            leaving = departures(offsets, size, self._backward.last_reads()[: len(kept)])
            found = StepLayout(outputs[: plan.results], offsets, size, backward, len(measured), seeds, leaving)
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.pop(next(iter(self._layouts)), None)
            self._layouts[shapes] = found
        self._last = shapes, found
        return found


def _write(context: RunContext, addresses: list[int]) -> None:
    """Fill in the addresses of inputs and outputs; with few of them NumPy would take several times as long."""
    assert context.addresses is not None
    count = len(addresses)
    struct = _STRUCTS.get(count)
    if struct is None:
        struct = _STRUCTS[count] = Struct(f"={count}q")
    struct.pack_into(context.addresses.data, 0, *addresses)


_STRUCTS: Final[dict[int, Struct]] = {}  # by the number of addresses


def _bytes_of(spec: Spec) -> int:
    shape, dtype = spec
    return int(np.prod(shape, dtype=np.int64)) * int(np.dtype(dtype).itemsize)
