"""Host steps on texts that native functions do (`text_calls`), as long as what they are given is what they know.

    StringSplit(texts) {delimiter = ","}    ->    pieces and counts by native code, or None: then the definition computes it

What a step refuses (texts that are no numbers, bytes that are part of characters, patterns with very many states) its operator's
definition computes; both give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sardonyx import dtypes
from sardonyx.codegen.text_pieces import ENDS_PIECE, IN_PIECE, UNKNOWN_BYTE, WHOLE_PIECE
from sardonyx.ops.elementwise.cast import cast
from sardonyx.ops.ml.text_lookup import TextLookup
from sardonyx.ops.ml.token_counts import TokenCounter
from sardonyx.ops.text.contrib_text import stands_for_itself
from sardonyx.ops.text.re2 import compile_re2
from sardonyx.ops.text.re2_table import ascii_table
from sardonyx.runtime.native_core import Array
from sardonyx.runtime.text_calls import (
    NativeFunction,
    PiecesCall,
    digits_call,
    floats_call,
    hashes_call,
    integers_call,
    matches_call,
    pieces_call,
    positions_call,
)
from sardonyx.runtime.word_calls import word_counts_call

NativeStep = Callable[[Sequence[Any]], "tuple[Array, ...] | None"]
Attributes = Mapping[str, Any]

_ASCII: Final = 128
_OPEN: Final = 2  # what native code cannot tell of a text
_INTEGERS: Final = frozenset("bBhHiIlq")  # types whose numbers all are integers of 64 bits


def native_step(domain: str, op_type: str, attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    """What computes a node natively; None if there is nothing for it."""
    make = _MAKERS.get((domain, op_type))
    return None if make is None else make(attrs, native_function)


def _cast(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    if not isinstance(attrs.get("to"), int):
        return None
    to = dtypes.from_onnx(attrs["to"])
    saturate, round_mode = attrs.get("saturate") != 0, attrs.get("round_mode") or "up"
    if to is dtypes.STRING:
        write = digits_call(native_function)
        if write is None:
            return None

        def written(inputs: Sequence[Any]) -> tuple[Array, ...] | None:
            given = inputs[0]
            if given.dtype.char not in _INTEGERS:
                return None
            made = write(given.astype(np.int64, copy=False))
            return None if made is None else (made,)

        return written
    is_single = to is dtypes.FLOAT32
    read = floats_call(native_function, is_single=is_single) if to.is_float else integers_call(native_function)
    if read is None:
        return None
    is_done = is_single or to in (dtypes.FLOAT64, dtypes.INT64)

    def numbers(inputs: Sequence[Any]) -> tuple[Array, ...] | None:
        found = read(inputs[0])
        return None if found is None else (found,) if is_done else (cast(found, to, saturate, round_mode),)

    return numbers


def _murmur_hash(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    return _alone(hashes_call(native_function, attrs["seed"], is_positive=bool(attrs["positive"])))


def _positions(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    return _alone(positions_call(native_function, TextLookup(attrs["keys"]).numbers))


def _class_labels(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    labels = np.array([*attrs["labels"]], object)

    def step(inputs: Sequence[Any]) -> tuple[Array, ...] | None:
        positions = inputs[0]
        return (labels.take(positions),) if positions.ndim else None

    return step


def _token_counts(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    given = attrs["characters"], attrs["least"], attrs["words"], attrs["columns"]
    counter = TokenCounter(*given, attrs.get("lengths") or (), attrs.get("case") or "")
    return _alone(word_counts_call(native_function, counter.tables()))


def _alone(call: Callable[[Array], Array | None] | None) -> NativeStep | None:
    """A step of one input and one output."""
    if call is None:
        return None

    def step(inputs: Sequence[Any]) -> tuple[Array, ...] | None:
        found = call(inputs[0])
        return None if found is None else (found,)

    return step


def _full_match(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    regex = compile_re2(attrs.get("pattern") or "")
    table = ascii_table(regex)
    match = None if table is None else matches_call(native_function, *table)
    if match is None:
        return None

    def step(inputs: Sequence[Any]) -> tuple[Array, ...] | None:
        found = match(inputs[0])
        if found is None:
            return None
        if _OPEN in found:
            texts, flat = inputs[0].reshape(-1), found.reshape(-1)
            left = np.flatnonzero(flat == _OPEN)
            flat[left] = regex.full_matches(texts[left].tolist())
        return (found.view(np.bool_),)

    return step


def _classes(ends: bytes = b"", *, others: int = IN_PIECE, beyond: int = IN_PIECE) -> bytes:
    """What each byte is: the end of a piece, or one of `others`; `beyond` are those of characters that are not ASCII."""
    return bytes(ENDS_PIECE if code in ends else others if code < _ASCII else beyond for code in range(256))


_SPACES: Final = bytes(code for code in range(_ASCII) if chr(code).isspace())  # where Python splits, and ASCII


def _string_split(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    delimiter, limit = attrs.get("delimiter"), attrs.get("maxsplit")
    if delimiter:
        if len(delimiter) > 1 or not delimiter.isascii():
            return None
        most = None if limit is None or limit < 0 else limit
        return _pieces_step(pieces_call(native_function, _classes(delimiter.encode()), limit=most))
    if limit is not None and limit >= 0:
        return None
    return _pieces_step(pieces_call(native_function, _classes(_SPACES, beyond=UNKNOWN_BYTE), least=1))


def _pieces_step(call: PiecesCall | None) -> NativeStep | None:
    """A step of one input that gives pieces and their counts."""
    return None if call is None else lambda inputs: call(inputs[0])


def _tokenizer(attrs: Attributes, native_function: NativeFunction) -> NativeStep | None:
    separators, pattern, least = attrs.get("separators"), attrs.get("tokenexp"), attrs["mincharnum"]
    if attrs["mark"] or least < 1:
        return None
    if separators == ("",) if separators else pattern == ".":
        if least > 1:
            return None
        classes = _classes(others=WHOLE_PIECE, beyond=UNKNOWN_BYTE)
    elif separators:
        if not all(len(each) == 1 and each.isascii() and stands_for_itself(each) for each in separators):
            return None
        classes = _classes("".join(separators).encode())
    else:
        run = compile_re2(pattern or "").repeated_class()
        if run is None:
            return None
        ranges, repeats = run
        least = max(least, repeats)
        inside = {code for first, last in ranges for code in range(first, min(last + 1, _ASCII))}
        classes = _classes(bytes(set(range(_ASCII)) - inside), beyond=UNKNOWN_BYTE)
    cut = pieces_call(native_function, classes, least=least, others=attrs["pad_value"])
    if cut is None:
        return None

    def step(inputs: Sequence[Any]) -> tuple[Array, ...] | None:
        found = cut(inputs[0]) if inputs[0].ndim in (1, 2) else None
        return None if found is None else (found[0],)

    return step


_MAKERS: Final[Mapping[tuple[str, str], Callable[[Attributes, NativeFunction], NativeStep | None]]] = {
    ("", "Cast"): _cast,
    ("", "RegexFullMatch"): _full_match,
    ("", "StringSplit"): _string_split,
    ("com.microsoft", "MurmurHash3"): _murmur_hash,
    ("com.microsoft", "Tokenizer"): _tokenizer,
    ("sardonyx", "ClassLabels"): _class_labels,
    ("sardonyx", "TextPositions"): _positions,
    ("sardonyx", "TokenCounts"): _token_counts,
}
