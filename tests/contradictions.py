"""Feeds whose sizes contradict each other, the constants of the model or its operators: what native code makes of them.

    python tests/contradictions.py --seconds 600 --seed 1        operators, small nets, random graphs
    python tests/contradictions.py --models --seconds 600        models that packages ship, exports of PyTorch and scikit-learn

A seed stands for a case (`contradiction_cases.py`), for which of its inputs are constants, which of their sizes are open, and for
the shapes it is fed: nothing but the operators says what fits. Every seed runs in a child process, with each buffer between pages
nobody may touch. What is expected: the answer of the NumPy definitions, or an error where they refuse. Anything else (a crash, a
hang, an answer where they refuse, another answer) is a failure and is printed with its seed:

    python tests/contradictions.py --seed 4711 --count 1

Seeds go round all cases. The last lines say how many cases were reached, and which operators became native code on the way
(programs out of the cache count as well only if an earlier seed of the same process compiled them).
"""

from __future__ import annotations

import argparse
import logging
import math
import multiprocessing
import random
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

import sardonyx
from guarded_session import guarded_feeds, guarded_memory
from roughness import roughest
from sardonyx.errors import SardonyxError
from sardonyx.lower import lower_graph
from session_agreement import REFERENCE, TOLERANCE, difference, session

Array = NDArray[Any]
Feeds = dict[str, Array]
OpenAxes = dict[str, frozenset[int]]

RUNS = 6  # with contradicting feeds for a seed, between two with those that fit
LONGEST = 120  # seconds of computing for one seed
SMALL = 20_000  # elements; larger feeds do not become many times as large
MEMORY = 8 << 30  # bytes of address space for the runs of a process
LATEST = 1200  # seconds for one seed on a machine that is busy with other things
_PRIME = 7919  # larger than any list of cases: seeds go through all of it
# Shares of the largest magnitude; one layer in float16 is off by up to 1e-3.
TOLERANCES = {**TOLERANCE, "float32": 1e-4, "float16": 4e-3, "int8": 2e-2}


@dataclass(frozen=True)
class Case:
    """A model and feeds that fit it."""

    name: str
    content: bytes
    feeds: Feeds
    fixed: bool = False  # whether all inputs stay inputs: what else the model reads is constant already
    inner: str = "float64"  # the roughest type of what it computes with, if that is rougher than what it reads

    def loosest(self) -> list[str]:
        """The roughest type behind each output."""
        kinds = {name: array.dtype.name for name, array in self.feeds.items()}
        return roughest(onnx.load_model_from_string(self.content), kinds, self.inner)


@dataclass
class Tally:
    """What came of the runs, and the failures in full."""

    runs: Counter[str] = field(default_factory=Counter)
    seeds: int = 0
    failures: list[str] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)  # names of cases, and how many of their seeds ended
    lowered: set[tuple[str, str]] = field(default_factory=set)  # operators (domain, name) that became native code

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(self.runs.items()))
        reached = f"{len(self.reached)} cases, {len(self.lowered)} operators in native code"
        return f"{self.seeds} seeds, {reached}: {counts or 'no runs'}; {len(self.failures)} failures"


def drawn_axes(feeds: Feeds, draw: random.Random) -> OpenAxes:
    """The axes whose sizes are open: all of them, or some, for there are kernels only where some sizes are known."""
    share = draw.choice((1.0, 1.0, 0.7, 0.4))
    return {name: frozenset(axis for axis in range(array.ndim) if draw.random() < share) for name, array in feeds.items()}


def with_open_sizes(content: bytes, feeds: Feeds, axes: OpenAxes, constant: set[str], shared: bool) -> bytes:
    """The model with symbols for these sizes of its inputs, some of which become constants.

    With `shared`, sizes that are equal in these feeds have the same symbol.
    """
    model = onnx.load_model_from_string(content)
    graph = model.graph
    kept = [value for value in graph.input if value.name not in constant]
    for value in kept:
        array = feeds.get(value.name)
        if array is None:
            continue
        shape = value.type.tensor_type.shape
        shape.Clear()
        for axis, size in enumerate(array.shape):
            dim = shape.dim.add()
            if axis in axes[value.name]:
                dim.dim_param = f"size{size}" if shared else f"{value.name}_{axis}"
            else:
                dim.dim_value = size
    graph.initializer.extend(numpy_helper.from_array(feeds[name], name) for name in sorted(constant))
    del graph.input[:]
    graph.input.extend(kept)
    del graph.value_info[:]
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    made: bytes = model.SerializeToString()
    return made


