"""Control flow: whole models with subgraphs, on Sardonyx and on onnxruntime, and the bodies' calling conventions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import sardonyx
from sardonyx import dtypes
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.formats import onnx as formats
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry
from sardonyx.ops.registry import EvalContext

Array = NDArray[Any]
quick = settings(max_examples=20, deadline=None)


def model(graph: str, opset: int = 19) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> {graph}')


def outputs(graph: str, feeds: dict[str, Any], opset: int = 19) -> list[Any]:
    """The outputs of Sardonyx, which must be those of onnxruntime."""
    made = model(graph, opset)
    ours = sardonyx.InferenceSession(made.SerializeToString()).run(None, feeds)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    for mine, other in zip(ours, theirs, strict=True):
        _same(mine, other)
    return list(ours)


def _same(mine: Any, other: Any) -> None:
    if isinstance(other, list):
        assert len(mine) == len(other)
        for first, second in zip(mine, other, strict=True):
            _same(first, second)
    else:
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(mine, other)


def inferred(graph: str, opset: int = 19) -> list[str]:
    """The inferred types of a model's outputs, anonymous dimensions as ?."""
    loaded = formats.load(model(graph, opset).SerializeToString())
    for value in loaded.graph.outputs:
        value.type = None
    infer_shapes(loaded, strict=True)
    texts = []
    for value in loaded.graph.outputs:
        assert isinstance(value.type, TensorType)
        shape = value.type.shape
        assert shape is not None
        listed = ",".join("?" if not isinstance(dim, int) and dim.is_anonymous else str(dim) for dim in shape)
        texts.append(f"{value.type.dtype}[{listed}]")
    return texts


IF = """g (bool c, float[2] x) => (y) {
  y = If(c) <then_branch = t () => (float[2] a) { a = Add(x, x) }, else_branch = e () => (float[2] b) { b = Neg(x) }>
}"""


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("value", [True, False])
def test_if_runs_one_branch_with_what_it_captures(shape: tuple[int, ...], value: bool) -> None:
    graph = IF.replace("bool c", "bool c" if not shape else "bool[1] c")
    (y,) = outputs(graph, {"c": np.full(shape, value), "x": np.array([1, 2], np.float32)})
    assert y.tolist() == ([2.0, 4.0] if value else [-1.0, -2.0])


def test_the_type_of_an_if_holds_for_both_branches() -> None:
    graph = """g (bool c, float[N,2] x, float[N,3] z) => (y) {
      y = If(c) <then_branch = t () => (a) { a = Identity(x) }, else_branch = e () => (b) { b = Identity(z) }> }"""
    assert inferred(graph) == ["f32[N,?]"]


def test_an_if_with_a_constant_condition_has_the_type_of_its_branch() -> None:
    graph = """g (float[N,2] x, float[N,3] z) => (y) { c = Constant <value = bool {1}> ()
      y = If(c) <then_branch = t () => (a) { a = Identity(x) }, else_branch = e () => (b) { b = Identity(z) }> }"""
    assert inferred(graph) == ["f32[N,2]"]


LOOP = """g (int64 n, bool c, float[3] x) => (y, s) {
  y, s = Loop(n, c, x) <body = b (int64 i, bool going, float[3] v) => (bool more, float[3] w, float[3] kept) {
    two = Constant <value = float {2.0}> ()  limit = Constant <value = float {20.0}> ()
    w = Mul(v, two)  total = ReduceSum <keepdims = 0> (w)  more = Less(total, limit)  kept = Identity(w) }>
}"""


@quick
@given(trips=st.integers(0, 5), condition=st.booleans())
def test_loops_end_by_count_or_by_condition(trips: int, condition: bool) -> None:
    feeds = {"n": np.array(trips), "c": np.array(condition), "x": np.array([1, 1, 1], np.float32)}
    y, s = outputs(LOOP, feeds)
    assert s.shape == (min(trips, 3) if condition else 0, 3)
    assert y.tolist() == [2.0 ** len(s)] * 3


def test_a_loop_without_count_runs_until_the_condition_ends_it() -> None:
    graph = LOOP.replace("int64 n, ", "").replace("Loop(n, c, x)", 'Loop("", c, x)')
    y, s = outputs(graph, {"c": np.array(True), "x": np.ones(3, np.float32)})
    assert (y.tolist(), len(s)) == ([8.0] * 3, 3)


