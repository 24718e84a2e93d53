"""Sets of nodes that can be computed as one: connected, as large as possible, and convex.

a ── Conv ──┬── Relu ───┬── Add ── y        A provider that has no Sqrt gets {Conv, Relu} and {Add}: {Conv, Relu, Add} would
            └── Sqrt ───┘                   need the result of Sqrt, which needs that of Conv.
"""

from __future__ import annotations

from collections.abc import Collection

from sardonyx.analysis.liveness import used_values
from sardonyx.ir.graph import Graph, Node


def predecessors(graph: Graph) -> dict[Node, list[Node]]:
    """For each node of a graph, in order, the nodes of the same graph whose results it needs."""
    found: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        before = dict.fromkeys(value.producer for value in used_values(node) if value.producer is not None)
        found[node] = [each for each in before if each.graph is graph]
    return found


def detour(before: dict[Node, list[Node]], nodes: Collection[Node]) -> Node | None:
    """A node outside of a set on a path that leaves the set and comes back to it; None if the set is convex."""
    inside = set(nodes)
    behind: set[Node] = set()  # nodes outside that need something of the set
    for node, needed in before.items():
        if node in inside:
            found = next((each for each in needed if each in behind), None)
            if found is not None:
                return found
        elif any(each in inside or each in behind for each in needed):
            behind.add(node)
    return None


def connected_regions(graph: Graph, claimed: Collection[Node]) -> list[list[Node]]:
    """The largest connected convex sets of some nodes of a graph, in order; each node is in one of them.

    Nodes are first divided by how often the paths to them have left the claimed nodes: those with the same number never have a
    path outside between them. Connected sets of these are then joined where nothing outside lies between them.
    """
    before = predecessors(graph)
    inside = set(claimed)
    exits: dict[Node, int] = {}
    for node, needed in before.items():
        exits[node] = max((exits[each] + (each in inside and node not in inside) for each in needed), default=0)
    sets = _Sets()
    for node, needed in before.items():
        if node in inside:
            sets.add(node)
            for each in needed:
                if each in inside and exits[each] == exits[node]:
                    sets.join(each, node)
    _join_neighbours(before, sets)
    regions: dict[Node, list[Node]] = {}
    for node in before:
        if node in inside:
            regions.setdefault(sets.root(node), []).append(node)
    return list(regions.values())


class _Sets:
    """Disjoint sets of nodes."""

    def __init__(self) -> None:
        self._parent: dict[Node, Node] = {}

    def add(self, node: Node) -> None:
        self._parent[node] = node

    def root(self, node: Node) -> Node:
        """The node that stands for the set of a node; nodes that were not added stand for themselves."""
        at = node
        while self._parent.get(at, at) is not at:
            at = self._parent[at]
        while self._parent.get(node, node) is not at:
            self._parent[node], node = at, self._parent[node]
        return at

    def join(self, node: Node, other: Node) -> Node:
        """Make one set of two; the node that stands for it."""
        root = self._parent[self.root(node)] = self.root(other)
        return root

    def __contains__(self, node: Node) -> bool:
        return node in self._parent


def _join_neighbours(before: dict[Node, list[Node]], sets: _Sets) -> None:
    """Join sets one of which reads results of the other, if no path between them leads through anything else."""
    spans: dict[Node, tuple[int, int]] = {}  # of sets, and nodes that are in none: first and last position
    after: dict[Node, set[Node]] = {}  # who needs their results
    for position, (node, needed) in enumerate(before.items()):
        target = sets.root(node)
        spans[target] = (spans.get(target, (position, 0))[0], position)
        after.setdefault(target, set())
        for each in needed:
            source = sets.root(each)
            if source is not target:
                after[source].add(target)
    changed = True
    while changed:
        changed = False
        pairs = [(source, target) for source in after if source in sets for target in after[source] if target in sets]
        for pair in sorted(pairs, key=lambda pair: (spans[pair[0]], spans[pair[1]])):
            source, target = map(sets.root, pair)
            if source is target or target not in after[source] or _has_detour(after, spans, source, target):
                continue
            root = sets.join(source, target)
            gone = source if root is target else target
            spans[root] = (min(spans[source][0], spans[target][0]), max(spans[source][1], spans[target][1]))
            after[root] = (after[source] | after[target]) - {source, target}
            if gone is not root:
                del after[gone]
            for targets in after.values():
                if gone in targets:
                    targets.remove(gone)
                    targets.add(root)
            changed = True


def _has_detour(after: dict[Node, set[Node]], spans: dict[Node, tuple[int, int]], source: Node, target: Node) -> bool:
    """Whether a path leads from one to the other through something else."""
    last = spans[target][1]  # what begins behind the end of the target does not lead to it
    pending = [each for each in after[source] if each is not target and spans[each][0] < last]
    seen = set(pending)
    while pending:
        for each in after[pending.pop()]:
            if each is target:
                return True
            if each not in seen and spans[each][0] < last:
                seen.add(each)
                pending.append(each)
    return False
