"""Models that NumPy computes: fetches, lifetimes, ownership of results, errors, termination and concurrency."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sardonyx import errors
from sardonyx.compile.compiler import compile_model
from sardonyx.compile_options import CompileOptions
from sardonyx.dtypes import BOOL, FLOAT32, INT64
from sardonyx.ir import tensor
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.program.segments import BoundCall
from sardonyx.provider_names import REFERENCE_PROVIDER
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.reference_model import ReferenceModel
from sardonyx.runtime.runs import RunControl
from sardonyx.runtime.segment_runner import SegmentRunner
from threads import at_once

VERSION = 21
F32 = np.float32


def program(build: Callable[[Graph], None]) -> ReferenceModel:
    graph = Graph("g")
    build(graph)
    compiled = compile_model(Model(graph, opset_imports={"": VERSION}), CompileOptions(providers=(REFERENCE_PROVIDER,)))
    assert isinstance(compiled, ReferenceModel)
    return compiled


def add(graph: Graph, op: str, inputs: list[Value], output: str, **attrs: Graph) -> Value:
    result = Value(output)
    listed = [Attr(name, AttrKind.GRAPH, value) for name, value in attrs.items()]
    graph.append(Node(op, inputs, [result], listed, version=VERSION, name=f"node_{output}"))
    return result


def chain(graph: Graph) -> None:
    """x -> Neg -> a -> Exp -> b; w is a weight, and the outputs are b, x itself and w itself."""
    x = Value("x", TensorType(FLOAT32, (symbol("N"),)))
    graph.inputs.append(x)
    w = graph.add_initializer("w", tensor.from_numpy(np.array([1, 2], F32)))
    a = add(graph, "Neg", [x], "a")
    b = add(graph, "Exp", [a], "b")
    graph.outputs.extend([b, x, w])


def test_any_value_can_be_fetched_by_name() -> None:
    x = np.array([1, 2], F32)
    a, b, w = program(chain).run({"x": x}, ["a", "b", "w"])
    np.testing.assert_array_equal(a, -x)
    np.testing.assert_allclose(b, np.exp(-x), rtol=1e-6)
    np.testing.assert_array_equal(w, [1, 2])


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"no value is called 'nope'; outputs are: b, x, w"):
        program(chain).run({"x": np.zeros(2, F32)}, ["nope"])


def test_results_never_share_memory_with_feeds_weights_or_each_other() -> None:
    compiled = program(chain)
    x = np.array([1, 2], F32)
    _, passed, weight, again = compiled.run({"x": x}, ["b", "x", "w", "w"])
    for array in (passed, weight, again):
        assert array.flags.writeable
        array[:] = 99
    assert x.tolist() == [1, 2]
    assert compiled.run({"x": x}, ["w"])[0].tolist() == [1, 2]


def test_only_what_is_fetched_is_computed() -> None:
    seen: list[str] = []

    def note(timing: NodeTiming) -> None:
        seen.append(timing.op_type)

    program(chain).run({"x": np.zeros(2, F32)}, ["a"], RunControl(on_node=note))
    assert seen == ["Neg"]


def test_a_run_stops_when_told_to() -> None:
    with pytest.raises(errors.Fail, match="terminate flag"):
        program(chain).run({"x": np.zeros(2, F32)}, ["b"], RunControl(terminate=lambda: True))


def test_a_failing_node_is_named_with_what_it_was_given() -> None:
    def build(graph: Graph) -> None:
        x = Value("x", TensorType(FLOAT32, None))
        y = Value("y", TensorType(FLOAT32, None))
        graph.inputs.extend([x, y])
        graph.outputs.append(add(graph, "Add", [x, y], "z"))

    with pytest.raises(errors.InvalidArgument, match=r"Add 'node_z'.*inputs: float32\[2\], float32\[3\]"):
        program(build).run({"x": np.zeros(2, F32), "y": np.zeros(3, F32)}, ["z"])


def branch(name: str, op: str, x: Value) -> Graph:
    """A subgraph without inputs that captures x."""
    graph = Graph(name)
    graph.outputs.append(add(graph, op, [x], f"{name}_out"))
    return graph


def conditional(graph: Graph) -> None:
    x = Value("x", TensorType(FLOAT32, (symbol("N"),)))
    cond = Value("cond", TensorType(BOOL, ()))
    graph.inputs.extend([x, cond])
    hidden = add(graph, "Neg", [x], "hidden")
    inner_if = Graph("outer_then")
    nested = add(inner_if, "If", [cond], "nested", then_branch=branch("t", "Abs", hidden), else_branch=branch("e", "Neg", hidden))
    inner_if.outputs.append(nested)
    graph.outputs.append(add(graph, "If", [cond], "y", then_branch=inner_if, else_branch=branch("f", "Identity", hidden)))


def test_bodies_see_values_of_all_enclosing_graphs() -> None:
    x = np.array([1, -2], F32)
    compiled = program(conditional)
    np.testing.assert_array_equal(compiled.run({"x": x, "cond": np.array(True)}, ["y"])[0], [1, 2])
    np.testing.assert_array_equal(compiled.run({"x": x, "cond": np.array(False)}, ["y"])[0], [-1, 2])


def test_many_threads_may_run_one_program() -> None:
    compiled = program(chain)
    failures: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).normal(size=1000).astype(F32)
        for _ in range(20):
            (result,) = compiled.run({"x": x}, ["b"])
            if not np.allclose(result, np.exp(-x)):
                failures.append(seed)

    at_once(work, range(8))
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_program_goes_on_working_after_fork() -> None:
    compiled = program(chain)
    x = np.ones(3, F32)
    compiled.run({"x": x}, ["b"])
    child = os.fork()
    if child == 0:  # only os._exit leaves the child, so that pytest does not run twice
        status = 1
        try:
            status = 0 if np.allclose(compiled.run({"x": x}, ["b"])[0], np.exp(-x)) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[int] = []

    def build(graph: Graph) -> None:
        x = Value("x", TensorType(FLOAT32, (1 << 16,)))
        graph.inputs.append(x)
        value = x
        for index in range(50):
            value = add(graph, "Neg", [value], f"v{index}")
        graph.outputs.append(value)

    runner = program(build).main.segments
    assert isinstance(runner, SegmentRunner)
    live = 0
    for segment in runner.bound.segments:
        assert isinstance(segment, BoundCall)
        live += len(segment.outputs) - len(segment.dead)
        alive.append(live)
    assert max(alive) <= 2


def test_a_loop_runs_its_body_the_given_number_of_times() -> None:
    def build(graph: Graph) -> None:
        count = Value("count", TensorType(INT64, ()))
        x = Value("x", TensorType(FLOAT32, (2,)))
        graph.inputs.extend([count, x])
        go = graph.add_initializer("go", tensor.from_numpy(np.array(True)))
        body = Graph("body")
        iteration, condition, carried = Value("i", TensorType(INT64, ())), Value("c", TensorType(BOOL, ())), Value("v")
        carried.type = TensorType(FLOAT32, (2,))
        body.inputs.extend([iteration, condition, carried])
        body.outputs.extend([add(body, "Identity", [condition], "c_out"), add(body, "Add", [carried, x], "v_out")])
        graph.outputs.append(add(graph, "Loop", [count, go, x], "y", body=body))

    (result,) = program(build).run({"count": np.array(4), "x": np.array([1, 2], F32)}, ["y"])
    np.testing.assert_array_equal(result, [5, 10])
