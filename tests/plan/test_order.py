"""The three execution orders, node by node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.analysis.liveness import used_values
from sardonyx.enums import ExecutionOrder
from sardonyx.errors import InvalidGraph
from sardonyx.ir.builder import GraphBuilder, make_attr
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.text import parse_graph
from sardonyx.plan.order import execution_order

DEFAULT, PRIORITY, MEMORY = ExecutionOrder


def graph_of(lines: str, inputs: str = "x") -> Graph:
    """A graph from lines `name = Op(inputs)`, with a priority after `!`."""
    body = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        node, _, priority = line.partition("!")
        body.append(f"{node.strip()} @13" + (f" [priority = {priority.strip()}]" if priority else ""))
    return parse_graph(f"graph main({inputs}) -> () {{\n" + "\n".join(body) + "\n}")


def ordered(graph: Graph, kind: ExecutionOrder = DEFAULT) -> str:
    """The names of the nodes' first outputs in execution order."""
    return " ".join(node.outputs[0].name for node in execution_order(graph, kind))


COMPRESS = """
    node_0 = Op(x)
    node_1 = Op(node_0)
    compress = Op(node_0) ! -10
    decompress = Op(compress) ! 10
    node_4 = Op(node_1)
    node_5 = Merge(node_4, decompress)
"""


def test_the_default_order_finishes_the_later_branch_first() -> None:
    assert ordered(graph_of(COMPRESS)) == "node_0 node_1 node_4 compress decompress node_5"


def test_priorities_pull_a_compression_forward_and_a_decompression_back() -> None:
    assert ordered(graph_of(COMPRESS), PRIORITY) == "node_0 compress node_1 node_4 decompress node_5"


def test_nested_compressions_are_undone_in_reverse() -> None:
    graph = graph_of("""
        node_0 = Op(x)
        node_1 = Op(node_0)
        compress_0 = Op(node_0) ! -10
        decompress_0 = Op(compress_0) ! 20
        node_4 = Op(node_1)
        compress_1 = Op(node_1) ! -10
        decompress_1 = Op(compress_1) ! 10
        node_7 = Op(node_4)
        node_8 = Merge(node_7, decompress_1)
        node_9 = Merge(node_8, decompress_0)
    """)
    expected = "node_0 compress_0 node_1 compress_1 node_4 node_7 decompress_1 node_8 decompress_0 node_9"
    assert ordered(graph, PRIORITY) == expected


def test_a_recomputation_of_low_priority_runs_just_before_its_gradient() -> None:
    graph = graph_of("""
        node_0 = Op(x)
        node_1 = Op(node_0)
        node_4 = Op(node_1)
        recompute_node_1 = Op(node_0) ! 10
        gradient_start = Op(node_4)
        node_1_grad = Merge(recompute_node_1, gradient_start)
    """)
    assert ordered(graph, PRIORITY) == "node_0 node_1 node_4 gradient_start recompute_node_1 node_1_grad"


LAYERS = """
    node_0 = Op(x)
    node_1 = Op(node_0)
    node_2 = Op(node_1)
    node_3 = Op(node_2)
    loss = Op(node_3)
    {turn} = {op}(loss)
    recompute_3 = Op(node_2) {low}
    grad_3 = Merge(recompute_3, {turn})
    recompute_2 = Op(node_1) {low}
    grad_2 = Merge(recompute_2, grad_3)
    recompute_1 = Op(node_0) {low}
    grad_1 = Merge(recompute_1, grad_2)
"""


def test_recomputations_of_several_layers_each_run_before_their_gradient() -> None:
    graph = graph_of(LAYERS.format(turn="loss_grad", op="Op", low="! 10"))
    expected = "node_0 node_1 node_2 node_3 loss loss_grad recompute_3 grad_3 recompute_2 grad_2 recompute_1 grad_1"
    assert ordered(graph, PRIORITY) == expected


def test_memory_efficient_order_recomputes_late_without_priorities() -> None:
    graph = graph_of(LAYERS.format(turn="node_yield", op="YieldOp", low=""))
    expected = "node_0 node_1 node_2 node_3 loss node_yield recompute_3 grad_3 recompute_2 grad_2 recompute_1 grad_1"
    assert ordered(graph, MEMORY) == expected


def test_branches_nobody_reads_come_last_by_the_names_of_their_outputs() -> None:
    graph = graph_of("""
        node_0 = Op(x)
        graph_output_1_identity = Op(node_0)
        node_1 = Op(node_0)
        graph_output_0_identity = Op(node_0)
        recompute_node_1 = Op(node_0)
        node_yield = YieldOp(node_1)
        node_1_grad = Merge(recompute_node_1, node_yield)
    """)
    expected = "node_0 node_1 node_yield recompute_node_1 node_1_grad graph_output_0_identity graph_output_1_identity"
    assert ordered(graph, MEMORY) == expected


def test_of_several_leaves_the_last_is_computed_first() -> None:
    assert ordered(graph_of("a = Op(x)\nb = Op(x)\nc = Op(a)\nd = Op(x)")) == "d a c b"


