"""How many runs a second several threads of Python reach together on one session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sardonyx.benchmarking.comparing import opened_engines
from sardonyx.benchmarking.timing import settle
from sardonyx.records import dataclass

_ROUNDS = 3


@dataclass(frozen=True)
class CallersResult:
    """Runs per second of one engine: of one caller, and of several together; `error` is "" if it could run the model."""

    name: str
    one: float = 0.0
    together: float = 0.0
    error: str = ""


def throughput(run: Callable[[], object], callers: int, seconds: float) -> float:
    """Runs per second that some threads of Python reach together."""
    counts = [0] * callers
    failures: list[BaseException] = []
    end = time.perf_counter() + seconds

    def call(number: int) -> None:
        try:
            while not counts[number] or time.perf_counter() < end:
                run()
                counts[number] += 1
        except BaseException as error:  # raised again by the thread that asked
            failures.append(error)

    start = time.perf_counter()
    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts) / (time.perf_counter() - start)


def compare_callers(
    model: str | Path,
    feeds: Mapping[str, Any],
    callers: int,
    *,
    peers: Sequence[str] = ("onnxruntime",),
    threads: int = 0,
    seconds: float = 5.0,
) -> list[CallersResult]:
    """What several callers reach together on Sardonyx and on peers, against one caller; all take turns."""
    opened, failed = opened_engines(model, feeds, peers, threads)
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in opened}
    for _ in range(_ROUNDS):
        for name, engine in opened.items():
            for count, rates in zip((1, callers), found[name]):
                settle()
                rates.append(throughput(partial(engine.run, feeds), count, seconds / (2 * _ROUNDS * len(opened))))
    results = [CallersResult(name, max(one), max(together)) for name, (one, together) in found.items()]
    return [*results, *(CallersResult(name, error=text) for name, text in failed.items())]