def contradicted(feeds: Feeds, axes: OpenAxes, draw: random.Random) -> Feeds:
    """The feeds with one or two sizes of one of them changed, now and then of two."""
    made = dict(feeds)
    candidates = [name for name in feeds if axes[name]]
    for name in draw.sample(candidates, min(len(candidates), 1 if draw.random() < 0.8 else 2)):
        array, free = feeds[name], sorted(axes[name])
        shape = list(array.shape)
        if len(free) > 1 and draw.random() < 0.15:
            first, second = draw.sample(free, 2)
            shape[first], shape[second] = shape[second], shape[first]
        for axis in draw.sample(free, min(len(free), 1 if draw.random() < 0.7 else 2)):
            size = shape[axis]
            is_small = math.prod(shape) // max(size, 1) * 16 < max(array.size, SMALL)
            may_be_a_shape = array.dtype == np.int64 and array.ndim == 1  # one with 16 more axes would ask for gigabytes
            larger = size + 16 if is_small and not may_be_a_shape else size + 1
            twice = 2 * size if size < 5 or not may_be_a_shape else 0
            shape[axis] = draw.choice((size + 1, max(size - 1, 0), 1, 0, twice, larger))
        made[name] = resized(array, tuple(shape))
    return made


def resized(array: Array, shape: tuple[int, ...]) -> Array:
    """An array of another shape with the elements of this one, repeated if they are too few: their range stays the same."""
    if array.size == 0:
        return np.zeros(shape, array.dtype)
    return np.resize(array, shape)


@dataclass
class Outcome:
    """The results of a run, or the error."""

    results: list[Any] | None
    error: str = ""
    deliberate: bool = True


def outcome(opened: sardonyx.InferenceSession, feeds: Feeds) -> Outcome:
    try:
        return Outcome(opened.run(None, dict(feeds)))
    except SardonyxError as error:
        return Outcome(None, str(error))
    except Exception as error:  # an exception nobody meant to raise is a finding of its own
        return Outcome(None, f"{type(error).__name__}: {error}", deliberate=False)


def judge(expected: Outcome, found: Outcome, loosest: Sequence[str], least: float) -> tuple[str, str]:
    """What became of a run, and what is wrong about it ("" if nothing is).

    Floats may differ by a share (that of the type in `loosest`) of the largest result, or of `least`, the largest that was fed:
    a difference of two that are nearly equal has the rounding of what it was taken from.
    """
    if not found.deliberate:
        return "bare exceptions", f"raises {found.error}"
    if expected.results is None:
        if found.results is None:
            return "refused by both", ""
        shapes = [list(np.shape(result)) for result in found.results]
        return "answered where the reference refuses", f"answers {shapes}; the reference says: {expected.error}"
    if found.results is None:
        return "refused where the reference answers", f"refuses: {found.error}"
    pairs = zip(found.results, expected.results, loosest, strict=True)
    wrong = [text for text in (difference(a, e, kind, TOLERANCES, least) for a, e, kind in pairs) if text]
    return ("different answers", wrong[0]) if wrong else ("same answers", "")


def largest(feeds: Feeds) -> float:
    """The largest magnitude among the floats that are fed, at most 1; 1 if there are none."""
    floats = [array[np.isfinite(array)] for array in feeds.values() if array.dtype.kind == "f"]
    return min(max((float(np.abs(array).max(initial=0.0)) for array in floats), default=1.0), 1.0)


def case_of(cases: Sequence[Case], seed: int) -> Case:
    """The case of a seed: consecutive ones jump through the list, so that a short time sees something of everything."""
    return cases[seed * _PRIME % len(cases)]


def run_seed(cases: Sequence[Case], seed: int) -> Iterator[tuple[str, str]]:
    """All runs of a seed: what became of each, and what is wrong about it."""
    draw = random.Random(seed)
    case = case_of(cases, seed)
    names = [name for name, array in case.feeds.items() if array.dtype != object]
    constant = set() if case.fixed else {name for name in names[1:] if draw.random() < 0.4}
    axes = drawn_axes(case.feeds, draw)
    content = with_open_sizes(case.content, case.feeds, axes, constant, shared=draw.random() < 0.25)
    feeds = {name: array for name, array in case.feeds.items() if name not in constant}
    loosest = case.loosest()
    runs = [feeds, *(contradicted(feeds, axes, draw) for _ in range(RUNS)), feeds]
    try:
        reference = session(content, providers=REFERENCE)
    except SardonyxError as error:
        yield "not opened", "" if case.fixed else f"the reference does not open it: {error}"
        return
    expected = [outcome(reference, each) for each in runs]
    with guarded_memory(at_start=draw.random() < 0.3) as guard:
        opened = session(content, threads=draw.choice((1, 2)))
        for given, wanted in zip(runs, expected):
            kind, wrong = judge(wanted, outcome(opened, guarded_feeds(guard, given)), loosest, largest(given))
            shapes = {name: list(array.shape) for name, array in given.items()}
            yield kind, wrong and f"{wrong} (fed {shapes}, constant {sorted(constant)})"


