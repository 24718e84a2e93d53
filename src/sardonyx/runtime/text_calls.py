"""What becomes of texts by functions that Python calls directly (`codegen.text_calls`), without Python for each text.

    find = positions_call(native_function, {"red": 0, "green": 1})
    find(np.array([["green", "blue"]], object))    ->    [[1, -1]], or None if something in it is no text

Python's own texts are looked up in the dictionary by Python itself: it knows the hashes of most. NumPy's texts of a fixed width
are rows of characters; those are looked up in a table of the keys.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from sardonyx.codegen.blocks import (
    TEXT_ARRAY,
    TEXT_CLEAR,
    TEXT_DECODE,
    TEXT_DICT,
    TEXT_DICT_GET,
    TEXT_DROP,
    TEXT_ENDS,
    TEXT_ENTRIES,
    TEXT_FACTOR,
    TEXT_GIVEN,
    TEXT_HOLD,
    TEXT_KEY_WIDTH,
    TEXT_KEYS,
    TEXT_LEAST,
    TEXT_LENGTHS,
    TEXT_LIMIT,
    TEXT_MASK,
    TEXT_NEW,
    TEXT_NEW_ARRAY,
    TEXT_NONE,
    TEXT_NUMBER,
    TEXT_OBJECTS,
    TEXT_OTHERS,
    TEXT_PARSE,
    TEXT_POSITIONS,
    TEXT_POWERS,
    TEXT_RESULT,
    TEXT_SEED,
    TEXT_SINGLES,
    TEXT_SLOTS,
    TEXT_START,
    TEXT_STR,
    TEXT_TABLE,
    TEXT_UTF8,
)
from sardonyx.codegen.text_numbers import LARGEST_POWER
from sardonyx.runtime.array_call import CallBlock, direct_function, interpreter_addresses
from sardonyx.runtime.native_core import Array, address_of

TextCall = Callable[[Array], "Array | None"]
NativeFunction = Callable[[str], int]  # where the driver has a function; 0 if it has none

_PYTHON: Final = {
    TEXT_DICT_GET: "PyDict_GetItemWithError", TEXT_CLEAR: "PyErr_Clear", TEXT_HOLD: "Py_IncRef", TEXT_DROP: "Py_DecRef",
    TEXT_NUMBER: "PyLong_AsLongLong", TEXT_UTF8: "PyUnicode_AsUTF8AndSize", TEXT_PARSE: "PyOS_string_to_double",
    TEXT_NEW: "PyUnicode_New", TEXT_DECODE: "PyUnicode_FromStringAndSize",
}  # fmt: skip
_OBJECT: Final = np.dtype(object)
_INT64: Final = np.dtype(np.int64)
_NO_LIMIT: Final = (1 << 63) - 1
_LONGEST: Final = 64  # characters of keys of a table; longer ones make it large, and are rare
EMPTY: Final = -1


def positions_call(native_function: NativeFunction, keys: Mapping[str, int]) -> TextCall | None:
    """What finds the numbers of texts among keys; None if there is no native code for it. It is right for any array."""
    by_object = native_call(native_function, "look_up", np.dtype(np.int64), {TEXT_DICT: id(keys)}, keys)
    if by_object is None:
        return None
    by_row = _row_call(native_function, keys)

    def find(texts: Array) -> Array | None:
        dtype = texts.dtype
        if by_row is not None and dtype.kind == "U":
            found: Array | None = by_row(texts, dtype, dtype.itemsize // 4) if dtype.isnative else None
        else:
            found = by_object(texts)
        return found

    return find


def hashes_call(native_function: NativeFunction, seed: int, *, is_positive: bool) -> TextCall | None:
    """What hashes texts; None if there is no native code for it."""
    dtype = np.dtype(np.uint32 if is_positive else np.int32)
    return native_call(native_function, "hash_texts", dtype, {TEXT_SEED: seed & 0xFFFFFFFF})


def floats_call(native_function: NativeFunction, *, is_single: bool) -> TextCall | None:
    """What reads texts as floats; it leaves texts that are more, or less, than a number to others."""
    name, dtype = ("read_singles", np.float32) if is_single else ("read_doubles", np.float64)
    powers = np.array([10.0**power for power in range(LARGEST_POWER + 1)])
    return native_call(native_function, name, np.dtype(dtype), {TEXT_POWERS: address_of(powers)}, powers)


def integers_call(native_function: NativeFunction) -> TextCall | None:
    """What reads texts as integers, in the same way."""
    return native_call(native_function, "read_integers", np.dtype(np.int64), {})


def digits_call(native_function: NativeFunction) -> TextCall | None:
    """What writes integers of 64 bits as texts."""
    start = _ascii_start()
    if not start:
        return None
    return native_call(native_function, "write_integers", _OBJECT, {TEXT_GIVEN: id(_INT64), TEXT_START: start}, _INT64)


def matches_call(native_function: NativeFunction, table: Array, ends: Array, start: int) -> TextCall | None:
    """Which texts an automaton reads to its end: 0 or 1, 2 for texts that are not ASCII.

    `table` has the state behind each state and ASCII character, int16; `ends` says of each whether a text may end there.
    """
    entries = {TEXT_TABLE: address_of(table), TEXT_ENDS: address_of(ends), TEXT_START: start}
    return native_call(native_function, "match_texts", np.dtype(np.int8), entries, (table, ends))


class PiecesCall(NamedTuple):
    """What cuts texts into pieces: how many there are in each, and an array of so many for each."""

    counts: TextCall
    cut: Callable[[Array, int], Array | None]

    def __call__(self, texts: Array) -> tuple[Array, ...] | None:
        """The pieces along one more axis, and how many there are of each text."""
        counts = self.counts(texts)
        if counts is None:
            return None
        pieces = self.cut(texts, int(counts.max()) if counts.size else 0)
        return None if pieces is None else (pieces, counts)


def pieces_call(
    native_function: NativeFunction, classes: bytes, *, least: int = 0, limit: int | None = None, others: str = ""
) -> PiecesCall | None:
    """What cuts texts where `classes` say of a byte that it ends a piece (`codegen.text_pieces`).

    Pieces of fewer characters than `least` are left out; behind `limit` pieces, nothing ends one. `others` fills short rows up.
    """
    start = _ascii_start()
    if not start:
        return None
    table = np.frombuffer(classes, np.uint8)
    singles = [chr(code) for code in range(128)]
    addresses = np.array([id(each) for each in singles] * 2, np.int64)
    entries = {
        TEXT_TABLE: address_of(table), TEXT_LEAST: least, TEXT_LIMIT: _NO_LIMIT if limit is None else limit,
        TEXT_SINGLES: address_of(addresses), TEXT_OTHERS: id(others), TEXT_START: start,
    }  # fmt: skip
    kept = table, singles, addresses, others
    count = native_call(native_function, "count_pieces", _INT64, entries, kept)
    cut = native_call(native_function, "cut_pieces", _OBJECT, entries, kept)
    return None if count is None or cut is None else PiecesCall(count, cut)


@cache
def _ascii_start() -> int:
    """Where texts that are ASCII have their first character; 0 if it is not where it is expected."""
    start = sys.getsizeof("") - 1
    probes = ("probe", "another probe, which is longer")
    return start if all(ctypes.string_at(id(each) + start, len(each)) == each.encode() for each in probes) else 0


def _row_call(native_function: NativeFunction, keys: Mapping[str, int]) -> Callable[..., Array | None] | None:
    """What looks NumPy's texts up; None if a key is too long for a table."""
    # NumPy leaves zeros at the end of a text out, so no text of its own is a key that ends with one.
    fitting = {key: number for key, number in keys.items() if not key.endswith("\0")}
    width = max(map(len, fitting), default=0)
    if width > _LONGEST:
        return None
    width = max(width, 1)
    codes = np.array(list(fitting), f"<U{width}").view(np.uint32).reshape(len(fitting), width)
    lengths = np.array([len(key) for key in fitting], np.int64)
    slots = _slots(codes, lengths)
    positions = np.array([*fitting.values()], np.int64)
    entries = {
        TEXT_SLOTS: address_of(slots), TEXT_MASK: len(slots) - 1, TEXT_KEYS: address_of(codes), TEXT_KEY_WIDTH: width,
        TEXT_LENGTHS: address_of(lengths), TEXT_POSITIONS: address_of(positions),
    }  # fmt: skip
    return native_call(native_function, "look_up_wide", np.dtype(np.int64), entries, (slots, codes, lengths, positions))


