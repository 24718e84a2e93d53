"""Operators that move elements without computing: reshaping, transposing, joining, splitting, repeating; Shape and Size.

Reshape, Flatten, Squeeze, Unsqueeze and Transpose return views where NumPy can.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import Shape, format_shape
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import (
    InferContext,
    InferOne,
    InferResult,
    broadcast_shapes,
    merge_shapes,
    normalize_axis,
    scalar,
)


def rank_from_length(ctx: InferContext, index: int) -> Shape | None:
    """An unknown shape with as many dimensions as the one-dimensional input has elements, where that is known."""
    shape = ctx.shape(index)
    length = shape[0] if shape is not None and len(shape) == 1 else None
    return ctx.unknown(length) if isinstance(length, int) else None


def reshaped(shape: Shape, target: Sequence[Dim], allowzero: bool) -> Shape:
    """The dimensions a target shape stands for: 0 copies a dimension (unless allowed), -1 takes what is left.

    What is left is counted without the copied dimensions, so that [0, -1] has an answer for an empty tensor, too: the one that
    holds for all other sizes. A computed size that is the input's at its position may turn out to be 0, and is copied then.
    """
    result = list(target)
    copied: set[int] = set()
    if not allowzero:
        copied = {axis for axis, dim in enumerate(result) if dim == 0}
        for axis in copied:
            if axis >= len(shape):
                raise ValueError(
                    f"shape {format_shape(tuple(target))} copies axis {axis}, which {format_shape(shape)} does not have"
                )
            result[axis] = shape[axis]
        copied.update(axis for axis, (dim, size) in enumerate(zip(result, shape)) if not isinstance(dim, int) and dim == size)
    elif 0 in result and -1 in result:
        raise ValueError(f"shape {format_shape(tuple(target))} has both 0 and -1, and allowzero is 1: the size is not determined")
    if result.count(-1) > 1:
        raise ValueError(f"shape {format_shape(tuple(target))} has more than one -1")
    if -1 in result:
        rest = dims.product([dim for axis, dim in enumerate(result) if dim != -1 and axis not in copied])
        left = dims.product([dim for axis, dim in enumerate(shape) if axis not in copied])
        if isinstance(left, int) and isinstance(rest, int) and left % rest:
            raise ValueError(
                f"{format_shape(shape)} has {dims.product(shape)} elements: {format_shape(tuple(target))} needs a multiple of "
                f"{dims.product([dim for dim in result if dim != -1])}"
            )
        result[result.index(-1)] = dims.floordiv(left, rest)
    total, wanted = dims.product(shape), dims.product(result)
    if isinstance(total, int) and isinstance(wanted, int) and total != wanted:
        raise ValueError(f"{format_shape(shape)} has {total} elements but {format_shape(tuple(target))} has {wanted}")
    return tuple(result)


def _reshape(x: Array, shape: Array, *, allowzero: int | None) -> Array:
    sizes: Any = reshaped(x.shape, shape.reshape(-1).tolist(), bool(allowzero))
    return x.reshape(sizes)


def _reshape_by_attribute(x: Array, *, shape: tuple[int, ...] | None) -> Array:
    sizes: Any = reshaped(x.shape, shape or (), False)
    return x.reshape(sizes)


def infer_reshape(ctx: InferContext) -> InferResult:
    """The shape the target stands for, with the -1 worked out symbolically."""
    target = tuple(ctx.attr("shape") or ()) if ctx.version < 5 else ctx.dims(1)
    shape = ctx.shape(0)
    if target is None:
        return rank_from_length(ctx, 1)
    allowzero = bool(ctx.attr("allowzero"))
    if shape is not None:
        result = reshaped(shape, target, allowzero)
        ctx.expect_equal(dims.product(result), dims.product(shape))
        for axis, dim in enumerate(() if allowzero else target):
            if not isinstance(dim, int) and (axis >= len(shape) or dim != shape[axis]):
                ctx.expect_filled(dim)  # a size that turns out to be 0 means another: that of the input
        return result
    return tuple(ctx.fresh() if dim == -1 or (dim == 0 and not allowzero) else dim for dim in target)


RESHAPE_1 = op("Reshape", eval=_reshape_by_attribute, infer=infer_reshape, traits=Trait.VIEW | Trait.SELECTS)
RESHAPE = op("Reshape", eval=_reshape, infer=infer_reshape, traits=Trait.VIEW | Trait.SELECTS, since=5)


def _flatten_axis(axis: int, rank: int) -> int:
    return rank if axis == rank else normalize_axis(axis, rank)


def _flatten(x: Array, *, axis: int) -> Array:
    split = _flatten_axis(axis, x.ndim)
    return x.reshape(prod(x.shape[:split]), prod(x.shape[split:]))


def infer_flatten(ctx: InferContext) -> InferResult:
    """Two dimensions: the product of those before the axis and of those from it on."""
    shape = ctx.shape(0)
    if shape is None:
        return ctx.unknown(2)
    split = _flatten_axis(ctx.attr("axis"), len(shape))
    return (dims.product(shape[:split]), dims.product(shape[split:]))


FLATTEN = op("Flatten", eval=_flatten, infer=infer_flatten, traits=Trait.VIEW | Trait.SELECTS)


def _squeeze(x: Array, axes: Sequence[int] | None) -> Array:
    if axes is None:
        return x.reshape([size for size in x.shape if size != 1])
    chosen = {normalize_axis(axis, x.ndim) for axis in axes}
    for axis in chosen:
        if x.shape[axis] != 1:
            raise ValueError(f"axis {axis} of shape {x.shape} has size {x.shape[axis]}: only axes of size 1 can be squeezed")
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in chosen])


def _axes_given(ctx: InferContext) -> tuple[bool, tuple[int, ...] | None]:
    """Whether axes are given (attribute before opset 13, input 1 since), and which if that is known."""
    if ctx.version < 13:
        axes = ctx.attr("axes")
        return axes is not None, axes
    return ctx.has(1), ctx.ints(1)


def infer_squeeze(ctx: InferContext) -> InferResult:
    """Without the listed axes; without a list, all dimensions of size 1 go, and a symbolic one leaves the rank unknown."""
    shape = ctx.shape(0)
    given, axes = _axes_given(ctx)
    if shape is None:
        return None
    if not given:
        return tuple(dim for dim in shape if dim != 1) if all(isinstance(dim, int) for dim in shape) else None
    if axes is None:
        listed = rank_from_length(ctx, 1)
        return None if listed is None else ctx.unknown(len(shape) - len(listed))
    chosen = {normalize_axis(axis, len(shape)) for axis in axes}
    for axis in chosen:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise ValueError(f"axis {axis} of {format_shape(shape)} has size {shape[axis]}: only axes of size 1 can be squeezed")
        ctx.expect_equal(shape[axis], 1)
    return tuple(dim for axis, dim in enumerate(shape) if axis not in chosen)


def _unsqueezed_axes(axes: Sequence[int], rank: int) -> set[int]:
    chosen = {normalize_axis(axis, rank + len(axes)) for axis in axes}
    if len(chosen) < len(axes):
        raise ValueError(f"axes {tuple(axes)} name an axis twice")
    return chosen


def _unsqueeze(x: Array, axes: Sequence[int]) -> Array:
    return np.expand_dims(x, tuple(sorted(_unsqueezed_axes(axes, x.ndim))))


def infer_unsqueeze(ctx: InferContext) -> InferResult:
    """A 1 at each listed axis of the result."""
    shape = ctx.shape(0)
    _, axes = _axes_given(ctx)
    if shape is None:
        return None
    if axes is None:
        listed = rank_from_length(ctx, 1)
        return None if listed is None else ctx.unknown(len(shape) + len(listed))
    chosen = _unsqueezed_axes(axes, len(shape))
    remaining = iter(shape)
    return tuple(1 if axis in chosen else next(remaining) for axis in range(len(shape) + len(chosen)))


def _listed(axes: Array | None) -> list[int] | None:
    return None if axes is None else [int(axis) for axis in axes.reshape(-1)]


def _unsqueeze_by_input(x: Array, axes: Array) -> Array:
    return _unsqueeze(x, [int(axis) for axis in axes.reshape(-1)])


SQUEEZE_1 = op("Squeeze", eval=lambda x, *, axes: _squeeze(x, axes), infer=infer_squeeze, traits=Trait.VIEW | Trait.SELECTS)
SQUEEZE = op(
    "Squeeze",
    eval=lambda x, axes=None: _squeeze(x, _listed(axes)),
    infer=infer_squeeze,
    traits=Trait.VIEW | Trait.SELECTS,
    since=13,
)
UNSQUEEZE_1 = op(
    "Unsqueeze", eval=lambda x, *, axes: _unsqueeze(x, axes), infer=infer_unsqueeze, traits=Trait.VIEW | Trait.SELECTS
)
UNSQUEEZE = op("Unsqueeze", eval=_unsqueeze_by_input, infer=infer_unsqueeze, traits=Trait.VIEW | Trait.SELECTS, since=13)


def _permutation(perm: tuple[int, ...] | None, rank: int) -> list[int]:
    if perm is None:
        return list(range(rank))[::-1]
    order = [normalize_axis(axis, rank) for axis in perm]
    if sorted(order) != list(range(rank)):
        raise ValueError(f"perm {tuple(perm)} is not an order of {rank} axes")
    return order


def infer_transpose(ctx: InferContext) -> InferResult:
    """The dimensions in the order of `perm`, or reversed."""
    shape = ctx.shape(0)
    perm = ctx.attr("perm")
    if shape is None:
        return None if perm is None else ctx.unknown(len(perm))
    return tuple(shape[axis] for axis in _permutation(perm, len(shape)))


TRANSPOSE = op(
    "Transpose",
    eval=lambda x, *, perm: x.transpose(_permutation(perm, x.ndim)),
    infer=infer_transpose,
    traits=Trait.AHEAD | Trait.SELECTS,
)


def _concat(*inputs: Array, axis: int | None) -> Array:
    along = normalize_axis(1 if axis is None else axis, inputs[0].ndim)
    first = inputs[0].shape
    for position, array in enumerate(inputs):
        if len(array.shape) != len(first) or any(
            size != other for dimension, (size, other) in enumerate(zip(array.shape, first, strict=True)) if dimension != along
        ):
            raise ValueError(f"input {position} is {array.shape} but input 0 is {first}: they may differ only on axis {along}")
    return np.concatenate(inputs, axis=along)


def infer_concat(ctx: InferContext) -> InferResult:
    """The sum on the axis; on the others what all inputs say together."""
    shapes = [ctx.shape(index) for index in range(len(ctx.inputs))]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return None
    axis = ctx.attr("axis")
    along = normalize_axis(1 if axis is None else axis, len(known[0]))
    merged: Shape | None = None
    for position, shape in enumerate(shapes):
        if shape is None:
            continue
        try:
            if len(shape) != len(known[0]):
                raise ValueError("their ranks differ")
            merged = merge_shapes(merged, (*shape[:along], 0, *shape[along + 1 :]))
        except ValueError as error:
            raise ValueError(
                f"input {position} is {format_shape(shape)} but input 0 is {format_shape(known[0])}: {error}"
            ) from None
    if merged is None:
        return None
    for shape in known:
        for dimension, (size, other) in enumerate(zip(shape, merged)):
            if dimension != along:
                ctx.expect_equal(size, other)
    total: Dim = 0
    for shape in known:
        total = total + shape[along]
    return (*merged[:along], total if len(known) == len(shapes) else ctx.fresh(), *merged[along + 1 :])


CONCAT = op("Concat", eval=_concat, infer=infer_concat, traits=Trait.AHEAD)


def _split_sizes(size: int, parts: int) -> list[int]:
    """Equal parts, the last ones smaller where it does not divide."""
    part = -(-size // parts)
    return [max(min(part, size - part * index), 0) for index in range(parts)]


def _split(x: Array, sizes: Sequence[int] | None, axis: int, parts: int, even: bool) -> tuple[Array, ...]:
    axis = normalize_axis(axis, x.ndim)
    size = x.shape[axis]
    if sizes is None:
        if even and size % parts:
            raise ValueError(f"axis {axis} of shape {x.shape} cannot be split into {parts} equal parts")
        sizes = _split_sizes(size, parts)
    if len(sizes) != parts:
        raise ValueError(f"split {tuple(sizes)} has {len(sizes)} elements, but there are {parts} outputs")
    if sum(sizes) != size or any(part < 0 for part in sizes):
        raise ValueError(f"split {tuple(sizes)} does not add up to the {size} of axis {axis} of shape {x.shape}")
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def _split_1(
    x: Array, sizes: Array | None = None, *, axis: int | None, split: tuple[int, ...] | None, ctx: EvalContext
) -> tuple[Array, ...]:
    given = split if sizes is None else [int(size) for size in sizes]
    return _split(x, given, axis or 0, len(ctx.outputs), True)


def _split_2(x: Array, *, axis: int, split: tuple[int, ...] | None, ctx: EvalContext) -> tuple[Array, ...]:
    return _split(x, split, axis, len(ctx.outputs), True)


def _split_parts(wanted: int | None, outputs: int) -> int:
    if wanted is not None and wanted != outputs:
        raise ValueError(f"num_outputs is {wanted}, but the node has {outputs} outputs")
    return outputs


def _split_13(x: Array, split: Array | None = None, *, axis: int, num_outputs: int | None, ctx: EvalContext) -> tuple[Array, ...]:
    return _split(x, _listed(split), axis, _split_parts(num_outputs, len(ctx.outputs)), ctx.version < 18)


def _symbolic_split_sizes(size: Dim, parts: int, even: bool) -> list[Dim]:
    if isinstance(size, int):
        if even and size % parts:
            raise ValueError(f"an axis of {size} cannot be split into {parts} equal parts")
        return list(_split_sizes(size, parts))
    if even:
        return [dims.floordiv(size, parts)] * parts
    part = dims.ceildiv(size, parts)
    if part * parts == size:
        return [part] * parts
    return [part, *(dims.dim_max(dims.dim_min(part, size - part * index), 0) for index in range(1, parts))]


def infer_split(ctx: InferContext) -> InferResult:
    """The sizes given, or equal parts of the axis."""
    shape = ctx.shape(0)
    parts = ctx.outputs
    if shape is None:
        unknown: list[InferOne] = [None] * parts
        return unknown
    axis = normalize_axis(ctx.attr("axis") or 0, len(shape))
    sizes: Sequence[Dim] | None = ctx.attr("split") if ctx.version < 13 else None
    if ctx.has(1):
        sizes = ctx.dims(1) if ctx.version >= 13 else None
        for length in ctx.shape(1) or ():
            ctx.expect_equal(length, parts)
        if sizes is None:
            sizes = [ctx.fresh() for _ in range(parts)]
    if sizes is None:
        sizes = _symbolic_split_sizes(shape[axis], _split_parts(ctx.attr("num_outputs"), parts), even=ctx.version < 18)
    total: Dim = 0
    for size in sizes:
        total = total + size
        ctx.expect_equal(dims.dim_max(size, 0), size)
    ctx.expect_equal(total, shape[axis])
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


SPLIT_1 = op("Split", eval=_split_1, infer=infer_split, traits=Trait.AHEAD)
SPLIT_2 = op("Split", eval=_split_2, infer=infer_split, since=2, traits=Trait.AHEAD)
SPLIT = op("Split", eval=_split_13, infer=infer_split, since=13, traits=Trait.AHEAD)


def _expand(x: Array, shape: Array) -> Array:
    target = np.broadcast_shapes(x.shape, tuple(int(size) for size in shape.reshape(-1)))
    return np.broadcast_to(x, target).copy()


def infer_expand(ctx: InferContext) -> InferResult:
    """The input's shape and the target broadcast together."""
    target, shape = ctx.dims(1), ctx.shape(0)
    if target is not None:
        result = broadcast_shapes(shape, target)
        for given in (shape, target):
            ctx.expect_broadcast(given or (), result or ())
        return result
    unknown = rank_from_length(ctx, 1)
    if unknown is None or shape is None:
        return None
    return broadcast_shapes(shape, unknown)


