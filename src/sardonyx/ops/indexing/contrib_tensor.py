"""Operators of com.microsoft on tensors as a whole that no other family holds: Inverse, CDist, Trilu, Unique, Range, Pad ...

Several were taken over by the standard later; they are the standard operators with the signature they had before.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.dims import Dim, floordiv, product
from sardonyx.ir.tensor import Array
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.creation.creation import RANGE, TRILU, infer_range
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.indexing.indexing import GATHER_ND, infer_gather_nd
from sardonyx.ops.indexing.selection import unique
from sardonyx.ops.indexing.slicing import PAD
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis, same_as, scalar
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.precision import narrow, rounded_once, widen
from sardonyx.ops.products import det, inv, matmul


def _inverse(x: Array) -> Array:
    """The inverse of every matrix; a singular one gives infinities, as a division by zero would."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"X is {x.shape}: expected square matrices in the last two axes")
    wide = widen(x)
    with np.errstate(all="ignore"):
        singular = det(wide) == 0 if wide.size else np.zeros(x.shape[:-2], bool)
        safe = np.where(singular[..., None, None], np.eye(x.shape[-1], dtype=wide.dtype), wide)
        result = np.where(singular[..., None, None], wide.dtype.type(np.inf), inv(safe))
    return narrow(result, x.dtype)


INVERSE = op("Inverse", domain=MICROSOFT, eval=_inverse, infer=same_as(0))


def _cdist(a: Array, b: Array, *, metric: str) -> Array:
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"A is {a.shape} and B {b.shape}: expected two matrices with equally long rows")
    if metric not in ("euclidean", "sqeuclidean"):
        raise ValueError(f"metric is {metric!r}; expected 'euclidean' or 'sqeuclidean'")
    with np.errstate(all="ignore"):
        squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - a.dtype.type(2) * matmul(a, b.T)
        squares = np.abs(squares)  # rounding may leave a small negative number
        return np.asarray(np.sqrt(squares) if metric == "euclidean" else squares)


def _infer_cdist(ctx: InferContext) -> InferResult:
    a, b = ctx.shape(0, rank=2), ctx.shape(1, rank=2)
    return None if a is None or b is None else (a[0], b[0])


CDIST = op("CDist", domain=MICROSOFT, eval=_cdist, infer=_infer_cdist)
OLD_TRILU = op("Trilu", domain=MICROSOFT, eval=TRILU.eval, infer=TRILU.infer)


def _unique(x: Array) -> tuple[Array, Array, Array]:
    """The distinct elements as they first appear, which of them stands at each position, and how often each one does."""
    values, _, inverse, counts = unique(x, None, False)
    return values, inverse, counts


def _infer_unique(ctx: InferContext) -> InferResult:
    shape, count = ctx.shape(0), ctx.fresh("unique")
    return [(count,), (ctx.fresh() if shape is None else product(shape),), (count,)]


OLD_UNIQUE = op("Unique", domain=MICROSOFT, eval=_unique, infer=_infer_unique, traits=Trait.DATA_SIZED)


def _expand_dims(x: Array, axis: Array) -> Array:
    return np.expand_dims(x, normalize_axis(int(axis.reshape(-1)[0]), x.ndim + 1))


def _infer_expand_dims(ctx: InferContext) -> InferResult:
    shape, axis = ctx.shape(0), ctx.ints(1)
    if shape is None:
        return None
    if axis is None:
        return ctx.unknown(len(shape) + 1)
    if len(axis) != 1:
        raise ValueError(f"axis has {len(axis)} elements, expected 1")
    at = normalize_axis(axis[0], len(shape) + 1)
    return (*shape[:at], 1, *shape[at:])


EXPAND_DIMS = op("ExpandDims", domain=MICROSOFT, eval=_expand_dims, infer=_infer_expand_dims, traits=Trait.VIEW)


def _range(start: Array, limit: Array, delta: Array | None = None) -> Array:
    step = np.ones((), start.dtype) if delta is None else delta
    result: Array = RANGE.eval(start.reshape(()), limit.reshape(()), step.reshape(()))
    return result


def _infer_range(ctx: InferContext) -> InferResult:
    if ctx.has(2):
        return infer_range(ctx)
    first, last = ctx.dims(0), ctx.dims(1)
    return (last[0] - first[0],) if first and last and isinstance(last[0] - first[0], int) else (ctx.fresh("range"),)


OLD_RANGE = op("Range", domain=MICROSOFT, eval=_range, infer=_infer_range)


def _pad(data: Array, pads: Array, value: Array | None = None, *, mode: str) -> Array:
    result: Array = PAD.eval(data, pads, value, mode=mode)
    return result


def _infer_pad(ctx: InferContext) -> InferResult:
    shape, pads = ctx.shape(0), ctx.dims(1)
    if shape is None or pads is None:
        return ctx.unknown(ctx.rank(0))
    if len(pads) != 2 * len(shape):
        raise ValueError(f"pads has {len(pads)} elements: expected {2 * len(shape)}, a begin and an end for each axis")
    return tuple(dim + pads[axis] + pads[axis + len(shape)] for axis, dim in enumerate(shape))


