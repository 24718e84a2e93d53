"""For tests of blocked kernels: small convolutional models, run in the blocked layout, also with every buffer under guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from native_support import host_nodes, in_order, prepared, run_native, run_reference
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.codegen.library import KernelLibrary
from sardonyx.compile.assemble import Compiled, NativeSettings, compile_graph, library
from sardonyx.compile.providers import reference_model
from sardonyx.ir.graph import Graph
from sardonyx.ir.tensor import Array
from sardonyx.lower.groups import form_groups
from sardonyx.lower.lower_graph import lower_graph
from sardonyx.passes.assign_layout import assign_layout
from sardonyx.passes.protocol import PassResult
from sardonyx.program.steps import Lowered
from sardonyx.target.target import Target
from step_runner import GuardedMachine, run_steps


def lanes() -> int:
    """The float32 lanes of this machine."""
    return library(None).target.lanes


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    constants: Mapping[str, Array],
    outputs: Sequence[str] = ("y",),
    opset: int = 19,
) -> ModelProto:
    """A model of these nodes; a dimension may be a name."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def numbers(seed: int, *shape: int) -> Array:
    """Random float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def blocked(content: ModelProto, target: Target | None = None) -> tuple[Graph, PassResult]:
    """A model's graph in the blocked layout; its types are those that inference finds as well."""
    graph = prepared(content.SerializeToString())
    result = assign_layout(graph, target or library(None).target)
    report = infer_shapes(graph)
    assert not report.problems, report.problems
    return graph, result


def compiled(graph: Graph, workers: int = 1) -> Compiled:
    """A graph's native program."""
    return compile_graph(graph, graph.outputs, in_order(graph), in_order, NativeSettings(workers=workers))


def assert_blocked_agrees(
    content: ModelProto,
    feeds: Mapping[str, Array],
    *,
    rtol: float = 1e-4,
    atol: float = 1e-4,
    guard: bool = False,
    native: bool = True,
) -> Compiled:
    """The blocked graph gives the same as the plain one: by NumPy, natively, and (with `guard`) with every buffer guarded."""
    expected = run_reference(content.SerializeToString(), feeds)
    graph, _ = blocked(content)
    by_numpy = reference_model(graph, in_order)
    results = [by_numpy.run(dict(feeds), [output.name for output in graph.outputs])]
    program = compiled(graph)
    if native:
        assert not host_nodes(program), list(program.grouping.refusals.values())
    results.append(run_native(graph, program, feeds))
    if guard:
        results.append(run_guarded(program.lowered, feeds))
    for result in results:
        for actual, wanted in zip(result, expected):
            assert actual.dtype == wanted.dtype
            assert actual.shape == wanted.shape
            np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol)
    return program


def run_guarded(lowered: Lowered, feeds: Mapping[str, Array], kernels: KernelLibrary | None = None) -> list[Array]:
    """Run a program of kernels step by step, each buffer in memory of its own that ends at an inaccessible page."""
    return run_steps(lowered, feeds, GuardedMachine(library(None) if kernels is None else kernels))


def lowered_for(content: ModelProto, target: Target) -> Lowered:
    """A model in blocks, as steps for a target."""
    graph, _ = blocked(content, target)
    grouping = form_groups(in_order(graph), graph.inputs)
    return lower_graph(graph, graph.outputs, grouping, target)
