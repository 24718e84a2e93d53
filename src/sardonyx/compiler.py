"""The whole pipeline on one page: a model goes in, a program comes out.

model ── inline functions ── apply overrides ── infer types, check ── order and plan ──> Program
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sardonyx import errors
from sardonyx.analysis.check import check_model
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.assemble import NativeModel, NativeSettings
from sardonyx.ir.graph import Graph, Model, Node, walk
from sardonyx.ir.types import TensorType
from sardonyx.options import REFERENCE_PROVIDER, CompileOptions, environment
from sardonyx.passes.apply_overrides import override_dimensions, override_initializers
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.plan.build import build_plan
from sardonyx.plan.order import execution_order
from sardonyx.plan.plan import ExecutionPlan, HostStep
from sardonyx.providers.provider import Provider
from sardonyx.providers.reference import ReferenceProvider
from sardonyx.runtime.executor import Program


def compile_model(model: Model, options: CompileOptions) -> Program | NativeModel:
    """Turn a model into a program. The model is changed in the process: load it anew to compile it differently."""
    InlineFunctions().run(model)
    override_initializers(model.graph, options.initializer_overrides)
    override_dimensions(model.graph, options.free_dimension_overrides)
    report = check_model(model)
    problems = [problem for problem in report if problem.severity == "error"]
    if problems:
        raise errors.InvalidGraph("\n".join(map(str, problems)), problems=tuple(map(str, problems)))
    infer_shapes(model)
    providers: list[Provider] = [ReferenceProvider()]

    def make_step(node: Node, inputs: Sequence[int], outputs: Sequence[int], bodies: Mapping[str, ExecutionPlan]) -> HostStep:
        for provider in providers:
            if provider.claims(node):
                return provider.step(node, inputs, outputs, bodies)
        raise errors.NotImplemented(f"{node.label}: no provider computes it")

    def order(graph: Graph) -> list[Node]:
        return execution_order(graph, options.execution_order)

    reference = Program(build_plan(model.graph, make_step, order))
    if options.providers[:1] == (REFERENCE_PROVIDER,):
        return reference
    trust_only_inference(model)
    settings = NativeSettings(
        environment().cache_folder,
        options.intra_op_num_threads,
        options.config.get("session.intra_op.allow_spinning", "1") != "0",
    )
    return NativeModel(model.graph, reference, order, settings)


def trust_only_inference(model: Model) -> None:
    """Infer all shapes anew without what the model says about them.

    Native code relies on the sizes: a model that claims a wrong shape for an intermediate value must not be believed.
    """
    for node in walk(model.graph):
        for value in node.outputs:
            if isinstance(value.type, TensorType):
                value.type = TensorType(value.type.dtype, None)
    infer_shapes(model)