EXPAND = op("Expand", eval=_expand, infer=infer_expand, since=8, traits=Trait.AHEAD | Trait.SELECTS)


def _tile(x: Array, repeats: Array) -> Array:
    counts = [int(count) for count in repeats.reshape(-1)]
    if len(counts) != x.ndim or any(count < 0 for count in counts):
        raise ValueError(f"repeats are {tuple(counts)}: expected {x.ndim} numbers, none negative, for shape {x.shape}")
    return _tiled(x, counts)


def _tile_axis(x: Array, tiles: Array, axis: Array) -> Array:
    counts = [1] * x.ndim
    counts[normalize_axis(int(axis.reshape(())), x.ndim)] = int(tiles.reshape(()))
    return _tiled(x, counts)


def _tiled(x: Array, counts: Sequence[int]) -> Array:
    """The tensor side by side with itself; NumPy's own crashes where the number of elements is no 64-bit integer."""
    shape = [size * count for size, count in zip(x.shape, counts, strict=True)]
    if 0 in shape:
        return np.empty(shape, x.dtype)
    if prod(shape) * x.itemsize > sys.maxsize:
        raise MemoryError(f"a tensor of shape {tuple(shape)} is larger than any memory")
    return np.tile(x, counts)


def infer_tile(ctx: InferContext) -> InferResult:
    """Each dimension times its repeats."""
    shape, repeats = ctx.shape(0), ctx.dims(1)
    if shape is None:
        return rank_from_length(ctx, 1)
    if repeats is None:
        return ctx.unknown(len(shape))
    if len(repeats) != len(shape):
        raise ValueError(f"repeats has {len(repeats)} elements: expected {len(shape)} for {format_shape(shape)}")
    return tuple(dim * count for dim, count in zip(shape, repeats, strict=True))


