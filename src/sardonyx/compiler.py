"""The whole pipeline on one page: a model goes in, a program comes out.

model ── inline functions ── apply overrides ── infer types, check ── order and plan ──> Program
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx import errors
from sardonyx.analysis.check import check_model
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir.graph import Model, Node
from sardonyx.options import CompileOptions
from sardonyx.passes.apply_overrides import override_dimensions, override_initializers
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.plan.build import build_plan
from sardonyx.plan.order import execution_order
from sardonyx.plan.plan import ExecutionPlan, HostStep
from sardonyx.providers.provider import Provider
from sardonyx.providers.reference import ReferenceProvider
from sardonyx.runtime.executor import Program


def compile_model(model: Model, options: CompileOptions) -> Program:
    """Turn a model into a program. The model is changed in the process: load it anew to compile it differently."""
    InlineFunctions().run(model)
    override_initializers(model.graph, options.initializer_overrides)
    override_dimensions(model.graph, options.free_dimension_overrides)
    report = check_model(model)
    problems = [problem for problem in report if problem.severity == "error"]
    if problems:
        raise errors.InvalidGraph("\n".join(map(str, problems)), problems=tuple(map(str, problems)))
    infer_shapes(model)
    providers: tuple[Provider, ...] = (ReferenceProvider(),)

    def make_step(node: Node, inputs: Sequence[int], outputs: Sequence[int], bodies: Mapping[str, ExecutionPlan]) -> HostStep:
        for provider in providers:
            if provider.claims(node):
                return provider.step(node, inputs, outputs, bodies)
        raise errors.NotImplemented(f"{node.label}: no provider computes it")

    plan = build_plan(model.graph, make_step, lambda graph: execution_order(graph, options.execution_order))
    return Program(plan)
