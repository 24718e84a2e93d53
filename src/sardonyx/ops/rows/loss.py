"""Losses of classifiers: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult
from sardonyx.ops.precision import narrow, widen


def _likelihood_loss(
    log_probabilities: Array, target: Array, weight: Array | None, *, ignore_index: int | None, reduction: str
) -> Array:
    """The loss from log-probabilities [N, C, ...] and classes [N, ...], in their computing type."""
    shape = log_probabilities.shape
    if len(shape) < 2 or target.shape != (shape[0], *shape[2:]):
        raise ValueError(
            f"classes of shape {target.shape} do not fit scores of shape {shape}: expected {(*shape[:1], *shape[2:])}"
        )
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"reduction is {reduction!r}, expected none, sum or mean")
    if weight is not None and weight.shape != (shape[1],):
        raise ValueError(f"the weights have shape {weight.shape}, expected ({shape[1]},): one for each class")
    ignored = np.zeros(target.shape, np.bool_) if ignore_index is None else target == ignore_index
    wrong = ~ignored & ((target < 0) | (target >= shape[1]))
    if wrong.any():
        raise IndexError(f"class {target[wrong].flat[0]} is out of range: there are {shape[1]} classes")
    chosen = np.where(ignored, 0, target).astype(np.int64)
    dtype = log_probabilities.dtype
    if shape[1]:
        picked = np.take_along_axis(log_probabilities, chosen[:, None], axis=1)[:, 0]
    else:  # without classes every target is ignored
        picked = np.zeros(target.shape, dtype)
    factors = np.ones(target.shape, dtype) if weight is None or not shape[1] else widen(weight).astype(dtype)[chosen]
    factors = np.where(ignored, dtype.type(0), factors)
    loss = np.where(ignored, dtype.type(0), -picked * factors)
    if reduction == "none":
        return np.asarray(loss)
    total = loss.sum()
    return np.asarray(total if reduction == "sum" else total / factors.sum(), dtype)


def _negative_log_likelihood_loss(
    x: Array, target: Array, weight: Array | None = None, *, ignore_index: int | None, reduction: str
) -> Array:
    with np.errstate(all="ignore"):
        return narrow(_likelihood_loss(widen(x), target, weight, ignore_index=ignore_index, reduction=reduction), x.dtype)


def log_softmax(x: Array, axis: int) -> Array:
    """log(softmax(x)) along an axis, without overflow."""
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def _softmax_cross_entropy_loss(
    scores: Array, labels: Array, weights: Array | None = None, *, ignore_index: int | None, reduction: str
) -> tuple[Array, Array]:
    if scores.ndim < 2:
        raise ValueError(f"scores has shape {scores.shape}, expected at least two axes")
    with np.errstate(all="ignore"):
        logarithms = log_softmax(widen(scores), 1)
        loss = _likelihood_loss(logarithms, labels, weights, ignore_index=ignore_index, reduction=reduction)
        return narrow(loss, scores.dtype), narrow(logarithms, scores.dtype)


def _loss_shape(ctx: InferContext) -> Shape | None:
    scores, target = ctx.shape(0), ctx.shape(1)
    if scores is not None and len(scores) > 1:
        ctx.expect_shape(1, scores[0], *scores[2:])
        ctx.expect_shape(2, scores[1])
    if ctx.attr("reduction") != "none":
        return ()
    return target if scores is None else (scores[0], *scores[2:])


def _infer_softmax_cross_entropy_loss(ctx: InferContext) -> InferResult:
    shapes: list[InferOne] = [_loss_shape(ctx), ctx.shape(0)]
    return shapes[: ctx.outputs]


NEGATIVE_LOG_LIKELIHOOD_LOSS = op(
    "NegativeLogLikelihoodLoss", eval=_negative_log_likelihood_loss, infer=_loss_shape, since=12, traits=Trait.REFUSES
)
SOFTMAX_CROSS_ENTROPY_LOSS = op(
    "SoftmaxCrossEntropyLoss",
    eval=_softmax_cross_entropy_loss,
    infer=_infer_softmax_cross_entropy_loss,
    since=12,
    traits=Trait.REFUSES,
)
