"""Results that are rows in the order of a score: detectors give the boxes they are surest of first.

    ranked_difference(ours, theirs, 2)    # output 2 has the scores

Boxes whose scores agree but for rounding may stand in another order on another engine: each row is compared with the one nearest
to it. Scores are also compared in the order they came in, so that no wrong order can hide behind that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx.benchmarking.comparing import largest_difference


def ranked_difference(ours: Sequence[Any], theirs: Sequence[Any], scores: int) -> float:
    """The largest difference between results, each as a share of its largest number; infinite if they do not match."""
    own, other = ([np.asarray(array) for array in results] for results in (ours, theirs))
    if [array.shape for array in own] != [array.shape for array in other] or len({len(array) for array in own}) != 1:
        return largest_difference(ours, theirs)
    rows = _rows(own, other)
    order: list[int] = []
    for row in _rows(other, other):
        distance = np.abs(rows - row).max(axis=1)
        distance[order] = np.inf
        order.append(int(distance.argmin()))
    return largest_difference([*(array[order] for array in own), own[scores]], [*other, other[scores]])


def _rows(results: Sequence[NDArray[Any]], scale: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """All numbers of each row, as shares of the largest number of their output."""
    parts = []
    for array, like in zip(results, scale):
        largest = float(np.abs(like.astype(np.float64)).max(initial=0.0)) or 1.0
        parts.append(array.astype(np.float64).reshape(len(array), -1) / largest)
    return np.concatenate(parts, axis=1)
