"""When values can be given back, and circles that keep a model from running."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sardonyx.analysis.cycles import find_cycle, find_recursion, function_text
from sardonyx.analysis.liveness import releases, used_values
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Value
from sardonyx.ir.text import parse_graph, parse_model
from sardonyx.plan.order import execution_order

TEXT = """graph (x, y, w) -> (c) {
  const w: f32[1] = [1.0]
  a = Add(x, w) @14
  b, unused = Op(a, x) @1
  c = If(y) {then_branch = graph t() -> (v) {
    v = If(y) {then_branch = graph u() -> (a) {
    }} @13
  }, else_branch = graph e() -> (k) {
    k = Neg(x) @13
  }} @13
  d = Neg(c) @13
  e = Neg(d) @13
}"""


def names(values: tuple[Value, ...]) -> str:
    return " ".join(value.name for value in values)


def test_a_value_is_released_after_its_last_use_subgraphs_included() -> None:
    graph = parse_graph(TEXT)
    assert [names(each) for each in releases(graph, list(graph.nodes))] == ["", "b unused", "a x y", "", "d e"]


def test_a_node_uses_its_inputs_and_what_its_subgraphs_capture() -> None:
    branch = list(parse_graph(TEXT).nodes)[2]
    assert [value.name for value in used_values(branch)] == ["y", "a", "x"]


def test_a_subgraph_does_not_release_what_it_captured() -> None:
    branch = list(parse_graph(TEXT).nodes)[2]
    otherwise = branch.subgraphs()[1]
    assert releases(otherwise, list(otherwise.nodes)) == [()]


@given(st.data())
def test_everything_but_the_outputs_is_released_once_and_never_too_early(data: st.DataObject) -> None:
    g = GraphBuilder(Graph(), 13)
    values = [g.input("x", None)]
    for _ in range(data.draw(st.integers(1, 12))):
        values += g.node("Op", data.draw(st.lists(st.sampled_from(values), max_size=3)), data.draw(st.integers(1, 2)))
    graph = g.graph
    graph.outputs = data.draw(st.lists(st.sampled_from(values), max_size=2))
    order = execution_order(graph)
    freed: set[Value] = set()
    for node, released in zip(order, releases(graph, order), strict=True):
        assert not freed & set(node.inputs)
        assert not freed & set(released)
        freed.update(released)
    used = {value for node in order for value in (*node.inputs, *node.outputs)}
    assert freed == used - set(graph.outputs) - {None}


def test_a_cycle_is_found_with_the_nodes_in_order() -> None:
    graph = parse_graph("graph (x) -> () {\n a = Op(x) @1\n b = Op(a) @1\n c = Op(b) @1\n d = Op(c) @1\n}")
    assert find_cycle(graph) == []
    a, b, c, _ = graph.nodes
    a.append_input(c.outputs[0])
    cycle = find_cycle(graph)
    assert {*cycle} == {a, b, c}
    for position, node in enumerate(cycle):
        assert cycle[position - 1].outputs[0] in node.inputs


def test_recursion_is_found_through_other_functions_and_subgraphs() -> None:
    model = parse_model("""model {
      function d::a(x) -> (y) {
        y = d::b(x) @1
      }
      function d::b:two(x) -> (y) {
        y = d::a(x) @1
      }
      function d::b(x) -> (y) {
        y = If(x) {then_branch = graph t() -> (z) {
          z = d::b:two(x) @1
        }} @13
      }
      function d::fine(x) -> (y) {
        y = Neg(x) @13
      }
      graph () -> () {}
    }""")
    circle = find_recursion(model.functions, model.functions)
    assert [function_text(key) for key in circle] == ["d::a", "d::b", "d::b:two", "d::a"]
    assert find_recursion(model.functions, [("d", "fine", "")]) == []


def test_a_function_called_twice_is_no_recursion() -> None:
    model = parse_model("""model {
      function d::a(x) -> (y) {
        z = d::b(x) @1
        y = d::b(z) @1
      }
      function d::b(x) -> (y) {
        y = Neg(x) @13
      }
      graph () -> () {}
    }""")
    assert find_recursion(model.functions, model.functions) == []
