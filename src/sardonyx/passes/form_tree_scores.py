"""Ensembles of trees become TreeScores, which has a kernel, and operators that finish its scores.

    y = ai.onnx.ml::TreeEnsembleRegressor(x)              =>   s = sardonyx::TreeScores(x, tables)
        {base_values = [0.5], aggregate_function = SUM}        y = Add(s, 0.5)

    l, p = ai.onnx.ml::TreeEnsembleClassifier(x)          =>   s = sardonyx::TreeScores(x, tables)
        {post_transform = SOFTMAX}                             l = ArgMax(s); p = Softmax(s)

Runs after the portable passes. Refuses: inputs of unknown rank; forests that are faulty (their definition then says why, when
they run) or that the tables cannot hold: leaves that vote twice for one target, nodes shared by two trees; MIN and MAX of votes
that are not finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Union

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ops.ml.ml_decisions import decision_tables
from sardonyx.ops.ml.ml_forest import AGGREGATES, Array, Forest, distinct
from sardonyx.ops.ml.ml_scores import TRANSFORMS, check_transform
from sardonyx.ops.ml.ml_trees import (
    base_values,
    binary_labels,
    classifier_forest,
    ensemble_forest,
    regressor_forest,
    votes_for_one,
)
from sardonyx.ops.ml.tree_scores import COMBINED
from sardonyx.passes.classical_rule import ClassicalRule, ScoreRewriter
from sardonyx.passes.protocol import Reject
from sardonyx.passes.rewriter import dtype_of
from sardonyx.records import dataclass

_OWN: Final = "sardonyx"
_MOST: Final = 1 << 28  # bytes of votes, unless the model has as many
Known = Union[bool, Value]  # whether something holds: known before any row is seen, or a column of booleans


def _scores(g: ScoreRewriter, x: Value, forest: Forest, aggregate: str) -> Value:
    """The node that combines votes. Its input is of the type in which thresholds are compared."""
    dense = forest.leaf_weight.shape[0] * forest.targets * forest.leaf_weight.itemsize
    if dense > max(_MOST, 16 * forest.leaf_weight.nbytes):
        raise ValueError(f"the votes of all leaves for {forest.targets} targets take {dense >> 20} MB")
    tables = decision_tables(forest, COMBINED[aggregate][1])
    wide = dtypes.FLOAT64 if forest.threshold.dtype == np.float64 else dtypes.FLOAT32
    named: dict[str, Array] = {
        "columns": tables.columns,
        "cuts": tables.cuts,
        "cut_starts": tables.cut_starts,
        "trees": tables.trees,
        "nodes": tables.nodes,
        "votes": tables.votes,
        "words": tables.words,
        "bits": tables.bits,
    }
    constants = [g.constant(np.ascontiguousarray(table), name) for name, table in named.items()]
    features = int(forest.feature.max(initial=-1)) + 1
    attrs = {"aggregate": aggregate, "features": features, "targets": forest.targets, "tree_count": tables.tree_count}
    return g.op("TreeScores", g.cast(x, wide), *constants, domain=_OWN, **attrs)


def _input(node: Node) -> Value | Reject:
    x = node.inputs[0]
    if x is None or x.shape is None or len(x.shape) not in (1, 2):
        return Reject("the input is not known to be a matrix")
    return x


def _is_double(x: Value) -> bool:
    return dtype_of(x) is dtypes.FLOAT64


@dataclass(frozen=True)
class FormTreeScores(ClassicalRule):
    """Ensures: no tree ensemble that a kernel could compute."""

    name: ClassVar[str] = "FormTreeScores"
    roots: ClassVar[frozenset[str]] = frozenset(("TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble"))

    def rewrite(self, g: ScoreRewriter, node: Node, attrs: dict[str, Any]) -> Sequence[Value | None] | Reject:
        x = _input(node)
        if isinstance(x, Reject):
            return x
        if node.op_type == "TreeEnsembleClassifier":
            return _classifier(g, x, attrs)
        if node.op_type == "TreeEnsemble":
            if attrs["aggregate_function"] not in range(len(AGGREGATES)) or attrs["post_transform"] not in range(len(TRANSFORMS)):
                return Reject("aggregate_function or post_transform is not known")
            aggregate, name = AGGREGATES[attrs["aggregate_function"]], TRANSFORMS[attrs["post_transform"]]
            forest, result = ensemble_forest(attrs, _is_double(x)), dtype_of(x)
        else:
            aggregate, name = attrs["aggregate_function"], check_transform(attrs["post_transform"])
            if aggregate not in AGGREGATES:
                return Reject(f"aggregate_function is {aggregate!r}")
            forest, result = regressor_forest(attrs, _is_double(x)), dtypes.FLOAT32
        assert result is not None
        scores = _aggregated(g, x, forest, aggregate)
        if isinstance(scores, Reject):
            return scores
        base = base_values(attrs, forest.threshold.dtype) if node.op_type == "TreeEnsembleRegressor" else np.empty(0)
        if len(base) == forest.targets and base.any():
            scores = g.op("Add", scores, g.row(scores, base))
        return [g.cast(g.transformed(scores, name, forest.targets), result)]


def _aggregated(g: ScoreRewriter, x: Value, forest: Forest, aggregate: str) -> Value | Reject:
    if aggregate in ("SUM", "AVERAGE"):
        scores = _scores(g, x, forest, "SUM")
        return g.op("Div", scores, g.scalar(scores, len(forest.roots))) if aggregate == "AVERAGE" else scores
    if not np.isfinite(forest.leaf_weight).all():
        return Reject(f"{aggregate} of votes that are not finite")
    scores = _scores(g, x, forest, aggregate)
    if all(_certain(forest)):
        return scores
    return g.op("Where", g.op("IsInf", scores), g.scalar(scores, 0.0), scores)


def _certain(forest: Forest) -> list[bool | None]:
    """For each target whether every row gets a vote for it, or none does; None if that depends on the row."""
    tree_of = np.full(len(forest.feature), -1, np.int64)
    level = forest.roots
    tree_of[level] = np.arange(len(level))
    while len(level := level[forest.feature[level] >= 0]):
        for branch in (forest.when_true, forest.when_false):
            tree_of[branch[level]] = tree_of[level]
        level = distinct(np.concatenate([forest.when_true[level], forest.when_false[level]]), len(forest.feature))
    leaves = np.flatnonzero((forest.feature < 0) & (tree_of >= 0))
    target, tree = forest.leaf_target[leaves], tree_of[leaves]
    votes = np.zeros((len(forest.roots), forest.targets + 1), np.int64)
    np.add.at(votes, (tree[:, None], target), 1)
    all_leaves = np.bincount(tree, minlength=len(forest.roots))
    always, ever = np.asarray((votes == all_leaves[:, None]).any(axis=0)), np.asarray(votes.any(axis=0))
    return [True if every else None if some else False for every, some in zip(always[:-1].tolist(), ever[:-1].tolist())]


def _classifier(g: ScoreRewriter, x: Value, attrs: dict[str, Any]) -> Sequence[Value | None] | Reject:
    name = check_transform(attrs["post_transform"])
    strings, numbers = attrs.get("classlabels_strings"), attrs.get("classlabels_int64s")
    labels = np.array(strings, object) if strings else np.array(numbers or (), np.int64)
    if not len(labels):
        return Reject("there are no class labels")
    forest = classifier_forest(attrs, _is_double(x))
    base = base_values(attrs, forest.threshold.dtype)
    if len(base) > max(len(labels), 2):
        return Reject("there are more base values than classes")
    one_class = votes_for_one(attrs)
    if len(labels) > 2:
        best, scores = _many(g, x, forest, base, name)
    elif len(labels) == 1:
        best, scores = _one(g, x, forest, base, name)
    else:
        best, scores = _two(g, x, forest, base, name, one_class)
    return [g.labels(best, binary_labels(labels, one_class).tolist()), g.cast(scores, dtypes.FLOAT32)]


def _many(g: ScoreRewriter, x: Value, forest: Forest, base: Array, name: str) -> tuple[Value, Value]:
    """More than two classes: the highest score among those that have votes."""
    classes = forest.targets
    certain = all(_certain(forest)[len(base) :])
    # Where all votes are positive, a class without a vote has the score 0, which is not the highest.
    if certain or (not len(base) and bool((forest.leaf_weight[forest.leaf_target < classes] > 0).all())):
        scores = _scores(g, x, forest, "SUM")
        voted: Value | None = None
    else:
        both = _scores(g, x, _with_counts(forest), "SUM")
        scores, counts = g.columns(both, 0, classes), g.columns(both, classes, 2 * classes)
        based = g.row(counts, np.arange(classes) < len(base))
        voted = g.op("Greater", g.op("Add", counts, based), g.scalar(counts, 0.0))
    if len(base):
        scores = g.op("Add", scores, g.row(scores, np.concatenate([base, np.zeros(classes - len(base), base.dtype)])))
    deciding = scores if voted is None else g.op("Where", voted, scores, g.scalar(scores, -np.inf))
    return g.best(deciding), g.transformed(scores, name, classes)


def _with_counts(forest: Forest) -> Forest:
    """A forest with twice the targets: the second half counts the votes for the first."""
    given = forest.leaf_target < forest.targets
    counted = np.where(given, forest.leaf_target + forest.targets, 2 * forest.targets)
    target = np.concatenate([np.where(given, forest.leaf_target, 2 * forest.targets), counted], axis=1)
    weight = np.concatenate([forest.leaf_weight, given.astype(forest.leaf_weight.dtype)], axis=1)
    return replace(forest, targets=2 * forest.targets, leaf_target=target, leaf_weight=weight)


def _one(g: ScoreRewriter, x: Value, forest: Forest, base: Array, name: str) -> tuple[Value, Value]:
    """A single class."""
    total = _scores(g, x, forest, "SUM")
    if len(base) in (1, 2):
        total = g.op("Add", total, g.scalar(total, base[-1]))
    best = g.is_above(total, 0.0)
    if len(base) == 2:
        both = g.transformed(g.side_by_side(g.op("Neg", total), total), name, 2)
        return best, g.columns(both, 0, 1)
    return best, g.transformed(total, name, 1)


def _two(g: ScoreRewriter, x: Value, forest: Forest, base: Array, name: str, one_class: bool) -> tuple[Value, Value]:
    """Two classes; the cases are those of `ml_trees`."""
    flags: list[Known] = []
    known = _certain(forest)
    if False in known:  # one score is enough
        only = known.index(False) ^ 1
        single = replace(forest, targets=1, leaf_target=np.where(forest.leaf_target == only, 0, 1))
        voted = _scores(g, x, single, "SUM")
        none = g.op("Mul", voted, g.scalar(voted, 0.0))
        first, second = (voted, none) if only == 0 else (none, voted)
        flags = [bool(known[0]), bool(known[1])]
        if known[only] is None:
            counts = _scores(g, x, replace(single, leaf_weight=np.ones_like(forest.leaf_weight)), "SUM")
            flags[only] = g.op("Greater", counts, g.scalar(counts, 0.0))
    elif None in known:
        both = _scores(g, x, _with_counts(forest), "SUM")
        first, second = g.columns(both, 0, 1), g.columns(both, 1, 2)
        for target in (0, 1):
            counts = g.columns(both, 2 + target, 3 + target)
            flags.append(g.op("Greater", counts, g.scalar(counts, 0.0)))
    else:
        both = _scores(g, x, forest, "SUM")
        first, second, flags = g.columns(both, 0, 1), g.columns(both, 1, 2), [True, True]
    has_first, has_second = flags
    zero = g.scalar(first, 0.0)

    def where(flag: Known, yes: Value, no: Value) -> Value:
        if isinstance(flag, bool):
            return yes if flag else no
        return g.op("Where", flag, yes, no)

    def column(value: Value) -> Value:
        """A column, also if the value is one number."""
        return g.op("Add", value, g.op("Mul", first, zero)) if value is zero else value

    one_sign = one_class and forest.all_positive
    if len(base) == 2:
        raised = g.op("Add", first, g.scalar(first, base[1]))
        lowered = where(has_second, g.op("Neg", raised), g.op("Add", first, g.scalar(first, base[0])))
        second = where(has_second, raised, zero)
        first_given = where(has_first, lowered, zero)
        scores = g.transformed(g.side_by_side(column(first_given), column(second)), name, 2)
        deciding = where(has_second, second, first_given)
    else:
        summed = g.op("Add", first, g.scalar(first, base[0])) if len(base) == 1 else first
        if len(base) == 1 and not one_class and name != "PROBIT":
            one_score = g.side_by_side(summed, column(zero)) if has_second is not True else None
        else:
            one_score = g.two_columns(summed, name, one_sign=one_sign) if has_second is not True else None
        two_scores = g.transformed(g.side_by_side(summed, second), name, 2) if has_second is not False else None
        if one_score is None or two_scores is None:
            found = two_scores if one_score is None else one_score
            assert found is not None
            scores = found
        else:
            scores = where(has_second, two_scores, one_score)
        deciding = where(has_second, second, where(has_first, summed, zero))
    return g.is_above(column(deciding), 0.5 if one_sign else 0.0), scores
