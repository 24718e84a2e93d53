"""Fit the example model logreg_iris.onnx: logistic regression of the iris data set, and write it.

    python tools/fit_iris_example.py            writes src/sardonyx/datasets/logreg_iris.onnx

Needs onnx and scikit-learn (for the data). The model has the inputs and outputs of ONNX Runtime's example of that name, with
weights of its own: of the four measures it knows sepal length and width, the two its input has. One classifier a species tells
it from the others; their probabilities are divided by their sum.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, checker, helper, save
from sklearn.datasets import load_iris

TARGET = Path(__file__).parent.parent / "src/sardonyx/datasets/logreg_iris.onnx"
STEPS = 30  # Newton's method has converged after ten
PENALTY = 1.0  # of the squared weights; it keeps the separable species from infinite ones


def fit(measures: NDArray[np.float64], is_species: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weights and, last, the intercept of a logistic regression, by Newton's method."""
    rows = np.column_stack([measures, np.ones(len(measures))])
    weights = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        probability = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (probability - is_species) + PENALTY * weights
        curvature = (rows.T * (probability * (1 - probability))) @ rows + PENALTY * np.eye(len(weights))
        weights -= np.linalg.solve(curvature, slope)
    return weights


def model_of(weights: NDArray[np.float64]) -> Any:
    """The ONNX model of one row of weights a species."""
    species = list(range(len(weights)))
    nodes = [
        helper.make_node(
            "LinearClassifier", ["float_input"], ["label", "scores"], domain="ai.onnx.ml", classlabels_ints=species,
            coefficients=weights[:, :-1].ravel().tolist(), intercepts=weights[:, -1].tolist(), multi_class=0,
            post_transform="LOGISTIC",
        ),
        helper.make_node("Normalizer", ["scores"], ["normalized"], domain="ai.onnx.ml", norm="L1"),
        helper.make_node("ZipMap", ["normalized"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=species),
    ]  # fmt: skip
    probabilities = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    graph = helper.make_graph(
        nodes,
        "logreg_iris",
        [helper.make_tensor_value_info("float_input", TensorProto.FLOAT, [3, 2])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [3]),
            helper.make_value_info("probabilities", helper.make_sequence_type_proto(probabilities)),
        ],
    )
    opsets = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 9)]
    return helper.make_model(graph, producer_name="sardonyx", ir_version=4, opset_imports=opsets)


def main() -> None:
    data, species = load_iris(return_X_y=True)
    measures = data[:, :2]
    weights = np.stack([fit(measures, (species == each).astype(np.float64)) for each in np.unique(species)])
    model = model_of(weights)
    checker.check_model(model)
    save(model, TARGET)
    right = ((np.column_stack([measures, np.ones(len(measures))]) @ weights.T).argmax(axis=1) == species).mean()
    print(f"{TARGET.name}: {right:.0%} of the flowers are recognised by their sepals")


if __name__ == "__main__":
    main()
