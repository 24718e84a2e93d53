"""Interleaved timing."""

from __future__ import annotations

import time

import pytest

from sardonyx.benchmarking import interleave


def test_the_best_and_the_median_of_a_function_are_its_own() -> None:
    found = interleave({"slow": lambda: time.sleep(0.004), "fast": lambda: None}, 0.1)
    assert found["slow"].best >= 0.004
    assert found["slow"].best <= found["slow"].median
    assert found["fast"].median < 0.001
    assert found["fast"].runs > found["slow"].runs >= 6  # three rounds of two runs at least


def test_functions_take_turns_in_changing_order() -> None:
    calls: list[str] = []

    def note(name: str) -> None:
        if not calls or calls[-1] != name:
            calls.append(name)
        time.sleep(0.03)

    interleave({"a": lambda: note("a"), "b": lambda: note("b")}, 0.3)
    assert "".join(calls)[:5] == "ababa"  # warm-up a, b; first round a, b, second b, a


def test_slow_functions_do_not_take_much_longer_than_they_may() -> None:
    start = time.perf_counter()
    found = interleave({"slow": lambda: time.sleep(0.05)}, 0.05)
    assert time.perf_counter() - start < 0.8
    assert found["slow"].best == pytest.approx(0.05, abs=0.03)
