"""The verifier: a sound graph has no violations, and each kind of damage is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sardonyx.dtypes import FLOAT64
from sardonyx.ir import tensor
from sardonyx.ir.graph import Attr, AttrKind, Graph, Node, Value
from sardonyx.ir.text import parse_graph, parse_model
from sardonyx.ir.types import TensorType
from sardonyx.ir.verify import verify

TEXT = """graph main(x: f32[2], c: bool[]) -> (y) {
  const w: f32[2] = [1.0, 2.0]
  a = Add(x, w) @13
  b = Neg(a) @13
  y = If(c) {then_branch = graph then() -> (t) {
    t = Mul(a, b) @13
  }, else_branch = graph otherwise() -> (b) {
  }} @13
}
"""


def nodes(graph: Graph) -> list[Node]:
    return list(graph.nodes)


def swap_order(graph: Graph) -> None:
    add, neg, _ = nodes(graph)
    graph.detach(neg)
    graph.insert_before(add, neg)


def drop_use(graph: Graph) -> None:
    graph.inputs[0].uses.clear()


def stale_use(graph: Graph) -> None:
    graph.inputs[0].uses[(nodes(graph)[1], 0)] = None


def use_from_nowhere(graph: Graph) -> None:
    Node("Abs", [nodes(graph)[0].outputs[0]], [Value("lost")])


def wrong_producer(graph: Graph) -> None:
    nodes(graph)[0].outputs[0].producer = nodes(graph)[1]


def wrong_graph(graph: Graph) -> None:
    nodes(graph)[1].graph = Graph()


def broken_link(graph: Graph) -> None:
    nodes(graph)[1]._prev = None


def broken_end(graph: Graph) -> None:
    graph._last = nodes(graph)[0]


def wrong_count(graph: Graph) -> None:
    graph._count = 7


def circular_list(graph: Graph) -> None:
    first, _, last = nodes(graph)
    last._next = first


def same_name(graph: Graph) -> None:
    nodes(graph)[1].outputs[0].name = "x"


def undefined_output(graph: Graph) -> None:
    graph.outputs.append(Value("ghost"))


def inner_value_as_output(graph: Graph) -> None:
    graph.outputs.append(next(nodes(graph)[2].subgraphs()[0].nodes).outputs[0])


def no_data(graph: Graph) -> None:
    graph.initializers["w"].constant = None


def other_key(graph: Graph) -> None:
    graph.initializers["v"] = graph.initializers.pop("w")


def other_type(graph: Graph) -> None:
    graph.initializers["w"].type = TensorType(FLOAT64, (2,))


def other_shape(graph: Graph) -> None:
    graph.initializers["w"].constant = tensor.from_numpy(np.zeros((3, 2), np.float32))


def wrong_attribute(graph: Graph) -> None:
    nodes(graph)[0].attrs["axis"] = Attr("axis", AttrKind.INT, "one")


def wrong_list(graph: Graph) -> None:
    nodes(graph)[0].attrs["axes"] = Attr("axes", AttrKind.INTS, (1, 2.0))


def no_list(graph: Graph) -> None:
    nodes(graph)[0].attrs["axes"] = Attr("axes", AttrKind.INTS, [1, 2])


def empty_attribute(graph: Graph) -> None:
    nodes(graph)[0].attrs["axis"] = Attr("axis", AttrKind.INT, None)


def other_attribute_name(graph: Graph) -> None:
    nodes(graph)[0].attrs["axis"] = Attr("axes", AttrKind.INT, 1)


def reference_with_value(graph: Graph) -> None:
    nodes(graph)[0].attrs["axis"] = Attr("axis", AttrKind.INT, 1, "alpha")


def wrong_parent(graph: Graph) -> None:
    nodes(graph)[2].subgraphs()[0].parent_node = nodes(graph)[0]


def shared_subgraph(graph: Graph) -> None:
    branch = nodes(graph)[2]
    branch.attrs["else_branch"] = Attr("else_branch", AttrKind.GRAPH, branch.subgraphs()[0])


def produced_input(graph: Graph) -> None:
    graph.inputs.append(nodes(graph)[0].outputs[0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (swap_order, "graph 'main': Neg '-> b': input 0 'a' is not defined before it"),
        (drop_use, "graph 'main': Add '-> a': input 0 'x' does not list this use"),
        (stale_use, "value 'x' lists input 0 of Neg '-> b' as a use; it reads another"),
        (use_from_nowhere, "value 'a' is used by Abs '-> lost', which stands in no graph here"),
        (wrong_producer, "graph 'main': Add '-> a': output 0 'a' names another producer or position"),
        (wrong_graph, "graph 'main': Neg '-> b' stands in the list, but names another graph as its own"),
        (broken_link, "graph 'main': Neg '-> b' does not link back to the node before it"),
        (broken_end, "graph 'main': the last node of the list is not where the list ends"),
        (wrong_count, "graph 'main': the list has 3 nodes, but counts 7"),
        (circular_list, "graph 'main': Add '-> a' stands in the list more than once"),
        (same_name, "graph 'main': two values are called 'x'"),
        (undefined_output, "graph 'main': output 'ghost' is not defined"),
        (inner_value_as_output, "graph 'main': output 't' is not defined"),
        (no_data, "graph 'main': initializer 'w' has no data"),
        (other_key, "graph 'main': initializer 'w' is listed as 'v'"),
        (other_type, "graph 'main': initializer 'w' is f64[2], but its data is f32[2]"),
        (other_shape, "graph 'main': initializer 'w' is f32[2], but its data is f32[3,2]"),
        (wrong_attribute, "graph 'main': Add '-> a': attribute 'axis' is of kind INT, but holds str"),
        (wrong_list, "graph 'main': Add '-> a': attribute 'axes' is of kind INTS, but holds float"),
        (no_list, "graph 'main': Add '-> a': attribute 'axes' is of kind INTS, but holds list"),
        (empty_attribute, "graph 'main': Add '-> a': attribute 'axis' is of kind INT, but holds nothing"),
        (other_attribute_name, "graph 'main': Add '-> a': attribute 'axes' is listed as 'axis'"),
        (reference_with_value, "graph 'main': Add '-> a': attribute 'axis' refers to 'alpha' and has a value too"),
        (wrong_parent, "graph 'main': If '-> y': subgraph 'then' names another node as its parent"),
        (shared_subgraph, "graph 'then' hangs on more than one attribute"),
        (produced_input, "graph 'main': input 'a' is produced by Add '-> a'"),
    ],
)
def test_each_damage_is_named(damage: Callable[[Graph], None], message: str) -> None:
    graph = parse_graph(TEXT)
    assert verify(graph) == []
    damage(graph)
    assert message in verify(graph)


def test_all_violations_are_reported_at_once() -> None:
    graph = parse_graph(TEXT)
    for damage in (no_data, wrong_attribute, undefined_output, wrong_parent):
        damage(graph)
    assert len(verify(graph)) == 4


def test_a_subgraph_alone_may_read_the_values_around_it() -> None:
    branch = nodes(parse_graph(TEXT))[2]
    assert [verify(graph) for graph in branch.subgraphs()] == [[], []]


def test_functions_of_a_model_are_verified_under_their_names() -> None:
    text = "model {\n function d::f(a) -> (b) {\n b = Neg(a) @13\n }\n graph () -> () {}\n}\n"
    model = parse_model(text)
    function = model.functions["d", "f", ""]
    function.graph.outputs.append(Value("ghost"))
    assert verify(model) == ["function d::f: graph 'f': output 'ghost' is not defined"]
    model.functions["d", "g", ""] = model.functions.pop(("d", "f", ""))
    assert verify(model)[0] == "function d::f is listed as ('d', 'g', '')"
