"""Operators on text: normalizing, matching, joining, splitting, and counting n-grams.

A string tensor is an array of Python `str` objects.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sardonyx.ir.dims import dim_max
from sardonyx.ops.definition import EvalContext, Trait, op
from sardonyx.ops.infer import InferContext, InferResult, broadcast, same_as
from sardonyx.ops.text.re2 import compile_re2
from sardonyx.ops.text.repeats import distinct_texts
from sardonyx.records import dataclass

Array = NDArray[Any]


def _text_array(items: list[str], shape: tuple[int, ...]) -> Array:
    return np.fromiter(items, object, len(items)).reshape(shape)


def _lower(text: str) -> str:
    """Lower case, letter by letter: a letter whose lower case is several letters stays."""
    return text.lower() if text.isascii() else "".join(low if len(low := char.lower()) == 1 else char for char in text)


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else "".join(high if len(high := char.upper()) == 1 else char for char in text)


CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": _lower, "UPPER": _upper}


def _string_normalizer(x: Array, *, case_change_action: str, is_case_sensitive: int, stopwords: tuple[str, ...] | None) -> Array:
    if not (x.ndim == 1 or (x.ndim == 2 and x.shape[0] == 1)):
        raise ValueError(f"the input has shape {x.shape}; expected [C] or [1, C]")
    if case_change_action not in CASES:
        raise ValueError(f"case_change_action is {case_change_action!r}; expected {', '.join(CASES)}")
    change = CASES[case_change_action]
    kept: list[str] = x.ravel().tolist()
    if stopwords:
        compare = str if is_case_sensitive else _lower
        stopped = {compare(word) for word in stopwords}
        kept = [text for text in kept if compare(text) not in stopped]
    kept = (kept if change is str else list(map(change, kept))) or [""]
    return _text_array(kept, (len(kept),) if x.ndim == 1 else (1, len(kept)))


def _infer_string_normalizer(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    if shape is None:
        return None
    if len(shape) not in (1, 2) or (len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1):
        raise ValueError(f"the input has rank {len(shape)}; expected [C] or [1, C]")
    count = ctx.fresh() if ctx.attr("stopwords") else dim_max(shape[-1], 1)
    return (count,) if len(shape) == 1 else (1, count)


op("StringNormalizer", since=10, eval=_string_normalizer, infer=_infer_string_normalizer)


def _regex_full_match(x: Array, *, pattern: str) -> Array:
    regex, texts = compile_re2(pattern or ""), x.ravel().tolist()
    repeating = distinct_texts(texts)
    if repeating is None:
        return np.array(regex.full_matches(texts), np.bool_).reshape(x.shape)
    distinct, numbers = repeating
    return np.array(regex.full_matches(distinct), np.bool_).take(numbers).reshape(x.shape)


op("RegexFullMatch", since=20, eval=_regex_full_match, infer=same_as(0), traits=Trait.ELEMENTWISE)
op("StringConcat", since=20, eval=lambda x, y: np.asarray(x + y, object), infer=broadcast, traits=Trait.ELEMENTWISE)


def _string_split(x: Array, *, delimiter: str | None, maxsplit: int | None) -> tuple[Array, Array]:
    limit = -1 if maxsplit is None else maxsplit
    # Without a delimiter white space at the end is dropped even where the limit leaves the rest unsplit.
    texts = x.ravel().tolist()
    if delimiter and len(delimiter) == 1 and limit < 0:  # no piece reaches over the ends of texts that are joined by it
        lengths = [text.count(delimiter) + 1 for text in texts]
        flat = delimiter.join(texts).split(delimiter) if texts else []
    else:
        parts: list[list[str]]
        if delimiter:
            parts = [text.split(delimiter, limit) for text in texts]
        elif limit < 0:
            parts = list(map(str.split, texts))
        else:
            parts = [text.rstrip().split(None, limit) for text in texts]
        lengths = list(map(len, parts))
        flat = list(chain.from_iterable(parts))
    counts, width = np.array(lengths, np.int64).reshape(x.shape), max(lengths, default=0)
    if len(flat) == width * len(texts):
        return _text_array(flat, (*x.shape, width)), counts
    rows = np.full((*x.shape, width), "", object)
    rows[np.arange(width) < counts[..., None]] = flat
    return rows, counts


def _infer_string_split(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    return [None, None] if shape is None else [(*shape, ctx.fresh("parts")), shape]


op("StringSplit", since=20, eval=_string_split, infer=_infer_string_split)


_DENSE: Final = 1 << 20  # entries of a table that is indexed; larger ones are searched


@dataclass(frozen=True)
class _Lookup:
    """The number of a key among sorted ones; as many as there are if it is none of them."""

    keys: NDArray[np.int64]
    numbers: NDArray[np.int64]  # one for each key
    missing: int
    table: NDArray[np.int64] | None  # by key - first key + 1, with others before and behind

    def find(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of some keys."""
        if self.table is not None:
            first, last = int(self.keys[0]), int(self.keys[-1])
            found: NDArray[np.int64] = self.table.take(wanted.clip(first - 1, last + 1) - (first - 1))
            return found
        if not len(self.keys):
            return np.full(wanted.shape, self.missing, np.int64)
        nearest = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[nearest] == wanted, self.numbers[nearest], self.missing)


