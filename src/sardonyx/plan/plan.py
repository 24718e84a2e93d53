"""The plan of a program: steps over numbered slots.

A frame is a list with one entry a slot. A step reads slots and writes slots; a slot is written once in a run. Plans are
plain data apart from the callables of their steps; nothing in them changes while a program runs, so any number of runs may
share one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from sardonyx.ir.region import NodeName
from sardonyx.ir.types import Type
from sardonyx.records import dataclass

OMITTED = -1  # the slot of an optional input that is left out, or of an output nobody named

SubgraphRunner: TypeAlias = Callable[..., list[Any]]
HostFunction: TypeAlias = Callable[[Sequence[Any], Mapping[str, SubgraphRunner]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a program."""

    name: str
    type: Type | None


@dataclass(frozen=True, slots=True)
class HostStep:
    """One node, or a provider's region, computed by Python code."""

    label: str  # how messages call the node
    op_type: str
    name: str
    provider: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    call: HostFunction
    bodies: Mapping[str, ExecutionPlan] = field(default_factory=dict)  # graph attributes by name
    computes: tuple[NodeName, ...] = ()  # the nodes of the model it stands for

    @property
    def reads(self) -> tuple[int, ...]:
        """All slots it needs: its inputs and what its bodies capture."""
        captured = (outer for body in self.bodies.values() for outer, _ in body.captures)
        return tuple(dict.fromkeys(slot for slot in (*self.inputs, *captured) if slot != OMITTED))


@dataclass(slots=True)
class Constant:
    """Data that is the same in every run; made when it is first needed, then kept.

    The array is read-only: a result that shares its memory is copied before it leaves the program.
    """

    load: Callable[[], Any]
    _value: Any = None

    @property
    def value(self) -> Any:
        if self._value is None:
            self._value = self.load()
        return self._value


@dataclass(frozen=True, slots=True)
class Schedule:
    """The steps a run needs for the values it is asked for, and the slots whose values die after each."""

    steps: tuple[HostStep, ...]
    dead_after: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A graph ready to run."""

    name: str
    slots: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    steps: tuple[HostStep, ...]
    constants: tuple[tuple[int, Constant], ...]
    captures: tuple[tuple[int, int], ...]  # (slot in the enclosing frame, slot in this one)
    schedule: Schedule  # for a run that wants exactly the outputs
    names: Mapping[str, int]  # every named value of this graph
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    overridable_ports: tuple[Port, ...] = ()  # initializers that a feed may replace


def schedule(steps: Sequence[HostStep], constants: Sequence[tuple[int, Constant]], wanted: Sequence[int]) -> Schedule:
    """Drop the steps that nothing wanted depends on, and find out when each value is read for the last time."""
    needed = set(wanted)
    kept: list[HostStep] = []
    for step in reversed(steps):
        if needed.intersection(step.outputs):
            kept.append(step)
            needed.update(step.reads)
    kept.reverse()
    keep_alive = set(wanted) | {slot for slot, _ in constants}
    last: dict[int, int] = {}
    for position, step in enumerate(kept):
        for slot in (*step.reads, *step.outputs):
            last[slot] = position
    dead: list[list[int]] = [[] for _ in kept]
    for slot, position in last.items():
        if slot not in keep_alive and slot != OMITTED:
            dead[position].append(slot)
    return Schedule(tuple(kept), tuple(tuple(slots) for slots in dead))