def test_several_edges_between_two_nodes_count_one_by_one() -> None:
    graph = graph_of("a = Op(x)\nb = Op(x)\nc = Op(a, a, b)")
    assert ordered(graph) == "b a c"
    assert ordered(graph, PRIORITY) == "a b c"
    graph = graph_of("a = Op(x)\ny = YieldOp(a, a)\nr = Op(a, a)\ng = Op(r, r, y, y)")
    assert ordered(graph, MEMORY) == "a y r g"


def test_shape_of_a_graph_input_stays_where_the_search_puts_it() -> None:
    assert ordered(graph_of("s = Shape(x)\na = Op(x)\nb = Op(a, s)")) == "a s b"


def test_shape_and_size_move_right_behind_what_they_measure() -> None:
    graph = graph_of("""
        a = Op(x)
        s1 = Shape(a)
        b = Op(a)
        c = Op(b)
        s2 = Size(a)
        d = Op(s1, s2, c)
    """)
    assert ordered(graph) == "a s1 s2 b c d"


def test_in_a_chain_of_shape_and_size_only_the_first_moves() -> None:
    graph = graph_of("""
        a = Op(x)
        s = Shape(a)
        n = Size(s)
        b = Op(a)
        c = Op(b)
        d = Op(n, c)
    """)
    assert ordered(graph) == "a s b c n d"


def test_a_shape_that_feeds_a_leaf_of_its_own_is_not_computed_twice() -> None:
    assert ordered(graph_of("a = Op(x)\ns = Shape(a)\nt = Op(s)\nb = Op(a)")) == "a s b t"


def test_an_operator_called_shape_that_needs_two_nodes_does_not_move_before_either() -> None:
    graph = graph_of("a = Op(x)\nb = Op(x)\ns = other::Shape(a, b)\nc = Op(a)\nd = Op(s, c)")
    assert ordered(graph) == "a c b s d"


def test_shape_and_size_go_before_every_priority() -> None:
    graph = graph_of("a = Op(x)\nb = Op(x) ! -100\ns = Shape(a)\nc = Op(a) ! -100")
    assert ordered(graph, PRIORITY) == "b a s c"


def test_equal_priorities_keep_the_order_of_the_graph() -> None:
    assert ordered(graph_of("a = Op(x) ! 20\nb = Op(x) ! 10\nc = Op(x) ! 10"), PRIORITY) == "b c a"


def test_disconnected_parts_are_all_there() -> None:
    graph = graph_of("a = Op(x)\nb = Op(a)\nc = Op()\nd = Op(c)")
    assert ordered(graph) == "c d a b"
    assert ordered(graph, PRIORITY) == "a b c d"


CAPTURING = """graph main(x, cond) -> () {
  late = Op(x) @13
  early = Op(x) @13
  branch = If(cond) {then_branch = graph t() -> (v) {
    v = If(cond) {then_branch = graph u() -> (w) {
      w = Op(late) @13
    }, else_branch = graph k() -> (early) {
    }} @13
  }, else_branch = graph e() -> (early) {
  }} @13
}
"""


@pytest.mark.parametrize("kind", ExecutionOrder)
def test_values_captured_by_subgraphs_are_edges(kind: ExecutionOrder) -> None:
    graph = parse_graph(CAPTURING)
    assert ordered(graph, kind) == ("late early branch" if kind is PRIORITY else "early late branch")


def test_the_order_of_a_subgraph_ignores_what_is_outside() -> None:
    branch = list(parse_graph(CAPTURING).nodes)[2]
    then, otherwise = branch.subgraphs()
    assert ordered(then) == "v"
    assert execution_order(otherwise) == []


def test_memory_efficient_order_without_a_yield_is_the_default_one() -> None:
    graph = graph_of("a = Op(x)\ns = Shape(a)\nb = Op(a)\nc = Op(s, b)")
    assert ordered(graph, MEMORY) == ordered(graph) == "a s b c"


def test_the_forward_part_expands_the_longest_chain_first() -> None:
    graph = graph_of("""
        a = Op(x)
        b = Op(a)
        short = Op(x)
        joined = Merge(b, short)
        y = YieldOp(joined)
    """)
    assert ordered(graph) == "short a b joined y"
    assert ordered(graph, MEMORY) == "a b short joined y"


def test_a_yield_that_reads_a_graph_input_has_no_forward_part() -> None:
    assert ordered(graph_of("r = Op(x)\ny = YieldOp(x)\ng = Op(y, r)"), MEMORY) == "y r g"


def test_shapes_of_forward_values_run_in_the_forward_part() -> None:
    graph = graph_of("""
        a = Op(x)
        s1 = Shape(a)
        s2 = Shape(a)
        n = Size(s1)
        y = YieldOp(a)
        g = Op(y, s1, s2, n)
    """)
    assert ordered(graph, MEMORY) == "a s2 s1 n y g"


def test_a_shape_that_is_a_forward_output_stays_in_the_forward_order() -> None:
    graph = graph_of("a = Op(x)\ns = Shape(a)\ny = YieldOp(a, s)\ng = Op(y)")
    assert ordered(graph, MEMORY) == "a s y g"


