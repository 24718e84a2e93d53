"""Reading and writing at given positions: the Gather and Scatter operators, OneHot, TensorScatter.

Negative indices count from the end. An index out of range is an IndexError that names the index, the axis and its size.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from sardonyx.ir import dims
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.precision import rounded_once


def checked_indices(indices: Array, size: int, axis: int) -> Array:
    """The indices counted from the front."""
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        bad = int(indices[wrong].reshape(-1)[0])
        raise IndexError(f"index {bad} is out of range for axis {axis} of size {size}: expected {-size} to {size - 1}")
    return np.asarray(np.where(indices < 0, indices + size, indices)).astype(np.int64, copy=False)


def _gather(data: Array, indices: Array, *, axis: int) -> Array:
    axis = normalize_axis(axis, data.ndim)
    return np.asarray(np.take(data, checked_indices(indices, data.shape[axis], axis), axis=axis))


def infer_gather(ctx: InferContext) -> InferResult:
    """The shape of the indices in place of the axis."""
    data, indices = ctx.shape(0), ctx.shape(1)
    if data is None or indices is None:
        return None
    axis = normalize_axis(ctx.attr("axis"), len(data))
    return (*data[:axis], *indices, *data[axis + 1 :])


GATHER = op("Gather", eval=_gather, infer=infer_gather, traits=Trait.AHEAD | Trait.REFUSES)


def _along_axis(data: Array, indices: Array, axis: int) -> tuple[Any, ...]:
    """Positions in `data` for each element of `indices`: its own, except on the axis, where the index says it."""
    if data.ndim != indices.ndim:
        raise ValueError(f"data has rank {data.ndim} but indices have rank {indices.ndim}: the ranks must agree")
    for dimension, (size, asked) in enumerate(zip(data.shape, indices.shape, strict=True)):
        if dimension != axis and asked > size:
            raise ValueError(f"indices are {indices.shape}, larger than data {data.shape} on axis {dimension}")
    positions: list[Any] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    positions[axis] = checked_indices(indices, data.shape[axis], axis)
    return tuple(positions)


def _gather_elements(data: Array, indices: Array, *, axis: int) -> Array:
    return np.asarray(data[_along_axis(data, indices, normalize_axis(axis, data.ndim))])


def _expect_along(ctx: InferContext) -> None:
    """State that indices (input 1) lie inside the data (input 0) on every axis but the one they count along."""
    data, indices = ctx.shape(0), ctx.shape(1)
    if data is not None and indices is not None and len(data) == len(indices) and data:
        along = normalize_axis(ctx.attr("axis") or 0, len(data))
        for axis, (size, limit) in enumerate(zip(indices, data)):
            if axis != along:
                ctx.expect_at_most(size, limit)


def _infer_gather_elements(ctx: InferContext) -> InferResult:
    _expect_along(ctx)
    return ctx.shape(1)


GATHER_ELEMENTS = op(
    "GatherElements", eval=_gather_elements, infer=_infer_gather_elements, since=11, traits=Trait.AHEAD | Trait.REFUSES
)


def _nd_positions(data: Array, indices: Array, batch_dims: int) -> tuple[Array, ...]:
    """The columns of `indices`, each checked against its axis of `data`."""
    depth = indices.shape[-1] if indices.ndim else 0
    most = data.ndim - batch_dims
    if indices.ndim == 0 or depth > most:
        raise ValueError(f"indices have shape {indices.shape}: expected a last dimension of at most {most} for data {data.shape}")
    return tuple(
        checked_indices(indices[..., column], data.shape[batch_dims + column], batch_dims + column) for column in range(depth)
    )


def _gather_nd(data: Array, indices: Array, *, batch_dims: int | None) -> Array:
    count = batch_dims or 0
    if data.shape[:count] != indices.shape[:count] or count >= max(indices.ndim, 1):
        raise ValueError(f"data {data.shape} and indices {indices.shape} do not agree on {count} batch dimensions")
    positions = _nd_positions(data, indices, count)
    batches = np.ogrid[tuple(slice(size) for size in indices.shape[:count])] if count else ()
    missing = indices.ndim - 1 - count
    batch_positions = tuple(batch.reshape(batch.shape + (1,) * missing) for batch in batches)
    result = data[batch_positions + positions]
    shape = indices.shape[:-1] + data.shape[count + len(positions) :]
    return np.asarray(np.broadcast_to(result, shape).copy() if not positions else result)


def infer_gather_nd(ctx: InferContext) -> InferResult:
    """The indices' shape without its last dimension, then what is left of the data."""
    data, indices = ctx.shape(0), ctx.shape(1)
    if data is None or not indices or not isinstance(indices[-1], int):
        return None
    for size, other in zip(data[: ctx.attr("batch_dims") or 0], indices):
        ctx.expect_equal(size, other)
    return (*indices[:-1], *data[(ctx.attr("batch_dims") or 0) + indices[-1] :])


