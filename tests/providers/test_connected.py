"""Regions are connected, as large as possible, and no path leads out of one and back into it."""

from __future__ import annotations

import random

import pytest

from model_text import model
from sardonyx.formats.onnx import load
from sardonyx.ir.graph import Graph, Node, Value, walk
from sardonyx.providers.connected import connected_regions, detour, predecessors


def graph_of(text: str) -> Graph:
    return load(model(text)).graph


def regions(text: str, operators: set[str]) -> list[list[str]]:
    graph = graph_of(text)
    found = connected_regions(graph, [node for node in graph.nodes if node.op_type in operators])
    return [[node.op_type for node in nodes] for nodes in found]


def test_a_chain_is_one_region() -> None:
    text = "(float[4] x) => (float[4] y) { a = Relu(x)  b = Abs(a)  c = Neg(b)  y = Sqrt(c) }"
    assert regions(text, {"Relu", "Abs", "Neg"}) == [["Relu", "Abs", "Neg"]]
    assert regions(text, {"Relu", "Abs", "Neg", "Sqrt"}) == [["Relu", "Abs", "Neg", "Sqrt"]]
    assert regions(text, {"Relu", "Neg"}) == [["Relu"], ["Neg"]]
    assert regions(text, set()) == []


def test_a_diamond_with_one_middle_node_left_out_is_two_regions() -> None:
    text = "(float[4] x) => (float[4] y) { a = Relu(x)  b = Abs(a)  c = Sqrt(a)  y = Add(b, c) }"
    assert regions(text, {"Relu", "Abs", "Add"}) == [["Relu", "Abs"], ["Add"]]
    assert regions(text, {"Relu", "Abs", "Add", "Sqrt"}) == [["Relu", "Abs", "Sqrt", "Add"]]


def test_a_node_beside_the_region_does_not_divide_it() -> None:
    # Sqrt is needed by the region and needs nothing of it; what stands first in the file does not matter
    text = "(float[4] x) => (float[4] y) { a = Relu(x)  c = Sqrt(x)  y = Add(a, c) }"
    assert regions(text, {"Relu", "Add"}) == [["Relu", "Add"]]


def test_a_region_may_wait_for_others_if_nothing_needs_its_results_earlier() -> None:
    # Abs could run at once; it is joined to Add all the same, which needs the way through Sqrt
    text = "(float[4] x) => (float[4] y) { a = Relu(x)  b = Sqrt(a)  c = Abs(x)  y = Add(b, c) }"
    assert regions(text, {"Relu", "Abs", "Add"}) == [["Relu"], ["Abs", "Add"]]


def test_nodes_that_are_not_connected_are_regions_of_their_own() -> None:
    text = "(float[4] x) => (float[4] y, float[4] z) { y = Relu(x)  z = Abs(x) }"
    assert regions(text, {"Relu", "Abs"}) == [["Relu"], ["Abs"]]


def test_what_a_body_reads_is_a_path_too() -> None:
    text = """(float[4] x, bool c) => (float[4] y) {
        a = Relu(x)
        b = If (c) <then_branch = t () => (float[4] u) { u = Neg(a) }, else_branch = e () => (float[4] v) { v = Abs(x) }>
        y = Add(a, b)
    }"""
    assert regions(text, {"Relu", "Add"}) == [["Relu"], ["Add"]]
    assert regions(text, {"Relu", "Add", "If"}) == [["Relu", "If", "Add"]]


def test_a_set_with_a_path_outside_is_recognised() -> None:
    graph = graph_of("(float[4] x) => (float[4] y) { a = Relu(x)  b = Sqrt(a)  c = Exp(b)  y = Add(a, c) }")
    relu, sqrt, exp, add = graph.nodes
    before = predecessors(graph)
    assert detour(before, [relu, add]) is exp
    assert detour(before, [relu, sqrt, add]) is exp
    assert detour(before, [relu, sqrt]) is None
    assert detour(before, [relu, sqrt, exp, add]) is None


def random_graph(source: random.Random, count: int) -> Graph:
    graph = Graph("random")
    values = [Value("x")]
    graph.inputs = list(values)
    for number in range(count):
        value = Value(f"v{number}")
        reads = [source.choice(values[-8:]) for _ in range(source.randint(1, 3))]
        graph.append(Node("Sum", reads, [value], version=13))
        values.append(value)
    graph.outputs = [values[-1]]
    return graph


@pytest.mark.parametrize("seed", range(60))
def test_regions_of_random_graphs_are_convex_connected_maximal_and_free_of_cycles(seed: int) -> None:
    source = random.Random(seed)
    graph = random_graph(source, source.randint(3, 40))
    claimed = [node for node in graph.nodes if source.random() < source.choice((0.3, 0.6, 0.9))]
    before = predecessors(graph)
    found = connected_regions(graph, claimed)
    assert sorted(map(id, claimed)) == sorted(id(node) for nodes in found for node in nodes)
    for nodes in found:
        assert detour(before, nodes) is None
        assert _is_connected(before, nodes)
    assert _is_acyclic(before, found)
    for one in found:  # no two that touch each other could be one
        for other in found:
            if one is not other and any(each in one for node in other for each in before[node]):
                joined = [each for each in found if each is not one and each is not other] + [[*one, *other]]
                assert detour(before, [*one, *other]) is not None or not _is_acyclic(before, joined)


def _is_connected(before: dict[Node, list[Node]], nodes: list[Node]) -> bool:
    reached, pending = {nodes[0]}, [nodes[0]]
    while pending:
        node = pending.pop()
        near = [each for each in nodes if each in before[node] or node in before[each]]
        pending += [each for each in near if each not in reached]
        reached.update(near)
    return len(reached) == len(nodes)


def _is_acyclic(before: dict[Node, list[Node]], regions: list[list[Node]]) -> bool:
    unit = {node: number for number, nodes in enumerate(regions) for node in nodes}
    needs: dict[object, set[object]] = {}
    for node, needed in before.items():
        mine = unit.get(node, node)
        needs.setdefault(mine, set()).update(unit.get(each, each) for each in needed if unit.get(each, each) != mine)
    while True:
        ready = [each for each, waiting in needs.items() if not waiting & needs.keys()]
        if not ready:
            return not needs
        for each in ready:
            del needs[each]


def test_a_large_graph_is_divided_in_reasonable_time() -> None:
    graph = random_graph(random.Random(1), 4000)
    claimed = [node for number, node in enumerate(graph.nodes) if number % 3]
    assert sum(map(len, connected_regions(graph, claimed))) == len(claimed)
    assert sum(1 for _ in walk(graph)) == 4000
