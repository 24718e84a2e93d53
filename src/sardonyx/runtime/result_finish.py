"""What Python does with the results of a program behind its last native step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sardonyx.program.image import ProgramImage
from sardonyx.program.segments import VALUE, BoundCall, BoundView, CallSegment, SegmentPlan, StepSegment
from sardonyx.runtime.feed_start import FeedStart
from sardonyx.runtime.native_core import ADDRESS_FIRST, Array
from sardonyx.runtime.runs import RunControl

if TYPE_CHECKING:
    from sardonyx.runtime.executable import RunContext
    from sardonyx.runtime.segment_runner import SegmentRunner

_UNCONTROLLED: Final = RunControl()
_NO_SIZES: Final[Mapping[str, int]] = {}


class ResultFinish:
    """Calls behind the last native step that make results no native code reads: labels, dictionaries of scores.

    What they read are arrays that look into the memory of a run; those of a context stay the same as long as its shapes do.
    """

    def __init__(self, runner: SegmentRunner, calls: Sequence[BoundCall]) -> None:
        self._runner = runner
        self._calls = calls
        written = {value: position for position, value in enumerate(runner.plan.native_outputs)}
        # Each result is one that native code has written, by position, or one of a call, by value.
        self._results = [(written.get(result.number, -1), result.number) for result in runner.plan.results]
        outputs = {port.buffer: position for position, port in enumerate(runner.core.image.outputs)}
        self._reads_results: list[
            list[tuple[int, int, int, BoundView | None]]
        ] = []  # which operands of each call are new in each run
        for call in calls:
            rows: list[tuple[int, int, int, BoundView | None]] = []
            for number, each in enumerate(call.inputs):
                if each.kind == VALUE:
                    rows.append((number, each.number, written.get(each.number, -1), None))
                elif each.view is not None and each.view.buffer in outputs:
                    rows.append((number, -1, outputs[each.view.buffer], each.view))
            self._reads_results.append(rows)
        self._is_quiet = all(runner.calls[call.call].is_quiet for call in calls)

    @classmethod
    def of(cls, runner: SegmentRunner, start: FeedStart | None) -> ResultFinish | None:
        """What finishes the results of a program, if it is of that form; `start` is what comes before its native steps."""
        plan, image = runner.plan, runner.core.image
        first = 0 if start is None else len(start.axes)
        steps, *calls = plan.segments[first:] or (None,)
        if not isinstance(steps, StepSegment) or not (calls or start) or not has_plain_inputs(image, plan, start):
            return None
        made = set(plan.native_outputs)
        for call in calls:
            if not isinstance(call, CallSegment) or call.captured or not runner.calls[call.call].is_plain:
                return None
        bound = [segment for segment in runner.bound.segments[first:] if isinstance(segment, BoundCall)]
        for segment in bound:
            if any(operand.kind == VALUE and operand.number not in made for operand in segment.inputs):
                return None
            for value, _, axes in segment.outputs:
                if value >= 0 and axes is not None:  # native code could read it
                    return None
                made.add(value)
        if any(result.kind != VALUE or result.number not in made for result in plan.results):
            return None
        return cls(runner, bound)

    def __call__(self, context: RunContext, written: list[Array]) -> list[Any]:
        """The results of a program, from the arrays that native code has written."""
        if self._is_quiet:
            return self._finished(context, written)
        with np.errstate(all="ignore"):
            return self._finished(context, written)

    def _finished(self, context: RunContext, written: list[Array]) -> list[Any]:
        runner = self._runner
        operands = context.operands
        if operands is None:
            lent: list[Array] = []
            operands = context.operands = []
            for call, new in zip(self._calls, self._reads_results):
                later = {number for number, _, _, _ in new}
                given = enumerate(call.inputs)
                operands.append([None if number in later else runner.operand(context, each, (), lent) for number, each in given])
        found: dict[int, Any] = {}
        for call, inputs, results_read in zip(self._calls, operands, self._reads_results):
            for number, value, position, view in results_read:
                array = written[position] if position >= 0 else found[value]
                inputs[number] = array if view is None else runner.part(context, view, array)
            computes = runner.calls[call.call]
            try:
                results = computes.compute(inputs)
            except Exception:
                results = computes(inputs, (), _NO_SIZES, _UNCONTROLLED)  # says which node it is
            for (value, _, _), result in zip(call.outputs, results):
                found[value] = detached(result, inputs)
        return [written[position] if position >= 0 else found[value] for position, value in self._results]


def has_plain_inputs(image: ProgramImage, plan: SegmentPlan, start: FeedStart | None) -> bool:
    """Whether native code reads all inputs in arrays as callers have them, and what it writes are such arrays.

    `start` reads the inputs that it does not.
    """
    read = () if start is None else start.names
    return (
        ADDRESS_FIRST
        and plan.native_inputs == tuple(number for number, each in enumerate(plan.inputs) if each.name not in read)
        and all(given.default < 0 for given in plan.inputs)
        and all(port.numpy_type.isbuiltin == 1 for port in image.outputs)
    )


def detached(result: Any, lent: Sequence[Any]) -> Any:
    """A host step's result without views of memory that will be used for something else; sequences are looked through."""
    if isinstance(result, np.ndarray):
        if result.dtype == object:  # texts are no memory of a run
            return result
        has_own_memory = result.base is None  # what is lent looks into that of the run
        for array in lent:
            if result is array or (not has_own_memory and np.may_share_memory(result, array)):
                return result.copy()
        return result
    if isinstance(result, list) and not (result and type(result[0]) is dict):  # dictionaries hold numbers
        return [detached(item, lent) for item in result]
    return result
