"""Texts by their positions in a list of keys.

    lookup = TextLookup(["red", "green"])
    lookup(np.array([["green", "blue"]]))    ->    [[1, -1]]

An array of Python's texts is looked up in a dictionary. Arrays of NumPy's texts of a fixed width are numbers, one for each
character: many of them are hashed, searched for and compared column by column, without an object for each text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_MANY: Final = 48  # texts from which on columns are faster than a dictionary
_WIDEST: Final = 32  # characters up to which they are


class TextLookup:
    """Finds the position of each text of an array in a list of keys, -1 where it is none. The first of equal keys counts."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._numbers: dict[str, int] = {}
        for number, key in enumerate(keys):
            self._numbers.setdefault(key, number)
        self._tables: dict[int, _Table | None] = {}  # by the width of texts

    def __call__(self, texts: Array) -> Array:
        """The positions, int64, in the shape of the texts."""
        if texts.dtype.kind == "U" and texts.size >= _MANY and texts.dtype.isnative:
            width = texts.dtype.itemsize // 4
            if 0 < width <= _WIDEST:
                table = self._tables[width] if width in self._tables else self._table(width)
                if table is not None:
                    characters = np.ascontiguousarray(texts).reshape(-1).view(np.uint32).reshape(-1, width)
                    return table.find(characters).reshape(texts.shape)
        found = map(self._numbers.get, texts.reshape(-1).tolist(), repeat(-1))
        return np.fromiter(found, np.int64, texts.size).reshape(texts.shape)

    def _table(self, width: int) -> _Table | None:
        """A table of the keys that texts of a width can be; None if it is of no use."""
        fitting = {key: number for key, number in self._numbers.items() if len(key) <= width and not key.endswith("\0")}
        made = _Table(fitting, width) if fitting else None
        self._tables[width] = made if made is not None and made.is_unique else None
        return self._tables[width]


class _Table:
    """Keys as rows of characters, in the order of their hashes."""

    def __init__(self, keys: dict[str, int], width: int) -> None:
        rng = np.random.default_rng(width)
        self._factors = [np.uint64(int(each) | 1) for each in rng.integers(1 << 62, 1 << 63, width)]
        characters = np.array(list(keys), f"<U{width}").view(np.uint32).reshape(-1, width)
        hashes = self._hashed(characters)
        order = np.argsort(hashes)
        self._hashes = hashes[order]
        self._columns = np.ascontiguousarray(characters[order].T)
        self._positions = np.array(list(keys.values()), np.int64)[order]
        self.is_unique = len(np.unique(hashes)) == len(hashes)

    def _hashed(self, characters: Array) -> Array:
        total = characters[:, 0] * self._factors[0]
        for column in range(1, characters.shape[1]):
            total += characters[:, column] * self._factors[column]
        return total

    def find(self, characters: Array) -> Array:
        """The position of each row, -1 where it is no key."""
        hashes = self._hashed(characters)
        nearest = np.searchsorted(self._hashes, hashes)
        np.minimum(nearest, len(self._hashes) - 1, out=nearest)
        same = self._hashes[nearest] == hashes
        for column, wanted in enumerate(self._columns):
            same &= wanted[nearest] == characters[:, column]
        return np.where(same, self._positions[nearest], -1)
