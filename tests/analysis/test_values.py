"""Contents known ahead of time: symbolic elements, and constants that are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sardonyx.analysis import values
from sardonyx.analysis.attributes import attribute_values
from sardonyx.analysis.shapes import ShapeReport, infer_shapes
from sardonyx.analysis.value_rules import RULES, known_array
from sardonyx.dtypes import BOOL, FLOAT32, INT32, INT64, DType
from sardonyx.ir import dims
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Value, walk
from sardonyx.ir.text import parse_graph
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry

VERSION = 21


def inferred(body: str, inputs: str = "x: f32[N,3,M]") -> tuple[Graph, ShapeReport]:
    graph = parse_graph(f"graph ({inputs}) -> () {{\n{body}\n}}")
    report = infer_shapes(graph)
    assert report.problems == []
    return graph, report


def known(body: str, inputs: str = "x: f32[N,3,M]") -> str:
    """What is known about the last value, as text; its shape stands in front unless it has one axis."""
    graph, report = inferred(body, inputs)
    value = list(graph.nodes)[-1].outputs[0]
    found = report.values.known_of(value)
    if found is None:
        return "not known"
    assert isinstance(value.type, TensorType)
    assert value.type.shape == found.shape
    return str(found.tolist())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = Shape(x) @15", "[N, 3, M]"),
        ("s = Shape(x) {start = 1} @15", "[3, M]"),
        ("s = Shape(x) {start = -2, end = -1} @15", "[3]"),
        ("s = Shape(x) {start = 2, end = 1} @15", "[]"),
        ("s = Size(x) @13", "3*M*N"),
        ("c = Constant() {value_ints = [4, -5]} @13", "[4, -5]"),
        ("c = Constant() {value_float = 2.0} @13", "2"),
        ("c = Constant() {value_float = 2.5} @13", "not known"),
        ("c = Constant() {value_float = -0.0} @13", "not known"),
        ("c = Constant() {value_float = 0.0} @13\nn = Neg(c) @13", "not known"),
        ("c = Constant() {value_float = 2.0} @13\nn = Neg(c) @13", "-2"),
        (
            "c = Constant() {value_floats = [0.0, 3.0]} @13\nd = Constant() {value_float = -2.0} @13\nn = Mul(c, d) @13",
            "not known",
        ),
        ("s = Shape(x) @13\nc = Cast(s) {to = 1} @13\nn = Neg(c) @13", "not known"),
        ("s = Shape(x) @13\nn = Neg(s) @13", "[-N, -3, -M]"),
        ('c = Constant() {value_string = "two"} @13', "not known"),
        ("s = Shape(x) @13\nc = Cast(s) {to = 6} @13", "[N, 3, M]"),
        ("s = Shape(x) @13\nc = Cast(s) {to = 1} @13", "[N, 3, M]"),
        ("s = Shape(x) @13\nc = Cast(s) {to = 3} @13", "not known"),
        ("s = Shape(x) @13\nc = Cast(s) {to = 9} @13", "not known"),
        ("s = Shape(x) {start = 1, end = 2} @15\nc = Cast(s) {to = 9} @13", "[1]"),
        (
            "s = Shape(x) @13\nf = Cast(s) {to = 1} @13\nc = Constant() {value_float = 2.0} @13\ny = Mul(f, c) @13",
            "[2*N, 6, 2*M]",
        ),
        ("s = Shape(x) @13\nf = Cast(s) {to = 1} @13\nc = Constant() {value_float = 0.5} @13\nm = Mul(f, c) @13", "not known"),
        ("s = Shape(x) @13\nn = Neg(s) @13\na = Abs(n) @13", "[N, 3, M]"),
        ("s = Shape(x) @13\nc = Constant() {value_ints = [2]} @13\nd = Div(s, c) @14", "[floordiv(N, 2), 1, floordiv(M, 2)]"),
        (
            "s = Shape(x) @13\nn = Neg(s) @13\nc = Constant() {value_ints = [2]} @13\nd = Div(n, c) @14",
            "[-floordiv(N, 2), -1, -floordiv(M, 2)]",
        ),
        ("s = Shape(x) @13\nc = Constant() {value_ints = [-1]} @13\ne = Equal(s, c) @13", "[0, 0, 0]"),
        ("s = Shape(x) @13\nc = Constant() {value_ints = [3]} @13\ne = Equal(s, c) @13", "not known"),
        ("s = Shape(x) @13\nr = ReduceProd(s) {keepdims = 0} @13", "3*M*N"),
        ("s = Shape(x) @13\nr = ReduceMax(s) {keepdims = 1} @13", "[max(3, max(M, N))]"),
    ],
)
def test_small_integers_are_followed_symbolically(body: str, expected: str) -> None:
    found = known(body)
    assert found == expected or {found, expected} == {"[max(3, max(M, N))]", "[max(M, max(3, N))]"}


def test_a_range_with_a_symbolic_start_is_known_if_its_length_is() -> None:
    body = """
      const one: i64[] = 1
      const two: i64[] = 2
      n = Shape(x) {start = 0, end = 1} @15
      axes = Constant() {value_ints = [0]} @13
      start = Squeeze(n, axes) @13
      limit = Add(start, two) @14
      r = Range(start, limit, one) @11"""
    assert known(body) == "[N, N + 1]"


def test_large_tensors_are_not_followed() -> None:
    assert known("const k: i64[1] = [65]\nc = ConstantOfShape(k) {value = tensor(i64[1] = [1])} @9") == "not known"
    assert known("const k: i64[1] = [64]\nc = ConstantOfShape(k) {value = tensor(i64[1] = [1])} @9") == str([1] * 64)


def test_numbers_beyond_the_type_are_left_to_the_operator() -> None:
    text = "const a: i32[1] = [2147483647]\nb = Add(a, a) @14"
    graph, report = inferred(text)
    value = next(graph.nodes).outputs[0]
    data = report.values.constant_of(value)
    assert data is not None
    assert data.tolist() == [-2]


def random_known(
    draw: st.DrawFn, shape: tuple[int, ...], low: int, high: int
) -> tuple[NDArray[np.int64], NDArray[np.object_], dict[str, int]]:
    """Numbers, the same with some of them hidden behind symbols, and what the symbols stand for."""
    numbers = np.array([draw(st.integers(low, high)) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)
    hidden = np.empty(numbers.shape, object)
    bindings: dict[str, int] = {}
    for position in np.ndindex(shape):
        number = int(numbers[position])
        less = draw(st.sampled_from([0, 5]))  # of a size that 5 is taken from the sign is not known
        if number + less >= 0 and draw(st.booleans()):
            name = f"S{number + less}"
            bindings[name] = number + less
            hidden[position] = dims.symbol(name) - less
        else:
            hidden[position] = number
    return numbers, hidden, bindings


ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
OTHERS = (
    "Neg", "Abs", "Sign", "Gather", "Concat", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Expand",
    "Tile", "Split", "Where", "Identity",
)  # fmt: skip
REDUCTIONS = ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")


Case = tuple[str, list[Any], dict[str, Any]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """An operator, the shapes of its data inputs or arrays for the others, and attributes."""
    op = draw(st.sampled_from([*ELEMENTWISE, *REDUCTIONS, *OTHERS]))
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rank = len(shape)
    if op in ELEMENTWISE:
        return op, [shape, draw(st.sampled_from([shape, shape[1:], ()]))], {}
    if op in REDUCTIONS:
        axes = draw(st.lists(st.integers(-rank, rank - 1), max_size=1)) if rank else []
        return op, [shape, np.array(axes, np.int64)], {"keepdims": draw(st.integers(0, 1))}
    if op == "Where":
        return op, [np.array(draw(st.booleans())), shape, shape], {}
    if op in ("Neg", "Abs", "Sign", "Identity"):
        return op, [shape], {}
    shape = (*shape, 3)
    rank = len(shape)
    axis = draw(st.integers(-rank, rank - 1))
    if op == "Gather":
        size = shape[axis]
        return op, [shape, np.array(draw(st.lists(st.integers(-size, size - 1), max_size=3)), np.int64)], {"axis": axis}
    if op == "Concat":
        return op, [shape, shape], {"axis": axis}
    if op == "Slice":
        bounds = [np.array([draw(st.integers(-5, 5))]) for _ in range(2)]
        return op, [shape, *bounds, np.array([axis]), np.array([draw(st.sampled_from([-2, -1, 1, 2]))])], {}
    if op == "Squeeze":
        return op, [(1, *shape, 1), np.array([0, -1])], {}
    if op == "Unsqueeze":
        return op, [shape, np.array([draw(st.integers(-rank - 1, rank))])], {}
    if op == "Reshape":
        return op, [shape, np.array(draw(st.sampled_from([[-1], [0, -1], [1, -1, 3]])))], {}
    if op == "Flatten":
        return op, [shape], {"axis": axis}
    if op == "Transpose":
        return op, [shape], {"perm": draw(st.permutations(range(rank)))}
    if op == "Expand":
        return op, [shape, np.array([2, *shape])], {}
    if op == "Tile":
        return op, [shape, np.array([draw(st.integers(0, 2)) for _ in shape])], {}
    return "Split", [(5, 2), np.array([2, 0, 3])], {"axis": 0}


@settings(max_examples=400, deadline=None)
@given(cases(), st.data())
def test_symbolic_results_have_the_values_the_operator_computes(case: Case, data: st.DataObject) -> None:
    op, operands, attrs = case
    g = GraphBuilder(Graph(), VERSION)
    arrays: list[NDArray[Any]] = []
    bindings: dict[str, int] = {}
    given_: dict[Value, NDArray[np.object_]] = {}
    inputs: list[Any] = []
    for operand in operands:
        if isinstance(operand, np.ndarray):
            arrays.append(operand)
            inputs.append(operand)
            continue
        numbers, hidden, names = data.draw(st.composite(random_known)(operand, -4, 9))
        value = g.input(f"x{len(inputs)}", TensorType(INT64, numbers.shape))
        given_[value] = hidden
        arrays.append(numbers)
        inputs.append(value)
        bindings |= names
    outputs = g.node(op, inputs, 3 if op == "Split" else 1, attrs=attrs)
    definition = registry.lookup("", op, VERSION)
    assert definition is not None
    context = registry.EvalContext(VERSION, (True,) * len(outputs))
    node = outputs[0].producer
    assert node is not None
    chosen = attribute_values(node)
    try:
        expected = registry.call(definition, arrays, {name: chosen.get(name) for name in definition.attr_names}, context)
    except (ValueError, ZeroDivisionError):
        return
    report = infer_shapes(g.graph)
    table = values.ValueTable(lambda value: report.types.get(value, value.type))
    table._known.update(given_)
    table.visit(node, chosen)
    for output, result in zip(outputs, expected, strict=True):
        found = table.known_of(output)
        if found is not None:
            assert found.shape == result.shape
            if op in ("Div", "Mod") and 0 in arrays[1]:
                continue
            assert [dims.evaluate(item, bindings) for item in found.reshape(-1).tolist()] == [int(item) for item in result.flat]
        elif not bindings:
            assert op in ("Div", "Mod") or result.dtype == np.bool_


def test_constants_are_computed_through_chains_of_operators() -> None:
    graph, report = inferred(
        """
      const a: f32[2] = [1.5, -2.0]
      b = Mul(a, a) @14
      c = Exp(b) @13
      d = Relu(x) @13
      e = Add(d, c) @14""",
        "x: f32[2]",
    )
    nodes = list(graph.nodes)
    data = report.values.constant_of(nodes[1].outputs[0])
    assert data is not None
    np.testing.assert_allclose(data, np.exp(np.array([2.25, 4.0], np.float32)), rtol=1e-6)
    assert data.dtype == np.float32
    assert report.values.constant_of(nodes[3].outputs[0]) is None


def test_known_numbers_become_arrays_of_the_right_type() -> None:
    graph, report = inferred("s = Shape(x) @13\nc = Cast(s) {to = 6} @13", "x: f32[4,5]")
    value = list(graph.nodes)[1].outputs[0]
    data = report.values.constant_of(value)
    assert data is not None
    assert data.tolist() == [4, 5]
    assert data.dtype == np.int32


def test_a_chain_of_ten_thousand_constants_needs_no_recursion() -> None:
    g = GraphBuilder(Graph(), 13)
    value = g.constant(np.ones(70, np.float32))
    for _ in range(10_000):
        value = g.Neg(value)
    report = infer_shapes(g.graph)
    data = report.values.constant_of(value)
    assert data is not None
    assert data.tolist() == [1.0] * 70


def test_random_operators_and_large_results_are_not_computed_ahead() -> None:
    graph, report = inferred("""
      const k: i64[2] = [2000, 2000]
      r = RandomNormal() {shape = [2]} @1
      e = ConstantOfShape(k) @9
      n = Neg(e) @13""")
    assert [report.values.constant_of(node.outputs[0]) for node in graph.nodes] == [None, None, None]


def test_work_that_grows_faster_than_the_data_is_left_for_the_run() -> None:
    g = GraphBuilder(Graph(), 13)
    vector = g.constant(np.ones(200_000, np.float32))
    value = g.op("Einsum", vector, vector, vector, equation="i,j,k->")
    report = infer_shapes(g.graph)
    assert value.shape == ()
    assert report.values.constant_of(value) is None


def test_an_operator_that_fails_on_its_constants_is_simply_not_known() -> None:
    graph = parse_graph("graph () -> () {\n const a: i64[1] = [1]\n const z: i64[1] = [7]\n g = Gather(a, z) @13\n}")
    report = infer_shapes(graph)
    assert report.values.constant_of(next(graph.nodes).outputs[0]) is None


def test_rules_exist_for_known_operators_only() -> None:
    for name in RULES:
        assert registry.lookup("", name, 28) is not None, name


def test_values_inside_subgraphs_are_followed() -> None:
    graph, _ = inferred(
        """y = If(c) {then_branch = graph t() -> (r) {
          s = Shape(x) {end = 1} @15
          k = Constant() {value_ints = [-1]} @13
          t = Concat(s, k) {axis = 0} @13
          r = Reshape(x, t) @13
        }, else_branch = graph e() -> (x) {
        }} @13""",
        "x: f32[N,3,M], c: bool[]",
    )
    found = {value.name: str(value.type) for node in walk(graph) for value in node.outputs}
    assert found["r"] == "f32[N,3*M]"


@pytest.mark.parametrize(("dtype", "fits"), [(INT64, True), (INT32, True), (FLOAT32, True), (BOOL, False)])
def test_a_symbol_is_kept_by_types_that_can_hold_any_size(dtype: DType, fits: bool) -> None:
    assert (known(f"s = Shape(x) @13\nc = Cast(s) {{to = {dtype.onnx}}} @13") != "not known") is fits


def test_an_empty_constant_with_an_endless_axis_is_not_known() -> None:
    assert known_array(np.zeros((0, 1 << 60), np.int8)) is None
    assert known_array(np.zeros((0, 3), np.int8)) is not None
