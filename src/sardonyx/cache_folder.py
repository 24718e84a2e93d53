"""The private folder on disk for what is worth keeping: who may write to it, and files that appear whole or not at all."""

from __future__ import annotations

import os
from _thread import get_ident


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


def write_atomically(path: str | os.PathLike[str], *pieces: bytes | memoryview) -> None:
    """Write a file so that others see all of it or nothing; a folder that cannot be written is not an error."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".new-{os.getpid()}-{get_ident()}-{name}")
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
