"""Object code on disk, by content key: the second process compiles nothing.

A private folder (mode 700) with one file an entry: a header (magic, length, checksum), then the bytes. Files are written
beside and renamed, so a reader sees a whole entry or none; what fails its checksum is ignored and written anew.
The folder is bounded: the entries unused for longest go first. It may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import struct

from sardonyx.cache_folder import CacheFolder, is_private, write_atomically

_MAGIC = b"SDXOBJ1\0"
_HEADER = struct.Struct("<8sQ32s")
_SUFFIX = ".obj"


class ObjectCache(CacheFolder):
    """Entries of bytes by key, in one folder."""

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int = 1 << 30) -> None:
        super().__init__(folder, _SUFFIX, limit_bytes)
        self._trusted = is_private(folder)
        self._total: int | None = None  # bytes in the folder, counted at the first `put`

    def get(self, key: str) -> bytes | None:
        """The entry, or None if there is none or it is damaged."""
        if not self._trusted:
            return None
        try:
            with open(self.path(key), "rb") as file:
                content = file.read()
        except OSError:
            return None
        if len(content) < _HEADER.size:
            return None
        magic, length, digest = _HEADER.unpack_from(content)
        body = content[_HEADER.size :]
        if magic != _MAGIC or length != len(body) or hashlib.sha256(body).digest() != digest:
            return None
        self.mark_used(key)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Keep an entry; old ones make room if the folder grows past its limit."""
        if self._trusted:
            write_atomically(self.path(key), _HEADER.pack(_MAGIC, len(body), hashlib.sha256(body).digest()), body)
            # Looking through the folder for every kernel of a model would take longer than some kernels take to compile.
            size = _HEADER.size + len(body)
            self._total = sum(entry.size for entry in self.entries()) if self._total is None else self._total + size
            if self._total > self.limit_bytes:
                self._total = self.make_room()
