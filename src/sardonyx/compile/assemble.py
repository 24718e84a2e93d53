"""Assembles a native program: groups, lowers, plans and compiles a graph; what has no kernel, the host computes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sardonyx import errors
from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.ir.dims import Expectation
from sardonyx.ir.graph import Graph, Node, SparseConstant, Value, captured_values, is_constant, needed_nodes
from sardonyx.ir.types import TensorType
from sardonyx.lower.branches import flatten
from sardonyx.lower.contracts import left_behind, still_open
from sardonyx.lower.groups import Grouping, form_groups
from sardonyx.lower.lowering import LoweringFailed, lower_graph
from sardonyx.lower.shape_values import KnownValues
from sardonyx.options import environment
from sardonyx.plan.build import BodyPlan, Order, build_body, constant_array
from sardonyx.plan.native import NativePlan, NativeSegment, plan_native
from sardonyx.plan.plan import SubgraphRunner
from sardonyx.plan.turns import Turns, turns_of
from sardonyx.program.steps import HostNodeStep, KernelStep, Lowered
from sardonyx.providers.reference import node_step
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.executor import RunControl, run_body, run_step
from sardonyx.runtime.native_core import ADDRESS_FIRST, SizeConflict
from sardonyx.runtime.native_loop import NativeLoop
from sardonyx.runtime.pool import shared_pool, usable_cores
from sardonyx.runtime.segment_runner import SegmentRunner, executable_of
from sardonyx.runtime.weight_store import WeightStore, shared_store
from sardonyx.target.machine import runtime

_log = logging.getLogger("sardonyx")


_libraries: dict[tuple[Path | None, str, str], KernelLibrary] = {}  # by cache folder, target and runtime
_libraries_lock = ForkSafeLock()


def library(cache_folder: Path | None, target: str = "") -> KernelLibrary:
    """The kernels of this process for a target, by default that of the environment; they stay loaded as long as it lives.

    A folder that others could write to is not even read.
    """
    with held_off, _libraries_lock:
        settings = environment()
        name, trusted = target or settings.target, settings.cache_trusted
        kind = runtime()
        key = (cache_folder, name, kind)
        if key not in _libraries:
            objects = None if cache_folder is None else ObjectCache(cache_folder, trusted=trusted)
            if objects is not None and objects.problem():
                objects = None
            folder = None if objects is None else cache_folder
            _libraries[key] = KernelLibrary(host(folder, trusted, name, kind), objects)
        return _libraries[key]


@dataclass(frozen=True)
class Compiled:
    """A native program with everything that led to it, for explaining."""

    program: Executable
    runner: SegmentRunner
    grouping: Grouping
    lowered: Lowered
    plan: NativePlan


@dataclass(frozen=True)
class NativeSettings:
    """What decides how a graph is compiled and on how many threads it runs."""

    cache_folder: Path | None = None
    workers: int = 0  # 0: as many as this process may use
    spinning: bool = True
    eager: bool = True  # pack weights now, not in the first run
    weights: WeightStore = field(default_factory=shared_store, compare=False)  # who packs them, and for whom
    target: str = ""  # name of the target; "": that of the environment


def compile_graph(
    graph: Graph,
    outputs: Sequence[Value],
    nodes: Sequence[Node],
    order: Order,
    settings: NativeSettings,
    inputs: Sequence[Value] | None = None,
) -> Compiled:
    """Group, lower, plan and compile nodes of a graph whose types are inferred.

    A kernel that cannot be compiled is a bug, but no reason to fail: its nodes are computed by the host, with a warning.
    """
    kernels = library(settings.cache_folder, settings.target)
    fed = graph.inputs if inputs is None else inputs
    failed: set[Node] = set()
    whole: set[Node] = set()  # Ifs that are not taken apart
    while True:
        flat = flatten(nodes, order, whole | failed)
        known = KnownValues(fed, flat.nodes)
        kept, left = _kept_nodes(flat.nodes, outputs, known)
        grouping = form_groups(kept, fed, frozenset(failed), flat.regions, flat.merges, known)
        unsuited = {flat.regions[node][0][0] for node in left if node in flat.regions} | grouping.unsuited
        if unsuited:
            whole |= unsuited
            continue
        expected = [*still_open(graph.size_checks, known.told_sizes(())), *itertools.chain(*left.values())]
        try:
            lowered = lower_graph(graph, outputs, grouping, kernels.target, known, fed, expected)
        except LoweringFailed as error:
            _warn(error.nodes, error)
            failed.update(error.nodes)
            continue
        if lowered.unsuited:
            whole |= lowered.unsuited
            continue
        plan = plan_native(lowered)
        cores = usable_cores()
        workers = min(settings.workers or cores, cores)
        kernels.prepare((step.kernel for step in lowered.steps if isinstance(step, KernelStep)), workers)
        broken, addresses = _compile_kernels(kernels, lowered)
        if broken is None:
            break
        if not broken or broken <= failed:
            raise errors.EngineError("a kernel that belongs to no node cannot be compiled")
        failed |= broken
    host_calls = {step: HostNode(step.node, order, settings) for step in plan.segments if isinstance(step, HostNodeStep)}
    pool = shared_pool(kernels.driver, settings.workers, settings.spinning, kernels.target.runtime)
    program, runner = executable_of(plan, addresses, pool, host_calls, settings.weights)
    if settings.eager:
        _ = program.constants
    return Compiled(program, runner, grouping, lowered, plan)


def _kept_nodes(
    nodes: Sequence[Node], outputs: Sequence[Value], known: KnownValues
) -> tuple[list[Node], dict[Node, list[Expectation]]]:
    """The nodes to compute, and what the others expect of sizes, those of which only the shapes are read.

    Those whose expectations are about sizes that nobody tells are computed all the same: only their run says whether they fit.
    """
    kept = known.needed(nodes, outputs)
    dropped = known.dropped(nodes, set(kept))
    if not dropped:
        return kept, {}
    sizes = known.told_sizes(set(kept))
    left = {node: left_behind(node, known, sizes) for node in dropped}
    unstated = [value for node, found in left.items() if found is None for value in node.outputs]
    if unstated:
        kept = known.needed(nodes, [*outputs, *unstated])
        for node in kept:
            left.pop(node, None)
    return kept, {node: found for node, found in left.items() if found}


def _compile_kernels(kernels: KernelLibrary, lowered: Lowered) -> tuple[set[Node] | None, list[int]]:
    """The entry points of all kernel steps; or, if one cannot be compiled, the nodes it was for."""
    addresses: list[int] = []
    for step, group in zip(lowered.steps, lowered.groups):
        if not isinstance(step, KernelStep):
            continue
        try:
            addresses.append(kernels.address(step.kernel))
        except errors.EngineError as error:
            nodes = group.nodes if group is not None else ()
            _warn(nodes, error)
            return set(nodes), []
    return None, addresses


def _warn(nodes: Sequence[Node], error: errors.EngineError) -> None:
    names = ", ".join(node.label for node in nodes)
    _log.warning("there is no kernel for %s, the host computes it: %s", names, error)


class HostNode:
    """Computes a node by its NumPy meaning; its bodies are native programs of their own."""

    def __init__(self, node: Node, order: Order, settings: NativeSettings) -> None:
        graphs = {attr.name: attr.value for attr in node.attrs.values() if isinstance(attr.value, Graph)}
        self._step = node_step(node, range(len(node.inputs)), range(len(node.outputs)), {})
        self._bodies = {name: Body(graph, order, settings) for name, graph in graphs.items()}
        self._loop = LoopBody(node, order, settings)

    def __call__(
        self, inputs: Sequence[Any], values: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl
    ) -> Sequence[Any]:
        results = self._loop.run(inputs, values, sizes, control)
        if results is not None:
            return results
        runners = {name: body.runner(values, sizes, control) for name, body in self._bodies.items()}
        return run_step(self._step, inputs, runners, control)

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        self._loop.shrink()
        for body in self._bodies.values():
            body.shrink()


class LoopBody:
    """The body of a Loop or Scan, compiled for its turns to follow each other in native code, if it can be."""

    def __init__(self, node: Node, order: Order, settings: NativeSettings) -> None:
        self._turns = turns_of(node)
        self._label = node.label
        self._order = order
        self._settings = replace(settings, eager=False)  # weights are packed when it is clear that the shapes allow it
        self._lock = ForkSafeLock()
        self._loop: NativeLoop | None = None

    def run(
        self, inputs: Sequence[Any], outer: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl
    ) -> tuple[Any, ...] | None:
        """The node's outputs, or None if its turns need Python; `outer` and `sizes` are what is known around it."""
        if self._turns is None:
            return None
        if self._loop is None:
            with held_off, self._lock:
                if self._loop is None and self._turns is not None:
                    self._loop = self._compile(self._turns)
                    self._turns = None if self._loop is None else self._turns
            if self._loop is None:
                return None
        return self._loop.run(inputs, outer, sizes, control)

    def _compile(self, turns: Turns) -> NativeLoop | None:
        body = turns.body
        nodes = needed_nodes(self._order(body), turns.made)
        captured = captured_inputs(body)
        inputs = [*body.inputs, *captured]
        if any(node.subgraphs() for node in nodes if node.op_type != "If"):
            return None
        try:
            compiled = compile_graph(body, turns.made, nodes, self._order, self._settings, inputs)
        except errors.EngineError as error:
            _log.warning("body %r cannot be compiled, NumPy runs it: %s", body.name, error)
            return None
        plan = compiled.plan
        fits = (
            all(isinstance(segment, NativeSegment) for segment in plan.segments)
            and [view.buffer.value for view in plan.inputs] == inputs
            and [view.buffer.value for view in plan.outputs] == turns.made
        )
        return NativeLoop(compiled.program.core, turns, captured, self._label) if fits else None

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        if self._loop is not None:
            self._loop.shrink()