GATHER_ND = op("GatherND", eval=_gather_nd, infer=infer_gather_nd, since=11, traits=Trait.AHEAD | Trait.REFUSES)

_COMBINE: Final[dict[str, np.ufunc]] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scatter(data: Array, positions: tuple[Any, ...], updates: Array, reduction: str | None) -> Array:
    """A copy of the data with the updates written or combined in; of several plain writes to one place the last stays."""
    if reduction in (None, "none"):
        result = data.copy()
        result[positions] = updates
        return result
    if reduction not in _COMBINE:
        raise ValueError(f"reduction is {reduction!r}: expected 'none', 'add', 'mul', 'min' or 'max'")
    combine = _COMBINE[reduction]

    def combined(values: Array, new: Array) -> Array:
        result = values.copy()
        combine.at(result, positions, new)
        return result

    return rounded_once(combined, data, updates)


def _scatter_elements(data: Array, indices: Array, updates: Array, *, axis: int, reduction: str | None) -> Array:
    if indices.shape != updates.shape:
        raise ValueError(f"indices are {indices.shape} but updates are {updates.shape}: the shapes must agree")
    return _scatter(data, _along_axis(data, indices, normalize_axis(axis, data.ndim)), updates, reduction)


def _infer_scatter_elements(ctx: InferContext) -> InferResult:
    _expect_along(ctx)
    indices = ctx.shape(1)
    if indices is not None:
        ctx.expect_shape(2, *indices)
    return ctx.shape(0)


SCATTER = op("Scatter", eval=_scatter_elements, infer=_infer_scatter_elements, since=9, traits=Trait.REFUSES)
SCATTER_ELEMENTS = op(
    "ScatterElements", eval=_scatter_elements, infer=_infer_scatter_elements, since=11, traits=Trait.AHEAD | Trait.REFUSES
)


def _scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str | None) -> Array:
    positions = _nd_positions(data, indices, 0)
    expected = indices.shape[:-1] + data.shape[len(positions) :]
    if updates.shape != expected:
        raise ValueError(f"updates are {updates.shape}: expected {expected} for indices {indices.shape} into data {data.shape}")
    if not positions and prod(indices.shape[:-1]) != 1:  # every update addresses the whole tensor: they come one by one
        result = data
        for update in updates.reshape(-1, *data.shape):
            result = _scatter(result, (), update, reduction)
        return result.copy()
    return _scatter(data, positions, updates if positions else updates.reshape(data.shape), reduction)


def _infer_scatter_nd(ctx: InferContext) -> InferResult:
    data, indices = ctx.shape(0), ctx.shape(1)
    if data is not None and indices and isinstance(indices[-1], int):
        ctx.expect_shape(2, *indices[:-1], *data[indices[-1] :])
    return data


SCATTER_ND = op("ScatterND", eval=_scatter_nd, infer=_infer_scatter_nd, since=11, traits=Trait.AHEAD | Trait.REFUSES)


