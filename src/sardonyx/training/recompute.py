"""Which results of the forward pass are computed again in the backward pass instead of being kept.

    level 0      what the configuration says: "Op+Op+:strategy:count", as "MatMul+Softmax+:1:-1"
    level 1      layer by layer: what stands between two layers is kept, what is inside is computed again
    level 2      everything but products, convolutions, attention and recurrent layers is computed again

    forward    x ──[ layer 1 ]── a ──[ layer 2 ]── b ──[ layer 3 ]── y           kept: a, b, and the inside of layer 3
    backward   gradients of layer 3; layer 2 again from a, its gradients; layer 1 again from x, its gradients

A *layer* ends where few bytes are read across its end. Of all such borders those are taken that need the least memory: what is
kept at the ends, and the inside of the largest layer, which is there while its gradients are computed. The last layer is not
computed again, since its gradients come right after it.

A *cluster* is a value that would be kept, with the nodes that compute it from others that are kept; its name is their operators.
Strategy 1 computes all of them again; strategy 2 none of the products and convolutions, with what is fused into them, whose
results are kept instead if that is less; 0 none. The count is how many clusters of that name, from the first on; -1 means all.

Random operators and those with subgraphs are never computed again; masks of Dropout are, and are the same.
"""

from __future__ import annotations

import bisect
import enum
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from sardonyx import errors
from sardonyx.ir.graph import Graph, Node, Value, needed_nodes
from sardonyx.ops.registry import Trait, traits
from sardonyx.records import dataclass
from sardonyx.training.joint import Halves, JointGraph, MayRepeat, is_cheap, is_size_value, price, read_values

# What takes longer to compute again than anything else.
_HEAVY: Final = frozenset(
    (
        "Attention", "BlockedConv", "Conv", "ConvGradData", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul",
        "GRU", "GRUTrace", "Gemm", "LSTM", "LSTMTrace", "MatMul", "MultiHeadAttention", "RNN",
    )
)  # fmt: skip
_MOST_BORDERS: Final = 160  # where layers might end, that are compared
_MOST_LAYERS: Final = 24

_log = logging.getLogger("sardonyx.training")


class MemoryLevel(enum.IntEnum):
    """How what is computed again is chosen; the names are ONNX Runtime's."""

    USER_SPECIFIED = 0
    TRANSFORMER_LAYERWISE_RECOMPUTE = 1
    TRANSFORMER_LAYERWISE_RECOMPUTE_WITH_COMPROMISE = 2


@dataclass(frozen=True)
class Choice:
    """One entry of a configuration."""

    cluster: str
    strategy: int
    count: int

    def __str__(self) -> str:
        return f"{self.cluster}:{self.strategy}:{self.count}"

    @staticmethod
    def parse(text: str) -> Choice:
        """An entry such as "Gelu+:1:-1"; InvalidArgument for others."""
        cluster, *numbers = text.strip().split(":")
        try:
            strategy, count = map(int, numbers)
        except ValueError:
            strategy, count = -1, 0
        if not cluster.endswith("+") or strategy not in (0, 1, 2) or count < -1:
            raise errors.InvalidArgument(
                f"{text!r} is no choice of what to compute again",
                hint='expected "Op+Op+:strategy:count" with strategy 0, 1 or 2, and a count, -1 for all',
            )
        return Choice(cluster, strategy, count)


@dataclass(frozen=True)
class RecomputeOptions:
    """What is computed again: by layers (1), all that is light (2), or by choices (0)."""

    level: MemoryLevel = MemoryLevel.USER_SPECIFIED
    choices: tuple[Choice, ...] = ()

    @property
    def is_enabled(self) -> bool:
        """Whether anything is computed again that is not cheap."""
        return self.level is not MemoryLevel.USER_SPECIFIED or any(choice.strategy and choice.count for choice in self.choices)

    @staticmethod
    def of(level: int, config: str = "") -> RecomputeOptions:
        """A level and, for level 0, choices separated by commas or the path of a JSON file with a list of them."""
        if level not in list(MemoryLevel):
            raise errors.InvalidArgument(f"{level} is no level of memory optimization, expected 0, 1 or 2")
        if level or not config.strip():
            return RecomputeOptions(MemoryLevel(level))
        return RecomputeOptions(MemoryLevel(level), tuple(map(Choice.parse, _entries(config))))


