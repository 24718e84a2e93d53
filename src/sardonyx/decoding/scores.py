"""What becomes of a model's scores before a token is chosen: penalties, forbidden tokens, the shape of the distribution.

Scores are float arrays [rows, vocabulary], changed in place; histories are the tokens of each row so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NEVER = -np.inf


def log_softmax(scores: Array) -> Array:
    """Logarithms of probabilities, row by row."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def probabilities(scores: Array) -> Array:
    """Probabilities in float64, row by row."""
    wide = scores.astype(np.float64)
    weights = np.exp(wide - wide.max(axis=-1, keepdims=True))
    result: Array = weights / weights.sum(axis=-1, keepdims=True)
    return result


def penalize_repetition(scores: Array, histories: Sequence[Array], penalty: float) -> None:
    """Make tokens that a row has less likely: positive scores are divided by the penalty, negative ones multiplied."""
    if penalty == 1:
        return
    for row, history in zip(scores, histories):
        seen = np.unique(history)
        found = row[seen]
        row[seen] = np.where(found < 0, found * scores.dtype.type(penalty), found / scores.dtype.type(penalty))


def forbid_repeated_ngrams(scores: Array, histories: Sequence[Array], size: int) -> None:
    """Never choose a token that would repeat a sequence of `size` tokens the row has already."""
    for row, history in zip(scores, histories) if size else ():
        if len(history) < size:
            continue
        if size == 1:
            row[np.unique(history)] = NEVER
            continue
        windows = np.lib.stride_tricks.sliding_window_view(history, size)
        same = (windows[:, :-1] == history[len(history) - size + 1 :]).all(axis=1)
        row[windows[same, -1]] = NEVER


def forbid_sequences(scores: Array, histories: Sequence[Array], sequences: Sequence[Sequence[int]]) -> None:
    """Never complete one of these sequences of tokens."""
    for *before, last in sequences:
        for row, history in zip(scores, histories):
            is_next = not before or (len(history) >= len(before) and history[-len(before) :].tolist() == before)
            if is_next and last < len(row):
                row[last] = NEVER


def force(scores: Array, tokens: Sequence[int]) -> None:
    """Choose one of these tokens."""
    inside = [token for token in tokens if token < scores.shape[1]]
    scores[:] = NEVER
    scores[:, inside] = 0


def forbid(scores: Array, tokens: Sequence[int]) -> None:
    """Never choose these tokens."""
    inside = [token for token in tokens if token < scores.shape[1]]
    scores[:, inside] = NEVER


def keep_best(scores: Array, count: int) -> None:
    """Never choose a token that is not among the `count` best; those as good as the last of them stay."""
    if 0 < count < scores.shape[1]:
        worst = np.partition(scores, -count, axis=1)[:, -count, None]
        scores[scores < worst] = NEVER


def keep_nucleus(scores: Array, share: float, least: int = 1) -> None:
    """Never choose a token outside the smallest set that has this share of the probability; `least` stay in any case."""
    if share >= 1:
        return
    order = np.argsort(scores, axis=1, kind="stable")
    chances = np.take_along_axis(probabilities(scores), order, axis=1)
    gone = np.cumsum(chances, axis=1) <= 1 - share
    gone[:, scores.shape[1] - least :] = False
    for row, tokens, removed in zip(scores, order, gone):
        row[tokens[removed]] = NEVER


def keep_likely(scores: Array, share: float) -> None:
    """Never choose a token whose probability is below this share of the largest."""
    if share > 0:
        chances = probabilities(scores)
        scores[chances < share * chances.max(axis=1, keepdims=True)] = NEVER
