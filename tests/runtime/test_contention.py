"""Programs on a machine that others use: pool and single thread are tried, the faster one is kept, the bits are the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx.runtime import native_core
from sardonyx.runtime import pool as pools
from sardonyx.runtime.contention import Trials, TrialTable
from session_agreement import same_bits, session
from small_nets import NETS


def course(together: float, alone: float, worked: float, runs: int) -> list[bool]:
    """Which runs of a program use the pool, if they take so long, and its caller works for a share of the time."""
    trials = Trials()
    chosen = []
    for _ in range(runs):
        shared = trials.is_shared()
        chosen.append(shared)
        seconds = together if shared else alone
        trials.record(shared, seconds, worked * seconds)
    return chosen


def test_the_faster_of_the_two_is_kept() -> None:
    assert course(0.02, 0.01, 0.5, 20) == [True] * 3 + [False] * 17
    assert course(0.01, 0.02, 0.5, 20) == [True] * 3 + [False] * 3 + [True] * 14


def test_a_caller_that_could_work_all_the_time_never_runs_alone() -> None:
    assert all(course(0.02, 0.01, 0.9, 1000))


def test_what_was_faster_once_is_tried_again_after_a_while() -> None:
    chosen = course(0.02, 0.01, 0.5, 4_000)
    trials = [number for number in range(1, len(chosen)) if chosen[number] and not chosen[number - 1]]
    apart = [later - earlier for earlier, later in pairwise([0, *trials])]
    assert apart[0] < 30, "a disturbance may be over soon"
    assert all(2 * longer >= 3 * shorter for shorter, longer in pairwise(apart[:4])), "one that lasts costs ever less"
    assert max(apart) < 500


@given(st.floats(1e-5, 1.0), st.floats(1e-5, 1.0), st.floats(0, 0.7))
def test_the_slower_way_takes_little_of_the_time(together: float, alone: float, worked: float) -> None:
    chosen = course(together, alone, worked, 20_000)
    spent = sum(together if shared else alone for shared in chosen)
    slower = together if together > alone else alone
    lost = sum(slower for shared in chosen if (together if shared else alone) == slower and together != alone)
    trial = 3 * slower + 0.03 + slower
    assert lost <= trial + 0.25 * spent


def test_programs_are_remembered_apart_and_not_without_end() -> None:
    table = TrialTable()
    first = table.of(1)
    assert table.of(1) is first
    assert table.of(2) is not first
    for number in range(200):
        table.of(number)
    assert table.of(1) is not first


@pytest.mark.parametrize("net", NETS)
def test_nets_have_the_same_bits_however_finely_steps_are_cut(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, feeds = NETS[net]()
    expected = session(content, threads=1).run(None, feeds)
    monkeypatch.setattr(native_core, "PARALLEL_FROM", 1)
    monkeypatch.setattr(native_core, "SHARED_FROM", 1)
    shared = session(content, threads=3)
    for _ in range(4):
        for actual, wanted in zip(shared.run(None, feeds), expected, strict=True):
            assert same_bits(actual, wanted)
        for pool in list(pools._pools):
            if pool.workers == 3:
                pool._pressure.value = 1_000_000
