"""ByteTable: a function of a byte by its 256 results."""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.registry import Trait, op

DOMAIN: Final = "sardonyx"
_BYTES: Final = 256


def _byte_table(x: Array, *, table: list[int], signed: int) -> Array:
    """`table` has the results as unsigned bytes, in the order of the unsigned bytes of x."""
    if len(table) != _BYTES or not all(0 <= each < _BYTES for each in table):
        span = f"{min(table, default=0)} to {max(table, default=0)}"
        raise ValueError(f"table has {len(table)} numbers from {span}, expected 256 bytes")
    results = np.array(table, np.uint8).view(np.int8 if signed else np.uint8)
    return np.asarray(results[np.ascontiguousarray(x).view(np.uint8)]).reshape(x.shape)


def _infer(ctx: InferContext) -> InferResult:
    return [TensorType(dtypes.INT8 if ctx.attr("signed") else dtypes.UINT8, ctx.shape(0))]


BYTE_TABLE = op("ByteTable", domain=DOMAIN, eval=_byte_table, infer=_infer, traits=Trait.ELEMENTWISE)
