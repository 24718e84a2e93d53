"""Types and shapes of every value, and what is said when they do not fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from operation_counts import fastest_growing
from sardonyx import dtypes
from sardonyx.analysis import shapes
from sardonyx.analysis.shapes import infer_shapes, report_shapes
from sardonyx.errors import InvalidGraph
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import Graph, Model, Value, walk
from sardonyx.ir.text import parse_graph, parse_model
from sardonyx.ir.types import TensorType
from sardonyx.ops import registry
from sardonyx.ops.infer import InferContext, InferResult


def types_of(text: str, **options: Any) -> dict[str, str]:
    """The types of all named node outputs after inference, which must find nothing wrong."""
    graph = parse_graph(text)
    report = infer_shapes(graph, **options)
    assert report.problems == []
    return {value.name: str(value.type) for node in walk(graph) for value in node.outputs if value.name}


def problems_of(text: str) -> list[str]:
    return infer_shapes(parse_graph(text)).problems


def test_shapes_follow_from_the_inputs() -> None:
    found = types_of("""graph (x: f32[N,3,8,8]) -> (z) {
      const w: f32[4,3,3,3] = <432 bytes>
      y = Conv(x, w) {pads = [1, 1, 1, 1], strides = [2, 2]} @22
      z = Transpose(y) {perm = [0, 2, 3, 1]} @22
    }""")
    assert found == {"y": "f32[N,4,4,4]", "z": "f32[N,4,4,4]"}


def test_a_reshape_by_the_input_s_own_shape_stays_symbolic() -> None:
    found = types_of("""graph (x: f32[N,S,128]) -> (z) {
      const zero: i64[] = 0
      const one: i64[] = 1
      const axes: i64[1] = [0]
      const rest: i64[2] = [-1, 64]
      const two: i64[] = 2
      shape = Shape(x) @18
      n = Gather(shape, zero) @18
      s = Gather(shape, one) @18
      n1 = Unsqueeze(n, axes) @18
      s1 = Unsqueeze(s, axes) @18
      target = Concat(n1, s1, rest) {axis = 0} @18
      heads = Reshape(x, target) @18
      t = Transpose(heads) {perm = [0, 2, 1, 3]} @18
      double = Mul(s, two) @18
      d1 = Unsqueeze(double, axes) @18
      last = Constant() {value_ints = [64]} @18
      back = Concat(n1, d1, last) {axis = 0} @18
      z = Reshape(t, back) @18
    }""")
    assert found["heads"] == "f32[N,S,2,64]"
    assert found["t"] == "f32[N,2,S,64]"
    assert found["z"] == "f32[N,2*S,64]"
    assert found["target"] == "i64[4]"


def test_the_expand_pattern_of_exporters_resolves() -> None:
    found = types_of(
        """graph (x: f32[N,1,4]) -> (z) {
      const s: i64[3] = [-1, 7, -1]
      const minus: i64[] = -1
      ones = ConstantOfShape(three) {value = tensor(i64[1] = [1])} @18
      is = Equal(s, minus) @18
      target = Where(is, ones, s) @18
      z = Expand(x, target) @18
    }""".replace("const minus", "const three: i64[1] = [3]\n      const minus")
    )
    assert found["z"] == "f32[N,7,4]"


def test_declared_names_win_over_anonymous_symbols_and_numbers_over_both() -> None:
    graph = parse_graph("""graph (x: f32[?1,4], m: bool[?2]) -> (y: f32[batch,K]) {
      a: f32[rows,4] = Compress(x, m) {axis = 0} @22
      y = Relu(a) @22
    }""")
    assert infer_shapes(graph).problems == []
    assert [str(node.outputs[0].type) for node in graph.nodes] == ["f32[rows,4]", "f32[batch,4]"]


def test_graph_outputs_keep_their_declared_names_but_others_the_expression() -> None:
    graph = parse_graph("""graph (x: f32[N], y: f32[M]) -> (out: f32[total]) {
      a: f32[total] = Concat(x, y) {axis = 0} @22
      out = Relu(a) @22
    }""")
    infer_shapes(graph)
    assert [str(node.outputs[0].type) for node in graph.nodes] == ["f32[M + N]", "f32[total]"]


def test_a_declaration_that_contradicts_is_reported_and_the_inferred_shape_stands() -> None:
    graph = parse_graph('graph (x: f32[2,3]) -> (y: f32[2,4]) {\n y = Relu(x) @22 "act"\n}')
    report = infer_shapes(graph)
    assert report.problems == [
        "Relu 'act': output 0 (y): inferred f32[2,3], but the model declares f32[2,4]: dimension 3 contradicts dimension 4"
    ]
    assert report.findings[0].severity == "warning"
    assert str(graph.outputs[0].type) == "f32[2,3]"


def test_a_declared_element_type_that_contradicts_is_an_error() -> None:
    graph = parse_graph("graph (x: f32[2]) -> (y: f64[2]) {\n y = Relu(x) @22\n}")
    report = infer_shapes(graph)
    assert report.problems == ["Relu '-> y': output 0 (y): the type is f32, but the model declares f64"]
    assert report.findings[0].severity == "error"


def test_strict_inference_raises_with_all_problems_and_changes_nothing() -> None:
    graph = parse_graph("graph (x: f32[2,3]) -> (y: f32[5], z: f32[7]) {\n y = Relu(x) @22\n z = Neg(x) @22\n}")
    with pytest.raises(InvalidGraph, match="types and shapes do not fit") as caught:
        infer_shapes(graph, strict=True)
    assert len(caught.value.problems) == 2
    assert str(graph.outputs[0].type) == "f32[5]"


def test_reporting_leaves_the_model_as_it_is() -> None:
    graph = parse_graph("graph (x: f32[2,3]) -> (y) {\n y = Relu(x) @22\n}")
    report = report_shapes(graph)
    assert str(report.types[graph.outputs[0]]) == "f32[2,3]"
    assert graph.outputs[0].type is None


def test_input_types_can_be_given_by_name() -> None:
    given = {"x": TensorType(dtypes.FLOAT32, (5, symbol("K")))}
    found = types_of("graph (x: f32[...]) -> (y) {\n y = Relu(x) @22\n}", input_types=given)
    assert found == {"y": "f32[5,K]"}


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (
            'y = Add(x, d) @14 "sum"',
            "Add 'sum': input 1 (B) is f64, but input 0 (A) is f32: both must be the same type T (ai.onnx Add, opset 14)",
        ),
        (
            "y = Not(x) @13",
            "Not '-> y': input 0 (X) is f32; supported: bool (ai.onnx Not, opset 13)",
        ),
        (
            "y = Gather(x, d) @13",
            "Gather '-> y': input 1 (indices) is f64; supported: i32, i64 (ai.onnx Gather, opset 13)",
        ),
        (
            "y = com.microsoft::Gelu(n) @1",
            "com.microsoft::Gelu '-> y': input 0 (X) is i64; supported: f32, f16, f64, bf16 (com.microsoft Gelu, opset 1)",
        ),
    ],
)
def test_a_type_that_does_not_fit_names_node_input_and_what_is_supported(node: str, problem: str) -> None:
    assert problems_of(f"graph (x: f32[2], d: f64[2], n: i64[2]) -> () {{\n {node}\n}}")[0] == problem


def test_inputs_that_contradict_each_other_name_the_node() -> None:
    (problem,) = problems_of('graph (x: f32[2,3], y: f32[4,5]) -> () {\n z = MatMul(x, y) @13 "mm"\n}')
    assert problem.startswith("MatMul 'mm': ")
    assert "3" in problem
    assert "4" in problem


def test_a_problem_does_not_keep_the_rest_from_being_inferred() -> None:
    graph = parse_graph("graph (x: f32[2,3], y: f32[4,5]) -> () {\n a = MatMul(x, y) @13\n b = Neg(x) @13\n c = Neg(a) @13\n}")
    infer_shapes(graph)
    assert [str(node.outputs[0].type) for node in graph.nodes] == ["f32[...]", "f32[2,3]", "f32[...]"]


def test_unknown_operators_keep_what_is_declared() -> None:
    graph = parse_graph("graph (x: f32[2]) -> () {\n a: f32[7] = my::Thing(x) @1\n b = Neg(a) @13\n}")
    assert infer_shapes(graph).problems == []
    assert [str(node.outputs[0].type) for node in graph.nodes] == ["f32[7]", "f32[7]"]


def test_initializers_that_can_be_replaced_are_not_constants() -> None:
    text = """graph (x: f32[2,3], s: i64[2]) -> (y) {{
      const s: i64[2] = [3, 2]
      y = Reshape(x, s) @13
    }}"""
    graph = parse_graph(text.format())
    infer_shapes(graph)
    assert graph.outputs[0].shape is not None
    assert all(not isinstance(dim, int) for dim in graph.outputs[0].shape)
    older = Model(parse_graph(text.format()), ir_version=3)
    infer_shapes(older)
    assert older.graph.outputs[0].shape == (3, 2)


BRANCHES = """graph (x: f32[N,4], c: bool[]) -> (y) {
  a = Relu(x) @13
  y = If(c) {then_branch = graph t() -> (p) {
    p = Neg(a) @13
  }, else_branch = graph e() -> (q) {
    const k: i64[1] = [0]
    q = ReduceSum(x, k) @13
  }} @13
}"""


def test_subgraphs_see_the_types_of_captured_values() -> None:
    found = types_of(BRANCHES)
    assert found["p"] == "f32[N,4]"
    assert found["q"] == "f32[1,4]"
    assert found["y"].endswith(",4]")
    assert found["y"].startswith("f32[?")


def test_shapes_that_do_not_fit_in_a_branch_are_warnings_as_it_may_not_be_taken() -> None:
    graph = parse_graph("""graph (x: f32[3,2], c: bool[]) -> (y) {
      y = If(c) {then_branch = graph t() -> (p) {
        const k: i64[1] = [0]
        p = Squeeze(x, k) @13
      }, else_branch = graph e() -> (q) {
        q = Identity(x) @13
      }} @13
    }""")
    (finding,) = infer_shapes(graph).findings
    assert finding.where == "Squeeze '-> p'"
    assert finding.severity == "warning"


def test_the_body_of_a_loop_is_inferred() -> None:
    found = types_of("""graph (x: f32[N,4], trips: i64[], c: bool[]) -> (last, all) {
      last, all = Loop(trips, c, x) {body = graph b(i: i64[], cond: bool[], state) -> (cond_out, next, scan) {
        cond_out = Identity(cond) @13
        next = Relu(state) @13
        scan = Neg(next) @13
      }} @13
    }""")
    assert found["next"] == "f32[N,4]"
    assert found["last"] == "f32[N,4]"
    assert found["all"].endswith(",N,4]")


def test_subgraphs_of_operators_without_a_rule_are_inferred_too() -> None:
    found = types_of("""graph (x: f32[N,4]) -> () {
      y = my::Repeat(x) {body = graph b(s: f32[3]) -> (t) {
        t = Neg(s) @13
        u = Neg(x) @13
      }} @1
    }""")
    assert found["t"] == "f32[3]"
    assert found["u"] == "f32[N,4]"


def test_sequences_and_optionals_have_types() -> None:
    found = types_of("""graph (x: f32[2], y: f32[2], i: i64[]) -> () {
      s = SequenceConstruct(x, y) @13
      e = SequenceAt(s, i) @13
      o = Optional(x) @18
      v = OptionalGetElement(o) @18
    }""")
    assert found["s"] == "seq(f32[2])"
    assert found["e"] == "f32[2]"
    assert found["o"] == "optional(f32[2])"
    assert found["v"] == "f32[2]"


FUNCTIONS = """model {
  ir_version = 10
  function d::flat(a, k) -> (c) {
    attribute size
    t = Constant() {value_int = @size: int} @18
    axes = Constant() {value_ints = [0]} @18
    t1 = Unsqueeze(t, axes) @18
    shape = Concat(k, t1) {axis = 0} @18
    c = Reshape(a, shape) @18
  }
  graph (x: f32[N,4], y: f64[M,6]) -> (p, q) {
    const k: i64[1] = [-1]
    const two: i64[1] = [2]
    p = d::flat(x, k) {size = 4} @1
    q = d::flat(y, two) {size = 3} @1
  }
}"""


def test_calls_of_functions_are_inferred_with_their_arguments_and_attributes() -> None:
    model = parse_model(FUNCTIONS)
    assert infer_shapes(model).problems == []
    assert [str(value.type) for value in model.graph.outputs] == ["f32[N,4]", "f64[2,3]"]
    assert all(value.type is None for node in model.functions["d", "flat", ""].graph.nodes for value in node.outputs)


def test_contents_are_known_through_a_function() -> None:
    model = parse_model("""model {
      function ai.onnx::Neg(a) -> (c) {
        s = Shape(a) @18
        c = Concat(s, s) {axis = 0} @18
      }
      graph (x: f32[N], y: f32[4]) -> (z, w) {
        s = Neg(x) @18
        z = ConstantOfShape(s) @18
        t = Neg(y) @18
        w = Cast(t) {to = 1} @18
      }
    }""")
    report = infer_shapes(model)
    assert report.problems == []
    assert str(model.graph.outputs[0].type) == "f32[N,N]"
    data = report.values.constant_of(model.graph.outputs[1])
    assert data is not None
    assert data.tolist() == [4.0, 4.0]


def test_attributes_of_the_wrong_kind_do_not_reach_the_rule() -> None:
    assert problems_of('graph (x: f32[2,3]) -> () {\n y = Flatten(x) {axis = "one"} @13\n z = Concat(x, x) @13\n}') == []


def test_a_problem_inside_a_function_names_the_call_and_the_node() -> None:
    model = parse_model("""model {
      function d::f(a, b) -> (c) {
        c = Add(a, b) @14
      }
      graph (x: f32[2], y: f64[2]) -> (p) {
        p = d::f(x, y) @1 "call"
      }
    }""")
    (problem,) = infer_shapes(model).problems
    assert problem.startswith("d::f 'call' > Add '-> c': input 1 (B) is f64, but input 0 (A) is f32")


def test_functions_that_call_themselves_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "_MOST_VISITS", 5000)
    model = parse_model("""model {
      function d::f(a) -> (c) {
        b = d::f(a) @1
        c = d::f(b) @1
      }
      graph (x: f32[2]) -> (p) {
        p = d::f(x) @1
      }
    }""")
    assert infer_shapes(model).problems == []
    assert model.graph.outputs[0].type is None


def test_rules_that_walk_a_body_twice_end_in_deeply_nested_graphs() -> None:
    text = "y = Neg(x) @13\n"
    for depth in range(25):
        body = f"graph b{depth}(i{depth}: i64[], c{depth}: bool[], s{depth}) -> (o{depth}, n{depth}) {{\n"
        body += f"o{depth} = Identity(c{depth}) @13\nn{depth} = Relu(s{depth}) @13\n{text}}}"
        text = f"l{depth} = Loop(k, c, x) {{body = {body}}} @13\n"
    start = time.perf_counter()
    infer_shapes(parse_graph(f"graph (x: f32[2], k: i64[], c: bool[]) -> () {{\n{text}}}"))
    assert time.perf_counter() - start < 20


def broken_rule(ctx: InferContext) -> InferResult:
    raise AttributeError("oops")


def odd_rule(ctx: InferContext) -> InferResult:
    return ("two",)  # type: ignore[return-value]


def numpy_rule(ctx: InferContext) -> InferResult:
    return (np.int64(3),)  # type: ignore[return-value]


def negative_rule(ctx: InferContext) -> InferResult:
    return (2, -1)


@pytest.mark.parametrize(
    ("rule", "problem", "severity"),
    [
        (broken_rule, "Neg '-> y': shape inference failed with AttributeError: oops", "warning"),
        (odd_rule, "Neg '-> y': shape inference failed with TypeError: the shape rule gave 'two' as a dimension", "warning"),
        (negative_rule, "Neg '-> y': a dimension of the output would be -1", "error"),
    ],
)
def test_a_rule_that_fails_is_reported_and_the_element_type_kept(
    rule: Any, problem: str, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = registry.OpDef("", "Neg", 1, lambda x: -x, rule, registry.Trait.NONE, (), False)
    monkeypatch.setattr(registry, "lookup", lambda *key: definition)
    graph = parse_graph("graph (x: f32[2]) -> (y) {\n y = Neg(x) @13\n}")
    report = infer_shapes(graph)
    assert report.problems == [problem]
    assert report.findings[0].severity == severity
    assert str(graph.outputs[0].type) == "f32[...]"


def test_numpy_integers_from_a_rule_become_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    definition = registry.OpDef("", "Neg", 1, lambda x: -x, numpy_rule, registry.Trait.NONE, (), False)
    monkeypatch.setattr(registry, "lookup", lambda *key: definition)
    graph = parse_graph("graph (x: f32[2]) -> (y) {\n y = Neg(x) @13\n}")
    infer_shapes(graph)
    assert graph.outputs[0].shape == (3,)
    assert type(graph.outputs[0].shape[0]) is int


def test_data_that_was_left_out_is_not_known_and_no_crash() -> None:
    graph = parse_graph("""graph (x: f32[4]) -> (y) {
      const s: i64[2] = <16 bytes>
      c = Constant() {value = tensor(f32[4] = <16 bytes>)} @13 "lost"
      y = Reshape(x, s) @13
    }""")
    (problem,) = infer_shapes(graph).problems
    assert problem == "Constant 'lost': an attribute cannot be read: the text form left out the data of 'a constant' <16 bytes>"
    assert graph.outputs[0].shape is not None
    assert len(graph.outputs[0].shape) == 2


def test_nodes_with_too_few_inputs_are_left_to_the_checker() -> None:
    assert problems_of("graph (x: f32[2]) -> () {\n y = MatMul(x) @13\n z = MatMul(_, x) @13\n}") == []


def test_inference_takes_work_in_proportion_to_the_graph() -> None:
    def network(blocks: int) -> tuple[Graph, Value]:
        g = GraphBuilder(Graph("large"), 18)
        x = g.input("x", TensorType(dtypes.FLOAT32, (symbol("N"), symbol("S"), 128)))
        bias, zero, one, rest = (g.constant(each) for each in (np.ones(128, np.float32), [0], [1], [-1, 128]))
        for _ in range(blocks):
            x = g.Relu(g.Add(x, bias))
            x = g.Reshape(x, g.Concat(g.Slice(g.Shape(x), zero, one), rest, axis=0))
        g.output(x)
        return g.graph, x

    def work(blocks: int) -> Callable[[], object]:
        graph, _ = network(blocks)
        return lambda: infer_shapes(graph)

    growth, where = fastest_growing(work, 40)
    assert growth < 3, where
    graph, x = network(833)
    assert infer_shapes(graph).problems == []
    assert str(x.type) == "f32[N,S,128]"
