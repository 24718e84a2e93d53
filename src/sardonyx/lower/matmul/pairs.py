"""Products of bfloat16 with constant matrices, on the kernels of `kernel.matmul.pairs`."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.dims import Dim, ceildiv, dim_max, product
from sardonyx.ir.tensor import Array
from sardonyx.kernel.epilogue import Epilogue
from sardonyx.kernel.matmul.matmul import heights, tallest
from sardonyx.kernel.matmul.pairs import PAIR, PairMatMulKernel
from sardonyx.lower.derived import numbers
from sardonyx.lower.matmul.product import Columns, Product, batch_of, is_unit
from sardonyx.program.constants import Cut, transform
from sardonyx.program.steps import View
from sardonyx.target import cost


def _pair_cuts(matrices: Array, strip: int) -> list[Cut]:
    batch = matrices.ndim - 2
    return [*(Cut(axis, axis) for axis in range(batch)), Cut(batch + 1, batch, strip)]


@transform("pack_pairs", 1, _pair_cuts, is_numbers=True)
def pack_pairs(matrices: Array, strip: int) -> Array:
    """[..., depth, columns] of bfloat16 as [..., strips, pairs, strip], each i32 two numbers; zeros beyond the matrices."""
    *batch, depth, columns = matrices.shape
    pairs, strips = -(-depth // PAIR), -(-columns // strip)
    bits = matrices.view(np.uint16)
    if pairs * PAIR != depth or strips * strip != columns:
        padded = np.zeros((*batch, pairs * PAIR, strips * strip), np.uint16)
        padded[..., :depth, :columns] = bits
        bits = padded
    low, high = (bits[..., number::PAIR, :].astype(np.uint32) for number in range(PAIR))
    joined = (low | high << np.uint32(16)).view(np.int32).reshape(*batch, pairs, strips, strip)
    return np.swapaxes(joined, -2, -3)


class PairProduct(Product):
    """A product of bfloat16 on its way to steps: neither operand is widened."""

    def packed_constant(self) -> Columns:
        pairs = ceildiv(self.depth, PAIR)
        shape = numbers((*self.b.shape[:-2], ceildiv(self.columns, self.strip), pairs, self.strip))
        view = self.ctx.packed(pack_pairs, (self.b,), self.strip, dtype=dtypes.INT32, shape=shape)
        return Columns("packed", batch_of(view), "i32", pairs * self.strip, self.vectors)

    def tile_kernel(self, b: Columns, a: View, batch: int, rows: Dim, whole: bool, epilogue: Epilogue) -> PairMatMulKernel:
        most = tallest(self.ctx.target, b.vectors)
        return PairMatMulKernel(
            batch=batch,
            vectors=b.vectors,
            rows=most,
            heights=heights(rows, most),
            whole=whole,
            ragged=not isinstance(self.depth, int) or self.depth % PAIR != 0,
            epilogue=epilogue,
        )

    def bytes(self, elements: int) -> Dim:
        return elements * dtypes.BFLOAT16.bits // 8

    def summable_a(self) -> View:
        if not is_unit(self.a, -1):
            self.a = self.ctx.copy(self.a, self.ctx.scratch(self.a.buffer.dtype, self.a.shape, "rows"), "copy")
        return self.a

    def work(self, operations: int) -> Dim:
        slots = dim_max(self.rows, 4) * product([*self.shape[:-2], self.columns]) * self.depth
        return cost.matmul(ceildiv(slots, PAIR), product(self.shape), operations, double=False)
