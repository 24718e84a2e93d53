"""Texts by their positions in a list of keys.

    lookup = TextLookup(["red", "green"])
    lookup(np.array([["green", "blue"]]))    ->    [[1, -1]]

An array of Python's texts is looked up in a dictionary. Arrays of NumPy's texts of a fixed width are numbers, one for each
character: many of them are hashed, looked up and compared all at once, without an object for each text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MANY: Final = 160  # texts from which on columns are faster than a dictionary
_WIDEST: Final = 32  # characters up to which they are
_MOST_BITS: Final = 16  # of a hash that are the number of an entry
_ALL_BITS: Final = (1 << 64) - 1
_TRIES: Final = 8  # of other factors, before there are more entries


class TextLookup:
    """Finds the position of each text of an array in a list of keys, -1 where it is none. The first of equal keys counts."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.numbers: dict[str, int] = {}  # the position of each key
        for number, key in enumerate(keys):
            self.numbers.setdefault(key, number)
        self._tables: dict[int, _Table | None] = {}  # by the width of texts

    def __call__(self, texts: Array) -> Array:
        """The positions, int64, in the shape of the texts."""
        if texts.dtype.kind == "U" and texts.size >= _MANY and texts.dtype.isnative:
            width = texts.dtype.itemsize // 4
            if 0 < width <= _WIDEST:
                table = self._tables[width] if width in self._tables else self._table(width)
                if table is not None:
                    return table.find(np.ascontiguousarray(texts).reshape(-1)).reshape(texts.shape)
        found = map(self.numbers.get, texts.reshape(-1).tolist(), repeat(-1))
        return np.fromiter(found, np.int64, texts.size).reshape(texts.shape)

    def _table(self, width: int) -> _Table | None:
        """A table of the keys that texts of a width can be; None if it is of no use."""
        fitting = {key: number for key, number in self.numbers.items() if len(key) <= width and not key.endswith("\0")}
        made = _Table(fitting, width) if fitting else None
        self._tables[width] = made if made is not None and made.is_unique else None
        return self._tables[width]


class _Table:
    """Keys as texts of a width."""

    def __init__(self, keys: dict[str, int], width: int) -> None:
        self._kind = np.dtype(f"<U{width + width % 2}")  # pairs of characters are numbers of 64 bits
        self._rows = RowTable(self._numbers(np.array(list(keys), self._kind)))
        self._positions = np.array([*keys.values(), -1], np.int64)
        self.is_unique = self._rows.is_unique

    def _numbers(self, texts: Array) -> Array:
        return texts.astype(self._kind, copy=False).view(np.uint64).reshape(-1, self._kind.itemsize // 8)

    def find(self, texts: Array) -> Array:
        """The position of each text of a contiguous vector, -1 where it is no key."""
        return self._positions[self._rows.find(self._numbers(texts))]


def _numbers_of(seed: int) -> Iterator[int]:
    """Numbers of 64 bits that look random, the same for a seed (splitmix64); `np.random` takes long to import."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & _ALL_BITS
        mixed = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & _ALL_BITS
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _ALL_BITS
        yield mixed ^ mixed >> 31


def _all_differ(numbers: Array) -> bool:
    """Whether each is there once; `np.unique` imports masked arrays, which takes as long as opening a model."""
    ordered = np.sort(numbers)
    return bool((ordered[1:] != ordered[:-1]).all())


class RowTable:
    """Finds rows of numbers of 64 bits, by the upper bits of their hashes where those differ, else in the order of the hashes."""

    def __init__(self, keys: Array) -> None:
        self._keys = keys
        self._entries: Array | None = None
        draws = _numbers_of(len(keys))
        for bits in range(len(keys).bit_length() + 1, _MOST_BITS):
            for _ in range(_TRIES):
                entries = (self._hash_keys(draws) >> np.uint64(64 - bits)).astype(np.int64)
                if _all_differ(entries):
                    self._shift = np.uint64(64 - bits)
                    self._entries = np.zeros(1 << bits, np.int64)
                    self._entries[entries] = np.arange(len(keys))
                    break
            if self._entries is not None:
                break
        hashes = self._hash_keys(draws) if self._entries is None else np.arange(len(keys), dtype=np.uint64)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]
        self._columns = np.ascontiguousarray(keys.T)
        self.is_unique = _all_differ(hashes)

    def _hash_keys(self, draws: Iterator[int]) -> Array:
        self._factors = [np.uint64(next(draws) | 1) for _ in range(self._keys.shape[1])]
        return self._hashed(self._keys)

    def _hashed(self, rows: Array) -> Array:
        total = rows[:, 0] * self._factors[0]
        for column in range(1, rows.shape[1]):
            total += rows[:, column] * self._factors[column]
        return total

    def find(self, rows: Array) -> Array:
        """The number of the key that each row is, -1 where it is none."""
        hashes = self._hashed(rows)
        if self._entries is None:
            nearest = np.searchsorted(self._hashes, hashes)
            np.minimum(nearest, len(self._hashes) - 1, out=nearest)
            nearest = self._order[nearest]
        else:
            hashes >>= self._shift
            nearest = self._entries[hashes.view(np.int64)]
        same = self._columns[0][nearest] == rows[:, 0]
        for column in range(1, rows.shape[1]):
            same &= self._columns[column][nearest] == rows[:, column]
        nearest[~same] = -1
        return nearest
