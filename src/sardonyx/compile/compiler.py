"""The whole pipeline on one page: a model goes in, a program comes out.

model ── inline functions ── apply overrides ── infer types, check ── divide between providers ──┐
    ┌────────────────────────────────────────────────────────────────────────────────────────────┘
    ├─ passes ── lower and compile ──> NativeModel         what others have claimed are steps of it
    └─ order and plan ───────────────> ReferenceModel (NumPy)
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from sardonyx import errors
from sardonyx.analysis.check import check_model, unknown_operators
from sardonyx.analysis.problems import Problem
from sardonyx.analysis.shapes import ShapeReport, infer_shapes
from sardonyx.compile.assemble import NativeSettings, library, plan_graph
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile.providers import (
    HostProvider,
    PartitionedModel,
    ReferenceProvider,
    divide,
    make_provider,
    reference_model,
    with_nodes_back,
)
from sardonyx.compile_options import CompileOptions
from sardonyx.enums import ExecutionOrder, GraphOptimizationLevel
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Graph, Model, Node, needed_nodes
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import TensorType
from sardonyx.matching.signatures import resolver_of
from sardonyx.ops.signature import signature
from sardonyx.options import DISABLE_PACKING_KEY, TIME_CANDIDATES_KEY, environment
from sardonyx.passes.apply_overrides import (
    free_parameters,
    free_sequence_elements,
    leave_unpacked,
    override_dimensions,
    override_initializers,
    settle_initializers,
)
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.pipeline import InconsistentGraph, PassReport, PipelineReport, run_passes
from sardonyx.passes.rewriter import all_graphs
from sardonyx.plan.host_plan import Order
from sardonyx.plan.least_peak import least_peak_order
from sardonyx.plan.native import NativePlan
from sardonyx.plan.order import execution_order, has_yield
from sardonyx.plan.peak import sparest
from sardonyx.provider_names import CPU_PROVIDER
from sardonyx.providers.protocol import ExecutionProvider, GraphView
from sardonyx.providers.reference import definition_of, plain_node
from sardonyx.runtime.reference_model import ReferenceModel, named_values
from sardonyx.runtime.specialisations import SpecialisationKey
from sardonyx.runtime.weight_store import shared_store
from sardonyx.target.target import Target

_log = logging.getLogger("sardonyx")


def compile_model(
    model: Model, options: CompileOptions, on_optimised: Callable[[Model], None] | None = None
) -> ReferenceModel | NativeModel | PartitionedModel:
    """Turn a model into a program. The model is changed in the process: load it anew to compile it differently.

    `on_optimised` sees the model as the passes of the level leave it, made of operators that other engines know; what follows
    serves this machine alone (the blocked layout).
    """
    _settle(model, options)
    providers = [make_provider(name, options, BUILT_IN) for name in options.providers]
    if not any(isinstance(provider, HostProvider) for provider in providers):
        providers.append(CpuProvider(options))  # takes what is left
    is_extended = not all(isinstance(provider, HostProvider) for provider in providers)
    inferred = _check(model, is_extended)
    first = providers[0]
    if isinstance(first, HostProvider) and first.takes_all(model.graph):
        return first.program(model, on_optimised, inferred)
    whole = Cloner().graph(model.graph)
    host = _divided(model, providers)
    hidden = frozenset(named_values(whole)) - frozenset(named_values(model.graph))

    def compile_for(graph: Graph) -> ReferenceModel | NativeModel:
        part = dataclasses.replace(model, graph=graph)
        return _divided(part, providers).program(part, None)

    return PartitionedModel(whole, hidden, host.program(model, with_nodes_back(on_optimised)), compile_for)


def rewrite_model(model: Model, options: CompileOptions, on_optimised: Callable[[Model], None]) -> PipelineReport:
    """Show `on_optimised` the same as `compile_model` does, but compile nothing; what the passes did."""
    prepare_model(model, options)
    return optimise(model, options, on_portable=on_optimised)


def prepare_model(model: Model, options: CompileOptions) -> None:
    """What comes before the passes: functions inlined, the caller's overrides applied, types inferred, faults refused."""
    _settle(model, options)
    _check(model, is_extended=False)


