"""Linear models and support vector machines of ai.onnx.ml.

Inputs are computed in float32. Labels and scores follow ONNX Runtime where ONNX leaves them open, see `ml_scores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import EvalContext, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.ml.ml_scores import (
    DOMAIN,
    check_transform,
    label_type,
    labels_of,
    logistic,
    row_count,
    rows_of,
    transform,
    two_columns,
)
from sardonyx.ops.products import einsum, matmul

Array = NDArray[Any]
Floats = Sequence[float]


def _matrix(ctx: EvalContext, values: Floats | None, rows: int, what: str) -> Array:
    """A flat attribute as a matrix of this many rows, made once for a node."""
    if what not in ctx.state:
        flat = np.asarray(values or (), np.float32)
        if not rows or flat.size % rows:
            raise ValueError(f"{what} has {flat.size} entries, which is not a multiple of {rows}")
        ctx.state[what] = flat.reshape(rows, -1)
    found: Array = ctx.state[what]
    return found


def _product(x: Array, weights: Array) -> Array:
    """x @ weights.T in float32."""
    if x.shape[1] != weights.shape[1]:
        raise ValueError(f"the input has {x.shape[1]} features but the model {weights.shape[1]}")
    with np.errstate(all="ignore"):
        return np.asarray(matmul(x.astype(np.float32), weights.T))


def _linear_scores(x: Array, coefficients: Floats | None, rows: int) -> Array:
    """The product of x with the first rows * features coefficients as a matrix; as in ONNX Runtime there may be more of them."""
    flat = np.asarray(coefficients or (), np.float32)
    needed = rows * x.shape[1]
    if rows < 0 or flat.size < needed:
        raise ValueError(f"there are {flat.size} coefficients; {rows} classes or targets of {x.shape[1]} features need {needed}")
    return _product(x, flat[:needed].reshape(rows, x.shape[1]))


def _linear_regressor(
    x: Array,
    *,
    coefficients: Floats | None,
    intercepts: Floats | None,
    post_transform: str,
    targets: int,
) -> Array:
    name = check_transform(post_transform)
    scores = _linear_scores(rows_of(x), coefficients, targets)
    if intercepts is not None and len(intercepts) == targets:
        scores = scores + np.asarray(intercepts, np.float32)
    return transform(scores, name)


op("LinearRegressor", domain=DOMAIN, eval=_linear_regressor, infer=lambda ctx: (row_count(ctx), ctx.attr("targets")))


def _linear_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] | None,
    classlabels_strings: Sequence[str] | None,
    coefficients: Floats,
    intercepts: Floats | None,
    post_transform: str,
) -> tuple[Array, Array]:
    name = check_transform(post_transform)
    labels = labels_of(classlabels_ints, classlabels_strings)
    count = len(intercepts) if intercepts else max(len(labels), 1)
    scores = _linear_scores(rows_of(x), coefficients, count)
    if intercepts:
        scores = scores + np.asarray(intercepts, np.float32)
    if count > 1:
        if count > len(labels):
            raise ValueError(f"the model has {count} classes but {len(labels)} labels")
        return labels[scores.argmax(axis=1)], transform(scores, name)
    if len(labels) != 2:
        labels = labels_of((0, 1), ("0", "1") if classlabels_strings else None)
        return labels[(scores[:, 0] > 0).astype(np.intp)], transform(scores, name)
    return labels[(scores[:, 0] > 0).astype(np.intp)], two_columns(scores[:, 0], name, one_sign=True)


def _infer_linear_classifier(ctx: InferContext) -> InferResult:
    rows = row_count(ctx)
    labels = len(ctx.attr("classlabels_strings") or ctx.attr("classlabels_ints") or ())
    count = len(ctx.attr("intercepts") or ()) or max(labels, 1)
    width = 2 if count == 1 and labels == 2 else count
    return [label_type(ctx, "classlabels_strings", rows), TensorType(dtypes.FLOAT32, (rows, width))]


op("LinearClassifier", domain=DOMAIN, eval=_linear_classifier, infer=_infer_linear_classifier)


def _kernel(x: Array, vectors: Array, kind: str, parameters: Floats | None) -> Array:
    """The kernel of each row of x with each support vector."""
    if parameters and len(parameters) != 3:
        raise ValueError(f"kernel_params has {len(parameters)} entries; expected gamma, coef0 and degree")
    gamma, coef0, degree = (np.float32(value) for value in parameters or (0, 0, 0))
    if kind == "RBF":
        if x.shape[1] != vectors.shape[1]:
            raise ValueError(f"the input has {x.shape[1]} features but the model {vectors.shape[1]}")
        # |x - v|^2 from the products loses all digits in float32 where x is near v; float64 keeps enough.
        wide, support = x.astype(np.float64), vectors.astype(np.float64)
        with np.errstate(all="ignore"):
            squares = (wide**2).sum(axis=1)[:, None] + (support**2).sum(axis=1) - 2 * matmul(wide, support.T)
            return np.asarray(np.exp(-gamma * np.maximum(squares, 0)), np.float32)
    products = _product(x, vectors)
    if kind == "LINEAR":
        return products
    with np.errstate(all="ignore"):
        affine = gamma * products + coef0
        if kind == "POLY":
            return np.asarray(affine**degree)
        if kind == "SIGMOID":
            return np.asarray(np.tanh(affine))
    raise ValueError(f"kernel_type is {kind!r}; expected LINEAR, POLY, RBF or SIGMOID")


def _svm_regressor(
    x: Array,
    *,
    coefficients: Floats | None,
    kernel_params: Floats | None,
    kernel_type: str,
    n_supports: int,
    one_class: int,
    rho: Floats | None,
    support_vectors: Floats | None,
    ctx: EvalContext,
) -> Array:
    x = rows_of(x)
    weights = _matrix(ctx, coefficients, 1, "coefficients")[0]
    offset = np.float32(rho[0] if rho else 0)
    if n_supports > 0:
        vectors = _matrix(ctx, support_vectors, n_supports, "support_vectors")
        if len(weights) != n_supports:
            raise ValueError(f"coefficients has {len(weights)} entries; expected one for each of {n_supports} support vectors")
        # Large terms of both signs cancel near the decision boundary: float64 keeps the digits that are left.
        kernel = _kernel(x, vectors, kernel_type, kernel_params)
        score = matmul(kernel.astype(np.float64), weights.astype(np.float64)) + offset
    else:
        score = _product(x, weights.reshape(1, -1))[:, 0] + offset
    if one_class:
        score = np.where(score > 0, np.float32(1), np.float32(-1))
    return np.asarray(score, np.float32).reshape(-1, 1)


op("SVMRegressor", domain=DOMAIN, eval=_svm_regressor, infer=lambda ctx: (row_count(ctx), 1))


def class_pairs(classes: int) -> list[tuple[int, int]]:
    """Every class against each behind it."""
    return [(first, second) for first in range(classes) for second in range(first + 1, classes)]


def pair_weights(coefficients: Floats, vectors_per_class: Sequence[int]) -> Array:
    """The weight of each support vector in the decision between each pair of classes: [pairs, vectors].

    libsvm stores, for a vector of class c, its weights against the other classes in order: row j of `coefficients` is against
    class j if j < c, else against class j + 1.
    """
    classes, vectors = len(vectors_per_class), sum(vectors_per_class)
    if len(coefficients) < (classes - 1) * vectors:
        raise ValueError(f"coefficients has {len(coefficients)} entries; expected {classes - 1} for each of {vectors} vectors")
    rows = np.asarray(coefficients[: (classes - 1) * vectors], np.float64).reshape(classes - 1, vectors)
    stops = np.cumsum(vectors_per_class)
    starts = stops - np.asarray(vectors_per_class)
    result = np.zeros((classes * (classes - 1) // 2, vectors))
    for pair, (first, second) in enumerate(class_pairs(classes)):
        one, other = slice(starts[first], stops[first]), slice(starts[second], stops[second])
        result[pair, one] = rows[second - 1, one]
        result[pair, other] = rows[first, other]
    return result


def _coupled(scores: Array, prob_a: Floats, prob_b: Floats, classes: int) -> Array:
    """Probabilities of the classes from the scores of all pairs: Platt's sigmoid, then pairwise coupling by Wu, Lin and Weng.

    All rows iterate together; a row stops when its error is below libsvm's bound, so that results agree with it.
    """
    count = len(class_pairs(classes))
    if len(prob_a) < count or len(prob_b) < count:
        raise ValueError(f"prob_a has {len(prob_a)} and prob_b {len(prob_b)} entries; expected {count}, one for each pair")
    slope, shift = (np.asarray(values[:count], np.float32) for values in (prob_a, prob_b))
    return coupled(np.clip(1 - logistic(scores * slope + shift), np.float32(1e-7), np.float32(1 - 1e-7)), classes)


def coupled(likely: Array, classes: int) -> Array:
    """Probabilities of the classes, from those of the first class of each pair: [rows, pairs]."""
    pairs, rows = class_pairs(classes), len(likely)
    r = np.zeros((rows, classes, classes), np.float32)
    for pair, (first, second) in enumerate(pairs):
        r[:, first, second] = likely[:, pair]
        r[:, second, first] = 1 - likely[:, pair]
    q = -r * r.transpose(0, 2, 1)
    diagonal = (r**2).sum(axis=1)
    q[:, range(classes), range(classes)] = diagonal
    p = np.full((rows, classes), 1 / classes, np.float32)
    bound = np.float32(0.005 / classes)
    active = np.arange(rows)
    for _ in range(100):
        qa, pa, da = q[active], p[active], diagonal[active]
        qp = einsum("nij,nj->ni", qa, pa)
        pqp = (pa * qp).sum(axis=1)
        going = np.abs(qp - pqp[:, None]).max(axis=1) >= bound
        active = active[going]
        if not len(active):
            break
        qa, pa, da, qp, pqp = qa[going], pa[going], da[going], qp[going], pqp[going]
        for index in range(classes):
            step = (pqp - qp[:, index]) / da[:, index]
            pa[:, index] += step
            pqp = (pqp + step * (step * da[:, index] + 2 * qp[:, index])) / (1 + step) ** 2
            qp = (qp + step[:, None] * qa[:, index]) / (1 + step)[:, None]
            pa /= (1 + step)[:, None]
        p[active] = pa
    return p


def _svm_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] | None,
    classlabels_strings: Sequence[str] | None,
    coefficients: Floats | None,
    kernel_params: Floats | None,
    kernel_type: str,
    post_transform: str,
    prob_a: Floats | None,
    prob_b: Floats | None,
    rho: Floats | None,
    support_vectors: Floats | None,
    vectors_per_class: Sequence[int] | None,
    ctx: EvalContext,
) -> tuple[Array, Array]:
    name = check_transform(post_transform)
    x = rows_of(x).astype(np.float32)
    labels = labels_of(classlabels_ints, classlabels_strings)
    classes, weights = len(labels), coefficients or ()
    if not classes:
        raise ValueError("the model has no class labels: set classlabels_ints or classlabels_strings")
    if not vectors_per_class or not sum(vectors_per_class):
        offset = np.float32(rho[0] if rho else 0)
        scores = _product(x, _matrix(ctx, weights, classes, "coefficients")) + offset
        best = scores.argmax(axis=1)
        if classes == 2 and not prob_a:
            highest = scores.max(axis=1, initial=-np.inf)
            best[highest >= 0.5 if min(weights) >= 0 else highest > 0] = 1
        return labels[best], transform(scores, name)
    if len(vectors_per_class) != classes:
        raise ValueError(f"vectors_per_class has {len(vectors_per_class)} entries but there are {classes} labels")
    pairs = class_pairs(classes)
    if len(rho or ()) < len(pairs):
        raise ValueError(f"rho has {len(rho or ())} entries; expected {len(pairs)}, one for each pair of classes")
    if "weights" not in ctx.state:
        ctx.state["weights"] = pair_weights(weights, vectors_per_class)
    vectors = _matrix(ctx, support_vectors, sum(vectors_per_class), "support_vectors")
    kernel = _kernel(x, vectors, kernel_type, kernel_params)
    exact = matmul(kernel.astype(np.float64), ctx.state["weights"].T) + np.asarray(rho, np.float32)[: len(pairs)]
    votes = np.zeros((len(x), classes), np.int64)
    for pair, (first, second) in enumerate(pairs):
        votes[:, first] += exact[:, pair] > 0
        votes[:, second] += exact[:, pair] <= 0
    chosen = labels[votes.argmax(axis=1)]
    scores = exact.astype(np.float32)
    if prob_a:
        return chosen, transform(_coupled(scores, prob_a, prob_b or (), classes), name)
    if classes == 2:
        return chosen, two_columns(scores[:, 0], name, one_sign=name != "NONE")
    return chosen, transform(scores, name)


def _infer_svm_classifier(ctx: InferContext) -> InferResult:
    rows = row_count(ctx)
    classes = len(ctx.attr("classlabels_strings") or ctx.attr("classlabels_ints") or ())
    width = classes
    if sum(ctx.attr("vectors_per_class") or ()) and not ctx.attr("prob_a") and classes > 2:
        width = classes * (classes - 1) // 2
    return [label_type(ctx, "classlabels_strings", rows), TensorType(dtypes.FLOAT32, (rows, width))]


op("SVMClassifier", domain=DOMAIN, eval=_svm_classifier, infer=_infer_svm_classifier)


def _coupled_probabilities(likely: Array, *, classes: int) -> Array:
    """What passes make of the end of an SVMClassifier."""
    pairs = classes * (classes - 1) // 2
    if likely.ndim != 2 or likely.shape[1] != pairs:
        raise ValueError(f"the input has shape {likely.shape}; expected {pairs} pairs of {classes} classes for each row")
    with np.errstate(all="ignore"):
        return coupled(likely, classes)


def _infer_coupled(ctx: InferContext) -> InferResult:
    shape, classes = ctx.shape(0, rank=2), ctx.attr("classes")
    if shape is None:
        return None
    ctx.expect_equal(shape[1], classes * (classes - 1) // 2)
    return (shape[0], classes)


op("CoupledProbabilities", domain="sardonyx", eval=_coupled_probabilities, infer=_infer_coupled)
