"""One executable, one pool of contexts: single calls and runs segment by segment take turns in the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from model_text import model
from native_support import compile_native
from provider_support import CPU, Recording, registered
from sardonyx import errors
from sardonyx.compile.assemble import Compiled
from sardonyx.compile.compiler import compile_model
from sardonyx.compile.providers import PartitionedModel
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph
from sardonyx.provider_names import REFERENCE_PROVIDER
from sardonyx.runtime.executable import Executable
from sardonyx.runtime.native_core import SizeConflict
from sardonyx.runtime.runs import RunControl

ONE_CALL = "(float[N,4] x, float[M,N] w) => (float[M,4] y, float[N,4] z) { t = Relu(x) y = MatMul(w, t) z = Softmax(x) }"
EVERY_KIND = """(float[4] x, int64 n) => (float[] y) {
    a = Exp(x)  m = ReduceMax <keepdims = 0> (a)  one = Constant <value = float {1}> ()  c = Less(m, one)
    b = If (c) <
        then_branch = t () => (float[4] u) { v = Sin(a)  u = Unique <sorted = 0> (v) },
        else_branch = e () => (float[4] w) { w = Neg(a) }
    >
    l = Loop (n, , a) <body = g (int64 i, bool k, float[4] s) => (bool d, float[4] r) { d = Identity(k)  r = Add(s, x) }>
    p = Add(b, l)  q = Erf(p)  z = NonZero(q)  f = Cast <to = 1> (z)  h = ReduceSum <keepdims = 0> (f)
    o = SequenceConstruct(h, h, h)  left = SequenceErase(o)  j = ConcatFromSequence <axis = 0, new_axis = 1> (left)  y = Neg(j)
}"""
DATA_DEPENDENT = "(float[N] x) => (float[K] y) { c = Cast<to=9>(x) y = Compress<axis=0>(x, c) }"


def compiled(text: str) -> tuple[Graph, Compiled]:
    return compile_native(load(model(text, 13)))


def by_segments(graph: Graph, made: Compiled, arrays: list[Any]) -> list[Any]:
    values = made.run_values(dict(zip(graph.inputs, arrays)), RunControl())
    return [values[output] for output in graph.outputs]


def test_both_ways_share_contexts_and_agree_to_the_bit() -> None:
    graph, made = compiled(ONE_CALL)
    program = made.program
    assert program.takes_arrays
    assert program.is_one_call
    random = np.random.default_rng(0)
    for n, m in ((3, 2), (5, 2), (5, 2), (1, 7), (3, 2), (300, 40), (3, 2)):
        arrays = [random.normal(size=shape).astype(np.float32) for shape in ((n, 4), (m, n))]
        first = program.run_arrays(arrays)
        for _ in range(2):
            for one, other in zip(first, by_segments(graph, made, arrays), strict=True):
                np.testing.assert_array_equal(one, other)
        for one, other in zip(first, program.run_arrays(arrays), strict=True):
            np.testing.assert_array_equal(one, other)
        assert len(program._free) == 1
    program.shrink()
    assert not program._free


def test_sizes_that_kernels_tell_leave_a_context_that_can_be_used_again() -> None:
    graph, made = compiled(DATA_DEPENDENT)
    program = made.program
    assert program.takes_arrays
    assert not program.is_one_call
    for values in ([0, 1, 2], [0, 0, 0], [1, 2, 3, 4], [0, 5], [0, 1, 2]):
        x = np.array(values, np.float32)
        expected = x[x != 0]
        for found in (program.run_arrays([x]), program.run({graph.inputs[0].name: x}), by_segments(graph, made, [x])):
            assert found is not None
            np.testing.assert_array_equal(found[0], expected)
    assert len(program._free) == 1


def test_a_conflict_of_sizes_leaves_a_context_that_is_set_up_for_nothing() -> None:
    graph, made = compiled(ONE_CALL)
    good = [np.ones((3, 4), np.float32), np.ones((2, 3), np.float32)]
    bad = [np.ones((3, 4), np.float32), np.ones((2, 5), np.float32)]
    expected = made.program.run_arrays(good)[0]
    for run in (made.program.run_arrays, lambda arrays: by_segments(graph, made, arrays)):
        with pytest.raises(SizeConflict):
            run(bad)
        np.testing.assert_array_equal(run(good)[0], expected)


@pytest.mark.parametrize("provider", [CPU, REFERENCE_PROVIDER])
def test_one_executable_has_segments_of_every_kind(provider: str) -> None:
    content = model(EVERY_KIND, 18)
    feeds = {"x": np.array([-1, 0.5, 2, -3], np.float32), "n": np.array(3)}
    with registered(Recording):
        options = CompileOptions(
            providers=(Recording.name, provider), provider_options={Recording.name: {"operators": "Erf"}, provider: {}}
        )
        made = compile_model(load(content), options)
        assert isinstance(made, PartitionedModel)
        program = made._program.main
        kinds = (program if isinstance(program, Executable) else program.program).kinds
        if provider == CPU:
            assert {"native", "sizes", "host", "provider", "loop", "branch"} == set(kinds)
        else:
            assert {"host", "provider", "branch"} == set(kinds)
        for x in (feeds["x"], -feeds["x"] - 9):  # either branch
            given = {**feeds, "x": x.astype(np.float32)}
            (found,) = made.run(given, ["y"])
            np.testing.assert_allclose(found, onnxruntime.InferenceSession(content).run(None, given)[0], rtol=1e-6)


def test_a_condition_of_several_elements_is_refused_with_the_node_named() -> None:
    text = "(bool[N] c, float[2] x) => (float[2] y) { y = If (c) <then_branch = t () => (float[2] u) { u = Relu(x) }, "
    text += "else_branch = e () => (float[2] w) { w = Unique <sorted = 0> (x) }> }"
    graph, made = compiled(text)
    assert made.program.kinds == ("branch",)
    x = np.array([1, -2], np.float32)
    np.testing.assert_array_equal(by_segments(graph, made, [np.array([True]), x])[0], [1, 0])
    np.testing.assert_array_equal(by_segments(graph, made, [np.array([False]), x])[0], x)
    with pytest.raises(errors.InvalidArgument, match=r"If.*condition has shape \(2,\); expected a single boolean"):
        by_segments(graph, made, [np.array([True, False]), x])
