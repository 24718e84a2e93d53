"""Files in the cache folder: written whole, private, and bounded.

Several processes use the folder at once, and any of them (or the user) may delete from it at any time. A file that is gone is
therefore never an error, and what makes room decides by what it finds on the disk, not by what it remembers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_DAY: Final = 86_400.0  # seconds
_HOUR: Final = 3_600.0
_NEW: Final = ".new-"  # begins the names of files that are being written


class Entry(NamedTuple):
    """A file in the cache."""

    key: str
    size: int
    last_use: float  # seconds since 1970


def temporary_path(path: Path) -> Path:
    """Where the content of a file is written before it gets its name: beside it, under a name nobody else uses."""
    return path.parent / f"{_NEW}{os.getpid()}-{threading.get_ident()}-{path.name}"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that others see all of it or nothing; a folder that cannot be written is not an error."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = temporary_path(path)
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


class CacheFolder:
    """The files of one kind: those whose names end with a suffix. The rest of the name is the key."""

    def __init__(self, folder: Path, suffix: str, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._suffix = suffix

    def path(self, key: str) -> Path:
        """Where the file of a key is, or would be."""
        return self.folder / f"{key}{self._suffix}"

    def mark_used(self, key: str) -> None:
        """Note that a file is in use, at most once an hour: the time is for making room only."""
        path = self.path(key)
        try:
            if time.time() - path.stat().st_mtime > _HOUR:
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
                if path.stat().st_mtime != entry.last_use:
                    continue  # somebody uses it, or has written it anew, since we looked
                path.unlink()
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
            self.path(entry.key).unlink(missing_ok=True)
        return len(entries)

    def _remove_abandoned(self) -> None:
        """Delete what processes left behind that ended while they wrote."""
        for name, status in self._files():
            if name.startswith(_NEW) and time.time() - status.st_mtime > _DAY:
                (self.folder / name).unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        for name in names:
            if name.endswith(self._suffix):
                try:
                    yield name, os.stat(self.folder / name)
                except OSError:
                    continue  # gone since the folder was listed
