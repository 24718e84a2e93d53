"""Runs that find the sizes of the run before again.

A program whose sizes are told in the middle of a run has native steps, a look at what they have counted, and native steps again.
If shapes and sizes were those of the run before, the next run begins as if they will be once more: memory is laid out, results
are allocated, and between the native segments the counted numbers only have to be the same. The first that is not ends it:
the run goes on from there as any other does (`SegmentRunner.run_from`), and nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sardonyx.codegen.blocks import BLOCK_COUNT, BLOCK_POOL, BLOCK_STEPS, STEP_ENTRIES
from sardonyx.program.segments import BoundNative, BoundSizes
from sardonyx.runtime.native_core import Array, address_of, new_array, number_at

if TYPE_CHECKING:
    from sardonyx.runtime.executable import RunContext
    from sardonyx.runtime.segment_runner import SegmentRunner


class RepeatedSizes:
    """What a context is set up for: how its next run goes if it finds the same sizes."""

    __slots__ = ("_core", "_parts", "_results", "_runner")

    def __init__(self, runner: SegmentRunner, context: RunContext, entries: Array) -> None:
        self._runner, self._core = runner, runner.core
        sizes = context.sizes
        context.binds[:, 2] = context.dims[entries[:, 2]]
        self._results = [(tuple([sizes[dim] for dim in output.dims]), output.dtype) for output in runner.bound.outputs]
        inputs = {given.buffer: position for position, given in enumerate(runner.bound.inputs)}
        # Each segment: where its steps begin and how many there are; or what was counted: the input it stands in or -1, where in
        # memory it stands otherwise, the numbers, and how many stages of sizes were set up before it.
        self._parts: list[tuple[bool, int, int, Any, int]] = []
        stage, known = 0, context.stages[0].known
        for segment in runner.bound.segments:
            if isinstance(segment, BoundNative):
                first = self._core.steps_address + segment.first * 8 * STEP_ENTRIES
                self._parts.append((True, first, segment.steps, None, 0))
                continue
            assert isinstance(segment, BoundSizes)
            numbers = [sizes[dim] for dim in segment.axes.dims]
            address = int(context.bases[segment.counts])
            self._parts.append((False, inputs.get(segment.counts, -1), address, numbers, stage))
            if any(symbol >= 0 and not known >> symbol & 1 for symbol in segment.axes.symbols):
                stage += 1
                known = context.stages[stage].known

    def run(self, context: RunContext, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for arrays of the same shapes as before."""
        results = [new_array(shape, dtype) for shape, dtype in self._results]
        block, core = context.block_view, self._core
        context.point_to(arrays, results)
        for number, (is_native, first, second, numbers, stage) in enumerate(self._parts):
            if is_native:
                block[BLOCK_STEPS], block[BLOCK_COUNT] = first, second
                if context.alone:
                    core.pool.launch_alone(context.block_address)
                else:
                    core.pool.launch(context.block_address, block, BLOCK_POOL)
                if core.image.faults:
                    core.raise_fault(context)
            else:
                address = second if first < 0 else address_of(arrays[first])
                for expected in numbers:
                    if number_at(address).value != expected:
                        return self._runner.run_from(context, arrays, results, number, stage)
                    address += 8
        return results
