"""Gradients of operators that sample images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.ops.indexing.layout import repeats
from sardonyx.training.gradients.rules import Backward, dtype_of, gradient

Results = Sequence[Value | None]

_ATTRS: Final = (
    "antialias", "axes", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "keep_aspect_ratio_policy",
    "mode", "nearest_mode",
)  # fmt: skip


@gradient("Resize", stops=(1, 2, 3))
def _resize(b: Backward) -> Results:
    """Pixels that were repeated are summed up; what was blended goes back by the transposed matrices."""
    if b.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        b.refuse("it crops the image")
    scales = b.constant(2)
    factors = None if scales is None or not scales.size else _repeats(b, scales)
    if factors is not None:
        return [_summed(b, factors)]
    attrs: dict[str, Any] = {name: b.node.attrs[name].value for name in _ATTRS if name in b.node.attrs}
    if b.node.version >= 11 and (b.attr("keep_aspect_ratio_policy") or "stretch") == "stretch":
        return [_by_matrices(b, attrs)]
    given = b.x(2) if b.has(2) and (scales is None or scales.size) else None
    return [b.own("ResizeGrad", b.dy(), b.Shape(b.x()), given, b.x(3) if b.has(3) else None, **attrs)]


def _by_matrices(b: Backward, attrs: dict[str, Any]) -> Value:
    """Resizing is linear: along each axis a matrix, which is the resized identity; its gradient is the product with that."""
    x, shape, whole = b.x(), b.shape(b.x()), b.y().shape
    rank, dtype = len(shape), dtype_of(b.x())
    axes = [int(axis) % rank for axis in b.attr("axes") or range(rank)]
    scales = b.constant(2)
    by_sizes = b.has(3)
    more = {name: value for name, value in attrs.items() if name not in ("axes", "keep_aspect_ratio_policy")}
    d = b.dy()
    for number, axis in enumerate(axes):
        same = whole is not None and shape[axis] == whole[axis]
        if same and (by_sizes or (scales is not None and scales.reshape(-1)[number] == 1)):
            continue
        size = b.sizes(x, axis)
        indices = b.Range(np.array(0), b.Squeeze(size, b.ints(0)), np.array(1))
        one = b.Cast(b.Equal(b.Unsqueeze(indices, b.ints(1)), indices), to=dtype.onnx)
        square = b.Unsqueeze(one, b.ints(0, 1))
        if by_sizes:
            wanted: tuple[Value | None, ...] = (None, b.Concat(b.ints(1, 1), b.sizes(b.y(), axis), size, axis=0))
        else:
            factor = b.Gather(b.x(2), b.ints(number), axis=0)
            ones = np.ones(1, np.float32)
            wanted = (b.Concat(np.ones(2, np.float32), factor, ones, axis=0),)
        matrix = b.Squeeze(b.g.op("Resize", square, None, *wanted, version=b.node.version, **more), b.ints(0, 1))
        order = list(range(rank))
        order[axis], order[-1] = order[-1], order[axis]
        moved = d if axis == rank - 1 else b.Transpose(d, perm=order)
        made = b.MatMul(moved, matrix)
        d = made if axis == rank - 1 else b.Transpose(made, perm=order)
    return d


@gradient("Upsample", stops=(1,))
def _upsample(b: Backward) -> Results:
    scales = b.constant(1) if b.has(1) else np.array(b.attr("scales") or (), np.float32)
    factors = None if scales is None else _repeats(b, scales, old=True)
    if factors is None:
        b.refuse("it does more than repeat pixels")
    return [_summed(b, factors)]


def _repeats(b: Backward, scales: np.ndarray[tuple[int, ...], np.dtype[np.float32]], *, old: bool = False) -> list[int] | None:
    """How often each element is repeated along every axis, if that is all."""
    rank = b.rank(b.x())
    axes = b.attr("axes") or range(rank)
    by_axis = dict(zip([int(axis) % rank for axis in axes], scales.reshape(-1).tolist()))
    attrs = {
        "mode": b.attr("mode"),
        "scales": [by_axis.get(axis, 1.0) for axis in range(rank)],
        "coordinate_transformation_mode": "asymmetric" if old else b.attr("coordinate_transformation_mode"),
        "nearest_mode": "floor" if old else b.attr("nearest_mode"),
    }
    found = repeats(attrs)
    return None if found is None else list(found)


def _summed(b: Backward, factors: list[int]) -> Value:
    """dy as [n0, f0, n1, f1, ...], summed over the repetitions."""
    sizes: list[Value] = []
    kept: list[int] = []
    for axis, factor in enumerate(factors):
        kept.append(len(sizes))
        sizes.append(b.sizes(b.x(), axis))
        if factor > 1:
            sizes.append(b.g.constant(b.ints(factor)))
    gone = [axis for axis in range(len(sizes)) if axis not in kept]
    if not gone:
        return b.dy()
    return b.ReduceSum(b.Reshape(b.dy(), b.Concat(*sizes, axis=0)), b.ints(*gone), keepdims=0)
