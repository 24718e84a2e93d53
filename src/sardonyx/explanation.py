"""How a model is compiled: which kernel holds which node, what runs in Python and why, and where values lie in memory.

    explanation = explain_model("model.onnx", shapes={"image": (1, 3, 224, 224)})
    [node.label for node in explanation.nodes if node.placement == "host"]

Work and memory depend on the sizes of the inputs; sizes that are not given are those `fitting_inputs` tries first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from sardonyx import errors
from sardonyx.compile.assemble import Compiled
from sardonyx.compile.compiler import compile_model, optimise, plans_by_order
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile_options import CompileOptions
from sardonyx.inspection import Source, load_model
from sardonyx.ir.clone import Cloner
from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.ir.graph import Model, Node, walk
from sardonyx.lower.groups import Group
from sardonyx.options import SessionOptions
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.pipeline import PassReport
from sardonyx.plan.memory import Lifetime, lower_bound, owners, plan_offsets
from sardonyx.plan.native import NativePlan
from sardonyx.plan.peak import arena_lifetimes, live_bytes
from sardonyx.program.image import SHARED_FROM
from sardonyx.program.steps import Buffer, HostNodeStep, SizeStep, Step, Storage
from sardonyx.records import dataclass
from sardonyx.sample_inputs import fitting_shapes

Placement: TypeAlias = Literal["kernel", "view", "host", "known"]


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """What became of one node of the graph as it is compiled, after all passes."""

    label: str
    operator: str
    placement: Placement  # "view": its result is its input seen differently; "known": computed before any run
    steps: tuple[int, ...]  # those that compute it, together with all nodes of its kernel
    kernel: str  # the operators of all these nodes, joined by `+`
    reason: str  # why it runs in Python, or why it did not join the kernel of its inputs
    passes: tuple[str, ...]  # those that made it or gave it other inputs


@dataclass(frozen=True, slots=True)
class StepExplanation:
    """One step of the program, in order. Sizes that only a run can tell are None."""

    number: int
    label: str
    kind: str  # the kind of kernel, or "host"
    nodes: tuple[str, ...]
    units: int | None  # independent pieces of work
    work_ns: int | None  # estimated nanoseconds on one core
    parallel: bool  # whether it is worth more than one thread
    read_bytes: int | None
    written_bytes: int | None


@dataclass(frozen=True, slots=True)
class BufferExplanation:
    """A piece of the arena: where it lies, and from which step to which it is needed."""

    label: str
    bytes: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryExplanation:
    """The plan of the arena for these sizes."""

    arena_bytes: int
    lower_bound_bytes: int  # the most that is needed at one step: no plan can do with less
    unshared_bytes: int  # what the buffers would need if none shared memory
    constant_bytes: int  # weights, some of them packed for their kernels
    in_place: int  # results that take over the memory of an operand
    unplanned: int  # buffers whose size only a run can tell
    buffers: tuple[BufferExplanation, ...]  # largest first


@dataclass(frozen=True, slots=True)
class PassExplanation:
    """What a pass over the graph did in all its rounds, and why it left alone what looked like work."""

    name: str
    changes: int
    removed: tuple[str, ...]  # nodes of the model that are gone since
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A compiled model, explained."""

    name: str
    sizes: dict[str, int]  # of the named dimensions
    passes: tuple[PassExplanation, ...]
    nodes: tuple[NodeExplanation, ...]
    steps: tuple[StepExplanation, ...]
    segments: tuple[str, ...]  # what a run does, in order: native, sizes, host, provider, loop, branch
    memory: MemoryExplanation

    @property
    def host_steps(self) -> int:
        """How often a run comes back to Python."""
        return sum(step.kind == "host" for step in self.steps)