def infer_tile_axis(ctx: InferContext) -> InferResult:
    """Of the rank of the input."""
    return ctx.unknown(ctx.rank(0))


TILE_1 = op("Tile", eval=_tile_axis, infer=infer_tile_axis, traits=Trait.AHEAD)
TILE = op("Tile", eval=_tile, infer=infer_tile, since=6, traits=Trait.AHEAD)


def _shape(x: Array, *, start: int | None, end: int | None) -> Array:
    return np.asarray(x.shape[start or 0 : end], np.int64).reshape(-1)


def infer_shape(ctx: InferContext) -> InferResult:
    """As many elements as dimensions are asked for."""
    rank = ctx.rank(0)
    return (ctx.fresh() if rank is None else len(range(rank)[ctx.attr("start") or 0 : ctx.attr("end")]),)


SHAPE = op("Shape", eval=_shape, infer=infer_shape, traits=Trait.AHEAD | Trait.MEASURES)
SIZE = op("Size", eval=lambda x: np.asarray(x.size, np.int64), infer=scalar, traits=Trait.AHEAD | Trait.MEASURES)

_BLOCK_MODES: Final = ("DCR", "CRD")


def _block_mode(mode: str | None, x: Array) -> str:
    if mode not in (None, *_BLOCK_MODES):
        raise ValueError(f"mode is {mode!r}: expected 'DCR' or 'CRD'")
    if x.ndim != 4:
        raise ValueError(f"input has shape {x.shape}: expected four dimensions, N C H W")
    return mode or "DCR"


