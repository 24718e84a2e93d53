"""Short programs: alone now and then, on workers that are awake when runs follow each other closely; the bits are the same."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from sardonyx.ir.tensor import Array
from sardonyx.runtime import native_core
from sardonyx.runtime import pool as pools
from sardonyx.runtime.contention import CloseRuns
from session_agreement import same_bits, session

LENGTH = 50e-6  # seconds of a run


def course(gaps: Sequence[float], callers: Sequence[int] | None = None) -> list[bool]:
    """Which runs have the pool, each so long after the one before."""
    runs, now, chosen = CloseRuns(), 0.0, []
    for gap, caller in zip(gaps, callers or [1] * len(gaps), strict=True):
        now += gap
        chosen.append(runs.begin(now, caller))
        now += LENGTH
        runs.ended = now
    return chosen


def test_runs_of_a_row_have_the_pool_from_the_fourth_on() -> None:
    assert course([5e-6] * 8) == [False] * 3 + [True] * 5


def test_a_pause_begins_a_new_row() -> None:
    assert course([5e-6] * 5 + [5e-3] + [5e-6] * 5) == [False] * 3 + [True] * 2 + [False] * 3 + [True] * 3


@given(st.lists(st.floats(3e-4, 1.0), min_size=1, max_size=30))
def test_runs_now_and_then_are_alone(gaps: list[float]) -> None:
    assert not any(course(gaps))


@given(st.lists(st.integers(1, 3), min_size=1, max_size=40))
def test_a_run_has_the_pool_only_after_three_of_its_own_thread(callers: list[int]) -> None:
    chosen = course([5e-6] * len(callers), callers)
    for number, has_pool in enumerate(chosen):
        row = callers[max(number - 3, 0) : number + 1]
        assert has_pool == (len(row) == 4 and len(set(row)) == 1)


def test_after_a_worker_was_held_up_runs_are_alone_for_ever_longer() -> None:
    runs, now, pauses = CloseRuns(), 0.0, []
    for _ in range(10):
        runs.hold_off(now)
        start = now
        while not runs.begin(now, 1):
            runs.ended = now
            now += 1e-4
        pauses.append(now - start)
    assert pauses[0] == pytest.approx(0.05, abs=1e-3)
    assert pauses[1] == pytest.approx(0.1, abs=1e-3)
    assert pauses[-1] == pytest.approx(3.2, abs=1e-3)
    runs.hold_off(now + 100)
    assert not runs.begin(now + 100.04, 1)
    runs.ended = now + 100.06
    assert [runs.begin(now + 100.06 + number * 1e-5, 1) for number in range(3)] == [False, False, True]


def net() -> tuple[bytes, dict[str, Array]]:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((256, 256)).astype(np.float32) / 16, f"w{n}") for n in range(4)]
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(4)]
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 256])] for name in ("x0", "x4")]
    graph = helper.make_graph(nodes, "net", *ports, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), {"x0": rng.standard_normal((8, 256)).astype(np.float32)}


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers wait in Python, asleep")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """All runs follow each other closely, however slow the machine is; which of them had the pool."""
    chosen: list[bool] = []
    begin = CloseRuns.begin

    def told(self: CloseRuns, now: float, caller: int) -> bool:
        self.ended = now
        chosen.append(begin(self, now, caller))
        return chosen[-1]

    monkeypatch.setattr(CloseRuns, "begin", told)
    monkeypatch.setattr(native_core, "PARALLEL_FROM", 1 << 40)
    monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    monkeypatch.setattr(native_core, "SHORT_FROM", 1)
    monkeypatch.setattr(pools, "_shared", weakref.WeakValueDictionary())  # pools that nobody has used
    monkeypatch.setattr(pools, "_lasting", {})
    return chosen


@on_linux
def test_a_short_program_has_the_same_bits_on_the_pool(patient: list[bool]) -> None:
    content, feeds = net()
    (expected,) = session(content, threads=1).run(None, feeds)
    assert patient == []
    shared = session(content, threads=2)
    for _ in range(6):
        (actual,) = shared.run(None, feeds)
        assert same_bits(actual, expected)
    assert patient == [False] * 3 + [True] * 3


@on_linux
def test_a_short_program_is_alone_when_a_worker_was_held_up(patient: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    content, feeds = net()
    opened = session(content, threads=2)
    launches: list[int] = []
    launch = pools.Pool.launch

    def watched(self: pools.Pool, block: int, pool_entry: memoryview, position: int) -> None:
        launches.append(block)
        launch(self, block, pool_entry, position)

    monkeypatch.setattr(pools.Pool, "launch", watched)
    for _ in range(5):
        opened.run(None, feeds)
    assert patient == [False] * 3 + [True] * 2
    assert len(launches) == 2
    (pool,) = pools._shared.values()
    pool._pressure.value = 1000
    opened.run(None, feeds)
    assert len(launches) == 2
    assert pool._pressure.value == 0


@on_linux
def test_programs_without_steps_worth_sharing_do_not_ask(patient: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_core, "SHORT_FROM", 1 << 60)
    content, feeds = net()
    opened = session(content, threads=2)
    for _ in range(5):
        opened.run(None, feeds)
    assert patient == []
