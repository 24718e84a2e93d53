"""Trees in native code give what their definition gives: all comparisons exactly, sums in the order of the trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_oracle import TRANSFORMS, RandomTrees, inputs_with_ties

from classical_support import assert_classical_agrees, expanded, ml_model
from emulator import Emulator
from guarded_session import guarded_feeds, guarded_memory
from native_support import compile_native, in_order, prepared, run_native, run_reference
from sardonyx import InferenceSession, errors
from sardonyx.codegen.ml import trees as emitted
from sardonyx.compile import assemble
from sardonyx.ir.tensor import Array, Tensor, from_numpy
from sardonyx.kernel.ml.trees import TreeKernel
from sardonyx.lower.groups import form_groups
from sardonyx.lower.lower_graph import lower_graph
from sardonyx.lower.ml import trees as lowered
from sardonyx.ops.ml import ml_decisions
from sardonyx.program.steps import KernelStep
from step_runner import run_steps
from targets import NEOVERSE, here, library_for, names_here

ALL = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


@pytest.fixture(params=[256, 40, 0], ids=lambda most: f"{most} leaves as bits")
def most_leaves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How large trees may be that are not walked through."""
    monkeypatch.setattr(ml_decisions, "MOST_LEAVES", request.param)
    found: int = request.param
    return found


def hard_rows(rng: np.random.Generator, rows: int, features: int, dtype: Any = np.float32) -> Array:
    """Rows that hit thresholds exactly, with NaN, infinities, both zeros and denormals among them."""
    x = inputs_with_ties(rng, rows, features, True).astype(dtype)
    chosen = rng.random(x.shape) < 0.15
    x[chosen] = rng.choice(np.array([np.inf, -np.inf, -0.0, 1e-45, -1e-45, 3.4e38, 0.5000001], dtype), int(chosen.sum()))
    return x


def fetch_nodes(patch: pytest.MonkeyPatch) -> None:
    """A machine whose second cache holds no tree."""
    library = library_for(replace(here(), caches=here().caches._replace(l2=0)))
    patch.setattr(assemble, "library", lambda *_: library)


def regressor(rng: np.random.Generator, trees: RandomTrees, targets: int, per_leaf: int, **attrs: Any) -> dict[str, Any]:
    weights = trees.votes("target", list(range(targets)), per_leaf, positive=False)
    return trees.attributes(True) | weights | {"n_targets": targets} | attrs


@pytest.mark.parametrize("target", names_here())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("depth", [0, 3, 8])
def test_all_rows_of_any_number_reach_the_same_leaves(most_leaves: int, depth: int, dtype: Any, target: str) -> None:
    rng = np.random.default_rng(depth)
    trees = RandomTrees(rng, 11, 5, ALL[:4] if depth > 3 else ALL, depth)
    x = hard_rows(rng, 210, 5, dtype)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, 1, 1))
    assert_classical_agrees(content, [{"x": x[:rows]} for rows in (1, 3, 4, 17, 64, 70, 210, 0)], tolerance=0, target=target)


