"""Forks while other threads are busy: nothing is cut in half, and no child waits for a thread it does not have."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sardonyx import forks
from sardonyx.forks import ForkSafeLock, cached_property, held_off, importing

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
HERE = Path(__file__).parent


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("seed", range(3))
def test_a_child_forked_while_others_compile_opens_and_runs_a_session(seed: int) -> None:
    environment = {**os.environ, "SARDONYX_CACHE_DIR": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "ignore", str(HERE / "fork_stress.py"), str(seed), "8"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr


@contextmanager
def held_by_a_thread(
    lock: AbstractContextManager[Any], leave: threading.Event, last: Callable[[], object] = int
) -> Iterator[None]:
    """Another thread is inside a lock until `leave` is set, and does something last of all."""
    inside = threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            leave.wait(60)
            last()

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    yield
    leave.set()
    thread.join(60)


def test_a_fork_waits_for_who_holds_it_off() -> None:
    left: list[bool] = []

    def leave_late() -> None:
        time.sleep(0.05)
        left.append(True)

    leave = threading.Event()
    with held_by_a_thread(held_off, leave, leave_late):
        threading.Timer(0.05, leave.set).start()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if left else 1)
        assert exit_code(pid) == 0


def test_nobody_enters_while_a_fork_waits() -> None:
    inside, entered = threading.Event(), threading.Event()

    def hold() -> None:
        with held_off:
            inside.set()
            while not forks.importing._forking:
                time.sleep(0.001)
            threading.Thread(target=enter).start()
            time.sleep(0.05)
            assert not entered.is_set()
            with held_off:  # who is inside may enter again
                pass

    def enter() -> None:
        with importing:
            entered.set()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(60)
    pid = os.fork()
    if pid == 0:
        with held_off:
            os._exit(0)
    assert exit_code(pid) == 0
    thread.join(60)
    assert entered.wait(60)


def test_a_thread_that_is_inside_may_fork() -> None:
    with held_off:
        pid = os.fork()
        if pid == 0:
            with held_off:
                os._exit(0 if len(forks.importing._inside) == 1 else 1)
        assert exit_code(pid) == 0
    assert not forks.importing._inside


def test_the_hook_comes_before_that_of_logging() -> None:
    """The one holds the lock of logging, the other waits for a thread that wants to log."""
    program = """
import os, threading
from sardonyx.forks import held_off, importing
import logging
inside = threading.Event()
def hold():
    with held_off:
        inside.set()
        while not importing._forking: pass
        logging.getLogger("new").warning("inside")
threading.Thread(target=hold).start()
inside.wait()
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
"""
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, timeout=60, check=False)
    assert result.returncode == 0
    assert b"inside" in result.stderr


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_child_finds_locks_open(reentrant: bool) -> None:
    lock, leave = ForkSafeLock(reentrant=reentrant), threading.Event()
    with held_by_a_thread(lock, leave):
        pid = os.fork()
        if pid == 0:
            with lock:
                os._exit(0)
        leave.set()
        assert exit_code(pid) == 0


class Thing:
    def __init__(self) -> None:
        self.iterations = 0
        self.both = threading.Barrier(1)

    @cached_property
    def made(self) -> object:
        """What is made."""
        self.iterations += 1
        self.both.wait(60)
        return object()


def test_a_cached_property_is_computed_once() -> None:
    thing = Thing()
    assert thing.made is thing.made
    assert thing.iterations == 1
    assert isinstance(Thing.made, cached_property)
    assert Thing.made.__doc__ == "What is made."


def test_threads_that_compute_a_cached_property_at_once_get_one_object() -> None:
    thing = Thing()
    thing.both = threading.Barrier(2)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(thing.made)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert thing.iterations == 2
    assert found[0] is found[1] is thing.made
