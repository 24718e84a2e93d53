"""A forest of decision trees as tables, and the walk of many rows through all trees at once.

Nodes of all trees share one numbering; a leaf is a node whose `feature` is -1. Every row stands at one node of each tree; a step
moves all that are not at a leaf yet, so that a forest costs as many NumPy calls as its deepest tree is deep.
Thresholds are compared in float32, or float64 for a float64 input, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx.ops.interruption import stop_if_asked
from sardonyx.records import dataclass

Array = NDArray[Any]
Ints = NDArray[np.int64]

MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
MEMBER: Final = MODES.index("BRANCH_MEMBER")
AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_MARKED_FROM: Final = 64  # one of so many numbers: if fewer are given, marking them takes longer than sorting them
BLOCK: Final = 1 << 16  # votes (row, tree, target) that are gathered together; more of them leave the caches

_COMPARE: Final[tuple[Callable[[Array, Array], Any], ...]] = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
)


@dataclass(frozen=True)
class Members:
    """The sets of all BRANCH_MEMBER nodes, as sorted keys `set * len(values) + position of the value`."""

    values: Array  # sorted, of all sets together
    keys: Ints

    def contains(self, sets: Ints, wanted: Array) -> NDArray[np.bool_]:
        """Whether each value is in the set of the same position."""
        if not len(self.keys):
            return np.zeros(wanted.shape, np.bool_)
        index = np.minimum(np.searchsorted(self.values, wanted), len(self.values) - 1)
        key = sets * len(self.values) + index
        found = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.asarray((self.values[index] == wanted) & (self.keys[found] == key))


@dataclass(frozen=True)
class Forest:
    """Trees, and what their leaves say. Make it with `build_forest`."""

    feature: Ints  # -1 at leaves
    threshold: Array
    mode: NDArray[np.int8]
    when_true: Ints
    when_false: Ints
    missing_true: NDArray[np.bool_] | None  # where NaN takes the true branch; None if nowhere
    member_set: Ints  # number of the node's set, if it is a BRANCH_MEMBER
    members: Members
    roots: Ints
    modes: tuple[int, ...]  # those that occur
    targets: int
    leaf_target: Ints  # [nodes, most votes of a leaf]; `targets` where a leaf has fewer votes
    leaf_weight: Array
    all_positive: bool  # no vote is negative

    def leaves(self, x: Array) -> Ints:
        """The leaf each row of x reaches in each tree: [trees, rows]."""
        rows, features = x.shape
        at = np.repeat(self.roots, rows)
        active = np.flatnonzero(self.feature[at] >= 0)
        row_start = np.tile(np.arange(rows) * features, len(self.roots))[active]
        node = at[active]
        flat = np.ascontiguousarray(x).reshape(-1)
        while len(active):
            stop_if_asked()
            value = flat[row_start + self.feature[node]]
            node = np.where(self._goes_true(node, value), self.when_true[node], self.when_false[node])
            inside = self.feature[node] >= 0
            if not inside.all():
                at[active[~inside]] = node[~inside]
                active, row_start, node = active[inside], row_start[inside], node[inside]
        return at.reshape(len(self.roots), rows)

    def _goes_true(self, node: Ints, value: Array) -> NDArray[np.bool_]:
        if len(self.modes) == 1:
            result = self._compare(self.modes[0], node, value)
        else:
            kind = self.mode[node]
            result = np.zeros(node.shape, np.bool_)
            for mode in self.modes:
                chosen = kind == mode
                result[chosen] = self._compare(mode, node[chosen], value[chosen])
        if self.missing_true is not None:
            result |= self.missing_true[node] & np.isnan(value)
        return result

    def _compare(self, mode: int, node: Ints, value: Array) -> NDArray[np.bool_]:
        if mode == MEMBER:
            return self.members.contains(self.member_set[node], value)
        return np.asarray(_COMPARE[mode](value, self.threshold[node]))

    def votes(self, x: Array, aggregate: str = "SUM") -> tuple[Array, NDArray[np.bool_]]:
        """What the leaves say together, [rows, targets], and for which targets any leaf had a vote."""
        dtype = self.threshold.dtype
        needed = int(self.feature.max(initial=-1)) + 1
        if x.shape[1] < needed:
            raise ValueError(f"the trees look at feature {needed - 1} but the input has {x.shape[1]} features")
        x = x.astype(dtype, copy=False)
        scores = np.empty((len(x), self.targets), dtype)
        voted = np.empty((len(x), self.targets), np.bool_)
        step = max(1, BLOCK // max(1, len(self.roots) * self.leaf_target.shape[1]))
        for start in range(0, len(x), step):
            stop_if_asked()
            part = slice(start, start + step)
            scores[part], voted[part] = self._aggregate(self.leaves(x[part]), aggregate)
        if aggregate == "AVERAGE":
            scores /= dtype.type(max(1, len(self.roots)))
        return scores, voted

    def _aggregate(self, leaves: Ints, aggregate: str) -> tuple[Array, NDArray[np.bool_]]:
        rows = leaves.shape[1]
        width = self.targets + 1  # the last column takes the places where a leaf has no vote
        slot = (np.arange(rows)[:, None] * width + self.leaf_target[leaves]).reshape(-1)
        weight = self.leaf_weight[leaves].reshape(-1)
        voted = np.zeros(rows * width, np.bool_)
        voted[slot] = True
        start = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0)
        total = np.full(rows * width, start, weight.dtype)
        # One vote after the other in the order of the trees, in the type of the weights: the sums ONNX Runtime gets.
        combine = {"MIN": np.minimum, "MAX": np.maximum}.get(aggregate, np.add)
        with np.errstate(all="ignore"):
            combine.at(total, slot, weight)
        has_vote = voted.reshape(rows, width)[:, :-1]
        return np.where(has_vote, total.reshape(rows, width)[:, :-1], 0), has_vote


def build_forest(
    *,
    feature: Ints,
    threshold: Array,
    mode: NDArray[np.int8],
    when_true: Ints,
    when_false: Ints,
    missing_true: Sequence[int] | None,
    member_sets: Sequence[Array],
    roots: Ints,
    targets: int,
    vote_node: Ints,
    vote_target: Ints,
    vote_weight: Array,
) -> Forest:
    """A forest out of its nodes and the votes of its leaves; ValueError if they do not make trees.

    Leaves have feature -1. `member_sets` holds the sets of the BRANCH_MEMBER nodes, in the order of the nodes.
    """
    features, modes = feature, mode
    inner = features >= 0
    count = len(features)
    for name, ids in (("true", when_true), ("false", when_false)):
        bad = inner & ((ids < 0) | (ids >= count))
        if bad.any():
            raise ValueError(f"the {name} branch of a tree leads to node {ids[bad][0]}, which does not exist")
    _check_depth(roots, inner, when_true, when_false)
    if len(vote_target) and not (vote_target.min() >= 0 and vote_target.max() < targets):
        raise ValueError(f"leaves vote for {vote_target.min()} to {vote_target.max()}; there are {targets} targets or classes")
    member_set = np.zeros(count, np.int64)
    members = np.flatnonzero(inner & (modes == MEMBER))
    if len(members) != len(member_sets):
        raise ValueError(f"there are {len(members)} BRANCH_MEMBER nodes but {len(member_sets)} sets of members")
    member_set[members] = np.arange(len(members))
    leaf_target, leaf_weight = _vote_tables(count, targets, inner, vote_node, vote_target, vote_weight)
    missing = np.zeros(count, np.bool_)
    if missing_true is not None:
        missing[: len(missing_true)] = np.asarray(missing_true, np.bool_)
    return Forest(
        features,
        threshold,
        modes,
        np.where(inner, when_true, 0),
        np.where(inner, when_false, 0),
        missing if (missing & inner).any() else None,
        member_set,
        _member_table(member_sets, threshold.dtype),
        roots,
        tuple(int(kind) for kind in np.unique(modes[inner])),
        targets,
        leaf_target,
        leaf_weight,
        bool((vote_weight >= 0).all()),
    )


def distinct(numbers: Ints, count: int) -> Ints:
    """Numbers from 0 to `count`, each once and in order: as `np.unique`, which takes ten times as long for many."""
    if len(numbers) * _MARKED_FROM < count:
        found: Ints = np.unique(numbers)
        return found
    met = np.zeros(count, np.bool_)
    met[numbers] = True
    return np.flatnonzero(met)


def _check_depth(roots: Ints, inner: NDArray[np.bool_], when_true: Ints, when_false: Ints) -> None:
    """ValueError if a walk from a root could go on for ever."""
    level = distinct(roots, len(inner))
    for _ in range(len(inner) + 1):
        level = level[inner[level]]
        if not len(level):
            return
        level = distinct(np.concatenate([when_true[level], when_false[level]]), len(inner))
    raise ValueError("the branches of a tree lead back to a node above: it is not a tree")


def _vote_tables(
    nodes: int, targets: int, inner: NDArray[np.bool_], vote_node: Ints, vote_target: Ints, vote_weight: Array
) -> tuple[Ints, Array]:
    """The votes of each node side by side, in the order they were given; inner nodes have none.

    Where all votes are for one target, ONNX Runtime takes the first of each leaf. Converters rely on it: scikit-learn's
    `decision_path` has a vote for each class, all of them the number of the leaf.
    """
    kept = ~inner[vote_node]
    vote_node, vote_target, vote_weight = vote_node[kept], vote_target[kept], vote_weight[kept]
    order = np.argsort(vote_node, kind="stable")
    vote_node, vote_target, vote_weight = vote_node[order], vote_target[order], vote_weight[order]
    position = np.arange(len(vote_node)) - np.searchsorted(vote_node, vote_node)
    if targets == 1:
        first = position == 0
        vote_node, vote_target, vote_weight, position = vote_node[first], vote_target[first], vote_weight[first], position[first]
    width = int(position.max(initial=0)) + 1
    target = np.full((nodes, width), targets, np.int64)
    weight = np.zeros((nodes, width), vote_weight.dtype)
    target[vote_node, position] = vote_target
    weight[vote_node, position] = vote_weight
    return target, weight


def _member_table(member_sets: Sequence[Array], dtype: np.dtype[Any]) -> Members:
    sets = [np.unique(np.asarray(values, dtype)) for values in member_sets]
    if not sets:
        return Members(np.empty(0, dtype), np.empty(0, np.int64))
    values = np.unique(np.concatenate(sets))
    keys = [index * len(values) + np.searchsorted(values, one) for index, one in enumerate(sets)]
    return Members(values, np.concatenate(keys).astype(np.int64))
