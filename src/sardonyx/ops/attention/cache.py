"""AppendToCache: what the decoder loop makes of Concat(past, new), so that keys and values can stay where they are.

cache[B, N, M, H]   with room for M positions, of which the first P (the length of `past`) are filled
present             the cache with the new rows behind those, zeros behind them
filled              its first P + S positions: what Concat gave
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir.tensor import Array
from sardonyx.ops.definition import Trait, op
from sardonyx.ops.infer import InferContext, InferResult


def _append_to_cache(cache: Array, new: Array, past: Array) -> tuple[Array, Array]:
    held, added, room = past.shape[0], new.shape[2], cache.shape[2]
    if held + added > room:
        raise ValueError(f"the cache has room for {room} positions, {held} are filled and {added} more do not fit")
    if (*cache.shape[:2], cache.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(f"the cache is {cache.shape}, new rows are {new.shape}: they may differ only on axis 2")
    present = np.zeros_like(cache)
    present[:, :, :held] = cache[:, :, :held]
    present[:, :, held : held + added] = new
    return present, present[:, :, : held + added].copy()


def _infer_append(ctx: InferContext) -> InferResult:
    cache, new, past = ctx.shape(0, rank=4), ctx.shape(1, rank=4), ctx.shape(2, rank=1)
    if cache is None or new is None or past is None:
        return [cache, None]
    batch, heads, room, size = cache
    ctx.expect_shape(1, batch, heads, new[2], size)
    filled = past[0] + new[2]
    ctx.expect_at_most(filled, room)
    return [cache, (batch, heads, filled, size)]


APPEND_TO_CACHE = op("AppendToCache", domain="sardonyx", eval=_append_to_cache, infer=_infer_append, traits=Trait.REFUSES)
