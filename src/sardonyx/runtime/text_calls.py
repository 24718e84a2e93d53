"""Lookups and hashes of texts by functions that Python calls directly (`codegen.text_calls`), without Python for each text.

    find = positions_call(native_function, {"red": 0, "green": 1})
    find(np.array([["green", "blue"]], object))    ->    [[1, -1]], or None if something in it is no text

Python's own texts are looked up in the dictionary by Python itself: it knows the hashes of most. NumPy's texts of a fixed width
are rows of characters; those are looked up in a table of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sardonyx.codegen.blocks import (
    TEXT_ARRAY,
    TEXT_CLEAR,
    TEXT_DICT,
    TEXT_DICT_GET,
    TEXT_DROP,
    TEXT_ENTRIES,
    TEXT_FACTOR,
    TEXT_HOLD,
    TEXT_KEY_WIDTH,
    TEXT_KEYS,
    TEXT_LENGTHS,
    TEXT_MASK,
    TEXT_NEW_ARRAY,
    TEXT_NONE,
    TEXT_NUMBER,
    TEXT_OBJECTS,
    TEXT_POSITIONS,
    TEXT_RESULT,
    TEXT_SEED,
    TEXT_SLOTS,
    TEXT_STR,
    TEXT_UTF8,
)
from sardonyx.runtime.array_call import CallBlock, direct_function, interpreter_addresses
from sardonyx.runtime.native_core import Array, address_of

TextCall = Callable[[Array], "Array | None"]
NativeFunction = Callable[[str], int]  # where the driver has a function; 0 if it has none

_PYTHON: Final = {
    TEXT_DICT_GET: "PyDict_GetItemWithError", TEXT_CLEAR: "PyErr_Clear", TEXT_HOLD: "Py_IncRef", TEXT_DROP: "Py_DecRef",
    TEXT_NUMBER: "PyLong_AsLongLong", TEXT_UTF8: "PyUnicode_AsUTF8AndSize",
}  # fmt: skip
_OBJECT: Final = np.dtype(object)
_LONGEST: Final = 64  # characters of keys of a table; longer ones make it large, and are rare
_EMPTY: Final = -1


def positions_call(native_function: NativeFunction, keys: Mapping[str, int]) -> TextCall | None:
    """What finds the numbers of texts among keys; None if there is no native code for it. It is right for any array."""
    by_object = _call(native_function, "look_up", np.dtype(np.int64), {TEXT_DICT: id(keys)}, keys)
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
    return _call(native_function, "hash_texts", dtype, {TEXT_SEED: seed & 0xFFFFFFFF})


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
    return _call(native_function, "look_up_wide", np.dtype(np.int64), entries, (slots, codes, lengths, positions))


def _slots(codes: Array, lengths: Array) -> Array:
    """The number of a key at the slot that its hash says, or at one of the next; most places are empty."""
    hashes = lengths.astype(np.uint64)
    for column in range(codes.shape[1]):
        hashes = np.where(column < lengths, (hashes ^ codes[:, column]) * np.uint64(TEXT_FACTOR), hashes)
    hashes ^= hashes >> np.uint64(32)
    size = 4 << len(codes).bit_length()
    slots = np.full(size, _EMPTY, np.int64)
    for number, first in enumerate((hashes & np.uint64(size - 1)).tolist()):
        slot = first
        while slots[slot] != _EMPTY:
            slot = (slot + 1) % size
        slots[slot] = number
    return slots


def _call(
    native_function: NativeFunction, name: str, result: np.dtype[Any], entries: Mapping[int, int], keeps: Any = None
) -> Callable[..., Any] | None:
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