def _priority_based(graph: Graph) -> list[Node]:
    return execution_order(graph, ExecutionOrder.PRIORITY_BASED)


_OTHER_ORDERS: Final[tuple[Order, ...]] = (_priority_based, least_peak_order)  # than the default one


def plans_by_order(model: Model, options: CompileOptions) -> dict[str, NativePlan]:
    """How the model is planned in each order, by its name; kernels are not compiled. The model is changed in the process."""
    prepare_model(model, options)
    settings = native_settings(options)
    kernels = settings.library()
    optimise(model, options, kernels.target)
    graph = model.graph
    orders: dict[str, Order] = {
        "DEFAULT": execution_order,
        "PRIORITY_BASED": _priority_based,
        "least peak first": least_peak_order,
    }
    if has_yield(graph):
        orders["MEMORY_EFFICIENT"] = lambda graph: execution_order(graph, ExecutionOrder.MEMORY_EFFICIENT)

    def plan(order: Order, *, by_kernels: bool = False) -> NativePlan:
        nodes = needed_nodes(order(graph), graph.outputs)
        unique = list(dict.fromkeys(graph.outputs))
        return plan_graph(graph, unique, nodes, graph.inputs, order, kernels, set(), by_kernels=by_kernels)[2]

    plans = {name: plan(order, by_kernels=order is execution_order) for name, order in orders.items()}
    if "MEMORY_EFFICIENT" not in plans:
        first, *others = plans.values()
        candidates = [first, plan(execution_order), *others]  # as a session tries them
        plans["MEMORY_EFFICIENT"] = candidates[sparest(candidates)]
    return plans


def native_settings(options: CompileOptions) -> NativeSettings:
    """How graphs are compiled and run with these options."""
    return NativeSettings(
        _cache_folder(),
        options.intra_op_num_threads,
        options.config.get("session.intra_op.allow_spinning", "1") != "0",
        # A session that rewrites nothing is asked to open at once, whatever the size of the weights.
        eager=options.optimization_level > GraphOptimizationLevel.ORT_DISABLE_ALL,
        target=environment().target,
        weights=options.weights or shared_store(),
        by_kernels=options.execution_order != ExecutionOrder.PRIORITY_BASED,
        orders=_OTHER_ORDERS if options.execution_order == ExecutionOrder.MEMORY_EFFICIENT else (),
        kernels=options.kernels,
        on_progress=options.on_progress,
        times_candidates=options.flag(TIME_CANDIDATES_KEY) and not options.deterministic,
    )


def _settle(model: Model, options: CompileOptions) -> None:
    """Functions inlined, and what the caller wants otherwise."""
    InlineFunctions().run(model)
    _forget_unknown_attributes(model)
    settle_initializers(model)
    free_sequence_elements(model.graph)
    override_initializers(model.graph, options.initializer_overrides)
    free_parameters(model.graph, options.parameters)
    override_dimensions(model.graph, options.free_dimension_overrides)


def _forget_unknown_attributes(model: Model) -> None:
    """Take attributes away that ONNX's operators do not have in their versions.

    An older or newer version may have one, as the axes of a reduction that are an input now: operators ignore it then, and so
    must everybody who rewrites or compiles them.
    """
    for graph in all_graphs(model):
        for node in graph.nodes:
            found = None if node.domain or not node.attrs else signature(node.domain, node.op_type, node.version)
            if found is not None:
                for name in [name for name in node.attrs if name not in found.attributes and not name.startswith("_")]:
                    del node.attrs[name]


def _check(model: Model, is_extended: bool) -> ShapeReport:
    """Infer all types, and refuse a model with errors; what was inferred."""
    inferred = infer_shapes(model)
    _refuse(check_model(model, inferred, is_extended=is_extended))
    for graph in all_graphs(model):
        graph.stated_outputs = tuple(value.type for value in graph.outputs)
    return inferred


