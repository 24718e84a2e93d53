"""Attention as graphs write it out: softmax(scale * Q K^T + mask) V, over operands with or without an axis of heads.

Scores may be pressed into bounds first, tanh(scale * Q K^T) * cap. A mask of truth values puts `masked` in place of scores where
it is false. Query heads may share heads of K and V in groups.

The operator of ONNX gives zeros for a query that may see no key; a softmax gives NaN there, and so does this one, unless weights
are asked for `without_nan`: then 0 stands for each that is NaN.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir.dims import dim_max
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.products import matmul
from sardonyx.ops.rows.reduce import softmax

DOMAIN: Final = "sardonyx"


def _softmax_attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, *, cap: float, masked: float, scale: float, without_nan: int
) -> Array:
    if q.ndim == k.ndim == v.ndim == 4 and 0 < k.shape[1] == v.shape[1] < q.shape[1] and not q.shape[1] % k.shape[1]:
        k, v = (np.repeat(each, q.shape[1] // k.shape[1], axis=1) for each in (k, v))
    outer = q.shape[:-2]
    if not (q.ndim == k.ndim == v.ndim >= 2 and outer == k.shape[:-2] == v.shape[:-2]):
        raise ValueError(f"Q is {q.shape}, K {k.shape} and V {v.shape}: all axes but the last two must agree")
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError(f"Q is {q.shape}, K {k.shape} and V {v.shape}: sizes of heads or numbers of keys differ")
    with np.errstate(all="ignore"):
        kind = widen(q).dtype
        scores = matmul(widen(q), widen(k).swapaxes(-1, -2)) * np.float32(scale).astype(kind)
        if cap:
            scores = np.tanh(scores) * np.float32(cap).astype(kind)
        if mask is not None:
            if np.broadcast_shapes(scores.shape, mask.shape) != scores.shape or mask.shape[-1] != scores.shape[-1]:
                raise ValueError(f"the mask is {mask.shape}, the scores are {scores.shape}: expected an element for each key")
            scores = np.where(mask, scores, kind.type(masked)) if mask.dtype == np.bool_ else scores + widen(mask)
        weights = softmax(scores, scores.ndim - 1)
        if without_nan:
            weights = np.where(np.isnan(weights), kind.type(0), weights)
        return narrow(matmul(weights, widen(v)), q.dtype)


def _infer(ctx: InferContext) -> InferResult:
    q, k, v, mask = (ctx.shape(index) if ctx.has(index) else None for index in range(4))
    if q is None or k is None or v is None or not len(q) == len(k) == len(v) >= 2:
        return None
    for axis in range(len(q) - 2):
        ctx.expect_equal(v[axis], k[axis])
        if axis != 1 or len(q) != 4:
            ctx.expect_equal(k[axis], q[axis])
        elif k[1] != q[1]:
            ctx.expect_divisible(q[1], dim_max(k[1], 1))
    ctx.expect_equal(k[-1], q[-1])
    ctx.expect_equal(v[-2], k[-2])
    if mask:
        ctx.expect_equal(mask[-1], k[-2])
        ctx.expect_broadcast(mask[:-1], q[:-1])
    return (*q[:-1], v[-1])


SOFTMAX_ATTENTION = op("SoftmaxAttention", domain=DOMAIN, eval=_softmax_attention, infer=_infer)