def _entries(config: str) -> list[str]:
    if not config.strip().endswith(".json"):
        return [entry for entry in config.split(",") if entry.strip()]
    try:
        found = json.loads(Path(config).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise errors.InvalidArgument(
            f"the configuration of what to compute again cannot be read from {config!r}: {error}"
        ) from error
    if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
        raise errors.InvalidArgument(f"{config!r} is expected to hold a list of strings")
    return found


@dataclass(frozen=True)
class Cluster:
    """A node whose results would be kept, and those that compute what it reads from others that are."""

    name: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class ForwardLayer:
    """Nodes of the forward pass from one border where little is read across to the next."""

    nodes: tuple[Node, ...]
    ends: tuple[Value, ...]  # what later layers read
    is_last: bool


@dataclass(frozen=True)
class Saving:
    """What a choice alone would save."""

    choice: str
    occurrences: int
    saved: int  # bytes
    of: int  # bytes that are kept without any choice
    taken: int  # occurrences that are computed again


class RecomputePlan:
    """What is computed again in the backward pass of one joint graph."""

    def __init__(self, joint: JointGraph, options: RecomputeOptions) -> None:
        self._joint = joint
        self.options = options
        self.may_repeat: MayRepeat = is_cheap
        if options.level is MemoryLevel.TRANSFORMER_LAYERWISE_RECOMPUTE:
            self.may_repeat = _by_layers(self.layers)
        elif options.level is MemoryLevel.TRANSFORMER_LAYERWISE_RECOMPUTE_WITH_COMPROMISE:
            self.may_repeat = self._all_light
        elif options.is_enabled:
            self.may_repeat = self._by_choices(options.choices)

    def halves(self) -> Halves:
        """The graphs of both passes."""
        return self._joint.halves(self.may_repeat)

    def executed(self) -> Graph:
        """The graph of both passes in one, with what is computed again in it twice."""
        return self._joint.executed(self.may_repeat)

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """Of all values that would be kept what they are computed from, in the order of the forward pass."""
        kept = frozenset(self._joint.plainly_kept)
        position = {node: number for number, node in enumerate(self._joint.nodes)}
        ends = dict.fromkeys(value.producer for value in self._joint.plainly_kept if value.producer is not None)
        found = (_cluster(end, kept, position) for end in ends)
        return tuple(cluster for cluster in found if cluster is not None)

    @cached_property
    def layers(self) -> tuple[ForwardLayer, ...]:
        """The layers of the forward pass."""
        return _Layers(self._joint, self._joint.plainly_kept).found()

    def savings(self, sizes: Mapping[str, int]) -> list[Saving]:
        """What each choice would save for these sizes of the named dimensions, the greatest first."""
        whole = _bytes(self._joint.plainly_kept, sizes)
        counts = Counter(cluster.name for cluster in self.clusters)
        taken = self._taken()
        found = []

        def saving(label: str, occurrences: int, may_repeat: MayRepeat, chosen: int) -> None:
            left = _bytes(self._joint.kept(may_repeat), sizes)
            found.append(Saving(label, occurrences, whole - left, whole, chosen))

        with_heavy = {cluster.name for cluster in self.clusters if any(map(_is_heavy, cluster.nodes))}
        for name, occurrences in counts.items():
            for strategy in (1, 2) if name in with_heavy else (1,):
                choice = Choice(name, strategy, -1)
                saving(str(choice), occurrences, self._by_choices([choice]), taken.get((name, strategy), 0))
        found = [each for each in found if each.saved > 0]
        found.sort(key=lambda each: (-each.saved, each.choice))
        level = self.options.level
        again = len(self.layers) - 1
        ways: tuple[tuple[str, int, MayRepeat, MemoryLevel], ...] = (
            ("layer by layer (level 1)", again, _by_layers(self.layers), MemoryLevel.TRANSFORMER_LAYERWISE_RECOMPUTE),
            ("all that is light (level 2)", 1, self._all_light, MemoryLevel.TRANSFORMER_LAYERWISE_RECOMPUTE_WITH_COMPROMISE),
        )
        for label, occurrences, may_repeat, way in ways:
            saving(label, occurrences, may_repeat, occurrences if level is way else 0)
        return found

    def plainly_kept_bytes(self, sizes: Mapping[str, int]) -> int:
        """How many bytes would be kept if nothing but cheap nodes were computed again."""
        return _bytes(self._joint.plainly_kept, sizes)

    def kept_bytes(self, sizes: Mapping[str, int]) -> int:
        """How many bytes this plan keeps for these sizes."""
        return _bytes(self._joint.kept(self.may_repeat), sizes)

    def _taken(self) -> dict[tuple[str, int], int]:
        counts = Counter(cluster.name for cluster in self.clusters)
        return {
            (choice.cluster, choice.strategy): counts[choice.cluster]
            if choice.count < 0
            else min(choice.count, counts[choice.cluster])
            for choice in self.options.choices
        }

    def _by_choices(self, choices: Sequence[Choice]) -> MayRepeat:
        chosen: set[Node] = set()
        for choice in choices:
            fitting = [cluster for cluster in self.clusters if cluster.name == choice.cluster]
            if not fitting:
                known = ", ".join(sorted({cluster.name for cluster in self.clusters})) or "none"
                _log.warning("there is nothing to compute again called %s; known: %s", choice.cluster, known)
            if choice.strategy:
                heavy_too = choice.strategy == 1
                for cluster in fitting[: choice.count if choice.count >= 0 else None]:
                    chosen.update(node for node in cluster.nodes if heavy_too or node not in self._heavy)
        return lambda node: node in chosen or is_cheap(node)

    def _all_light(self, node: Node) -> bool:
        return node not in self._heavy and _is_repeatable(node)

    @cached_property
    def _heavy(self) -> frozenset[Node]:
        """Nodes that take long, and what is computed on their results in the same kernel: it would be another one without."""
        found: set[Node] = set()
        for node in self._joint.nodes:
            before = {value.producer for value in read_values(node)}
            if _is_heavy(node) or (Trait.ELEMENTWISE in traits(node) and not found.isdisjoint(before)):
                found.add(node)
        return frozenset(found)


def savings_table(savings: Sequence[Saving]) -> list[str]:
    """What each choice would save, as lines of a table; choices that are taken say how often."""
    lines = ["what computing values again in the backward pass would save, each choice by itself:"]
    lines.append(f"  {'choice':60}{'found':>6}{'taken':>6}{'saved MB':>12}{'of kept':>9}")
    for each in savings:
        share = each.saved / max(each.of, 1)
        head = each.choice if len(each.choice) <= 58 else f"{each.choice}\n  {'':60}"
        lines.append(f"  {head:60}{each.occurrences:6}{each.taken:6}{each.saved / 1e6:12.3f}{share:9.1%}")
    return lines


def _bytes(values: Sequence[Value], sizes: Mapping[str, int]) -> int:
    return sum(price(value, sizes) for value in values)


def _is_heavy(node: Node) -> bool:
    return node.op_type in _HEAVY


def _is_repeatable(node: Node) -> bool:
    """Whether computing a node twice gives the same result."""
    return Trait.RANDOM not in traits(node) and not node.subgraphs() and not node.is_kept


def _cluster(end: Node, kept: frozenset[Value], position: Mapping[Node, int]) -> Cluster | None:
    """How a node comes from values that are kept, or None if something between them cannot be repeated."""
    nodes: set[Node] = set()
    pending: list[Node | None] = [end]
    while pending:
        node = pending.pop()
        if node is None or node in nodes:
            continue
        if not _is_repeatable(node):
            return None
        nodes.add(node)
        if Trait.MEASURES not in traits(node):
            pending.extend(each.producer for each in read_values(node) if each not in kept)
    ordered = sorted(nodes, key=position.__getitem__)
    named = [node.op_type for node in ordered if not is_size_value(node) and Trait.MEASURES not in traits(node)]
    return Cluster("".join(f"{name}+" for name in named), tuple(ordered)) if named else None


def _by_layers(layers: Sequence[ForwardLayer]) -> MayRepeat:
    ends = {value.producer for layer in layers for value in layer.ends}
    inside = {node for layer in layers if not layer.is_last for node in layer.nodes}

    def may_repeat(node: Node) -> bool:
        if node in ends:
            return False
        return is_cheap(node) or (node in inside and _is_repeatable(node))

    return may_repeat


class _Layers:
    """The borders of a forward pass where layers end best."""

    def __init__(self, joint: JointGraph, kept: Sequence[Value]) -> None:
        self._nodes = needed_nodes(joint.nodes, joint.outputs)
        self._position = {node: number for number, node in enumerate(self._nodes)}
        free = _free_values(joint.nodes)
        # Values by where they are made: that position, the last position where one is read, and what they cost.
        self._spans: list[tuple[int, int, Value]] = []
        for number, node in enumerate(self._nodes):
            for value in node.outputs:
                readers = [self._position[each] for each in value.consumers if each in self._position]
                if readers and value not in free:
                    self._spans.append((number, max(readers), value))
        self._inside = self._kept_at(joint.nodes, kept)

    def _kept_at(self, nodes: Sequence[Node], kept: Sequence[Value]) -> list[int]:
        """How many of the bytes that would be kept are of the nodes in front of each border, beginning with 0."""
        latest: dict[Node, int] = {}
        for node in nodes:
            own = self._position.get(node)
            before = [latest[value.producer] for value in read_values(node) if value.producer in latest]
            latest[node] = own if own is not None else max(before, default=0)
        at = [0] * (len(self._nodes) + 1)
        for value in kept:
            if value.producer is not None:
                at[latest[value.producer] + 1] += price(value, {})
        for number in range(1, len(at)):
            at[number] += at[number - 1]
        return at

    def found(self) -> tuple[ForwardLayer, ...]:
        """The layers, the last one included."""
        ends = [*self._best(self._borders()), len(self._nodes)]
        layers = []
        start = 0
        for end in ends:
            crossing = tuple(value for first, last, value in self._spans if first < end <= last)
            layers.append(ForwardLayer(tuple(self._nodes[start:end]), crossing, end == len(self._nodes)))
            start = end
        return tuple(layers)

    def _borders(self) -> list[int]:
        """Where fewer bytes are read across than right before or after: how many nodes stand in front of each."""
        count = len(self._nodes)
        changes = [0] * (count + 1)
        for first, last, value in self._spans:
            changes[first + 1] += price(value, {})
            changes[last + 1] -= price(value, {})
        across, total = [], 0
        for change in changes:
            total += change
            across.append(total)
        borders = [
            border for border in range(1, count) if across[border] <= across[border - 1] and across[border] < across[border + 1]
        ]
        narrow = sorted(borders, key=lambda border: (across[border], border))[:_MOST_BORDERS]
        return sorted(narrow)

    def _best(self, borders: Sequence[int]) -> list[int]:
        """Of the borders those that need the least memory."""
        total = self._inside[-1]
        best: tuple[int, list[int]] = (total, [])
        news = self._newly_across([0, *borders])
        for layers in range(2, _MOST_LAYERS + 1):
            most = -(-total // layers)
            chosen = self._within(borders, news, most)
            if chosen is not None:
                cost, ends, largest = chosen
                best = min(best, (cost + largest, ends), key=lambda each: each[0])
        return best[1]

    def _newly_across(self, borders: Sequence[int]) -> Callable[[int, int], int]:
        """A function of two borders: the bytes read across the second that are made behind the first."""
        tables = []
        for border in borders:
            crossing = sorted((first, price(value, {})) for first, last, value in self._spans if first < border <= last)
            sums = [0]
            for _, cost in reversed(crossing):
                sums.append(sums[-1] + cost)
            tables.append(([first for first, _ in crossing], sums))

        def newly(start: int, end: int) -> int:
            firsts, sums = tables[end]
            return sums[len(firsts) - bisect.bisect_left(firsts, borders[start])]

        return newly

    def _within(self, borders: Sequence[int], newly: Callable[[int, int], int], most: int) -> tuple[int, list[int], int] | None:
        """The ends of layers none of which would keep more than some bytes: what is kept at them, the ends, the largest layer."""
        every = [0, *borders, len(self._nodes)]
        inside = [self._inside[border] for border in every]
        costs: list[tuple[int, int] | None] = [(0, 0)]  # what is kept up to here, and the end before
        for end in range(1, len(every)):
            options = []
            for start in range(end - 1, -1, -1):
                if start < end - 1 and inside[end] - inside[start] > most:
                    break
                known = costs[start]
                if known is not None:
                    options.append((known[0] + (newly(start, end) if end < len(every) - 1 else 0), start))
            costs.append(min(options, default=None))
        last = costs[-1]
        if last is None:
            return None
        ends: list[int] = []
        largest, at = 0, len(every) - 1
        while at:
            known = costs[at]
            assert known is not None
            largest = max(largest, inside[at] - inside[known[1]])
            at = known[1]
            if at:
                ends.append(every[at])
        return last[0], ends[::-1], largest


def _free_values(nodes: Sequence[Node]) -> frozenset[Value]:
    """What is cheaply computed from inputs of the graph alone: it need not be kept anywhere."""
    free: set[Value] = set()
    for node in nodes:
        if is_cheap(node) and all(value.producer is None or value in free for value in read_values(node)):
            free.update(node.outputs)
    return frozenset(free)
