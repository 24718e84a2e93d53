"""Race two checkouts of Sardonyx: the same models, in turns, so that whatever slows the machine down slows both.

    python tools/race_checkouts.py A B [MODEL ...] [--rounds 30] [--seconds 0.1] [--openings 5] [--threads 2] [--json FILE]

A and B are folders or git revisions (checked out into temporary worktrees). MODEL is a name of the benchmark's list or of the
small nets made in code (* and ? allowed), or an ONNX file whose inputs have known sizes; by default every model that can be made
here. Each side runs in processes and with a cache of its own; only one works at a time, and is idle before the other's turn.

Printed are best times, A's over B's as ratio (above 1: B is faster; in brackets that of the medians), the same for CPU time, for
opening with an empty and with a full cache (wall and CPU), and for peak memory. What is more than 3 % worse in B is marked, and a
model that runs more than 3 % slower makes the exit code 1. On a busy machine CPU times say more than wall times.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKER = Path(__file__).resolve().with_name("race_worker.py")
WORSE = 1.03
PEAK_RUNS = 10  # of the process whose memory is looked at
PATIENCE = 900  # seconds for one process
FIGURES = ("run", "cpu", "cold", "cold_cpu", "warm", "warm_cpu", "peak")
MARKED = {
    "run": "run",
    "cpu": "run (CPU)",
    "cold_cpu": "cold opening (CPU)",
    "warm_cpu": "warm opening (CPU)",
    "peak": "peak memory",
}


class Refused(Exception):
    """The race cannot be held as it was asked for; the text says why."""


@dataclass
class Side:
    """One checkout, and where its compiled code is kept."""

    name: str
    folder: Path
    cache: Path

    @property
    def source(self) -> Path:
        return self.folder / "src"

    def environment(self, cache: Path) -> dict[str, str]:
        """The environment of its processes. Bytecode is kept, or every process would compile all of our source."""
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return {
            **kept,
            "PYTHONPATH": str(self.source),
            "SARDONYX_CACHE_DIR": str(cache),
            "PYTHONPYCACHEPREFIX": str(self.cache / "pyc"),
        }


@dataclass(frozen=True)
class Runner:
    """A model with its feeds, both in files that the sides share."""

    name: str
    model: Path
    feeds: Path


@dataclass
class Record:
    """What was measured of one side of one model, in seconds and bytes."""

    times: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    cold_cpu: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    warm_cpu: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)
    answers: set[str] = field(default_factory=set)

    def summary(self) -> dict[str, Any]:
        """Best and median of each figure."""
        series = {"run": self.times, **{name: getattr(self, name) for name in FIGURES[1:]}}
        found = {name: {"best": min(each), "median": statistics.median(each)} for name, each in series.items() if each}
        return {**found, "runs": len(self.times), "answers": sorted(self.answers)}


# The two sides


@contextlib.contextmanager
def checkouts(names: Sequence[str], scratch: Path) -> Iterator[list[Side]]:
    """The checkouts by folder or revision; worktrees made for it are removed in the end."""
    made: list[Path] = []
    try:
        sides = []
        for letter, name in zip("AB", names):
            folder = Path(name).resolve()
            if not folder.is_dir():
                folder = scratch / f"checkout-{letter}"
                done = _git("worktree", "add", "--detach", "--quiet", str(folder), name)
                if done.returncode:
                    raise Refused(f"{name} is neither a folder nor a revision: {done.stderr.strip()}")
                made.append(folder)
            if not (folder / "src/sardonyx/__init__.py").exists():
                raise Refused(f"{name} has no src/sardonyx: expected a checkout of Sardonyx")
            cache = scratch / f"cache-{letter}"
            cache.mkdir()
            sides.append(Side(letter, folder, cache))
        yield sides
    finally:
        for folder in made:
            _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)


# The models


def model_makers() -> dict[str, Callable[[Path], tuple[Path, Mapping[str, Any]]]]:
    """All models that have a name: the small nets made in code, the shipped one, the benchmark's."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "src")]
    from benchmarks.models.catalog import CASES

    import small_nets

    def small(make: Callable[[], tuple[bytes, Mapping[str, Any]]]) -> Callable[[Path], tuple[Path, Mapping[str, Any]]]:
        def prepare(folder: Path) -> tuple[Path, Mapping[str, Any]]:
            data, feeds = make()
            path = folder / f"small-{make.__name__}.onnx"
            path.write_bytes(data)
            return path, feeds

        return prepare

    def shipped(folder: Path) -> tuple[Path, Mapping[str, Any]]:
        return _with_feeds(ROOT / "src/sardonyx/data/digits.onnx")

    makers = {f"small-{name}": small(make) for name, make in small_nets.NETS.items()}
    return {**makers, "digits": shipped, **{name: case.prepare for name, case in CASES.items()}}


