"""A forest reduced to one kind of decision, as tables: what native code walks through.

Every node asks whether the *key* of a column is at most its own key, and goes to the first or the second of two neighbours:

    BRANCH_LEQ t    key <= key(t)            BRANCH_GT  t    the same with its branches swapped
    BRANCH_LT  t    key <= key(t) - 1        BRANCH_GTE t    the same with its branches swapped
    BRANCH_EQ  t    key <= key(t), then key <= key(t) - 1: two nodes with one branch in common; BRANCH_NEQ: swapped
    BRANCH_MEMBER   a binary search for the value, which ends with a BRANCH_EQ

Keys are unsigned numbers of 32 bits in the order of the values: the bits of a float32, arranged so that they are ordered, or the
rank of a float64 among the thresholds of its feature. NaN has no place in that order: a feature has up to two *columns*, one in
which NaN has the lowest key (it goes to the first branch everywhere) and one in which it has the highest.

Nodes of a tree lie in *slots* beginning with the root; the two branches of a node are in neighbouring slots, and those of its
branches follow, so that a walk meets few lines of cache. A leaf leads to itself, so that a walk may go on for as many steps as
the deepest leaf needs: it looks at a column in which every row has the lowest key, and has its own number in place of a key. A
node that two others lead to stands in two slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx.ops.ml.ml_forest import MEMBER, MODES, Forest
from sardonyx.records import dataclass

Array = NDArray[Any]
Ints = NDArray[np.int64]

_IN_COMMON: Final = "two trees have a node in common"
LOWEST: Final = 0  # the key of NaN where it takes the first branch; no number has it
HIGHEST: Final = 0xFFFFFFFF  # the key of NaN where it takes the second branch
SIGN: Final = 0x80000000
COLUMN_BITS: Final = 12
SLOT_BITS: Final = 20  # in a node of 64 bits: key, column, first of the two slots it leads to
WORD_LEAVES: Final = 32  # leaves that are bits of one word
MOST_LEAVES: Final = 256  # of a tree whose leaves are bits: there are more nodes to compare with than steps down the tree

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ = range(6)
assert MODES[:MEMBER] == ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")

# Columns of the table of trees
FIRST_SLOT, DEPTH, FIRST_WORD, END_WORD, TARGET, TREE_ENTRIES = 0, 1, 2, 3, 4, 8
WALKED: Final = -1  # in place of the first word: the tree has too many leaves for bits
FIRST_BIT, END_BIT, FIRST_LEAF, WORD_ENTRIES = 0, 1, 2, 4  # of the table of words; those of a tree from the last to the first
BIT_ENTRIES: Final = 4  # column, key, the leaves of the word that stay possible if it is exceeded, nothing
CLUSTER: Final = 2  # levels of a tree whose slots lie together
PADDING: Final = 16  # trees behind the last one that may be walked through, too; nobody counts their votes


def float_keys(values: Array) -> NDArray[np.uint32]:
    """The keys of float32 numbers; NaN has none."""
    bits = (values.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0 and 0 are the same number
    return np.where(bits >> 31, ~bits, bits | np.uint32(SIGN))


@dataclass(frozen=True)
class DecisionTables:
    """A forest as the kernel takes it. Make it with `decision_tables`."""

    columns: Ints  # 2 * feature, + 1 where NaN has the lowest key
    cuts: Array  # float64: the thresholds of each column in order; else empty
    cut_starts: Ints  # where those of each column begin, and the end
    trees: Ints  # [trees + PADDING, TREE_ENTRIES]
    nodes: NDArray[np.uint64]  # [slots, 1], or [slots, 2] if columns or slots are too many for one word
    votes: Array  # [leaves, width]
    words: Ints  # [words of all small trees, WORD_ENTRIES]
    bits: NDArray[np.int32]  # [nodes of small trees, once for each word, BIT_ENTRIES]
    width: int  # targets a leaf votes for: all, or the one of its tree
    tree_count: int


class _Decisions:
    """Nodes of one kind, in growing lists: those of the forest first, then the ones made in addition."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        count = len(forest.feature)
        inner = forest.feature >= 0
        mode, value = forest.mode, forest.threshold
        missing = np.zeros(count, np.bool_) if forest.missing_true is None else forest.missing_true
        swapped = (mode == _GTE) | (mode == _GT) | (mode == _NEQ)
        self.inner = inner
        self.value = value.copy()
        self.below = (mode == _LT) | (mode == _GTE)  # the decision is "less than"
        # NaN takes the false branch of every comparison but !=, or the true branch where that is asked for.
        nan_true = missing | (mode == _NEQ)
        self.nan_first = nan_true ^ swapped
        self.first = np.where(swapped, forest.when_false, forest.when_true)
        self.second = np.where(swapped, forest.when_true, forest.when_false)
        self.feature = forest.feature.copy()
        self._more: dict[str, list[Any]] = {name: [] for name in ("value", "below", "nan_first", "first", "second", "feature")}
        self._count = count
        for node in np.flatnonzero(inner & ((mode == _EQ) | (mode == _NEQ))).tolist():
            self._equality(node, float(value[node]), bool(nan_true[node]) ^ bool(mode[node] == _NEQ))
        self._memberships(np.flatnonzero(inner & (mode == MEMBER)), missing)
        self._append()

    def _add(self, **fields: Any) -> int:
        for name, added in self._more.items():
            added.append(fields[name])
        self._count += 1
        return self._count - 1

    def _equality(self, node: int, value: float, nan_equal: bool) -> None:
        """`node` becomes: at most the value? then: less than it? Its `first` is where equal ones go."""
        equal, other = int(self.first[node]), int(self.second[node])
        feature = int(self.feature[node])
        # NaN comes to the second question only to be taken for equal.
        less = self._add(value=value, below=True, nan_first=False, first=other, second=equal, feature=feature)
        self.value[node], self.below[node], self.nan_first[node] = value, False, nan_equal
        self.first[node], self.second[node] = less, other

    def _memberships(self, nodes: Ints, missing: NDArray[np.bool_]) -> None:
        members = self.forest.members
        for node in nodes.tolist():
            own = members.keys // max(1, len(members.values)) == self.forest.member_set[node]
            values = members.values[members.keys[own] % max(1, len(members.values))]
            values = values[~np.isnan(values)]
            member, other = int(self.first[node]), int(self.second[node])
            if not len(values):  # nothing is a member of the empty set: no number is less than -infinity
                self.value[node], self.below[node], self.nan_first[node] = -np.inf, True, bool(missing[node])
                continue
            found = self._search(node, values.tolist(), member, other, bool(missing[node]))
            self._replace(node, found)

    def _search(self, node: int, values: Sequence[float], member: int, other: int, nan_is_member: bool) -> dict[str, Any]:
        """The first decision of a binary search for a value; NaN goes with the greatest."""
        feature = int(self.feature[node])
        if len(values) == 1:
            less = self._add(value=values[0], below=True, nan_first=False, first=other, second=member, feature=feature)
            return {
                "value": values[0],
                "below": False,
                "nan_first": nan_is_member,
                "first": less,
                "second": other,
                "feature": feature,
            }
        middle = len(values) // 2
        low = self._add(**self._search(node, values[:middle], member, other, False))
        high = self._add(**self._search(node, values[middle:], member, other, nan_is_member))
        return {"value": values[middle - 1], "below": False, "nan_first": False, "first": low, "second": high, "feature": feature}

    def _replace(self, node: int, fields: dict[str, Any]) -> None:
        for name, field in fields.items():
            getattr(self, name)[node] = field

    def _append(self) -> None:
        extra = len(self._more["value"])
        if extra:
            for name, added in self._more.items():
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.array(added, old.dtype)]))
            self.inner = np.concatenate([self.inner, np.ones(extra, np.bool_)])


