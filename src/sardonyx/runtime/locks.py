"""Locks that a forked child finds open: the thread that held one when the process forked does not exist there."""

from __future__ import annotations

import os
import weakref
from _thread import allocate_lock  # what threading.Lock is; a small program would notice the import of that
from types import TracebackType


class ForkSafeLock:
    """A lock for `with`. What it guards must be in order at any moment: a child may come upon it halfway through a change."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()


_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _open_all() -> None:
    for lock in list(_locks):
        lock._lock = allocate_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
