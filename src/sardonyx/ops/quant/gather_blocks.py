"""GatherBlocks: rows of a table of 2, 4 or 8 bits with a scale for each block, dequantized, whatever its numbers mean.

What `passes.form_block_gathers` makes of lookups in tables of a type of 4 bits: the bytes of the table stay as the file has them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.indexing.indexing import checked_indices
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.precision import narrow, widen
from sardonyx.ops.quant.contrib_quant_matmul import unpack_bits
from sardonyx.ops.registry import Trait, op

DOMAIN: Final = "sardonyx"


def _gather_blocks(
    data: Array, indices: Array, scales: Array, zero_points: Array | None = None, *, bits: int, signed: int, zero_point: int
) -> Array:
    """(code - zero point) * scale. Codes of signed numbers are those with the highest bit flipped, as are their zero points."""
    rows = checked_indices(indices, len(data), 0)
    codes = unpack_bits(data[rows], bits) ^ np.uint8(signed << (bits - 1))
    factors = widen(scales[rows])
    points = np.full((1,) * factors.ndim, zero_point, np.float32) if zero_points is None else zero_points[rows].astype(np.float32)
    blocks = codes.astype(np.float32).reshape(*factors.shape, -1)
    return narrow(((blocks - points[..., None]) * factors[..., None]).reshape(codes.shape), scales.dtype)


def _infer(ctx: InferContext) -> InferResult:
    data, indices = ctx.shape(0), ctx.shape(1)
    if data is None or indices is None:
        return None
    return (*indices, data[1] * (8 // int(ctx.attr("bits"))))


GATHER_BLOCKS = op("GatherBlocks", domain=DOMAIN, eval=_gather_blocks, infer=_infer, traits=Trait.REFUSES)
