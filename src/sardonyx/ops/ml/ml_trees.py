"""Decision trees of ai.onnx.ml: TreeEnsembleClassifier, TreeEnsembleRegressor and, from version 5, TreeEnsemble.

The trees themselves are in `ml_forest`; here are the three ways to write them down, and what becomes of the sums. Where ONNX is
silent (two classes with one score, base values of two classes) the results are ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import EvalContext, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.ml.ml_forest import AGGREGATES, MEMBER, MODES, Forest, build_forest
from sardonyx.ops.ml.ml_scores import (
    DOMAIN,
    TRANSFORMS,
    check_transform,
    label_type,
    labels_of,
    row_count,
    rows_of,
    transform,
    two_columns,
)

Array = NDArray[Any]
Ints = Sequence[int]
Floats = Sequence[float]
_NODES: Final = (
    "nodes_falsenodeids", "nodes_featureids", "nodes_missing_value_tracks_true", "nodes_modes", "nodes_nodeids", "nodes_treeids",
    "nodes_truenodeids", "nodes_values", "nodes_values_as_tensor", "base_values", "base_values_as_tensor", "post_transform",
    "ctx",
)  # fmt: skip
_REGRESSOR: Final = (
    *_NODES, "aggregate_function", "n_targets", "target_ids", "target_nodeids", "target_treeids", "target_weights",
    "target_weights_as_tensor",
)  # fmt: skip
_CLASSIFIER: Final = (
    *_NODES, "class_ids", "class_nodeids", "class_treeids", "class_weights", "class_weights_as_tensor", "classlabels_int64s",
    "classlabels_strings",
)  # fmt: skip
_ENSEMBLE: Final = (
    "aggregate_function", "leaf_targetids", "leaf_weights", "membership_values", "n_targets", "nodes_falseleafs",
    "nodes_falsenodeids", "nodes_featureids", "nodes_missing_value_tracks_true", "nodes_modes", "nodes_splits",
    "nodes_trueleafs", "nodes_truenodeids", "post_transform", "tree_roots", "ctx",
)  # fmt: skip
_SPARSEST: Final = 8  # entries for a node up to which a table of all trees and numbers is made
Attributes = Mapping[str, Any]  # of a node, by name; those it does not have may be missing


def _values(floats: Floats | None, tensor: Array | None, dtype: Any) -> Array:
    """An attribute that may be given as floats or as a tensor."""
    return np.asarray(floats or (), np.float32).astype(dtype) if tensor is None else tensor.reshape(-1).astype(dtype)


def compute_type(attrs: Attributes, is_double: bool) -> Any:
    """float64 if the input or an attribute is, else float32."""
    arrays = [value for value in attrs.values() if isinstance(value, np.ndarray)]
    return np.float64 if is_double or any(array.dtype == np.float64 for array in arrays) else np.float32


def _same_lengths(lists: dict[str, Any]) -> None:
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"these attributes must have one length: {listed}")


class _Numbered:
    """Nodes that are known by their tree and their number in it."""

    def __init__(self, trees: Array, nodes: Array) -> None:
        self._trees: Array = np.unique(trees)
        self._nodes: Array = np.unique(nodes)
        # One number for a tree and a node in it, of the rank of each among those there are.
        keys = _ranks(self._trees, trees)[0] * len(self._nodes) + _ranks(self._nodes, nodes)[0]
        self._size = len(self._trees) * len(self._nodes)
        self._table: NDArray[np.int64] | None = None  # where a key's node stands; -1: there is none
        if self._size <= _SPARSEST * len(keys):
            self._table = np.full(self._size, -1, np.int64)
            self._table[keys] = np.arange(len(keys))
            unique = np.count_nonzero(self._table >= 0)
        else:
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]
            unique = len(keys) - np.count_nonzero(self._keys[1:] == self._keys[:-1])
        if unique < len(keys):
            raise ValueError("two nodes of a tree have the same number")

    def positions(self, trees: Array, nodes: Array) -> NDArray[np.int64]:
        """Where nodes stand; -1 for those that do not exist."""
        if not self._size:
            return np.full(len(nodes), -1, np.int64)
        (tree, has_tree), (node, has_node) = _ranks(self._trees, trees), _ranks(self._nodes, nodes)
        key = tree * len(self._nodes) + node
        if self._table is not None:
            return np.where(has_tree & has_node, self._table[key], -1)
        found = np.minimum(np.searchsorted(self._keys, key), len(self._keys) - 1)
        return np.where(has_tree & has_node & (self._keys[found] == key), self._order[found], -1)


def _ranks(known: Array, wanted: Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where numbers stand among sorted ones, and whether they do."""
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    first = known[0]
    if int(known[-1]) - int(first) == len(known) - 1:  # without gaps
        exists = (wanted >= first) & (wanted <= known[-1])
        return np.where(exists, wanted - first, 0), exists
    rank = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return rank, known[rank] == wanted


