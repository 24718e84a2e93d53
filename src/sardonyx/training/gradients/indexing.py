"""Gradients of operators that move elements: the gradients move back, and add up where an element went to several places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from sardonyx.ir.graph import Value
from sardonyx.training.gradients.matmul import transposed_product
from sardonyx.training.gradients.rules import Backward, constant_for_gradients, gradient

Results = Sequence[Value | None]

_SCATTER_VERSION = 18  # since which all scatters can add

constant_for_gradients("NonZero", "ArgMax", "ArgMin", "Shape", "Size")


@gradient("Reshape", stops=(1,))
@gradient("Squeeze", "Unsqueeze", stops=(1,))
@gradient("Flatten")
def _reshape(b: Backward) -> Results:
    return [b.Reshape(b.dy(), b.Shape(b.x()))]


@gradient("Transpose")
def _transpose(b: Backward) -> Results:
    perm = b.attr("perm")
    product = b.dy().producer
    if b.rank(b.x()) == 2 and perm in (None, (1, 0), [1, 0]) and product is not None and product.op_type == "Gemm":
        return [transposed_product(b, product)]
    if perm is None:
        return [b.Transpose(b.dy())]
    return [b.Transpose(b.dy(), perm=[int(axis) for axis in np.argsort(np.mod(perm, b.rank(b.x())))])]


@gradient("Expand", stops=(1,))
def _expand(b: Backward) -> Results:
    return [b.sum_to(b.dy(), b.y().shape, b.x())]


@gradient("Concat")
def _concat(b: Backward) -> Results:
    axis = int(b.attr("axis")) % b.rank(b.y())
    count = len(b.node.inputs)
    sizes = [b.shape(b.x(index))[axis] for index in range(count)]
    if all(isinstance(size, int) for size in sizes):
        parts: Value | np.ndarray[tuple[int], np.dtype[np.int64]] = np.array([int(str(size)) for size in sizes], np.int64)
    else:
        parts = b.Concat(*(b.sizes(b.x(index), axis) for index in range(count)), axis=0)
    return b.g.node("Split", [b.dy(), parts], count, attrs={"axis": axis})


@gradient("Split", stops=(1,))
def _split(b: Backward) -> Results:
    parts = [b.zeros_like(value) if d is None else d for value, d in zip(b.node.outputs, b.gradients)]
    return [b.Concat(*parts, axis=int(b.attr("axis")))]


@gradient("Slice", stops=(1, 2, 3, 4))
def _slice(b: Backward) -> Results:
    steps = b.constant(4) if b.has(4) else np.ones(1, np.int64)
    starts, axes = b.constant(1), b.constant(3) if b.has(3) else None
    shape = b.shape(b.x())
    if starts is not None and axes is None and not b.has(3):
        axes = np.arange(starts.size)
    if starts is None or steps is None or axes is None or (steps != 1).any() or b.node.version < 10:
        inputs = [b.x(index) if b.has(index) else None for index in range(1, 5)]
        if b.node.version < 10:
            given = np.array(b.attr("starts"), np.int64), np.array(b.attr("ends"), np.int64)
            chosen = b.attr("axes")
            inputs = [*given, np.array(chosen if chosen is not None else range(len(given[0])), np.int64), None]  # type: ignore[list-item]
        elif axes is not None or not b.has(3):
            return [_sliced_back(b, axes)]
        return [b.own("SliceGrad", b.dy(), b.Shape(b.x()), *inputs)]
    # A plain part: zeros before and behind it.
    rank = len(shape)
    before = np.zeros(rank, np.int64)
    from_end = np.zeros(rank, bool)
    for axis, start in zip(axes.reshape(-1).tolist(), starts.reshape(-1).tolist()):
        size = shape[axis % rank]
        first_index = start
        if isinstance(size, int):
            first_index = max(start + size, 0) if start < 0 else min(start, size)
        before[axis % rank] = first_index
        from_end[axis % rank] = first_index < 0
    if from_end.any() or ((before > 0).any() and any(not isinstance(shape[axis], int) for axis in np.flatnonzero(before))):
        sizes = b.Shape(b.x())
        wrapped = b.Add(before, b.Where(from_end, sizes, np.zeros(rank, np.int64)))
        first: Value | np.ndarray[tuple[int, ...], np.dtype[np.int64]] = b.Max(b.Min(wrapped, sizes), np.zeros(rank, np.int64))
    else:
        first = before
    behind = b.Sub(b.Sub(b.Shape(b.x()), first), b.Shape(b.dy()))
    first_value = first if isinstance(first, Value) else b.g.constant(first)
    return [b.Pad(b.dy(), b.Concat(first_value, behind, axis=0))]


def _sliced_back(b: Backward, axes: np.ndarray[Any, Any] | None) -> Value:
    """Elements go back to the indices that the same slice takes of 0, 1, 2, ..."""
    rank = b.rank(b.x())
    count = b.shape(b.x(1))[0] if axes is None else axes.size
    if not isinstance(count, int):
        b.refuse("the number of its axes is not known")
    d = b.dy()
    for number in range(count):
        axis = number if axes is None else int(axes.reshape(-1)[number]) % rank
        start, end = (b.Gather(b.x(index), b.ints(number), axis=0) for index in (1, 2))
        step = b.Gather(b.x(4), b.ints(number), axis=0) if b.has(4) else b.g.constant(b.ints(1))
        d = _to_indices(b, d, axis, b.Slice(_numbered(b, axis), start, end, b.ints(0), step))
    return d


def _numbered(b: Backward, axis: int) -> Value:
    """0, 1, 2, ... as long as an axis of the input."""
    return b.Range(np.array(0), b.Squeeze(b.sizes(b.x(), axis), b.ints(0)), np.array(1))


def _to_indices(b: Backward, d: Value, axis: int, indices: Value) -> Value:
    """A gradient added up along an axis, in zeros as long as that of the input, at the indices its elements came from."""
    rank = b.rank(b.x())
    parts = [b.sizes(b.x() if each == axis else d, each) for each in range(rank)]
    return b.own("GatherGrad", d, indices, b.Concat(*parts, axis=0), axis=axis)


@gradient("Pad", stops=(1, 2, 3))
def _pad(b: Backward) -> Results:
    mode = b.attr("mode") or "constant"
    rank = b.rank(b.x())
    pads = b.constant(1) if b.node.version >= 11 else np.array(b.attr("pads"), np.int64)
    if mode != "constant":
        if pads is None:
            b.refuse(f"its pads are computed and its mode is {mode!r}")
        d, whole = b.dy(), _all_pads(b, pads, rank)
        for axis in range(rank):
            before, behind = int(whole[axis]), int(whole[axis + rank])
            if before or behind:
                version = max(b.g.version, 19 if mode == "wrap" else 13)
                indices = b.g.op("Pad", _numbered(b, axis), b.ints(before, behind), mode=mode, version=version)
                d = _to_indices(b, d, axis, indices)
        return [d]
    if pads is not None:
        return [b.Pad(b.dy(), -_all_pads(b, pads, rank))]
    if b.has(3):
        b.refuse("its pads are computed and name axes")
    return [b.Pad(b.dy(), b.Neg(b.x(1)))]


def _all_pads(
    b: Backward, pads: np.ndarray[tuple[int, ...], np.dtype[np.int64]], rank: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The pads of all axes, whichever the node names."""
    pads = pads.reshape(-1).astype(np.int64)
    if not b.has(3):
        return pads
    axes = b.constant(3)
    if axes is None:
        b.refuse("its axes are computed")
    result = np.zeros(2 * rank, np.int64)
    count = axes.size
    for index, axis in enumerate(axes.reshape(-1).tolist()):
        result[axis % rank], result[axis % rank + rank] = pads[index], pads[index + count]
    return result


