"""Words of texts counted by functions that Python calls directly (`codegen.text_counts`).

count = word_counts_call(native_function, TokenCounter(...))
count(np.array([["dog cat dog"]], object))    ->    [[1, 2]], or None for texts that are not ASCII
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from sardonyx.codegen.blocks import (
    TEXT_BASE,
    TEXT_FACTOR,
    TEXT_GRAM_COUNT,
    TEXT_GRAMS,
    TEXT_KEYS,
    TEXT_LEAST,
    TEXT_LENGTHS,
    TEXT_MASK,
    TEXT_POSITIONS,
    TEXT_SINGLES,
    TEXT_SLOTS,
    TEXT_TABLE,
)
from sardonyx.codegen.text_counts import GRAM_ENTRIES, LONGEST_SEQUENCE
from sardonyx.runtime.native_core import Array, address_of
from sardonyx.runtime.text_calls import EMPTY, NativeFunction, TextCall, native_call, placed

if TYPE_CHECKING:
    from sardonyx.ops.ml.token_counts import WordTables

_ALL_BITS: Final = (1 << 64) - 1


def word_counts_call(native_function: NativeFunction, tables: WordTables) -> TextCall | None:
    """What counts the words of texts, a row for each; None if there is no native code for it."""
    if not tables.width or max((length for length, _, _ in tables.sequences), default=0) > LONGEST_SEQUENCE:
        return None
    encoded = [word.encode() if word.isascii() else b"" for word in tables.words]  # no text that is ASCII has the others
    lengths = np.array([len(word) for word in encoded], np.int64)
    starts = np.cumsum(lengths) - lengths
    keys = np.frombuffer(b"".join(encoded) + b"\0", np.uint8)
    slots = placed([(_hashed(word), number) for number, word in enumerate(encoded) if word])
    characters = np.frombuffer(tables.characters, np.uint8)
    singles = None if tables.singles is None else np.ascontiguousarray(tables.singles, np.int64)
    base = len(encoded) + 1
    grams, parts = _gram_rows(tables, base)
    entries = {
        TEXT_TABLE: address_of(characters), TEXT_SLOTS: address_of(slots), TEXT_MASK: len(slots) - 1, TEXT_KEYS: address_of(keys),
        TEXT_LENGTHS: address_of(lengths), TEXT_POSITIONS: address_of(starts), TEXT_LEAST: tables.least,
        TEXT_SINGLES: 0 if singles is None else address_of(singles), TEXT_GRAMS: address_of(grams), TEXT_GRAM_COUNT: len(grams),
        TEXT_BASE: base,
    }  # fmt: skip
    kept = characters, slots, keys, lengths, starts, singles, grams, parts
    single = np.dtype(np.float32)
    by_object = native_call(native_function, "count_words", single, entries, kept)
    by_row = native_call(native_function, "count_wide_words", single, entries, kept)
    if by_object is None or by_row is None:
        return None
    width = tables.width

    def count(texts: Array) -> Array | None:
        found, dtype = None, texts.dtype
        if not texts.size:
            return None
        if dtype.kind != "U":
            found = by_object(texts, width)
        elif dtype.isnative and singles is None:
            found = by_row(texts, width, dtype, dtype.itemsize // 4)
        elif dtype.isnative:
            found = by_object(texts.astype(object), width)
        return None if found is None else found.reshape(-1, width)

    return count


def _hashed(word: bytes) -> int:
    found = 0
    for code in word:
        found = (found ^ code) * TEXT_FACTOR & _ALL_BITS
    return found ^ found >> 32


def _gram_rows(tables: WordTables, base: int) -> tuple[Array, Sequence[Array]]:
    """A row for each length of sequences, and the arrays that it points to."""
    rows = np.zeros((len(tables.sequences), GRAM_ENTRIES), np.int64)
    parts: list[Array] = []
    for row, (length, codes, columns) in zip(rows, tables.sequences):
        if length == 1:
            by_word = np.full(base, EMPTY, np.int64)
            by_word[codes] = columns
            row[:] = length, 0, 0, address_of(by_word), 0
            parts.append(by_word)
            continue
        own_codes, own_columns = np.array(codes, np.int64), np.array(columns, np.int64)
        hashes = (own_codes.astype(np.uint64) * np.uint64(TEXT_FACTOR)) >> np.uint64(32)
        slots = placed([(hash_, number) for number, hash_ in enumerate(hashes.tolist())])
        row[:] = length, address_of(slots), address_of(own_codes), address_of(own_columns), len(slots) - 1
        parts += [slots, own_codes, own_columns]
    return rows, parts