def _forest_by_ids(attrs: Attributes, votes: str, dtype: Any, targets: int) -> Forest:
    """A forest whose nodes have a tree and a number in it, as versions 1 and 3 write it. `votes`: what its votes begin with."""
    ids = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    thresholds = _values(attrs.get("nodes_values"), attrs.get("nodes_values_as_tensor"), dtype)
    modes = attrs.get("nodes_modes") or ()
    named: dict[str, Any] = {name: np.array(attrs.get(name) or (), np.int64) for name in ids}
    _same_lengths(named | {"nodes_modes": modes, "nodes_values": thresholds})
    cast = {name: np.array(attrs.get(f"{votes}_{name}") or (), np.int64) for name in ("treeids", "nodeids", "ids")}
    weights = _values(attrs.get(f"{votes}_weights"), attrs.get(f"{votes}_weights_as_tensor"), dtype)
    _same_lengths(cast | {"weights": weights})
    trees, nodes, features, to_true, to_false = (named[name] for name in ids)
    kinds = {"LEAF": -1} | {mode: number for number, mode in enumerate(MODES[:MEMBER])}
    unknown = sorted({mode for mode in set(modes) if mode not in kinds})
    if unknown:
        raise ValueError(f"nodes_modes has {unknown[0]!r}; expected LEAF, {', '.join(MODES[:MEMBER])}")
    mode = np.array([kinds[name] for name in modes], np.int8)
    leaf = mode < 0
    if (features[~leaf] < 0).any():
        raise ValueError(f"a node looks at feature {features[~leaf].min()}; features are numbered from 0")
    numbered = _Numbered(trees, nodes)
    voters = numbered.positions(cast["treeids"], cast["nodeids"])
    if (voters < 0).any():
        lost = int(np.flatnonzero(voters < 0)[0])
        at_tree, at_node = cast["treeids"][lost], cast["nodeids"][lost]
        raise ValueError(f"a weight belongs to node {at_node} of tree {at_tree}, which does not exist")
    when_true, when_false = (np.where(leaf, 0, numbered.positions(trees, numbers)) for numbers in (to_true, to_false))
    starts = np.flatnonzero(np.concatenate([[True], trees[1:] != trees[:-1]])) if len(trees) else np.empty(0, np.int64)
    return build_forest(
        feature=np.where(leaf, -1, features),
        threshold=thresholds,
        mode=np.maximum(mode, 0),
        when_true=when_true,
        when_false=when_false,
        missing_true=attrs.get("nodes_missing_value_tracks_true"),
        member_sets=(),
        roots=starts,
        targets=targets,
        vote_node=voters,
        vote_target=cast["ids"],
        vote_weight=weights.astype(dtype),
    )


def regressor_forest(attrs: Attributes, is_double: bool) -> Forest:
    """The trees of a TreeEnsembleRegressor whose input is float64, or something smaller."""
    targets = attrs.get("n_targets")
    return _forest_by_ids(attrs, "target", compute_type(attrs, is_double), 1 if targets is None else targets)


def classifier_forest(attrs: Attributes, is_double: bool) -> Forest:
    """The trees of a TreeEnsembleClassifier."""
    labels = attrs.get("classlabels_strings") or attrs.get("classlabels_int64s") or ()
    return _forest_by_ids(attrs, "class", compute_type(attrs, is_double), len(labels))


def base_values(attrs: Attributes, dtype: Any) -> Array:
    """What is added to the votes."""
    return _values(attrs.get("base_values"), attrs.get("base_values_as_tensor"), dtype)


def votes_for_one(attrs: Attributes) -> bool:
    """Whether all leaves of a classifier vote for the same class."""
    return len(set(attrs.get("class_ids") or ())) == 1


def _regression(scores: Array, base: Array, post_transform: str) -> Array:
    """The scores of targets with their base values; a single target knows no transform but PROBIT."""
    if len(base) == scores.shape[1]:
        scores = scores + base
    return transform(scores.astype(np.float64 if scores.dtype == np.float64 else np.float32), post_transform)


