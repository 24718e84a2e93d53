"""TreeScores: what the leaves say together, [rows, targets]. Passes make it of ensembles of ai.onnx.ml; see `ml_decisions`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.ml.ml_decisions import (
    COLUMN_BITS,
    DEPTH,
    FIRST_SLOT,
    HIGHEST,
    LOWEST,
    SLOT_BITS,
    TARGET,
    float_keys,
)
from sardonyx.ops.ml.ml_scores import row_count, rows_of

Array = NDArray[Any]
Ints = NDArray[np.int64]

COMBINED: Final = {"SUM": (np.add, 0.0), "MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}


def _keys(x: Array, columns: Ints, cuts: Array, cut_starts: Ints) -> NDArray[np.uint64]:
    """The key of each row in each column."""
    values = x[:, columns >> 1]
    if x.dtype == np.float64:
        parts = [
            np.searchsorted(cuts[start:stop], values[:, column]) + 1
            for column, (start, stop) in enumerate(pairwise(cut_starts.tolist()))
        ]
        keys = np.stack(parts, axis=1).astype(np.uint64) if parts else np.empty((len(x), 0), np.uint64)
    else:
        keys = float_keys(values).astype(np.uint64)
    of_nan = np.where(columns & 1, LOWEST, HIGHEST).astype(np.uint64)
    keys = np.where(np.isnan(values), of_nan, keys)
    return np.concatenate([keys, np.full((len(x), 1), LOWEST, np.uint64)], axis=1)  # the last is what leaves look at


def _leaves(keys: NDArray[np.uint64], nodes: NDArray[np.uint64], first: int, depth: int) -> Ints:
    """The number of the leaf that each row reaches in a tree."""
    at = np.zeros(len(keys), np.int64)
    rows = np.arange(len(keys))
    for _ in range(depth):
        stop_if_asked()
        word = nodes[first + at]
        if nodes.shape[1] == 1:
            column = word[:, 0] >> np.uint64(32) & np.uint64((1 << COLUMN_BITS) - 1)
            pair = word[:, 0] >> np.uint64(64 - SLOT_BITS)
        else:
            column, pair = word[:, 1], word[:, 0] >> np.uint64(32)
        own = word[:, 0] & np.uint64(HIGHEST)
        at = pair.astype(np.int64) + (keys[rows, column.astype(np.int64)] > own)
    return np.asarray(nodes[first + at, 0] & np.uint64(HIGHEST), np.int64)


def _tree_scores(
    x: Array,
    columns: Ints,
    cuts: Array,
    cut_starts: Ints,
    trees: Ints,
    nodes: NDArray[np.uint64],
    votes: Array,
    words: Ints,
    bits: NDArray[np.int32],
    *,
    aggregate: str,
    features: int,
    targets: int,
    tree_count: int,
) -> Array:
    rows = rows_of(x)
    if rows.shape[1] < features:
        raise ValueError(f"the trees look at feature {features - 1} but the input has {rows.shape[1]} features")
    combine, start = COMBINED[aggregate]
    scores = np.full((len(rows), targets), start, votes.dtype)
    keys = _keys(rows, columns, cuts, cut_starts)
    with np.errstate(all="ignore"):
        for tree in trees[:tree_count].tolist():
            said = votes[_leaves(keys, nodes, tree[FIRST_SLOT], tree[DEPTH])]
            part = slice(None) if votes.shape[1] == targets else slice(tree[TARGET], tree[TARGET] + 1)
            scores[:, part] = combine(scores[:, part], said)
    return scores


def _infer_tree_scores(ctx: InferContext) -> InferResult:
    rows, dtype = row_count(ctx), ctx.dtype(6)
    shape = ctx.shape(0)
    if shape is not None:
        ctx.expect_at_most(ctx.attr("features"), shape[-1])
    targets = (rows, ctx.attr("targets"))
    return targets if dtype is None else TensorType(dtype, targets)


op("TreeScores", domain="sardonyx", eval=_tree_scores, infer=_infer_tree_scores)