def _slots(codes: Array, lengths: Array) -> Array:
    """The slots of keys, by the hashes of their characters."""
    hashes = lengths.astype(np.uint64)
    for column in range(codes.shape[1]):
        hashes = np.where(column < lengths, (hashes ^ codes[:, column]) * np.uint64(TEXT_FACTOR), hashes)
    hashes ^= hashes >> np.uint64(32)
    return placed([(hash_, number) for number, hash_ in enumerate(hashes.tolist())])


def placed(keys: Sequence[tuple[int, int]]) -> Array:
    """The number of each key at the slot that its hash says, or at one of the next; most places are empty."""
    size = 4 << len(keys).bit_length()
    slots = [EMPTY] * size
    for hash_, number in keys:
        slot = hash_ & size - 1
        while slots[slot] != EMPTY:
            slot = (slot + 1) % size
        slots[slot] = number
    return np.array(slots, np.int64)


def native_call(
    native_function: NativeFunction, name: str, result: np.dtype[Any], entries: Mapping[int, int], keeps: Any = None
) -> Callable[..., Any] | None:
    """A function of Python that is native code, with what it needs in a block; None if there is none.

    `result` is the type of the arrays that it makes, `keeps` what must live as long as the function.
    """
    code, found = native_function(name), interpreter_addresses()
    if not code or found is None:
        return None
    block = np.zeros(TEXT_ENTRIES, np.int64).view(CallBlock)
    known = {
        TEXT_ARRAY: id(np.ndarray), TEXT_OBJECTS: id(_OBJECT), TEXT_STR: id(str), TEXT_NONE: id(None),
        TEXT_NEW_ARRAY: found.new_array, TEXT_RESULT: id(result),
    }  # fmt: skip
    for entry, function in _PYTHON.items():
        block[entry] = found.of(function)
    for entry, value in {**known, **entries}.items():
        block[entry] = value
    block.keeps = result, keeps
    return direct_function(code, block)
