"""Function calls become the function's nodes."""

from __future__ import annotations

import pytest

from sardonyx.analysis.shapes import infer_shapes
from sardonyx.errors import InvalidGraph
from sardonyx.ir.graph import Model, walk
from sardonyx.ir.text import format_graph, parse_model
from sardonyx.ir.verify import verify
from sardonyx.passes import inline_functions
from sardonyx.passes.inline_functions import InlineFunctions
from sardonyx.passes.protocol import Pass


def model_of(functions: str, graph: str) -> Model:
    return parse_model(f"model {{\n ir_version = 10\n opset ai.onnx = 22\n{functions}\n{graph}\n}}")


def inlined(functions: str, graph: str) -> list[str]:
    """The lines of the graph after inlining."""
    model = model_of(functions, graph)
    result = InlineFunctions().run(model)
    assert result.modified
    assert model.functions == {}
    assert verify(model) == []
    return [line.strip() for line in format_graph(model.graph).splitlines()[1:-1]]


def test_a_call_becomes_the_body_under_names_with_a_prefix() -> None:
    lines = inlined(
        'function d::f(a, b) -> (c) {\n opset ai.onnx = 18\n t = Add(a, b) @18 "plus"\n c = Neg(t) @18\n}',
        'graph (x, y) -> (z) {\n z = d::f(x, y) @1 "call"\n}',
    )
    assert lines == ['call/t = Add(x, y) @18 "call/plus"', "z = Neg(call/t) @18"]


def test_two_calls_get_values_of_their_own() -> None:
    lines = inlined(
        "function d::f(a) -> (c) {\n t = Abs(a) @18\n c = Neg(t) @18\n}",
        "graph (x) -> (z) {\n y = d::f(x) @1\n z = d::f(y) @1\n}",
    )
    assert lines == ["f/t_1 = Abs(x) @18", "y = Neg(f/t_1) @18", "f/t = Abs(y) @18", "z = Neg(f/t) @18"]


def test_attributes_come_from_the_call_then_from_the_default_or_are_left_off() -> None:
    function = """function d::f(a) -> (c, d, e) {
      attribute alpha
      attribute beta = 0.25
      attribute gamma = 0.5
      c = LeakyRelu(a) {alpha = @alpha: float} @22
      d = LeakyRelu(a) {alpha = @beta: float} @22
      e = HardSigmoid(a) {alpha = @gamma: float, beta = @missing: float} @22
    }"""
    lines = inlined(function, "graph (x) -> (p, q, r) {\n p, q, r = d::f(x) {alpha = 2.0, beta = 3.0} @1\n}")
    assert lines == [
        "p = LeakyRelu(x) {alpha = 2.0} @22",
        "q = LeakyRelu(x) {alpha = 3.0} @22",
        "r = HardSigmoid(x) {alpha = 0.5} @22",
    ]


def test_attributes_reach_nested_functions_and_subgraphs() -> None:
    functions = """function d::inner(a) -> (c) {
      attribute k = 9
      c = Softmax(a) {axis = @k: int} @22
    }
    function d::outer(a, cond) -> (c) {
      attribute axis
      c = If(cond) {then_branch = graph t() -> (u) {
        u = d::inner(a) {k = @axis: int} @1
      }, else_branch = graph e() -> (v) {
        v = d::inner(a) {k = @absent: int} @1
      }} @22
    }"""
    lines = inlined(functions, 'graph (x, b) -> (y) {\n y = d::outer(x, b) {axis = 3} @1 "o"\n}')
    assert lines == [
        "y = If(b) {then_branch = graph t() -> (o/u) {",
        "o/u = Softmax(x) {axis = 3} @22",
        "}, else_branch = graph e() -> (o/v) {",
        "o/v = Softmax(x) {axis = 9} @22",
        "}} @22",
    ]


def test_a_call_inside_a_subgraph_is_expanded_there() -> None:
    lines = inlined(
        "function d::f(a) -> (c) {\n c = Neg(a) @22\n}",
        "graph (x, b) -> (y) {\n y = If(b) {then_branch = graph t() -> (u) {\n u = d::f(x) @1\n },"
        " else_branch = graph e() -> (x) {\n }} @22\n}",
    )
    assert "u = Neg(x) @22" in lines


def test_a_graph_given_as_an_attribute_is_copied_to_each_place_that_refers_to_it() -> None:
    functions = """function d::twice(a, cond) -> (p, q) {
      attribute branch
      p = If(cond) {then_branch = @branch: graph, else_branch = @branch: graph} @22
      q = Neg(p) @22
    }
    function d::neg(a) -> (c) {
      c = Neg(a) @22
    }"""
    graph = """graph (x, b) -> (y) {
      y, _ = d::twice(x, b) {branch = graph g() -> (h) {
        h = d::neg(x) @1
      }} @1
    }"""
    model = model_of(functions, graph)
    InlineFunctions().run(model)
    assert verify(model) == []
    assert [node.op_type for node in walk(model.graph)] == ["If", "Neg", "Neg", "Neg"]
    assert [node.op_type for node in model.graph.inputs[0].consumers] == ["Neg", "Neg"]


def test_overloads_are_different_functions() -> None:
    functions = "function d::f(a) -> (c) {\n c = Neg(a) @22\n}\nfunction d::f:loud(a) -> (c) {\n c = Abs(a) @22\n}"
    lines = inlined(functions, "graph (x) -> (y, z) {\n y = d::f(x) @1\n z = d::f:loud(x) @1\n}")
    assert lines == ["y = Neg(x) @22", "z = Abs(x) @22"]


