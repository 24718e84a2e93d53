"""Operators that choose elements by value: TopK, NonZero, Compress, Unique.

NaN counts as greater than every number, and as equal to itself.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.dims import Dim, product
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferOne, InferResult, normalize_axis
from sardonyx.ops.precision import widen


def _order(values: Array, axis: int, largest: bool) -> Array:
    """The indices that sort along an axis, equal elements in their original order."""
    if not largest:
        return np.argsort(values, axis=axis, kind="stable")
    # Ascending from the far end and read backwards: descending, with equal elements in order.
    backwards = np.argsort(np.flip(values, axis), axis=axis, kind="stable")
    return np.asarray(values.shape[axis] - 1 - np.flip(backwards, axis))


def top_k(x: Array, count: int, axis: int, largest: bool = True) -> tuple[Array, Array]:
    """The first `count` elements in sorted order and where they were."""
    axis = normalize_axis(axis, x.ndim)
    if not 0 <= count <= x.shape[axis]:
        raise ValueError(f"k is {count}, but axis {axis} of shape {x.shape} has {x.shape[axis]} elements")
    chosen = np.take(_order(widen(x), axis, largest), np.arange(count), axis=axis)
    return np.take_along_axis(x, chosen, axis=axis), chosen.astype(np.int64, copy=False)


def _single(k: Array) -> int:
    if k.size != 1:
        raise ValueError(f"K has shape {k.shape}: expected one number")
    return int(k.reshape(()))


def _top_k(x: Array, k: Array, *, axis: int, largest: int | None, sorted: int | None) -> tuple[Array, Array]:
    return top_k(x, _single(k), axis, largest != 0)


def _with_size(shape: Shape, axis: int, size: Dim) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def infer_top_k(ctx: InferContext) -> InferResult:
    """The input's shape with k elements on the axis, twice."""
    shape = ctx.shape(0)
    if shape is None:
        return [None, None]
    axis = normalize_axis(ctx.attr("axis"), len(shape))
    counts = (ctx.attr("k"),) if ctx.version < 10 else ctx.dims(1)
    if ctx.version >= 10:
        ctx.expect_equal(product(ctx.shape(1) or ()), 1)
    if counts:
        ctx.expect_at_most(counts[0], shape[axis])
    result = _with_size(shape, axis, counts[0] if counts else ctx.fresh())
    return [result, result]


TOP_K_1 = op("TopK", eval=lambda x, *, axis, k: top_k(x, k, axis), infer=infer_top_k, traits=Trait.AHEAD)
TOP_K = op("TopK", eval=_top_k, infer=infer_top_k, since=10, traits=Trait.AHEAD)


def _non_zero(x: Array) -> Array:
    """One column an element; a scalar has no coordinates, so its columns are empty."""
    if x.ndim == 0:
        return np.zeros((0, int(bool(x))), np.int64)
    return np.stack(np.nonzero(x)).astype(np.int64, copy=False)


def infer_non_zero(ctx: InferContext) -> InferResult:
    """As many rows as dimensions; the number of columns depends on the data."""
    rank = ctx.rank(0)
    return (ctx.fresh() if rank is None else rank, ctx.fresh("nonzero"))


NON_ZERO = op("NonZero", eval=_non_zero, infer=infer_non_zero, since=9, traits=Trait.AHEAD | Trait.DATA_SIZED)


def _compress(x: Array, condition: Array, *, axis: int | None) -> Array:
    along = None if axis is None else normalize_axis(axis, x.ndim)
    size = x.size if along is None else x.shape[along]
    chosen = np.flatnonzero(condition)
    if chosen.size and chosen[-1] >= size:
        raise IndexError(f"condition selects element {chosen[-1]}, but there are {size}")
    return np.take(x.reshape(-1) if along is None else x, chosen, axis=along or 0)


def infer_compress(ctx: InferContext) -> InferResult:
    """The chosen axis shrinks to the number of true conditions."""
    condition = ctx.constant(1)
    count = ctx.fresh("compress") if condition is None else int(np.count_nonzero(condition))
    axis, shape = ctx.attr("axis"), ctx.shape(0)
    if axis is None:
        return (count,)
    return None if shape is None else _with_size(shape, normalize_axis(axis, len(shape)), count)


COMPRESS = op("Compress", eval=_compress, infer=infer_compress, since=9, traits=Trait.AHEAD | Trait.DATA_SIZED)


def _comparable(x: Array) -> Array:
    """Numbers that compare as the elements do: themselves, or their ranks if some are equal to nothing, or are no numbers."""
    if x.dtype == object:  # texts are hashed, and few of them sorted
        texts = x.reshape(-1).tolist()
        ranks = {text: rank for rank, text in enumerate(sorted(set(texts)))}
        return np.fromiter(map(ranks.__getitem__, texts), np.int64, len(texts)).reshape(x.shape)
    wide = widen(x)
    if wide.dtype.kind in "iub" or (wide.dtype.kind == "f" and not np.isnan(wide).any()):
        return wide
    return np.unique(wide.reshape(-1), return_inverse=True)[1].reshape(x.shape)


def unique(x: Array, axis: int | None, in_order: bool) -> tuple[Array, Array, Array, Array]:
    """The distinct elements (or slices along an axis), where each first stands, which one stands where, and how often.

    They are sorted if `in_order`, otherwise as they first appear.
    """
    along = 0 if axis is None else normalize_axis(axis, x.ndim)
    data = x.reshape(-1) if axis is None else x
    keys = _comparable(np.moveaxis(data, along, 0)).reshape(data.shape[along], -1 if data.size else 0)
    order = np.argsort(keys[:, 0]) if keys.shape[1] == 1 else np.lexsort(keys.T[::-1]) if keys.shape[1] else np.arange(len(keys))
    following = keys[order]
    is_new = np.ones(len(order), bool)  # slices without elements are all equal
    is_new[1:] = (following[1:] != following[:-1]).any(axis=1)
    starts = np.flatnonzero(is_new)
    first = np.minimum.reduceat(order, starts) if len(starts) else starts
    counts = np.diff(starts, append=len(order))
    inverse = np.empty_like(order)
    inverse[order] = np.cumsum(is_new) - 1
    if not in_order:
        appearance = np.argsort(first, kind="stable")
        position = np.empty_like(appearance)
        position[appearance] = np.arange(appearance.size)
        first, counts, inverse = first[appearance], counts[appearance], position[inverse]
    values = np.take(data, first, axis=along)
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def infer_unique(ctx: InferContext) -> InferResult:
    """The number of distinct elements depends on the data; one inverse index for each position."""
    shape, axis, count = ctx.shape(0), ctx.attr("axis"), ctx.fresh("unique")
    values: Shape | None = (count,)
    uniques: Dim = ctx.fresh()
    if axis is not None:
        values = None if shape is None else _with_size(shape, normalize_axis(axis, len(shape)), count)
        uniques = uniques if shape is None else shape[normalize_axis(axis, len(shape))]
    elif shape is not None:
        uniques = product(shape)
    shapes: list[InferOne] = [values, (count,), (uniques,), (count,)]
    return shapes[: max(ctx.outputs, 1)]


def _unique(x: Array, *, axis: int | None, sorted: int) -> tuple[Array, Array, Array, Array]:
    return unique(x, axis, bool(sorted))


UNIQUE = op("Unique", eval=_unique, infer=infer_unique, since=11, traits=Trait.AHEAD | Trait.DATA_SIZED)
