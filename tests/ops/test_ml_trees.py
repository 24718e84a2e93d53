"""Decision trees against onnxruntime: random forests written by hand, every mode, transform and aggregate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_oracle import ML, TRANSFORMS, RandomTrees, agree, inputs_with_ties

from sardonyx.ops.ml import ml_forest
from sardonyx.ops.ml.ml_trees import _Numbered

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
SIX_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def some_modes(rng: np.random.Generator, mixed: bool) -> tuple[str, ...]:
    # EQ and NEQ are left out of mixed forests with NaN: see the test of their own
    return ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT") if mixed else (str(rng.choice(SIX_MODES[:4])),)


@quick
@given(
    seed=seeds, targets=st.integers(1, 4), aggregate=st.sampled_from(("SUM", "AVERAGE", "MIN", "MAX")),
    transform=st.sampled_from(TRANSFORMS), mixed=st.booleans(), missing=st.booleans(), base=st.booleans(),
    dtype=st.sampled_from((np.float32, np.float64)),
)  # fmt: skip
def test_regressors_agree_with_onnxruntime(
    seed: int, targets: int, aggregate: str, transform: str, mixed: bool, missing: bool, base: bool, dtype: Any
) -> None:
    rng = np.random.default_rng(seed)
    trees = RandomTrees(rng, int(rng.integers(1, 8)), 3, some_modes(rng, mixed))
    attrs = trees.attributes(missing) | trees.votes("target", list(range(targets)), targets, positive=transform == "PROBIT")
    if base:
        attrs["base_values"] = rng.normal(size=targets).astype(np.float32).tolist()
    x = inputs_with_ties(rng, int(rng.integers(1, 9)), 3, missing).astype(dtype)
    agree(
        "TreeEnsembleRegressor", x, n_targets=targets, aggregate_function=aggregate, post_transform=transform,
        tolerance=1e-4, **attrs,
    )  # fmt: skip


@quick
@given(
    seed=seeds, classes=st.integers(2, 4), one_class=st.booleans(), positive=st.booleans(), sparse=st.booleans(),
    transform=st.sampled_from(TRANSFORMS[:4]), base=st.integers(0, 2), strings=st.booleans(), missing=st.booleans(),
)  # fmt: skip
def test_classifiers_agree_with_onnxruntime(
    seed: int,
    classes: int,
    one_class: bool,
    positive: bool,
    sparse: bool,
    transform: str,
    base: int,
    strings: bool,
    missing: bool,
) -> None:
    rng = np.random.default_rng(seed)
    trees = RandomTrees(rng, int(rng.integers(1, 8)), 3, some_modes(rng, mixed=False))
    ids = [0] if one_class else list(range(classes))
    attrs = trees.attributes(missing) | trees.votes("class", ids, 1 if sparse else classes, positive)
    if base:
        values = rng.normal(size=classes if base == 2 or classes > 2 else 1)
        attrs["base_values"] = values.astype(np.float32).tolist()
    if strings:
        attrs["classlabels_strings"] = [f"class {index}" for index in range(classes)]
    else:
        attrs["classlabels_int64s"] = [7 * index + 3 for index in range(classes)]
    x = inputs_with_ties(rng, int(rng.integers(1, 9)), 3, missing)
    if classes == 2 and base == 1 and not one_class and sparse:
        return  # onnxruntime leaves the second score of such rows unwritten
    agree("TreeEnsembleClassifier", x, outputs=2, post_transform=transform, tolerance=1e-4, **attrs)


@pytest.mark.parametrize("mode", SIX_MODES)
def test_every_mode_compares_as_its_name_says(mode: str) -> None:
    x = np.array([[-1], [0.5], [1]], np.float32)
    attrs: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0, 0],
        "nodes_modes": [mode, "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, -1.0],
    }  # fmt: skip
    (result,) = agree("TreeEnsembleRegressor", x, n_targets=1, **attrs)
    compare = dict(zip(SIX_MODES, ("<=", "<", ">=", ">", "==", "!="), strict=True))[mode]
    assert result[:, 0].tolist() == [1.0 if eval(f"{value} {compare} 0.5") else -1.0 for value in (-1, 0.5, 1)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_compared_as_float32(dtype: Any) -> None:
    rng = np.random.default_rng(5)
    trees = RandomTrees(rng, 4, 3, ("BRANCH_LEQ",))
    attrs = trees.attributes(False) | trees.votes("class", [0, 1, 2], 3, True)
    agree("TreeEnsembleClassifier", rng.integers(-2, 3, (20, 3)).astype(dtype), outputs=2, classlabels_int64s=[0, 1, 2], **attrs)


def test_thresholds_of_a_double_tensor_are_compared_as_doubles() -> None:
    rng = np.random.default_rng(6)
    trees = RandomTrees(rng, 3, 2, ("BRANCH_LT",))
    attrs = trees.attributes(False) | trees.votes("target", [0], 1, True)
    near = 0.1  # no float32
    attrs["nodes_values_as_tensor"] = np.where(np.array(attrs.pop("nodes_values")) != 0, near, 0.0)
    attrs["target_weights_as_tensor"] = np.array(attrs.pop("target_weights"), np.float64)
    attrs["base_values_as_tensor"] = np.array([0.25])
    x = np.array([[near, near], [np.nextafter(near, 0), near], [0.0, np.float32(near)]])
    agree("TreeEnsembleRegressor", x, n_targets=1, **attrs)


def version_5(seed: int, dtype: Any, member: bool) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    """Two trees, one with sets of members, in the form of version 5."""
    rng = np.random.default_rng(seed)
    modes = np.array([0, 6 if member else 3, 2, 1], np.uint8)
    attrs: dict[str, Any] = {
        "tree_roots": [0, 2], "nodes_modes": modes, "nodes_featureids": [0, 1, 1, 0],
        "nodes_splits": np.array([0.5, 1, 2, -0.5], dtype), "nodes_truenodeids": [1, 0, 2, 3], "nodes_trueleafs": [0, 1, 1, 1],
        "nodes_falsenodeids": [4, 1, 3, 5], "nodes_falseleafs": [1, 1, 0, 1],
        "leaf_targetids": [0, 1, 1, 0, 2, 1], "leaf_weights": rng.normal(size=6).astype(dtype),
    }  # fmt: skip
    if member:
        attrs["membership_values"] = np.array([1, 3, 40, np.nan], dtype)
    return attrs, rng.integers(-1, 5, (16, 2)).astype(dtype)


@pytest.mark.parametrize("transform", [0, 3])
@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("member", [False, True])
def test_ensembles_of_version_5_agree_with_onnxruntime(member: bool, aggregate: int, transform: int) -> None:
    attrs, x = version_5(3, np.float32, member)
    agree(
        "TreeEnsemble", x, version=5, n_targets=3, aggregate_function=aggregate, post_transform=transform, tolerance=1e-4, **attrs
    )


def test_version_5_numbers_softmax_1_and_logistic_2() -> None:
    # onnxruntime has them the other way round; ONNX says so
    attrs, x = version_5(3, np.float32, False)
    scores, softmax, logistic = (
        evaluate("TreeEnsemble", [x], domain=ML, version=5, n_targets=3, post_transform=number, **attrs)[0] for number in range(3)
    )
    np.testing.assert_allclose(softmax, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(logistic, 1 / (1 + np.exp(-scores)), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_ensembles_of_version_5_give_the_type_of_their_input(dtype: Any) -> None:
    attrs, x = version_5(4, dtype, True)
    (result,) = evaluate("TreeEnsemble", [x], domain=ML, version=5, n_targets=3, **attrs)
    wide, _ = version_5(4, np.float32, True)
    wide["leaf_weights"] = attrs["leaf_weights"].astype(np.float32)
    (expected,) = evaluate("TreeEnsemble", [x.astype(np.float32)], domain=ML, version=5, n_targets=3, **wide)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float32), expected, rtol=2e-3)


def test_many_rows_and_trees_walk_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    trees = RandomTrees(rng, 9, 4, ("BRANCH_LEQ", "BRANCH_GT"))
    attrs = trees.attributes(True) | trees.votes("target", [0, 1], 2, False)
    x = inputs_with_ties(rng, 101, 4, True)
    whole = evaluate("TreeEnsembleRegressor", [x], domain=ML, version=3, n_targets=2, **attrs)[0]
    monkeypatch.setattr(ml_forest, "BLOCK", 64)
    np.testing.assert_array_equal(evaluate("TreeEnsembleRegressor", [x], domain=ML, version=3, n_targets=2, **attrs)[0], whole)


def test_no_rows_give_no_scores() -> None:
    rng = np.random.default_rng(2)
    trees = RandomTrees(rng, 2, 3, ("BRANCH_LEQ",))
    attrs = trees.attributes(False) | trees.votes("class", [0, 1, 2], 3, True)
    labels, scores = evaluate(
        "TreeEnsembleClassifier", [np.empty((0, 3), np.float32)], domain=ML, version=3, outputs=2,
        classlabels_strings=["a", "b", "c"], **attrs,
    )  # fmt: skip
    assert (labels.shape, labels.dtype, scores.shape) == ((0,), np.dtype(object), (0, 3))


def one_tree(**changes: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, -1.0], "n_targets": 1,
    }  # fmt: skip
    return attrs | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_modes": ["BRANCH", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH'; expected LEAF, BRANCH_LEQ"),
        ({"nodes_truenodeids": [0, 0, 0]}, "lead back to a node above"),
        ({"nodes_falsenodeids": [7, 0, 0]}, "the false branch of a tree leads to node -1, which does not exist"),
        ({"nodes_nodeids": [0, 1, 1]}, "two nodes of a tree have the same number"),
        ({"nodes_values": [0.5]}, "these attributes must have one length: .*nodes_values 1"),
        ({"target_nodeids": [1, 9]}, "a weight belongs to node 9 of tree 0, which does not exist"),
        ({"target_ids": [0, 1]}, "leaves vote for 0 to 1; there are 1 targets"),
        ({"nodes_featureids": [5, 0, 0]}, "the trees look at feature 5 but the input has 2 features"),
        ({"nodes_featureids": [-3, 0, 0]}, "a node looks at feature -3; features are numbered from 0"),
        ({"aggregate_function": "MEAN"}, "aggregate_function is 'MEAN'; expected AVERAGE, SUM, MIN, MAX"),
        ({"post_transform": "RELU"}, "post_transform is 'RELU'; expected NONE, SOFTMAX"),
    ],
)
def test_trees_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate("TreeEnsembleRegressor", [np.zeros((1, 2), np.float32)], domain=ML, version=3, **one_tree(**changes))


def one_class(weights: list[float], **labels: Any) -> dict[str, Any]:
    attrs = {key.replace("target", "class"): value for key, value in one_tree().items() if key != "n_targets"}
    return attrs | {"class_weights": weights} | labels


@pytest.mark.parametrize("base", [[], [0.25], [0.25, -1.0]], ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("weights", [[1.0, 1.0], [0.3, 0.7], [-1.0, 1.0], [-2.0, -1.0], [0.0, 0.0]], ids=str)
def test_trees_of_a_single_class_agree_with_onnxruntime(weights: list[float], transform: str, base: list[float]) -> None:
    x = np.array([[0, 1], [1, 0.5], [2, 0]], np.float32)
    attrs = one_class(weights, classlabels_int64s=[1]) | ({"base_values": base} if base else {})
    agree("TreeEnsembleClassifier", x, outputs=2, post_transform=transform, **attrs)


def test_a_single_class_of_strings_has_its_label_whatever_the_score() -> None:
    x = np.array([[0, 1], [0, 0]], np.float32)
    attrs = one_class([1.0, -1.0], classlabels_strings=["only"])
    labels, scores = evaluate("TreeEnsembleClassifier", [x], domain=ML, version=3, outputs=2, **attrs)
    assert (labels.tolist(), scores.tolist()) == (["only", "only"], [[-1], [1]])


def test_a_classifier_needs_labels() -> None:
    with pytest.raises(ValueError, match="the model has no class labels"):
        evaluate("TreeEnsembleClassifier", [np.zeros((1, 2), np.float32)], domain=ML, version=3, outputs=2)


@pytest.mark.parametrize("largest", [6, 1 << 40])  # as a table, and sorted
def test_nodes_are_found_by_their_tree_and_number(largest: int) -> None:
    random = np.random.default_rng(largest)
    trees, nodes = random.integers(-2, 3, 40) * largest // 3, random.integers(-largest, largest, 40)
    pairs = list(dict.fromkeys(zip(trees.tolist(), nodes.tolist())))
    random.shuffle(pairs)
    numbered = _Numbered(*np.array(pairs, np.int64).T)
    wanted = [*pairs, (trees[0] + 1, nodes[0]), (trees[0], nodes[0] + 1), (np.iinfo(np.int64).max, np.iinfo(np.int64).min)]
    found = numbered.positions(*np.array(wanted, np.int64).T)
    assert found.tolist() == [pairs.index(pair) if pair in pairs else -1 for pair in wanted]