def test_a_function_with_the_name_of_an_operator_takes_its_place() -> None:
    lines = inlined("function ai.onnx::Relu(a) -> (c) {\n c = Abs(a) @22\n}", "graph (x) -> (y) {\n y = Relu(x) @22\n}")
    assert lines == ["y = Abs(x) @22"]


def test_inputs_that_are_left_out_are_left_out_in_the_body() -> None:
    function = "function d::f(a, low, high) -> (c) {\n c = Clip(a, low, high) @22\n}"
    assert inlined(function, "graph (x, m) -> (y) {\n y = d::f(x, _, m) @1\n}") == ["y = Clip(x, _, m) @22"]
    assert inlined(function, "graph (x) -> (y) {\n y = d::f(x) @1\n}") == ["y = Clip(x, _, _) @22"]


def test_outputs_the_caller_does_not_want_are_named_inside_only() -> None:
    function = "function d::f(a) -> (c, d) {\n c, d = TopK(a, a) @22\n}"
    assert inlined(function, "graph (x) -> (y) {\n y = d::f(x) @1\n}") == ["y, f/d = TopK(x, x) @22"]
    assert inlined(function, "graph (x) -> (y) {\n _, y = d::f(x) @1\n}") == ["f/c, y = TopK(x, x) @22"]


def test_inputs_and_results_given_out_twice_go_through_an_identity() -> None:
    function = "function d::f(a) -> (a, c, c) {\n c = Neg(a) @22\n}"
    lines = inlined(function, "graph (x) -> (p, q, r) {\n p, q, r = d::f(x) @1\n}")
    assert lines == ["q = Neg(x) @22", "p = Identity(x) @16", "r = Identity(q) @16"]


def test_dimension_names_of_a_function_mean_nothing_outside() -> None:
    model = model_of(
        "function d::f(a) -> (c) {\n t: f32[N] = Abs(a) @22\n c = Neg(t) @22\n}",
        "graph (x: f32[N], z: f32[M]) -> (y, w) {\n y = d::f(x) @1\n w = d::f(z) @1\n}",
    )
    InlineFunctions().run(model)
    report = infer_shapes(model)
    assert report.problems == []
    assert [str(value.type) for value in model.graph.outputs] == ["f32[N]", "f32[M]"]


def test_functions_that_call_themselves_are_refused() -> None:
    functions = """function d::f(a) -> (c) {
      c = d::g(a) @1
    }
    function d::g(a) -> (c) {
      c = If(a) {then_branch = graph t() -> (u) {
        u = d::f(a) @1
      }} @22
    }"""
    model = model_of(functions, "graph (x) -> (y) {\n y = d::f(x) @1\n}")
    with pytest.raises(InvalidGraph, match="function d::f calls itself: d::f -> d::g -> d::f"):
        InlineFunctions().run(model)


def test_too_many_arguments_are_refused() -> None:
    function = "function d::f(a) -> (c) {\n c = Neg(a) @22\n}"
    with pytest.raises(InvalidGraph, match="d::f '-> y' has 2 inputs, function d::f takes 1"):
        InlineFunctions().run(model_of(function, "graph (x) -> (y) {\n y = d::f(x, x) @1\n}"))
    with pytest.raises(InvalidGraph, match="d::f '-> y' has 2 outputs, function d::f takes 1"):
        InlineFunctions().run(model_of(function, "graph (x) -> (y) {\n y, z = d::f(x) @1\n}"))


def test_an_output_without_a_definition_is_refused_only_if_it_is_used() -> None:
    function = "function d::f(a, b) -> (c, b) {\n c = Neg(a) @22\n}"
    assert inlined(function, "graph (x) -> (y) {\n y, z = d::f(x) @1\n}") == ["y = Neg(x) @22"]
    with pytest.raises(InvalidGraph, match="d::f '-> y': function d::f does not define its output 'b'"):
        InlineFunctions().run(model_of(function, "graph (x) -> (y, z) {\n y, z = d::f(x) @1\n}"))


def test_a_branch_that_gives_out_a_missing_argument_is_refused() -> None:
    function = """function d::f(a, b) -> (c) {
      c = If(a) {then_branch = graph t() -> (b) {
      }} @22
    }"""
    with pytest.raises(InvalidGraph, match="d::f '-> y': graph 't' gives out 'b', which does not exist here"):
        InlineFunctions().run(model_of(function, "graph (x) -> (y) {\n y = d::f(x) @1\n}"))


def test_growth_without_bound_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_functions, "_MOST_NODES", 1000)
    functions = "\n".join(
        f"function d::f{level}(a) -> (c) {{\n b = d::f{level + 1}(a) @1\n c = d::f{level + 1}(b) @1\n}}" for level in range(40)
    )
    functions += "\nfunction d::f40(a) -> (c) {\n c = Neg(a) @22\n}"
    with pytest.raises(InvalidGraph, match="the model's functions expand to more than 1,000 nodes"):
        InlineFunctions().run(model_of(functions, "graph (x) -> (y) {\n y = d::f0(x) @1\n}"))


def test_a_model_without_functions_stays_as_it_is() -> None:
    model = model_of("", "graph (x) -> (y) {\n y = Neg(x) @22\n}")
    chosen: Pass = InlineFunctions()
    assert chosen.name == "inline-functions"
    assert not chosen.run(model).modified