@few
@given(
    seed=seeds, targets=st.integers(1, 3), per_leaf=st.integers(1, 3),
    aggregate=st.sampled_from(("SUM", "AVERAGE", "MIN", "MAX")), transform=st.sampled_from(TRANSFORMS), base=st.booleans(),
    dtype=st.sampled_from((np.float32, np.float64, np.int64, np.int32)),
)  # fmt: skip
def test_regressors(seed: int, targets: int, per_leaf: int, aggregate: str, transform: str, base: bool, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    trees = RandomTrees(rng, int(rng.integers(1, 20)), 3, ALL, int(rng.integers(1, 7)))
    attrs = regressor(rng, trees, targets, per_leaf, aggregate_function=aggregate, post_transform=transform)
    if base:
        attrs["base_values"] = rng.normal(size=targets).astype(np.float32).tolist()
    with np.errstate(invalid="ignore"):
        feeds = [{"x": hard_rows(rng, rows, 3).astype(dtype)} for rows in (1, 9, 40)]
    content = ml_model("TreeEnsembleRegressor", feeds[0], **attrs)
    assert_classical_agrees(content, feeds, tolerance=2e-5)


@settings(max_examples=25, deadline=None)
@given(
    seed=seeds, classes=st.integers(1, 4), one_class=st.booleans(), positive=st.booleans(), per_leaf=st.integers(1, 4),
    transform=st.sampled_from(TRANSFORMS), base=st.integers(0, 4), strings=st.booleans(), double=st.booleans(),
)  # fmt: skip
def test_classifiers(
    seed: int,
    classes: int,
    one_class: bool,
    positive: bool,
    per_leaf: int,
    transform: str,
    base: int,
    strings: bool,
    double: bool,
) -> None:
    rng = np.random.default_rng(seed)
    trees = RandomTrees(rng, int(rng.integers(1, 12)), 3, ALL, int(rng.integers(0, 6)))
    voted = [int(rng.integers(classes))] if one_class else list(range(classes))
    attrs = trees.attributes(bool(rng.integers(2))) | trees.votes("class", voted, per_leaf, positive)
    if base:
        attrs["base_values"] = rng.normal(size=min(base, max(classes, 2))).astype(np.float32).tolist()
    labels: dict[str, Any] = {"classlabels_int64s": rng.permutation(classes + 3)[:classes].tolist()}
    if strings:
        labels = {"classlabels_strings": [f"class {number}" for number in range(classes)]}
    feeds = [{"x": hard_rows(rng, rows, 3, np.float64 if double else np.float32)} for rows in (1, 9, 40)]
    content = ml_model("TreeEnsembleClassifier", feeds[0], outputs=2, post_transform=transform, **attrs, **labels)
    assert_classical_agrees(content, feeds, tolerance=2e-5, hosts=("ClassLabels",) if strings else ())


def ensemble(rng: np.random.Generator, dtype: Any, modes: tuple[int, ...], depth: int = 4) -> dict[str, Any]:
    """The attributes of a TreeEnsemble of version 5, with sets of members of 1 to 9 values."""
    nodes: list[list[int]] = []  # mode, feature, true node, true is a leaf, false node, false is a leaf, missing
    splits: list[float] = []
    sets: list[list[float]] = []
    leaves: list[tuple[int, float]] = []

    def grow(level: int) -> tuple[int, int]:
        if level and (level >= depth or rng.random() < 0.2):
            leaves.append((int(rng.integers(2)), float(rng.normal())))
            return len(leaves) - 1, 1
        place = len(nodes)
        mode = int(rng.choice(modes))
        nodes.append([mode, int(rng.integers(3)), 0, 0, 0, 0, int(rng.integers(2))])
        splits.append(float(rng.integers(-2, 3)) / 2)
        if mode == 6:
            sets.append(rng.choice(np.arange(-4, 5) / 2, int(rng.integers(1, 10)), replace=False).tolist())
        nodes[place][2:4] = grow(level + 1)
        nodes[place][4:6] = grow(level + 1)
        return place, 0

    roots = [grow(0)[0] for _ in range(5)]
    table = np.array(nodes)
    members = [value for values in sets for value in (*values, np.nan)]
    return {
        "tree_roots": roots, "n_targets": 2,
        "nodes_modes": table[:, 0].astype(np.uint8), "nodes_featureids": table[:, 1].tolist(),
        "nodes_truenodeids": table[:, 2].tolist(), "nodes_trueleafs": table[:, 3].tolist(),
        "nodes_falsenodeids": table[:, 4].tolist(), "nodes_falseleafs": table[:, 5].tolist(),
        "nodes_missing_value_tracks_true": table[:, 6].tolist(), "nodes_splits": np.array(splits, dtype),
        "leaf_targetids": [target for target, _ in leaves], "leaf_weights": np.array([weight for _, weight in leaves], dtype),
        **({"membership_values": np.array(members, dtype)} if sets else {}),
    }  # fmt: skip


@few
@given(
    seed=seeds, dtype=st.sampled_from((np.float32, np.float64, np.float16)), transform=st.integers(0, 4),
    aggregate=st.integers(0, 3), modes=st.sampled_from(((6,), tuple(range(7)), (0, 6), (4, 5))),
)  # fmt: skip
def test_ensembles_of_version_5_with_sets_of_members(
    seed: int, dtype: Any, transform: int, aggregate: int, modes: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(seed)
    attrs = ensemble(rng, dtype, modes) | {"post_transform": transform, "aggregate_function": aggregate}
    with np.errstate(over="ignore"):
        feeds = [{"x": hard_rows(rng, rows, 3).astype(dtype)} for rows in (1, 5, 33)]
    tolerance = 2e-5 if dtype != np.float16 else 2e-3
    assert_classical_agrees(ml_model("TreeEnsemble", feeds[0], version=5, **attrs), feeds, tolerance=tolerance)


def test_a_single_row_may_be_a_vector() -> None:
    rng = np.random.default_rng(0)
    trees = RandomTrees(rng, 20, 4, ALL)
    x = hard_rows(rng, 1, 4)[0]
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, 2, 1))
    assert_classical_agrees(content, [{"x": x}], tolerance=0)


