"""Checksums of parts of mapped files, remembered from process to process.

Packed weights are used only if their checksums and those of what they were packed from are right. Computing them reads all of
both, which takes longer than all the rest of an opening. So what was computed is remembered in the cache folder, under what the
file system says of the file (device, inode, size, times of change): a file that was changed or replaced has other times, nothing
is known of it, and it is read again. As for the origins of programs (`runtime.origins`), nothing is remembered of a file that was
changed just now, and a sample of the content must be what it was, for file systems whose times cannot be relied on.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sardonyx.cache_folder import CacheFolder
from sardonyx.ir.tensor import Tensor
from sardonyx.mapped_file import Mapping, is_settled, mapped_range, sample, weight_checksum
from sardonyx.options import environment

SUFFIX: Final = ".checksums"
_FOLDER_LIMIT: Final = 16 << 20  # bytes of remembered checksums
_ROW: Final = 3  # integers of a checksum: first byte, bytes, checksum
_INTEGER: Final = np.dtype("<i8")

Array = np.ndarray[Any, Any]


class KnownChecksums:
    """The checksums that are known, of any number of files; of others they are computed. One thread uses it."""

    def __init__(self) -> None:
        folder = environment().cache_folder
        self._folder = None if folder is None else CacheFolder(folder, SUFFIX, _FOLDER_LIMIT, environment().cache_trusted)
        self._files: dict[Mapping, _File | None] = {}

    def of(self, content: memoryview) -> int:
        """The checksum of bytes that are about to be used."""
        found = self._location(content)
        return weight_checksum(content, is_used_soon=True) if found is None else found[0].of(content, found[1])

    def of_tensor(self, tensor: Tensor) -> int:
        """The checksum of the model's data; if it has to be read for it, its pages leave memory again."""
        content = tensor.raw()
        found = self._location(content)
        if found is None:
            return tensor.checksum
        file, offset = found
        known = file.known.get((offset, len(content)))
        return file.add(offset, len(content), tensor.checksum) if known is None else known

    def keep(self) -> None:
        """Remember what was computed, for other processes."""
        for file in self._files.values():
            if file is not None and file.is_new:
                file.keep()

    def _location(self, content: memoryview) -> tuple[_File, int] | None:
        """The file that bytes lie in, if something may be known of it, and where they begin there."""
        location = None if self._folder is None else mapped_range(np.frombuffer(content, np.uint8))
        if location is None:
            return None
        mapping, offset, _ = location
        if mapping not in self._files:
            assert self._folder is not None
            identity = mapping.identity
            usable = identity is not None and is_settled(*identity[3:]) and self._folder.is_used()
            self._files[mapping] = _File(self._folder, mapping) if usable else None
        file = self._files[mapping]
        return None if file is None else (file, offset)


class _File:
    """What is known of one file."""

    def __init__(self, folder: CacheFolder, mapping: Mapping) -> None:
        assert mapping.identity is not None
        self._folder = folder
        self._key = "-".join(f"{each:x}" for each in mapping.identity)
        self._sample = sample(mapping)
        self.known: dict[tuple[int, int], int] = {}
        self.is_new = False
        content = folder.read(self._key)
        if content is not None and len(content) % _INTEGER.itemsize == 0:
            numbers = np.frombuffer(content, _INTEGER).tolist()
            if len(numbers) % _ROW == 1 and numbers[0] == self._sample:
                rows = zip(*(numbers[1 + each :: _ROW] for each in range(_ROW)))
                self.known = {(offset, length): found for offset, length, found in rows}

    def of(self, content: memoryview, offset: int) -> int:
        """The checksum of bytes that begin at an offset of the file."""
        known = self.known.get((offset, len(content)))
        if known is None:
            return self.add(offset, len(content), weight_checksum(content, is_used_soon=True))
        return known

    def add(self, offset: int, length: int, found: int) -> int:
        """Know a checksum from now on."""
        self.known[offset, length] = found
        self.is_new = True
        return found

    def keep(self) -> None:
        """Write down what is known."""
        rows = [number for (offset, length), found in self.known.items() for number in (offset, length, found)]
        self._folder.write(self._key, np.array([self._sample, *rows], _INTEGER).tobytes())
        self._folder.make_room()
        self.is_new = False
