"""The worker pool: shares of work, barriers, sleeping, forks, and callers that find it busy."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import sardonyx
from counting_job import HELD_UP, MEETING, SLOW, STEPS, UNITS, Job, RepeatingJob
from model_text import model
from sardonyx.codegen import blocks
from sardonyx.compile.assemble import library
from sardonyx.datasets import get_example
from sardonyx.runtime import pool as pools
from sardonyx.runtime.plain_pool import PlainPool
from sardonyx.runtime.pool import Pool
from sardonyx.target.machine import LINUX


@pytest.fixture
def two() -> Iterator[Pool]:
    pool = Pool(library(None).driver(), 2)
    yield pool
    pool.close()


@pytest.fixture(params=[(Pool, "native", 2), (PlainPool, "plain", 3)], ids=["native", "plain"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """A pool whose workers wait in native code, and one whose workers wait in Python."""
    kind, runtime, workers = request.param
    monkeypatch.setenv("SARDONYX_RUNTIME", runtime)
    pool = kind(library(None).driver(), workers)
    yield pool
    pool.close()


def test_every_unit_is_done_once_whoever_does_it(either: Pool) -> None:
    job = Job(worth=either.workers)
    for iteration in range(1, 4):
        job.run(either)
        assert job.counters.sum() == STEPS * UNITS * iteration


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_a_stretch_of_steps_is_done_again(either: Pool, alone: bool, rounds: int) -> None:
    job = RepeatingJob(either.workers, rounds)
    for run in range(1, 4):
        (either.run_alone if alone else either.run)(job.steps.ctypes.data, len(job.steps), job.table.ctypes.data)
        assert job.before.sum() == run * UNITS
        assert job.inside.sum() == 2 * run * rounds * UNITS
        assert job.behind.sum() == run * UNITS


def test_every_worker_takes_part(either: Pool) -> None:
    count = either.workers
    job = Job(count, MEETING, "meet", [count], units=3 * count, steps=20)
    job.run(either)
    assert job.counters.sum() == 20 * 3 * count
    assert (job.counters[:count] > 0).all()


@pytest.mark.parametrize("flags", [blocks.BARRIER, 0], ids=["meeting", "not meeting"])
def test_steps_are_cut_finely_when_a_worker_was_held_up(either: Pool, flags: int) -> None:
    job = Job(worth=1000, flags=flags)
    either.run(0, 0, 0)  # opens it
    for iteration in range(1, 101):
        either._pressure.value = 1000
        job.run(either)
        assert job.counters.sum() == STEPS * UNITS * iteration
        if either._pressure.value <= 1000:  # else the system really held a worker up, which raises it again
            break
    assert either._pressure.value == (1000 - STEPS if flags else 1000 - 1)


def test_others_do_the_work_of_one_that_is_held_up(either: Pool) -> None:
    units = 60
    job = Job(1000, HELD_UP, "held", [units], units=units, steps=1)
    either.run(0, 0, 0)
    for _ in range(10):
        ctypes.c_int64.from_address(either._address + blocks.PRESSURE).value = 1
        job.shared[:] = 0
        job.run(either)
    assert job.counters.sum() == 10 * units


def test_a_worker_that_just_has_more_to_do_is_waited_for_with_more_patience(two: Pool) -> None:
    two.run(0, 0, 0)
    job = Job(2, SLOW, "slow", [8_000_000], units=2, steps=1)
    patience = two._patience.value
    two._trials.of(job.steps.ctypes.data).record(True, 10.0, 9.0)
    for _ in range(2):
        two._trials.of(job.steps.ctypes.data).record(True, 0.0, 0.0)
    two._pressure.value = 10
    job.run(two)
    assert two._patience.value == 2 * patience


def test_a_worker_that_waits_long_for_another_sees_that_it_is_held_up(either: Pool) -> None:
    either.run(0, 0, 0)
    pressure = ctypes.c_int64.from_address(either._address + blocks.PRESSURE)
    job = Job(2, SLOW, "slow", [3_000_000], units=2, steps=1)
    for _ in range(100):  # whether the second worker comes in time is up to the system
        job.run(either)
        if pressure.value:
            break
    assert pressure.value > 0


def test_a_step_that_is_worth_one_worker_gets_one(two: Pool) -> None:
    job = Job(worth=1)
    job.run(two)
    assert job.counters.tolist()[:2] == [STEPS * UNITS, 0]


def test_a_pool_of_one_runs_on_the_caller() -> None:
    job = Job(worth=4)
    pool = Pool(library(None).driver(), 1)
    job.run(pool)
    assert job.counters[0] == STEPS * UNITS
    assert threading.active_count() == len(threading.enumerate())


def test_workers_sleep_when_there_is_nothing_to_do_and_wake_up_again(two: Pool) -> None:
    job = Job(worth=2)
    job.run(two)
    time.sleep(0.1)  # longer than a worker spins
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.15
    job.run(two)
    assert job.counters.sum() == 2 * STEPS * UNITS


def test_callers_that_find_the_pool_busy_do_their_work_alone(either: Pool) -> None:
    jobs = [Job(worth=either.workers) for _ in range(6)]
    threads = [threading.Thread(target=lambda job=job: [job.run(either) for _ in range(20)]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [int(job.counters.sum()) for job in jobs] == [20 * STEPS * UNITS] * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_workers_of_its_own(either: Pool) -> None:
    job = Job(worth=either.workers)
    job.run(either)
    child = os.fork()
    if child == 0:
        job.run(either)
        os._exit(0 if job.counters.sum() == 2 * STEPS * UNITS else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    job.run(either)
    assert job.counters.sum() == 2 * STEPS * UNITS


def test_a_closed_pool_opens_again(two: Pool) -> None:
    job = Job(worth=2)
    job.run(two)
    two.close()
    job.run(two)
    assert job.counters.sum() == 2 * STEPS * UNITS


@pytest.mark.parametrize("workers", [257, 300, 1000])
def test_a_pool_has_room_for_every_worker(workers: int) -> None:
    pool = Pool(library(None).driver(), workers, spinning=False)
    pool._open()
    try:
        block = pool._block
        assert isinstance(block, ctypes.Array)
        assert pool._address + blocks.POOL_BYTES <= ctypes.addressof(block) + len(block)
    finally:
        pool.close()


def test_more_threads_than_make_sense_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 100_000
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    large = model("(float[N] x) => (float[N] y) { y = Sin(x) }")
    x = np.linspace(0, 1, 300_000, dtype=np.float32)
    for _ in range(2):  # compiled, then saved
        [y] = sardonyx.InferenceSession(large, options).run(None, {"x": x})
        np.testing.assert_allclose(y, np.sin(x), atol=1e-6)
    most = max(pools._MOST_WORKERS, pools.usable_cores())
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"100000 threads were asked for; there are {most}, ")


def test_a_system_that_gives_fewer_threads(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    started = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "sardonyx-3":
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    pool = Pool(library(None).driver(), 5)
    job = Job(worth=5)
    job.run(pool)
    pool.close()
    assert job.counters.sum() == STEPS * UNITS
    assert caplog.messages == ["a pool of 5 workers has only 3: can't start new thread"]


def test_cores_follow_affinity_and_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(pools, "_cgroup_quota", lambda: 2.5)
    assert pools.usable_cores() == 3
    monkeypatch.setattr(pools, "_cgroup_quota", lambda: None)
    assert pools.usable_cores() == 8


def test_programs_that_want_the_same_workers_share_a_pool() -> None:
    driver = library(None).driver
    assert pools.shared_pool(driver, 2, True, LINUX) is pools.shared_pool(driver, 2, True, LINUX)
    assert pools.shared_pool(driver, 2, False, LINUX) is not pools.shared_pool(driver, 2, True, LINUX)
    assert pools.shared_pool(driver, 0, True, LINUX) is pools.shared_pool(driver, pools.usable_cores(), True, LINUX)


def test_a_saved_and_a_compiled_model_share_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 7  # as no other test has
    sessions = [sardonyx.InferenceSession(get_example("sigmoid.onnx"), options) for _ in range(2)]
    assert len(sessions) == 2
    assert sum(pool.workers == 7 for pool in pools._pools) == 1


def groups(folder: Path, own: str, **files: str) -> float | None:
    """The quota that a process reads: where it is, and the files of the groups (__ stands for a slash, _dot_ for a dot)."""
    (folder / "own").write_text(own)
    for name, text in files.items():
        path = folder / "groups" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return pools._cgroup_quota(str(folder / "groups"), str(folder / "own"))


def test_the_quota_is_that_of_the_narrowest_group_around(tmp_path: Path) -> None:
    limits = {"a__cpu_dot_max": "150000 100000", "a__b__cpu_dot_max": "max 100000", "a__b__c__cpu_dot_max": "300000 100000"}
    assert groups(tmp_path, "0::/a/b/c\n", **limits) == 1.5


def test_a_container_that_sees_its_hosts_path_reads_its_own_root(tmp_path: Path) -> None:
    assert groups(tmp_path, "0::/docker/1234\n", cpu_dot_max="50000 100000") == 0.5


def test_the_first_version_of_control_groups_is_read_too(tmp_path: Path) -> None:
    files = {"cpu__a__cpu_dot_cfs_quota_us": "200000", "cpu__a__cpu_dot_cfs_period_us": "100000"}
    assert groups(tmp_path, "5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n", **files) == 2.0
    files = {"cpu__a__cpu_dot_cfs_quota_us": "-1", "cpu__a__cpu_dot_cfs_period_us": "100000"}
    assert groups(tmp_path, "4:cpu,cpuacct:/a\n", **files) is None


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert pools._cgroup_quota(str(tmp_path), str(tmp_path / "none")) is None


def test_a_pool_of_more_workers_than_cores_ends_with_its_last_program() -> None:
    kernels = library(None)
    few, many = (pools.shared_pool(kernels.driver, count, False, LINUX) for count in (1, (os.cpu_count() or 1) + 3))
    assert pools.shared_pool(kernels.driver, many.workers, False, LINUX) is many
    many._open()
    threads = list(many._threads)
    assert len(threads) == many.workers - 1
    kept, gone = weakref.ref(few), weakref.ref(many)
    del few, many
    gc.collect()
    assert kept() is not None
    assert gone() is None
    assert not any(thread.is_alive() for thread in threads)


def test_callers_at_the_same_time_have_no_more_workers_than_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside others a run is cut into fewer parts; with as many callers as cores it has its own thread alone."""
    monkeypatch.setattr(pools, "usable_cores", lambda: 4)
    pool = Pool(library(None).driver(), 4)
    try:
        taken = []
        for others in range(5):
            pools.running.extend([None] * (others + 1))
            try:
                taken.append(pool._take() and ctypes.c_int64.from_address(pool._address + blocks.WORKERS).value)
            finally:
                del pools.running[-others - 1 :]
                if taken[-1]:
                    pool._busy.release()
        assert taken == [4, 3, 2, False, False]
    finally:
        pool.close()


def test_runs_are_counted_while_they_are_under_way(two: Pool) -> None:
    job = Job(worth=2)
    for _ in range(3):
        job.run(two)
    assert not pools.running


def test_a_worker_leaves_the_core_of_its_caller_and_keeps_its_affinity(two: Pool) -> None:
    """Workers that woke up or were brought to the caller's core move: they may still use the same cores afterwards."""
    job = Job(worth=2)
    allowed = os.sched_getaffinity(0)
    for _ in range(20):
        job.run(two)
        time.sleep(0.003)  # the worker sleeps before the next job
    (thread,) = two._threads
    assert thread.native_id is not None
    for _ in range(1000):  # on a busy machine it may still be about to leave, and be held up in the middle of that
        if os.sched_getaffinity(thread.native_id) == allowed:
            break
        time.sleep(0.01)
    assert os.sched_getaffinity(thread.native_id) == allowed
    assert os.sched_getaffinity(0) == allowed
