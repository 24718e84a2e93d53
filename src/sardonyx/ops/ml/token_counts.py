"""How often each of some words, or of sequences of words, stands in a text: what a tokenizer and a count of its tokens come to.

    counter = TokenCounter("a-z", 1, ["cat", "dog", "dog", "cat"], [0, 1, 2], [1, 1, 2])
    counter(np.array(["dog cat dog", "mouse"]))    ->    [[1, 2, 1], [0, 0, 0]]

A token is a run of characters of a class of ASCII letters, digits and the underscore, or any single character. Few texts are cut
into texts of Python. In many, the ends of runs are found in all characters at once, and tokens are looked up by their bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, repeat
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sardonyx import dtypes
from sardonyx.ir.types import TensorType
from sardonyx.ops.definition import EvalContext, op
from sardonyx.ops.infer import InferContext, InferResult
from sardonyx.ops.ml.text_lookup import RowTable
from sardonyx.ops.text.strings import CASES

Array = NDArray[Any]

ANY_CHARACTER: Final = "."
_SEPARATOR: Final = "\0"
_MANY: Final = 600  # characters from which on runs are found in all of them at once
_MANY_TOKENS: Final = 150  # that are single characters
_BLOCK: Final = 6_000  # of them that are worked on together
_SEVERAL: Final = 24  # of them, from which on one text is counted at once
_FEW_ENTRIES: Final = 4096  # of a result, up to which it may be made twice
_LONGEST: Final = 48  # bytes of words that are looked up as numbers
_DENSE: Final = 1 << 16  # sequences of known words that have an entry each
_MASKS: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # the first bytes of a number


class WordTables(NamedTuple):
    """What native code needs to count the words of texts that are ASCII."""

    characters: bytes  # what each ASCII character becomes; zero between words
    singles: Array | None  # the number of each ASCII character, if those are the words
    words: Sequence[str]  # by number; the next number is that of all others
    least: int  # characters of a word
    sequences: Sequence[tuple[int, Array, Array]]  # lengths; the numbers that have words as their digits, and their columns
    width: int  # columns


class TokenCounter:
    """Counts words in texts.

    `words` are those of all sequences, one after the other; `lengths` says how many each has (one, if there is none), `columns`
    where it is counted. `characters` is the class as regular expressions write it, or ANY_CHARACTER. `case` is what
    StringNormalizer does before, if there is one: then no texts at all are one that is empty.
    """

    def __init__(
        self,
        characters: str,
        least: int,
        words: Sequence[str],
        columns: Sequence[int],
        lengths: Sequence[int] = (),
        case: str = "",
    ) -> None:
        self.width = max(columns, default=-1) + 1
        self._change = CASES[case] if case in ("LOWER", "UPPER") else None
        self._none: list[str] = [""] if case else []
        self._least = least
        self._characters = characters == ANY_CHARACTER
        self._numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}  # others have the next number
        starts = [0, *accumulate(lengths or repeat(1, len(columns)))]
        sequences = {tuple(words[first:end]): column for first, end, column in zip(starts, starts[1:], columns)}
        # Where sequences of each length are counted: by their words, single ones by themselves, and by the words' numbers.
        self._columns: list[tuple[int, dict[Any, int]]] = []
        self._grams: list[_Grams] = []
        for length in sorted(set(map(len, sequences))):
            chosen = {key: column for key, column in sequences.items() if len(key) == length}
            self._columns.append((length, {key if length > 1 else key[0]: column for key, column in chosen.items()}))
            self._grams.append(_Grams({tuple(map(self._numbers.get, key)): column for key, column in chosen.items()}, self))
        if self._characters:
            codes = np.array([ord(word) if len(word) == 1 else 0x110000 for word in self._numbers], np.int64)
            self._by_code = np.full(int(codes.max(initial=0)) + 2, len(codes), np.int64)
            self._by_code[codes] = np.arange(len(codes))
            return
        self._find = re.compile(f"[{characters}]+").findall
        is_part = re.compile(f"[{characters}]").fullmatch
        change = self._change or str
        kept = [changed if is_part(changed := change(chr(code))) else " " for code in range(128)]
        self._spaced = "".join(kept)  # what is between tokens is a space
        self._blanked = _SEPARATOR + self._spaced[1:]  # but what is between texts stays
        self._zeroed = self._spaced.replace(" ", "\0").encode().ljust(256, b"\0")
        encoded = [word.encode() if word.isascii() and len(word) <= _LONGEST else b"" for word in self._numbers]
        self._pieces = (max(map(len, encoded), default=0) + 7) // 8
        self._table = None
        if self._pieces and all(encoded):
            rows = np.array(encoded, f"S{8 * self._pieces}").view(np.uint64).reshape(-1, self._pieces)
            table = RowTable(rows)
            self._table = table if table.is_unique else None

    def tables(self) -> WordTables:
        """The same for native code."""
        singles, characters = None, bytes(128)
        if self._characters:
            changed = [ord((self._change or str)(chr(code))) for code in range(128)]
            singles = self._by_code[np.minimum(changed, len(self._by_code) - 1)]
        else:
            characters = self._spaced.replace(" ", "\0").encode()
        sequences = [grams.table for grams in self._grams]
        return WordTables(characters, singles, list(self._numbers), self._least, sequences, self.width)

    @property
    def vocabulary(self) -> int:
        """The number of different words, and one for all others."""
        return len(self._numbers) + 1

    def __call__(self, texts: Array) -> Array:
        """A row for each text, float32."""
        items = texts.reshape(-1).tolist() or self._none
        if self._characters:
            if len(items) == 1 and len(items[0]) >= _SEVERAL and all(grams.is_dense for grams in self._grams):
                return self._counted_text(items)
            if sum(map(len, items)) >= _MANY_TOKENS:
                return self._counted_characters(items)
            return self._counted_few(items if self._change is None else list(map(self._change, items)))
        joined = _SEPARATOR.join(items)
        is_ascii = joined.isascii()
        if is_ascii and len(joined) >= _MANY and self._table is not None:
            return self._counted(*self._runs(items, joined), len(items))
        if is_ascii and len(items) == 1:
            tokens = [joined.translate(self._spaced).split()]
        elif is_ascii and joined.count(_SEPARATOR) == len(items) - 1:
            tokens = [text.split() for text in joined.translate(self._blanked).split(_SEPARATOR)]
        else:
            tokens = [self._find(text) for text in (items if self._change is None else map(self._change, items))]
        if self._least > 1:
            tokens = [[token for token in row if len(token) >= self._least] for row in tokens]
        return self._counted_few(tokens)

    def _counted_few(self, tokens: Sequence[Sequence[str]]) -> Array:
        """Counts of the tokens of each text, which are few."""
        found: list[int] = []
        for number, row in enumerate(tokens):
            first = number * self.width
            for length, columns in self._columns:
                keys = row if length == 1 else zip(*[row[start:] for start in range(length)])
                found += [first + column for column in map(columns.get, keys) if column is not None]
        return self._added(np.array(found, np.int64), len(tokens))

    def _counted_text(self, items: list[str]) -> Array:
        """Counts of one text of single characters; what is none of the sequences is counted behind the last column."""
        numbers, _ = self._single_characters(items)
        found = np.concatenate([grams.columns_of(numbers) for grams in self._grams])
        return np.bincount(found, minlength=self.width + 1)[None, : self.width].astype(np.float32)

    def _added(self, found: Array, count: int) -> Array:
        """How often each entry of the result for so many texts was found."""
        size = count * self.width
        if size <= _FEW_ENTRIES:
            return np.bincount(found, minlength=size).astype(np.float32).reshape(count, self.width)
        result = np.zeros(size, np.float32)
        np.add.at(result, found, np.float32(1))
        return result.reshape(count, self.width)

    def _counted_characters(self, items: list[str]) -> Array:
        """Counts of texts of single characters, some texts at a time: larger arrays are fetched anew from the system."""
        ends = list(accumulate(map(len, items)))
        if ends[-1] <= _BLOCK:
            return self._counted(*self._single_characters(items), len(items))
        result = np.empty((len(items), self.width), np.float32)
        first = 0
        while first < len(items):
            before = ends[first - 1] if first else 0
            last = max(bisect_right(ends, before + _BLOCK), first + 1)
            result[first:last] = self._counted(*self._single_characters(items[first:last]), last - first)
            first = last
        return result

    def _single_characters(self, items: list[str]) -> tuple[Array, Array]:
        """The number of each character, and the text it stands in."""
        joined = "".join(items)
        if self._change is not None:
            joined = self._change(joined)
        if joined.isascii():
            codes: Array = np.frombuffer(joined.encode(), np.uint8)
        else:
            codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
        if len(self._by_code) < 256 or codes.dtype != np.uint8:
            codes = np.minimum(codes, len(self._by_code) - 1)  # the last entry is that of no word
        return self._by_code[codes], np.repeat(np.arange(len(items)), list(map(len, items)))

    def _runs(self, items: list[str], joined: str) -> tuple[Array, Array]:
        """The number of each token of texts of ASCII, and the text it stands in."""
        assert self._table is not None
        content = b"\0" + joined.encode().translate(self._zeroed) + b"\0" * (8 * self._pieces + 1)
        ends = np.flatnonzero(np.diff(np.frombuffer(content, np.uint8) != 0)) + 1
        starts = ends[::2]
        lengths = ends[1::2] - starts
        if self._least > 1:
            is_long = lengths >= self._least
            starts, lengths = starts[is_long], lengths[is_long]
        pieces: Array = np.ndarray((len(content) - 7,), np.uint64, content, strides=(1,))  # eight bytes from each byte on
        rows = np.empty((len(starts), self._pieces), np.uint64)
        for number in range(self._pieces):
            rows[:, number] = pieces[starts + 8 * number] & _MASKS[np.clip(lengths - 8 * number, 0, 8)]
        numbers = self._table.find(rows)
        numbers[(numbers < 0) | (lengths > 8 * self._pieces)] = len(self._numbers)
        begins = np.fromiter(
            accumulate(map(len, items), lambda total, size: total + size + 1, initial=1), np.int64, len(items) + 1
        )
        counts = np.diff(np.searchsorted(starts, begins))
        return numbers, np.repeat(np.arange(len(items)), counts)

    def _counted(self, numbers: Array, texts: Array, count: int) -> Array:
        """Counts of so many texts, from the numbers of their words and the text that each stands in, in order."""
        found = []
        for grams in self._grams:
            columns = grams.columns_of(numbers)
            own = texts[: len(columns)]
            is_known = columns < self.width
            if grams.length > 1:
                is_known &= own == texts[grams.length - 1 :]
            found.append(columns[is_known] + own[is_known] * self.width)
        return self._added(np.concatenate(found), count)


class _Grams:
    """Where sequences of a number of words are counted."""

    def __init__(self, columns: dict[tuple[Any, ...], int], counter: TokenCounter) -> None:
        self.length = len(next(iter(columns)))
        self._base, self._width = counter.vocabulary, counter.width
        codes = np.array([self._code(key) for key in columns], np.int64)
        found = np.array(list(columns.values()), np.int64)
        self._dense: Array | None = None
        if self._base**self.length <= _DENSE:
            self._dense = np.full(self._base**self.length, self._width, np.int64)
            self._dense[codes] = found
        order = np.argsort(codes)
        self._codes, self._columns = codes[order], found[order]

    @property
    def table(self) -> tuple[int, Array, Array]:
        """How many words, the numbers that have them as their digits, and the columns of those."""
        return self.length, self._codes, self._columns

    @property
    def is_dense(self) -> bool:
        """Whether there is an entry for every sequence of words."""
        return self._dense is not None

    def _code(self, numbers: Any) -> Any:
        result = numbers[0]
        for number in numbers[1:]:
            result = result * self._base + number
        return result

    def columns_of(self, numbers: Array) -> Array:
        """The column of the sequence that begins at each word; one more than the last where it is none of them."""
        count = max(len(numbers) - self.length + 1, 0)
        codes: Array = self._code([numbers[first : first + count] for first in range(self.length)])
        if self._dense is not None:
            return self._dense[codes]
        nearest = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        return np.where(self._codes[nearest] == codes, self._columns[nearest], self._width)


def _token_counts(
    texts: Array,
    *,
    case: str,
    characters: str,
    least: int,
    lengths: Sequence[int] | None,
    words: Sequence[str],
    columns: Sequence[int],
    ctx: EvalContext,
) -> Array:
    """What passes make of a tokenizer and a count of its tokens."""
    if "counter" not in ctx.state:
        ctx.state["counter"] = TokenCounter(characters, least, words, columns, lengths or (), case)
    found: Array = ctx.state["counter"](texts)
    return found


def _infer_token_counts(ctx: InferContext) -> InferResult:
    shape = ctx.shape(0)
    width = max(ctx.attr("columns") or (), default=-1) + 1
    rows = None if shape is None else ctx.fresh("rows") if ctx.attr("case") else shape[0]
    return TensorType(dtypes.FLOAT32, None if rows is None else (rows, width))


op("TokenCounts", domain="sardonyx", eval=_token_counts, infer=_infer_token_counts)
