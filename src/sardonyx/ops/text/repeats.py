"""Texts that repeat, as those of a column with categories do: what is computed of each need be computed once.

distinct, numbers = distinct_texts(texts)      texts[i] is distinct[numbers[i]]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SAMPLE: Final = 256  # texts that are looked at first: fewer are not worth it


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], NDArray[np.intp]] | None:
    """The different texts, and which one stands where; None if hardly any repeats."""
    if len(texts) < _SAMPLE or len(set(texts[:_SAMPLE])) > _SAMPLE // 2:
        return None
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if len(numbers) > len(texts) // 2:
        return None
    return list(numbers), np.fromiter(map(numbers.__getitem__, texts), np.intp, len(texts))