class Body:
    """A subgraph, compiled when it first runs: a branch that is never taken costs nothing.

    The values it captures are inputs like its own. What the compiled program was made for may not hold in every turn (a loop
    whose carried value changes its rank): then the reference plan takes over for that turn.
    """

    def __init__(self, graph: Graph, order: Order, settings: NativeSettings) -> None:
        self._graph = graph
        self._order = order
        self._settings = settings
        self._captured = captured_inputs(graph)
        self._lock = ForkSafeLock()
        self._compiled: Compiled | None = None
        self._fast: Executable | None = None
        self._reference: BodyPlan | None = None

    def runner(self, outer: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl) -> SubgraphRunner:
        """The body as a function of its own inputs; `outer` and `sizes` are what is known around it."""
        captured = {value: outer[value] for value in self._captured}

        def run(*args: Any) -> list[Any]:
            if len(args) != len(self._graph.inputs):
                raise ValueError(f"body {self._graph.name!r} takes {len(self._graph.inputs)} inputs, was given {len(args)}")
            try:
                compiled = self._program()
                if self._fast is not None and control.on_node is None:
                    control.stop_if_asked()
                    return self._fast.run_arrays([*args, *captured.values()])
                given = {**captured, **dict(zip(self._graph.inputs, args))}
                values = compiled.program.run_values(given, control, sizes)
            except SizeConflict:
                return self._run_reference(outer, args, control)
            except errors.EngineError as error:
                _log.warning("body %r cannot be compiled, NumPy runs it: %s", self._graph.name, error)
                return self._run_reference(outer, args, control)
            return [values[value] if value in values else constant_array(value) for value in self._graph.outputs]

        run.input_types = tuple(value.type for value in self._graph.inputs)  # type: ignore[attr-defined]
        run.output_types = self._graph.output_types  # type: ignore[attr-defined]
        return run

    def shrink(self) -> None:
        """Give memory kept for later runs back."""
        with self._lock:
            compiled = self._compiled
        if compiled is not None:
            compiled.program.shrink()

    def _run_reference(self, outer: Mapping[Value, Any], args: Sequence[Any], control: RunControl) -> list[Any]:
        body = self._reference_plan()
        captured = [outer[value] if value in outer else constant_array(value) for value in body.captured]
        return run_body(body.plan, captured, args, control)

    def _program(self) -> Compiled:
        if self._compiled is not None:
            return self._compiled
        with held_off, self._lock:
            if self._compiled is None:
                inputs = [*self._graph.inputs, *self._captured]
                nodes = needed_nodes(self._order(self._graph), self._graph.outputs)
                compiled = compile_graph(self._graph, self._graph.outputs, nodes, self._order, self._settings, inputs)
                ends = inputs, self._graph.outputs
                self._fast = short_way(compiled, *ends)
                self._compiled = compiled  # last: who finds it does not ask for the lock
        return self._compiled

    def _reference_plan(self) -> BodyPlan:
        if self._reference is None:
            with held_off, self._lock:
                self._reference = self._reference or build_body(self._graph, node_step, self._order)
        return self._reference


