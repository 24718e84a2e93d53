"""The runtime that needs nothing of the system: LLVM loads the code, and workers wait in Python; the answers are the same."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from counting_job import STEPS, UNITS, Job
from sardonyx import errors
from sardonyx.codegen import llvm, loader
from sardonyx.codegen.drivers import driver_ir
from sardonyx.codegen.host import host
from sardonyx.compile import assemble
from sardonyx.runtime import native_core
from sardonyx.runtime.plain_pool import PlainPool
from sardonyx.runtime.pool import Pool, shared_pool
from sardonyx.target.machine import LINUX, PLAIN, runtime, runtime_of
from sardonyx.target.target import describe
from session_agreement import REFERENCE, difference, same_bits, session
from small_nets import NETS


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_RUNTIME", "plain")


@pytest.fixture
def three(plain: None) -> Iterator[Pool]:
    pool = PlainPool(assemble.library(None).driver(), 3)
    yield pool
    pool.close()


def test_systems_without_an_implementation_of_their_own_run_plainly() -> None:
    assert runtime_of("x86_64", "Linux") == runtime_of("aarch64", "Linux") == LINUX
    assert runtime_of("x86_64", "Windows") == runtime_of("aarch64", "Darwin") == runtime_of("riscv64", "Linux") == PLAIN
    mac = describe("arm64-apple-darwin", "apple-m1", "")
    assert (mac.runtime, mac.architecture, mac.registers) == (PLAIN, "aarch64", 32)
    assert describe("aarch64-unknown-linux-gnu", "neoverse-n1", "").runtime == LINUX


@pytest.mark.parametrize("triple", ["x86_64-pc-windows-msvc", "arm64-apple-darwin", "riscv64-unknown-linux-gnu"])
def test_the_driver_compiles_for_them_and_calls_nothing_of_the_system(triple: str) -> None:
    target = describe(triple, "", "")
    text = driver_ir(target)
    assert "syscall" not in text
    assert "sched_yield" not in text
    assert llvm.compile_to_object(text, target)


def test_an_unknown_runtime_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_RUNTIME", "fast")
    with pytest.raises(errors.InvalidArgument, match="SARDONYX_RUNTIME is 'fast': expected 'native' or 'plain'"):
        session(NETS["chain"]()[0])


@pytest.mark.parametrize("net", NETS)
def test_nets_have_the_same_bits_as_elsewhere(net: str, plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
    monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    content, feeds = NETS[net]()
    expected = session(content, providers=REFERENCE).run(None, feeds)
    shared = session(content, threads=3)
    for _ in range(3):
        for actual, wanted in zip(shared.run(None, feeds), expected, strict=True):
            assert not difference(actual, wanted)
    monkeypatch.setenv("SARDONYX_RUNTIME", "native")
    for actual, wanted in zip(shared.run(None, feeds), session(content).run(None, feeds), strict=True):
        assert same_bits(actual, wanted)


def test_workers_sleep_when_there_is_nothing_to_do(three: Pool) -> None:
    Job(worth=3).run(three)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1


def test_a_closed_pool_opens_again_and_one_that_nobody_has_ends(plain: None) -> None:
    pool = PlainPool(assemble.library(None).driver(), 2)
    job = Job(worth=2)
    job.run(pool)
    pool.close()
    job.run(pool)
    assert job.counters.sum() == 2 * STEPS * UNITS
    (thread,), alive = pool._threads, weakref.ref(pool)
    del pool
    gc.collect()
    assert alive() is None
    thread.join(10)
    assert not thread.is_alive()


def test_loops_run_natively_on_several_workers(plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from model_text import model

    monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
    monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    content = model(
        """(float[4000] x) => (float[4000] y, float[N, 4000] all) {
             n = Constant<value = int64 {7}>()
             c = Constant<value = bool {1}>()
             y, all = Loop<body = g (int64 i, bool go, float[4000] a) => (bool go2, float[4000] b, float[4000] s) {
               go2 = Identity(go)
               b = Sin(a)
               s = Neg(b)
             }>(n, c, x)
           }"""
    )
    x = np.linspace(0, 2, 4000, dtype=np.float32)
    y, every = session(content, threads=3).run(None, {"x": x})
    for iteration in range(7):
        x = np.sin(x)
        np.testing.assert_allclose(every[iteration], -x, atol=1e-6)
    np.testing.assert_allclose(y, x, atol=1e-6)


def test_saved_programs_are_kept_apart_and_open_again(tmp_path: Path, plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path))
    content, feeds = NETS["chain"]()
    path = tmp_path / "model.onnx"
    path.write_bytes(content)

    def run() -> tuple[Any, int]:
        (result,) = sardonyx.InferenceSession(path).run(None, feeds)
        return result, len(list(tmp_path.glob("*.program")))

    first, second = run(), run()
    assert first[1] == second[1] == 1
    monkeypatch.delenv("SARDONYX_RUNTIME")
    assert runtime() == host().runtime
    third = run()
    assert third[1] == (2 if runtime() == LINUX else 1)
    assert same_bits(first[0], second[0])
    assert same_bits(first[0], third[0])


def test_pools_of_both_kinds_live_side_by_side() -> None:
    kinds = [shared_pool(partial(driver_of, kind), 2, True, kind) for kind in (LINUX, PLAIN)]
    assert [type(pool) for pool in kinds] == [Pool, PlainPool]


def driver_of(kind: str) -> loader.LoadedCode:
    target = host(runtime=kind)
    return loader.load(llvm.compile_to_object(driver_ir(target), target), kind)
