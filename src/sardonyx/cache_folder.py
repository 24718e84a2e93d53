"""Files in the cache folder: written whole, private, and bounded.

Several processes use the folder at once, and any of them (or the user) may delete from it at any time. A file that is gone is
therefore never an error, and what makes room decides by what it finds on the disk, not by what it remembers.
"""

from __future__ import annotations

import os
import time
from _thread import get_ident
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

_DAY: Final = 86_400.0  # seconds
_HOUR: Final = 3_600.0
_NEW: Final = ".new-"  # begins the names of files that are being written


class Entry(NamedTuple):
    """A file in the cache."""

    key: str
    size: int
    last_use: float  # seconds since 1970


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write a file so that others see all of it or nothing; a folder that cannot be written is not an error."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{_NEW}{os.getpid()}-{get_ident()}-{name}")  # a name nobody else uses
    try:
        os.makedirs(folder or ".", mode=0o700, exist_ok=True)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                for piece in pieces:
                    file.write(piece)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError:
        pass  # a read-only or full disk costs the next start time, not this one its answer


def is_private(folder: str | os.PathLike[str]) -> bool:
    """Whether code may be run from here: a folder that others may write to, or that somebody else owns, is not used."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


class CacheFolder:
    """The files of one kind: those whose names end with a suffix. The rest of the name is the key."""

    def __init__(self, folder: str | os.PathLike[str], suffix: str, limit_bytes: int) -> None:
        self.folder = os.fspath(folder)
        self.limit_bytes = limit_bytes
        self._suffix = suffix

    def path(self, key: str) -> str:
        """Where the file of a key is, or would be."""
        return os.path.join(self.folder, f"{key}{self._suffix}")

    def mark_used(self, key: str) -> None:
        """Note that a file is in use, at most once an hour: the time is for making room only."""
        path = self.path(key)
        try:
            if time.time() - os.stat(path).st_mtime > _HOUR:
                os.utime(path)
        except OSError:
            pass  # gone in between, or a folder that may only be read

    def entries(self) -> list[Entry]:
        """All files, the one unused for longest first."""
        found = [
            Entry(name.removesuffix(self._suffix), status.st_size, status.st_mtime)
            for name, status in self._files()
            if name.endswith(self._suffix) and not name.startswith(_NEW)
        ]
        return sorted(found, key=lambda entry: (entry.last_use, entry.key))

    def make_room(self) -> int:
        """Delete the files unused for longest until the rest is within the limit; how many bytes that is."""
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if total <= self.limit_bytes:
                break
            path = self.path(entry.key)
            try:
                if os.stat(path).st_mtime != entry.last_use:
                    continue  # somebody uses it, or has written it anew, since we looked
                os.unlink(path)
            except FileNotFoundError:
                pass  # another process makes room, too
            except OSError:
                continue  # may not be deleted
            total -= entry.size
        self._remove_abandoned()
        return total

    def clear(self) -> int:
        """Delete all files; how many there were."""
        entries = self.entries()
        for entry in entries:
            with suppress(FileNotFoundError):
                os.unlink(self.path(entry.key))
        return len(entries)

    def _remove_abandoned(self) -> None:
        """Delete what processes left behind that ended while they wrote."""
        for name, status in self._files():
            if name.startswith(_NEW) and time.time() - status.st_mtime > _DAY:
                with suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.folder, name))

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        for name in names:
            if name.endswith(self._suffix):
                try:
                    yield name, os.stat(os.path.join(self.folder, name))
                except OSError:
                    continue  # gone since the folder was listed
