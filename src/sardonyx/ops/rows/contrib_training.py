"""Operators of com.microsoft that training models and optimizer models are made of.

ONNX Runtime's kernels change their inputs in place: the accumulator its buffer, the optimizers the weights and moments. Here an
operator changes nothing it is given; what it would have changed are its optional outputs, and who trains (`training.api`) asks
for them and makes them the new state. Sequences hold a tensor for each parameter.
"""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen

_FLAG = TensorType(dtypes.BOOL, (1,))
_NORM_OFFSET = 1e-6  # added to the norm before it divides its bound


def _number(value: Array, what: str) -> float:
    if value.size != 1:
        raise ValueError(f"the {what} has shape {value.shape}, expected one element")
    return float(value.reshape(()))


def _is_on(flag: Array | None, default: bool) -> bool:
    return default if flag is None else bool(_number(flag, "flag"))


def _flag(value: bool) -> Array:
    return np.array([value])


def _rows(*sequences: list[Array]) -> list[tuple[Array, ...]]:
    """The tensors of each parameter; ValueError if the sequences disagree."""
    counts = {len(each) for each in sequences}
    if len(counts) > 1:
        raise ValueError(f"the sequences hold {', '.join(str(len(each)) for each in sequences)} tensors, expected equally many")
    rows = list(zip(*sequences))
    for number, row in enumerate(rows):
        if any(each.shape != row[0].shape for each in row):
            raise ValueError(f"tensors {number} have shapes {', '.join(str(each.shape) for each in row)}, expected equal ones")
    return rows


def _adamw(
    lr: Array,
    step: Array,
    weights: list[Array],
    gradients: list[Array],
    momentums_1: list[Array],
    momentums_2: list[Array],
    update_signal: Array | None = None,
    *,
    adam_mode: int,
    alpha: float,
    beta: float,
    correct_bias: int,
    epsilon: float,
    weight_decay: float,
) -> tuple[Array, list[Array], list[Array], list[Array]]:
    if adam_mode not in (0, 1):
        raise ValueError(f"adam_mode is {adam_mode}, expected 0 (PyTorch) or 1 (transformers)")
    if not _is_on(update_signal, True):
        return _flag(False), weights, momentums_1, momentums_2
    rate, count = _number(lr, "learning rate"), _number(step, "step")
    first, second = (1 - alpha**count, 1 - beta**count) if correct_bias else (1.0, 1.0)
    updated: list[tuple[Array, Array, Array]] = []
    with np.errstate(all="ignore"):
        for weight, gradient, moment_1, moment_2 in _rows(weights, gradients, momentums_1, momentums_2):
            w, g = widen(weight), widen(gradient)
            kind = w.dtype.type
            m = kind(alpha) * widen(moment_1) + kind(1 - alpha) * g
            v = kind(beta) * widen(moment_2) + kind(1 - beta) * (g * g)
            if adam_mode == 0:
                w = w * kind(1 - rate * weight_decay)
                w = w - kind(rate / first) * m / (np.sqrt(v) / kind(np.sqrt(second)) + kind(epsilon))
            else:
                w = w - kind(rate * np.sqrt(second) / first) * m / (np.sqrt(v) + kind(epsilon))
                w = w - kind(rate * weight_decay) * w
            updated.append((narrow(w, weight.dtype), narrow(m, moment_1.dtype), narrow(v, moment_2.dtype)))
    columns = [[np.asarray(row[each]) for row in updated] for each in range(3)]
    return _flag(True), columns[0], columns[1], columns[2]


def _sgd(
    lr: Array, weights: list[Array], gradients: list[Array], update_signal: Array | None = None
) -> tuple[Array, list[Array]]:
    if not _is_on(update_signal, True):
        return _flag(False), weights
    rate = _number(lr, "learning rate")
    with np.errstate(all="ignore"):
        updated = [
            np.asarray(narrow(widen(weight) - widen(weight).dtype.type(rate) * widen(gradient), weight.dtype))
            for weight, gradient in _rows(weights, gradients)
        ]
    return _flag(True), updated


def _clip_grad_norm(gradients: list[Array], *, max_norm: float, norm_type: str) -> list[Array]:
    if norm_type != "fro":
        raise ValueError(f"norm_type is {norm_type!r}, expected 'fro'")
    with np.errstate(all="ignore"):
        total = np.sqrt(sum(float(np.sum(each.astype(np.float64) ** 2)) for each in gradients))
        factor = np.minimum(max_norm / (total + _NORM_OFFSET), 1.0)
        return [np.asarray(narrow(widen(each) * widen(each).dtype.type(factor), each.dtype)) for each in gradients]


def _accumulate(buffer: Array, value: Array, overwrite_flag: Array | None = None) -> tuple[Array, Array]:
    if buffer.shape != value.shape:
        raise ValueError(f"the buffer has shape {buffer.shape}, the value {value.shape}: expected equal ones")
    if _is_on(overwrite_flag, False):
        return _flag(True), np.asarray(value.astype(buffer.dtype))
    with np.errstate(all="ignore"):
        return _flag(True), np.asarray(narrow(widen(buffer) + widen(value).astype(widen(buffer).dtype), buffer.dtype))


def _infer_adamw(ctx: InferContext) -> InferResult:
    return [_FLAG, ctx.type(2), ctx.type(4), ctx.type(5)]


def _infer_accumulate(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    if shape is not None:
        ctx.expect_shape(1, *shape)
    return [_FLAG, ctx.type(0)]


op("AdamWOptimizer", domain=MICROSOFT, eval=_adamw, infer=_infer_adamw)
op("SGDOptimizerV2", domain=MICROSOFT, eval=_sgd, infer=lambda ctx: [_FLAG, ctx.type(1)])
op("InplaceClipGradNorm", domain=MICROSOFT, eval=_clip_grad_norm, infer=lambda ctx: ctx.type(0))
op("InPlaceAccumulatorV2", domain=MICROSOFT, eval=_accumulate, infer=_infer_accumulate)


def _reduce_all_l2(*tensors: Array) -> Array:
    with np.errstate(all="ignore"):
        total = sum(float(np.sum(widen(each).astype(np.float64) ** 2)) for each in tensors)
        return np.asarray(narrow(np.asarray(np.sqrt(total)), tensors[0].dtype))


op(
    "ReduceAllL2",
    domain=MICROSOFT,
    eval=_reduce_all_l2,
    infer=lambda ctx: TensorType(first.dtype, ()) if isinstance(first := ctx.type(0), TensorType) else None,
)
