"""Object code on disk, by content key: the second process compiles nothing.

A private folder (mode 700) with one file an entry: a header (magic, length, checksum), then the bytes. Files are written
beside and renamed, so a reader sees a whole entry or none; what fails its checksum is ignored and written anew.
The folder is bounded: the entries unused for longest go first. It may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
from pathlib import Path

_MAGIC = b"SDXOBJ1\0"
_HEADER = struct.Struct("<8sQ32s")
_SUFFIX = ".obj"
PROGRAM_SUFFIX = ".program"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that others see all of it or nothing; a folder that cannot be written is not an error."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.parent / f".new-{os.getpid()}-{threading.get_ident()}-{path.name}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError:
        pass  # a read-only or full disk costs the next start time, not this one its answer


def is_private(folder: Path) -> bool:
    """Whether code may be run from here: a folder that others may write to, or that somebody else owns, is not used."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


class ObjectCache:
    """Entries of bytes by key, in one folder."""

    def __init__(self, folder: Path, limit_bytes: int = 1 << 30) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._trusted = is_private(folder)
        self._total: int | None = None  # bytes in the folder, counted at the first `put`

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> bytes | None:
        """The entry, or None if there is none or it is damaged."""
        if not self._trusted:
            return None
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if len(content) < _HEADER.size:
            return None
        magic, length, digest = _HEADER.unpack_from(content)
        body = content[_HEADER.size :]
        if magic != _MAGIC or length != len(body) or hashlib.sha256(body).digest() != digest:
            return None
        self._touch(path)
        return body

    @staticmethod
    def _touch(path: Path) -> None:
        """Mark an entry as used, at most once a day: the time is for eviction only."""
        try:
            if time.time() - path.stat().st_mtime > 86_400:
                os.utime(path)
        except OSError:
            pass  # gone in between; we have its bytes

    def put(self, key: str, body: bytes) -> None:
        """Keep an entry; old ones make room if the folder grows past its limit."""
        if self._trusted:
            write_atomically(self._path(key), _HEADER.pack(_MAGIC, len(body), hashlib.sha256(body).digest()) + body)
            # Looking through the folder for every kernel of a model would take longer than some kernels take to compile.
            size = _HEADER.size + len(body)
            self._total = sum(entry[1] for entry in self.entries()) if self._total is None else self._total + size
            if self._total > self.limit_bytes:
                self._evict()

    def entries(self) -> list[tuple[str, int, float]]:
        """Key, size and time of last use of every entry, oldest first."""
        return self._listed(_SUFFIX)

    def programs(self) -> list[tuple[str, int, float]]:
        """The same of the whole programs that are saved beside the object code (`runtime.saved`)."""
        return self._listed(PROGRAM_SUFFIX)

    def _listed(self, suffix: str) -> list[tuple[str, int, float]]:
        found = []
        for path in self.folder.glob(f"*{suffix}"):
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((path.stem, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: entry[2])

    def _evict(self) -> None:
        entries = self.entries()
        total = sum(size for _, size, _ in entries)
        for key, size, _ in entries:
            if total <= self.limit_bytes:
                break
            self._path(key).unlink(missing_ok=True)
            total -= size
        self._total = total

    def clear(self) -> int:
        """Delete all entries and saved programs; how many there were."""
        paths = [path for suffix in (_SUFFIX, PROGRAM_SUFFIX) for path in self.folder.glob(f"*{suffix}")]
        for path in paths:
            path.unlink(missing_ok=True)
        self._total = None
        return len(paths)
