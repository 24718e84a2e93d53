"""The graph: uses stay true, and the list of nodes may change while it is walked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.dtypes import FLOAT32
from sardonyx.ir import tensor
from sardonyx.ir.builder import GraphBuilder
from sardonyx.ir.graph import Graph, Node, Value, captured_values, max_version, walk
from sardonyx.ir.text import format_graph, parse_graph
from sardonyx.ir.types import TensorType
from sardonyx.ir.verify import verify

NESTED = """graph main(x: f32[2], c: bool[]) -> (y) {
  a = Neg(x) @13
  y = If(c) {then_branch = graph then() -> (t) {
    t = If(c) {then_branch = graph inner() -> (i) {
      i = Add(a, x) @13
    }, else_branch = graph plain() -> (x) {
    }} @13
  }, else_branch = graph otherwise() -> (o) {
    o = Abs(a) @13
  }} @13
}
"""


def chain(count: int) -> Graph:
    g = GraphBuilder(Graph("chain"), 13)
    value = g.input("x", TensorType(FLOAT32, (2,)))
    for _ in range(count):
        value = g.Neg(value)
    g.output(value)
    return g.graph


def labels(graph: Graph) -> list[str]:
    return [node.outputs[0].name for node in graph.nodes]


def test_inputs_and_uses_follow_each_other() -> None:
    a, b = Value("a"), Value("b")
    node = Node("Add", [a, a], [Value("c")])
    assert list(a.uses) == [(node, 0), (node, 1)]
    assert a.consumers == [node]
    node.set_input(1, b)
    node.append_input(None)
    assert node.inputs == (a, b, None)
    assert list(a.uses) == [(node, 0)]
    assert list(b.uses) == [(node, 1)]


def test_nodes_removed_while_walking_are_not_visited_any_more() -> None:
    graph = chain(5)
    seen = []
    for node in graph.nodes:
        seen.append(node)
        if len(seen) == 2:
            for later in list(graph.nodes)[2:4]:
                graph.detach(later)
            graph.detach(node)
    assert [node.outputs[0].name for node in seen] == ["Neg", "Neg_1", "Neg_4"]
    assert len(graph) == 2


def test_nodes_inserted_after_the_current_one_are_visited() -> None:
    graph = chain(2)
    seen = []
    for node in graph.nodes:
        seen.append(node.op_type)
        if node.op_type == "Neg":
            graph.insert_after(node, Node("Abs", [node.outputs[0]], [Value("")]))
    assert seen == ["Neg", "Abs", "Neg", "Abs"]


@given(st.data())
def test_any_sequence_of_insertions_and_removals_keeps_the_list_whole(data: st.DataObject) -> None:
    graph = Graph()
    expected: list[Node] = []
    for number in range(data.draw(st.integers(0, 20))):
        node = Node("Op", [], [Value(f"v{number}")])
        action = data.draw(st.sampled_from(("append", "before", "after", "detach")))
        if action == "append" or not expected:
            graph.append(node)
            expected.append(node)
            continue
        position = data.draw(st.integers(0, len(expected) - 1))
        if action == "before":
            graph.insert_before(expected[position], node)
            expected.insert(position, node)
        elif action == "after":
            graph.insert_after(expected[position], node)
            expected.insert(position + 1, node)
        else:
            graph.detach(expected.pop(position))
    assert list(graph.nodes) == expected
    assert len(graph) == len(expected)
    assert verify(graph) == []


def test_a_node_whose_output_is_used_cannot_be_removed() -> None:
    graph = chain(2)
    first, second = graph.nodes
    with pytest.raises(ValueError, match="Neg '-> Neg': output 'Neg' is still used"):
        graph.remove(first)
    with pytest.raises(ValueError, match="is still used"):
        graph.remove(second)


def test_removing_a_node_takes_back_the_uses_of_its_subgraphs_too() -> None:
    graph = parse_graph(NESTED)
    branch = list(graph.nodes)[1]
    graph.outputs.clear()
    graph.remove(branch)
    assert not graph.inputs[0].uses.keys() - {(next(graph.nodes), 0)}
    assert not next(graph.nodes).outputs[0].uses
    assert verify(graph) == []


def test_replacing_a_value_reaches_subgraphs() -> None:
    graph = parse_graph(NESTED)
    first = next(graph.nodes)
    graph.replace_uses(first.outputs[0], graph.inputs[0])
    graph.remove(first)
    assert verify(graph) == []
    assert "Abs(x)" in format_graph(graph)


def test_replacing_a_graph_output_keeps_its_name() -> None:
    graph = chain(2)
    first, second = graph.nodes
    name = second.outputs[0].name
    graph.replace_uses(second.outputs[0], first.outputs[0])
    assert [value.name for value in graph.outputs] == [name]
    assert graph.outputs[0] is first.outputs[0]
    graph.remove(second)
    assert verify(graph) == []


def test_an_output_that_becomes_an_input_goes_through_an_identity() -> None:
    graph = chain(1)
    node = next(graph.nodes)
    graph.replace_uses(node.outputs[0], graph.inputs[0])
    graph.remove(node)
    assert [each.op_type for each in graph.nodes] == ["Identity"]
    assert graph.outputs[0].name == "Neg"
    assert verify(graph) == []


def test_walking_visits_subgraphs_right_after_their_node() -> None:
    graph = parse_graph(NESTED)
    assert [node.op_type for node in walk(graph)] == ["Neg", "If", "If", "Add", "Abs"]


def test_walking_a_thousand_nested_graphs_needs_no_stack() -> None:
    inner = Graph("0")
    for depth in range(1, 1500):
        outer = Graph(str(depth))
        g = GraphBuilder(outer, 13)
        g.output(g.op("Loop", body=inner))
        inner = outer
    assert sum(1 for _ in walk(inner)) == 1499


def test_captures_are_the_outer_values_a_subgraph_reads_or_gives_out() -> None:
    graph = parse_graph(NESTED)
    then, otherwise = list(graph.nodes)[1].subgraphs()
    assert [value.name for value in captured_values(then)] == ["c", "a", "x"]
    assert [value.name for value in captured_values(otherwise)] == ["a"]
    assert captured_values(graph) == []


def test_an_initializer_is_known_by_name_once() -> None:
    graph = Graph("g")
    value = graph.add_initializer("w", tensor.from_numpy(np.zeros((2, 3), np.float32)))
    assert str(value) == "%w: f32[2,3]"
    assert value.shape == (2, 3)
    with pytest.raises(ValueError, match="graph 'g' has an initializer 'w' already"):
        graph.add_initializer("w", tensor.from_numpy(np.zeros(1)))


def test_the_newest_version_is_that_of_the_onnx_nodes() -> None:
    assert max_version(Graph()) == 13
    assert max_version(parse_graph("graph () -> () {\n a = Op() @17\n b = x::Op() @99\n}\n")) == 17
