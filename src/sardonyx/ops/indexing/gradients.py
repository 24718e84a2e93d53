"""What moves gradients back to where elements came from; gradient rules make these, models do not hold them.

GatherGrad(dy, indices, shape)       rows of dy added up at their indices, in zeros
SliceGrad(dy, shape, starts, ...)    dy where the slice was taken, zeros elsewhere
SumTo(dy, shape)                     dy summed over the axes along which `shape` was broadcast
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis
from sardonyx.ops.precision import narrow, widen

DOMAIN: Final = "sardonyx"


def shape_input(index: int) -> Any:
    """The shape rule of an operator whose result has the sizes that one of its inputs holds."""

    def infer(ctx: InferContext) -> InferResult:
        known = ctx.dims(index)
        if known is not None:
            return tuple(known)
        count = ctx.shape(index, rank=1)
        return ctx.unknown(count[0] if count is not None and isinstance(count[0], int) else None)

    return infer


def sizes_of(shape: Array) -> tuple[int, ...]:
    """A shape that an operator was given as a vector."""
    sizes = tuple(int(size) for size in shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape {list(sizes)} has a negative size")
    return sizes


def _gather_grad(dy: Array, indices: Array, shape: Array, *, axis: int) -> Array:
    sizes = sizes_of(shape)
    axis = normalize_axis(axis, len(sizes))
    expected = (*sizes[:axis], *indices.shape, *sizes[axis + 1 :])
    if dy.shape != expected:
        raise ValueError(f"dY has shape {dy.shape}, expected {expected}")
    count = sizes[axis]
    flat = indices.reshape(-1).astype(np.int64)
    if flat.size and (flat.min() < -count or flat.max() >= count):
        raise IndexError(f"indices from {flat.min()} to {flat.max()} are out of range for {count} elements on axis {axis}")
    flat = np.where(flat < 0, flat + count, flat)
    result = np.zeros(sizes, widen(dy).dtype)
    rows = np.moveaxis(widen(dy).reshape(*sizes[:axis], flat.size, *sizes[axis + 1 :]), axis, 0)
    np.add.at(np.moveaxis(result, axis, 0), flat, rows)
    return narrow(result, dy.dtype)


def _infer_gather_grad(ctx: InferContext) -> InferResult:
    made = shape_input(2)(ctx)
    indices = ctx.shape(1)
    if isinstance(made, tuple) and indices is not None and len(made):
        axis = normalize_axis(ctx.attr("axis"), len(made))
        ctx.expect_shape(0, *made[:axis], *indices, *made[axis + 1 :])
    return made  # type: ignore[no-any-return]


GATHER_GRAD = op("GatherGrad", eval=_gather_grad, infer=_infer_gather_grad, domain=DOMAIN, traits=Trait.REFUSES)


def _slice_grad(
    dy: Array, shape: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    sizes = sizes_of(shape)
    chosen = range(starts.size) if axes is None else axes.reshape(-1).tolist()
    strides = [1] * starts.size if steps is None else steps.reshape(-1).tolist()
    where: list[slice] = [slice(None)] * len(sizes)
    for axis, start, end, step in zip(chosen, starts.reshape(-1).tolist(), ends.reshape(-1).tolist(), strides, strict=True):
        number = normalize_axis(int(axis), len(sizes))
        if step == 0:
            raise ValueError("a step is 0")
        size = sizes[number]
        stop: int | None = end
        if step < 0 and end < -size:
            stop = None  # past the first element
        where[number] = slice(start, stop, step)
    result = np.zeros(sizes, dy.dtype)
    target = result[tuple(where)]
    if target.shape != dy.shape:
        raise ValueError(f"dY has shape {dy.shape}, the slice {target.shape}")
    target[...] = dy
    return result


SLICE_GRAD = op("SliceGrad", eval=_slice_grad, infer=shape_input(1), domain=DOMAIN, traits=Trait.REFUSES)


def _sum_to(dy: Array, shape: Array) -> Array:
    sizes = sizes_of(shape)
    lead = dy.ndim - len(sizes)
    if lead < 0 or any(size not in (1, given) for size, given in zip(sizes, dy.shape[lead:])):
        raise ValueError(f"shape {list(sizes)} does not broadcast to {dy.shape}")
    wide = widen(dy)
    axes = tuple(range(lead)) + tuple(lead + axis for axis, size in enumerate(sizes) if size == 1 != dy.shape[lead + axis])
    return narrow(np.asarray(wide.sum(axis=axes, keepdims=True)).reshape(sizes), dy.dtype)


SUM_TO = op("SumTo", eval=_sum_to, infer=shape_input(1), domain=DOMAIN, traits=Trait.REFUSES)
