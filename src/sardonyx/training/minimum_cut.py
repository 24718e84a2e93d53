"""A minimum cut: the cheapest set of edges without which nothing flows from a source to a sink.

flow = Flow()
flow.edge("source", "a", 5)
flow.edge("a", "sink", 3)
flow.reached_from_source()      {"source", "a"}: the edge from a to the sink is the cut
"""

from __future__ import annotations

from collections import deque


class Flow:
    """A network of edges with capacities, and the flow through it from "source" to "sink" (Dinic's algorithm)."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {"source": 0, "sink": 1}
        self._edges: list[list[int]] = [[], []]  # for each place the edges that leave it
        self._to: list[int] = []
        self._room: list[int] = []

    def _number(self, key: object) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._edges)
            self._edges.append([])
        return number

    def edge(self, start: object, end: object, capacity: int) -> None:
        """An edge from one place to another."""
        a, b = self._number(start), self._number(end)
        self._edges[a].append(len(self._to))
        self._to.append(b)
        self._room.append(capacity)
        self._edges[b].append(len(self._to))
        self._to.append(a)
        self._room.append(0)

    def reached_from_source(self) -> set[object]:
        """The places on the source's side of a minimum cut."""
        while True:
            levels = self._levels()
            if levels[1] < 0:
                return {key for key, number in self._numbers.items() if levels[number] >= 0}
            self._augment(levels)

    def _levels(self) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[0] = 0
        queue = deque([0])
        while queue:
            here = queue.popleft()
            for edge in self._edges[here]:
                there = self._to[edge]
                if self._room[edge] and levels[there] < 0:
                    levels[there] = levels[here] + 1
                    queue.append(there)
        return levels

    def _augment(self, levels: list[int]) -> None:
        """Send flow along shortest paths until none is left."""
        following = [0] * len(self._edges)
        path: list[int] = []
        here = 0
        while True:
            if here == 1:
                amount = min(self._room[edge] for edge in path)
                for edge in path:
                    self._room[edge] -= amount
                    self._room[edge ^ 1] += amount
                path, here = [], 0
                continue
            edges = self._edges[here]
            while following[here] < len(edges):
                edge = edges[following[here]]
                if self._room[edge] and levels[self._to[edge]] == levels[here] + 1:
                    path.append(edge)
                    here = self._to[edge]
                    break
                following[here] += 1
            else:
                if not path:
                    return
                edge = path.pop()
                here = self._to[edge ^ 1]
                following[here] += 1