def _refuse(problems: Iterable[Problem]) -> None:
    """Raise if there are errors among the problems of a model."""
    found = tuple(str(problem) for problem in problems if problem.severity == "error")
    if found:
        raise errors.InvalidGraph("\n".join(found), problems=found)


def _divided(model: Model, providers: Sequence[ExecutionProvider]) -> HostProvider:
    """Divide a model between providers; the one that runs it."""
    host = divide(model.graph, providers, resolver_of(model.type_arguments))
    _refuse(unknown_operators(model.graph))
    if host is not None:
        return host
    for node in model.graph.nodes:
        if definition_of(node) is None:
            plain_node(node)  # raises: no provider computes it
    raise AssertionError("a provider that runs models takes every node that is defined")


class CpuProvider(HostProvider):
    """Compiles models to machine code; what has no kernel is computed by its NumPy definition, between native steps."""

    name: ClassVar[str] = CPU_PROVIDER

    def claim(self, view: GraphView) -> Iterable[Collection[Node]]:
        claimed = [node for node in view.nodes if definition_of(node) is not None]
        return [claimed] if len(claimed) == len(view.nodes) else view.regions(claimed)

    def program(
        self, model: Model, on_optimised: Callable[[Model], None] | None, inferred: ShapeReport | None = None
    ) -> ReferenceModel | NativeModel:
        options = self.options

        packs = options.config.get(DISABLE_PACKING_KEY, "0") != "1"

        def order(graph: Graph) -> list[Node]:
            return execution_order(graph, options.execution_order)

        original = Cloner().graph(model.graph)  # what is computed if a value is fetched that the passes have removed

        def reference() -> ReferenceModel:
            return reference_model(original, order)

        settings = native_settings(options)
        target = settings.library().target  # one that this machine does not have is an error

        def specialised(specialisation: SpecialisationKey) -> NativeModel:
            special = dataclasses.replace(model, graph=Cloner().graph(original))
            facts = {name: (shape, number) for name, shape, number in specialisation}
            free_parameters(special.graph, facts.keys() & special.graph.initializers.keys())  # fed: what they held is not read
            for value in special.graph.inputs:
                shape, number = facts.get(value.name, (None, None))
                if shape is None or not isinstance(value.type, TensorType):
                    continue
                value.type = TensorType(value.type.dtype, shape)
                if number is not None:
                    data = np.array(number, value.type.dtype.numpy).reshape(shape)
                    fixed = special.graph.add_initializer(f"{value.name} is {number}", from_numpy(data))
                    for node, index in list(value.uses):  # an output that is this input stays that
                        node.set_input(index, fixed)
            special_report = optimise(special, options, target)
            if not packs:
                leave_unpacked(special.graph)
            return NativeModel(special.graph, original, reference, order, settings, special_report)

        try:
            report = optimise(model, options, target, on_optimised, inferred=inferred)
            if not packs:
                leave_unpacked(model.graph)
            specialise = None if options.parameters else specialised
            return NativeModel(model.graph, original, reference, order, settings, report, specialise)
        except errors.SardonyxError as error:
            if isinstance(error, InconsistentGraph) or not isinstance(error, errors.EngineError):
                raise
            _log.warning("the model cannot be compiled, NumPy runs it: %s", error)
        except Exception as error:  # sizes nobody can have meant, attributes that make no sense: the run names the node
            _log.warning("the model cannot be compiled, NumPy runs it: %s: %s", type(error).__name__, error)
        return reference()


BUILT_IN: Final[Mapping[str, type[HostProvider]]] = {each.name: each for each in (CpuProvider, ReferenceProvider)}


def optimise(
    model: Model,
    options: CompileOptions,
    target: Target | None = None,
    on_portable: Callable[[Model], None] | None = None,
    on_pass: Callable[[PassReport], None] | None = None,
    inferred: ShapeReport | None = None,
) -> PipelineReport:
    """Run the passes of the level, for a target; afterwards all types follow from those of the inputs."""
    return run_passes(model, options, target or library(_cache_folder()).target, on_portable, on_pass, inferred)


def _cache_folder() -> str | None:
    folder = environment().cache_folder
    return None if folder is None else os.path.normpath(folder)
