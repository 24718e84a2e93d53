"""Object code on disk, by content key: the second process compiles nothing.

One file an entry in the private cache folder (see `cache_folder`). The folder is bounded: the entries unused for longest go
first. It may be deleted at any time.
"""

from __future__ import annotations

import os

from sardonyx.cache_folder import CacheFolder

_SUFFIX = ".obj"


class ObjectCache(CacheFolder):
    """Entries of bytes by key, in one folder."""

    def __init__(self, folder: str | os.PathLike[str], limit_bytes: int = 1 << 30, trusted: bool = False) -> None:
        super().__init__(folder, _SUFFIX, limit_bytes, trusted)
        self._used = self.is_used()
        self._total: int | None = None  # bytes in the folder, counted at the first `put`

    def get(self, key: str) -> bytes | None:
        """The entry, or None if there is none or it is damaged."""
        return self.read(key) if self._used else None

    def clear(self) -> int:
        """Delete all entries, and which of them were found to be the fastest; how many entries there were."""
        from sardonyx.target.timed_choice import choices_in  # lazy: only to clear the folder

        choices_in(self.folder).clear()
        return super().clear()

    def put(self, key: str, body: bytes) -> None:
        """Keep an entry; old ones make room if the folder grows past its limit."""
        if self._used:
            size = self.write(key, body)
            # Looking through the folder for every kernel of a model would take longer than some kernels take to compile.
            self._total = sum(entry.size for entry in self.entries()) if self._total is None else self._total + size
            if self._total > self.limit_bytes:
                self._total = self.make_room()
