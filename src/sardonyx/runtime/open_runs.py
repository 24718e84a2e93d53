"""Runs of short programs for arrays whose shapes change from run to run.

    runs = OpenRuns(program)
    runs(feeds)    ->    [result, ...], or None if the program's own way is to compute them

Setting a context up for other shapes takes Python longer than a short program runs. Native code does it in contexts of their own
(`staged_run`). Shapes that come twice in a row are left to the program, which is quicker still when nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.program.segments import VALUE, ProgramInput, SegmentOperand, SegmentPlan, StepSegment
from sardonyx.runtime.native_core import Array, NativeCore
from sardonyx.runtime.segment_runner import SegmentRunner

if TYPE_CHECKING:
    from sardonyx.runtime.executable import Executable, RunContext, Segments, Shapes
    from sardonyx.runtime.staged_run import StagedRun

_MOST_CONTEXTS = 8  # kept for later runs


class OpenRuns:
    """The runs of one program."""

    def __init__(self, program: Executable, names: list[str]) -> None:
        self._program, self._names = program, names
        self._free: list[tuple[RunContext, StagedRun]] = []
        self._last: Shapes | None = None
        self._is_possible = program.takes_arrays and program.finish is None and program.start is None

    def __call__(self, feeds: Mapping[str, Array]) -> list[Any] | None:
        """The results for arrays of the declared types and ranks."""
        if not self._is_possible:
            return None
        arrays = [np.asarray(feeds[name], order="C") for name in self._names]
        shapes = tuple([array.shape for array in arrays])
        if shapes == self._last:
            return None
        self._last = shapes
        try:
            context, run = self._free.pop()
        except IndexError:
            context, made = self._made(arrays)
            if made is None:
                self._is_possible = False
                return None
            run = made
        try:
            results: list[Any] | None = run(context, arrays)
        finally:
            if len(self._free) < _MOST_CONTEXTS:
                self._free.append((context, run))
        if results is None and run.is_hopeless:
            self._is_possible, self._free = False, []
        return results

    def _made(self, arrays: list[Array]) -> tuple[RunContext, StagedRun | None]:
        program = self._program
        segments: Segments = program.segments or _runner_of_steps(program.core)
        context = program.new_context()
        return context, segments.open_run(context, arrays)


def _runner_of_steps(core: NativeCore) -> SegmentRunner:
    """What runs a program that is steps alone, and has come out of a file without a plan."""
    image = core.image
    inputs = tuple([ProgramInput(port.name) for port in image.inputs])
    count = len(inputs) + len(image.outputs)
    outputs = tuple(range(len(inputs), count))
    results = tuple([SegmentOperand(VALUE, value) for value in outputs])
    steps = (StepSegment(0, core.step_count, tuple(range(len(image.symbols)))),)
    plan = SegmentPlan(inputs, count, tuple(range(len(inputs))), outputs, results, steps)
    return SegmentRunner(core, plan, (), lambda number: None)
