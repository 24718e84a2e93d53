"""EmbeddingBag: sums, means or maxima of rows of a table, a bag of them for each result.

What `passes.form_embedding_bags` makes of loops that take one bag in every iteration, as exporters write `torch.nn.EmbeddingBag`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.indexing.indexing import checked_indices
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.registry import Trait, op
from sardonyx.ops.rows.reduce import REDUCERS

DOMAIN: Final = "sardonyx"


def _embedding_bag(
    table: Array,
    starts: Array,
    ends: Array,
    indices: Array | None = None,
    weights: Array | None = None,
    *,
    mode: str,
    equal_is_zero: int,
) -> Array:
    """Bag b has the elements starts[b] to ends[b], counted as Slice does; without indices, these are the rows themselves."""
    if starts.shape != ends.shape:
        raise ValueError(f"{len(starts)} bags begin, {len(ends)} end")
    count = len(table) if indices is None else len(indices)
    if weights is not None and weights.shape != (count,):
        raise ValueError(f"expected {count} weights, one for each element, found shape {list(weights.shape)}")
    result = np.zeros((len(starts), *table.shape[1:]), table.dtype)
    for bag, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
        if equal_is_zero and start == end:
            continue
        chosen = slice(*slice(start, end).indices(count))
        rows = table[chosen] if indices is None else table[checked_indices(indices[chosen], len(table), 0)]
        if weights is not None:
            rows = rows * weights[chosen].reshape(-1, *[1] * (table.ndim - 1))
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            result[bag] = REDUCERS[f"Reduce{mode.capitalize()}"](rows, (0,))[0]
    return result


def _infer(ctx: InferContext) -> InferResult:
    table, starts, ends = ctx.shape(0), ctx.shape(1), ctx.shape(2)
    if table is None or starts is None:
        return None
    if ends is not None:
        ctx.expect_equal(starts[0], ends[0])
    indices, weights = ctx.shape(3), ctx.shape(4)
    if weights is not None:
        ctx.expect_equal(weights[0], table[0] if indices is None else indices[0])
    return (starts[0], *table[1:])


EMBEDDING_BAG = op("EmbeddingBag", domain=DOMAIN, eval=_embedding_bag, infer=_infer, traits=Trait.REFUSES)