def test_branch_nodes_that_serve_the_same_results_run_together() -> None:
    graph = graph_of("""
        f = Op(x)
        shared = Op(f)
        left = Op(shared)
        right = Op(shared)
        y = YieldOp(f)
        g1 = Merge(y, left)
        g2 = Merge(g1, right)
    """)
    assert ordered(graph, MEMORY) == "f y shared left g1 right g2"


def test_a_thousand_layers_need_no_recursion() -> None:
    g = GraphBuilder(Graph(), 13)
    forward = [g.op("Op", g.input("x", None))]
    for _ in range(3000):
        forward.append(g.op("Op", forward[-1]))
    value = g.op("YieldOp", forward[-1])
    for source in reversed(forward):
        value = g.op("Merge", g.op("Op", g.op("Op", source)), value)
    for kind in ExecutionOrder:
        assert len(execution_order(g.graph, kind)) == len(g.graph)


def test_a_cycle_names_the_nodes_in_it() -> None:
    graph = graph_of("a = Op(x)\nb = Op(a)\nc = Op(b)\nd = Op(c)")
    nodes = list(graph.nodes)
    nodes[1].append_input(nodes[2].outputs[0])
    for kind in ExecutionOrder:
        with pytest.raises(InvalidGraph, match=r"graph 'main' is not acyclic: 2 nodes wait for each other: .*'-> [bc]'"):
            execution_order(graph, kind)


def test_an_unknown_order_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="7 is not an execution order; known: DEFAULT, PRIORITY_BASED, MEMORY_EFFICIENT"):
        execution_order(Graph(), 7)  # type: ignore[arg-type]


@st.composite
def random_graphs(draw: st.DrawFn, ops: tuple[str, ...]) -> Graph:
    """Any graph: several edges between nodes, subgraphs that capture values, several outputs."""
    graph = Graph("random")
    values: list[Value] = [Value("x")]
    graph.inputs = [values[0]]
    for number in range(draw(st.integers(0, 14))):
        inputs = draw(st.lists(st.sampled_from([None, *values]), max_size=3))
        outputs = [Value(f"v{number}_{index}") for index in range(draw(st.integers(1, 2)))]
        node = Node(draw(st.sampled_from(ops)), inputs, outputs, version=13)
        if draw(st.integers(0, 4)) == 0:
            g = GraphBuilder(Graph("inner"), 13)
            g.output(g.op("Op", *draw(st.lists(st.sampled_from(values), max_size=2))))
            node = Node("If", inputs, outputs, [make_attr("then_branch", g.graph)], version=13)
        node.priority = draw(st.integers(-2, 2))
        graph.append(node)
        values.extend(outputs)
    return graph


@settings(max_examples=200, deadline=None)
@given(random_graphs(("Op", "Op", "Shape", "Size", "YieldOp")), st.sampled_from(list(ExecutionOrder)))
def test_every_order_runs_each_node_once_and_after_what_it_needs(graph: Graph, kind: ExecutionOrder) -> None:
    order = execution_order(graph, kind)
    assert sorted(map(id, order)) == sorted(map(id, graph.nodes))
    position = {node: index for index, node in enumerate(order)}
    for node in order:
        for value in used_values(node):
            if value.producer in position:
                assert position[value.producer] < position[node]
    assert execution_order(graph, kind) == order


@settings(max_examples=200, deadline=None)
@given(random_graphs(("Op",)))
def test_the_default_order_is_a_depth_first_search_from_the_end(graph: Graph) -> None:
    nodes = list(graph.nodes)
    index = {node: position for position, node in enumerate(nodes)}
    needed: dict[Node, set[Node]] = {node: set() for node in nodes}
    for node in nodes:
        needed[node].update(value.producer for value in used_values(node) if value.producer is not None)
    expected: list[Node] = []

    def visit(node: Node) -> None:
        if node not in expected:
            for producer in sorted(needed[node], key=lambda each: -index[each]):
                visit(producer)
            expected.append(node)

    for node in reversed(nodes):
        if not any(node in producers for producers in needed.values()):
            visit(node)
    assert execution_order(graph) == expected


@settings(max_examples=200, deadline=None)
@given(random_graphs(("Op", "Shape", "Size")))
def test_the_priority_order_always_takes_the_best_node_that_is_ready(graph: Graph) -> None:
    left = dict.fromkeys(graph.nodes)
    index = {node: position for position, node in enumerate(graph.nodes)}
    for node in execution_order(graph, PRIORITY):
        ready = [each for each in left if not {value.producer for value in used_values(each)} & left.keys()]
        best = min(ready, key=lambda each: (each.op_type not in ("Shape", "Size"), each.priority, index[each]))
        assert node is best
        del left[node]


def test_arrays_in_a_graph_are_no_edges() -> None:
    g = GraphBuilder(Graph(), 13)
    g.output(g.Add(np.zeros(1), np.ones(1)), "y")
    assert ordered(g.graph) == "y"
