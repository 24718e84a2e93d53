"""Assembles a native program: groups, lowers, plans and compiles a graph; what has no kernel, the host computes."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sardonyx import errors
from sardonyx.analysis.loop_body import LoopBody, loop_body_of
from sardonyx.cache_folder import why_not_used
from sardonyx.codegen.host import host
from sardonyx.codegen.library import KernelLibrary, OnProgress
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.compile.kernel_order import kernel_order
from sardonyx.forks import ForkSafeLock, held_off
from sardonyx.ir.dims import Expectation
from sardonyx.ir.graph import Graph, Node, Value, needed_nodes
from sardonyx.ir.region import region_of
from sardonyx.ir.tensor import Array
from sardonyx.lower.branches import flatten
from sardonyx.lower.candidates import Chooser
from sardonyx.lower.contracts import left_behind, still_open
from sardonyx.lower.groups import Grouping, form_groups
from sardonyx.lower.lower_graph import LoweringFailed, lower_graph
from sardonyx.lower.shape_values import KnownValues
from sardonyx.options import environment
from sardonyx.plan.host_plan import HostConstants, Order
from sardonyx.plan.loop_signature import loop_signature
from sardonyx.plan.native import NativePlan, NativeSegment, image_of, plan_native
from sardonyx.plan.order import has_yield
from sardonyx.plan.peak import sparest
from sardonyx.plan.segment_plan import body_of, captured_by, captured_inputs, graphs_of, segment_plan
from sardonyx.program.steps import KernelStep, Lowered
from sardonyx.providers.reference import plain_node
from sardonyx.records import dataclass
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.host_calls import Body, Call, call_of
from sardonyx.runtime.native_core import NativeCore
from sardonyx.runtime.pool import shared_pool, usable_cores
from sardonyx.runtime.reference_model import HostPrograms
from sardonyx.runtime.runs import RunControl
from sardonyx.runtime.segment_runner import SegmentRunner, executable_of
from sardonyx.runtime.step_timing import step_timing
from sardonyx.runtime.weight_store import WeightStore, shared_store
from sardonyx.target.machine import runtime

if TYPE_CHECKING:
    from sardonyx.runtime.native_loop import NativeLoop

_log = logging.getLogger("sardonyx")


_libraries: dict[tuple[str | None, str, str], KernelLibrary] = {}  # by cache folder, target and runtime
_libraries_lock = ForkSafeLock()


def library(cache_folder: str | os.PathLike[str] | None, target: str = "") -> KernelLibrary:
    """The kernels of this process for a target, by default that of the environment; they stay loaded as long as it lives.

    A folder that others could write to is not even read.
    """
    with held_off, _libraries_lock:
        settings = environment()
        name, trusted = target or settings.target, settings.cache_trusted
        kind = runtime()
        given = None if cache_folder is None else os.fspath(cache_folder)
        key = (given, name, kind)
        if key not in _libraries:
            objects = None if given is None else ObjectCache(given, trusted=trusted)
            if objects is not None and objects.problem():
                objects = None
            folder = None if objects is None else given
            _libraries[key] = KernelLibrary(host(folder, trusted, name, kind), objects)
        return _libraries[key]


@dataclass(frozen=True)
class Compiled:
    """A native program with everything that led to it, for explaining."""

    program: Executable
    grouping: Grouping
    lowered: Lowered
    plan: NativePlan
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def run_values(self, given: Mapping[Value, Any], control: RunControl) -> dict[Value, Any]:
        """The outputs by the values of the graph, segment by segment; they may share memory with what is given."""
        return dict(zip(self.outputs, self.program.run_values([given[value] for value in self.inputs], control)))


class ProgramOrigin(NamedTuple):
    """What a program was compiled from, for whoever saves it. Nothing in it refers to the program."""

    plan: NativePlan
    constants: tuple[Value, ...]  # those that only Python reads


class BodyCount:
    """How many bodies were compiled: a program that was saved before lacks them."""

    def __init__(self) -> None:
        self.compiled = 0


@dataclass(frozen=True)
class NativeSettings:
    """What decides how a graph is compiled and on how many threads it runs."""

    cache_folder: str | None = None
    workers: int = 0  # 0: as many as this process may use
    spinning: bool = True
    eager: bool = True  # pack weights now, not in the first run
    weights: WeightStore = field(default_factory=shared_store, compare=False)  # who packs them, and for whom
    target: str = ""  # name of the target; "": that of the environment
    bodies: BodyCount = field(default_factory=BodyCount, compare=False)  # those of one model
    by_kernels: bool = False  # whether the order of nodes is to be that of kernels, too (see `kernel_order`)
    orders: tuple[Order, ...] = ()  # others to try: the one whose plan needs the least memory is taken
    kernels: KernelLibrary | None = field(default=None, compare=False)  # who compiles them; None: the library of the target
    times_candidates: bool = False  # those that estimates find close (see `step_choice`)

    on_progress: OnProgress | None = field(default=None, compare=False)  # told how far the compilation is; may end it

    def library(self) -> KernelLibrary:
        """Who compiles kernels."""
        return self.kernels or library(self.cache_folder, self.target)

    def chooser(self) -> Chooser | None:
        """Who measures candidates; None if estimates are to decide, as they do for machines that are not here."""
        kernels = self.library()
        if not self.times_candidates or self.cache_folder is None or not kernels.loads:
            return None
        trusted = environment().cache_trusted
        if why_not_used(self.cache_folder, trusted):
            return None
        from sardonyx.compile.step_choice import chooser_in  # lazy: few sessions ask for it

        return chooser_in(self.cache_folder, trusted, kernels)


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
    kernels, chooser = settings.library(), settings.chooser()
    fed = graph.inputs if inputs is None else inputs
    unique = list(dict.fromkeys(outputs))
    failed: set[Node] = set()
    by_kernels = settings.by_kernels
    if settings.orders and not has_yield(graph):
        others = [(nodes, False), *((_ordered(each, graph, nodes), False) for each in settings.orders)]
        nodes, by_kernels = _least_memory(graph, unique, [(nodes, by_kernels), *others], fed, order, kernels)
    cores = usable_cores()
    workers = min(settings.workers or cores, cores)
    while True:
        with kernels.driver_ahead(workers):
            grouping, lowered, plan = plan_graph(
                graph, unique, nodes, fed, order, kernels, failed, chooser, by_kernels=by_kernels
            )
        constants = _Constants(partial(_load_constants, plan, settings.weights))
        wanted = (step.kernel for step in lowered.steps if isinstance(step, KernelStep))
        kernels.prepare(wanted, workers, settings.on_progress, constants.load_early if settings.eager else None)
        broken, addresses = _compile_kernels(kernels, lowered)
        if broken is None:
            break
        if not broken or broken <= failed:
            raise errors.EngineError("a kernel that belongs to no node cannot be compiled")
        failed |= broken
    runs = kernels if kernels.loads else library(settings.cache_folder)  # what is made for others has a pool it never uses
    pool = shared_pool(runs.driver, settings.workers, settings.spinning, runs.target.runtime)
    numbered = segment_plan(plan, fed, outputs, defaults=inputs is None)
    calls = [_call_of(node, order, settings) for node in numbered.calls]
    core = NativeCore(image_of(plan), addresses, pool, constants.take)
    runner = SegmentRunner(core, numbered.plan, calls, HostConstants(numbered.constants), timing=step_timing(plan.steps))
    program = executable_of(runner)
    program.source = ProgramOrigin(plan, numbered.constants)
    if settings.eager:
        _ = program.constants
    return Compiled(program, grouping, lowered, plan, tuple(fed), tuple(outputs))


def plan_graph(
    graph: Graph,
    outputs: Sequence[Value],
    nodes: Sequence[Node],
    fed: Sequence[Value],
    order: Order,
    kernels: KernelLibrary,
    failed: set[Node],
    chooser: Chooser | None = None,
    *,
    by_kernels: bool = False,
) -> tuple[Grouping, Lowered, NativePlan]:
    """Group, lower and plan nodes in their order; those in `failed`, to which it adds, are left to the host.

    With `by_kernels` they are ordered anew once it is known which of them share a kernel (see `kernel_order`).
    """
    whole: set[Node] = set()  # Ifs that are not taken apart
    while True:
        flat = flatten(nodes, order, whole | failed)
        known = KnownValues(fed, flat.nodes)
        kept, left = _kept_nodes(flat.nodes, outputs, known)
        grouping = form_groups(kept, fed, frozenset(failed), flat.regions, flat.merges, known)
        if by_kernels and not flat.merges:
            by_kernels, ordered = False, kernel_order(graph, flat.nodes, grouping)
            if ordered != flat.nodes:
                nodes = ordered
                continue
        whole_ifs = {flat.regions[node][0][0] for node in left if node in flat.regions} | grouping.whole_ifs
        if whole_ifs:
            whole |= whole_ifs
            continue
        expected = [*still_open(graph.size_checks, known.bound_sizes(())), *itertools.chain(*left.values())]
        try:
            lowered = lower_graph(graph, outputs, grouping, kernels.target, known, fed, expected, chooser)
        except LoweringFailed as error:
            _warn(error.nodes, error)
            failed.update(error.nodes)
            continue
        if lowered.whole_ifs:
            whole |= lowered.whole_ifs
            continue
        return grouping, lowered, plan_native(lowered)


def _ordered(order: Order, graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """The nodes in the order of another kind."""
    wanted = set(nodes)
    return [node for node in order(graph) if node in wanted]


def _least_memory(
    graph: Graph,
    outputs: Sequence[Value],
    candidates: Sequence[tuple[Sequence[Node], bool]],
    fed: Sequence[Value],
    order: Order,
    kernels: KernelLibrary,
) -> tuple[Sequence[Node], bool]:
    """Of several orders of the same nodes the one whose plan needs the least memory (`sparest`).

    With each goes whether kernels are to be ordered anew.
    """

    def plan(nodes: Sequence[Node], by_kernels: bool) -> NativePlan:
        return plan_graph(graph, outputs, nodes, fed, order, kernels, set(), by_kernels=by_kernels)[2]

    return candidates[sparest([plan(*each) for each in candidates])]


class _Constants:
    """The arrays of a program's constants, loaded while others compile its kernels, or when they are asked for."""

    def __init__(self, load: Callable[[], dict[int, Array]]) -> None:
        self._load = load
        self._loaded: dict[int, Array] | None = None

    def load_early(self) -> None:
        """Load them now. What goes wrong goes wrong again, and is raised, when they are taken."""
        with suppress(Exception):
            self._loaded = self._load()

    def take(self) -> dict[int, Array]:
        """The arrays, which are not kept here."""
        loaded, self._loaded = self._loaded, None
        return self._load() if loaded is None else loaded


