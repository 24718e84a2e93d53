"""What is measured in fresh processes: memory, opening a model with and without cached code, the first answer of a program."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from sardonyx import errors
from sardonyx.benchmarking.engines import OURS
from sardonyx.records import dataclass

_PATIENCE = 600  # seconds for one process


@dataclass(frozen=True, slots=True)
class Creation:
    """Seconds it takes to open a model, and the most bytes the process has by then: with an empty cache, and with a full one.

    `peak` is the most bytes the process with a full cache has after its runs.
    """

    cold: float
    warm: float
    cold_peak: int
    warm_peak: int
    peak: int = 0


@dataclass(frozen=True, slots=True)
class FreshStart:
    """Seconds from the import of the engine to the first answer, and the parts of it."""

    imported: float
    created: float
    first_run: float
    total: float


@cache
def _probe_text() -> str:
    return Path(__file__).with_name("probe.py").read_text("utf-8")


def _probe(
    engine: str,
    model: str | Path,
    feeds: Sequence[Mapping[str, Any]],
    threads: int,
    runs: int,
    cache_folder: Path | None = None,
) -> dict[str, float]:
    """Run the probe and return its report."""
    with tempfile.TemporaryDirectory(prefix="sardonyx-bench-") as folder:
        path = Path(folder, "feeds.pickle")
        path.write_bytes(b"".join(pickle.dumps(dict(each)) for each in feeds))
        request = {"engine": engine, "model": str(model), "feeds": str(path), "threads": threads, "runs": runs}
        request["more"] = len(feeds) - 1
        environment = dict(os.environ)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process would compile all of our Python source
        if cache_folder is not None:
            environment["SARDONYX_CACHE_DIR"] = str(cache_folder)
        done = subprocess.run(
            [sys.executable, "-c", _probe_text(), json.dumps(request)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
            env=environment,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise errors.Fail(f"{engine} failed in a process of its own: {last}")
    report: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def _warm_up(engine: str, model: str | Path, feeds: Mapping[str, Any], threads: int) -> None:
    """From now on files are in memory, kernels in the cache, and Python has compiled all of our source."""
    _probe(engine, model, [feeds], threads, 1)


def peak_memory(engine: str, model: str | Path, feeds: Mapping[str, Any], threads: int = 0, runs: int = 10) -> int:
    """The most bytes a process has that opens a model and runs it some times; compiled code comes from the cache."""
    _warm_up(engine, model, feeds, threads)
    return int(_probe(engine, model, [feeds], threads, runs)["peak"])


def creation(
    engine: str,
    model: str | Path,
    feeds: Mapping[str, Any],
    threads: int = 0,
    attempts: int = 3,
    cold_attempts: int = 1,
    *,
    runs: int = 1,
    warm_up: bool = True,
) -> Creation:
    """What opening a model takes, the best of some attempts, and `runs` runs after it need.

    Other engines have no cache: cold is as warm. `warm_up=False` is for callers who have opened the model just before.
    """
    if warm_up:
        _warm_up(engine, model, feeds, threads)
    cold, warm = [], []
    for attempt in range(cold_attempts if engine == OURS else 1):
        with tempfile.TemporaryDirectory(prefix="sardonyx-bench-cache-") as folder:
            if engine == OURS:
                cold.append(_probe(engine, model, [feeds], threads, 1, Path(folder)))
            if attempt == 0:
                warm = [_probe(engine, model, [feeds], threads, runs, Path(folder)) for _ in range(attempts)]
    cold = cold or warm
    peaks = [int(min(each["opened_peak"] for each in reports)) for reports in (cold, warm)]
    times = [min(each["create"] for each in reports) for reports in (cold, warm)]
    return Creation(times[0], times[1], peaks[0], peaks[1], int(min(each["peak"] for each in warm)))


def fresh_start(engine: str, model: str | Path, feeds: Mapping[str, Any], threads: int = 0, attempts: int = 5) -> FreshStart:
    """The fastest of some processes that import an engine, open a model and run it once, with a warm cache."""
    _warm_up(engine, model, feeds, threads)
    reports = [_probe(engine, model, [feeds], threads, 1) for _ in range(attempts)]
    best = min(reports, key=lambda report: report["total"])
    return FreshStart(best["import"], best["create"], best["first_run"], best["total"])


def shapes_memory(engine: str, model: str | Path, many: Sequence[Mapping[str, Any]], threads: int = 0) -> tuple[int, int]:
    """Bytes a process has after runs with inputs of many shapes, and after runs with the largest alone."""
    largest = max(many, key=lambda feeds: sum(value.nbytes for value in feeds.values()))
    _warm_up(engine, model, largest, threads)
    alone = _probe(engine, model, [largest], threads, 3)["at_end"]
    varied = _probe(engine, model, [*many, largest], threads, 1)["at_end"]
    return int(varied), int(alone)
