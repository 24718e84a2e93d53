"""Runs a plan on the caller's thread: one frame a run, values dropped after their last use.

Feeds and constants enter as read-only arrays. Whatever leaves the program and is still read-only is therefore somebody
else's memory (an input or a weight passed through) and is copied; so is the second of two results that share memory.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from sardonyx import errors
from sardonyx.ops.interruption import interruptible
from sardonyx.plan.plan import OMITTED, Constant, ExecutionPlan, HostStep, Port, Schedule, SubgraphRunner, schedule
from sardonyx.records import dataclass
from sardonyx.runtime.runs import RunControl, borrowed, never, owned

_TOO_BIG = "array is too big"  # NumPy's words for sizes beyond every memory, in a ValueError
_SCHEDULES_KEPT = 64  # distinct sets of fetches whose schedules a program remembers


@dataclass(frozen=True, slots=True)
class NodeTiming:
    """What a run reports about one node: times are from `time.perf_counter_ns`."""

    label: str
    op_type: str
    name: str
    provider: str
    start_ns: int
    end_ns: int
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  # of a kernel: its kind, the nodes in it, bytes, operations


class Program:
    """A compiled model. `run` may be called from several threads at once; after a fork it goes on working."""

    def __init__(self, plan: ExecutionPlan) -> None:
        self.plan = plan
        self._schedules: dict[tuple[int, ...], Schedule] = {}

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What must be fed."""
        return self.plan.input_ports

    @property
    def outputs(self) -> tuple[Port, ...]:
        """What the model gives."""
        return self.plan.output_ports

    @property
    def overridable_initializers(self) -> tuple[Port, ...]:
        """Weights that a feed of the same name replaces."""
        return self.plan.overridable_ports

    @property
    def node_count(self) -> int:
        """How many nodes the model has, bodies not counted."""
        return len(self.plan.steps)

    def run_fast(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """There is no shorter way than `run`."""
        return None

    def shrink(self) -> None:
        """Nothing is kept between runs."""

    def run(self, feeds: Mapping[str, Any], fetches: Sequence[str], control: RunControl | None = None) -> list[Any]:
        """Compute the named values from the feeds; any named value of the top-level graph may be fetched."""
        plan = self.plan
        wanted = []
        for name in fetches:
            slot = plan.names.get(name)
            if slot is None:
                raise errors.InvalidArgument(
                    f"no value is called {name!r}; outputs are: {', '.join(port.name for port in plan.output_ports)}",
                    hint="any intermediate value may be fetched too, by its name in the model",
                )
            wanted.append(slot)
        steps = self._schedule(tuple(wanted))
        frame: list[Any] = [None] * plan.slots
        for slot, constant in plan.constants:
            frame[slot] = constant
        for name, value in feeds.items():
            frame[plan.names[name]] = borrowed(value)
        with np.errstate(all="ignore"):
            _execute(steps, frame, control or RunControl())
        return owned([_read(frame, slot) for slot in wanted])

    def _schedule(self, wanted: tuple[int, ...]) -> Schedule:
        if wanted == self.plan.outputs:
            return self.plan.schedule
        found = self._schedules.get(wanted)
        if found is None:
            if len(self._schedules) >= _SCHEDULES_KEPT:
                self._schedules.clear()
            found = self._schedules[wanted] = schedule(self.plan.steps, self.plan.constants, wanted)
        return found


def _read(frame: list[Any], slot: int) -> Any:
    value = frame[slot]
    return value.value if type(value) is Constant else value


def run_step(step: HostStep, inputs: Sequence[Any], bodies: Mapping[str, SubgraphRunner], control: RunControl) -> tuple[Any, ...]:
    """The outputs of one step. What goes wrong is told with the node's name."""
    on_node = control.on_node
    start = time.perf_counter_ns() if on_node is not None else 0
    try:
        if control.terminate is never:
            outputs = step.call(inputs, bodies)
        else:
            with interruptible(control.stop_if_asked):
                outputs = step.call(inputs, bodies)
    except errors.SardonyxError:
        raise
    except Exception as error:
        raise _node_error(step, inputs, error) from error
    if on_node is not None:
        end = time.perf_counter_ns()
        facts = {"nodes": "; ".join(node.label for node in step.computes)} if len(step.computes) > 1 else {}
        on_node(NodeTiming(step.label, step.op_type, step.name, step.provider, start, end, tuple(inputs), outputs, facts))
    return outputs


def _execute(steps: Schedule, frame: list[Any], control: RunControl) -> None:
    for step, dead in zip(steps.steps, steps.dead_after):
        control.stop_if_asked(step.label)
        inputs = [None if slot == OMITTED else _read(frame, slot) for slot in step.inputs]
        bodies = {name: _runner(body, frame, control) for name, body in step.bodies.items()} if step.bodies else _NO_BODIES
        outputs = run_step(step, inputs, bodies, control)
        for slot, value in zip(step.outputs, outputs):
            if slot != OMITTED:
                frame[slot] = np.asarray(value) if isinstance(value, np.generic) else value
        for slot in dead:
            frame[slot] = None


_NO_BODIES: Mapping[str, SubgraphRunner] = {}


def _runner(body: ExecutionPlan, outer: list[Any], control: RunControl) -> SubgraphRunner:
    """A subgraph as a function; it sees the enclosing frame as it is when the node runs."""

    def run(*args: Any) -> list[Any]:
        frame: list[Any] = [None] * body.slots
        for slot, constant in body.constants:
            frame[slot] = constant
        for outer_slot, slot in body.captures:
            frame[slot] = outer[outer_slot]
        if len(args) != len(body.inputs):
            raise ValueError(f"body {body.name!r} takes {len(body.inputs)} inputs, was given {len(args)}")
        for slot, value in zip(body.inputs, args):
            frame[slot] = value
        _execute(body.schedule, frame, control)
        return [_read(frame, slot) for slot in body.outputs]

    run.input_types = tuple(port.type for port in body.input_ports)  # type: ignore[attr-defined]
    run.output_types = tuple(port.type for port in body.output_ports)  # type: ignore[attr-defined]
    return run


def run_body(body: ExecutionPlan, captured: list[Any], args: Sequence[Any], control: RunControl) -> list[Any]:
    """A subgraph on its own, for values of its captures by number."""
    return _runner(body, captured, control)(*args)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name}{list(value.shape)}"
    if isinstance(value, list):
        return f"sequence of {len(value)}"
    return "omitted" if value is None else type(value).__name__


def _node_error(step: HostStep, inputs: Sequence[Any], error: Exception) -> errors.SardonyxError:
    """The error a node's evaluation raised, with the node and what it was given."""
    given = ", ".join(_describe(value) for value in inputs)
    said = str(error) or type(error).__name__
    if isinstance(error, KeyError):  # whose text is the key and nothing else
        said = f"nothing is known about {error}"
    text = f"{step.label}: {said} (inputs: {given})"
    if isinstance(error, (MemoryError, OverflowError)) or _TOO_BIG in said:
        return errors.NodeFailed(text, hint="check the sizes it is given: its result would not fit into memory")
    if isinstance(error, (ValueError, IndexError, TypeError, KeyError)):
        return errors.BadNodeInput(text)
    return errors.NodeFailed(text, hint="this is a defect of Sardonyx if the node's inputs are as ONNX wants them")
