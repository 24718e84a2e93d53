"""How many features a model of `ai.onnx.ml` was fitted on, by the attributes of the nodes that read an input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sardonyx.ir.graph import Node, Value

_ML: Final = "ai.onnx.ml"
_THROUGH: Final = frozenset(
    ("Cast", "Identity", "Imputer", "Scaler", "Normalizer", "Binarizer")
)  # as many features behind as before
_PER_FEATURE: Final = {"Scaler": ("offset", "scale"), "Imputer": ("imputed_value_floats", "imputed_value_int64s")}
_TREES: Final = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")


def feature_count(value: Value) -> int | None:
    """The number of features the readers of a matrix take; None if they do not say."""
    counts = [count for node in _readers(value) if (count := _count(node))]
    return max(counts, default=None)


def _readers(value: Value, depth: int = 0) -> Iterator[Node]:
    for node in value.consumers:
        yield node
        if node.op_type in _THROUGH and depth < 4:
            yield from _readers(node.outputs[0], depth + 1)


def _count(node: Node) -> int | None:
    if node.domain != _ML:
        return None
    for name in _PER_FEATURE.get(node.op_type, ()):
        if len(node.attr(name) or ()) > 1:
            return len(node.attr(name))
    if node.op_type in ("LinearClassifier", "LinearRegressor"):
        rows = len(node.attr("intercepts") or ()) or node.attr("targets", 1)
        return len(node.attr("coefficients") or ()) // max(int(rows), 1)
    if node.op_type == "ZipMap":
        return len(node.attr("classlabels_int64s") or node.attr("classlabels_strings") or ())
    if node.op_type in _TREES:
        ids = node.attr("nodes_featureids") or ()
        return max(ids, default=-1) + 1
    if node.op_type in ("SVMClassifier", "SVMRegressor"):
        vectors = sum(node.attr("vectors_per_class") or ()) or node.attr("n_supports", 0)
        return len(node.attr("support_vectors") or ()) // vectors if vectors else None
    return None
