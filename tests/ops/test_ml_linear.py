"""Linear models and support vector machines against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contrib_oracle import evaluate
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ml_oracle import ML, TRANSFORMS, agree

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32).reshape(-1).tolist()


def labels(strings: bool, count: int) -> dict[str, Any]:
    if strings:
        return {"classlabels_strings": [f"class {index}" for index in range(count)]}
    return {"classlabels_ints": [5 * index + 2 for index in range(count)]}


@quick
@given(seed=seeds, targets=st.integers(1, 4), transform=st.sampled_from(TRANSFORMS[:4]), intercepts=st.booleans())
def test_linear_regressors_agree_with_onnxruntime(seed: int, targets: int, transform: str, intercepts: bool) -> None:
    rng = np.random.default_rng(seed)
    attrs: dict[str, Any] = {"coefficients": floats(rng, targets, 3), "targets": targets, "post_transform": transform}
    if intercepts:
        attrs["intercepts"] = floats(rng, targets)
    agree("LinearRegressor", rng.normal(size=(5, 3)).astype(np.float32), version=1, tolerance=1e-4, **attrs)


@quick
@given(
    seed=seeds, classes=st.integers(1, 4), transform=st.sampled_from(TRANSFORMS[:4]), strings=st.booleans(),
    dtype=st.sampled_from((np.float32, np.float64, np.int32, np.int64)),
)  # fmt: skip
def test_linear_classifiers_agree_with_onnxruntime(seed: int, classes: int, transform: str, strings: bool, dtype: Any) -> None:
    rng = np.random.default_rng(seed)
    attrs = labels(strings, max(classes, 2)) | {"coefficients": floats(rng, classes, 3), "intercepts": floats(rng, classes)}
    x = (rng.normal(size=(6, 3)) * 3).astype(dtype)
    agree("LinearClassifier", x, version=1, outputs=2, post_transform=transform, tolerance=1e-4, **attrs)


def test_probit_of_probabilities_is_the_normal_quantile() -> None:
    x = np.array([[0.5], [0.025], [0.975]], np.float32)
    (result,) = agree("LinearRegressor", x, version=1, coefficients=[1.0], targets=1, post_transform="PROBIT", tolerance=1e-4)
    np.testing.assert_allclose(result[:, 0], [0, -1.96, 1.96], atol=5e-3)


def test_a_vector_is_one_observation() -> None:
    (result,) = agree("LinearRegressor", np.array([1, 2], np.float32), version=1, coefficients=[3.0, 4.0], targets=1)
    assert result.tolist() == [[11.0]]


@quick
@given(seed=seeds, kernel=st.sampled_from(KERNELS), one_class=st.integers(0, 1), supports=st.integers(0, 4))
def test_support_vector_regressors_agree_with_onnxruntime(seed: int, kernel: str, one_class: int, supports: int) -> None:
    rng = np.random.default_rng(seed)
    attrs: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [0.4, 0.3, 3.0], "rho": floats(rng, 1)}
    attrs |= {"n_supports": supports, "support_vectors": floats(rng, supports, 3), "one_class": one_class}
    if not supports:
        del attrs["support_vectors"]
    attrs["coefficients"] = floats(rng, supports or 3)
    agree("SVMRegressor", rng.normal(size=(5, 3)).astype(np.float32), version=1, tolerance=1e-4, **attrs)


@quick
@given(
    seed=seeds, classes=st.integers(2, 4), kernel=st.sampled_from(KERNELS), transform=st.sampled_from(TRANSFORMS[:4]),
    strings=st.booleans(), probabilities=st.booleans(),
)  # fmt: skip
def test_support_vector_classifiers_agree_with_onnxruntime(
    seed: int, classes: int, kernel: str, transform: str, strings: bool, probabilities: bool
) -> None:
    rng = np.random.default_rng(seed)
    per_class = rng.integers(1, 4, classes).tolist()
    pairs = classes * (classes - 1) // 2
    attrs = labels(strings, classes) | {
        "kernel_type": kernel, "kernel_params": [0.4, 0.3, 2.0], "vectors_per_class": per_class, "rho": floats(rng, pairs),
        "support_vectors": floats(rng, sum(per_class), 3), "coefficients": floats(rng, classes - 1, sum(per_class)),
    }  # fmt: skip
    if probabilities:
        attrs |= {"prob_a": floats(rng, pairs), "prob_b": floats(rng, pairs)}
    agree(
        "SVMClassifier", rng.normal(size=(7, 3)).astype(np.float32), version=1, outputs=2, post_transform=transform,
        tolerance=2e-4, **attrs,
    )  # fmt: skip


@quick
@given(seed=seeds, classes=st.integers(2, 4), transform=st.sampled_from(TRANSFORMS[:4]), positive=st.booleans())
def test_classifiers_without_support_vectors_are_linear(seed: int, classes: int, transform: str, positive: bool) -> None:
    rng = np.random.default_rng(seed)
    weights = np.abs(floats(rng, classes, 3)) if positive else np.array(floats(rng, classes, 3))
    x = rng.normal(size=(7, 3)).astype(np.float32)
    scores = x @ weights.reshape(classes, 3).T.astype(np.float32)
    assume(np.ptp(np.sort(scores, axis=1)[:, -2:], axis=1).min() > 1e-5)
    attrs = labels(False, classes) | {"coefficients": weights.tolist(), "rho": [0.25], "kernel_params": [0.0, 0.0, 0.0]}
    agree("SVMClassifier", x, version=1, outputs=2, post_transform=transform, tolerance=1e-4, **attrs)


@pytest.mark.parametrize("features", [1, 2, 3])
@pytest.mark.parametrize("transform", TRANSFORMS[:4])
def test_linear_models_may_have_more_coefficients_than_the_input_has_features(features: int, transform: str) -> None:
    rng = np.random.default_rng(features)
    x = rng.normal(size=(5, features)).astype(np.float32)
    for count, classes in ((3, 3), (2, 2), (1, 2)):
        attrs = labels(False, classes) | {"coefficients": floats(rng, count, 4), "intercepts": floats(rng, count)}
        agree("LinearClassifier", x, version=1, outputs=2, post_transform=transform, **attrs)
    agree("LinearRegressor", x, version=1, post_transform=transform, targets=3, coefficients=floats(rng, 3, 4))


@pytest.mark.parametrize(
    ("name", "attrs", "message"),
    [
        ("LinearRegressor", {"coefficients": [1.0]}, "there are 1 coefficients; 1 classes or targets of 2 features need 2"),
        ("LinearRegressor", {"coefficients": [1.0, 1.0, 1.0], "targets": 2}, "2 classes or targets of 2 features need 4"),
        ("SVMRegressor", {"coefficients": [1.0, 2.0, 3.0]}, "the input has 2 features but the model 3"),
        ("LinearRegressor", {"coefficients": [1.0, 1.0], "post_transform": "X"}, "post_transform is 'X'; expected NONE"),
        (
            "SVMRegressor",
            {"n_supports": 1, "support_vectors": [1.0, 1.0], "coefficients": [1.0, 1.0]},
            "coefficients has 2 entries; expected one for each of 1",
        ),
        (
            "SVMRegressor",
            {"n_supports": 1, "support_vectors": [1.0, 1.0], "coefficients": [1.0], "kernel_type": "COSINE"},
            "kernel_type is 'COSINE'; expected LINEAR",
        ),
        (
            "SVMRegressor",
            {"n_supports": 1, "support_vectors": [1.0, 1.0], "coefficients": [1.0], "kernel_params": [1.0]},
            "kernel_params has 1 entries; expected gamma, coef0 and degree",
        ),
        ("SVMClassifier", {"coefficients": [1.0]}, "the model has no class labels"),
        (
            "SVMClassifier",
            {"classlabels_ints": [0, 1], "vectors_per_class": [1], "coefficients": [1.0]},
            "vectors_per_class has 1 entries but there are 2 labels",
        ),
        (
            "SVMClassifier",
            {"classlabels_ints": [0, 1], "vectors_per_class": [1, 1], "coefficients": [1.0, 1.0]},
            "rho has 0 entries; expected 1, one for each pair of classes",
        ),
        (
            "SVMClassifier",
            {"classlabels_ints": [0, 1], "vectors_per_class": [1, 1], "coefficients": [1.0], "rho": [0.0]},
            "coefficients has 1 entries; expected 1 for each of 2 vectors",
        ),
        (
            "LinearClassifier",
            {"coefficients": [1.0] * 6, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1]},
            "the model has 3 classes but 2 labels",
        ),
    ],
)  # fmt: skip
def test_models_that_make_no_sense_are_refused(name: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(name, [np.zeros((1, 2), np.float32)], domain=ML, version=1, outputs=2, **attrs)


def test_inputs_of_other_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the input has shape \(1, 1, 1\); expected \[C\] or \[N, C\]"):
        evaluate("LinearRegressor", [np.zeros((1, 1, 1), np.float32)], domain=ML, version=1, coefficients=[1.0])
