"""All problems of a model at once, each with its place and its remedy."""

from __future__ import annotations

import pytest

from sardonyx.analysis.check import check_model, newest_version
from sardonyx.analysis.constraints import supported_types
from sardonyx.analysis.problems import Problem
from sardonyx.analysis.shapes import infer_shapes
from sardonyx.ir.graph import Attr, AttrKind, Graph, Model, Value
from sardonyx.ir.text import parse_graph, parse_model


def model_of(body: str, inputs: str = "x: f32[2,3]") -> Model:
    return Model(parse_graph(f"graph main({inputs}) -> () {{\n{body}\n}}"), opset_imports={"": 22})


def errors_of(body: str, inputs: str = "x: f32[2,3]") -> list[str]:
    return [str(problem) for problem in check_model(model_of(body, inputs)) if problem.severity == "error"]


def test_a_sound_model_has_no_problems() -> None:
    assert check_model(model_of("y = Relu(x) @22")) == []


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ("y = Relo(x) @22", "Relo '-> y': ai.onnx has no operator Relo (opset 22) (hint: similar: Relu, "),
        ("y = Zzzz(x) @22", "Zzzz '-> y': ai.onnx has no operator Zzzz (opset 22)"),
        ("y = Gelu(x) @13", "Gelu '-> y': ai.onnx has Gelu since opset 20, but the model imports opset 13"),
        (
            "y = FastGelu(x) @13",
            "FastGelu '-> y': ai.onnx has no operator FastGelu (opset 13) (hint: com.microsoft has",
        ),
        (
            "y = com.microsoft::FastGelu(x) @0",
            "com.microsoft::FastGelu '-> y': the model uses com.microsoft FastGelu, but imports no opset of com.microsoft",
        ),
        (
            "y = my.own::Thing(x) @1",
            "my.own::Thing '-> y': operator Thing of domain my.own is not known: there is no such domain (hint: known",
        ),
        ("y = Concat(x, x) @13", "Concat '-> y': attribute 'axis' (int) is missing; ai.onnx Concat-13 needs it"),
        (
            "y = Concat(x, x) {axis = 1.0} @13",
            "Concat '-> y': attribute 'axis' is of kind float, ai.onnx Concat-13 takes int",
        ),
        ("y = MatMul(x) @13", "MatMul '-> y': has 1 input, ai.onnx MatMul-13 takes at least 2; missing: B"),
        ("y = MatMul(_, x) @13", "MatMul '-> y': input 0 (A) is left out; ai.onnx MatMul-13 needs it"),
        ("y = Relu(x, x) @14", "Relu '-> y': has 2 inputs, ai.onnx Relu-14 takes at most 1"),
        ("y, z = Relu(x) @14", "Relu '-> y': has 2 outputs, ai.onnx Relu-14 gives at most 1"),
        ("y = TopK(x, k) @11", "TopK '-> y': has 1 output, ai.onnx TopK-11 gives at least 2; missing: Indices"),
        ("y = Concat() {axis = 0} @13", "Concat '-> y': has 0 inputs, ai.onnx Concat-13 takes at least 1; missing: inputs"),
        (
            "y = Neg(x) {a = @alpha: int} @13",
            "Neg '-> y': attribute 'a' refers to an attribute 'alpha' of a function",
        ),
        ("y = Not(x) @1", "Not '-> y': input 0 (X) is f32; supported: bool (ai.onnx Not, opset 1)"),
    ],
)
def test_each_kind_of_problem_is_named(node: str, problem: str) -> None:
    found = errors_of(node, "x: f32[2,3], k: i64[1]")
    assert any(each.startswith(problem) for each in found), found


def test_trailing_inputs_that_are_left_out_do_not_count() -> None:
    assert errors_of("y = Relu(x, _, _) @14") == []
    assert errors_of("y = Clip(x, _, _) @13") == []


def test_marks_that_frameworks_leave_on_nodes_are_no_problem() -> None:
    assert errors_of("y = Relu(x) {_mark = 1} @14") == []


