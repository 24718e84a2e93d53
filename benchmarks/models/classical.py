"""Models of classical machine learning as people export them from scikit-learn, LightGBM and XGBoost.

They are fitted on made-up tables: what a forest costs depends on its size, not on what it has learnt. Results are tensors but
for one model that gives a dictionary for each row, as converters do unless they are told otherwise.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, Final
from unittest import mock

import numpy as np

FEATURES: Final = 30
SAMPLES: Final = 4000
FEW_SAMPLES: Final = 1000  # for models that keep what they have learnt from
OPSETS: Final = {"": 18, "ai.onnx.ml": 3}
PACKAGES: Final = ("sklearn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost")

TOWNS: Final = np.array(
    ["Aachen", "Bologna", "Cork", "Delft", "Evora", "Faro", "Ghent", "Hamburg", "Izmir", "Jena", "Krakow", "Lyon"]
)
STARTS: Final = ("ba", "co", "di", "fe", "gu", "ha", "lo", "mi", "no", "pe", "ru", "sa", "te", "vi")
ENDS: Final = ("bel", "der", "gan", "kin", "lor", "mas", "nes", "pol", "ras", "tin", "ves", "zon")

Table = Any
Model = bytes


def missing() -> list[str]:
    """The packages that the models need and that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def feeds(name: str, count: int) -> dict[str, Any]:
    """So many rows to run a model on."""
    rng = np.random.default_rng(1)
    if name == "one_hot":
        return {"towns": rng.choice(TOWNS, (count, 2)), "numbers": rng.normal(size=(count, 8)).astype(np.float32)}
    if name == "text":
        return {"texts": _texts(rng, count)}
    return {"X": rng.normal(size=(count, FEATURES)).astype(np.float32)}


def _texts(rng: np.random.Generator, count: int) -> Any:
    words = np.array([f"{start}{end}" for start in STARTS for end in ENDS])
    return np.array([[" ".join(rng.choice(words, 12))] for _ in range(count)])


def _samples() -> tuple[Table, Table, Table]:
    """A table, a number for each row, and one of four classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    y = (x @ rng.normal(size=FEATURES) + 3 * np.sin(3 * x[:, 0]) + 2 * x[:, 1] * x[:, 2]).astype(np.float32)
    return x, y, np.digitize(y, [-4, 0, 4]).astype(np.int64)


def _boosted(library: str, estimator: Any, target: Table) -> Model:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    estimator.fit(_samples()[0], target)
    convert = getattr(onnxmltools, f"convert_{library}")
    model = convert(estimator, initial_types=[("X", FloatTensorType([None, FEATURES]))])
    content: bytes = model.SerializeToString()
    return content


def _fitted(estimator: Any, target: Table | None, samples: int = SAMPLES) -> Model:
    from skl2onnx import to_onnx

    x = _samples()[0][:samples]
    estimator.fit(x) if target is None else estimator.fit(x, target[:samples])
    options = {"zipmap": False} if hasattr(estimator, "predict_proba") else None
    content: bytes = to_onnx(estimator, x[:1], target_opset=OPSETS, options=options).SerializeToString()
    return content


def _lightgbm() -> Model:
    from lightgbm import LGBMRegressor

    return _boosted("lightgbm", LGBMRegressor(n_estimators=500, verbose=-1, n_jobs=1), _samples()[1])


def _xgboost() -> Model:
    from xgboost import XGBRegressor

    return _boosted("xgboost", XGBRegressor(n_estimators=300, max_depth=6, n_jobs=1), _samples()[1])


def _forest() -> Model:
    # Not of classes: which of two that have equally many votes wins depends on the order in which an engine adds up.
    from sklearn.ensemble import RandomForestRegressor

    return _fitted(RandomForestRegressor(200, random_state=0, n_jobs=1), _samples()[1])


def _logistic() -> Model:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _fitted(make_pipeline(StandardScaler(), LogisticRegression()), _samples()[2])


def _support_vectors() -> Model:
    from sklearn.svm import SVC

    return _fitted(SVC(probability=True, random_state=0), _samples()[2], FEW_SAMPLES)


def _neighbours() -> Model:
    from sklearn.neighbors import KNeighborsRegressor

    return _fitted(KNeighborsRegressor(5), _samples()[1], FEW_SAMPLES)


def _gaussian_process() -> Model:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    return _fitted(GaussianProcessRegressor(alpha=1.0, kernel=RBF()), _samples()[1], 300)


def _histogram() -> Model:
    from skl2onnx.common import tree_ensemble
    from sklearn.ensemble import HistGradientBoostingRegressor

    add_node = tree_ensemble.add_node

    def add_numbers(*given: Any, nodes_missing_value_tracks_true: int = 0, **more: Any) -> None:
        """The converter has booleans for leaves, and messages of ONNX take none."""
        add_node(*given, nodes_missing_value_tracks_true=int(nodes_missing_value_tracks_true), **more)

    with mock.patch.object(tree_ensemble, "add_node", add_numbers):
        return _fitted(HistGradientBoostingRegressor(max_iter=200, early_stopping=False, random_state=0), _samples()[1])


def _one_hot() -> Model:
    """Categories that are texts beside numbers; the probabilities come as one dictionary for each row."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    towns, numbers = rng.choice(TOWNS, (SAMPLES, 2)), rng.normal(size=(SAMPLES, 8))
    parts = [("towns", OneHotEncoder(handle_unknown="ignore"), [0, 1]), ("numbers", StandardScaler(), list(range(2, 10)))]
    estimator = make_pipeline(ColumnTransformer(parts), LogisticRegression())
    estimator.fit(np.concatenate([towns.astype(object), numbers.astype(object)], 1), rng.integers(0, 3, SAMPLES))
    types = [("towns", StringTensorType([None, 2])), ("numbers", FloatTensorType([None, 8]))]
    content: bytes = to_onnx(estimator, initial_types=types, target_opset=OPSETS).SerializeToString()
    return content


def _text() -> Model:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(0)
    estimator = make_pipeline(TfidfVectorizer(lowercase=False), LogisticRegression())
    estimator.fit(_texts(rng, SAMPLES)[:, 0], rng.integers(0, 3, SAMPLES))
    options = {id(estimator): {"zipmap": False}}
    types = [("texts", StringTensorType([None, 1]))]
    content: bytes = to_onnx(estimator, initial_types=types, target_opset=OPSETS, options=options).SerializeToString()
    return content


MAKERS: Final[dict[str, Callable[[], Model]]] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "forest": _forest,
    "logistic": _logistic,
    "support_vectors": _support_vectors,
    "neighbours": _neighbours,
    "gaussian_process": _gaussian_process,
    "histogram": _histogram,
    "one_hot": _one_hot,
    "text": _text,
}


def make(name: str) -> Model:
    """The file of a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MAKERS[name]()
