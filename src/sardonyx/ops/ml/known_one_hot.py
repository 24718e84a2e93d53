"""One-hot encoding that refuses what is no category.

    KnownOneHot([3, 7], categories = [7, 3])    =>    [[0, 1], [1, 0]]
    KnownOneHot([4], categories = [7, 3])       =>    refused

With `texts` the elements are positions of texts that were looked up before: the refusal cannot name the text.
"""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult


def refusal(texts: bool) -> str:
    """What is said of an element that is no category; `found` and `limit` are to be filled in."""
    if texts:
        return "a text is none of the {limit} categories, and zeros is 0; expected known categories only"
    return "{found} is none of the {limit} categories, and zeros is 0; expected known categories only"


def _known_one_hot(x: Array, categories: Array, *, texts: int) -> Array:
    found = x[..., None] == categories
    unknown = ~found.any(axis=-1)
    if unknown.any():
        raise ValueError(refusal(bool(texts)).format(found=x[unknown].reshape(-1)[0], limit=len(categories)))
    return np.asarray(found).astype(np.float32)


def _infer_known_one_hot(ctx: InferContext) -> InferResult:
    shape, categories = ctx.shape(0), ctx.shape(1)
    known = shape is not None and categories is not None and len(categories) == 1
    return TensorType(dtypes.FLOAT32, (*shape, categories[0]) if known else None)  # type: ignore[misc,index]


op("KnownOneHot", domain="sardonyx", eval=_known_one_hot, infer=_infer_known_one_hot)
