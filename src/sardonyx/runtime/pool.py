"""Threads that wait in native code for programs to run (where that cannot be, in Python: `plain_pool`).

A pool of n workers is the calling thread and n - 1 Python threads that never come back to Python while the pool lives:
they sit in `work` with the GIL released, spin for a millisecond or two after the last job, then sleep without using the CPU.
One program at a time runs on a pool. When several threads run programs at the same time, each gets by with fewer workers, so that
together they have no more than there are cores: with as many callers as cores everybody runs on his own thread alone.
All sessions of a process that want the same number of workers share a pool (`shared_pool`).
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import sys
import time
import weakref
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from sardonyx import errors
from sardonyx.codegen.blocks import ASLEEP_AT, IDLE, LINE, NOWHERE, PATIENCE, POOL_BYTES, PRESSURE, SPINS, UNDONE, WAKER, WORKERS
from sardonyx.codegen.loader import LoadedCode
from sardonyx.forks import ForkSafeLock, cached_property, held_off, importing
from sardonyx.runtime.contention import CloseRuns, TrialTable
from sardonyx.target.machine import PLAIN

if TYPE_CHECKING:
    from threading import Thread

_MOST_WORKERS = 256  # of a pool, on machines with fewer cores: each more of them makes every barrier longer
_LONGEST = 1 << 16  # bytes that are read of a file of the system
_SPINS = 40_000  # rounds of about 40 ns: 1.6 ms
_PATIENCE, _MOST_PATIENCE = 5_000, 40_000  # rounds of waiting for a chunk before a worker is taken to be held up
_ALONE = 20  # so much sooner pressure ends after a run that did without the pool

# Functions of the driver and what they take: p a pointer, i an integer of 64 bits
_ARGUMENTS: Final = {
    "start": "ppip", "run": "pip", "work": "pi", "launch": "p", "loop": "p", "start_loop": "pp", "stop": "p",
    "bind": "p", "prepare": "ppip", "prepare_loop": "pp", "lead": "p", "help": "pi",
}  # fmt: skip
_TYPES: Final = {"p": ctypes.c_void_p, "i": ctypes.c_int64}


def usable_cores() -> int:
    """The cores this process may really use: its affinity mask, cut by the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, min(count, math.ceil(quota))) if quota else max(1, count)