def test_a_loop_without_condition_runs_its_count() -> None:
    graph = """g (int64 n) => (s) {
      s = Loop(n, "") <body = b (int64 i, bool going) => (bool more, int64 kept) {
        more = Identity(going) kept = Identity(i) }> }"""
    (s,) = outputs(graph, {"n": np.array(4)}, opset=11)
    assert s.tolist() == [0, 1, 2, 3]


def test_loops_carry_sequences() -> None:
    graph = """g (int64 n) => (s) { start = SequenceEmpty <dtype = 7> ()
      s = Loop(n, , start) <body = b (int64 i, bool going, seq(int64[]) v) => (bool more, seq(int64[]) w) {
        more = Identity(going) w = SequenceInsert(v, i) }> }""".replace("(n, , start)", '(n, "", start)')
    made = sardonyx.InferenceSession(model(graph).SerializeToString())
    (s,) = made.run(None, {"n": np.array(3)})
    assert [item.tolist() for item in s] == [0, 1, 2]


def test_the_shape_of_a_loop_knows_count_and_what_does_not_change() -> None:
    graph = """g (int64 n, float[N,3] x, float[K] z) => (y, q, s) { four = Constant <value = int64 {4}> ()
      y, q, s = Loop(four, "", x, z) <body = b (int64 i, bool going, v, u) => (more, w, longer, kept) {
        more = Identity(going) w = Add(v, v) longer = Concat <axis = 0> (u, u) kept = Identity(w) }> }"""
    assert inferred(graph) == ["f32[N,3]", "f32[?]", "f32[4,N,3]"]


def test_a_loop_that_may_stop_has_an_unknown_number_of_scan_slices() -> None:
    assert inferred(LOOP) == ["f32[3]", "f32[?,3]"]


def body_of(function: Any, **types: Any) -> Any:
    for name, value in types.items():
        setattr(function, name, value)
    return function


def call(name: str, *inputs: Any, version: int = 19, count: int, **attrs: Any) -> tuple[Any, ...]:
    definition = registry.lookup("", name, version)
    assert definition is not None
    given = {key: attrs.get(key) for key in definition.attr_names}
    return registry.call(definition, inputs, given, EvalContext(version, (True,) * count))


def test_a_body_that_declares_vectors_gets_vectors() -> None:
    shapes = []

    def body(i: Array, going: Array) -> list[Any]:
        shapes.append((i.shape, going.shape))
        return [np.array([True]), i]

    vector = TensorType(dtypes.INT64, (1,))
    (stacked,) = call("Loop", np.array([2]), None, body=body_of(body, input_types=(vector, vector)), count=1)
    assert shapes == [((1,), (1,))] * 2
    assert stacked.tolist() == [[0], [1]]


def test_no_iteration_gives_scan_outputs_of_the_declared_type() -> None:
    types = (None, TensorType(dtypes.INT8, (2, 3)))
    (stacked,) = call("Loop", np.array(0), None, body=body_of(lambda *_: [], output_types=types), count=1)
    assert (stacked.dtype, stacked.shape) == (np.int8, (0, 2, 3))


def test_scan_outputs_must_keep_their_shape() -> None:
    def body(i: Array, going: Array) -> list[Any]:
        return [going, np.zeros(int(i))]

    with pytest.raises(ValueError, match=r"scan output 0 changes its shape between iterations: \(0,\) and \(1,\)"):
        call("Loop", np.array(3), None, body=body, count=1)


def test_a_condition_is_one_boolean() -> None:
    with pytest.raises(ValueError, match=r"the condition has shape \(2,\); expected a single boolean"):
        call("If", np.array([True, False]), then_branch=list, else_branch=list, count=1)


def test_a_body_with_too_few_outputs_is_refused() -> None:
    with pytest.raises(ValueError, match="the body gives 1 values; expected a condition, 1 carried, 1 scanned"):
        call("Loop", np.array(1), None, np.zeros(1), body=lambda *_: [np.array(True)], count=2)


