"""For tests of native code: compile a model natively, run it, and compare with the NumPy meaning of its operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.compile.assemble import Compiled, NativeSettings, compile_graph
from sardonyx.compile.providers import reference_model
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Model, Node
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.program.steps import HostNodeStep
from sardonyx.runtime.runs import RunControl


def in_order(graph: Graph) -> list[Node]:
    """The nodes as they stand."""
    return list(graph.nodes)


def prepared(model: Any) -> Graph:
    """The graph of a model (a Model, bytes, or an object with SerializeToString) with functions inlined and types inferred."""
    loaded = model if isinstance(model, Model) else load(model)
    InlineFunctions().run(loaded)
    infer_shapes(loaded)
    return loaded.graph


def compile_native(model: Any, workers: int = 1, target: str = "") -> tuple[Graph, Compiled]:
    """A model's graph and its native program for the target of a name, kept out of any cache."""
    graph = prepared(model)
    settings = NativeSettings(workers=workers, target=target)
    return graph, compile_graph(graph, graph.outputs, in_order(graph), in_order, settings)


def run_native(graph: Graph, compiled: Compiled, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a native program for feeds by name."""
    values = compiled.run_values({value: feeds[value.name] for value in graph.inputs}, RunControl())
    return [values[output] for output in graph.outputs]


def run_reference(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs by the NumPy meaning of every operator."""
    graph = prepared(model)
    program = reference_model(graph, in_order)
    return program.run(dict(feeds), [output.name for output in graph.outputs])


def host_nodes(compiled: Compiled) -> list[str]:
    """The operators that were not lowered: a test of a kernel wants this empty."""
    return [step.node.op_type for step in compiled.lowered.steps if isinstance(step, HostNodeStep)]


def assert_native_agrees(
    model: Any, feeds: Mapping[str, Any], *, rtol: float = 1e-5, atol: float = 1e-6, native: bool = True, target: str = ""
) -> None:
    """Native and reference give the same outputs; with `native`, no node may fall back to the host."""
    content = model if isinstance(model, bytes) else model.SerializeToString()
    graph, compiled = compile_native(content, target=target)
    if native:
        assert not host_nodes(compiled), f"not lowered: {host_nodes(compiled)} ({list(compiled.grouping.refusals.values())})"
    for actual, expected in zip(run_native(graph, compiled, feeds), run_reference(content, feeds)):
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        if expected.dtype.kind in "fV" or expected.dtype.name == "bfloat16":
            with np.errstate(invalid="ignore"):  # NaN that signals
                found, wanted = actual.astype(np.float64), expected.astype(np.float64)
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(actual, expected)