def test_many_columns_and_chains_of_equalities_need_wide_nodes_and_no_more_than_their_nodes() -> None:
    """A chain of 40 categories: the nodes behind an equality are shared, not doubled."""
    count = 40
    nodes: dict[str, Any] = {
        "nodes_treeids": [0] * (2 * count + 1),
        "nodes_nodeids": list(range(2 * count + 1)),
        "nodes_featureids": [number % 2 for number in range(count)] + [0] * (count + 1),
        "nodes_values": [float(number) for number in range(count)] + [0.0] * (count + 1),
        "nodes_modes": ["BRANCH_EQ"] * count + ["LEAF"] * (count + 1),
        "nodes_truenodeids": [count + number for number in range(count)] + [0] * (count + 1),
        "nodes_falsenodeids": [*range(1, count), 2 * count] + [0] * (count + 1),
        "target_treeids": [0] * (count + 1),
        "target_nodeids": list(range(count, 2 * count + 1)),
        "target_ids": [0] * (count + 1),
        "target_weights": [float(number) for number in range(count + 1)],
    }
    x = np.random.default_rng(0).integers(-1, count + 1, (90, 2)).astype(np.float32)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, n_targets=1, **nodes)
    assert_classical_agrees(content, [{"x": x}], tolerance=0)
    model, _ = expanded(content)
    (node,) = [each for each in model.graph.nodes if each.op_type == "TreeScores"]
    tables = [value.constant for value in node.inputs[1:] if value is not None]
    assert all(isinstance(table, Tensor) and table.size < 20 * count for table in tables)


@pytest.mark.parametrize("fetches", [False, True])
@pytest.mark.parametrize("most", [256, 0])
def test_more_columns_than_a_word_holds(most: int, fetches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if fetches:
        fetch_nodes(monkeypatch)
    monkeypatch.setattr(ml_decisions, "COLUMN_BITS", 2)  # in the table alone: the kernel then gets nodes of two words
    monkeypatch.setattr(ml_decisions, "MOST_LEAVES", most)
    rng = np.random.default_rng(0)
    trees = RandomTrees(rng, 9, 20, ALL[:4], 6)
    x = hard_rows(rng, 70, 20)
    for targets, per_leaf in ((1, 1), (2, 2)):
        content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, targets, per_leaf))
        assert_classical_agrees(content, [{"x": x}, {"x": x[:2]}], tolerance=0)