def _tree_ensemble_regressor(x: Array, **given: Any) -> Array:
    ctx: EvalContext = given.pop("ctx")
    name = check_transform(given["post_transform"])
    aggregate = given["aggregate_function"]
    if aggregate not in AGGREGATES:
        raise ValueError(f"aggregate_function is {aggregate!r}; expected {', '.join(AGGREGATES)}")
    if "forest" not in ctx.state:
        ctx.state["forest"] = regressor_forest(given, x.dtype == np.float64)
    forest: Forest = ctx.state["forest"]
    scores, _ = forest.votes(rows_of(x), aggregate)
    return _regression(scores, base_values(given, scores.dtype), name).astype(np.float32)


def _infer_regressor(ctx: InferContext) -> InferResult:
    return (row_count(ctx), 1 if ctx.attr("n_targets") is None else ctx.attr("n_targets"))


op("TreeEnsembleRegressor", domain=DOMAIN, eval=_tree_ensemble_regressor, infer=_infer_regressor, keywords=_REGRESSOR)


def _classify(
    scores: Array, voted: NDArray[np.bool_], base: Array, name: str, one_class: bool, all_positive: bool
) -> tuple[NDArray[np.intp], Array]:
    """The position of the best class of each row, and the scores as they are given out."""
    if len(base) > max(scores.shape[1], 2):
        raise ValueError(f"there are {len(base)} base values for {scores.shape[1]} classes")
    if scores.shape[1] > 2:
        scores, voted = scores.copy(), voted.copy()
        scores[:, : len(base)] += base
        voted[:, : len(base)] = True
        best = np.where(voted, scores, -np.inf).argmax(axis=1)
        return best, transform(scores, name)
    if scores.shape[1] == 1:
        total = scores + (base[-1] if len(base) in (1, 2) else 0)
        given_out = transform(np.concatenate([-total, total], axis=1), name)[:, :1] if len(base) == 2 else transform(total, name)
        return (total[:, 0] > 0).astype(np.intp), given_out
    return _classify_two(scores, voted, base, name, one_class, all_positive)


def _classify_two(
    scores: Array, voted: NDArray[np.bool_], base: Array, name: str, one_class: bool, all_positive: bool
) -> tuple[NDArray[np.intp], Array]:
    """Two classes. `one_class`: all leaves vote for the same one, whose score then decides.

    A row without a vote for the second class has one score, that of the first column, which speaks for the second class.
    """
    first, second = scores[:, 0], scores[:, 1]
    has_second = voted[:, 1]
    if len(base) == 2:
        raised = first + base[1]
        first, second = np.where(has_second, -raised, first + base[0]), np.where(has_second, raised, 0)
        given_out = transform(np.stack([np.where(voted[:, 0], first, 0), second], axis=1), name)
    else:
        first = first + base[0] if len(base) == 1 else first
        one_score = two_columns(first, name, one_sign=one_class and all_positive)
        if len(base) == 1 and not one_class and name != "PROBIT":
            one_score = np.stack([first, np.zeros_like(first)], axis=1)
        both = transform(np.stack([first, second], axis=1), name)
        given_out = np.where(has_second[:, None], both, one_score) if len(base) < 2 else both
    deciding = np.where(has_second, second, np.where(voted[:, 0], first, 0))
    return (deciding > (0.5 if one_class and all_positive else 0)).astype(np.intp), given_out


def _tree_ensemble_classifier(x: Array, **given: Any) -> tuple[Array, Array]:
    ctx: EvalContext = given.pop("ctx")
    name = check_transform(given["post_transform"])
    labels = labels_of(given["classlabels_int64s"], given["classlabels_strings"])
    if not len(labels):
        raise ValueError("the model has no class labels: set classlabels_int64s or classlabels_strings")
    if "forest" not in ctx.state:
        ctx.state["forest"] = classifier_forest(given, x.dtype == np.float64)
    forest: Forest = ctx.state["forest"]
    scores, voted = forest.votes(rows_of(x))
    one_class = votes_for_one(given)
    best, given_out = _classify(scores, voted, base_values(given, scores.dtype), name, one_class, forest.all_positive)
    return binary_labels(labels, one_class)[best], given_out.astype(np.float32)


def binary_labels(labels: Array, one_class: bool) -> Array:
    """The labels as ONNX Runtime gives them out: 0 and 1 for two classes that both have votes, and for a single class.

    (For a single class of strings it reads behind its labels; here that has its label whatever the score is.)
    """
    if labels.dtype == object:
        return labels.repeat(2) if len(labels) == 1 else labels
    return np.array([0, 1], np.int64) if len(labels) == 1 or (len(labels) == 2 and not one_class) else labels