@gradient("Tile", stops=(1,))
def _tile(b: Backward) -> Results:
    """[r0, n0, r1, n1, ...], summed over the repetitions."""
    rank = b.rank(b.x())
    pairs = b.Concat(b.Unsqueeze(b.x(1), b.ints(1)), b.Unsqueeze(b.Shape(b.x()), b.ints(1)), axis=1)
    parted = b.Reshape(b.dy(), b.Reshape(pairs, b.ints(-1)))
    return [b.ReduceSum(parted, b.ints(*range(0, 2 * rank, 2)), keepdims=0)]


@gradient("Gather", stops=(1,))
def _gather(b: Backward) -> Results:
    return [b.own("GatherGrad", b.dy(), b.x(1), b.Shape(b.x()), axis=int(b.attr("axis")))]


@gradient("GatherElements", stops=(1,))
def _gather_elements(b: Backward) -> Results:
    return [_scatter(b, "ScatterElements", b.x(), b.x(1), b.dy(), axis=int(b.attr("axis")))]


@gradient("GatherND", stops=(1,))
def _gather_nd(b: Backward) -> Results:
    if b.attr("batch_dims"):
        b.refuse("it has batch_dims")
    return [_scatter(b, "ScatterND", b.x(), b.x(1), b.dy())]


def _scatter(b: Backward, op_type: str, like: Value, indices: Value, updates: Value, **attrs: int) -> Value:
    """Updates added up at their indices, in zeros."""
    version = max(b.g.version, _SCATTER_VERSION)
    return b.g.op(op_type, b.zeros_like(like), indices, updates, version=version, reduction="add", **cast("Any", attrs))


