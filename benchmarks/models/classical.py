"""Models of classical machine learning as people export them from scikit-learn, LightGBM and XGBoost.

They are fitted on made-up tables: what a forest costs depends on its size, not on what it has learnt. Results are tensors, not
dictionaries, so that all engines give the same.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

FEATURES: Final = 30
SAMPLES: Final = 4000
FEW_SAMPLES: Final = 1000  # for models that keep what they have learnt from
OPSETS: Final = {"": 18, "ai.onnx.ml": 3}
PACKAGES: Final = ("sklearn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost")

Table = Any
Model = bytes


def missing() -> list[str]:
    """The packages that the models need and that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


def rows(count: int) -> Table:
    """So many rows to run on."""
    return np.random.default_rng(1).normal(size=(count, FEATURES)).astype(np.float32)


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


MAKERS: Final[dict[str, Callable[[], Model]]] = {
    "lightgbm": _lightgbm,
    "xgboost": _xgboost,
    "forest": _forest,
    "logistic": _logistic,
    "support_vectors": _support_vectors,
    "neighbours": _neighbours,
    "gaussian_process": _gaussian_process,
}


def make(name: str) -> Model:
    """The file of a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MAKERS[name]()
