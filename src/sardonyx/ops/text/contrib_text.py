"""Operators of com.microsoft on text and tokens: Tokenizer, MurmurHash3, NGramRepeatBlock, BifurcationDetector and others.

Regular expressions have the syntax of RE2; of several matches at one position the longest counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

import numpy as np

from sardonyx import dtypes
from sardonyx.ir.tensor import Array
from sardonyx.ir.types import TensorType
from sardonyx.ops.attention.contrib_attention import MICROSOFT
from sardonyx.ops.definition import op
from sardonyx.ops.infer import InferContext, InferResult, same_as
from sardonyx.ops.interruption import stop_if_asked
from sardonyx.ops.products import matmul
from sardonyx.ops.text.re2 import compile_re2
from sardonyx.ops.text.repeats import distinct_texts

_START, _END = "\x02", "\x03"
_SPECIAL: Final = frozenset("\\.^$|()[]{}*+?")  # what is more than itself in a pattern
_MANY_TEXTS: Final = 16  # that are hashed together
_SHORT_TEXT: Final = 64  # bytes up to which texts of all lengths are


def stands_for_itself(separator: str) -> bool:
    """Whether a pattern has no character that is more than itself."""
    return bool(separator) and _SPECIAL.isdisjoint(separator)


def _split(text: str, separators: tuple[str, ...], least: int) -> list[str]:
    """The text cut at every match of each separator in turn; pieces shorter than `least` are dropped."""
    pieces = [text]
    for separator in separators:
        if stands_for_itself(separator):
            pieces = [part for piece in pieces for part in piece.split(separator) if len(part) >= least]
            continue
        pattern = compile_re2(separator)
        cut: list[str] = []
        for piece in pieces:
            find, start = pattern.finder(piece), 0
            while start <= len(piece):
                stop_if_asked()
                match = find(start)
                end = len(piece) if match is None else match.start
                if end - start >= least:
                    cut.append(piece[start:end])
                if match is None:
                    break
                start = max(match.end, match.start + 1)  # an empty match moves on by a character
        pieces = cut
    return pieces


def _matches(text: str, expression: str, least: int) -> Iterator[str]:
    """The parts of the text that match; after one shorter than `least` the search goes on a character later."""
    if len(text) < least:
        return
    find, start = compile_re2(expression).finder(text), 0
    while start <= len(text):
        stop_if_asked()
        match = find(start)
        if match is None:
            return
        if match.end - match.start >= least:
            yield text[match.start : match.end]
            start = match.end
        else:
            start = match.start + 1


def _tokenizer(
    x: Array, *, mark: int, mincharnum: int, pad_value: str, separators: tuple[str, ...] | None, tokenexp: str | None
) -> Array:
    """Each string as a row of tokens, padded to the longest row; `mark` puts a start and an end marker around them."""
    if mincharnum < 1:
        raise ValueError(f"mincharnum is {mincharnum}; expected at least 1")
    if x.ndim not in (1, 2):
        raise ValueError(f"X is {x.shape}, expected one or two axes")
    if not separators and not tokenexp:
        raise ValueError("one of separators and tokenexp is required")
    characters = separators == ("",) if separators else tokenexp == "."
    if characters and mincharnum > 1:
        raise ValueError(f"mincharnum is {mincharnum}, but single characters are the tokens")
    texts: list[str] = x.ravel().tolist()
    if characters:
        rows = list(map(list, texts))
    elif separators:
        if len(separators) == 1 and mincharnum == 1 and stands_for_itself(separators[0]):
            rows = [list(filter(None, text.split(separators[0]))) for text in texts]
        else:
            rows = [_split(text, separators, mincharnum) for text in texts]
    else:
        found = compile_re2(tokenexp or "").find_all(texts, mincharnum)
        rows = [list(_matches(text, tokenexp or "", mincharnum)) for text in texts] if found is None else found
    longest = max(map(len, rows), default=0)
    if longest == 0:
        return np.empty((*x.shape, 0), object)
    if mark:
        rows = [[_START, *row, _END] for row in rows]
        longest += 2
    # One list of all tokens and pads: NumPy's masks take longer.
    padded = chain.from_iterable([*row, *[pad_value] * (longest - len(row))] for row in rows)
    return np.fromiter(padded, object, len(rows) * longest).reshape(*x.shape, longest)


def _infer_tokenizer(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    return None if shape is None else (*shape, ctx.fresh("tokens"))


TOKENIZER = op("Tokenizer", domain=MICROSOFT, eval=_tokenizer, infer=_infer_tokenizer)

_FIRST: Final = np.uint32(0xCC9E2D51)
_SECOND: Final = np.uint32(0x1B873593)


def _rotated(x: Array, by: int) -> Array:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))


def _scrambled(block: Array) -> Array:
    return _rotated(block * _FIRST, 15) * _SECOND


def _mixed(state: Array, block: Array) -> Array:
    """The state behind one more word."""
    return _rotated(state ^ _scrambled(block), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(state: Array, lengths: Array | np.uint32) -> Array:
    """The hashes of keys of so many bytes."""
    state = state ^ lengths
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    return state ^ (state >> np.uint32(16))


def _hashed(blocks: Array, tail: Array | None, length: int, seed: int) -> Array:
    """MurmurHash3 (x86, 32 bit) of many keys of one length: [keys, length // 4] words and the last bytes as a word each."""
    with np.errstate(over="ignore"):
        state = np.full(blocks.shape[0], seed & 0xFFFFFFFF, np.uint32)
        for column in range(blocks.shape[1]):
            state = _mixed(state, blocks[:, column])
        if tail is not None:
            state = state ^ _scrambled(tail)
        return _finished(state, np.uint32(length))


def _hashed_text(data: bytes, seed: int) -> int:
    """The same of one text, which is faster in numbers of Python."""
    state, whole = seed & 0xFFFFFFFF, len(data) // 4 * 4
    for first in range(0, len(data), 4):
        block = int.from_bytes(data[first : first + 4], "little") * 0xCC9E2D51 & 0xFFFFFFFF
        state ^= ((block << 15 | block >> 17) & 0xFFFFFFFF) * 0x1B873593 & 0xFFFFFFFF
        if first < whole:
            state = (((state << 13 | state >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64) & 0xFFFFFFFF
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    state = (state ^ state >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return state ^ state >> 16


def hashed_texts(texts: Array, seed: int) -> Array:
    """MurmurHash3 of each text of a vector; of many, those of one length at a time."""
    if len(texts) >= _MANY_TEXTS and texts.dtype.kind == "U" and texts.dtype.isnative:
        codes = np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), -1)
        if codes.size and codes.max() < 128:
            is_there = codes != 0
            ends = np.where(is_there.any(axis=1), codes.shape[1] - is_there[:, ::-1].argmax(axis=1), 0)
            return _hashed_rows(codes.astype(np.uint8), ends, seed)
    items = texts.tolist()
    repeating = distinct_texts(items)
    if repeating is not None:
        distinct, numbers = repeating
        return hashed_texts(np.fromiter(distinct, object, len(distinct)), seed).take(numbers)
    encoded = [text.encode() for text in items]
    if len(encoded) < _MANY_TEXTS:
        return np.array([_hashed_text(data, seed) for data in encoded], np.uint32)
    rows = np.array(encoded)
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    return _hashed_rows(rows.view(np.uint8).reshape(len(encoded), -1), lengths, seed)


def _hashed_rows(rows: Array, lengths: Array, seed: int) -> Array:
    """The same of the first bytes of each row, as many as `lengths` says; those behind them are zeros."""
    padded = np.zeros((len(rows), rows.shape[1] // 4 * 4 + 8), np.uint8)
    padded[:, : rows.shape[1]] = rows
    if rows.shape[1] <= _SHORT_TEXT:
        return _hashed_short(padded.view("<u4"), lengths, seed)
    result = np.empty(len(rows), np.uint32)
    for length in np.unique(lengths).tolist():
        numbers, whole = np.flatnonzero(lengths == length), length // 4 * 4
        words = padded[numbers, : whole + 4].view("<u4")
        result[numbers] = _hashed(words[:, :-1], words[:, -1] if whole < length else None, length, seed)
    return result


def _hashed_short(words: Array, lengths: Array, seed: int) -> Array:
    """The same of words, those behind the last byte zeros: all lengths together, as the words of each row are few."""
    whole = lengths >> 2
    fewest, most = int(whole.min()), int(whole.max())
    with np.errstate(over="ignore"):
        state = np.full(len(words), seed & 0xFFFFFFFF, np.uint32)
        for column in range(most):
            following = _mixed(state, words[:, column])
            state = following if column < fewest else np.where(column < whole, following, state)
        state = state ^ _scrambled(words[np.arange(len(words)), whole])  # zeros behind whole words change nothing
        return _finished(state, lengths.astype(np.uint32))


def _murmur_hash(x: Array, *, positive: int, seed: int) -> Array:
    if x.dtype == object:
        hashes = hashed_texts(x.reshape(-1), seed)
    else:
        words = np.ascontiguousarray(x).reshape(-1).view("<u4").reshape(x.size, x.dtype.itemsize // 4)
        hashes = _hashed(words, None, x.dtype.itemsize, seed)
    return hashes.reshape(x.shape) if positive else hashes.reshape(x.shape).view(np.int32)


def _infer_murmur_hash(ctx: InferContext) -> InferResult:
    return TensorType(dtypes.UINT32 if ctx.attr("positive") else dtypes.INT32, ctx.shape(0))


MURMUR_HASH = op("MurmurHash3", domain=MICROSOFT, eval=_murmur_hash, infer=_infer_murmur_hash)


def _ngram_repeat_block(input_ids: Array, scores: Array, *, ngram_size: int) -> Array:
    """Scores with minus infinity for every token that would complete an n-gram the sequence has already."""
    batch, length = input_ids.shape
    if scores.shape[0] != batch or scores.ndim != 2:
        raise ValueError(f"input_ids is {input_ids.shape} and scores {scores.shape}: expected one row of scores per sequence")
    result = scores.copy()
    if ngram_size < 1 or length < ngram_size:
        return result
    ngrams = np.lib.stride_tricks.sliding_window_view(input_ids, ngram_size, axis=1)  # [B, positions, n]
    suffix = input_ids[:, length - ngram_size + 1 :]
    sequence, position = np.nonzero((ngrams[:, :, :-1] == suffix[:, None, :]).all(axis=-1))
    banned = ngrams[sequence, position, -1]
    if banned.size and (banned.min() < 0 or banned.max() >= scores.shape[1]):
        raise ValueError(f"input_ids holds tokens outside 0 to {scores.shape[1] - 1}, the ones scores has")
    result[sequence, banned] = -np.inf
    return result


NGRAM_REPEAT_BLOCK = op("NGramRepeatBlock", domain=MICROSOFT, eval=_ngram_repeat_block, infer=same_as(1))


def _bifurcation_detector(
    src_tokens: Array,
    cur_tokens: Array,
    prev_suffix_match_idx: Array,
    pred_tokens: Array | None = None,
    *,
    max_ngram_size: int,
    min_ngram_size: int,
) -> tuple[Array, Array]:
    """Tokens accepted so far with the predicted ones that agree with the source, and where their last n-gram ends in it."""
    tokens = cur_tokens
    if pred_tokens is not None:
        matched = int(prev_suffix_match_idx.reshape(-1)[0])
        expected = src_tokens.size + 1 - matched
        if matched < 0 or pred_tokens.size != expected:
            raise ValueError(
                f"pred_tokens has {pred_tokens.size} elements, expected {expected}: the source from {matched} on and one more"
            )
        agrees = pred_tokens[:-1] == src_tokens[matched:]
        accepted = int(np.argmin(agrees)) if not agrees.all() else agrees.size
        tokens = np.concatenate([cur_tokens, pred_tokens[: accepted + 1]])
    suffix = -1
    for size in range(min_ngram_size, max_ngram_size + 1):
        if size > min(tokens.size, src_tokens.size):
            break
        windows = np.lib.stride_tricks.sliding_window_view(src_tokens, size)
        found = np.flatnonzero((windows == tokens[tokens.size - size :]).all(axis=1))
        if found.size == 0:
            break
        suffix = int(found[0]) + size
        if suffix >= src_tokens.size:
            break
        if found.size > 1:
            suffix = -1
    return tokens.copy(), np.full(prev_suffix_match_idx.shape, suffix, np.int64)


BIFURCATION_DETECTOR = op(
    "BifurcationDetector",
    domain=MICROSOFT,
    eval=_bifurcation_detector,
    infer=lambda ctx: [(ctx.fresh("tokens"),) if ctx.has(3) else ctx.shape(1), ctx.shape(2)],
)


def _word_conv_embedding(sequence: Array, w: Array, b: Array, c: Array) -> Array:
    """Words as character numbers [S, L]: embedded, convolved, tanh, and the maximum over each word's characters."""
    if sequence.ndim != 2 or w.ndim != 4 or w.shape[2] > sequence.shape[1] or w.shape[3] != c.shape[1]:
        raise ValueError(
            f"Sequence is {sequence.shape}, W {w.shape}, C {c.shape}: the window must fit a word, the sizes each other"
        )
    filters, width = w.shape[0], w.shape[2]
    lengths = np.where(sequence[:, 0] > 0, np.count_nonzero(sequence > 0, axis=1), 0)
    reach = np.maximum(lengths, width)
    known = (sequence >= 0) & (sequence < c.shape[0]) & (np.arange(sequence.shape[1]) < reach[:, None])
    characters = np.where(known[..., None], c[np.where(known, sequence, 0)], np.float32(0))
    windows = np.lib.stride_tricks.sliding_window_view(characters, width, axis=1)  # [S, positions, E, width]
    scores = matmul(windows.swapaxes(-1, -2).reshape(*windows.shape[:2], -1), w.reshape(filters, -1).T) + b
    inside = np.arange(windows.shape[1]) < (reach - width + 1)[:, None]
    best = np.where(inside[..., None], np.tanh(scores), np.float32(-np.inf)).max(axis=1, initial=-np.inf)
    return np.where(lengths[:, None] > 0, best, np.float32(0)).astype(np.float32)


def _infer_word_conv_embedding(ctx: InferContext) -> InferResult:
    sequence, w = ctx.shape(0, least=1), ctx.shape(1, least=1)
    return None if sequence is None or w is None else (sequence[0], w[0])


WORD_CONV_EMBEDDING = op("WordConvEmbedding", domain=MICROSOFT, eval=_word_conv_embedding, infer=_infer_word_conv_embedding)
