"""How often each of some words stands in a text: what a tokenizer and a count of its tokens come to.

    counter = TokenCounter("a-z", 1, ["cat", "dog"], [0, 1])
    counter(np.array(["dog cat dog", "mouse"]))    ->    [[1, 2], [0, 0]]

A token is a run of characters of a class of ASCII letters, digits and the underscore. Texts of ASCII are cut at spaces once all
other characters are some.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import EvalContext, op
from sardonyx.ops.infer import InferContext, InferResult

Array = NDArray[Any]

_SEPARATOR: Final = "\0"


class TokenCounter:
    """Counts words in texts: `columns` has the one of each word, `characters` is the class as regular expressions write it."""

    def __init__(self, characters: str, least: int, words: Sequence[str], columns: Sequence[int]) -> None:
        self._find = re.compile(f"[{characters}]+").findall
        is_part = re.compile(f"[{characters}{_SEPARATOR}]").fullmatch
        self._blanked = "".join(
            chr(code) if is_part(chr(code)) else " " for code in range(128)
        )  # what is between tokens is a space
        self.width = max(columns, default=-1) + 1
        self._columns = {word: column for word, column in zip(words, columns) if len(word) >= least}

    def __call__(self, texts: Array) -> Array:
        """A row for each text, float32."""
        items, width = texts.reshape(-1).tolist(), self.width
        joined = _SEPARATOR.join(items)
        if joined.isascii() and joined.count(_SEPARATOR) == len(items) - 1:
            tokens = [text.split() for text in joined.translate(self._blanked).split(_SEPARATOR)]
        else:
            tokens = [self._find(text) for text in items]
        lengths = list(map(len, tokens))
        found = map(self._columns.get, chain.from_iterable(tokens), repeat(width))  # one more column is for other words
        columns = np.fromiter(found, np.int64, sum(lengths))
        if len(items) > 1:
            columns += np.repeat(np.arange(len(items)) * (width + 1), lengths)
        counts = np.bincount(columns, minlength=len(items) * (width + 1))
        return counts.reshape(len(items), width + 1)[:, :width].astype(np.float32)


def _token_counts(
    texts: Array, *, characters: str, least: int, words: Sequence[str], columns: Sequence[int], ctx: EvalContext
) -> Array:
    """What passes make of a tokenizer and a count of single tokens."""
    if "counter" not in ctx.state:
        ctx.state["counter"] = TokenCounter(characters, least, words, columns)
    found: Array = ctx.state["counter"](texts)
    return found


def _infer_token_counts(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    width = max(ctx.attr("columns") or (), default=-1) + 1
    return TensorType(dtypes.FLOAT32, None if shape is None else (shape[0], width))


op("TokenCounts", domain="sardonyx", eval=_token_counts, infer=_infer_token_counts)