def short_way(
    compiled: Compiled, inputs: Sequence[Value], outputs: Sequence[Value], *, one_call: bool = False
) -> Executable | None:
    """The program, if it can be run on arrays alone: no host steps, and outputs that are different values.

    With `one_call`, kernels must not tell any sizes either: then it can be saved.
    """
    runner = compiled.runner
    fits = runner.is_one_call or (runner.is_without_host and not one_call)
    return compiled.program if fits and _has_plain_ends(compiled.plan, inputs, outputs) else None


def _has_plain_ends(plan: NativePlan, inputs: Sequence[Value], outputs: Sequence[Value]) -> bool:
    """Whether native code reads all inputs and writes all outputs, in arrays as callers have them."""
    return (
        ADDRESS_FIRST
        and [view.buffer.value for view in plan.inputs] == list(inputs)
        and [view.buffer.value for view in plan.outputs] == list(outputs)
        and all(value.constant is None for value in inputs)
        and all(_is_plain(value) for value in outputs)
    )


def _is_plain(value: Value) -> bool:
    """Whether a result is handed over as it is: a dense tensor of an element type that NumPy itself has."""
    if isinstance(value.constant, SparseConstant):
        return False
    return isinstance(value.type, TensorType) and value.type.dtype.numpy.isbuiltin == 1


def captured_inputs(graph: Graph) -> list[Value]:
    """The values of the graphs around that a subgraph must be given: all it reads but constants."""
    return [value for value in captured_values(graph) if not is_constant(value, graph)]
