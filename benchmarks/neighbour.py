"""How much a busy process beside ours takes: `python -m benchmarks.neighbour [NAME ...]`, or `make bench-neighbour`.

Each engine has as many threads as there are cores; a process that only counts is kept on the last core for half of the blocks.
Mean times are printed (a best time would show the moments in which the neighbour was away), and go into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.__main__ import PAGE, write_whole
from benchmarks.models.catalog import CASES
from benchmarks.one import PEER
from benchmarks.report import geometric_mean, machine_line, page_with_neighbour, time_text
from sardonyx import benchmarking
from sardonyx.benchmarking import OURS
from sardonyx.benchmarking.timing import settle

MODELS: Final = ("mobilenet_v2", "resnet18", "minilm_l6", "yolov8n", "lstm")
BLOCK: Final = 0.8  # seconds
BLOCKS: Final = 5  # of each engine, alone and beside the neighbour

_COUNT: Final = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextmanager
def busy_neighbour(core: int) -> Iterator[None]:
    """A process that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", _COUNT, str(core)])
    try:
        time.sleep(0.2)  # until it counts
        yield
    finally:
        process.kill()
        process.wait()


def mean_time(run: Callable[[], object], seconds: float) -> float:
    """Of the runs of one block; the first, in which threads wake up, does not count."""
    settle()
    run()
    start, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds or not done:
        run()
        done += 1
    return spent / done


def measure(name: str, folder: Path, seconds: float, blocks: int) -> dict[str, tuple[float, float]]:
    """Mean times of each engine: alone, and beside a busy process."""
    cores = sorted(os.sched_getaffinity(0))
    model, feeds = CASES[name].prepare(folder)
    runs = {engine: partial(benchmarking.open_engine(engine, model, len(cores)).run, feeds) for engine in (OURS, PEER)}
    alone: dict[str, list[float]] = {engine: [] for engine in runs}
    beside: dict[str, list[float]] = {engine: [] for engine in runs}
    for _ in range(blocks):
        for engine, run in runs.items():
            alone[engine].append(mean_time(run, seconds))
        with busy_neighbour(cores[-1]):
            for engine, run in runs.items():
                beside[engine].append(mean_time(run, seconds))
    return {engine: (statistics.mean(alone[engine]), statistics.mean(beside[engine])) for engine in runs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write it into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbour", description=__doc__)
    parser.add_argument("names", nargs="*", default=MODELS, metavar="NAME", help="models (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"), help="where exported models are kept")
    parser.add_argument("--seconds", type=float, default=BLOCK, help="of a block (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of each engine (default %(default)s)")
    parser.add_argument("--no-page", dest="page", action="store_false", help="leave docs/benchmarks.md alone")
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.names if name not in CASES]
    if unknown:
        parser.error(f"no model is called {unknown[0]}; `python -m benchmarks --list` shows them")
    machine = {"machine": benchmarking.machine_facts(), "threads": len(os.sched_getaffinity(0))}
    lines = [machine_line(machine), ""]
    lines += ["| model | Sardonyx: alone, beside it | onnxruntime: alone, beside it | ratio beside it |", "|---|---|---|---|"]
    ratios = []
    for name in settings.names:
        found = measure(name, settings.cache, settings.seconds, settings.blocks)
        columns = [f"{time_text(alone)}, {time_text(beside)} ({beside / alone:.2f})" for alone, beside in found.values()]
        ratios.append(found[PEER][1] / found[OURS][1])
        lines.append(f"| {CASES[name].title} | {' | '.join(columns)} | {ratios[-1]:.2f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", f"Geometric mean of the ratio beside it: {geometric_mean(ratios):.2f}; lowest {min(ratios):.2f}."]
    print("\n".join(lines))
    if settings.page:
        write_whole(PAGE, page_with_neighbour(PAGE.read_text("utf-8"), lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