def _work(cases: Sequence[Case], seeds: Sequence[int], pipe: Connection) -> None:
    """The child process: tells what it is about to do, then what came of it, and which operators were lowered."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    lowered: set[str] = set()
    lower_group = lower_graph._lower_group

    def watched(ctx: Any, group: Any) -> None:
        lower_group(ctx, group)
        if group.kind != "host":
            lowered.update(f"{node.domain}::{node.op_type}" for node in group.nodes)

    mock.patch.object(lower_graph, "_lower_group", watched).start()  # for as long as this process lives
    for seed in seeds:
        pipe.send((seed, "begin", ""))
        signal.alarm(LATEST)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            for kind, wrong in run_seed(cases, seed):
                pipe.send((seed, kind, wrong))
        except Exception as error:  # a session that does not open, or a fault of the generator: either is reported
            pipe.send((seed, "bare exceptions", f"{type(error).__name__}: {error}"))
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send((seed, "end", " ".join(sorted(lowered))))


def explore(cases: Sequence[Case], seeds: Sequence[int], tally: Tally, until: float | None = None) -> None:
    """Run seeds in child processes; one that dies is followed by another that goes on behind the seed that killed it."""
    context = multiprocessing.get_context("fork")
    seeds = list(seeds)
    while seeds and (until is None or time.monotonic() < until):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(cases, seeds, theirs))
        child.start()
        theirs.close()
        seed, running = seeds[0], False
        try:
            while until is None or running or time.monotonic() < until:
                seed, kind, wrong = ours.recv()
                running = kind not in ("begin", "end") or kind == "begin"
                if kind == "begin":
                    continue
                if kind == "end":
                    tally.seeds += 1
                    tally.reached[case_of(cases, seed).name] += 1
                    tally.lowered.update((domain, name) for domain, _, name in (each.partition("::") for each in wrong.split()))
                    continue
                tally.runs[kind] += 1
                if wrong:
                    tally.failures.append(f"seed {seed} ({case_of(cases, seed).name}): {kind}: {wrong}")
        except EOFError:
            pass
        if running:
            child.join()
            name = signal.Signals(-child.exitcode).name if child.exitcode and child.exitcode < 0 else f"exit {child.exitcode}"
            kind = "hangs" if name in ("SIGALRM", "SIGPROF") else "crashes"
            tally.runs[kind] += 1
            tally.failures.append(f"seed {seed} ({case_of(cases, seed).name}): {kind}: {name}")
        elif child.is_alive():
            child.kill()
        child.join()
        seeds = seeds[seeds.index(seed) + 1 :]


def batches(first: int, size: int = 50) -> Iterator[range]:
    """Seeds from a first one on, for ever."""
    while True:
        yield range(first, first + size)
        first += size


def explore_for(cases: Sequence[Case], seconds: float, first: int, report: Any = None) -> Tally:
    """Run seeds from `first` on for some time; `report` gets each new failure."""
    tally, until = Tally(), time.monotonic() + seconds
    for seeds in batches(first):
        if time.monotonic() >= until:
            break
        known = len(tally.failures)
        explore(cases, seeds, tally, until)
        for failure in tally.failures[known:]:
            if report is not None:
                report(failure)
        if report is not None:
            print(f"up to seed {seeds[-1]}: {tally}", file=sys.stderr, flush=True)
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    from contradiction_cases import all_cases
    from contradiction_models import real_models

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="how long to go on")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="how many seeds, instead of a time")
    parser.add_argument("--models", action="store_true", help="real models instead of operators")
    parser.add_argument("--only", default="", help="only cases whose name holds this text; seeds mean other cases then")
    given = parser.parse_args(arguments)
    cases = [case for case in (real_models() if given.models else all_cases()) if given.only in case.name]

    def show(failure: str) -> None:
        print(failure, flush=True)

    print(f"{len(cases)} cases", flush=True)
    if given.count is None:
        tally = explore_for(cases, given.seconds, given.seed, show)
    else:
        tally = Tally()
        explore(cases, range(given.seed, given.seed + given.count), tally)
        for failure in tally.failures:
            show(failure)
    missed = sorted({case.name for case in cases} - set(tally.reached))
    print(f"{len(missed)} cases were not reached" + f": {', '.join(missed[:10])}" * bool(missed))
    print("operators:", ", ".join(f"{domain}::{name}" if domain else name for domain, name in sorted(tally.lowered)))
    print(tally)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
