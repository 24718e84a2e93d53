"""Threads and forks: what a forked child may meet halfway, and what may not be cut in half at all.

A forked child has the forking thread alone. A lock that another thread held stays locked there for ever, an import that it was
in the middle of never ends. So:

ForkSafeLock      a lock that the child finds open; what it guards must be in order at any moment
held_off          `with held_off:` no fork of this process happens in between: for imports, and for LLVM
importing         the same where nothing is logged, and no module imported that does so (a small program has no `logging`)
cached_property   `functools.cached_property` without a lock (until Python 3.12 that one has a lock per attribute of a class)

Whoever enters `held_off` may wait for a fork under way, and that fork for all who are inside. Hence a thread that somebody inside
waits for must not enter, and locks that are also taken inside are taken after it.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from _thread import RLock, allocate_lock, get_ident  # what threading.Lock is; a small program would notice the import of that
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

_POLLED_EACH: Final = 0.0005  # seconds


class ForkSafeLock:
    """A lock for `with`. What it guards must be in order at any moment: a child may come upon it halfway through a change."""

    def __init__(self, *, reentrant: bool = False) -> None:
        self._make: Callable[[], Any] = RLock if reentrant else allocate_lock
        self._lock = self._make()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()


if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: PLC0414 - for those who import it from here
else:

    class cached_property:  # noqa: N801 - the name of the one it replaces
        """Computed when it is first asked for, then kept in the object's `__dict__`.

        Two threads may both compute it, but all get the same object.
        """

        def __init__(self, compute):
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner, name):
            self._name = name

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            return instance.__dict__.setdefault(self._name, self._compute(instance))


class _Importing:
    """While a thread is inside, the process does not fork; a thread may enter again where it is inside already."""

    def __init__(self) -> None:
        self._door = allocate_lock()  # held by the thread that forks: nobody else enters
        self._inside: dict[int, int] = {}  # threads, and how many times each has entered
        self._forking = 0  # the thread that forks
        self._hooks = 0  # how many hooks of this fork have been called
        self._precedes_logging = False

    def __enter__(self) -> None:
        thread = get_ident()
        if thread in self._inside:
            self._inside[thread] += 1
            return
        if not self._precedes_logging and "logging" in sys.modules:
            self.precede_logging()
        with self._door:
            self._inside[thread] = 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        thread = get_ident()
        if self._inside[thread] > 1:
            self._inside[thread] -= 1
        else:
            del self._inside[thread]

    def precede_logging(self) -> None:
        """Hooks before a fork are called last one first. That of `logging` takes its lock: ours must have waited by then for
        all who may want to write a line."""
        import logging  # noqa: F401  lazy: a program that is opened saved does without

        if not self._precedes_logging:
            self._precedes_logging = True
            self.register()

    def register(self) -> None:
        """Have every fork wait. Registering again makes the hooks the first to be called."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before, after_in_parent=self._after, after_in_child=self._after_in_child)

    def _before(self) -> None:
        thread = get_ident()
        if self._forking == thread:
            self._hooks += 1
            return
        self._door.acquire()
        self._forking, self._hooks = thread, 1
        # A thread that forks while it is inside itself (in a signal handler, say) may be what the others wait for.
        while self._inside and thread not in self._inside:
            time.sleep(_POLLED_EACH)

    def _after(self) -> None:
        self._hooks -= 1
        if self._hooks == 0:
            self._forking = 0
            self._door.release()

    def _after_in_child(self) -> None:
        thread = get_ident()
        self._door = allocate_lock()
        self._inside = {thread: self._inside[thread]} if thread in self._inside else {}
        self._forking = self._hooks = 0


class _HeldOff:
    """`importing` for everything else."""

    def __enter__(self) -> None:
        importing.precede_logging()
        importing.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        importing.__exit__(kind, error, trace)


importing: Final = _Importing()
importing.register()
held_off: Final = _HeldOff()

_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _open_all() -> None:
    for lock in list(_locks):
        lock._lock = lock._make()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