def test_any_number_of_workers_gives_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    trees = RandomTrees(rng, 50, 6, ALL[:4], 7)
    x = hard_rows(rng, 3000, 6)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, 2, 1))
    results = []
    for workers in (1, 2, 3):
        graph, compiled = compile_native(expanded(content)[0], workers=workers)
        results.append(run_native(graph, compiled, {"x": x})[0])
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes_truenodeids": [9, 0, 0]}, "leads to node -1"),
        ({"nodes_truenodeids": [0, 0, 0]}, "it is not a tree"),
        ({"nodes_featureids": [-3, 0, 0]}, "looks at feature -3"),
        ({"target_ids": [0, 5]}, "leaves vote for 0 to 5"),
        ({"nodes_modes": ["BRANCH_WHAT", "LEAF", "LEAF"]}, "nodes_modes has 'BRANCH_WHAT'"),
        ({"target_nodeids": [1, 1], "target_ids": [0, 0], "n_targets": 2}, "a leaf votes twice for one target"),
    ],
)
def test_faulty_forests_are_refused_with_a_reason(change: dict[str, Any], reason: str) -> None:
    attrs: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
    }  # fmt: skip
    content = ml_model("TreeEnsembleRegressor", {"x": np.zeros((2, 1), np.float32)}, **(attrs | change))
    _, reasons = expanded(content)
    assert len(reasons) == 1
    assert reason in reasons[0]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_of_several_votes_for_the_only_target_the_first_counts(aggregate: str) -> None:
    """As in ONNX Runtime; scikit-learn's decision paths are written so."""
    attrs: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0], "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0] * 4, "target_nodeids": [2, 1, 1, 2], "target_ids": [0] * 4, "target_weights": [7.0, 1.0, 20.0, 3.0],
        "aggregate_function": aggregate,
    }  # fmt: skip
    x = np.array([[0.0], [1.0]], np.float32)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **attrs)
    assert_classical_agrees(content, [{"x": x}], tolerance=0)
    assert InferenceSession(content.SerializeToString()).run(None, {"x": x})[0].tolist() == [[1.0], [7.0]]


def test_features_that_the_input_does_not_have_are_refused_when_it_comes() -> None:
    rng = np.random.default_rng(1)
    trees = RandomTrees(rng, 5, 4, ALL)
    narrow = hard_rows(rng, 6, 2)
    content = ml_model("TreeEnsembleRegressor", {"x": narrow}, **regressor(rng, trees, 1, 1))
    content.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    session = InferenceSession(content.SerializeToString())
    assert session.run(None, {"x": hard_rows(rng, 6, 4)})[0].shape == (6, 1)
    with pytest.raises(errors.SardonyxError, match="trees look at feature 3 but the input has 2"):
        session.run(None, {"x": narrow})


def test_the_emitter_has_the_layout_of_the_tables() -> None:
    names = [name for name in dir(emitted) if name.isupper() and hasattr(ml_decisions, name)]
    assert {"FIRST_SLOT", "DEPTH", "FIRST_WORD", "END_BIT", "FIRST_LEAF", "SLOT_BITS", "COLUMN_BITS", "BIT_ENTRIES"} <= set(names)
    assert {name: getattr(emitted, name) for name in names} == {name: getattr(ml_decisions, name) for name in names}


def test_every_field_is_in_the_key() -> None:
    from dataclasses import fields, replace

    kernel = TreeKernel(
        type="f32", sums="f32", aggregate="SUM", width=1, is_single=True, wide=False, has_bits=True, has_walks=False, block=64
    )
    others: dict[Any, Any] = {"f32": "f64", "SUM": "MIN", 1: 2, 64: 32}
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        other: Any = not value if isinstance(value, bool) else others[value]
        assert replace(kernel, **{field.name: other}).key != kernel.key, field.name