def _load_constants(plan: NativePlan, weights: WeightStore) -> dict[int, Array]:
    numbered = ((number, buffer.constant) for number, buffer in enumerate(plan.buffers))
    return weights.load((number, constant) for number, constant in numbered if constant is not None)


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
    sizes = known.bound_sizes(set(kept))
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


def _call_of(node: Node, order: Order, settings: NativeSettings) -> Call:
    """What computes a node in Python; its bodies are native programs of their own."""
    plain = plain_node(node)
    outer = {value: position for position, value in enumerate(captured_by(node))}
    bodies = {name: _body_of(graph, outer, order, settings) for name, graph in graphs_of(node).items() if name in plain.bodies}
    loop_body = loop_body_of(node)
    loop = None if loop_body is None else partial(_compile_loop, node, loop_body, outer, order, settings)
    return call_of(plain, bodies, loop=loop, is_region=region_of(node) is not None)


def _body_of(graph: Graph, outer: Mapping[Value, int], order: Order, settings: NativeSettings) -> Body:
    """A subgraph of a node that captures some values."""
    node, captured = body_of(graph, outer)
    return Body(node, lambda: _compile_body(graph, captured, order, settings), _ReferenceBody(graph, captured, order))


def _compile_body(graph: Graph, captured: Sequence[Value], order: Order, settings: NativeSettings) -> Executable:
    nodes = needed_nodes(order(graph), graph.outputs)
    compiled = compile_graph(graph, graph.outputs, nodes, order, settings, [*graph.inputs, *captured])
    settings.bodies.compiled += 1
    return compiled.program


