"""One executable, one pool of contexts: single calls and runs segment by segment take turns in the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model_text import model
from native_support import compile_native
from sardonyx.compile.assemble import Compiled
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph
from sardonyx.runtime.native_core import SizeConflict
from sardonyx.runtime.runs import RunControl

ONE_CALL = "(float[N,4] x, float[M,N] w) => (float[M,4] y, float[N,4] z) { t = Relu(x) y = MatMul(w, t) z = Softmax(x) }"
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
