"""Linear models and support vector machines become matrix products.

    y = ai.onnx.ml::LinearRegressor(x)             =>   y = Gemm(x, coefficients, intercepts)
    l, p = ai.onnx.ml::LinearClassifier(x)         =>   s = Gemm(x, coefficients, intercepts)
        {post_transform = SOFTMAX}                      l = ArgMax(s); p = Softmax(s)
    y = ai.onnx.ml::SVMRegressor(x)                =>   k = Exp(-gamma * |x - vectors|^2), in float64
        {kernel_type = RBF}                             y = MatMul(k, coefficients) + rho
    y = ai.onnx.ml::SVMRegressor(x)                =>   y = Gemm(x, coefficients @ vectors, rho), in float64
        {kernel_type = LINEAR}

Runs after the portable passes. Refuses: inputs whose number of features is not known; models that are faulty: their definition
then says why, when they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.graph import Node, Value
from sardonyx.ir.tensor import Array
from sardonyx.ops.ml.ml_linear import class_pairs, pair_weights
from sardonyx.ops.ml.ml_scores import check_transform
from sardonyx.passes.classical_rule import ClassicalRule, ScoreRewriter
from sardonyx.passes.protocol import Reject
from sardonyx.records import dataclass

_OWN: Final = "sardonyx"
Made: TypeAlias = "Sequence[Value | None] | Reject"


def _matrix(g: ScoreRewriter, node: Node) -> tuple[Value, int] | Reject:
    """The input as a matrix of float32, and how many features it has."""
    x = node.inputs[0]
    rows = None if x is None else g.matrix(x)
    if rows is None or rows.shape is None:
        return Reject("the input is not known to be a matrix")
    features = rows.shape[1]
    if not isinstance(features, int) or features < 1:
        return Reject(f"the number of features, {features}, is not known")
    return g.cast(rows, dtypes.FLOAT32), features


def _product(g: ScoreRewriter, x: Value, rows: Array, addend: Array | None) -> Value:
    """x @ rows.T + addend."""
    weights = g.constant(np.ascontiguousarray(rows.T), "coefficients")
    return g.op("Gemm", x, weights) if addend is None else g.op("Gemm", x, weights, g.constant(addend, "intercepts"))


@dataclass(frozen=True)
class ExpandLinearModels(ClassicalRule):
    """Ensures: no LinearRegressor and no LinearClassifier that a matrix product could compute."""

    name: ClassVar[str] = "ExpandLinearModels"
    roots: ClassVar[frozenset[str]] = frozenset(("LinearRegressor", "LinearClassifier"))

    def rewrite(self, g: ScoreRewriter, node: Node, attrs: dict[str, Any]) -> Made:
        found = _matrix(g, node)
        if isinstance(found, Reject):
            return found
        x, features = found
        name = check_transform(attrs["post_transform"])
        intercepts = attrs.get("intercepts") or ()
        strings, numbers = attrs.get("classlabels_strings"), attrs.get("classlabels_ints")
        labels = list(strings or numbers or ())
        is_regressor = node.op_type == "LinearRegressor"
        count = attrs["targets"] if is_regressor else len(intercepts) if intercepts else max(len(labels), 1)
        coefficients = np.asarray(attrs.get("coefficients") or (), np.float32)
        if count < 1 or coefficients.size < count * features:
            return Reject(f"{coefficients.size} coefficients for {count} classes or targets of {features} features")
        weights = coefficients[: count * features].reshape(count, features)
        has_addend = len(intercepts) == count
        scores = _product(g, x, weights, np.asarray(intercepts, np.float32) if has_addend else None)
        if is_regressor:
            return [g.transformed(scores, name, count)]
        if count > 1:
            if count > len(labels):
                return Reject(f"{count} classes but {len(labels)} labels")
            return [g.labels(g.best(scores), labels), g.transformed(scores, name, count)]
        best = g.is_above(scores, 0.0)
        if len(labels) != 2:
            return [g.labels(best, ["0", "1"] if strings else [0, 1]), g.transformed(scores, name, 1)]
        return [g.labels(best, labels), g.two_columns(scores, name, one_sign=True)]


def _kernel(g: ScoreRewriter, x: Value, vectors: Array, attrs: dict[str, Any]) -> Value | Reject:
    """The kernel of each row with each support vector, in float32, where it is not linear."""
    kind, parameters = attrs["kernel_type"], attrs.get("kernel_params") or (0.0, 0.0, 0.0)
    if len(parameters) != 3 or kind not in ("POLY", "RBF", "SIGMOID"):
        return Reject(f"kernel_type is {kind!r} with {len(parameters)} parameters")
    gamma, coef0, degree = (float(np.float32(value)) for value in parameters)
    if kind == "RBF":
        # |x - v|^2 from the products loses all digits in float32 where x is near v; float64 keeps enough.
        wide, support = g.cast(x, dtypes.FLOAT64), vectors.astype(np.float64)
        lengths = g.op("ReduceSum", g.op("Mul", wide, wide), g.int64s(1))
        products = _product(g, wide, -2 * support, (support**2).sum(axis=1))
        squares = g.op("Max", g.op("Add", products, lengths), g.scalar(wide, 0.0))
        exponents = g.cast(g.op("Mul", squares, g.scalar(squares, -gamma)), dtypes.FLOAT32)
        return g.op("Exp", exponents)
    products = _product(g, x, vectors, None)
    affine = g.op("Add", g.op("Mul", products, g.scalar(products, gamma)), g.scalar(products, coef0))
    if kind == "SIGMOID":
        return g.op("Tanh", affine)
    if degree not in (1.0, 2.0, 3.0):
        return g.op("Pow", affine, g.scalar(affine, degree))
    made = affine
    for _ in range(int(degree) - 1):
        made = g.op("Mul", made, affine)
    return made


def _weighted_kernels(
    g: ScoreRewriter, x: Value, vectors: Array, weights: Array, offsets: Array, attrs: dict[str, Any]
) -> Value | Reject:
    """Sums of the kernels of each row, with weights [sums, vectors], in float64."""
    if (
        attrs["kernel_type"] == "LINEAR" and len(attrs.get("kernel_params") or (0, 0, 0)) == 3
    ):  # the weighted sum of products is the product with the weighted sum
        return _product(g, g.cast(x, dtypes.FLOAT64), weights @ vectors.astype(np.float64), offsets)
    kernel = _kernel(g, x, vectors, attrs)
    if isinstance(kernel, Reject):
        return kernel
    if len(weights) > 1:
        return _product(g, g.cast(kernel, dtypes.FLOAT64), weights, offsets)
    # Kernels are rounded to float32, and so may be their products with the weights; half as much is written as in float64.
    weighted = g.op("Mul", kernel, g.row(kernel, weights))
    total = g.op("ReduceSum", g.cast(weighted, dtypes.FLOAT64), g.int64s(1))
    return g.op("Add", total, g.constant(offsets.astype(np.float64), "intercepts"))


@dataclass(frozen=True)
class ExpandSupportVectors(ClassicalRule):
    """Ensures: no support vector machine that matrix products could compute."""

    name: ClassVar[str] = "ExpandSupportVectors"
    roots: ClassVar[frozenset[str]] = frozenset(("SVMRegressor", "SVMClassifier"))

    def rewrite(self, g: ScoreRewriter, node: Node, attrs: dict[str, Any]) -> Made:
        found = _matrix(g, node)
        if isinstance(found, Reject):
            return found
        x, features = found
        weights = np.asarray(attrs.get("coefficients") or (), np.float32)
        if node.op_type == "SVMRegressor":
            return _regressor(g, x, features, weights, attrs)
        return _classifier(g, x, features, weights, attrs)


def _vectors(attrs: dict[str, Any], count: int, features: int) -> Array | Reject:
    flat = np.asarray(attrs.get("support_vectors") or (), np.float32)
    if flat.size != count * features:
        return Reject(f"{flat.size} numbers for {count} support vectors of {features} features")
    return flat.reshape(count, features)


def _regressor(g: ScoreRewriter, x: Value, features: int, weights: Array, attrs: dict[str, Any]) -> Made:
    count, rho = attrs["n_supports"], attrs.get("rho")
    offset = float(np.float32(rho[0] if rho else 0))
    if count > 0:
        vectors = _vectors(attrs, count, features)
        if isinstance(vectors, Reject) or len(weights) != count:
            return vectors if isinstance(vectors, Reject) else Reject(f"{len(weights)} coefficients for {count} support vectors")
        found = _weighted_kernels(g, x, vectors, weights.astype(np.float64)[None], np.array([offset]), attrs)
        if isinstance(found, Reject):
            return found
        score = found
    else:
        if len(weights) != features:
            return Reject(f"{len(weights)} coefficients for {features} features")
        score = _product(g, x, weights[None], np.array([offset], np.float32))
    if attrs["one_class"]:
        above = g.op("Greater", score, g.scalar(score, 0.0))
        return [g.cast(g.op("Where", above, g.scalar(score, 1.0), g.scalar(score, -1.0)), dtypes.FLOAT32)]
    return [g.cast(score, dtypes.FLOAT32)]


def _classifier(g: ScoreRewriter, x: Value, features: int, weights: Array, attrs: dict[str, Any]) -> Made:
    name = check_transform(attrs["post_transform"])
    labels = list(attrs.get("classlabels_strings") or attrs.get("classlabels_ints") or ())
    classes, per_class, rho = len(labels), attrs.get("vectors_per_class") or (), attrs.get("rho") or ()
    prob_a, prob_b = attrs.get("prob_a") or (), attrs.get("prob_b") or ()
    if not classes:
        return Reject("there are no class labels")
    if not sum(per_class):
        return _without_vectors(g, x, features, weights, labels, name, float(np.float32(rho[0] if rho else 0)), bool(prob_a))
    pairs = class_pairs(classes)
    if len(per_class) != classes or min(per_class) < 0 or len(rho) < len(pairs):
        return Reject("vectors_per_class or rho does not fit the labels")
    if prob_a and (len(prob_a) < len(pairs) or len(prob_b) < len(pairs)):
        return Reject("prob_a or prob_b does not fit the labels")
    vectors = _vectors(attrs, sum(per_class), features)
    if isinstance(vectors, Reject):
        return vectors
    if not pairs:
        return Reject("there is one class")
    offsets = np.asarray(rho, np.float32)[: len(pairs)].astype(np.float64)
    exact = _weighted_kernels(g, x, vectors, pair_weights(attrs["coefficients"], per_class), offsets, attrs)
    if isinstance(exact, Reject):
        return exact
    scores = g.cast(exact, dtypes.FLOAT32)
    chosen = g.labels(_elected(g, exact, pairs, classes), labels)
    if prob_a:
        slope, shift = (np.asarray(values[: len(pairs)], np.float32) for values in (prob_a, prob_b))
        affine = g.op("Add", g.op("Mul", scores, g.row(scores, slope)), g.row(scores, shift))
        likely = g.op("Clip", g.op("Sigmoid", g.op("Neg", affine)), g.scalar(scores, 1e-7), g.scalar(scores, 1 - 1e-7))
        return [chosen, g.transformed(g.op("CoupledProbabilities", likely, domain=_OWN, classes=classes), name, classes)]
    if classes == 2:
        return [chosen, g.two_columns(scores, name, one_sign=name != "NONE")]
    return [chosen, g.transformed(scores, name, len(pairs))]


def _elected(g: ScoreRewriter, exact: Value, pairs: Sequence[tuple[int, int]], classes: int) -> Value:
    """The class with the most votes, of which each pair has one."""
    gains, all_against = np.zeros((len(pairs), classes), np.float32), np.zeros(classes, np.float32)
    for pair, (first, second) in enumerate(pairs):
        gains[pair, first], gains[pair, second] = 1, -1
        all_against[second] += 1
    for_first = g.cast(g.op("Greater", exact, g.scalar(exact, 0.0)), dtypes.FLOAT32)
    return g.best(_product(g, for_first, np.ascontiguousarray(gains.T), all_against))


def _without_vectors(
    g: ScoreRewriter,
    x: Value,
    features: int,
    weights: Array,
    labels: list[Any],
    name: str,
    offset: float,
    has_probabilities: bool,
) -> Made:
    classes = len(labels)
    if weights.size != classes * features:
        return Reject(f"{weights.size} coefficients for {classes} classes of {features} features")
    scores = _product(g, x, weights.reshape(classes, features), np.full(classes, offset, np.float32))
    best = g.best(scores)
    if classes == 2 and not has_probabilities:
        highest = g.op("ReduceMax", scores, g.int64s(1))
        limit, comparison = (0.5, "GreaterOrEqual") if weights.min() >= 0 else (0.0, "Greater")
        is_second = g.op(comparison, g.column_as_vector(highest), g.scalar(highest, limit))
        best = g.op("Where", is_second, g.int64s(1), best)
    return [g.labels(best, labels), g.transformed(scores, name, classes)]
