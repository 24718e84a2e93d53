"""Graphs written by hand, and copies of graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sardonyx.dtypes import FLOAT32
from sardonyx.ir import tensor
from sardonyx.ir.builder import GraphBuilder, make_attr
from sardonyx.ir.clone import Cloner, clone_graph
from sardonyx.ir.dims import symbol
from sardonyx.ir.graph import AttrKind, Graph, SparseConstant, Value
from sardonyx.ir.text import format_graph, parse_graph
from sardonyx.ir.types import TensorType
from sardonyx.ir.verify import verify

SPARSE = SparseConstant(tensor.from_numpy(np.ones(1)), tensor.from_numpy(np.zeros(1, np.int64)), (3,))


def test_calls_become_nodes_and_arrays_become_constants() -> None:
    g = GraphBuilder(Graph("main"), 13)
    x = g.input("x", TensorType(FLOAT32, (symbol("N"), 2)))
    h = g.op("Gemm", x, np.eye(2, dtype=np.float32), None, alpha=0.5, transB=1, name="g1")
    g.output(g.Relu(h), "y")
    assert format_graph(g.graph) == (
        "graph main(x: f32[N,2]) -> (y) {\n"
        "  const constant: f32[2,2] = [1.0, 0.0, 0.0, 1.0]\n"
        '  Gemm = Gemm(x, constant, _) {alpha = 0.5, transB = 1} @13 "g1"\n'
        "  y = Relu(Gemm) @13\n"
        "}\n"
    )
    assert verify(g.graph) == []


def test_new_names_are_free_and_carry_the_prefix() -> None:
    graph = parse_graph("graph (x: f32[2]) -> (y) {\n Neg = Neg(x) @13\n y = Abs(Neg) @13\n}\n")
    last = list(graph.nodes)[1]
    g = GraphBuilder(graph, 13, before=last)
    value = g.Neg(graph.inputs[0])
    assert value.name == "Neg_1"
    assert [node.outputs[0].name for node in graph.nodes] == ["Neg", "Neg_1", "y"]
    assert GraphBuilder(graph, 13, prefix="new/").Exp(value).name == "new/Exp"
    assert g.constant(np.zeros(1), "w").name == "w"
    assert g.constant(tensor.from_numpy(np.zeros(1)), "w").name == "w_1"


def test_a_node_may_have_several_outputs() -> None:
    g = GraphBuilder(Graph(), 13)
    first, second = g.node("Split", [np.zeros(4)], 2, attrs={"axis": 0, "unused": None})
    named = g.node("Split", [first], ["left", "right"], version=11, domain="d")
    assert [value.name for value in named] == ["left", "right"]
    assert second.producer is not None
    assert list(second.producer.attrs) == ["axis"]
    assert named[0].producer is not None
    assert (named[0].producer.version, named[0].producer.domain) == (11, "d")


@pytest.mark.parametrize(
    ("value", "kind", "held"),
    [
        (True, AttrKind.INT, 1),
        (np.int32(3), AttrKind.INT, 3),
        (2.5, AttrKind.FLOAT, 2.5),
        (np.float32(0.5), AttrKind.FLOAT, 0.5),
        ("s", AttrKind.STRING, "s"),
        ([], AttrKind.INTS, ()),
        ([1, 2], AttrKind.INTS, (1, 2)),
        ((1, 2.5), AttrKind.FLOATS, (1.0, 2.5)),
        (["a"], AttrKind.STRINGS, ("a",)),
        (TensorType(FLOAT32), AttrKind.TYPE_PROTO, TensorType(FLOAT32)),
        ([TensorType(FLOAT32)], AttrKind.TYPE_PROTOS, (TensorType(FLOAT32),)),
        (SPARSE, AttrKind.SPARSE_TENSOR, SPARSE),
    ],
)
def test_the_kind_of_an_attribute_follows_from_its_value(value: Any, kind: AttrKind, held: Any) -> None:
    attr = make_attr("a", value)
    assert (attr.kind, attr.value) == (kind, held)
    assert make_attr("other", attr) is attr


def test_arrays_and_graphs_are_attributes_too() -> None:
    assert make_attr("t", np.zeros(2)).kind is AttrKind.TENSOR
    assert make_attr("t", [np.zeros(2)]).kind is AttrKind.TENSORS
    assert make_attr("g", Graph()).kind is AttrKind.GRAPH
    assert make_attr("g", [Graph()]).kind is AttrKind.GRAPHS


def test_values_that_are_no_attribute_are_refused() -> None:
    with pytest.raises(TypeError, match="attribute 'a': a list must hold values of one kind, not INT, STRING"):
        make_attr("a", [1, "b"])
    with pytest.raises(TypeError, match="attribute 'a': dict is not a kind of attribute"):
        make_attr("a", {})
    with pytest.raises(AttributeError, match="lower"):
        _ = GraphBuilder(Graph(), 13).lower


NESTED = """graph main(x: f32[2], c: bool[]) -> (y: f32[2], x) [doc = "d"] {
  const w: f32[2] = [1.0, 2.0]
  a = Add(x, w) @13 "add" ["k" = "v"]
  y = If(c) {then_branch = graph then() -> (t) {
    t = Mul(a, w) @13 [priority = 4]
  }, else_branch = graph otherwise() -> (a) {
  }} @13
}
"""


def test_a_copy_is_equal_and_shares_nothing_that_can_change() -> None:
    graph = parse_graph(NESTED)
    copy = clone_graph(graph)
    assert format_graph(copy) == NESTED
    assert verify(copy) == []
    for node in copy.nodes:
        node.name += "!"
    copy.inputs[0].name = "z"
    assert format_graph(graph) == NESTED
    assert verify(graph) == []


def test_a_copied_subgraph_reads_the_outer_values_or_what_stands_for_them() -> None:
    graph = parse_graph(NESTED)
    then, otherwise = list(graph.nodes)[1].subgraphs()
    add = next(graph.nodes).outputs[0]
    assert next(clone_graph(then).nodes).inputs[0] is add
    other = Value("other")
    assert next(Cloner({add: other}).graph(then).nodes).inputs[0] is other
    assert next(Cloner({add: None}).graph(then).nodes).inputs[0] is None
    with pytest.raises(ValueError, match="graph 'otherwise' gives out 'a', which does not exist here"):
        Cloner({add: None}).graph(otherwise)


def test_one_graph_can_be_copied_twice() -> None:
    then = list(parse_graph(NESTED).nodes)[1].subgraphs()[0]
    cloner = Cloner(name_of=lambda name: f"{name}!")
    first, second = cloner.graph(then), cloner.graph(then)
    assert first.outputs[0] is not second.outputs[0]
    assert first.outputs[0].name == "t!"