def _with_feeds(path: Path, _folder: Path | None = None) -> tuple[Path, Mapping[str, Any]]:
    """A model file with random feeds."""
    import sardonyx
    from sardonyx.sample_inputs import random_inputs

    session = sardonyx.InferenceSession(path, providers=["SardonyxReferenceExecutionProvider"])
    return path, random_inputs(session.get_inputs())


def runners(wanted: Sequence[str], scratch: Path, cache: Path) -> Iterator[Runner]:
    """The models that are asked for, one after the other. What cannot be made here is left out, with a word."""
    import numpy as np

    makers = model_makers()
    from benchmarks.models.catalog import Unavailable

    chosen: dict[str, Callable[[Path], tuple[Path, Mapping[str, Any]]]] = {}
    for pattern in wanted or ["*"]:
        found = fnmatch.filter(makers, pattern)
        if not found and Path(pattern).is_file():
            chosen[Path(pattern).stem] = partial(_with_feeds, Path(pattern).resolve())
        elif not found:
            raise Refused(f"no model is called {pattern}, and no file; there are: {', '.join(makers)}")
        chosen.update((name, makers[name]) for name in found)
    for name, prepare in chosen.items():
        try:
            model, feeds = prepare(scratch if name.startswith("small-") else cache)
        except Unavailable as reason:
            if name in wanted:
                raise Refused(f"{name} cannot be made: {reason}") from reason
            print(f"{name} is left out: {reason}", file=sys.stderr)
            continue
        path = scratch / f"{name}.npz"
        np.savez(path, **feeds)
        yield Runner(name, model.resolve(), path)


# The race


def _request(side: Side, runner: Runner, threads: int, runs: int | None) -> list[str]:
    request: dict[str, Any] = {
        "source": str(side.source),
        "model": str(runner.model),
        "feeds": str(runner.feeds),
        "threads": threads,
    }
    if runs is not None:
        request["runs"] = runs
    return [sys.executable, str(WORKER), json.dumps(request)]


