"""One model on several engines: times, ratios, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.benchmarking.engines import OURS, Engine, failure_text, open_engine
from sardonyx.benchmarking.timing import Timing, interleave
from sardonyx.records import dataclass


@dataclass(frozen=True)
class EngineResult:
    """What one engine did; `error` is "" if it could run the model.

    `difference` is the largest difference from our results, as a share of the largest number in each; None if not compared.
    """

    name: str
    version: str = ""
    timing: Timing | None = None
    difference: float | None = None
    error: str = ""


@dataclass(frozen=True)
class Comparison:
    """The results of all engines, ours first."""

    threads: int
    engines: tuple[EngineResult, ...]

    def engine(self, name: str) -> EngineResult | None:
        """The result of one engine."""
        return next((each for each in self.engines if each.name == name), None)

    def ratio(self, peer: str, which: str = "best") -> float | None:
        """Their time over ours: above 1 we are faster. `which` is "best" or "median"."""
        ours, theirs = self.engine(OURS), self.engine(peer)
        if ours is None or theirs is None or ours.timing is None or theirs.timing is None:
            return None
        ratio: float = getattr(theirs.timing, which) / getattr(ours.timing, which)
        return ratio


def compare(
    model: str | Path,
    feeds: Mapping[str, Any],
    *,
    peers: Sequence[str] = ("onnxruntime",),
    threads: int = 0,
    seconds: float = 5.0,
) -> Comparison:
    """Time a model on Sardonyx and on peers. An engine that fails is listed with its error."""
    opened, failed = opened_engines(model, feeds, peers, threads)
    answers = {name: engine.run(feeds) for name, engine in opened.items()}
    timings = interleave({name: partial(engine.run, feeds) for name, engine in opened.items()}, seconds)
    results = []
    for name in _names(peers):
        if name in failed:
            results.append(EngineResult(name, error=failed[name]))
            continue
        compared = name != OURS and OURS in answers
        difference = largest_difference(answers[OURS], answers[name]) if compared else None
        results.append(EngineResult(name, opened[name].version, timings[name], difference))
    return Comparison(threads, tuple(results))


def _names(peers: Sequence[str]) -> tuple[str, ...]:
    return (OURS, *(peer for peer in dict.fromkeys(peers) if peer != OURS))


def opened_engines(
    model: str | Path, feeds: Mapping[str, Any], peers: Sequence[str], threads: int
) -> tuple[dict[str, Engine], dict[str, str]]:
    """Sardonyx and the peers that can run a model, each after a first run; and what is wrong with the others."""
    opened: dict[str, Engine] = {}
    failed: dict[str, str] = {}
    for name in _names(peers):
        try:
            engine = open_engine(name, model, threads)
            engine.run(feeds)
            opened[name] = engine
        except Exception as error:  # whatever an engine raises is its result
            failed[name] = failure_text(error)
    return opened, failed


def largest_difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference between results, each as a share of its largest number; infinite if they do not match."""
    if len(ours) != len(theirs):
        return float("inf")
    return max((_difference(a, b) for a, b in zip(ours, theirs)), default=0.0)


def _difference(ours: Any, theirs: Any) -> float:
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return largest_difference(ours, theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return largest_difference(list(ours.values()), list(theirs.values())) if list(ours) == list(theirs) else float("inf")
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape:
        return float("inf")
    if a.dtype.kind not in "fiubc" or b.dtype.kind not in "fiubc":
        return 0.0 if np.array_equal(a, b) else float("inf")
    wide = np.complex128 if np.iscomplexobj(a) else np.float64
    a, b = a.astype(wide), b.astype(wide)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    largest = float(np.abs(a - b)[~same].max())
    return largest / scale if scale > 0 and np.isfinite(largest) else float("inf")