def one_hot_depth(depth: Array) -> int:
    """How many classes there are, from the operator's input: a number of any type."""
    value = float(depth.reshape(-1)[0]) if depth.size == 1 else -1.0
    if not 0 <= value <= np.iinfo(np.int64).max:
        raise ValueError(f"depth is {depth.tolist()}: expected one number that is not negative")
    return int(depth.reshape(-1)[0])


def _one_hot(indices: Array, depth: Array, values: Array, *, axis: int) -> Array:
    """An index outside -depth to depth - 1 has no hot element."""
    if values.size != 2:
        raise ValueError(f"values are {values.shape}: expected two elements, off and on")
    count = one_hot_depth(depth)
    wanted = indices.astype(np.int64)
    wanted = np.where(wanted < 0, wanted + count, wanted)
    dimension = normalize_axis(axis, indices.ndim + 1)
    classes = np.arange(count).reshape((-1,) + (1,) * (indices.ndim - dimension))
    off, on = values.reshape(-1)
    return np.asarray(np.where(np.expand_dims(wanted, dimension) == classes, on, off)).astype(values.dtype, copy=False)


def infer_one_hot(ctx: InferContext) -> InferResult:
    """The indices' shape with the depth inserted at the axis."""
    shape = ctx.shape(0)
    if shape is None:
        return None
    dimension = normalize_axis(ctx.attr("axis"), len(shape) + 1)
    ctx.expect_equal(dims.product(ctx.shape(1) or ()), 1)
    ctx.expect_shape(2, 2)
    known = ctx.dims(1)
    constant = ctx.constant(1)
    if constant is not None:
        known = (one_hot_depth(constant),)
    return (*shape[:dimension], known[0] if known else ctx.fresh(), *shape[dimension:])


ONE_HOT = op("OneHot", eval=_one_hot, infer=infer_one_hot, since=9, traits=Trait.AHEAD)


def _tensor_scatter(cache: Array, update: Array, starts: Array | None = None, *, axis: int, mode: str) -> Array:
    dimension = normalize_axis(axis, cache.ndim)
    if dimension == 0:
        raise ValueError("axis is 0, the batch axis: expected another one")
    if mode not in ("linear", "circular"):
        raise ValueError(f"mode is {mode!r}: expected 'linear' or 'circular'")
    if update.shape[:dimension] + update.shape[dimension + 1 :] != cache.shape[:dimension] + cache.shape[dimension + 1 :]:
        raise ValueError(f"update is {update.shape} but the cache is {cache.shape}: they may differ only on axis {dimension}")
    size, count, batch = cache.shape[dimension], update.shape[dimension], cache.shape[0]
    if count > size:
        raise ValueError(f"update has {count} steps, more than the {size} of the cache")
    begin = np.zeros(batch, np.int64) if starts is None else starts.reshape(-1)
    if begin.size != batch:
        raise ValueError(f"write_indices are {begin.shape}: expected {batch} numbers")
    steps = begin[:, None] + np.arange(count)
    if mode == "circular":
        steps = steps % size
    elif ((steps < 0) | (steps >= size)).any():
        raise IndexError(f"write_indices {begin.tolist()} plus {count} steps leave axis {dimension} of size {size}")
    result = cache.copy()
    np.moveaxis(result, dimension, 1)[np.arange(batch)[:, None], steps] = np.moveaxis(update, dimension, 1)
    return result


def _infer_tensor_scatter(ctx: InferContext) -> InferResult:
    cache, update = ctx.shape(0), ctx.shape(1)
    if cache and update is not None and len(cache) == len(update):
        dimension = normalize_axis(ctx.attr("axis"), len(cache))
        ctx.expect_shape(1, *cache[:dimension], update[dimension], *cache[dimension + 1 :])
        ctx.expect_at_most(update[dimension], cache[dimension])
        ctx.expect_shape(2, cache[0])
    return cache


TENSOR_SCATTER = op("TensorScatter", eval=_tensor_scatter, infer=_infer_tensor_scatter, since=24, traits=Trait.REFUSES)
