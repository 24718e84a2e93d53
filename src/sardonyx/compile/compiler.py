"""The whole pipeline on one page: a model goes in, a program comes out.

model ── inline functions ── apply overrides ── infer types, check ─┬─ order and plan ─────────────> Program (NumPy)
                                                                    └─ passes ── lower and compile ─> NativeModel
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sardonyx import errors
from sardonyx.analysis.check import check_model
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.compile.assemble import NativeSettings, library
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile_options import CompileOptions
from sardonyx.ir.clone import Cloner
from sardonyx.ir.graph import Graph, Model, Node
from sardonyx.ir.tensor import from_numpy
from sardonyx.ir.types import TensorType
from sardonyx.options import REFERENCE_PROVIDER, GraphOptimizationLevel, environment
from sardonyx.passes.apply_overrides import (
    free_parameters,
    free_sequence_elements,
    override_dimensions,
    override_initializers,
    settle_initializers,
)
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.pipeline import InconsistentGraph, PassReport, PipelineReport, run_passes
from sardonyx.passes.rewriter import all_graphs
from sardonyx.plan.build import build_plan
from sardonyx.plan.order import execution_order
from sardonyx.providers.reference import ReferenceProvider
from sardonyx.runtime.cases import Case
from sardonyx.runtime.executor import Program
from sardonyx.target.target import Target

_log = logging.getLogger("sardonyx")


def compile_model(
    model: Model, options: CompileOptions, on_optimised: Callable[[Model], None] | None = None
) -> Program | NativeModel:
    """Turn a model into a program. The model is changed in the process: load it anew to compile it differently.

    `on_optimised` sees the model as the passes of the level leave it, made of operators that other engines know; what follows
    serves this machine alone (the blocked layout).
    """
    InlineFunctions().run(model)
    settle_initializers(model)
    free_sequence_elements(model.graph)
    override_initializers(model.graph, options.initializer_overrides)
    free_parameters(model.graph, options.parameters)
    override_dimensions(model.graph, options.free_dimension_overrides)
    problems = [problem for problem in check_model(model, infer_shapes(model)) if problem.severity == "error"]
    if problems:
        raise errors.InvalidGraph("\n".join(map(str, problems)), problems=tuple(map(str, problems)))
    for graph in all_graphs(model):
        graph.stated_outputs = tuple(value.type for value in graph.outputs)
    for node in model.graph.nodes:
        if not ReferenceProvider().claims(node):
            ReferenceProvider().step(node, (), (), {})  # raises: no provider computes it

    def order(graph: Graph) -> list[Node]:
        return execution_order(graph, options.execution_order)

    original = Cloner().graph(model.graph)  # what is computed if a value is fetched that the passes have removed

    def reference() -> Program:
        return Program(build_plan(original, ReferenceProvider().step, order))

    if options.providers[:1] == (REFERENCE_PROVIDER,):
        if on_optimised is not None:
            on_optimised(model)
        return reference()
    settings = NativeSettings(
        _cache_folder(),
        options.intra_op_num_threads,
        options.config.get("session.intra_op.allow_spinning", "1") != "0",
        # A session that rewrites nothing is asked to open at once, whatever the size of the weights.
        eager=options.optimization_level > GraphOptimizationLevel.ORT_DISABLE_ALL,
        target=environment().target,
    )
    target = library(settings.cache_folder, settings.target).target  # one that this machine does not have is an error

    def specialised(case: Case) -> NativeModel:
        special = dataclasses.replace(model, graph=Cloner().graph(original))
        facts = {name: (shape, number) for name, shape, number in case}
        for value in special.graph.inputs:
            shape, number = facts.get(value.name, (None, None))
            if shape is None or not isinstance(value.type, TensorType):
                continue
            value.type = TensorType(value.type.dtype, shape)
            if number is not None:
                data = np.full(shape, number, value.type.dtype.numpy)
                special.graph.replace_uses(value, special.graph.add_initializer(f"{value.name} is {number}", from_numpy(data)))
        return NativeModel(special.graph, original, reference, order, settings, optimise(special, options, target))

    try:
        report = optimise(model, options, target, on_optimised)
        return NativeModel(model.graph, original, reference, order, settings, report, None if options.parameters else specialised)
    except errors.SardonyxError as error:
        if isinstance(error, InconsistentGraph) or not isinstance(error, errors.EngineError):
            raise
        _log.warning("the model cannot be compiled, NumPy runs it: %s", error)
    except Exception as error:  # sizes nobody can have meant, attributes that make no sense: the run names the node
        _log.warning("the model cannot be compiled, NumPy runs it: %s: %s", type(error).__name__, error)
    return reference()


def optimise(
    model: Model,
    options: CompileOptions,
    target: Target | None = None,
    on_portable: Callable[[Model], None] | None = None,
    on_pass: Callable[[PassReport], None] | None = None,
) -> PipelineReport:
    """Run the passes of the level, for a target; afterwards all types follow from those of the inputs."""
    return run_passes(model, options, target or library(_cache_folder()).target, on_portable, on_pass)


def _cache_folder() -> Path | None:
    folder = environment().cache_folder
    return None if folder is None else Path(folder)
