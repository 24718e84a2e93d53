"""The order in which nodes run.

DEFAULT            depth first from the last nodes backwards: a value is made shortly before it is needed, so memory is freed
                   early; Shape and Size run right after the node whose result they measure, which may then be freed
PRIORITY_BASED     of the nodes that are ready: Shape and Size, then the smallest `Node.priority`, then the graph's order
MEMORY_EFFICIENT   for a training graph with a YieldOp: all the forward part needs, then the YieldOp, then the backward part, in
                   which what can be computed ahead (recomputation) waits until it is first used; else as DEFAULT, but the
                   compiler tries others (`least_peak`, PRIORITY_BASED) and takes the one whose plan needs the least memory

An edge leads from a node to each reader of its outputs; what a node's subgraphs capture counts as its input. All orders are
functions of the graph alone and use no recursion. A cycle raises InvalidGraph.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sardonyx.analysis.cycles import find_cycle
from sardonyx.analysis.liveness import used_values
from sardonyx.enums import ExecutionOrder
from sardonyx.errors import InvalidGraph
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ops.registry import Trait, traits


def execution_order(graph: Graph, kind: ExecutionOrder = ExecutionOrder.DEFAULT) -> list[Node]:
    """The nodes of a graph, those of subgraphs not included, in the order of this kind."""
    edges = Edges(graph)
    if kind == ExecutionOrder.DEFAULT:
        order = _default(edges)
    elif kind == ExecutionOrder.PRIORITY_BASED:
        order = _priority_based(edges)
    elif kind == ExecutionOrder.MEMORY_EFFICIENT:
        order = _memory_efficient(edges)
    else:
        raise ValueError(f"{kind!r} is not an execution order; known: {', '.join(each.name for each in ExecutionOrder)}")
    return [edges.nodes[index] for index in order]


def has_yield(graph: Graph) -> bool:
    """Whether a graph has a forward and a backward part with a YieldOp between them."""
    return any(node.op_type == "YieldOp" for node in graph.nodes)


class Edges:
    """A graph as numbers: node i is the i-th of the graph. One edge for each input, so two nodes may share several."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)
        index_of = {node: index for index, node in enumerate(self.nodes)}
        self.sources: list[list[tuple[int, Value]]] = []  # for each node, the producers of its inputs with the value between
        self.consumers: list[list[int]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            read: list[Value] = [value for value in node.inputs if value is not None]
            if node.subgraphs():
                read.extend(used_values(node)[len(dict.fromkeys(read)) :])
            found = []
            for value in read:
                producer = index_of.get(value.producer) if value.producer is not None else None
                if producer is not None:
                    found.append((producer, value))
                    self.consumers[producer].append(index)
            self.sources.append(found)
        cycle = find_cycle(graph)
        if cycle:
            chain = " -> ".join(node.label for node in cycle[:8])
            raise InvalidGraph(f"graph {graph.name!r} is not acyclic: {len(cycle)} nodes wait for each other: {chain}")

    def measuring(self) -> dict[int, list[int]]:
        """The Shape and Size nodes that depend on one node, by that node."""
        children: dict[int, list[int]] = {}
        for index, node in enumerate(self.nodes):
            parents = {source for source, _ in self.sources[index]}
            if Trait.MEASURES in traits(node) and len(parents) == 1:
                children.setdefault(parents.pop(), []).append(index)
        return children

    def producers(self) -> list[list[int]]:
        """For each node, those that make its inputs."""
        return [[source for source, _ in found] for found in self.sources]


def post_order(producers: Sequence[Sequence[int]], roots: Iterable[int], key: Callable[[int], Any]) -> list[int]:
    """All that the roots depend on and they themselves, each after what it needs; of several the greatest key goes first."""
    order: list[int] = []
    visited: set[int] = set()
    stack = [(root, False) for root in roots]
    while stack:
        index, leaving = stack.pop()
        if leaving:
            order.append(index)
        elif index not in visited:
            visited.add(index)
            stack.append((index, True))
            stack.extend((source, False) for source in sorted(producers[index], key=key) if source not in visited)
    return order


def _default(edges: Edges) -> list[int]:
    leaves = [index for index, consumers in enumerate(edges.consumers) if not consumers]
    children = edges.measuring()
    order: dict[int, None] = {}
    for index in post_order(edges.producers(), leaves, lambda index: index):
        if index not in order:
            order[index] = None
            order.update(dict.fromkeys(children.get(index, ())))
    return list(order)


def _priority_based(edges: Edges) -> list[int]:
    waiting = [len(sources) for sources in edges.sources]
    keys = [(Trait.MEASURES not in traits(node), node.priority, index) for index, node in enumerate(edges.nodes)]
    heap = [keys[index] for index, count in enumerate(waiting) if not count]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        index = heapq.heappop(heap)[2]
        order.append(index)
        for consumer in edges.consumers[index]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(heap, keys[consumer])
    return order


def _memory_efficient(edges: Edges) -> list[int]:
    yields = [index for index, node in enumerate(edges.nodes) if node.op_type == "YieldOp"]
    if not yields:
        return _default(edges)
    order = _forward_part(edges, yields[0])
    order.extend(_BackwardPart(edges, yields[0], frozenset(order)).order())
    return order


def _forward_part(edges: Edges, yield_op: int) -> list[int]:
    """What the YieldOp depends on, longest chains first, and the Shape and Size nodes that measure any of it."""
    distance = [0] * len(edges.nodes)
    waiting = [len(sources) for sources in edges.sources]
    queue = deque(index for index, count in enumerate(waiting) if not count)
    while queue:
        index = queue.popleft()
        for consumer in edges.consumers[index]:
            distance[consumer] = max(distance[consumer], distance[index] + 1)
            waiting[consumer] -= 1
            if not waiting[consumer]:
                queue.append(consumer)
    producers = edges.producers()
    order = post_order(producers, producers[yield_op], lambda index: (distance[index], index))
    forward = set(order)
    followers: dict[int, list[int]] = {}
    for parent, children in sorted(edges.measuring().items()):
        if parent in forward:
            added = [child for child in children if child not in forward]
            followers[parent] = added[::-1]
            forward.update(added)
    return _with_followers(order, followers)


def _with_followers(order: Sequence[int], followers: dict[int, list[int]]) -> list[int]:
    """An order with the followers of each node, and theirs in turn, right after it."""
    result: list[int] = []
    stack = list(reversed(order))
    while stack:
        index = stack.pop()
        result.append(index)
        stack.extend(reversed(followers.get(index, ())))
    return result


class _BackwardPart:
    """The YieldOp and all that is not forward.

    The nodes that need nothing from the YieldOp (the branch) are divided into groups: two are in one group if the same results of
    the branch depend on them. A group runs right before the first node that reads one of its values.
    """

    def __init__(self, edges: Edges, yield_op: int, forward: frozenset[int]) -> None:
        self._edges = edges
        self._yield_op = yield_op
        self._forward = forward
        self._waiting = {
            index: sum(source not in forward for source, _ in sources)
            for index, sources in enumerate(edges.sources)
            if index not in forward
        }
        self._branch = self._find_branch()
        self._results = self._branch_results()
        self._groups, self._group_of = self._find_groups()
        self._emitted: dict[int, None] = {}

    def _find_branch(self) -> dict[int, None]:
        waiting = dict(self._waiting)
        queue = deque(index for index, count in waiting.items() if not count and index != self._yield_op)
        branch: dict[int, None] = {}
        while queue:
            index = queue.popleft()
            branch[index] = None
            for consumer in self._edges.consumers[index]:
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    queue.append(consumer)
        return branch

    def _branch_results(self) -> dict[Value, int]:
        """The values of the branch that others read, and those of nodes nobody reads, with the node that makes them."""
        results: dict[Value, int] = {}
        for index in self._branch:
            if not self._edges.consumers[index]:
                results.update((value, index) for value in self._edges.nodes[index].outputs)
        for index in self._waiting:
            if index not in self._branch:
                results.update((value, source) for source, value in self._edges.sources[index] if source in self._branch)
        return results

    def _find_groups(self) -> tuple[list[list[int]], dict[int, int]]:
        tags: dict[int, set[Value]] = {index: set() for index in self._branch}
        for result, producer in self._results.items():
            stack = [producer]
            while stack:
                index = stack.pop()
                if result not in tags[index]:
                    tags[index].add(result)
                    stack.extend(source for source, _ in self._edges.sources[index] if source in self._branch)
        groups: dict[frozenset[Value], list[int]] = {}
        for index in self._branch:
            groups.setdefault(frozenset(tags[index]), []).append(index)
        listed = list(groups.values())
        return listed, {index: number for number, group in enumerate(listed) for index in group}

    def order(self) -> list[int]:
        """The nodes in the order they run, the YieldOp first."""
        for index in self._branch:
            for consumer in self._edges.consumers[index]:
                if consumer not in self._branch:
                    self._waiting[consumer] -= 1
        queue = deque([self._yield_op])
        while queue:
            index = queue.popleft()
            self._emit_groups(source for source, _ in self._edges.sources[index])
            self._emitted[index] = None
            for consumer in self._edges.consumers[index]:
                self._waiting[consumer] -= 1
                if not self._waiting[consumer]:
                    queue.append(consumer)
        self._emit_groups(self._results[value] for value in sorted(self._results, key=lambda value: value.name))
        return list(self._emitted)

    def _emit_groups(self, nodes: Iterable[int]) -> None:
        """Emit the groups of these nodes that have not run yet, each after those it depends on."""
        for node in nodes:
            stack = [self._group_of[node]] if node in self._group_of and node not in self._emitted else []
            while stack:
                group = self._groups[stack[-1]]
                needed = dict.fromkeys(
                    self._group_of[source]
                    for index in group
                    for source, _ in self._edges.sources[index]
                    if source in self._branch and source not in self._emitted
                )
                needed.pop(stack[-1], None)
                if needed:
                    stack.extend(reversed(needed))
                else:
                    self._emitted.update(dict.fromkeys(group))
                    stack.pop()
