"""Assembles a native program: groups, lowers, plans and compiles a graph; what has no kernel, the host computes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.codegen.emit import KernelLibrary
from sardonyx.codegen.object_cache import ObjectCache
from sardonyx.codegen.target import host
from sardonyx.ir.graph import Graph, Node, Value, captured_values
from sardonyx.lower.groups import Grouping, form_groups
from sardonyx.lower.lowering import lower_graph
from sardonyx.lower.steps import HostNodeStep, Lowered
from sardonyx.plan.build import build_plan
from sardonyx.plan.native import NativePlan, plan_native
from sardonyx.plan.plan import ExecutionPlan
from sardonyx.providers.reference import ReferenceProvider
from sardonyx.runtime.executor import RunControl, run_step
from sardonyx.runtime.native_program import HostCall, NativeProgram
from sardonyx.runtime.pool import Pool, usable_cores


@cache
def library(cache_folder: Path | None) -> KernelLibrary:
    """The kernels of this process."""
    return KernelLibrary(host(cache_folder), ObjectCache(cache_folder) if cache_folder is not None else None)


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


def compile_graph(
    graph: Graph,
    order: Callable[[Graph], Sequence[Node]],
    *,
    cache_folder: Path | None = None,
    workers: int = 0,
    spinning: bool = True,
    claims: Callable[[Node], bool] = lambda node: True,
) -> Compiled:
    """Group, lower, plan and compile a graph whose types are inferred."""
    kernels = library(cache_folder)
    nodes = order(graph)
    grouping = form_groups(nodes, claims)
    lowered = lower_graph(graph, nodes, grouping, kernels.target.lanes)
    plan = plan_native(lowered)
    addresses = kernels.addresses(step.kernel for step in plan.steps)
    host_calls = {step: _host_call(step.node, order) for step in plan.segments if isinstance(step, HostNodeStep)}
    program = NativeProgram(plan, addresses, pool(cache_folder, workers, spinning), host_calls, graph.inputs)
    return Compiled(program, grouping, lowered, plan)


def _host_call(node: Node, order: Callable[[Graph], Sequence[Node]]) -> HostCall:
    """A function that computes a node by its NumPy meaning, its bodies included."""
    reference = ReferenceProvider()
    captured = list(dict.fromkeys(value for graph in node.subgraphs() for value in captured_values(graph)))
    enclosing = {value: number for number, value in enumerate(captured)}
    bodies: dict[str, ExecutionPlan] = {
        attr.name: build_plan(attr.value, reference.step, order, enclosing)
        for attr in node.attrs.values()
        if isinstance(attr.value, Graph)
    }
    step = reference.step(node, range(len(node.inputs)), range(len(node.outputs)), bodies)

    def call(inputs: Sequence[Any], values: Mapping[Value, Any], control: RunControl) -> Sequence[Any]:
        return run_step(step, inputs, [_value_of(value, values) for value in captured], control)

    return call


def _value_of(value: Value, values: Mapping[Value, Any]) -> Any:
    if value in values:
        return values[value]
    if value.constant is not None:
        return np.asarray(value.constant.numpy())  # type: ignore[union-attr]
    raise KeyError(value.name)
