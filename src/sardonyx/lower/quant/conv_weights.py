"""Kernels of integer convolutions in the order that products of bytes and depthwise loops read them (see `program.constants`)."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.lower.quant.integer_product import pack_quads
from sardonyx.program.constants import Cut, transform


def _matrices(kernels: Array, groups: int, joined: bool) -> Array:
    """[kernels, channels, window ...] as [groups, segments, depth, kernels of a group]."""
    count, channels, *window = kernels.shape
    grouped = kernels.reshape(groups, count // groups, channels, *window)
    rank = len(window)
    # [groups, window ..., channels, kernels]; a row of the window with its channels is one segment if they are joined
    ordered = grouped.transpose(0, *range(3, 3 + rank), 2, 1)
    depth = channels * (window[-1] if joined else 1)
    return ordered.reshape(groups, int(np.prod(window)) * channels // depth, depth, count // groups)


def _kernel_cuts(kernels: Array, group_kernels: int, joined: bool, strip: int, each: int) -> tuple[Cut, ...]:
    """Strips of the only group's kernels, or whole groups."""
    return (Cut(0, 1, strip) if kernels.shape[0] <= group_kernels else Cut(0, 0, group_kernels),)


@transform("pack_kernel_quads", 2, _kernel_cuts, is_numbers=True)
def pack_kernel_quads(kernels: Array, group_kernels: int, joined: bool, strip: int, each: int) -> Array:
    """[kernels, channels, window ...] as [groups, strips, segments, quads, strip, 4]; see `pack_quads`."""
    return pack_quads(_matrices(kernels, max(kernels.shape[0] // group_kernels, 1), joined), strip, each)


def _sum_cuts(kernels: Array, zero_point: Array | None) -> tuple[Cut, ...]:
    """Kernels, where all have the same zero point."""
    return (Cut(0, 0),) if zero_point is None or zero_point.size == 1 else ()


@transform("sums_of_kernels", 1, _sum_cuts, is_numbers=True)
def sums_of_kernels(kernels: Array, zero_point: Array | None) -> Array:
    """For every kernel the sum of the distances of its elements to its zero point."""
    flat = kernels.reshape(kernels.shape[0], -1)
    sums = flat.sum(axis=1, dtype=np.int64)
    if zero_point is not None:
        sums = sums - flat.shape[1] * zero_point.reshape(-1).astype(np.int64)
    return np.asarray(sums.astype(np.int32))


@transform("depthwise_distances", 1, is_numbers=True)
def depthwise_distances(kernels: Array, zero_point: Array | None) -> Array:
    """[channels, 1, window ...] as [window, channels]: the distances of elements to the zero point of their channel."""
    flat = kernels.reshape(kernels.shape[0], -1).astype(np.int16)
    if zero_point is not None:
        flat = flat - zero_point.reshape(-1, 1).astype(np.int16)
    return np.ascontiguousarray(flat.T)