def _lookup(keys: NDArray[np.int64], numbers: NDArray[np.int64], missing: int) -> _Lookup:
    """Of sorted keys."""
    if not len(keys) or int(keys[-1]) - int(keys[0]) > _DENSE or not abs(int(keys[0])) < 1 << 62:
        return _Lookup(keys, numbers, missing, None)
    table = np.full(int(keys[-1]) - int(keys[0]) + 3, missing, np.int64)
    table[keys - keys[0] + 1] = numbers
    return _Lookup(keys, numbers, missing, table)


@dataclass(frozen=True)
class _Grams:
    """The pool of one n-gram length, as tables that find all n-grams of a text at once.

    Tokens have numbers from 1 (0: not in the pool). Step k numbers the pairs (number of the first k tokens, token k) that occur
    in the pool, and has one more number for all others; the number of all n tokens gives the n-gram.
    """

    steps: tuple[_Lookup, ...]  # of the number of the prefix * vocabulary + token
    columns: NDArray[np.int64]  # output column of the last step's numbers; the width for all others


@dataclass(frozen=True)
class _Pool:
    tokens: dict[Any, int]
    integers: _Lookup | None  # the same, if tokens are integers
    grams: dict[int, _Grams]  # by length
    width: int
    weights: NDArray[np.float32]  # by output column

    def numbers(self, rows: Array) -> NDArray[np.int64]:
        """The numbers of tokens."""
        if self.integers is not None:
            return self.integers.find(rows.astype(np.int64, copy=False))
        found = np.fromiter(map(self.tokens.get, rows.reshape(-1).tolist(), repeat(0)), np.int64, rows.size)
        return found.reshape(rows.shape)


