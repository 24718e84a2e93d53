"""Packing: a matrix that is computed at run time is put into strips of columns, as `kernel.matmul` wants it.

    strip s, row k, column j of the strip   :=   matrix[k, s * width + j]

Columns beyond the matrix hold numbers that do not matter: nothing computed from them is stored. The matrix is read in the order
in which it lies: along its columns, along its depth (blocks are then transposed in registers), or one element at a time.

The parallel range counts pieces of strips: DEPTH rows each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from sardonyx.ir.dims import Dim, ceildiv, product
from sardonyx.kernel.arguments import Arguments, address, number, numbers, tensor
from sardonyx.kernel.matmul.matmul import vector_lanes
from sardonyx.records import dataclass
from sardonyx.target.target import Target

Array: TypeAlias = np.ndarray[Any, Any]
Order: TypeAlias = Literal["columns", "depth", "any"]

DEPTH = 128  # rows of a strip that make one unit of work


@dataclass(frozen=True, slots=True, kw_only=True)
class PackKernel:
    """All that decides the code of a packing kernel."""

    source: str  # type of the matrix in memory
    type: str  # of the strips
    batch: int
    vectors: int  # in a strip
    order: Order  # which axis of the matrix is consecutive

    @property
    def key(self) -> str:
        """Equal for kernels with the same code."""
        return f"pack|{self.source}|{self.type}|{self.batch}|{self.vectors}|{self.order}"

    @property
    def arguments(self) -> Arguments:
        """What it is called with."""
        return Arguments(
            numbers("batch", self.batch),
            number("columns"),
            number("depth"),
            tensor("source", self.batch + 2),  # strides: batch axes, column, depth
            address("target"),
        )


def units(kernel: PackKernel, batch: Sequence[Dim], columns: Dim, depth: Dim, target: Target) -> Dim:
    """How many pieces of strips there are."""
    strips = ceildiv(columns, kernel.vectors * vector_lanes(kernel.type, target))
    return product([*batch, strips, ceildiv(depth, DEPTH)])


def pack_strips(matrix: Array, strip: int) -> Array:
    """Matrices [..., depth, columns] as strips [..., strips, depth, strip], zeros beyond the columns, on a cache line."""
    *batch, depth, columns = matrix.shape
    strips = -(-columns // strip)
    shape = (*batch, strips, depth, strip)
    size = int(np.prod(shape)) * matrix.itemsize
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    packed = memory[start : start + size].view(matrix.dtype).reshape(shape)
    whole = columns // strip
    if whole:
        packed[..., :whole, :, :] = np.swapaxes(matrix[..., : whole * strip].reshape(*batch, depth, whole, strip), -2, -3)
    if whole < strips:
        packed[..., whole, :, : columns - whole * strip] = matrix[..., whole * strip :]
        packed[..., whole, :, columns - whole * strip :] = 0
    return packed
