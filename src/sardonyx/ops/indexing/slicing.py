"""Cutting and padding along axes: Slice, Pad, CenterCropPad.

Slicing forwards is Python's: negative positions count from the end, positions past an end stop there. Backwards, a start before
the first element is the first element, and as an end the largest 32 and 64-bit integers mean "all the way", as in ONNX Runtime.
A negative pad cuts off elements; all cuts come before any padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir import dims
from sardonyx.ir.dims import Dim
from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult, normalize_axis

_FAR: Final = (1 << 31) - 1  # exporters write "to the end" as the largest 32 or 64-bit integer
_ALL_THE_WAY: Final = ((1 << 31) - 1, (1 << 63) - 1)


def python_slice(start: int, end: int, step: int, size: int) -> slice:
    """The Python slice that does what ONNX says."""
    if step > 0:
        return slice(start, end, step)
    return slice(0 if start < -size else start, None if end in _ALL_THE_WAY else end, step)


def _slice(
    x: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Array:
    axes = list(range(len(starts))) if axes is None else list(axes)
    steps = [1] * len(starts) if steps is None else list(steps)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ValueError(f"starts, ends, axes and steps have {len(starts)}, {len(ends)}, {len(axes)} and {len(steps)} elements")
    cuts = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise ValueError(f"the step on axis {axis} is 0")
        dimension = normalize_axis(axis, x.ndim)
        cuts[dimension] = python_slice(start, end, step, x.shape[dimension])
    return x[tuple(cuts)]


def _slice_by_attributes(x: Array, *, starts: tuple[int, ...], ends: tuple[int, ...], axes: tuple[int, ...] | None) -> Array:
    return _slice(x, starts, ends, axes, None)


def _slice_by_inputs(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    listed = [None if item is None else item.reshape(-1).tolist() for item in (axes, steps)]
    return _slice(x, starts.reshape(-1).tolist(), ends.reshape(-1).tolist(), *listed)


def slice_position(value: Dim, size: Dim) -> Dim:
    """Where a start or end lies for a positive step, between 0 and the size."""
    if isinstance(value, int) and value >= _FAR:
        return size
    if isinstance(value, int) and value <= -_FAR:
        return 0
    if dims.is_nonnegative(value):
        return dims.dim_min(value, size)
    if dims.is_nonnegative(-value - 1):
        return dims.dim_max(size + value, 0)
    is_negative = dims.dim_min(dims.dim_max(-value, 0), 1)  # 1 or 0: which one only the actual sizes tell
    return dims.dim_max(dims.dim_min(value + size * is_negative, size), 0)


def sliced_size(size: Dim, start: Dim, end: Dim, step: int) -> Dim | None:
    """How many elements a slice has; None if that cannot be told from the symbols."""
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        return len(range(*python_slice(start, end, step, size).indices(size)))
    if step > 0:
        if dims.is_nonnegative(start) and isinstance(end, int) and end >= _FAR:
            return dims.ceildiv(dims.dim_max(size - start, 0), step)
        if isinstance(start, int) and start < 0 and isinstance(end, int) and end >= _FAR:
            return dims.ceildiv(dims.dim_min(size, -start), step)
        return dims.ceildiv(dims.dim_max(slice_position(end, size) - slice_position(start, size), 0), step)
    from_the_end = isinstance(start, int) and (start == -1 or start >= _FAR)
    to_the_front = isinstance(end, int) and (end <= -_FAR or end in _ALL_THE_WAY)
    return dims.ceildiv(size, -step) if from_the_end and to_the_front else None


def infer_slice(ctx: InferContext) -> InferResult:
    """Each sliced axis by its start, end and step, symbolic where they are."""
    shape = ctx.shape(0)
    if shape is None:
        return None
    starts: Sequence[Dim] | None
    ends: Sequence[Dim] | None
    if ctx.version < 10:
        starts, ends = ctx.attr("starts"), ctx.attr("ends")
        axes, steps, axes_given, steps_given = ctx.attr("axes"), None, ctx.attr("axes") is not None, False
    else:
        starts, ends, axes, steps, axes_given, steps_given = (
            ctx.dims(1),
            ctx.dims(2),
            ctx.ints(3),
            ctx.ints(4),
            ctx.has(3),
            ctx.has(4),
        )
    if axes_given and axes is None:
        return ctx.unknown(len(shape))
    if axes is None:
        length = ctx.shape(1)
        count = len(starts) if starts is not None else length[0] if length else None
        if not isinstance(count, int):
            return ctx.unknown(len(shape))
        axes = tuple(range(count))
    for name, given in (("starts", starts), ("ends", ends), ("steps", steps)):
        if given is not None and len(given) != len(axes):
            raise ValueError(f"{name} has {len(given)} elements, expected {len(axes)}: one for each axis")
    result = list(shape)
    for index, axis in enumerate(axes):
        dimension = normalize_axis(axis, len(shape))
        known = starts is not None and ends is not None and (steps is not None or not steps_given)
        size = None
        if known:
            size = sliced_size(shape[dimension], starts[index], ends[index], 1 if steps is None else steps[index])  # type: ignore[index]
        result[dimension] = ctx.fresh() if size is None else size
    return tuple(result)


SLICE_1 = op("Slice", eval=_slice_by_attributes, infer=infer_slice, traits=Trait.AHEAD | Trait.SELECTS)
SLICE = op("Slice", eval=_slice_by_inputs, infer=infer_slice, since=10, traits=Trait.AHEAD | Trait.SELECTS)


def _source(size: int, before: int, after: int, mode: str) -> Array:
    """For each position of a padded axis the position its element comes from."""
    positions = np.arange(-before, size + after)
    if mode == "edge":
        return np.clip(positions, 0, size - 1)
    if mode == "wrap":
        return positions % size
    period = max(2 * (size - 1), 1)
    positions = positions % period
    return np.minimum(positions, period - positions) if size > 1 else np.zeros_like(positions)


def pad(x: Array, pads: Sequence[int], axes: Sequence[int] | None, mode: str, value: Any) -> Array:
    """The array with `pads` (all begins, then all ends) elements added on the axes."""
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(f"mode is {mode!r}: expected 'constant', 'reflect', 'edge' or 'wrap'")
    chosen = list(range(x.ndim)) if axes is None else [normalize_axis(int(axis), x.ndim) for axis in axes]
    if len(pads) != 2 * len(chosen):
        raise ValueError(f"pads has {len(pads)} elements: expected {2 * len(chosen)}, a begin and an end for each axis")
    before, after = [0] * x.ndim, [0] * x.ndim
    cuts = [slice(None)] * x.ndim
    for index, axis in enumerate(chosen):
        begin, end = int(pads[index]), int(pads[index + len(chosen)])
        size = x.shape[axis]
        if size + min(begin, 0) + min(end, 0) < 0:
            raise ValueError(f"pads {begin} and {end} cut more than the {size} elements of axis {axis}")
        cuts[axis] = slice(max(-begin, 0), size + min(end, 0))
        before[axis], after[axis] = max(begin, 0), max(end, 0)
    kept = x[tuple(cuts)]
    if mode == "constant":
        shape = [begin + size + end for begin, size, end in zip(before, kept.shape, after, strict=True)]
        result = np.full(shape, value, dtype=x.dtype)
        result[tuple(slice(begin, begin + size) for begin, size in zip(before, kept.shape, strict=True))] = kept
        return result
    for axis in range(x.ndim):
        if before[axis] or after[axis]:
            if kept.shape[axis] == 0:
                raise ValueError(f"axis {axis} is empty: mode {mode!r} has nothing to pad it with")
            kept = np.take(kept, _source(kept.shape[axis], before[axis], after[axis], mode), axis=axis)
    return kept


def _pad_value(x: Array, value: Array | None) -> Any:
    if value is None:
        return "" if x.dtype == object else x.dtype.type(0)
    if value.size != 1:
        raise ValueError(f"constant_value has shape {value.shape}: expected a scalar")
    return value.reshape(-1)[0]


def _pad_by_inputs(x: Array, pads: Array, value: Array | None = None, axes: Array | None = None, *, mode: str) -> Array:
    listed = None if axes is None else axes.reshape(-1).tolist()
    return pad(x, pads.reshape(-1).tolist(), listed, mode, _pad_value(x, value))


def infer_pad(ctx: InferContext) -> InferResult:
    """Each padded axis grows by its two pads."""
    shape = ctx.shape(0)
    if shape is None:
        return None
    if ctx.version < 11:
        pads: Sequence[Dim] | None = ctx.attr("paddings" if ctx.version < 2 else "pads")
    else:
        pads = ctx.dims(1)
    axes = ctx.ints(3) if ctx.has(3) else tuple(range(len(shape)))
    if axes is None:
        return ctx.unknown(len(shape))
    chosen = [normalize_axis(axis, len(shape)) for axis in axes]
    if pads is not None and len(pads) != 2 * len(chosen):
        raise ValueError(f"pads has {len(pads)} elements: expected {2 * len(chosen)}, a begin and an end for each axis")
    result = list(shape)
    if ctx.version >= 11 and ctx.has(2):
        ctx.expect_equal(dims.product(ctx.shape(2) or ()), 1)
    for index, axis in enumerate(chosen):
        result[axis] = ctx.fresh() if pads is None else shape[axis] + pads[index] + pads[index + len(chosen)]
    return tuple(result)


PAD_1 = op(
    "Pad", eval=lambda x, *, mode, paddings, value: pad(x, paddings, None, mode, value), infer=infer_pad, traits=Trait.AHEAD
)
PAD_2 = op(
    "Pad", eval=lambda x, *, mode, pads, value: pad(x, pads, None, mode, value), infer=infer_pad, since=2, traits=Trait.AHEAD
)
PAD = op("Pad", eval=_pad_by_inputs, infer=infer_pad, since=11, traits=Trait.AHEAD)


def _center_crop_pad(x: Array, shape: Array, *, axes: tuple[int, ...] | None) -> Array:
    sizes = [int(size) for size in shape.reshape(-1)]
    chosen = list(range(x.ndim)) if axes is None else [normalize_axis(axis, x.ndim) for axis in axes]
    if len(sizes) != len(chosen):
        raise ValueError(f"shape has {len(sizes)} elements: expected {len(chosen)}")
    begins, ends = [], []
    for axis, size in zip(chosen, sizes, strict=True):
        extra = size - x.shape[axis]
        begin = extra // 2 if extra >= 0 else -(-extra // 2)
        begins.append(begin)
        ends.append(extra - begin)
    return pad(x, begins + ends, chosen, "constant", _pad_value(x, None))


def infer_center_crop_pad(ctx: InferContext) -> InferResult:
    """The sizes asked for on the chosen axes."""
    shape, sizes, axes = ctx.shape(0), ctx.dims(1), ctx.attr("axes")
    if shape is None:
        return sizes if axes is None else None
    chosen = list(range(len(shape))) if axes is None else [normalize_axis(axis, len(shape)) for axis in axes]
    if sizes is not None and len(sizes) != len(chosen):
        raise ValueError(f"shape has {len(sizes)} elements, expected {len(chosen)}: one for each axis")
    result = list(shape)
    for index, axis in enumerate(chosen):
        result[axis] = ctx.fresh() if sizes is None else sizes[index]
    return tuple(result)


CENTER_CROP_PAD = op("CenterCropPad", eval=_center_crop_pad, infer=infer_center_crop_pad, since=18)