class _ReferenceBody:
    """A subgraph computed by NumPy, node by node."""

    def __init__(self, graph: Graph, captured: Sequence[Value], order: Order) -> None:
        self._graph = graph
        self._captured = captured
        self._order = order
        self._program: Executable | None = None

    def __call__(self, captured: Sequence[Any], args: Sequence[Any], control: RunControl) -> list[Any]:
        if self._program is None:
            with held_off:
                programs = HostPrograms(lambda node: (plain_node(node), None), self._order)
                self._program = programs.program(self._graph, self._graph.outputs, self._captured)
        return self._program.run_values([*args, *captured], control)


def _compile_loop(
    node: Node, loop_body: LoopBody, outer: Mapping[Value, int], order: Order, settings: NativeSettings
) -> NativeLoop | None:
    """The iterations of a Loop or Scan in native code; None if something in its body needs Python."""
    body = loop_body.body
    settings.bodies.compiled += 1
    nodes = needed_nodes(order(body), loop_body.made)
    captured = captured_inputs(body)
    inputs = [*body.inputs, *captured]
    if any(inner.subgraphs() for inner in nodes if inner.op_type != "If"):
        return None
    try:
        # Weights are packed when it is clear that the shapes allow it.
        compiled = compile_graph(body, loop_body.made, nodes, order, replace(settings, eager=False), inputs)
    except errors.EngineError as error:
        _log.warning("body %r cannot be compiled, NumPy runs it: %s", body.name, error)
        return None
    plan = compiled.plan
    fits = (
        all(isinstance(segment, NativeSegment) for segment in plan.segments)
        and [view.buffer.value for view in plan.inputs] == inputs
        and [view.buffer.value for view in plan.outputs] == loop_body.made
    )
    from sardonyx.runtime.native_loop import NativeLoop  # lazy: most models have no loops

    captures = [outer[value] for value in captured]
    return NativeLoop(compiled.program, loop_signature(loop_body), captures, node.label) if fits else None