def _build_pool(
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool: tuple[Any, ...],
    weights: tuple[float, ...] | None,
) -> _Pool:
    tokens = {token: number for number, token in enumerate(dict.fromkeys(pool), 1)}
    numbers = np.array([tokens[token] for token in pool], np.int64)
    width = max(ngram_indexes, default=-1) + 1
    by_column = np.ones(width, np.float32)
    if weights is not None:
        if len(weights) != len(ngram_indexes):
            raise ValueError(f"weights has {len(weights)} entries and ngram_indexes {len(ngram_indexes)}: they must agree")
        by_column[list(ngram_indexes)] = weights
    grams: dict[int, _Grams] = {}
    first_gram = 0
    for length, (start, stop) in enumerate(zip(ngram_counts, (*ngram_counts[1:], len(pool)), strict=True), 1):
        if not 0 <= start <= stop <= len(pool) or (stop - start) % length:
            raise ValueError(f"ngram_counts gives {length}-grams the places {start} to {stop} in a pool of {len(pool)}")
        matrix = numbers[start:stop].reshape(-1, length)
        columns = np.array(ngram_indexes[first_gram : first_gram + len(matrix)], np.int64)
        if len(columns) != len(matrix):
            raise ValueError(f"the pool has more n-grams than ngram_indexes, which has {len(ngram_indexes)}")
        first_gram += len(matrix)
        prefix = np.zeros(len(matrix), np.int64)
        steps = []
        for position in range(length):
            keys, prefix = np.unique(prefix * (len(tokens) + 1) + matrix[:, position], return_inverse=True)
            steps.append(_lookup(keys, np.arange(len(keys)), len(keys)))
        positions = np.full(len(steps[-1].keys) + 1, width, np.int64)
        positions[prefix] = columns
        grams[length] = _Grams(tuple(steps), positions)
    integers = None
    if not isinstance(next(iter(tokens), ""), str):
        order = sorted(tokens)
        integers = _lookup(np.array(order, np.int64), np.array([tokens[token] for token in order], np.int64), 0)
    return _Pool(tokens, integers, grams, width, by_column)


def _columns(pool: _Pool, numbers: NDArray[np.int64], length: int, stride: int) -> NDArray[np.int64]:
    """The columns of all n-grams of this length in rows of tokens, `stride` apart; the width for those not in the pool."""
    positions = max(numbers.shape[1] - (length - 1) * stride, 0)
    prefix = numbers[:, :positions]
    for position, step in enumerate(pool.grams[length].steps):
        token = numbers[:, position * stride : position * stride + positions]
        prefix = step.find(prefix * (len(pool.tokens) + 1) + token if position else token)
    return pool.grams[length].columns.take(prefix)


def _tfidf_vectorizer(
    x: Array,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] | None,
    pool_strings: tuple[str, ...] | None,
    weights: tuple[float, ...] | None,
    ctx: EvalContext,
) -> Array:
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(f"mode is {mode!r}; expected TF, IDF or TFIDF")
    if x.ndim not in (1, 2):
        raise ValueError(f"the input has shape {x.shape}; expected [C] or [N, C]")
    given = pool_strings if x.dtype == object else pool_int64s
    if given is None:
        kind = "strings but there is no pool_strings" if x.dtype == object else "integers but there is no pool_int64s"
        raise ValueError(f"the input holds {kind}")
    if "pool" not in ctx.state:
        ctx.state["pool"] = _build_pool(ngram_counts, ngram_indexes, given, weights)
    pool: _Pool = ctx.state["pool"]
    rows = x.reshape(-1, x.shape[-1]) if x.size else np.empty((x.shape[0] if x.ndim == 2 else 1, 0), x.dtype)
    numbers = pool.numbers(rows)
    first = np.arange(len(rows))[:, None] * (pool.width + 1)  # columns of a row, and one for n-grams that are not in the pool
    found = [
        (_columns(pool, numbers, length, skip + 1) + first).reshape(-1)
        for length in range(max(min_gram_length, 1), max_gram_length + 1)
        if length in pool.grams
        for skip in range(max_skip_count + 1 if length > 1 else 1)
    ]
    every = np.concatenate(found) if found else np.zeros(0, np.int64)
    counts = np.bincount(every, minlength=len(rows) * (pool.width + 1)).reshape(len(rows), -1)[:, : pool.width]
    result = (counts > 0 if mode == "IDF" else counts).astype(np.float32)
    if mode != "TF":
        result *= pool.weights
    return result if x.ndim == 2 else result[0]


def _infer_tfidf_vectorizer(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    width = max(ctx.attr("ngram_indexes"), default=-1) + 1
    return None if shape is None else (*shape[:-1], width)


op("TfIdfVectorizer", since=9, eval=_tfidf_vectorizer, infer=_infer_tfidf_vectorizer)