def _blocksize(size: int) -> int:
    if size < 1:
        raise ValueError(f"blocksize is {size}, expected a positive number")
    return size


def _depth_to_space(x: Array, *, blocksize: int, mode: str | None) -> Array:
    depth_first = _block_mode(mode, x) == "DCR"
    n, c, h, w = x.shape
    b = _blocksize(blocksize)
    if c % (b * b):
        raise ValueError(f"{c} channels are not a multiple of blocksize squared, {b * b}")
    if depth_first:
        blocks = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, c // (b * b), h * b, w * b)


def _space_to_depth(x: Array, *, blocksize: int, mode: str | None) -> Array:
    depth_first = _block_mode(mode, x) == "DCR"
    n, c, h, w = x.shape
    b = _blocksize(blocksize)
    if h % b or w % b:
        raise ValueError(f"height {h} and width {w} are not multiples of the blocksize {b}")
    blocks = x.reshape(n, c, h // b, b, w // b, b).transpose((0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4))
    return blocks.reshape(n, c * b * b, h // b, w // b)


def infer_depth_to_space(ctx: InferContext) -> InferResult:
    """Channels by blocksize squared, height and width times it."""
    shape, b = ctx.shape(0, rank=4), _blocksize(ctx.attr("blocksize"))
    if shape is None:
        return ctx.unknown(4)
    ctx.expect_divisible(shape[1], b * b)
    return (shape[0], dims.floordiv(shape[1], b * b), shape[2] * b, shape[3] * b)


def infer_space_to_depth(ctx: InferContext) -> InferResult:
    """Channels times blocksize squared, height and width by it."""
    shape, b = ctx.shape(0, rank=4), _blocksize(ctx.attr("blocksize"))
    if shape is None:
        return ctx.unknown(4)
    ctx.expect_divisible(shape[2], b)
    ctx.expect_divisible(shape[3], b)
    return (shape[0], shape[1] * (b * b), dims.floordiv(shape[2], b), dims.floordiv(shape[3], b))


DEPTH_TO_SPACE = op("DepthToSpace", eval=_depth_to_space, infer=infer_depth_to_space, traits=Trait.SELECTS)
SPACE_TO_DEPTH = op("SpaceToDepth", eval=_space_to_depth, infer=infer_space_to_depth, traits=Trait.SELECTS)


def _reverse_sequence(x: Array, lengths: Array, *, batch_axis: int, time_axis: int) -> Array:
    """The first `lengths[b]` steps of each batch entry backwards, the rest as they are."""
    batch, time = normalize_axis(batch_axis, x.ndim), normalize_axis(time_axis, x.ndim)
    if {batch, time} != {0, 1}:
        raise ValueError(f"batch_axis {batch_axis} and time_axis {time_axis}: expected one to be 0 and the other 1")
    moved = np.moveaxis(x, (batch, time), (0, 1))
    steps = np.arange(moved.shape[1])
    ends = lengths.reshape(-1, 1)
    if ends.shape[0] != moved.shape[0] or ((ends < 0) | (ends > steps.size)).any():
        raise ValueError(f"sequence_lens {lengths.tolist()}: expected {moved.shape[0]} numbers from 0 to {steps.size}")
    order = np.where(steps < ends, ends - 1 - steps, steps)
    return np.moveaxis(moved[np.arange(moved.shape[0])[:, None], order], (0, 1), (batch, time))


def infer_reverse_sequence(ctx: InferContext) -> InferResult:
    """The shape of the input; there is a length for each batch entry."""
    shape = ctx.shape(0)
    if shape is not None and len(shape) > 1:
        ctx.expect_shape(1, shape[normalize_axis(ctx.attr("batch_axis"), len(shape))])
    return shape


REVERSE_SEQUENCE = op("ReverseSequence", eval=_reverse_sequence, infer=infer_reverse_sequence, since=10, traits=Trait.REFUSES)
