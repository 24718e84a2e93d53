"""The version of our own source: what another version compiled is not run.

An installed package is known by its RECORD, in which the installer wrote down the digest of every file. (Who edits files of an
installed package by hand clears the cache.) The files of a checkout are edited in place, so each is asked for its size and times.
Which files there are is remembered in the cache folder, with the times of their folders: folders change when files come and go.
"""

from __future__ import annotations

import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from functools import cache
from typing import Final

from sardonyx.cache_folder import CacheFolder

ROOT: Final = os.path.dirname(__file__)
_KINDS: Final = (".py", ".txt")  # source, and tables that it reads
# Folders that nothing imports which compiles or runs a model: they lie above it (see the layers in docs/architecture.md).
ABOVE: Final = frozenset(("backend", "benchmarking", "capi", "cli", "datasets", "sample_inputs", "transformers"))
_SUFFIX: Final = ".sources"
_FOLDER_LIMIT: Final = 1 << 20  # bytes of remembered lists
_LARGEST: Final = 1 << 20  # bytes of a list or a RECORD
_CHECKSUM: Final = 16  # characters
_JUST_NOW: Final = 2_000_000_000  # nanoseconds; the coarsest times of change (FAT) have steps of two seconds
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_BINARY", 0)


@cache
def source_version(folder: str, trusted: bool, root: str = ROOT) -> str:
    """Changes with every file of the package that compiles or runs models.

    `folder` is the cache folder, which may be trusted whoever owns it.
    """
    record = installed_record(root)
    if record is not None:
        return _checksum(record)
    lists = CacheFolder(folder, _SUFFIX, _FOLDER_LIMIT, trusted)
    name = _checksum(os.fsencode(root))
    files = _remembered(lists, name, root)
    if files is None:
        folders, files = _walk(root)
        if all(time.time_ns() - max(times) > _JUST_NOW for times in folders.values()):  # else they may change unnoticed
            _remember(lists, name, root, folders, files)
    facts: list[int] = []
    for file in files:
        try:
            status = os.stat(f"{root}/{file}")
        except OSError:  # gone in between
            facts += -1, -1, -1
        else:
            facts += status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return _checksum(struct.pack(f"<{len(facts)}q", *facts) + "\n".join(files).encode("utf-8", "surrogateescape"))


def installed_record(root: str = ROOT) -> bytes | None:
    """The installer's list of the package's files with their digests; None for what is not installed."""
    package = os.path.basename(root)
    version = getattr(sys.modules[__package__], "__version__", "")
    try:
        descriptor = os.open(os.path.join(os.path.dirname(root), f"{package}-{version}.dist-info", "RECORD"), _FLAGS)
    except OSError:
        return None
    record = _content(descriptor, _LARGEST)
    # That of an editable install does not have the files themselves, but where they are.
    return record if f"{package}/__init__.py,sha256=".encode() in record else None


def contents_of(*folders: str, root: str = ROOT) -> Iterator[bytes]:
    """What is in the files of some folders; of an installed package their lines of the RECORD, which are digests."""
    record = installed_record(root)
    if record is not None:
        starts = tuple(f"{os.path.basename(root)}/{folder}/".encode() for folder in folders)
        yield from (line for line in record.splitlines() if line.startswith(starts) and not line.endswith(b",,"))
        return
    for folder in folders:
        for name in _walk(root, f"{folder}/")[1]:
            yield name.encode()
            yield _content(os.open(f"{root}/{name}", _FLAGS), _LARGEST)


def _content(descriptor: int, size: int) -> bytes:
    """What is in an open file, which is closed; nothing if it cannot be read."""
    try:
        return os.read(descriptor, size)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _checksum(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}{zlib.adler32(content):08x}"


def _times(folder: str) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_mtime_ns, status.st_ctime_ns


def _walk(root: str, start: str = "") -> tuple[dict[str, tuple[int, int]], list[str]]:
    """All folders from one on with the times of their changes, and all files in them; both by their path from the root."""
    folders: dict[str, tuple[int, int]] = {}
    files = []
    waiting = [start]
    while waiting:
        folder = waiting.pop()
        folders[folder] = _times(f"{root}/{folder}")  # first: what changes from now on is seen the next time
        with os.scandir(f"{root}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(_KINDS):
                    files.append(folder + entry.name)
                elif "." in entry.name or entry.name.startswith("__") or (not folder and entry.name in ABOVE):
                    continue
                elif entry.is_dir():
                    waiting.append(f"{folder}{entry.name}/")
    return folders, sorted(files)


def _remember(lists: CacheFolder, name: str, root: str, folders: dict[str, tuple[int, int]], files: list[str]) -> None:
    lines = [repr(root), *(f"{changed} {moved} {folder}" for folder, (changed, moved) in folders.items()), "", *files]
    content = "\n".join(lines).encode("utf-8", "surrogateescape")
    lists.keep(name, _checksum(content).encode(), content)
    lists.make_room()


def _remembered(lists: CacheFolder, name: str, root: str) -> list[str] | None:
    """All files, if they are remembered and no folder has changed since."""
    found = lists.open(name)
    if found is None:
        return None
    descriptor, size = found
    content = _content(descriptor, min(size, _LARGEST))
    if _checksum(content[_CHECKSUM:]).encode() != content[:_CHECKSUM]:
        return None
    head, _, files = content[_CHECKSUM:].decode("utf-8", "surrogateescape").partition("\n\n")
    held, *folders = head.split("\n")
    if held != repr(root):
        return None
    for line in folders:
        changed, moved, folder = line.split(" ", 2)
        try:
            if _times(f"{root}/{folder}") != (int(changed), int(moved)):
                return None
        except OSError:
            return None
    return files.split("\n")
