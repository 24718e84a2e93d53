"""Gradients that ONNX Runtime's training models of dense networks are made of, as operators of com.microsoft.

Training models made here have no need of them (`training.gradients` writes gradients as arithmetic); those that ONNX Runtime
made do.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen


def _same_shape(gradient: Array, value: Array) -> None:
    if gradient.shape != value.shape:
        raise ValueError(f"the gradient has shape {gradient.shape}, the value {value.shape}: expected equal ones")


def _relu_grad(gradient: Array, x: Array) -> Array:
    _same_shape(gradient, x)
    return np.asarray(np.where(x > 0, gradient, np.zeros((), gradient.dtype)))


def _sigmoid_grad(gradient: Array, y: Array) -> Array:
    _same_shape(gradient, y)
    with np.errstate(all="ignore"):
        return np.asarray(narrow(widen(gradient) * widen(y) * (1 - widen(y)), gradient.dtype))


def _tanh_grad(gradient: Array, y: Array) -> Array:
    _same_shape(gradient, y)
    with np.errstate(all="ignore"):
        return np.asarray(narrow(widen(gradient) * (1 - widen(y) * widen(y)), gradient.dtype))


def _cross_entropy_grad(
    gradient: Array,
    log_prob: Array,
    label: Array,
    weight: Array | None = None,
    *,
    ignore_index: int | None,
    reduction: str,
) -> Array:
    """(probability - 1 at the label) times the weight of the label, and times what the loss was divided by."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is {reduction!r}, expected mean, sum or none")
    if log_prob.ndim < 2 or label.shape != (log_prob.shape[0], *log_prob.shape[2:]):
        raise ValueError(f"the labels have shape {label.shape}, the logarithms {log_prob.shape}")
    classes = log_prob.shape[1]
    ignored = np.zeros(label.shape, bool) if ignore_index is None else label == ignore_index
    safe = np.where(ignored, 0, label)
    if safe.size and not 0 <= int(safe.min()) <= int(safe.max()) < classes:
        raise IndexError(f"labels lie between {safe.min()} and {safe.max()}, there are {classes} classes")
    logarithms = widen(log_prob)
    factors = np.ones(label.shape, logarithms.dtype) if weight is None else widen(weight)[safe].astype(logarithms.dtype)
    factors = np.where(ignored, logarithms.dtype.type(0), factors)
    with np.errstate(all="ignore"):
        scale = widen(gradient) / factors.sum() if reduction == "mean" else widen(gradient)
        result = np.exp(logarithms)
        np.put_along_axis(result, safe[:, None], np.take_along_axis(result, safe[:, None], 1) - 1, 1)
        result = result * (factors * scale)[:, None]
    return np.asarray(narrow(result, log_prob.dtype))


def _of_value(ctx: InferContext) -> InferResult:
    """A gradient has the type of what it is the gradient of."""
    shape = ctx.shape(1)
    if shape is not None:
        ctx.expect_shape(0, *shape)
    return ctx.type(1)


op("ReluGrad", domain=MICROSOFT, eval=_relu_grad, infer=_of_value)
op("SigmoidGrad", domain=MICROSOFT, eval=_sigmoid_grad, infer=_of_value)
op("TanhGrad", domain=MICROSOFT, eval=_tanh_grad, infer=_of_value)
op("SoftmaxCrossEntropyLossGrad", domain=MICROSOFT, eval=_cross_entropy_grad, infer=lambda ctx: ctx.type(1))
