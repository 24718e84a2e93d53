"""Steps -> a native plan: the table of arguments, lifetimes, segments between what Python does.

The table is an array of 64-bit integers that all kernels read their arguments from. An entry is a number, a size that
depends on the sizes of the inputs, or an address. Sizes are computed from the values of the symbols by one table of operations
(`program.sizes`); addresses are a buffer's base plus an offset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final

from sardonyx import errors
from sardonyx.ir.dims import Dim, DimExpr, symbols_of
from sardonyx.ir.tensor import OBJECT, Tensor
from sardonyx.program.constants import Derived, by_identity
from sardonyx.program.image import ImagePort, ProgramImage
from sardonyx.program.steps import (
    FAULT_ENTRIES,
    Address,
    Buffer,
    Fault,
    HostNodeStep,
    KernelStep,
    Lowered,
    SizeStep,
    Storage,
    View,
)
from sardonyx.program.symbolic_sizes import size_table
from sardonyx.records import dataclass

_WRITTEN_FIRST: Final = (Storage.ARENA, Storage.HOST, Storage.OUTPUT, Storage.WORKER)  # what holds nothing when a run begins


@dataclass(frozen=True, slots=True)
class AddressSlot:
    """Table entry that holds an address: base of a buffer plus the value of an offset."""

    slot: int
    buffer: int
    offset: int  # which of the plan's dims gives the offset in bytes


@dataclass(frozen=True, slots=True)
class NativeSegment:
    """Steps that run without coming back to Python. `first` counts kernel steps of the whole plan."""

    first: int
    count: int


@dataclass(slots=True)
class NativePlan:
    """All that a run needs to know, apart from the code of the kernels."""

    steps: list[KernelStep]
    segments: list[NativeSegment | HostNodeStep | SizeStep]
    buffers: list[Buffer]
    symbols: tuple[str, ...]
    dims: list[Dim]  # every different size or offset in the plan
    table_size: int
    dim_slots: list[tuple[int, int]]  # (table slot, which dim)
    address_slots: list[AddressSlot]
    step_slots: list[tuple[int, int, int]]  # for each kernel step: where its arguments and its unit count stand, its stretch
    work_slots: list[tuple[int, int]]  # for each kernel step: slot of the worker count, which dim estimates its work
    lifetimes: list[tuple[int, int]]  # of each buffer, in positions of `segments` order
    sizes: list[int]  # which dim gives a buffer's size in bytes
    shared: dict[int, int] = field(default_factory=dict)  # buffer -> the buffer whose memory it takes over
    inputs: list[View] = field(default_factory=list)
    outputs: list[View] = field(default_factory=list)
    checks: list[tuple[int, int]] = field(default_factory=list)  # (dim, dim): the first must be 1 or the second
    equalities: list[tuple[int, int]] = field(default_factory=list)  # (dim, dim) that must be equal
    savings: list[tuple[int, int]] = field(default_factory=list)  # (dim, dim), see `LowerContext.note_saving`
    faults: list[Fault] = field(default_factory=list)  # bad data that kernels may report
    shared_ports: list[tuple[int, int]] = field(default_factory=list)  # buffers of an input and an output, see `Lowered.shared`
    ports: dict[Buffer, tuple[int, tuple[int, ...]]] = field(default_factory=dict)  # inputs and outputs: number, dims

    @property
    def all_steps(self) -> list[KernelStep | HostNodeStep | SizeStep]:
        """What is done, in order, natively or not: lifetimes count these."""
        found: list[KernelStep | HostNodeStep | SizeStep] = []
        for segment in self.segments:
            found += (
                self.steps[segment.first : segment.first + segment.count] if isinstance(segment, NativeSegment) else [segment]
            )
        return found


def plan_native(lowered: Lowered) -> NativePlan:
    """Lay out the table and find the lifetimes."""
    plan = NativePlan([], [], [], (), [], 0, [], [], [], [], [], [], {}, lowered.inputs, lowered.outputs)
    numbers: dict[Buffer, int] = {}
    dim_numbers: dict[Dim, int] = {}

    def dim_of(dim: Dim) -> int:
        if dim not in dim_numbers:
            dim_numbers[dim] = len(plan.dims)
            plan.dims.append(dim)
        return dim_numbers[dim]

    def number_of(buffer: Buffer) -> int:
        if buffer not in numbers:
            numbers[buffer] = len(plan.buffers)
            plan.buffers.append(buffer)
            plan.lifetimes.append((1 << 60, -1))
            plan.sizes.append(dim_of(buffer.size * max(buffer.dtype.bits // 8, 1)))
        return numbers[buffer]

    def touch(buffers: Sequence[Buffer], position: int) -> None:
        for buffer in buffers:
            number = number_of(buffer)
            first, last = plan.lifetimes[number]
            plan.lifetimes[number] = (min(first, position), max(last, position))

    def slot() -> int:
        plan.table_size += 1
        return plan.table_size - 1

    written: set[Buffer] = set()
    unit_slots: dict[KernelStep, int] = {}
    deciding: list[tuple[KernelStep, int]] = []  # with the position of their arguments
    for position, step in enumerate(lowered.steps):
        missing = next((b for b in step.reads if b.storage in _WRITTEN_FIRST and b not in written), None)
        if missing is not None and missing not in step.writes:
            label = step.node.label if isinstance(step, HostNodeStep) else step.label
            raise errors.EngineError(f"{label} reads {missing.label!r} before anything has written it")
        written.update(step.writes)
        touch((*step.reads, *step.writes), position)
        if not isinstance(step, KernelStep):
            plan.segments.append(step)
            for dim in _python_sizes(step):
                dim_of(dim)
            continue
        if plan.segments and isinstance(plan.segments[-1], NativeSegment):
            last = plan.segments[-1]
            plan.segments[-1] = NativeSegment(last.first, last.count + 1)
        else:
            plan.segments.append(NativeSegment(len(plan.steps), 1))
        plan.steps.append(step)
        units_at, workers_at = slot(), slot()
        unit_slots[step] = units_at
        plan.dim_slots.append((units_at, dim_of(step.units)))
        plan.work_slots.append((workers_at, dim_of(step.work)))
        arguments_at = plan.table_size
        plan.step_slots.append((arguments_at, units_at, step.stretch))
        for argument in step.arguments:
            at = slot()
            if isinstance(argument, Address):
                plan.address_slots.append(AddressSlot(at, number_of(argument.buffer), dim_of(argument.offset)))
            else:
                plan.dim_slots.append((at, dim_of(argument)))
        if step.decides:
            deciding.append((step, arguments_at))
            plan.table_size += 2 * len(step.decides)
    for step, arguments_at in deciding:
        at = arguments_at + len(step.arguments)
        for decided in step.decides:
            plan.dim_slots += [(at, dim_of(unit_slots[decided] - arguments_at)), (at + 1, dim_of(decided.units))]
            at += 2
    for view in (*lowered.inputs, *lowered.outputs):
        plan.ports[view.buffer] = (number_of(view.buffer), tuple(dim_of(dim) for dim in view.shape))
    _share(plan, numbers, lowered)
    plan.checks = [(dim_of(size), dim_of(target)) for size, target in dict.fromkeys(lowered.checks)]
    plan.equalities = [(dim_of(size), dim_of(other)) for size, other in dict.fromkeys(lowered.equalities)]
    plan.savings = [(dim_of(beyond), dim_of(saved)) for beyond, saved in lowered.savings]
    plan.faults = lowered.faults
    plan.shared_ports = [(number_of(read), number_of(written)) for read, written in lowered.shared]
    plan.symbols = tuple(sorted({name for dim in plan.dims for name in symbols_of(dim)}))
    return plan


def _python_sizes(step: HostNodeStep | SizeStep) -> list[Dim]:
    """The sizes Python needs between native segments."""
    if isinstance(step, SizeStep):
        return list(step.sizes)
    views = [view for view in (*step.inputs, *step.outputs, *(view for _, view in step.captured)) if view is not None]
    return [dim for view in views for dim in (*view.shape, *view.strides, view.offset)]


def _share(plan: NativePlan, numbers: dict[Buffer, int], lowered: Lowered) -> None:
    """Let a step write over what it reads, where that is the last use and both are in the arena."""
    for position, step in enumerate(lowered.steps):
        if not isinstance(step, KernelStep):
            continue
        taken: set[int] = set()
        for read, written in step.in_place:
            source, target = numbers[read], numbers[written]
            if {read.storage, written.storage} != {Storage.ARENA} or target in plan.shared or source in taken:
                continue
            if plan.lifetimes[source][1] == position and plan.lifetimes[target][0] == position:
                plan.shared[target] = source
                taken.add(source)


def image_of(plan: NativePlan) -> ProgramImage:
    """The plan as plain numbers, in which nothing leads back to the graph."""
    bindings: dict[str, tuple[int, int]] = {}  # symbol -> the input and axis that tell it; all others come from host steps
    for number, view in enumerate(plan.inputs):
        for axis, dim in enumerate(view.shape):
            if isinstance(dim, DimExpr) and dim.is_symbol:
                bindings.setdefault(str(dim), (number, axis))
    late_symbols = frozenset(plan.symbols) - bindings.keys()
    in_arena = [number for number, buffer in enumerate(plan.buffers) if buffer.storage in (Storage.ARENA, Storage.WORKER)]
    states = [(number, buffer.state) for number, buffer in enumerate(plan.buffers) if buffer.state is not None]
    tables = {
        "steps": plan.step_slots,
        "dim_slots": plan.dim_slots,
        "work_slots": plan.work_slots,
        "address_slots": [(a.slot, a.buffer, a.offset) for a in plan.address_slots],
        "arena": [(number, plan.sizes[number], *plan.lifetimes[number], plan.shared.get(number, -1)) for number in in_arena],
        "late": [number for number in in_arena if symbols_of(plan.buffers[number].size) & late_symbols],
        "fault_buffers": [number for number, buffer in enumerate(plan.buffers) if buffer.storage is Storage.FAULT],
        "worker": [number for number, buffer in enumerate(plan.buffers) if buffer.storage is Storage.WORKER],
        "state": [(number, plan.sizes[number], state.growth.value) for number, state in states],
        "checks": plan.checks,
        "equalities": plan.equalities,
        "savings": plan.savings,
        "shared": plan.shared_ports,
        "bindings": [(plan.symbols.index(symbol), *where) for symbol, where in bindings.items() if symbol in plan.symbols],
    }
    texts = {number: str(plan.dims[number]) for pair in (*plan.checks, *plan.equalities) for number in pair}
    inputs, outputs = ([_port(plan, view) for view in views] for views in (plan.inputs, plan.outputs))
    faults = [(fault.node, fault.text) for fault in plan.faults]
    counts = (plan.table_size, len(plan.buffers), FAULT_ENTRIES)
    sizes = size_table(plan.dims, plan.symbols)
    held = [(state.identity, plan.buffers[number].dtype.name) for number, state in states]
    return ProgramImage(tables, plan.symbols, inputs, outputs, faults, texts, counts, sizes, held)


def constant_keys(plan: NativePlan, identity_of: Callable[[Tensor], str] = by_identity) -> dict[int, str]:
    """The keys that other sessions know packed constants by; those made of nothing that lasts have none."""
    found = ((number, buffer.constant) for number, buffer in enumerate(plan.buffers))
    keys = {number: each.key(identity_of) for number, each in found if isinstance(each, Derived) and each.sources}
    return {number: key for number, key in keys.items() if not key.startswith(OBJECT)}


def _port(plan: NativePlan, view: View) -> ImagePort:
    number, dims = plan.ports[view.buffer]
    name = view.buffer.value.name if view.buffer.value is not None else view.buffer.label
    return ImagePort(name, view.buffer.dtype.name, dims, number)
