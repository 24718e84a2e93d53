"""Files in the cache folder: written whole, private, checked, and bounded.

Several processes use the folder at once, and any of them (or the user) may delete from it at any time. A file that is gone is
therefore never an error, and what makes room decides by what it finds on the disk, not by what it remembers.

What is read is run. So nothing is read from a folder that another user owns or may write to, unless the user says that it may be
trusted; only regular files are opened, and never such that opening waits (for the other end of a pipe, say); and an entry holds
its own key with a checksum, so that a file under another's name counts as missing, like a damaged one.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from _thread import get_ident
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from sardonyx.forks import held_off, importing

_DAY: Final = 86_400.0  # seconds
_HOUR: Final = 3_600.0
_NEW: Final = ".new-"  # begins the names of files that are being written
_MAGIC: Final = b"SDXENT1\0"
_HEADER: Final = struct.Struct("<8sIQ32s")  # magic, lengths of key and body, checksum of both
_LARGEST_ENTRY: Final = 256 << 20  # bytes of an entry that is read as a whole
_OPEN_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
TRUST: Final = "SARDONYX_CACHE_TRUSTED"  # the environment variable by which a user trusts a folder that is not his own


class Entry:
    """A file in the cache."""

    __slots__ = ("key", "last_use", "size")

    def __init__(self, key: str, size: int, last_use: float) -> None:
        self.key = key
        self.size = size
        self.last_use = last_use  # seconds since 1970

    def __iter__(self) -> Iterator[Any]:
        return iter((self.key, self.size, self.last_use))


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview, replaces: bool = True) -> str:
    """Write a file so that others see all of it or nothing; "", or why it could not be written: that is not an error.

    Without `replaces` a file that is there already stays as it is, which is no error either.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f"{_NEW}{os.getpid()}-{get_ident()}-{name}")  # a name nobody else uses
    try:
        os.makedirs(folder or ".", mode=0o700, exist_ok=True)
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                if all(isinstance(piece, bytes) for piece in pieces):
                    file.writelines(pieces)
                else:
                    from sardonyx.mapped_file import write_pages  # lazy: those who write nothing large need no arrays

                    write_pages(file.fileno(), pieces)
            if replaces or not _linked(temporary, path):
                os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):  # it may not even have been made
                os.unlink(temporary)
            raise
    except OSError as error:
        return error.strerror or str(error)  # a read-only or full disk costs the next start time, not this one its answer
    return ""


def _linked(temporary: str, path: str | os.PathLike[str]) -> bool:
    """Give a file its name, unless another has that: then it is deleted. False if the system cannot do that in one step."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except (OSError, AttributeError):
        return False
    os.unlink(temporary)
    return True


def why_not_used(folder: str | os.PathLike[str], trusted: bool = False) -> str:
    """Why code may not be run from a folder, which is made if it is not there; "" if it may."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.stat(folder)
    except OSError as error:
        return f"it cannot be made ({error.strerror})"
    if trusted or not hasattr(os, "getuid"):
        return ""
    if status.st_uid != os.getuid():
        return f"it belongs to another user (number {status.st_uid}; this one is {os.getuid()})"
    if status.st_mode & 0o022:
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return ""


_named: dict[tuple[str, str], object] = {}


def name_once(folder: str, what: str, hint: str) -> None:
    """Log what is the matter with a folder, once a process."""
    token = object()
    if _named.setdefault((folder, what), token) is not token:
        return
    with held_off:
        import logging  # lazy: nothing is the matter with most folders

    logging.getLogger("sardonyx").warning("the cache folder %r is %s; %s", folder, what, hint)