def decision_tables(forest: Forest, no_vote: float = 0.0) -> DecisionTables:
    """The tables of a forest; ValueError for what they cannot hold. `no_vote` stands where a leaf has nothing to say."""
    if not len(forest.roots):
        raise ValueError("there are no trees")
    decisions = _Decisions(forest)
    inner, wide = decisions.inner, forest.threshold.dtype == np.float64
    column_of, columns = _columns(decisions)
    keys = np.zeros(len(inner), np.uint32)
    cuts, cut_starts = np.empty(0, np.float64), np.zeros(len(columns) + 1, np.int64)
    if wide:
        cuts, cut_starts = _ranked(decisions, column_of, len(columns), keys)
    else:
        keys[inner] = _float_decisions(decisions.value[inner], decisions.below[inner])
    layout = _Layout(decisions, forest.roots)
    if int(layout.slot_counts.max(initial=0)) > HIGHEST or len(layout.slot_node) > np.iinfo(np.int32).max:
        raise ValueError("the trees have more nodes than 31 bits can count")
    leaf_slots = np.flatnonzero(~inner[layout.slot_node])
    leaf_of, leaf_nodes = _number_leaves(layout, leaf_slots)
    slot_key = keys[layout.slot_node]
    slot_key[leaf_slots] = leaf_of
    nodes = _node_words(layout, slot_key, np.where(inner, column_of, len(columns)))
    width, target_of_tree, votes = _votes(forest, layout, leaf_nodes, no_vote)
    trees = np.zeros((len(forest.roots) + PADDING, TREE_ENTRIES), np.int64)
    own = trees[: len(forest.roots)]
    own[:, FIRST_SLOT], own[:, DEPTH], own[:, TARGET] = layout.slot_starts[:-1], layout.depths, target_of_tree
    words, bits = _bit_tables(layout, own, keys, column_of)
    return DecisionTables(columns, cuts, cut_starts, trees, nodes, votes, words, bits, width, len(forest.roots))


