"""What lies behind a file's record: constants, arrays of attributes and the programs of bodies, each piece at its position."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np

from sardonyx.formats.program.container import ALIGNMENT
from sardonyx.mapped_file import mapped_range, passing_checksum, walk

Array = np.ndarray[Any, Any]


class Contents:
    """Pieces under construction. What lies in the same memory, as weights that a program and its bodies share, is one piece."""

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []
        self.size = 0
        self._known: dict[tuple[int, int], tuple[int, int, Array]] = {}  # address and bytes -> position, checksum

    def array(self, array: Array) -> tuple[int, int, int]:
        """The position, size and checksum of an array's elements in C order."""
        whole = np.ascontiguousarray(array)
        where = (whole.ctypes.data, whole.nbytes)
        found = self._known.get(where)
        if found is None:
            content = whole.reshape(-1).view(np.uint8).data if whole.nbytes else memoryview(b"")
            found = self._known[where] = (
                self.add(content),
                passing_checksum(content),
                whole,
            )  # which must not make room for another
        return found[0], whole.nbytes, found[1]

    def add(self, content: memoryview) -> int:
        """The position of a piece, which is filled up to the alignment."""
        position, gap = self.size, -len(content) % ALIGNMENT
        self._put(content, gap)
        self.size += len(content) + gap
        return position

    def _put(self, content: memoryview, gap: int) -> None:
        self.pieces += [content, memoryview(bytes(gap))]


class WrittenContents(Contents):
    """Contents that go to a file at once: those of several programs need not be in memory together."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file

    def _put(self, content: memoryview, gap: int) -> None:
        for part in walk(content):
            self._file.write(part)
        self._file.write(bytes(gap))

    def forget(self) -> None:
        """Let go of arrays that were made for one program; those that lie in mapped files are kept in mind."""
        self._known = {where: found for where, found in self._known.items() if mapped_range(found[2]) is not None}
