"""Assembles a native program: groups, lowers, plans and compiles a graph; what has no kernel, the host computes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sardonyx import errors
from sardonyx.codegen.library import KernelLibrary
from sardonyx.codegen.object_cache import ObjectCache, is_private
from sardonyx.codegen.target import host
from sardonyx.ir.graph import Graph, Node, Value, captured_values
from sardonyx.ir.types import TensorType
from sardonyx.lower.groups import Grouping, form_groups
from sardonyx.lower.lowering import LoweringFailed, lower_graph
from sardonyx.lower.shape_values import KnownValues
from sardonyx.lower.steps import HostNodeStep, Lowered
from sardonyx.plan.build import BodyPlan, Order, build_body, constant_array
from sardonyx.plan.native import NativePlan, plan_native
from sardonyx.plan.plan import SubgraphRunner
from sardonyx.providers.reference import ReferenceProvider
from sardonyx.runtime.executor import RunControl, run_body, run_step
from sardonyx.runtime.fast_path import USABLE, FastPath
from sardonyx.runtime.native_program import HostCall, NativeProgram, SizeConflict
from sardonyx.runtime.pool import Pool, usable_cores

_log = logging.getLogger("sardonyx")
_MOST_PROGRAMS = 16  # sets of fetched values whose programs are kept


@cache
def library(cache_folder: Path | None) -> KernelLibrary:
    """The kernels of this process. A folder that somebody else could write to is not even read."""
    folder = cache_folder if cache_folder is not None and is_private(cache_folder) else None
    return KernelLibrary(host(folder), ObjectCache(folder) if folder is not None else None)


_pools: dict[tuple[Path | None, int, bool], Pool] = {}
_pools_lock = threading.Lock()


def pool(cache_folder: Path | None, workers: int, spinning: bool) -> Pool:
    """The workers all sessions with these settings share; 0 workers means as many as this process may use."""
    key = (cache_folder, workers or usable_cores(), spinning)
    with _pools_lock:
        if key not in _pools:
            _pools[key] = Pool(library(cache_folder).driver(), key[1], spinning=spinning)
        return _pools[key]


@dataclass(frozen=True)
class Compiled:
    """A native program with everything that led to it, for explaining."""

    program: NativeProgram
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
    kernels = library(settings.cache_folder)
    fed = graph.inputs if inputs is None else inputs
    failed: set[Node] = set()
    known = KnownValues(fed, nodes)
    nodes = known.needed(nodes, outputs)
    while True:
        grouping = form_groups(nodes, fed, frozenset(failed))
        try:
            lowered = lower_graph(graph, outputs, grouping, kernels.target.lanes, known, fed)
        except LoweringFailed as error:
            _warn(error.nodes, error)
            failed.update(error.nodes)
            continue
        plan = plan_native(lowered)
        broken, addresses = _compile_kernels(kernels, lowered)
        if broken is None:
            break
        if not broken or broken <= failed:
            raise errors.EngineError("a kernel that belongs to no node cannot be compiled")
        failed |= broken
    host_calls = {step: _host_call(step.node, order, settings) for step in plan.segments if isinstance(step, HostNodeStep)}
    workers = pool(settings.cache_folder, settings.workers, settings.spinning)
    program = NativeProgram(plan, addresses, workers, host_calls)
    if settings.eager:
        _ = program.constants
    return Compiled(program, grouping, lowered, plan)


def _compile_kernels(kernels: KernelLibrary, lowered: Lowered) -> tuple[set[Node] | None, list[int]]:
    """The entry points of all kernel steps; or, if one cannot be compiled, the nodes it was for."""
    addresses: list[int] = []
    for step, group in zip(lowered.steps, lowered.groups):
        if isinstance(step, HostNodeStep):
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


def _host_call(node: Node, order: Order, settings: NativeSettings) -> HostCall:
    """A function that computes a node by its NumPy meaning; its bodies are native programs of their own."""
    reference = ReferenceProvider()
    step = reference.step(node, range(len(node.inputs)), range(len(node.outputs)), {})
    bodies = {attr.name: Body(attr.value, order, settings) for attr in node.attrs.values() if isinstance(attr.value, Graph)}

    def call(inputs: Sequence[Any], values: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl) -> Sequence[Any]:
        runners = {name: body.runner(values, sizes, control) for name, body in bodies.items()}
        return run_step(step, inputs, runners, control)

    return call


class Body:
    """A subgraph, compiled when it first runs: a branch that is never taken costs nothing.

    The values it captures are inputs like its own. What the compiled program was made for may not hold in every turn (a loop
    whose carried value changes its rank): then the reference plan takes over for that turn.
    """

    def __init__(self, graph: Graph, order: Order, settings: NativeSettings) -> None:
        self._graph = graph
        self._order = order
        self._settings = settings
        self._captured = [value for value in captured_values(graph) if not is_fixed(value, graph)]
        self._lock = threading.Lock()
        self._compiled: Compiled | None = None
        self._fast: FastPath | None = None
        self._reference: BodyPlan | None = None

    def runner(self, outer: Mapping[Value, Any], sizes: Mapping[str, int], control: RunControl) -> SubgraphRunner:
        """The body as a function of its own inputs; `outer` and `sizes` are what is known around it."""
        captured = {value: outer[value] for value in self._captured}

        def run(*args: Any) -> list[Any]:
            if len(args) != len(self._graph.inputs):
                raise ValueError(f"body {self._graph.name!r} takes {len(self._graph.inputs)} inputs, was given {len(args)}")
            try:
                compiled = self._program()
                if self._fast is not None and control.is_idle:
                    return self._fast.run_arrays([*args, *captured.values()])
                given = {**captured, **dict(zip(self._graph.inputs, args))}
                values = compiled.program.run(given, control, sizes)
            except SizeConflict:
                return self._run_reference(outer, args, control)
            except errors.EngineError as error:
                _log.warning("body %r cannot be compiled, NumPy runs it: %s", self._graph.name, error)
                return self._run_reference(outer, args, control)
            return [values[value] if value in values else constant_array(value) for value in self._graph.outputs]

        run.input_types = tuple(value.type for value in self._graph.inputs)  # type: ignore[attr-defined]
        run.output_types = tuple(value.type for value in self._graph.outputs)  # type: ignore[attr-defined]
        return run

    def _run_reference(self, outer: Mapping[Value, Any], args: Sequence[Any], control: RunControl) -> list[Any]:
        body = self._reference_plan()
        captured = [outer[value] if value in outer else constant_array(value) for value in body.captured]
        return run_body(body.plan, captured, args, control)

    def _program(self) -> Compiled:
        with self._lock:
            if self._compiled is None:
                inputs = [*self._graph.inputs, *self._captured]
                nodes = needed_nodes(self._order(self._graph), self._graph.outputs)
                self._compiled = compile_graph(self._graph, self._graph.outputs, nodes, self._order, self._settings, inputs)
                self._fast = fast_path(self._compiled, inputs, self._graph.outputs)
        return self._compiled

    def _reference_plan(self) -> BodyPlan:
        with self._lock:
            if self._reference is None:
                self._reference = build_body(self._graph, ReferenceProvider().step, self._order)
        return self._reference


def fast_path(compiled: Compiled, inputs: Sequence[Value], outputs: Sequence[Value]) -> FastPath | None:
    """The short way through a program, if there is one: all native, and outputs that are different values."""
    program = compiled.program
    native_inputs = {view.buffer.value for view in program.plan.inputs}
    native_outputs = {view.buffer.value for view in program.plan.outputs}
    fits = (
        USABLE
        and program.is_all_native
        and len(set(outputs)) == len(outputs)
        and all(value in native_inputs and value.constant is None for value in inputs)
        and all(value in native_outputs and _is_plain(value) for value in outputs)
    )
    return FastPath(program, inputs, outputs) if fits else None


def _is_plain(value: Value) -> bool:
    """Whether NumPy itself has the element type, so that a result is handed over as it is."""
    return isinstance(value.type, TensorType) and value.type.dtype.numpy.isbuiltin == 1


def is_fixed(value: Value, graph: Graph) -> bool:
    """Whether a value is a constant that no feed of the graphs around can replace."""
    around: Graph | None = graph
    while around is not None:
        if value in around.inputs:
            return False
        around = around.parent_node.graph if around.parent_node is not None else None
    return value.constant is not None


def needed_nodes(nodes: Sequence[Node], outputs: Sequence[Value]) -> list[Node]:
    """The nodes that some outputs depend on, in the given order."""
    wanted = set(outputs)
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(value for value in node.inputs if value is not None)
            wanted.update(value for graph in node.subgraphs() for value in captured_values(graph))
    return kept[::-1]
