"""Models converted from scikit-learn, LightGBM and XGBoost: labels exactly, scores within the tolerance."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("sklearn", reason="`make models` installs it")
pytest.importorskip("skl2onnx", reason="`make models` installs it")
from comparing import assert_models_agree

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 6)).astype(np.float32)
CLASSES = (X[:, 0] + X[:, 1] > 0).astype(np.int64) + (X[:, 2] > 0.5)
BINARY = (X[:, 0] > 0).astype(np.int64)
NAMES = np.array(["low", "middle", "high"])[CLASSES]
TARGET = (X @ RNG.normal(size=6)).astype(np.float32)


def estimators() -> dict[str, Callable[[], Any]]:
    """Name -> a fitted estimator."""
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        gaussian_process,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )  # fmt: skip

    def fit(model: Any, y: Any) -> Callable[[], Any]:
        return lambda: model.fit(X, y)

    scaled = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    return {
        "random forest, three classes": fit(ensemble.RandomForestClassifier(20, random_state=0), CLASSES),
        "random forest, two classes": fit(ensemble.RandomForestClassifier(20, random_state=0), BINARY),
        "random forest, text labels": fit(ensemble.RandomForestClassifier(20, random_state=0), NAMES),
        "extra trees regressor": fit(ensemble.ExtraTreesRegressor(20, random_state=0), TARGET),
        "gradient boosting classifier": fit(ensemble.GradientBoostingClassifier(n_estimators=15, random_state=0), CLASSES),
        "gradient boosting regressor": fit(ensemble.GradientBoostingRegressor(n_estimators=15, random_state=0), TARGET),
        "decision tree": fit(tree.DecisionTreeClassifier(random_state=0), CLASSES),
        "scaler and logistic regression": fit(scaled, CLASSES),
        "logistic regression, two classes": fit(linear_model.LogisticRegression(), BINARY),
        "linear regression": fit(linear_model.LinearRegression(), TARGET),
        "stochastic gradient": fit(linear_model.SGDClassifier(random_state=0), CLASSES),
        "support vectors": fit(svm.SVC(random_state=0), CLASSES),
        "support vectors with probability": fit(svm.SVC(probability=True, random_state=0), CLASSES),
        "support vectors, two classes": fit(svm.SVC(probability=True, random_state=0), BINARY),
        "support vector regressor": fit(svm.SVR(), TARGET),
        "linear support vectors": fit(svm.LinearSVC(random_state=0), CLASSES),
        "nearest neighbours": fit(neighbors.KNeighborsClassifier(3), CLASSES),
        "perceptron": fit(neural_network.MLPClassifier((8,), max_iter=30, random_state=0), CLASSES),
        "k-means": fit(cluster.KMeans(4, random_state=0, n_init=2), None),
        "principal components": fit(decomposition.PCA(3), None),
        "naive Bayes": fit(naive_bayes.GaussianNB(), CLASSES),
        "Gaussian process": fit(gaussian_process.GaussianProcessRegressor(alpha=10.0), TARGET),
        "normalizer": fit(preprocessing.Normalizer(), None),
        "polynomial features": fit(preprocessing.PolynomialFeatures(2), None),
        "binarizer": fit(preprocessing.Binarizer(), None),
    }


@pytest.mark.parametrize("name", estimators())
def test_a_scikit_learn_model_gives_onnxruntimes_answer(name: str) -> None:
    from skl2onnx import to_onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = to_onnx(estimators()[name](), X[:1], target_opset={"": 18, "ai.onnx.ml": 3})
    assert_models_agree(model.SerializeToString(), {"X": X[:50]})


def test_strings_through_an_ordinal_encoder_give_onnxruntimes_answer() -> None:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.preprocessing import OrdinalEncoder

    words = RNG.choice(np.array(["red", "green", "blue"]), size=(50, 2)).astype(object)
    model = to_onnx(OrdinalEncoder().fit(words), initial_types=[("words", StringTensorType([None, 2]))])
    assert_models_agree(model.SerializeToString(), {"words": words})


@pytest.mark.parametrize("kind", ["classifier", "two classes", "regressor"])
@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_boosted_model_gives_onnxruntimes_answer(library: str, kind: str) -> None:
    made = pytest.importorskip(library)
    convert = pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    target = {"classifier": CLASSES, "two classes": BINARY, "regressor": TARGET}[kind]
    prefix = "LGBM" if library == "lightgbm" else "XGB"
    estimator = getattr(made, prefix + ("Regressor" if kind == "regressor" else "Classifier"))(n_estimators=20)
    estimator.fit(X, target)
    model = getattr(convert, f"convert_{library}")(estimator, initial_types=[("X", FloatTensorType([None, 6]))])
    assert_models_agree(model.SerializeToString(), {"X": X[:50]})