class CacheFolder:
    """The files of one kind: those whose names end with a suffix. The rest of the name is the key.

    `trusted` says that the folder is used although another user owns it or may write to it.
    """

    def __init__(self, folder: str | os.PathLike[str], suffix: str, limit_bytes: int, trusted: bool = False) -> None:
        self.folder = os.fspath(folder)
        self.limit_bytes = limit_bytes
        self._suffix = suffix
        self._trusted = trusted

    def problem(self) -> str:
        """Why nothing is read from the folder; "" if it is used."""
        return why_not_used(self.folder, self._trusted)

    def is_used(self) -> bool:
        """Whether the folder may be used; one that may not is named, once."""
        reason = self.problem()
        if reason:
            hint = "SARDONYX_CACHE_DIR names another"
            if os.path.isdir(self.folder):
                hint += f", {TRUST}=1 reads it all the same"
            name_once(self.folder, f"not used: {reason}", hint)
        return not reason

    def open(self, key: str) -> tuple[int, int] | None:
        """A descriptor of a key's file, to be closed by the caller, and its size; None if there is none that may be read."""
        try:
            descriptor = os.open(self.path(key), _OPEN_FLAGS)
        except (OSError, ValueError):
            return None
        status = os.fstat(descriptor)
        ours = self._trusted or not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
        if not stat.S_ISREG(status.st_mode) or not ours:
            os.close(descriptor)
            return None
        return descriptor, status.st_size

    def read(self, key: str) -> bytes | None:
        """What was written under a key; None if that is not there, or damaged."""
        found = self.open(key)
        if found is None:
            return None
        descriptor, size = found
        with open(descriptor, "rb") as file:
            if not _HEADER.size <= size <= _LARGEST_ENTRY:
                return None
            content = file.read(size)
        magic, key_length, length, checksum = _HEADER.unpack_from(content)
        held = content[_HEADER.size :]
        if magic != _MAGIC or key_length + length != len(held) or held[:key_length] != key.encode() or _digest(held) != checksum:
            return None
        self.mark_used(key)
        return held[key_length:]

    def write(self, key: str, body: bytes) -> int:
        """Keep something under a key; how many bytes the file has."""
        pieces = _entry(key, body)
        self.keep(key, *pieces)
        return sum(map(len, pieces))

    def write_first(self, key: str, body: bytes) -> bytes | None:
        """Keep something under a key unless there is something already; what is kept, so that all processes agree on it.

        None if nothing can be kept.
        """
        pieces = _entry(key, body)
        self.keep(key, *pieces, replaces=False)
        found = self.read(key)
        if found is None:  # what is there is damaged
            self.keep(key, *pieces)
            found = self.read(key)
        return found

    def keep(self, key: str, *pieces: bytes | memoryview, replaces: bool = True) -> None:
        """Write a key's file; a folder that cannot be written to is named, once."""
        reason = write_atomically(self.path(key), *pieces, replaces=replaces)
        if reason and not self._trusted:
            name_once(self.folder, f"not written to: {reason}", "what is compiled is compiled again by the next process")

    def path(self, key: str) -> str:
        """Where the file of a key is, or would be."""
        return os.path.join(self.folder, f"{key}{self._suffix}")

    def mark_used(self, key: str) -> None:
        """Note that a file is in use, at most once an hour: the time is for making room only."""
        path = self.path(key)
        try:
            if time.time() - os.stat(path).st_mtime > _HOUR:
                os.utime(path, follow_symlinks=False)
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
            with suppress(OSError):
                os.unlink(self.path(entry.key))
        return len(entries)

    def _remove_abandoned(self) -> None:
        """Delete what processes left behind that ended while they wrote."""
        for name, status in self._files():
            if name.startswith(_NEW) and time.time() - status.st_mtime > _DAY:
                with suppress(OSError):
                    os.unlink(os.path.join(self.folder, name))

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return
        for name in names:
            if name.endswith(self._suffix):
                try:
                    status = os.lstat(os.path.join(self.folder, name))
                except OSError:
                    continue  # gone since the folder was listed
                if not stat.S_ISDIR(status.st_mode):
                    yield name, status


def _entry(key: str, body: bytes) -> tuple[bytes, bytes]:
    """The pieces of a file: a header, and the key with what it stands for."""
    held = key.encode() + body
    return _HEADER.pack(_MAGIC, len(key.encode()), len(body), _digest(held)), held


def _digest(content: bytes) -> bytes:
    with importing:
        from hashlib import sha256  # lazy: it takes milliseconds to load, and a program that was saved needs none

    return sha256(content).digest()
