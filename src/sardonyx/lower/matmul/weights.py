"""Weights of matrix products in the order kernels read them (see `program.constants`). Large ones are packed in blocks."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.kernel.matmul import pack
from sardonyx.program.constants import Cut, transform


def _strip_cuts(matrices: Array, strip: int) -> list[Cut]:
    """[..., depth, columns] -> [..., strips, depth, strip]."""
    batch = matrices.ndim - 2
    return [*(Cut(axis, axis) for axis in range(batch)), Cut(batch, batch + 1), Cut(batch + 1, batch, strip)]


def _transposed_cuts(matrices: Array) -> list[Cut]:
    batch = matrices.ndim - 2
    return [*(Cut(axis, axis) for axis in range(batch)), Cut(batch, batch + 1), Cut(batch + 1, batch)]


@transform("pack_strips", 1, _strip_cuts, is_numbers=True)
def pack_strips(matrices: Array, strip: int) -> Array:
    """[..., depth, columns] as strips [..., strips, depth, strip], zeros beyond the columns."""
    *batch, depth, columns = matrices.shape
    if columns % strip:
        return pack.pack_strips(matrices, strip)
    return np.swapaxes(matrices.reshape(*batch, depth, columns // strip, strip), -2, -3)


@transform("transpose_matrices", 1, _transposed_cuts, is_numbers=True)
def transposed(matrices: Array) -> Array:
    """The last two axes exchanged."""
    return np.swapaxes(matrices, -1, -2)