def explain_model(source: Source, shapes: Mapping[str, Sequence[int]] | None = None) -> Explanation:
    """Compile a model and say how. `shapes` gives the shape of an input, or as `{"N": (4,)}` the size of a named dimension."""
    model = load_model(source)
    if model is source:
        model = replace(model, graph=Cloner().graph(model.graph), functions=dict(model.functions))
    InlineFunctions().run(model)
    options = CompileOptions.of(SessionOptions())
    fitted = fitting_shapes(model, shapes)
    passes, touched = _trace(replace(model, graph=Cloner().graph(model.graph)), options)
    program = compile_model(model, options)
    if not isinstance(program, NativeModel):
        raise errors.EngineError("the model was not compiled to native code")
    compiled = program.main
    sizes = _sizes(compiled.plan, fitted)
    return Explanation(
        name=model.path or model.graph.name,
        sizes=sizes,
        passes=passes,
        nodes=_nodes(model.graph.nodes, compiled, touched),
        steps=tuple(_step(number, step, sizes) for number, step in enumerate(compiled.lowered.steps)),
        segments=compiled.program.kinds,
        memory=_memory(compiled.plan, sizes, compiled.program.core.pool.workers),
    )


@dataclass(frozen=True, slots=True)
class OrderMemory:
    """The memory of one execution order, for some sizes."""

    order: str
    arena_bytes: int  # the planned peak
    live: tuple[int, ...]  # bytes in use at each step
    steps: tuple[str, ...]  # what each does