def _infer_classifier(ctx: InferContext) -> InferResult:
    rows = row_count(ctx)
    count = len(ctx.attr("classlabels_strings") or ctx.attr("classlabels_int64s") or ())
    return [label_type(ctx, "classlabels_strings", rows), TensorType(dtypes.FLOAT32, (rows, count))]


op("TreeEnsembleClassifier", domain=DOMAIN, eval=_tree_ensemble_classifier, infer=_infer_classifier, keywords=_CLASSIFIER)


def _member_sets(modes: Array, membership_values: Array | None) -> list[Array]:
    """The values of each BRANCH_MEMBER node; NaN stands between two sets."""
    count = int((modes == MEMBER).sum())
    flat = np.empty(0) if membership_values is None else membership_values.reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    sets = [part[~np.isnan(part)] for part in np.split(flat, ends)] if len(flat) else []
    while len(sets) > count and not len(sets[-1]):
        sets.pop()
    return sets


def _tree_ensemble(x: Array, **given: Any) -> Array:
    ctx: EvalContext = given.pop("ctx")
    aggregate, post_transform = given["aggregate_function"], given["post_transform"]
    if not 0 <= aggregate < len(AGGREGATES):
        raise ValueError(f"aggregate_function is {aggregate}; expected 0 to {len(AGGREGATES) - 1}")
    if not 0 <= post_transform < len(TRANSFORMS):
        raise ValueError(f"post_transform is {post_transform}; expected 0 to {len(TRANSFORMS) - 1}")
    if "forest" not in ctx.state:
        ctx.state["forest"] = ensemble_forest(given, x.dtype == np.float64)
    forest: Forest = ctx.state["forest"]
    scores, _ = forest.votes(rows_of(x), AGGREGATES[aggregate])
    with np.errstate(over="ignore"):
        return _regression(scores, scores[:0, 0], TRANSFORMS[post_transform]).astype(x.dtype)


def ensemble_forest(attrs: Attributes, is_double: bool) -> Forest:
    """The trees of a TreeEnsemble: branches lead to a node or, where a flag says so, to a leaf, numbered after the nodes here."""
    modes, splits = attrs["nodes_modes"].reshape(-1), attrs["nodes_splits"].reshape(-1)
    features = np.array(attrs["nodes_featureids"], np.int64)
    to_true, to_false = (np.array(attrs[f"nodes_{side}nodeids"], np.int64) for side in ("true", "false"))
    true_is_leaf, false_is_leaf = (np.array(attrs[f"nodes_{side}leafs"], np.int64) for side in ("true", "false"))
    _same_lengths(
        {"nodes_modes": modes, "nodes_featureids": features, "nodes_splits": splits}
        | {"nodes_truenodeids": to_true, "nodes_trueleafs": true_is_leaf}
        | {"nodes_falsenodeids": to_false, "nodes_falseleafs": false_is_leaf}
    )
    target_ids, weights = np.array(attrs["leaf_targetids"], np.int64), attrs["leaf_weights"].reshape(-1)
    _same_lengths({"leaf_targetids": target_ids, "leaf_weights": weights})
    if len(modes) and int(modes.max()) > MEMBER:
        raise ValueError(f"nodes_modes has {int(modes.max())}; expected 0 to {MEMBER}")
    if (features < 0).any():
        raise ValueError(f"a node looks at feature {features.min()}; features are numbered from 0")
    inner, at_leaves = len(modes), len(target_ids)
    roots = np.array(attrs["tree_roots"], np.int64)
    if ((roots < 0) | (roots >= inner)).any():
        raise ValueError(f"tree_roots is {roots.tolist()}; expected numbers of nodes, 0 to {inner - 1}")
    padding, dtype = np.zeros(at_leaves, np.int64), compute_type(attrs, is_double)
    targets = attrs.get("n_targets")
    return build_forest(
        feature=np.concatenate([features, padding - 1]),
        threshold=np.concatenate([splits, padding]).astype(dtype),
        mode=np.concatenate([modes, padding]).astype(np.int8),
        when_true=np.concatenate([np.where(true_is_leaf != 0, to_true + inner, to_true), padding]),
        when_false=np.concatenate([np.where(false_is_leaf != 0, to_false + inner, to_false), padding]),
        missing_true=attrs.get("nodes_missing_value_tracks_true"),
        member_sets=_member_sets(modes, attrs.get("membership_values")),
        roots=roots,
        targets=1 if targets is None else targets,
        vote_node=np.arange(inner, inner + at_leaves),
        vote_target=target_ids,
        vote_weight=weights.astype(dtype),
    )


op("TreeEnsemble", domain=DOMAIN, since=5, eval=_tree_ensemble, infer=_infer_regressor, keywords=_ENSEMBLE)