def _columns(decisions: _Decisions) -> tuple[Ints, Ints]:
    """The column of each node, and the columns there are."""
    wanted = decisions.feature * 2 + decisions.nan_first
    columns = np.unique(wanted[decisions.inner])
    return np.where(decisions.inner, np.searchsorted(columns, wanted), 0), columns.astype(np.int64)


def _float_decisions(values: Array, below: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """The keys of thresholds; one that is NaN is never met, except by NaN itself."""
    keys = float_keys(values) - below.astype(np.uint32)
    return np.where(np.isnan(values), np.uint32(LOWEST), keys)


def _ranked(decisions: _Decisions, column_of: Ints, columns: int, keys: NDArray[np.uint32]) -> tuple[Array, Ints]:
    """Number the thresholds of each column from 1, into `keys`; they in order, and where those of each column begin.

    A value has the rank 1 + how many thresholds are less than it: it is at most the n-th if its rank is at most n.
    """
    parts, starts = [], [0]
    with np.errstate(over="ignore"):
        met = np.where(decisions.below, np.nextafter(decisions.value, -np.inf), decisions.value)
    never = np.isnan(met) | (decisions.below & (decisions.value == -np.inf))
    for column in range(columns):
        own = np.flatnonzero(decisions.inner & (column_of == column))
        real = own[~never[own]]
        values = np.unique(met[real])
        keys[own] = LOWEST
        keys[real] = np.searchsorted(values, met[real]) + 1
        parts.append(values)
        starts.append(starts[-1] + len(values))
    return (np.concatenate(parts) if parts else np.empty(0)).astype(np.float64), np.array(starts, np.int64)


class _Layout:
    """Slots of all trees."""

    def __init__(self, decisions: _Decisions, roots: Ints) -> None:
        self.decisions = decisions
        inner, first, second = decisions.inner, decisions.first, decisions.second
        trees = len(roots)
        owner = np.full(len(inner), -1, np.int64)  # the tree of a node
        self.depths = np.zeros(trees, np.int64)
        self.levels: list[Ints] = []  # inner nodes, by the first way that leads to them
        self.is_tree = np.ones(trees, np.bool_)  # no node of it has two above it
        level, level_trees = roots, np.arange(trees)
        if len(np.unique(roots)) < trees:
            raise ValueError(_IN_COMMON)
        self._take(owner, level, level_trees)
        placed = np.zeros(len(inner), np.bool_)
        above = np.zeros(len(inner), np.int64)  # the node over each
        depth = 0
        while True:
            at = inner[level]
            level, level_trees = level[at], level_trees[at]
            if not len(level):
                break
            depth += 1
            self.depths[level_trees] = depth
            fresh = level[~placed[level]]
            placed[fresh] = True
            self.levels.append(fresh)
            reached, reached_trees = np.concatenate([first[level], second[level]]), np.tile(level_trees, 2)
            unique, where, times = np.unique(reached, return_index=True, return_counts=True)
            self.is_tree[reached_trees[where[times > 1]]] = False
            is_new = owner[unique] < 0
            above[unique[is_new]] = level[where[is_new] % len(level)]
            level, level_trees = unique, reached_trees[where]
            self.is_tree[level_trees[~is_new]] = False
            self._take(owner, level, level_trees)
        self._assign(owner, above, roots)

    def _assign(self, owner: Ints, above: Ints, roots: Ints) -> None:
        """Give every inner node the slots of its branches: those of a node and of its branches follow each other."""
        decisions, trees = self.decisions, len(roots)
        nodes = np.concatenate(self.levels) if self.levels else np.empty(0, np.int64)
        level = np.repeat(np.arange(len(self.levels)), [len(each) for each in self.levels])
        number = np.zeros(len(decisions.inner), np.int64)
        number[nodes] = np.arange(len(nodes))
        cluster = nodes.copy()
        for distance in range(1, CLUSTER):
            cluster = np.where(level % CLUSTER >= distance, above[cluster], cluster)
        order = np.lexsort((np.arange(len(nodes)), level % CLUSTER, number[cluster], level // CLUSTER, owner[nodes]))
        nodes = nodes[order]
        tree = owner[nodes]
        pairs = np.bincount(tree, minlength=trees)
        self.slot_counts = 1 + 2 * pairs
        self.slot_starts = np.concatenate([[0], np.cumsum(self.slot_counts)])
        self.pair = np.zeros(len(decisions.inner), np.int64)  # the first slot of a node's branches, counted in its tree
        self.pair[nodes] = 1 + 2 * (np.arange(len(nodes)) - np.searchsorted(tree, tree))
        self.slot_node = np.zeros(int(self.slot_starts[-1]), np.int64)
        self.slot_tree = np.repeat(np.arange(trees), self.slot_counts)
        self.slot_node[self.slot_starts[:-1]] = roots
        for side, branch in enumerate((decisions.first, decisions.second)):
            self.slot_node[self.slot_starts[tree] + self.pair[nodes] + side] = branch[nodes]
        self.first_leaves = np.zeros(trees, np.int64)

    @staticmethod
    def _take(owner: Ints, nodes: Ints, trees: Ints) -> None:
        """Each node, given once, belongs to the tree that reaches it: its slots are counted there."""
        if ((owner[nodes] >= 0) & (owner[nodes] != trees)).any():
            raise ValueError(_IN_COMMON)
        owner[nodes] = trees


def _node_words(layout: _Layout, slot_key: NDArray[np.uint32], column_of: Ints) -> NDArray[np.uint64]:
    node = layout.slot_node
    inner = layout.decisions.inner[node]
    own = np.arange(len(node)) - layout.slot_starts[layout.slot_tree]
    target = np.where(inner, layout.pair[node], own).astype(np.uint64)
    key, column = slot_key.astype(np.uint64), column_of[node].astype(np.uint64)
    if int(column.max()) < 1 << COLUMN_BITS and int(layout.slot_counts.max()) <= 1 << SLOT_BITS:
        words: Array = key | column << np.uint64(32) | target << np.uint64(32 + COLUMN_BITS)
        return words[:, None]
    return np.stack([key | target << np.uint64(32), column], axis=1)


def _leaf_counts(layout: _Layout) -> Ints:
    """How many leaves lie below each node; meant for trees only."""
    decisions = layout.decisions
    below = np.where(decisions.inner, 0, 1).astype(np.int64)
    for level in reversed(layout.levels):
        below[level] = below[decisions.first[level]] + below[decisions.second[level]]
    return below


def _leaf_positions(layout: _Layout, below: Ints) -> Ints:
    """The first leaf below each node, counted from left to right in its tree; meant for trees only."""
    decisions = layout.decisions
    position = np.zeros(len(decisions.inner), np.int64)
    for level in layout.levels:
        position[decisions.first[level]] = position[level]
        position[decisions.second[level]] = position[level] + below[decisions.first[level]]
    return position


def _number_leaves(layout: _Layout, leaf_slots: Ints) -> tuple[Ints, Ints]:
    """The number of the leaf in each of these slots, and the node of each leaf: from left to right where a tree is one."""
    node, layout_trees = layout.slot_node, layout.slot_tree[leaf_slots]
    position = _leaf_positions(layout, _leaf_counts(layout))
    counted = np.where(layout.is_tree[layout_trees], position[node[leaf_slots]], leaf_slots)
    order = np.lexsort((counted, layout_trees))
    number = np.empty(len(leaf_slots), np.int64)
    number[order] = np.arange(len(leaf_slots))
    layout.first_leaves = np.searchsorted(layout_trees[order], np.arange(len(layout.first_leaves)))
    return number, node[leaf_slots][order]


def _votes(forest: Forest, layout: _Layout, leaf_nodes: Ints, no_vote: float) -> tuple[int, Ints, Array]:
    """How many targets a leaf votes for, the target of each tree if that is one, and the votes."""
    target, weight = forest.leaf_target[leaf_nodes], forest.leaf_weight[leaf_nodes]
    given = target < forest.targets
    ordered = np.sort(target, axis=1)
    if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < forest.targets)).any():
        raise ValueError("a leaf votes twice for one target")
    trees = len(forest.roots)
    tree_of = np.searchsorted(layout.first_leaves, np.arange(len(leaf_nodes)), "right") - 1
    lowest, highest = np.full(trees, forest.targets, np.int64), np.full(trees, -1, np.int64)
    np.minimum.at(lowest, tree_of, np.where(given, target, forest.targets).min(axis=1))
    np.maximum.at(highest, tree_of, np.where(given, target, -1).max(axis=1))
    rows, positions = np.nonzero(given)
    is_single = bool((highest <= lowest).all())  # each tree votes for one target, or for none at all
    votes = np.full((len(leaf_nodes), 1 if is_single else forest.targets), no_vote, weight.dtype)
    votes[rows, 0 if is_single else target[rows, positions]] = weight[rows, positions]
    return votes.shape[1], np.maximum(highest, 0) if is_single else np.zeros(trees, np.int64), votes


def _bit_tables(layout: _Layout, trees: Ints, keys: NDArray[np.uint32], column_of: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """The words of small trees, and their nodes: each with the leaves that stay possible where its key is exceeded.

    Those are all but the ones to its left. Where they lie in several words, the node stands in the table for each.
    """
    decisions = layout.decisions
    below = _leaf_counts(layout)
    roots = layout.slot_node[layout.slot_starts[:-1]]
    small = layout.is_tree & (below[roots] <= MOST_LEAVES)
    position = _leaf_positions(layout, below)
    inside = layout.slot_node[small[layout.slot_tree] & decisions.inner[layout.slot_node]]
    tree_of = layout.slot_tree[small[layout.slot_tree] & decisions.inner[layout.slot_node]]
    first, end = position[inside], position[inside] + below[decisions.first[inside]]
    times = (end - 1) // WORD_LEAVES - first // WORD_LEAVES + 1
    word = np.repeat(first // WORD_LEAVES, times) + np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    inside, tree_of, first, end = (np.repeat(each, times) for each in (inside, tree_of, first, end))
    word_counts = np.where(small, -(-below[roots] // WORD_LEAVES), 0)
    first_words = np.cumsum(word_counts) - word_counts
    row = first_words[tree_of] + word_counts[tree_of] - 1 - word
    order = np.argsort(row, kind="stable")
    low = (np.maximum(first, word * WORD_LEAVES) - word * WORD_LEAVES).astype(np.uint64)
    high = (np.minimum(end, (word + 1) * WORD_LEAVES) - word * WORD_LEAVES).astype(np.uint64)
    cleared = ((np.uint64(1) << (high - low)) - np.uint64(1)) << low
    bits = np.zeros((len(inside), BIT_ENTRIES), np.uint32)
    bits[:, 0], bits[:, 1], bits[:, 2] = column_of[inside], keys[inside], ~cleared.astype(np.uint32)
    words = np.zeros((int(word_counts.sum()), WORD_ENTRIES), np.int64)
    words[:, FIRST_BIT] = np.searchsorted(row[order], np.arange(len(words)))
    words[:, END_BIT] = np.searchsorted(row[order], np.arange(len(words)), "right")
    tree_of_word = np.repeat(np.arange(len(roots)), word_counts)
    back = first_words[tree_of_word] + word_counts[tree_of_word] - 1 - np.arange(len(words))
    words[:, FIRST_LEAF] = layout.first_leaves[tree_of_word] + back * WORD_LEAVES
    trees[:, FIRST_WORD] = np.where(small, first_words, WALKED)
    trees[:, END_WORD] = np.where(small, first_words + word_counts, WALKED)
    return words, bits[order].view(np.int32)
