"""Times of several functions that take turns.

In each round every function runs a few times; the order turns round from round to round. Before its turn there is a pause until
the threads of the engine before have stopped spinning (some do for tens of milliseconds, and would take a core away), and a
first run that does not count, in which its own threads wake up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from sardonyx.records import dataclass

# Seconds between two looks at whether the process is quiet. The system counts what threads on other cores use tick by tick, up to
# 10 ms each: in a shorter pause a thread that spins may seem to have done nothing.
_PAUSE = 0.025
_QUIET = 0.2  # share of a core below which it is
_PATIENCE = 1.0  # seconds after which a turn begins in any case
_TIME_SLICE = 0.04  # seconds a turn lasts, if the function is fast
_FEWEST_RUNS = 2  # of a turn, if it is slow
_FEWEST_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of many runs."""

    best: float
    median: float
    runs: int


def interleave(functions: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Timing]:
    """Run all functions in turns for about so long; at least three rounds, unless these alone took four times as long."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    order = list(functions)
    start = time.perf_counter()
    rounds = 0
    while (spent := time.perf_counter() - start) < seconds or (rounds < _FEWEST_ROUNDS and spent < 4 * seconds):
        for name in order:
            if len(order) > 1:
                settle()
            _run_time_slice(functions[name], taken[name])
        order.reverse()
        rounds += 1
    return {name: Timing(min(each), statistics.median(each), len(each)) for name, each in taken.items() if each}


def settle() -> None:
    """Wait until no thread of this process is busy."""
    end = time.perf_counter() + _PATIENCE
    while time.perf_counter() < end:
        used, start = time.process_time(), time.perf_counter()
        time.sleep(_PAUSE)
        if time.process_time() - used < _QUIET * (time.perf_counter() - start):
            return


def _run_time_slice(function: Callable[[], object], record: list[float]) -> None:
    """Run a function for the time of one turn."""
    clock = time.perf_counter
    function()
    end = clock() + _TIME_SLICE
    done = 0
    before = clock()
    while done < _FEWEST_RUNS or before < end:
        function()
        after = clock()
        record.append(after - before)
        before = after
        done += 1