def _probe(side: Side, runner: Runner, threads: int, runs: int, cache: Path) -> dict[str, Any]:
    """One fresh process."""
    done = subprocess.run(
        _request(side, runner, threads, runs),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=side.environment(cache),
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise Refused(f"{runner.name}, side {side.name}: {last}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


class SideProcess:
    """A worker process that runs a model for a while whenever it is told to."""

    def __init__(self, side: Side, runner: Runner, threads: int) -> None:
        self.side, self.runner = side, runner
        self.process = subprocess.Popen(
            _request(side, runner, threads, None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=side.environment(side.cache),
        )
        self.opened = self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Refused(f"{self.runner.name}, side {self.side.name}: its process ended with code {self.process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def time_slice(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def race(sides: Sequence[Side], runner: Runner, settings: argparse.Namespace) -> dict[str, Any]:
    """All figures of one model, by side."""
    records = {side.name: Record() for side in sides}
    for side in sides:
        # Fills the cache; from now on the files are in memory and Python has compiled our source.
        _probe(side, runner, settings.threads, 1, side.cache)
    order = list(sides)
    for _ in range(settings.openings):
        for side in order:
            record = records[side.name]
            with tempfile.TemporaryDirectory(prefix="sardonyx-race-") as empty:
                cold = _probe(side, runner, settings.threads, 1, Path(empty))
            warm = _probe(side, runner, settings.threads, PEAK_RUNS, side.cache)
            record.cold.append(cold["wall"])
            record.cold_cpu.append(cold["cpu"])
            record.warm.append(warm["wall"])
            record.warm_cpu.append(warm["cpu"])
            record.peak.append(warm["peak"])
            record.answers.update((cold["answer"], warm["answer"]))
        order.reverse()
    with contextlib.ExitStack() as stack:
        workers = {}
        for side in sides:
            workers[side.name] = SideProcess(side, runner, settings.threads)
            stack.callback(workers[side.name].close)
        for _ in range(settings.rounds):
            for side in order:
                found = workers[side.name].time_slice(settings.seconds)
                records[side.name].times += found["times"]
                records[side.name].cpu.append(found["cpu"])
            order.reverse()
    return {name: record.summary() for name, record in records.items()}


# The table


def ratio(record: Mapping[str, Any], figure: str, which: str = "best") -> float | None:
    """A's figure over B's: above 1 is better in B; None if it was not measured."""
    a, b = (record[side].get(figure) for side in "AB")
    return None if a is None or b is None or not b[which] else float(a[which] / b[which])


def worse(record: Mapping[str, Any]) -> list[str]:
    """What is more than 3 % worse in B, with how much."""
    found = {figure: ratio(record, figure) for figure in MARKED}
    return [f"{MARKED[figure]} {1 / each - 1:+.1%}" for figure, each in found.items() if each is not None and each < 1 / WORSE]


def table_lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One row a model, then the geometric means."""
    yield "| model | A | B | run | run (CPU) | cold: wall, CPU | warm: wall, CPU | peak memory | answers | more than 3 % worse |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, record in results.items():
        best = [record[side]["run"]["best"] for side in "AB"]
        same = record["A"]["answers"] == record["B"]["answers"]
        yield (
            f"| {name} | {best[0] * 1e3:.3f} ms | {best[1] * 1e3:.3f} ms | {_both(record, 'run')} | {_both(record, 'cpu')} "
            f"| {_pair(record, 'cold')} | {_pair(record, 'warm')} | {_text(ratio(record, 'peak'))} "
            f"| {'same bits' if same else 'differ'} | {', '.join(worse(record)) or '-'} |"
        )
    means = {figure: _mean([each for record in results.values() if (each := ratio(record, figure))]) for figure in FIGURES}
    texts = {figure: _text(each) for figure, each in means.items()}
    yield (
        f"| **geometric mean** | | | {texts['run']} | {texts['cpu']} | {texts['cold']}, {texts['cold_cpu']} "
        f"| {texts['warm']}, {texts['warm_cpu']} | {texts['peak']} | | |"
    )


def _mean(ratios: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def _both(record: Mapping[str, Any], figure: str) -> str:
    return f"{_text(ratio(record, figure))} ({_text(ratio(record, figure, 'median'))})"


def _pair(record: Mapping[str, Any], figure: str) -> str:
    return f"{_text(ratio(record, figure))}, {_text(ratio(record, f'{figure}_cpu'))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Race, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A", help="folder or git revision: what B is compared with")
    parser.add_argument("b", metavar="B")
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="names (* and ? allowed) or files; default: all that can be made"
    )
    parser.add_argument("--rounds", type=int, default=30, help="turns of each side (default 30)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of one turn, at least two runs (default 0.1)")
    parser.add_argument("--openings", type=int, default=5, help="of each kind and side, each a fresh process (default 5)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache", help="where exported models are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here, too")
    settings = parser.parse_args(arguments)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="sardonyx-race-") as folder:
        scratch = Path(folder)
        try:
            with checkouts((settings.a, settings.b), scratch) as sides:
                for runner in runners(settings.models, scratch, settings.cache):
                    results[runner.name] = race(sides, runner, settings)
                    found = results[runner.name]
                    print(f"{runner.name}: {_both(found, 'run')} {', '.join(worse(found))}", file=sys.stderr, flush=True)
                    if settings.json:
                        settings.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        except Refused as reason:
            print(f"race_checkouts: {reason}", file=sys.stderr)
            return 2
    print(
        f"A: {settings.a}, B: {settings.b}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {settings.threads} threads"
    )
    print("\n".join(table_lines(results)))
    slower = [name for name, record in results.items() if (ratio(record, "run") or 1) < 1 / WORSE]
    if slower:
        print(f"slower by more than 3 %: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
