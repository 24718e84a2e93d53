"""Least-peak-first: of the nodes that are ready, the one that leaves the fewest bytes alive.

    a = Expand(x)   b = ReduceSum(a)   c = Expand(x)   d = ReduceSum(c)       a, b, c, d: one large value at a time

A node costs the bytes of its outputs, less those of the values that nobody reads after it. Of nodes that cost the same, the one
whose inputs were made last goes first: so a chain is followed to its end. Sizes that nobody knows count as `ASSUMED`.

An entry of the queue is renewed whenever a node comes to cost less, which happens once for each of its inputs at most: the time
grows as the edges do.
"""

from __future__ import annotations

import heapq
from typing import Final

from sardonyx.ir.dims import Dim, evaluate, symbols_of
from sardonyx.ir.graph import Graph, Node, Value
from sardonyx.ir.types import TensorType
from sardonyx.plan.order import Edges

ASSUMED: Final = 64  # the size of a dimension that nobody knows


def assumed_size(dim: Dim, known: dict[str, int] | None = None) -> int:
    """The value of a dimension, of which some symbols are known; others are ASSUMED."""
    if isinstance(dim, int):
        return dim
    sizes = dict.fromkeys(symbols_of(dim), ASSUMED)
    return max(evaluate(dim, {**sizes, **(known or {})}), 0)


def _bytes_of(value: Value, known: dict[str, int]) -> int:
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return 0
    count = 1
    for dim in value.type.shape:
        count *= assumed_size(dim, known)
    return count * max(value.type.dtype.bits // 8, 1)


def least_peak_order(graph: Graph, known: dict[str, int] | None = None) -> list[Node]:
    """The nodes of a graph, those that leave the least memory in use first; `known` are sizes of named dimensions."""
    edges = Edges(graph)
    nodes = edges.nodes
    results = frozenset(graph.outputs)
    readers: dict[Value, set[int]] = {}
    for index, sources in enumerate(edges.sources):
        for _, value in sources:
            readers.setdefault(value, set()).add(index)
    size = {value: _bytes_of(value, known or {}) for value in readers}
    cost = [sum(size.get(value, 0) for value in node.outputs if value not in results) for node in nodes]
    for value, reading in readers.items():
        if len(reading) == 1 and value not in results:
            cost[next(iter(reading))] -= size[value]
    waiting = [len(sources) for sources in edges.sources]
    latest = [0] * len(nodes)  # when the last of its inputs was made
    heap = [(cost[index], 0, index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(heap)
    done = [False] * len(nodes)
    order: list[Node] = []
    while heap:
        _, _, index = heapq.heappop(heap)
        if done[index]:
            continue
        done[index] = True
        order.append(nodes[index])
        for consumer in edges.consumers[index]:
            waiting[consumer] -= 1
            latest[consumer] = len(order)
            if not waiting[consumer]:
                heapq.heappush(heap, (cost[consumer], -latest[consumer], consumer))
        for value in {value for _, value in edges.sources[index]}:
            reading = readers[value]
            reading.discard(index)
            if len(reading) == 1 and value not in results:
                last = next(iter(reading))
                cost[last] -= size[value]
                if not waiting[last]:
                    heapq.heappush(heap, (cost[last], -latest[last], last))
    return order