def test_all_problems_come_at_once_and_in_order() -> None:
    found = errors_of('y = Relo(x) @22 "first"\nz = MatMul(x) @13 "second"\nw = Add(x, i) @14 "third"', "x: f32[2], i: i64[2]")
    assert [text.split("'")[1] for text in found] == ["first", "second", "third"]


def test_problems_in_subgraphs_are_found() -> None:
    body = "y = If(c) {then_branch = graph t() -> (u) {\n u = Relo(x) @22\n}, else_branch = graph e() -> (x) {\n}} @22"
    assert any(text.startswith("Relo '-> u'") for text in errors_of(body, "x: f32[2], c: bool[]"))


def test_shapes_that_contradict_are_errors_between_inputs_and_warnings_against_declarations() -> None:
    problems = check_model(model_of("y = MatMul(x, x) @13\nz: f32[9,9] = Relu(x) @14"))
    assert [problem.severity for problem in problems] == ["error", "warning"]


def test_a_report_that_is_there_already_is_used() -> None:
    model = model_of("y = MatMul(x, x) @13")
    report = infer_shapes(model)
    assert [problem for problem in check_model(model, report) if problem.severity == "error"] == report.findings


def test_an_operator_without_a_definition_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sardonyx.ops.registry.lookup", lambda *key: None)
    (problem,) = check_model(model_of("y = Relu(x) @14"))
    assert problem == Problem(
        "warning", "Relu '-> y'", "Relu version 14 (opset 14) is a known operator that nothing here computes"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'y = Transpose(x) {prem = [1, 0]} @22 "t"',
            "Transpose 't': ai.onnx Transpose-21 has no attribute 'prem', it is ignored (hint: did you mean 'perm'?)",
        ),
        ("y = Neg(x) {axis = 1} @13", "Neg '-> y': ai.onnx Neg-13 has no attribute 'axis', it is ignored (hint: it has none)"),
    ],
)
def test_an_attribute_that_the_operator_does_not_have_is_a_warning(text: str, problem: str) -> None:
    (found,) = check_model(model_of(text))
    assert (found.severity, str(found)) == ("warning", problem)


def test_what_reading_put_right_is_a_warning() -> None:
    model = model_of("y = Neg(x) @13")
    model.notes = ("two constants are called 'c': the last one counts",)
    assert check_model(model) == [Problem("warning", "", "two constants are called 'c': the last one counts")]


def test_deprecated_operators_are_mentioned() -> None:
    problems = check_model(model_of("y = Upsample(x, s) @10", "x: f32[1,1,2,2], s: f32[4]"))
    assert Problem("info", "Upsample '-> y'", "Upsample is deprecated since opset 10") in problems


def test_unused_initializers_are_mentioned_together() -> None:
    text = "".join(f"const w{number}: f32[1] = [1.0]\n" for number in range(10)) + "y = Add(x, w3) @14"
    (problem,) = check_model(model_of(text))
    assert problem.severity == "info"
    assert problem.text == "9 initializers are never used: w0, w1, w2, w4, w5, w6, w7, w8 and 1 more"


def test_an_initializer_that_a_branch_gives_out_is_used() -> None:
    body = "const w: f32[1] = [1.0]\ny = If(c) {then_branch = graph t() -> (w) {\n}, else_branch = graph e() -> (w) {\n}} @22"
    assert check_model(model_of(body, "c: bool[]")) == []


def test_opsets_newer_than_known_are_mentioned() -> None:
    model = model_of("y = Relu(x) @22")
    model.opset_imports = {"": 99, "my.own": 1000}
    (problem,) = check_model(model)
    assert problem.severity == "info"
    assert problem.text.startswith(f"the model imports opset 99 of ai.onnx, the newest known is {newest_version('')}")