def explain_memory(source: Source, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[OrderMemory, ...]:
    """How much memory the model needs in each execution order. `shapes` is as for `explain_model`."""
    model = load_model(source)
    if model is source:
        model = replace(model, graph=Cloner().graph(model.graph), functions=dict(model.functions))
    fitted = fitting_shapes(model, shapes)
    found = []
    for name, plan in plans_by_order(model, CompileOptions.of(SessionOptions())).items():
        lifetimes = list(arena_lifetimes(plan, _sizes(plan, fitted)).values())
        labels = tuple(_label(step) for step in plan.all_steps)
        found.append(OrderMemory(name, plan_offsets(lifetimes)[1], tuple(live_bytes(lifetimes, len(labels))), labels))
    return tuple(found)


def _label(step: Step) -> str:
    return step.node.label if isinstance(step, HostNodeStep) else step.label


def _sizes(plan: NativePlan, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The named dimensions that the shapes of the inputs tell."""
    sizes: dict[str, int] = {}
    for view in plan.inputs:
        value = view.buffer.value
        if value is None or value.name not in shapes:
            continue
        for dim, size in zip(view.shape, shapes[value.name]):
            if not isinstance(dim, int) and dim.is_symbol:
                sizes.setdefault(str(dim), size)
    return sizes


def _size(dim: Dim, sizes: Mapping[str, int]) -> int | None:
    return None if symbols_of(dim) - sizes.keys() else evaluate(dim, sizes)


def _trace(model: Model, options: CompileOptions) -> tuple[tuple[PassExplanation, ...], dict[str, tuple[str, ...]]]:
    """Run the passes one by one over a copy and see what each did; by the label of a node, who made or changed it."""
    original = {node.label for node in walk(model.graph)}
    changes: dict[str, int] = {}
    removed: dict[str, list[str]] = {}
    reasons: dict[str, tuple[str, ...]] = {}
    touched: dict[str, tuple[str, ...]] = {}
    before = _snapshot(model)

    def see(report: PassReport) -> None:
        nonlocal before
        changes[report.name] = changes.get(report.name, 0) + report.changes
        reasons[report.name] = report.refusals
        if not report.changes:
            return
        after = _snapshot(model)
        gone = (node.label for node in before if node not in after)
        removed.setdefault(report.name, []).extend(label for label in gone if label in original)
        for node, form in after.items():
            if before.get(node) != form:
                known = touched.get(node.label, ())
                touched[node.label] = known if report.name in known else (*known, report.name)
        before = after

    optimise(model, options, on_pass=see)
    explained = (PassExplanation(name, changes[name], tuple(removed.get(name, ())), reasons[name]) for name in changes)
    return tuple(explained), touched


def _snapshot(model: Model) -> dict[Node, tuple[object, ...]]:
    """All nodes, each with what a pass may change about it in place."""
    return {
        node: (node.op_type, node.inputs, tuple((name, id(attr)) for name, attr in node.attrs.items()))
        for node in walk(model.graph)
    }


def _nodes(nodes: Iterable[Node], compiled: Compiled, touched: Mapping[str, tuple[str, ...]]) -> tuple[NodeExplanation, ...]:
    numbers: dict[Group | None, list[int]] = {}
    for number, group in enumerate(compiled.lowered.groups):
        numbers.setdefault(group, []).append(number)
    explained = []
    for node in nodes:
        group = compiled.grouping.group_of.get(node)
        reason, passes = compiled.grouping.refusals.get(node, ""), touched.get(node.label, ())
        if group is None:
            explained.append(NodeExplanation(node.label, node.op_type, "known", (), "", "", passes))
            continue
        steps = tuple(numbers.get(group, ()))
        at_host = any(isinstance(compiled.lowered.steps[number], HostNodeStep) for number in steps)
        if at_host and node.subgraphs():
            reason = "control flow: its bodies are compiled by themselves"
        elif at_host and not reason:
            reason = "its result cannot be seen as a part of its input, and it has no kernel"
        placement: Placement = "host" if at_host else "kernel" if steps else "view"
        kernel = group.label if placement == "kernel" else ""
        explained.append(NodeExplanation(node.label, node.op_type, placement, steps, kernel, reason, passes))
    return tuple(explained)


def _step(number: int, step: Step, sizes: Mapping[str, int]) -> StepExplanation:
    def total(buffers: Sequence[Buffer]) -> int | None:
        known = [_buffer_bytes(buffer, sizes) for buffer in buffers]
        return None if any(each is None for each in known) else sum(each or 0 for each in known)

    read, written = total(step.reads), total(step.writes)
    if isinstance(step, HostNodeStep):
        return StepExplanation(number, step.node.op_type, "host", (step.node.label,), None, None, False, read, written)
    if isinstance(step, SizeStep):
        return StepExplanation(number, step.label, "sizes", step.nodes, None, None, False, read, written)
    units, work = _size(step.units, sizes), _size(step.work, sizes)
    kind = type(step.kernel).__name__.removesuffix("Kernel").lower()
    parallel = work is not None and work >= 2 * SHARED_FROM and units != 1
    return StepExplanation(number, step.label, kind, tuple(step.nodes), units, work, parallel, read, written)


def _buffer_bytes(buffer: Buffer, sizes: Mapping[str, int]) -> int | None:
    count = _size(buffer.size, sizes)
    return None if count is None else count * max(buffer.dtype.bits // 8, 1)


def _memory(plan: NativePlan, sizes: Mapping[str, int], workers: int) -> MemoryExplanation:
    arena = [number for number, buffer in enumerate(plan.buffers) if buffer.storage in (Storage.ARENA, Storage.WORKER)]
    bytes_of = {number: _buffer_bytes(plan.buffers[number], sizes) for number in arena}
    for number, size in bytes_of.items():
        if size is not None and plan.buffers[number].storage is Storage.WORKER:
            bytes_of[number] = size * workers
    ends = {number: plan.lifetimes[number][1] for number in arena}
    for target, owner in owners(plan.shared).items():
        ends[owner] = max(ends.get(owner, 0), plan.lifetimes[target][1])
    placed = [number for number in arena if number not in plan.shared and bytes_of[number] is not None]
    lifetimes = [Lifetime(bytes_of[number] or 0, plan.lifetimes[number][0], ends[number]) for number in placed]
    offsets, total = plan_offsets(lifetimes)
    buffers = [
        BufferExplanation(plan.buffers[number].label, life.size, offset, life.first, life.last)
        for number, life, offset in zip(placed, lifetimes, offsets)
    ]
    constants = [buffer for buffer in plan.buffers if buffer.storage is Storage.CONSTANT]
    return MemoryExplanation(
        arena_bytes=total,
        lower_bound_bytes=lower_bound(lifetimes),
        unshared_bytes=sum(size or 0 for size in bytes_of.values()),
        constant_bytes=sum(_buffer_bytes(buffer, sizes) or 0 for buffer in constants),
        in_place=len(plan.shared),
        unplanned=sum(size is None for size in bytes_of.values()),
        buffers=tuple(sorted(buffers, key=lambda buffer: (-buffer.bytes, buffer.first))),
    )
