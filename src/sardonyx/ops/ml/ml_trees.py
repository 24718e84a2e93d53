"""Decision trees of ai.onnx.ml: TreeEnsembleClassifier, TreeEnsembleRegressor and, from version 5, TreeEnsemble.

The trees themselves are in `ml_forest`; here are the three ways to write them down, and what becomes of the sums. Where ONNX is
silent (two classes with one score, base values of two classes) the results are ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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


def _values(floats: Floats | None, tensor: Array | None, dtype: Any) -> Array:
    """An attribute that may be given as floats or as a tensor."""
    return np.asarray(floats or (), np.float32).astype(dtype) if tensor is None else tensor.reshape(-1).astype(dtype)


def _compute_type(x: Array, *tensors: Array | None) -> Any:
    """float64 if the input or an attribute is, else float32."""
    return np.float64 if any(array is not None and array.dtype == np.float64 for array in (x, *tensors)) else np.float32


def _same_lengths(lists: dict[str, Any]) -> None:
    lengths = {name: len(value) for name, value in lists.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"these attributes must have one length: {listed}")


def _feature(number: int) -> int:
    if number < 0:
        raise ValueError(f"a node looks at feature {number}; features are numbered from 0")
    return number


def _forest_by_ids(
    *,
    dtype: Any,
    targets: int,
    falsenodeids: Ints | None,
    featureids: Ints | None,
    missing: Ints | None,
    modes: Sequence[str] | None,
    nodeids: Ints | None,
    treeids: Ints | None,
    truenodeids: Ints | None,
    thresholds: Array,
    vote_trees: Ints | None,
    vote_nodes: Ints | None,
    vote_targets: Ints | None,
    vote_weights: Array,
) -> Forest:
    """A forest whose nodes have a tree and a number in it, as versions 1 and 3 write it."""
    modes, trees, nodes = modes or (), treeids or (), nodeids or ()
    named: dict[str, Any] = {
        "nodes_treeids": trees,
        "nodes_nodeids": nodes,
        "nodes_modes": modes,
        "nodes_featureids": featureids or (),
    }
    named |= {"nodes_truenodeids": truenodeids or (), "nodes_falsenodeids": falsenodeids or (), "nodes_values": thresholds}
    _same_lengths(named)
    _same_lengths({"treeids": vote_trees or (), "nodeids": vote_nodes or (), "ids": vote_targets or (), "weights": vote_weights})
    position_of = {key: position for position, key in enumerate(zip(trees, nodes, strict=True))}
    if len(position_of) < len(modes):
        raise ValueError("two nodes of a tree have the same number")
    unknown = sorted({mode for mode in modes if mode not in MODES[:MEMBER] and mode != "LEAF"})
    if unknown:
        raise ValueError(f"nodes_modes has {unknown[0]!r}; expected LEAF, {', '.join(MODES[:MEMBER])}")
    leaf = [mode == "LEAF" for mode in modes]

    def children(ids: Ints | None) -> NDArray[np.int64]:
        keys = zip(trees, ids or (), strict=True)
        return np.array([0 if at_leaf else position_of.get(key, -1) for at_leaf, key in zip(leaf, keys, strict=True)], np.int64)

    voters = [position_of.get(key, -1) for key in zip(vote_trees or (), vote_nodes or (), strict=True)]
    if -1 in voters:
        missing_node = (vote_trees or ())[voters.index(-1)], (vote_nodes or ())[voters.index(-1)]
        raise ValueError(f"a weight belongs to node {missing_node[1]} of tree {missing_node[0]}, which does not exist")
    return build_forest(
        feature=[-1 if at_leaf else _feature(feature) for at_leaf, feature in zip(leaf, featureids or (), strict=True)],
        threshold=thresholds,
        mode=[0 if at_leaf else MODES.index(mode) for at_leaf, mode in zip(leaf, modes, strict=True)],
        when_true=children(truenodeids),
        when_false=children(falsenodeids),
        missing_true=missing,
        member_sets=(),
        roots=[position for position, tree in enumerate(trees) if position == 0 or tree != trees[position - 1]],
        targets=targets,
        vote_node=np.array(voters, np.int64),
        vote_target=np.array(vote_targets or (), np.int64),
        vote_weight=vote_weights.astype(dtype),
    )


def _regression(scores: Array, base: Array, post_transform: str) -> Array:
    """The scores of targets with their base values; a single target knows no transform but PROBIT."""
    if len(base) == scores.shape[1]:
        scores = scores + base
    return transform(scores.astype(np.float64 if scores.dtype == np.float64 else np.float32), post_transform)


def _tree_ensemble_regressor(
    x: Array,
    *,
    aggregate_function: str,
    base_values: Floats | None,
    base_values_as_tensor: Array | None,
    n_targets: int | None,
    nodes_falsenodeids: Ints | None,
    nodes_featureids: Ints | None,
    nodes_missing_value_tracks_true: Ints | None,
    nodes_modes: Sequence[str] | None,
    nodes_nodeids: Ints | None,
    nodes_treeids: Ints | None,
    nodes_truenodeids: Ints | None,
    nodes_values: Floats | None,
    nodes_values_as_tensor: Array | None,
    post_transform: str,
    target_ids: Ints | None,
    target_nodeids: Ints | None,
    target_treeids: Ints | None,
    target_weights: Floats | None,
    target_weights_as_tensor: Array | None,
    ctx: EvalContext,
) -> Array:
    name = check_transform(post_transform)
    if aggregate_function not in AGGREGATES:
        raise ValueError(f"aggregate_function is {aggregate_function!r}; expected {', '.join(AGGREGATES)}")
    dtype = _compute_type(x, base_values_as_tensor, nodes_values_as_tensor, target_weights_as_tensor)
    if "forest" not in ctx.state:
        ctx.state["forest"] = _forest_by_ids(
            dtype=dtype,
            targets=1 if n_targets is None else n_targets,
            falsenodeids=nodes_falsenodeids,
            featureids=nodes_featureids,
            missing=nodes_missing_value_tracks_true,
            modes=nodes_modes,
            nodeids=nodes_nodeids,
            treeids=nodes_treeids,
            truenodeids=nodes_truenodeids,
            thresholds=_values(nodes_values, nodes_values_as_tensor, dtype),
            vote_trees=target_treeids,
            vote_nodes=target_nodeids,
            vote_targets=target_ids,
            vote_weights=_values(target_weights, target_weights_as_tensor, dtype),
        )
    forest: Forest = ctx.state["forest"]
    scores, _ = forest.votes(rows_of(x), aggregate_function)
    return _regression(scores, _values(base_values, base_values_as_tensor, dtype), name).astype(np.float32)


def _infer_regressor(ctx: InferContext) -> InferResult:
    return (row_count(ctx), 1 if ctx.attr("n_targets") is None else ctx.attr("n_targets"))


op("TreeEnsembleRegressor", domain=DOMAIN, eval=_tree_ensemble_regressor, infer=_infer_regressor)


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


def _tree_ensemble_classifier(
    x: Array,
    *,
    base_values: Floats | None,
    base_values_as_tensor: Array | None,
    class_ids: Ints | None,
    class_nodeids: Ints | None,
    class_treeids: Ints | None,
    class_weights: Floats | None,
    class_weights_as_tensor: Array | None,
    classlabels_int64s: Ints | None,
    classlabels_strings: Sequence[str] | None,
    nodes_falsenodeids: Ints | None,
    nodes_featureids: Ints | None,
    nodes_missing_value_tracks_true: Ints | None,
    nodes_modes: Sequence[str] | None,
    nodes_nodeids: Ints | None,
    nodes_treeids: Ints | None,
    nodes_truenodeids: Ints | None,
    nodes_values: Floats | None,
    nodes_values_as_tensor: Array | None,
    post_transform: str,
    ctx: EvalContext,
) -> tuple[Array, Array]:
    name = check_transform(post_transform)
    labels = labels_of(classlabels_int64s, classlabels_strings)
    if not len(labels):
        raise ValueError("the model has no class labels: set classlabels_int64s or classlabels_strings")
    dtype = _compute_type(x, base_values_as_tensor, nodes_values_as_tensor, class_weights_as_tensor)
    if "forest" not in ctx.state:
        weights = _values(class_weights, class_weights_as_tensor, dtype)
        forest = _forest_by_ids(
            dtype=dtype,
            targets=len(labels),
            falsenodeids=nodes_falsenodeids,
            featureids=nodes_featureids,
            missing=nodes_missing_value_tracks_true,
            modes=nodes_modes,
            nodeids=nodes_nodeids,
            treeids=nodes_treeids,
            truenodeids=nodes_truenodeids,
            thresholds=_values(nodes_values, nodes_values_as_tensor, dtype),
            vote_trees=class_treeids,
            vote_nodes=class_nodeids,
            vote_targets=class_ids,
            vote_weights=weights,
        )
        ctx.state["forest"] = forest, len(set(class_ids or ())) == 1, bool((weights >= 0).all())
    forest, one_class, all_positive = ctx.state["forest"]
    scores, voted = forest.votes(rows_of(x))
    base = _values(base_values, base_values_as_tensor, dtype)
    best, given_out = _classify(scores, voted, base, name, one_class, all_positive)
    return _binary_labels(labels, one_class)[best], given_out.astype(np.float32)


def _binary_labels(labels: Array, one_class: bool) -> Array:
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


op("TreeEnsembleClassifier", domain=DOMAIN, eval=_tree_ensemble_classifier, infer=_infer_classifier)


def _member_sets(modes: Array, membership_values: Array | None) -> list[Array]:
    """The values of each BRANCH_MEMBER node; NaN stands between two sets."""
    count = int((modes == MEMBER).sum())
    flat = np.empty(0) if membership_values is None else membership_values.reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    sets = [part[~np.isnan(part)] for part in np.split(flat, ends)] if len(flat) else []
    while len(sets) > count and not len(sets[-1]):
        sets.pop()
    return sets


def _tree_ensemble(
    x: Array,
    *,
    aggregate_function: int,
    leaf_targetids: Ints,
    leaf_weights: Array,
    membership_values: Array | None,
    n_targets: int | None,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_missing_value_tracks_true: Ints | None,
    nodes_modes: Array,
    nodes_splits: Array,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int,
    tree_roots: Ints,
    ctx: EvalContext,
) -> Array:
    if not 0 <= aggregate_function < len(AGGREGATES):
        raise ValueError(f"aggregate_function is {aggregate_function}; expected 0 to {len(AGGREGATES) - 1}")
    if not 0 <= post_transform < len(TRANSFORMS):
        raise ValueError(f"post_transform is {post_transform}; expected 0 to {len(TRANSFORMS) - 1}")
    if "forest" not in ctx.state:
        ctx.state["forest"] = _forest_of_version_5(
            _compute_type(x, nodes_splits, leaf_weights),
            1 if n_targets is None else n_targets,
            [nodes_modes.reshape(-1), nodes_featureids, nodes_splits.reshape(-1)],
            [nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids, nodes_falseleafs],
            nodes_missing_value_tracks_true,
            membership_values,
            (leaf_targetids, leaf_weights.reshape(-1)),
            tree_roots,
        )
    forest: Forest = ctx.state["forest"]
    scores, _ = forest.votes(rows_of(x), AGGREGATES[aggregate_function])
    with np.errstate(over="ignore"):
        return _regression(scores, scores[:0, 0], TRANSFORMS[post_transform]).astype(x.dtype)


def _forest_of_version_5(
    dtype: Any,
    targets: int,
    nodes: list[Any],
    branches: list[Ints],
    missing: Ints | None,
    membership_values: Array | None,
    leaves: tuple[Ints, Array],
    roots: Ints,
) -> Forest:
    """A forest whose branches lead to a node or, where a flag says so, to a leaf; leaves are numbered after the nodes here."""
    modes, features, splits = nodes
    to_true, true_is_leaf, to_false, false_is_leaf = (np.asarray(values, np.int64) for values in branches)
    _same_lengths(
        {"nodes_modes": modes, "nodes_featureids": features, "nodes_splits": splits}
        | {"nodes_truenodeids": to_true, "nodes_trueleafs": true_is_leaf}
        | {"nodes_falsenodeids": to_false, "nodes_falseleafs": false_is_leaf}
    )
    target_ids, weights = np.asarray(leaves[0], np.int64), leaves[1]
    _same_lengths({"leaf_targetids": target_ids, "leaf_weights": weights})
    if len(modes) and int(modes.max()) > MEMBER:
        raise ValueError(f"nodes_modes has {int(modes.max())}; expected 0 to {MEMBER}")
    inner, at_leaves = len(modes), len(target_ids)
    if any(not 0 <= root < inner for root in roots):
        raise ValueError(f"tree_roots is {list(roots)}; expected numbers of nodes, 0 to {inner - 1}")
    padding = np.zeros(at_leaves, np.int64)
    return build_forest(
        feature=[*map(_feature, features), *[-1] * at_leaves],
        threshold=np.concatenate([splits, padding]).astype(dtype),
        mode=[*(int(mode) for mode in modes), *[0] * at_leaves],
        when_true=np.concatenate([np.where(true_is_leaf != 0, to_true + inner, to_true), padding]),
        when_false=np.concatenate([np.where(false_is_leaf != 0, to_false + inner, to_false), padding]),
        missing_true=missing,
        member_sets=_member_sets(modes, membership_values),
        roots=roots,
        targets=targets,
        vote_node=np.arange(inner, inner + at_leaves),
        vote_target=target_ids,
        vote_weight=weights.astype(dtype),
    )


op("TreeEnsemble", domain=DOMAIN, since=5, eval=_tree_ensemble, infer=_infer_regressor)