def test_outputs_without_a_type_are_warned_about() -> None:
    warning = Problem("warning", "y", "is an output of the graph whose type is neither declared nor known")
    assert warning in check_model(Model(parse_graph("graph (x) -> (y) {\n y = Identity(x) @13\n}")))
    faulty = check_model(Model(parse_graph("graph (x: f32[2]) -> (y) {\n y = Cast(x) @13\n}")))
    assert [problem.severity for problem in faulty] == ["error"]  # the node is what is wrong, the output follows from that


def test_values_nothing_defines_are_errors() -> None:
    model = model_of("y = Relu(x) @14")
    next(model.graph.nodes).set_input(0, Value("ghost"))
    model.graph.outputs.append(Value("phantom"))
    texts = [str(problem) for problem in check_model(model)]
    assert "Relu '-> y': input 0 is 'ghost', which nothing defines" in texts
    assert "phantom: is an output of the graph, but nothing defines it" in texts


def test_nodes_out_of_order_are_warned_about_and_cycles_refused() -> None:
    model = model_of("a = Relu(x) @14\nb = Neg(a) @13")
    first, second = model.graph.nodes
    model.graph.detach(first)
    model.graph.append(first)
    (problem,) = check_model(model)
    assert (problem.severity, problem.text) == ("warning", "the nodes are out of order: Neg '-> b' reads 'a' before it is made")
    first.set_input(0, second.outputs[0])
    errors = [problem.text for problem in check_model(model) if problem.severity == "error"]
    assert len(errors) == 1
    assert errors[0].startswith("the graph is not acyclic: 2 nodes wait for each other: ")


FUNCTIONS = """model {
  opset ai.onnx = 22
  function d::f(a) -> (c) {
    attribute alpha
    c = LeakyRelu(a) {alpha = @alpha: float} @22
  }
  function d::g(a) -> (c) {
    b = d::g(a) @1
    c = Relo(b) {alpha = @beta: float} @22
  }
  graph main(x: f32[2]) -> () {
    y = d::f(x) @1 "one"
    z, w = d::f(x, x) {alpha = 1.0} @1 "two"
  }
}"""


def test_functions_and_their_calls_are_checked() -> None:
    texts = [str(problem) for problem in check_model(parse_model(FUNCTIONS)) if problem.severity == "error"]
    assert "function d::g: calls itself: d::g -> d::g" in texts
    assert "d::f 'one': attribute 'alpha' is missing; the function has no default for it" in texts
    assert "d::f 'two': has 2 inputs, the function takes 1" in texts
    assert "d::f 'two': has 2 outputs, the function takes 1" in texts
    inside = [text for text in texts if text.startswith("function d::g > Relo '-> c': ")]
    assert any("ai.onnx has no operator Relo" in text for text in inside)
    assert any("attribute 'alpha' refers to 'beta', which is no attribute of the function" in text for text in inside)


def test_supported_types_list_every_parameter() -> None:
    assert supported_types("", "Clip", 13).splitlines()[1] == (
        "input 1 min (optional): f32, u8, i8, u16, i16, i32, i64, f16, f64, u32, u64, bf16"
    )
    assert "input 0 inputs (any number): " in supported_types("", "Concat", 13)
    assert "output 0 C: bool" in supported_types("", "Equal", 13)
    assert supported_types("", "Gelu", 13) == "ai.onnx has no operator Gelu in opset 13; it exists since opset 20"
    assert supported_types("d", "X", 1) == "d has no operator X in opset 1"


def test_a_problem_prints_with_its_place_and_hint() -> None:
    assert str(Problem("error", "", "all is wrong")) == "all is wrong"
    assert str(Problem("error", "Add 'a'", "bad", "do this")) == "Add 'a': bad (hint: do this)"


def test_hostile_attributes_do_not_crash_the_check() -> None:
    model = model_of("y = Concat(x, x) @13")
    next(model.graph.nodes).attrs["axis"] = Attr("axis", AttrKind.STRING, "one")
    texts = [str(problem) for problem in check_model(model)]
    assert any("attribute 'axis' is of kind string" in text for text in texts)
    assert check_model(Model(Graph())) == []