def _cgroup_quota(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> float | None:
    """CPUs that the control groups around this process grant, or None without a limit."""
    granted: list[float] = []
    for line in _text(own).splitlines() or ["0::/"]:
        _, controllers, group = line.split(":", 2)
        first_version = bool(controllers)
        if first_version and "cpu" not in controllers.split(","):
            continue
        parts = [part for part in group.split("/") if part]
        # A group has no more than any group around it. In a container the path may be the host's; then the root is its own.
        for depth in range(len(parts) + 1):
            folder = "/".join([root, *(["cpu"] if first_version else []), *parts[:depth]])
            if first_version:
                limit = [_text(f"{folder}/cpu.cfs_quota_us"), _text(f"{folder}/cpu.cfs_period_us")]
            else:
                limit = _text(f"{folder}/cpu.max").split()
            if len(limit) == 2 and all(each.isdigit() and int(each) > 0 for each in limit):
                granted.append(int(limit[0]) / int(limit[1]))
    return min(granted, default=None)


def _text(path: str) -> str:
    """A short file of the system, or nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _LONGEST).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)


class Pool:
    """A number of workers. Threads are started at the first run, and anew after a fork."""

    def __init__(self, driver: LoadedCode, workers: int, *, spinning: bool = True) -> None:
        self.workers = workers
        self._driver = driver
        self._spins = _SPINS if spinning else 0
        self.launch_alone = self._function("launch")  # runs a launch block whose pool entry is 0, without any Python around it
        self._busy = allocate_lock()
        self._threads: list[Thread] = []
        self._pid = 0
        self._block: object = None
        self._address = 0
        self._sharers = 0
        self._pressure, self._patience = ctypes.c_int64(), ctypes.c_int64()  # of the block, once there is one
        self._trials, self._close_runs = TrialTable(), CloseRuns()
        _pools.add(self)

    @property
    def keeps_awake(self) -> bool:
        """Whether workers are awake for a while after a run: then short programs may share them (`launch_short`)."""
        return self.workers > 1 and self._spins > 0

    @cached_property
    def _cores(self) -> int:
        """How many threads may work at a time: one for each core, or as many as were asked for."""
        return max(self.workers, usable_cores())

    def native_function(self, name: str) -> int:
        """Where a function of the driver is that Python calls directly; 0 if it has none, as drivers in older files."""
        try:
            return self._driver.functions[name]
        except (KeyError, errors.EngineError):
            return 0

    def _function(self, name: str) -> Callable[..., None]:
        """A function of the driver. Making one takes longer than calling it: most are made when they are first called."""
        kind = ctypes.CFUNCTYPE(None, *map(_TYPES.__getitem__, _ARGUMENTS[name]))
        return kind(self._driver.functions[name])

    @cached_property
    def _run(self) -> Callable[..., None]:
        return self._function("run")

    @cached_property
    def _loop(self) -> Callable[..., None]:
        return self._function("loop")

    @cached_property
    def _start(self) -> Callable[..., None]:
        return self._function("start")

    @cached_property
    def _start_loop(self) -> Callable[..., None]:
        return self._function("start_loop")

    def run(self, steps: int, count: int, table: int) -> None:
        """Run steps on the workers that are free for it."""
        running.append(None)
        try:
            if self._pressure.value > 0:

                def run(shared: bool) -> None:
                    if shared:
                        self._start(self._address, steps, count, table)
                    else:
                        self._run(steps, count, table)

                self._try(steps, run)
            elif self._take():
                try:
                    self._start(self._address, steps, count, table)
                finally:
                    self._busy.release()
            else:
                self._run(steps, count, table)
        finally:
            running.pop()

    def launch(self, block: int, pool_entry: memoryview, position: int) -> None:
        """Run a launch block (see `codegen.driver`); its pool entry is filled in here."""
        running.append(None)
        try:
            if self._pressure.value > 0:

                def run(shared: bool) -> None:
                    pool_entry[position] = self._address if shared else 0
                    self.launch_alone(block)

                self._try(block, run)
            elif self._take():
                try:
                    pool_entry[position] = self._address
                    self.launch_alone(block)
                finally:
                    self._busy.release()
            else:
                pool_entry[position] = 0
                self.launch_alone(block)
        finally:
            running.pop()

    def launch_short(self, block: int, pool_entry: memoryview, position: int) -> None:
        """Run a launch block of a program that is too short to wake workers for: on those that are awake, or alone."""
        close, now = self._close_runs, perf_counter()
        if close.begin(now, get_ident()) and not self._is_pressed(now):
            self.launch(block, pool_entry, position)
        else:
            pool_entry[position] = 0
            self.launch_alone(block)
        close.ended = perf_counter()

    def _is_pressed(self, now: float) -> bool:
        """Whether a worker was held up a moment ago, which a short run had better not be part of."""
        if self._pressure.value <= 0:
            return False
        self._close_runs.hold_off(now)
        self._pressure.value = 0
        return True

    def run_loop(self, block: int, alone: bool) -> None:
        """Run a loop block (see `codegen.driver`) until it comes back."""
        if alone:
            self._loop(block)
            return
        running.append(None)
        try:
            if self._pressure.value > 0:
                self._try(block, lambda shared: self._start_loop(self._address, block) if shared else self._loop(block))
            elif self._take():
                try:
                    self._start_loop(self._address, block)
                finally:
                    self._busy.release()
            else:
                self._loop(block)
        finally:
            running.pop()

    def _try(self, program: int, run: Callable[[bool], None]) -> None:
        """Run a program after a worker was held up: on the pool or alone, whichever has turned out faster (`contention`)."""
        trials = self._trials.of(program)
        shared = trials.is_shared() and self._take()
        start, worked = perf_counter(), time.thread_time()
        try:
            run(shared)
        finally:
            if shared:
                self._busy.release()
            else:  # in the end the pool is tried again in any case
                self._pressure.value = max(0, self._pressure.value - _ALONE)
        trials.record(shared, perf_counter() - start, time.thread_time() - worked)
        if trials.is_quiet:  # nobody was held up: the worker just had more to do
            self._patience.value = min(2 * self._patience.value, _MOST_PATIENCE)
            self._pressure.value = 0
        elif trials.is_decided:
            self._patience.value = _PATIENCE

    def _take(self) -> bool:
        """Have the pool for a run that `running` counts; False if that had better run on its own thread alone."""
        sharers = min(self.workers, self._cores + 1 - len(running))
        if sharers < 2 or not self._busy.acquire(blocking=False):
            return False
        try:
            if self._pid != os.getpid():
                self._open()
            if sharers != self._sharers:
                self._sharers = sharers
                ctypes.c_int64.from_address(self._address + WORKERS).value = min(sharers, len(self._threads) + 1)
        except BaseException:
            self._busy.release()
            raise
        return True

    def run_alone(self, steps: int, count: int, table: int) -> None:
        """Run steps on this thread: for programs too small to gain from more."""
        self._run(steps, count, table)

    def _open(self) -> None:
        with importing:
            from threading import Thread  # lazy: small programs never start one, and would notice the import

        block = ctypes.create_string_buffer(POOL_BYTES + LINE)
        address = (ctypes.addressof(block) + LINE - 1) // LINE * LINE
        ctypes.c_int64.from_address(address + SPINS).value = self._spins
        ctypes.c_int64.from_address(address + UNDONE).value = IDLE
        ctypes.c_int64.from_address(address + ASLEEP_AT).value = ctypes.c_int64.from_address(address + WAKER).value = NOWHERE
        threads = self._start_threads(Thread, block, address)
        self._sharers = 0  # the number in the block is that of the job; there was none yet
        self._pressure = ctypes.c_int64.from_address(address + PRESSURE)
        self._patience = ctypes.c_int64.from_address(address + PATIENCE)
        self._patience.value = _PATIENCE
        self._block, self._address, self._threads = block, address, threads
        self._pid = os.getpid()

    def _start_threads(self, thread_class: type[Thread], block: object, address: int) -> list[Thread]:
        """As many as are wanted, or as many as the system gives."""
        threads: list[Thread] = []
        for worker in range(1, self.workers):
            # The thread holds the block: it may outlive the pool by a moment.
            thread = thread_class(target=self._waiting(address, worker, block), daemon=True, name=f"sardonyx-{worker}")
            try:
                thread.start()
            except RuntimeError as error:  # the system gives no more: those there are do the work
                _warn("a pool of %d workers has only %d: %s", self.workers, worker, error)
                break
            threads.append(thread)
        return threads

    def _waiting(self, address: int, worker: int, block: object) -> Callable[[], None]:
        """What a worker's thread does."""
        return partial(_sit, self._function("work"), address, worker, block)

    def _stop(self, address: int) -> None:
        """Tell the workers to end."""
        self._function("stop")(address)

    def close(self) -> None:
        """End the threads; a later run starts new ones."""
        block, address, threads, pid = self._block, self._address, self._threads, self._pid
        self._threads, self._pid = [], 0  # whoever runs from here on opens the pool anew, while the old threads end
        if pid == os.getpid() and threads:
            self._stop(address)
            for thread in threads:
                thread.join(timeout=1.0)
        del block

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:  # bound here: at the end `sys` is gone
        if not is_finalizing():  # atexit has closed all pools by then
            self.close()


def _warn(text: str, *facts: object) -> None:
    with held_off:
        from sardonyx.runtime.logs import WARNING, log  # lazy: nearly no program comes here

    log(WARNING, text, *facts)


def _sit(work: Callable[..., None], address: int, worker: int, block: object) -> None:
    work(address, worker)


running: list[None] = []  # an entry for each run that is under way, whatever pool it has, if it is worth sharing
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: weakref.WeakValueDictionary[tuple[int, bool, str], Pool] = weakref.WeakValueDictionary()
_lasting: dict[tuple[int, bool, str], Pool] = {}  # sessions come and go, the threads of sensible counts need not
_shared_lock = ForkSafeLock()
_cut: set[int] = set()  # counts that a warning was given of


def shared_pool(driver: Callable[[], LoadedCode], workers: int, spinning: bool, runtime: str) -> Pool:
    """The pool of all programs of this process that want so many workers; 0 means as many as this process may use.

    One with more workers than the machine has cores ends with the last program that uses it. `driver` gives the native half of
    the runtime, which is the same wherever it was loaded from.
    """
    count = workers or usable_cores()
    if count > _MOST_WORKERS:
        count = min(count, max(_MOST_WORKERS, usable_cores()))
    key = (count, spinning, runtime)
    if workers > count and workers not in _cut:
        _cut.add(workers)
        _warn("%d threads were asked for; there are %d, as more than the machine has cores make it slower", workers, count)
    with _shared_lock:
        pool = _shared.get(key)
        if pool is None:
            pool = _shared[key] = _pool_class(runtime)(driver(), count, spinning=spinning)
        if count <= (os.cpu_count() or 1):
            _lasting[key] = pool
        return pool


def _pool_class(runtime: str) -> type[Pool]:
    if runtime != PLAIN:
        return Pool
    with importing:
        from sardonyx.runtime.plain_pool import PlainPool  # lazy: for systems without anything better

    return PlainPool


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


atexit.register(_close_all)


def _after_fork() -> None:
    """In a forked child the threads are gone, and a lock may be held by one that no longer exists."""
    running.clear()
    for pool in list(_pools):
        pool._busy = allocate_lock()
        pool._pid = 0
        pool._threads = []
        pool._pressure.value = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
