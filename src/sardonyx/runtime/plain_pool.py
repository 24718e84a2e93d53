"""A pool whose workers wait in Python, by locks: for systems without a driver of their own (`codegen.drivers`).

A job is a native function that every worker calls with its number. It begins by opening a lock for each worker, and is over when
each has opened another one; in between the workers share steps in native code, as everywhere.
"""

from __future__ import annotations

import ctypes
import time
from _thread import allocate_lock
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from sardonyx.codegen.blocks import BLOCK_COUNT, BLOCK_ENTRIES, BLOCK_STEPS, BLOCK_TABLE, GIVE
from sardonyx.forks import cached_property
from sardonyx.runtime.pool import Pool, running

Job: TypeAlias = Callable[[int], object]  # what each worker does, given its number

_give = ctypes.CFUNCTYPE(None)(lambda: time.sleep(0))  # lets others use the core


class _Crew:
    """The workers of an open pool: what they wait for, and what they are to do."""

    def __init__(self, helpers: int) -> None:
        self.begin = [allocate_lock() for _ in range(helpers)]
        self.end = [allocate_lock() for _ in range(helpers)]
        for lock in (*self.begin, *self.end):
            lock.acquire()
        self.job: Job | None = None

    def wait(self, worker: int, block: object) -> None:
        """The life of a worker's thread; it holds the block, which it may look at when the pool is gone."""
        while True:
            self.begin[worker - 1].acquire()
            job = self.job
            if job is None:
                return
            job(worker)
            del job  # it holds the pool, which must be able to end
            self.end[worker - 1].release()

    def work(self, job: Job, helpers: int) -> None:
        """Have everybody do a job, this thread as the first worker."""
        self.job = job
        for lock in self.begin[:helpers]:
            lock.release()
        job(0)
        for lock in self.end[:helpers]:
            lock.acquire()
        self.job = None

    def dismiss(self) -> None:
        """End the threads."""
        self.job = None
        for lock in self.begin:
            if lock.locked():
                lock.release()


class PlainPool(Pool):
    """A pool without help of the system."""

    _crew: _Crew

    @property
    def keeps_awake(self) -> bool:
        """Workers wait in Python, asleep."""
        return False

    @cached_property
    def _bind(self) -> Callable[..., None]:
        return self._function("bind")

    @cached_property
    def _prepare(self) -> Callable[..., None]:
        return self._function("prepare")

    @cached_property
    def _prepare_loop(self) -> Callable[..., None]:
        return self._function("prepare_loop")

    @cached_property
    def _lead(self) -> Callable[..., None]:
        return self._function("lead")

    @cached_property
    def _help(self) -> Callable[..., None]:
        return self._function("help")

    def run(self, steps: int, count: int, table: int) -> None:
        """Run steps on the workers that are free for it."""
        self._share(lambda pool: self._prepare(pool, steps, count, table), lambda: self._run(steps, count, table))

    def launch(self, block: int, pool_entry: memoryview, position: int) -> None:
        """Run a launch block (see `codegen.driver`)."""
        pool_entry[position] = 0

        def prepare(pool: int) -> None:
            self._bind(block)
            entries = (ctypes.c_int64 * BLOCK_ENTRIES).from_address(block)
            self._prepare(pool, entries[BLOCK_STEPS], entries[BLOCK_COUNT], entries[BLOCK_TABLE])

        self._share(prepare, lambda: self.launch_alone(block))

    def run_loop(self, block: int, alone: bool) -> None:
        """Run a loop block (see `codegen.driver`) until it comes back."""
        if alone:
            self._loop(block)
            return
        self._share(lambda pool: self._prepare_loop(pool, block), lambda: self._loop(block))

    def _share(self, prepare: Callable[[int], None], run_alone: Callable[[], None]) -> None:
        """Have several workers do a job, or do it on this thread alone if none of them is free for it."""
        running.append(None)
        try:
            if not self._take():
                run_alone()
                return
            try:
                pool = self._address
                prepare(pool)
                lead, help_ = self._lead, self._help
                helpers = min(self._sharers - 1, len(self._threads))
                self._crew.work(lambda worker: help_(pool, worker) if worker else lead(pool), helpers)
            finally:
                self._busy.release()
        finally:
            running.pop()

    def _open(self) -> None:
        self._crew = _Crew(self.workers - 1)
        super()._open()
        ctypes.c_void_p.from_address(self._address + GIVE).value = ctypes.cast(_give, ctypes.c_void_p).value

    def _waiting(self, address: int, worker: int, block: object) -> Callable[[], None]:
        return partial(self._crew.wait, worker, block)

    def _stop(self, address: int) -> None:
        self._crew.dismiss()