OLD_PAD = op("Pad", domain=MICROSOFT, eval=_pad, infer=_infer_pad)


def _gather_nd(data: Array, indices: Array) -> Array:
    result: Array = GATHER_ND.eval(data, indices, batch_dims=0)
    return result


OLD_GATHER_ND = op("GatherND", domain=MICROSOFT, eval=_gather_nd, infer=infer_gather_nd, traits=Trait.REFUSES)
SAMPLE_OP = op("SampleOp", domain=MICROSOFT, eval=lambda x: x, infer=same_as(0), traits=Trait.ELEMENTWISE | Trait.VIEW)


def _unfold_tensor(x: Array, *, dim: int, size: int, step: int) -> Array:
    """All windows of `size` elements along one axis, `step` apart; the windows' elements become a new last axis."""
    axis = normalize_axis(dim, x.ndim)
    if step < 1 or not 1 <= size <= x.shape[axis]:
        raise ValueError(f"size is {size} and step {step}: axis {axis} has {x.shape[axis]} elements")
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis=axis)
    return np.ascontiguousarray(windows[(slice(None),) * axis + (slice(None, None, step),)])


def _infer_unfold_tensor(ctx: InferContext) -> InferResult:
    shape, size = ctx.shape(0), int(ctx.attr("size"))
    if shape is None:
        return None
    axis = normalize_axis(ctx.attr("dim"), len(shape))
    count: Dim = floordiv(shape[axis] - size, int(ctx.attr("step"))) + 1
    return (*shape[:axis], count, *shape[axis + 1 :], size)


UNFOLD_TENSOR = op("UnfoldTensor", domain=MICROSOFT, eval=_unfold_tensor, infer=_infer_unfold_tensor)


def _dynamic_time_warping(x: Array) -> Array:
    """The cheapest monotone path through a cost matrix, as row and column indices [2, length].

    A step takes the diagonal or the row above only if that is cheaper than both others, else the column before.
    """
    costs = x.reshape(x.shape[-2:]) if x.ndim == 3 and x.shape[0] == 1 else x
    if costs.ndim != 2:
        raise ValueError(f"the input is {x.shape}, expected a matrix, or one with a leading axis of size 1")
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    steps = np.zeros((rows + 1, columns + 1), np.int8)
    for wave in range(2, rows + columns + 1):  # the cells of one antidiagonal depend on earlier ones only
        stop_if_asked()
        i = np.arange(max(1, wave - columns), min(rows, wave - 1) + 1)
        j = wave - i
        diagonal, above, before = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        step = np.where((diagonal < above) & (diagonal < before), 0, np.where((above < diagonal) & (above < before), 1, 2))
        total[i, j] = np.choose(step, [diagonal, above, before]) + costs[i - 1, j - 1]
        steps[i, j] = step
    path = []
    i_at, j_at = rows, columns
    while i_at > 0 and j_at > 0:
        path.append((i_at - 1, j_at - 1))
        step_back = steps[i_at, j_at]
        i_at -= int(step_back != 2)
        j_at -= int(step_back != 1)
    return np.array(path[::-1], np.int32).reshape(-1, 2).T.copy()


DYNAMIC_TIME_WARPING = op(
    "DynamicTimeWarping", domain=MICROSOFT, eval=_dynamic_time_warping, infer=lambda ctx: (2, ctx.fresh("path"))
)


def _is_all_finite(*inputs: Array, isinf_only: int, isnan_only: int) -> Array:
    """Whether no element of any input is infinite or NaN; or only the one kind is looked for."""
    if isinf_only and isnan_only:
        raise ValueError("isinf_only and isnan_only cannot both be set")
    test = np.isinf if isinf_only else np.isnan if isnan_only else lambda x: ~np.isfinite(x)
    return np.asarray(not any(bool(np.any(test(widen(x)))) for x in inputs))


IS_ALL_FINITE = op("IsAllFinite", domain=MICROSOFT, eval=_is_all_finite, infer=scalar)


def _complex_product(a: Array, b: Array, sign: int) -> Array:
    """Products of complex numbers kept as pairs in the last axis; sign -1 conjugates the second."""

    def compute(x: Array, y: Array) -> Array:
        real, imaginary = y[..., 0], y[..., 1] * x.dtype.type(sign)
        first = x[..., 0] * real - x[..., 1] * imaginary
        return np.stack([first, x[..., 0] * imaginary + x[..., 1] * real], axis=-1)

    return rounded_once(compute, a, b)


COMPLEX_MUL = op("ComplexMul", domain=MICROSOFT, eval=lambda a, b: _complex_product(a, b, 1), infer=same_as(0))
COMPLEX_MUL_CONJ = op("ComplexMulConj", domain=MICROSOFT, eval=lambda a, b: _complex_product(a, b, -1), infer=same_as(0))
