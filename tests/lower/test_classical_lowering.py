"""Linear models, support vectors and features of ai.onnx.ml in native code give what their definitions give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_oracle import TRANSFORMS
from onnx import helper, numpy_helper

from classical_support import assert_classical_agrees, expanded, ml_model
from guarded_session import guarded_feeds, guarded_memory
from lowering_case import samples
from native_support import compile_native, run_native
from sardonyx import InferenceSession, errors
from sardonyx.ir.tensor import Array
from sardonyx.ops.ml.ml_linear import coupled
from targets import names_here

few = settings(max_examples=12, deadline=None)
seeds = st.integers(0, 2**32 - 1)
NUMBERS = (np.float32, np.float64, np.int64, np.int32)


def feeds_of(
    rng: np.random.Generator, features: int, dtype: Any = np.float32, rows: tuple[int, ...] = (1, 7, 40)
) -> list[dict[str, Array]]:
    return [{"x": (rng.normal(size=(count, features)) * 3).astype(dtype)} for count in rows]


def floats(rng: np.random.Generator, count: int) -> list[float]:
    return rng.normal(size=count).astype(np.float32).tolist()  # type: ignore[no-any-return]


@few
@given(
    seed=seeds, targets=st.integers(1, 3), transform=st.sampled_from(TRANSFORMS[:4]), intercepts=st.booleans(),
    dtype=st.sampled_from(NUMBERS),
)  # fmt: skip
def test_linear_regressors(seed: int, targets: int, transform: str, intercepts: bool, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    feeds = feeds_of(rng, 5, dtype)
    attrs: dict[str, Any] = {"coefficients": floats(rng, 5 * targets), "targets": targets, "post_transform": transform}
    if intercepts:
        attrs["intercepts"] = floats(rng, targets)
    assert_classical_agrees(ml_model("LinearRegressor", feeds[0], **attrs), feeds, tolerance=1e-4)


@few
@given(
    seed=seeds, classes=st.integers(1, 4), transform=st.sampled_from(TRANSFORMS[:4]), one_score=st.booleans(),
    strings=st.booleans(),
)  # fmt: skip
def test_linear_classifiers(seed: int, classes: int, transform: str, one_score: bool, strings: bool) -> None:
    rng = np.random.default_rng(seed)
    feeds = feeds_of(rng, 4)
    scores = 1 if one_score and classes < 3 else classes
    labels: dict[str, Any] = {"classlabels_ints": [7 * number for number in range(classes)]}
    if strings:
        labels = {"classlabels_strings": [f"class {number}" for number in range(classes)]}
    attrs = {"coefficients": floats(rng, 4 * scores), "intercepts": floats(rng, scores), "post_transform": transform, **labels}
    content = ml_model("LinearClassifier", feeds[0], outputs=2, **attrs)
    assert_classical_agrees(content, feeds, tolerance=1e-4, hosts=("ClassLabels",) if strings else ())


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX"])
def test_probabilities_are_right_to_the_last_bit(transform: str) -> None:
    """A unit matrix hands the scores on as they are: what is left is the transform."""
    x = (np.random.default_rng(0).normal(size=(500, 3)) * 4).astype(np.float32)
    attrs: dict[str, Any] = {
        "coefficients": np.eye(3).reshape(-1).tolist(),
        "intercepts": [0.0] * 3,
        "classlabels_ints": [0, 1, 2],
    }
    content = ml_model("LinearClassifier", {"x": x}, outputs=2, post_transform=transform, **attrs)
    _, found = InferenceSession(content.SerializeToString()).run(None, {"x": x})
    wide = x.astype(np.float64)
    if transform == "SOFTMAX":
        powers = np.exp(wide)
        wanted = (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)
    else:
        above = (1 / (1 + np.exp(-np.abs(wide)))).astype(np.float32)
        wanted = np.where(x < 0, np.float32(1) - above, above)
    np.testing.assert_array_equal(found, wanted)


@few
@given(
    seed=seeds,
    kind=st.sampled_from(("LINEAR", "POLY", "RBF", "SIGMOID")),
    one_class=st.booleans(),
    degree=st.sampled_from((2, 3, 4)),
)
def test_support_vector_regressors(seed: int, kind: str, one_class: bool, degree: int) -> None:
    rng = np.random.default_rng(seed)
    feeds = feeds_of(rng, 3)
    vectors = int(rng.integers(0, 12))
    attrs: dict[str, Any] = {
        "kernel_type": kind,
        "kernel_params": [0.1, 0.5, float(degree)],
        "n_supports": vectors,
        "rho": floats(rng, 1),
    }
    attrs |= {"coefficients": floats(rng, vectors or 3), "support_vectors": floats(rng, vectors * 3), "one_class": int(one_class)}
    content = ml_model("SVMRegressor", feeds[0], **{key: value for key, value in attrs.items() if value != []})
    assert_classical_agrees(content, feeds, tolerance=2e-4)


@settings(max_examples=20, deadline=None)
@given(
    seed=seeds, kind=st.sampled_from(("LINEAR", "POLY", "RBF", "SIGMOID")), classes=st.integers(2, 5),
    probabilities=st.booleans(), transform=st.sampled_from(TRANSFORMS[:4]), strings=st.booleans(),
)  # fmt: skip
def test_support_vector_classifiers(
    seed: int, kind: str, classes: int, probabilities: bool, transform: str, strings: bool
) -> None:
    rng = np.random.default_rng(seed)
    feeds = feeds_of(rng, 3)
    per_class = rng.integers(1, 5, classes).tolist()
    pairs, vectors = classes * (classes - 1) // 2, sum(per_class)
    attrs: dict[str, Any] = {
        "kernel_type": kind, "kernel_params": [0.1, 0.5, 3.0], "rho": floats(rng, pairs), "vectors_per_class": per_class,
        "coefficients": floats(rng, (classes - 1) * vectors), "support_vectors": floats(rng, vectors * 3),
        "post_transform": transform,
    }  # fmt: skip
    if probabilities:
        attrs |= {"prob_a": floats(rng, pairs), "prob_b": floats(rng, pairs)}
    if strings:
        attrs["classlabels_strings"] = [f"class {number}" for number in range(classes)]
    else:
        attrs["classlabels_ints"] = list(range(classes))
    content = ml_model("SVMClassifier", feeds[0], outputs=2, **attrs)
    assert_classical_agrees(content, feeds, tolerance=3e-4, hosts=("ClassLabels",) if strings else ())


@pytest.mark.parametrize("target", names_here())
def test_probabilities_of_pairs_are_coupled_row_by_row(target: str) -> None:
    """The bound of the iteration decides when a row stops: all rows of a vector stop on their own."""
    rng = np.random.default_rng(0)
    attrs: dict[str, Any] = {
        "kernel_type": "LINEAR", "rho": floats(rng, 6), "vectors_per_class": [1, 1, 1, 1], "coefficients": floats(rng, 12),
        "support_vectors": floats(rng, 12), "prob_a": [-2.0] * 6, "prob_b": floats(rng, 6), "classlabels_ints": [0, 1, 2, 3],
    }  # fmt: skip
    feeds = [{"x": (rng.normal(size=(rows, 3)) * 5).astype(np.float32)} for rows in (1, 3, 16, 33)]
    assert_classical_agrees(ml_model("SVMClassifier", feeds[0], outputs=2, **attrs), feeds, tolerance=2e-3, target=target)
    likely = np.clip(rng.random((50, 3)), 1e-7, 1 - 1e-7).astype(np.float32)
    np.testing.assert_allclose(coupled(likely, 3).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("at_start", [False, True])
def test_coupling_touches_nothing_outside_its_buffers(at_start: bool) -> None:
    rng = np.random.default_rng(0)
    attrs: dict[str, Any] = {
        "kernel_type": "LINEAR", "rho": floats(rng, 3), "vectors_per_class": [1, 1, 1], "coefficients": floats(rng, 6),
        "support_vectors": floats(rng, 9), "prob_a": floats(rng, 3), "prob_b": floats(rng, 3), "classlabels_ints": [0, 1, 2],
    }  # fmt: skip
    content = ml_model("SVMClassifier", {"x": np.zeros((1, 3), np.float32)}, outputs=2, **attrs)
    graph, compiled = compile_native(expanded(content)[0])
    for rows in (1, 5, 17):
        with guarded_memory(at_start=at_start) as guard:
            run_native(graph, compiled, guarded_feeds(guard, {"x": rng.normal(size=(rows, 3)).astype(np.float32)}))


FEATURES: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "scaler": ("Scaler", {"offset": [0.5, -1.0, 2.0], "scale": [2.0]}, NUMBERS),
    "imputer of NaN": ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}, (np.float32,)),
    "imputer of a number": ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": 0.0}, (np.float32, np.float64)),
    "imputer of integers": ("Imputer", {"imputed_value_int64s": [9, 8, 7], "replaced_value_int64": 0}, (np.int64,)),
    "binarizer": ("Binarizer", {"threshold": 0.1}, NUMBERS),
    "normalizer, largest": ("Normalizer", {"norm": "MAX"}, NUMBERS),
    "normalizer, sum": ("Normalizer", {"norm": "L1"}, NUMBERS),
    "normalizer, length": ("Normalizer", {"norm": "L2"}, (np.float32, np.float64)),
    "one hot": ("OneHotEncoder", {"cats_int64s": [0, 1, -20, 3], "zeros": 1}, NUMBERS),
    "labels": ("LabelEncoder", {"keys_int64s": [0, 1, 3], "values_floats": [0.5, 1.5, 2.5], "default_float": -1.0}, (np.int64,)),
    "labels of floats": ("LabelEncoder", {"keys_floats": [0.0, 1.0, 1.0], "values_int64s": [5, 6, 7]}, (np.float32,)),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_agree_to_the_bit(name: str) -> None:
    operator, attrs, types = FEATURES[name]
    for dtype in types:
        feeds = [{"x": samples(dtype, (rows, 3), rows)} for rows in (1, 4, 35)]
        if np.dtype(dtype).kind == "f":
            for feed in feeds:
                feed["x"] = np.clip(feed["x"], -1e15, 1e15)  # infinities as integers are anything
        assert_classical_agrees(ml_model(operator, feeds[0], **attrs), feeds, tolerance=0)


@pytest.mark.parametrize("norm", ["L1", "L2"])
@pytest.mark.parametrize("features", [1, 24, 40])
def test_normalizers_add_from_left_to_right(norm: str, features: int) -> None:
    x = np.random.default_rng(0).normal(size=(30, features)).astype(np.float32)
    assert_classical_agrees(ml_model("Normalizer", {"x": x}, norm=norm), [{"x": x}], tolerance=0)


def test_features_are_extracted_and_joined() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 5)).astype(np.float32), rng.integers(0, 9, (6, 2))
    for wanted in ([1, 2, 3], [4, 0, 0], [2]):
        indices = np.array(wanted)
        content = ml_model("ArrayFeatureExtractor", {"x": x, "i": indices}, symbolic=False)
        content.graph.initializer.append(numpy_helper.from_array(indices, "i"))
        del content.graph.input[1]
        assert_classical_agrees(content, [{"x": x}], tolerance=0)
    choices: tuple[dict[str, Any], ...] = ({}, {"inputdimensions": [3, 2]})
    for attrs in choices:
        content = ml_model("FeatureVectorizer", {"x": x, "y": y}, symbolic=False, **attrs)
        assert_classical_agrees(content, [{"x": x, "y": y}], tolerance=0)


MANY = np.random.default_rng(3).permutation(100)
LOOKUPS: dict[str, tuple[dict[str, Any], Any]] = {
    "a table": ({"keys_int64s": [*MANY[:60] - 5, MANY[3] - 5]}, np.int64),
    "a table of few bits": ({"keys_tensor": (MANY[:50] - 50).astype(np.int8)}, np.int8),
    "a table up to the largest integer": ({"keys_int64s": [*range(2**63 - 50, 2**63)]}, np.int64),
    "a search": ({"keys_int64s": [*MANY**3, 8, 27, -(2**63), 2**63 - 1]}, np.int64),
    "a search of floats": ({"keys_floats": [*MANY / 4, 0.25, -0.0, float("inf"), float("nan")]}, np.float32),
    "a search of doubles": ({"keys_tensor": np.array([float("nan"), *MANY / 3, 1 / 3, float("-inf"), float("nan")])}, np.float64),
}


@pytest.mark.parametrize("values", ["ints", "floats", "strings"])
@pytest.mark.parametrize("name", LOOKUPS)
def test_many_keys_are_looked_up(name: str, values: str) -> None:
    keys, dtype = LOOKUPS[name]
    (given,) = keys.values()
    known = np.array(given, dtype)
    extremes = [np.inf, -np.inf, np.nan, -0.0] if known.dtype.kind == "f" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    with np.errstate(over="ignore"):
        others = np.concatenate([known[::-1], np.array(extremes, dtype), known + known.dtype.type(1)])
    numbers = np.arange(len(known))
    found: Any = {"ints": numbers + 7, "floats": (numbers / 8).astype(np.float32), "strings": None}[values]
    attrs: dict[str, Any] = {"default_tensor": np.array([-1], None if found is None else found.dtype), "values_tensor": found}
    if found is None:
        attrs = {"values_strings": [f"v{number}" for number in numbers], "default_string": "none"}
    pairs = np.resize(others, (len(others), 2))
    feeds = [{"x": pairs}, {"x": pairs[:1]}, {"x": pairs[5:22]}, {"x": pairs[:0]}]
    content = ml_model("LabelEncoder", feeds[0], version=4, **keys, **attrs)
    assert_classical_agrees(content, feeds, tolerance=0, hosts=() if values != "strings" else ("ClassLabels",))


def test_numbers_become_strings_at_the_end() -> None:
    x = np.array([[1, 2], [3, 9]])
    content = ml_model(
        "LabelEncoder", {"x": x}, keys_int64s=[1, 2, 3], values_strings=["one", "two", "three"], default_string="?"
    )
    assert_classical_agrees(content, [{"x": x}], hosts=("ClassLabels",))


@pytest.mark.parametrize(
    ("operator", "attrs", "reason"),
    [
        ("Scaler", {"offset": [1.0, 2.0]}, "offset or scale does not fit"),
        ("Imputer", {}, "no imputed values"),
        ("OneHotEncoder", {"cats_int64s": [1, 1]}, "some twice"),
        ("LabelEncoder", {"keys_int64s": [1], "values_int64s": [1]}, "keys that do not fit"),
        ("LinearRegressor", {"coefficients": [1.0], "targets": 1}, "1 coefficients for 1 classes"),
        ("SVMRegressor", {"coefficients": [1.0], "n_supports": 1, "support_vectors": [1.0]}, "1 numbers for 1 support vectors"),
    ],
)
def test_what_does_not_fit_is_left_to_the_definition_with_a_reason(operator: str, attrs: dict[str, Any], reason: str) -> None:
    _, reasons = expanded(ml_model(operator, {"x": np.zeros((2, 3), np.float32)}, **attrs))
    assert len(reasons) == 1
    assert reason in reasons[0]


@pytest.mark.parametrize("rows", [1, 8, 9, 30])
@pytest.mark.parametrize("strings", [False, True])
def test_a_session_gives_dictionaries_and_labels_behind_one_native_call(rows: int, strings: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    labels: dict[str, Any] = {"classlabels_strings": ["a", "b", "c"]} if strings else {"classlabels_ints": [3, 5, 4]}
    content = ml_model(
        "LinearClassifier",
        {"x": x},
        outputs=2,
        coefficients=floats(rng, 9),
        intercepts=floats(rng, 3),
        post_transform="SOFTMAX",
        **labels,
    )
    keys = {"classlabels_strings": ["a", "b", "c"]} if strings else {"classlabels_int64s": [3, 5, 4]}
    content.graph.node.append(helper.make_node("ZipMap", ["y1"], ["z"], domain="ai.onnx.ml", **keys))
    content.graph.output.append(helper.make_empty_tensor_value_info("z"))
    session = InferenceSession(content.SerializeToString())
    reference = InferenceSession(content.SerializeToString(), providers=["SardonyxReferenceExecutionProvider"])
    for _ in range(3):
        found, wanted = session.run(None, {"x": x}), reference.run(None, {"x": x})
        assert found[0].tolist() == wanted[0].tolist()
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5)
        assert [list(row) for row in found[2]] == [list(row) for row in wanted[2]]
        assert all(type(value) is float for row in found[2] for value in row.values())
        np.testing.assert_allclose([list(row.values()) for row in found[2]], wanted[1], rtol=1e-5)
        assert session._opened.run_fast({"x": x}) is not None
    first = session.run(None, {"x": x})
    session.run(None, {"x": -x})
    assert first[0].tolist() == found[0].tolist()  # what was given out does not change
    with pytest.raises(errors.SardonyxError):
        session.run(None, {"x": x[:, :2]})