@gradient("ScatterElements", "Scatter", stops=(1,))
def _scatter_elements(b: Backward) -> Results:
    reduction, axis = b.attr("reduction") or "none", int(b.attr("axis"))
    if reduction not in ("none", "add"):
        b.refuse(f"its reduction is {reduction!r}")
    d = b.dy()
    of_data = d
    if reduction == "none":
        zeros = b.zeros_like(b.x(2))
        of_data = b.g.op("ScatterElements", d, b.x(1), zeros, axis=axis)
    return [of_data, None, b.GatherElements(d, b.x(1), axis=axis)]


@gradient("ScatterND", stops=(1,))
def _scatter_nd(b: Backward) -> Results:
    reduction = b.attr("reduction") or "none"
    if reduction not in ("none", "add"):
        b.refuse(f"its reduction is {reduction!r}")
    d = b.dy()
    of_data = d if reduction == "add" else b.g.op("ScatterND", d, b.x(1), b.zeros_like(b.x(2)))
    return [of_data, None, b.GatherND(d, b.x(1))]


@gradient("TopK", stops=(1,))
def _top_k(b: Backward) -> Results:
    return [_scatter(b, "ScatterElements", b.x(), b.y(1), b.dy(), axis=int(b.attr("axis")))]


@gradient("Trilu", stops=(1,))
def _trilu(b: Backward) -> Results:
    return [b.g.op("Trilu", b.dy(), b.x(1) if b.has(1) else None, upper=b.attr("upper"), version=max(b.g.version, 14))]


@gradient("DepthToSpace")
def _depth_to_space(b: Backward) -> Results:
    """Only the order that SpaceToDepth undoes has an operator for the way back."""
    if (b.attr("mode") or "DCR") == "DCR":
        return [b.SpaceToDepth(b.dy(), blocksize=b.attr("blocksize"))]
    block = int(b.attr("blocksize"))
    y = b.y()
    n, height, width = b.sizes(y, 0), b.Div(b.sizes(y, 2), b.ints(block)), b.Div(b.sizes(y, 3), b.ints(block))
    parts = b.Concat(n, b.sizes(y, 1), height, b.ints(block), width, b.ints(block), axis=0)
    moved = b.Transpose(b.Reshape(b.dy(), parts), perm=[0, 1, 3, 5, 2, 4])
    return [b.Reshape(moved, b.Shape(b.x()))]


@gradient("SpaceToDepth")
def _space_to_depth(b: Backward) -> Results:
    return [b.DepthToSpace(b.dy(), blocksize=b.attr("blocksize"))]


@gradient("ReverseSequence", stops=(1,))
def _reverse_sequence(b: Backward) -> Results:
    return [b.ReverseSequence(b.dy(), b.x(1), batch_axis=b.attr("batch_axis"), time_axis=b.attr("time_axis"))]


@gradient("Compress", stops=(1,))
def _compress(b: Backward) -> Results:
    axis = b.attr("axis")
    where = b.Squeeze(b.Transpose(b.NonZero(b.x(1))), b.ints(1))
    if axis is None:
        size = b.Reshape(b.Size(b.x()), b.ints(1))
        return [b.Reshape(b.own("GatherGrad", b.dy(), where, size, axis=0), b.Shape(b.x()))]
    return [b.own("GatherGrad", b.dy(), where, b.Shape(b.x()), axis=int(axis))]