SCAN = """g (float[2] start, float[2,3,4] x, float[3,4] z) => (final, a, b) {
  final, a, b = Scan <num_scan_inputs = 2, body = f (float[2] state, float[2,4] u, float[4] v) => (next, p, q) {
      axis = Constant <value = int64[1] {1}> () added = Add(u, v) partial = ReduceSum <keepdims = 0> (added, axis)
      next = Add(state, partial) p = Identity(added) q = Identity(next) }, ATTRS> (start, x, z)
}"""


@pytest.mark.parametrize("directions", [(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 1, 0)])
@pytest.mark.parametrize("axes", [(1, 0, 0, 0), (-2, -2, 1, -1), (1, 0, 2, 1)])
def test_scans_walk_any_axis_in_any_direction(directions: tuple[int, ...], axes: tuple[int, ...]) -> None:
    attrs = (
        f"scan_input_axes = [{axes[0]}, {axes[1]}], scan_output_axes = [{axes[2]}, {axes[3]}], "
        f"scan_input_directions = [{directions[0]}, {directions[1]}], scan_output_directions = [{directions[2]}, {directions[3]}]"
    )
    rng = np.random.default_rng(4)
    feeds = {
        name: rng.integers(0, 9, shape).astype(np.float32) for name, shape in (("start", 2), ("x", (2, 3, 4)), ("z", (3, 4)))
    }
    graph = SCAN.replace("ATTRS", attrs)
    results = outputs(graph, feeds)
    assert inferred(graph) == [f"f32[{','.join(map(str, result.shape))}]" for result in results]


def test_scan_inputs_must_be_equally_long() -> None:
    with pytest.raises(ValueError, match="the scan inputs have different lengths: 2, 3"):
        call("Scan", np.zeros(2), np.zeros(3), body=list, num_scan_inputs=2, count=1)
    with pytest.raises(ValueError, match="scan_input_axes has 1 entries; expected 2"):
        call("Scan", np.zeros(2), np.zeros(3), body=list, num_scan_inputs=2, scan_input_axes=(0,), count=1)


def test_the_first_scan_has_batches_of_different_lengths() -> None:
    def body(state: Array, item: Array) -> list[Any]:
        return [state + item, state + item]

    x = np.array([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
    start = np.zeros((2, 1))
    final, scanned = call("Scan", np.array([3, 2]), start, x, body=body, num_scan_inputs=1, version=8, count=2)
    assert final.tolist() == [[6.0], [9.0]]
    assert scanned[..., 0].tolist() == [[1.0, 3.0, 6.0], [4.0, 9.0, 0.0]]
    final, scanned = call("Scan", None, start, x, body=body, num_scan_inputs=1, directions=(1,), version=8, count=2)
    assert scanned[..., 0].tolist() == [[3.0, 5.0, 6.0], [6.0, 11.0, 15.0]]
    final, scanned = call("Scan", None, start[:0], x[:0], body=body, num_scan_inputs=1, version=8, count=2)
    assert (final.shape, scanned.shape[:2]) == ((0, 1), (0, 3))
    with pytest.raises(ValueError, match=r"sequence_lens is \[4, 1\]; expected 2 lengths of 0 to 3"):
        call("Scan", np.array([4, 1]), start, x, body=body, num_scan_inputs=1, version=8, count=2)


def test_the_first_scan_has_the_shape_of_its_batch() -> None:
    graph = """g (float[B,2] s, float[B,T,2] x) => (final, all) {
      final, all = Scan <num_scan_inputs = 1, body = f (a, b) => (c, d) { c = Add(a, b) d = Identity(c) }> ("", s, x) }"""
    assert inferred(graph, opset=8) == ["f32[B,2]", "f32[B,T,2]"]


def test_sequence_map_runs_its_body_for_each_element() -> None:
    sequence = [np.array([1.0]), np.array([2.0, 3.0])]

    def body(item: Array, other: Array, scale: Array) -> list[Any]:
        return [item + other[0], item * scale]

    added, scaled = call("SequenceMap", sequence, sequence[::-1], np.array(10.0), body=body, count=2)
    assert [item.tolist() for item in added] == [[3.0], [3.0, 4.0]]
    assert [item.tolist() for item in scaled] == [[10.0], [20.0, 30.0]]
    assert call("SequenceMap", [], body=body, count=2) == ([], [])
    with pytest.raises(ValueError, match="input 1 has 1 elements but input 0 has 2: they must agree"):
        call("SequenceMap", sequence, sequence[:1], body=body, count=1)