@settings(max_examples=60, deadline=None)
@given(seed=seeds, small=st.booleans(), per_leaf=st.integers(1, 2), double=st.booleans())
def test_damaged_tables_are_refused_or_harmless(seed: int, small: bool, per_leaf: int, double: bool) -> None:
    """A model may bring tables of its own: what the check lets pass reads and writes nothing that is not its own."""
    rng = np.random.default_rng(seed)
    trees = RandomTrees(rng, 4, 3, ALL, 5)
    x = hard_rows(rng, 9, 3, np.float64 if double else np.float32)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, 2, per_leaf))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ml_decisions, "MOST_LEAVES", 256 if small else 0)
        model, _ = expanded(content)
    (node,) = [each for each in model.graph.nodes if each.op_type == "TreeScores"]
    value = node.inputs[1 + int(rng.integers(8))]
    assert value is not None
    assert isinstance(value.constant, Tensor)
    table = value.constant.numpy().copy()
    flat = table.reshape(-1)
    if flat.size and flat.dtype.kind in "iu":
        bits = int(rng.integers(flat.itemsize * 8 - 1))
        flat[rng.integers(flat.size)] ^= flat.dtype.type(1 << bits)
    value.constant = from_numpy(table)
    if lowered._accepts(node):
        return
    graph, compiled = compile_native(model)
    with guarded_memory() as guard:
        for rows in (9, 1):
            run_native(graph, compiled, guarded_feeds(guard, {"x": x[:rows]}))


@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize(("targets", "per_leaf"), [(1, 1), (3, 1), (3, 3)])
def test_nothing_outside_the_buffers_is_touched(targets: int, per_leaf: int, at_start: bool, most_leaves: int) -> None:
    rng = np.random.default_rng(0)
    trees = RandomTrees(rng, 21, 7, ALL[:4], 8)
    x = hard_rows(rng, 200, 7)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, targets, per_leaf))
    graph, compiled = compile_native(expanded(content)[0])
    for rows in (1, 3, 5, 64, 65, 200):
        with guarded_memory(at_start=at_start) as guard:
            found = run_native(graph, compiled, guarded_feeds(guard, {"x": x[:rows]}))
        wanted = run_reference(content.SerializeToString(), {"x": x[:rows]})
        np.testing.assert_array_equal(found[0], wanted[0])


@few
@given(
    seed=seeds, depth=st.integers(1, 9), count=st.integers(1, 12), per_leaf=st.integers(1, 2), most=st.sampled_from((0, 30)),
    rows=st.sets(st.integers(1, 300), min_size=1, max_size=3), at_start=st.booleans(),
)  # fmt: skip
def test_nodes_that_do_not_fit_the_second_cache_are_fetched_and_leaves_stay_the_same(
    seed: int, depth: int, count: int, per_leaf: int, most: int, rows: set[int], at_start: bool
) -> None:
    rng = np.random.default_rng(seed)
    trees = RandomTrees(rng, count, 4, ALL[:4], depth)
    x = hard_rows(rng, max(rows), 4)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, **regressor(rng, trees, per_leaf, per_leaf))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ml_decisions, "MOST_LEAVES", most)
        fetch_nodes(patch)
        graph, compiled = compile_native(expanded(content)[0])
        kernels = [step.kernel for step in compiled.lowered.steps if isinstance(step, KernelStep)]
        assert all(kernel.fetches == kernel.has_walks for kernel in kernels if isinstance(kernel, TreeKernel))
        for number in rows:
            with guarded_memory(at_start=at_start) as guard:
                found = run_native(graph, compiled, guarded_feeds(guard, {"x": x[:number]}))
            np.testing.assert_array_equal(found[0], run_reference(content.SerializeToString(), {"x": x[:number]})[0])


def test_kernels_for_aarch64_reach_the_same_leaves(most_leaves: int) -> None:
    rng = np.random.default_rng(0)
    trees = RandomTrees(rng, 5, 4, ALL[:4], 6)
    x = hard_rows(rng, 21, 4)
    content = ml_model("TreeEnsembleRegressor", {"x": x}, symbolic=False, **regressor(rng, trees, 1, 1))
    graph = prepared(expanded(content)[0])
    steps = lower_graph(graph, graph.outputs, form_groups(in_order(graph), graph.inputs), NEOVERSE)
    (found,) = run_steps(steps, {"x": x}, Emulator(NEOVERSE))
    np.testing.assert_array_equal(found, run_reference(content.SerializeToString(), {"x": x})[0])
