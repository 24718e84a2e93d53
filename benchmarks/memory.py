"""Memory of a process that sees many shapes: `python -m benchmarks.memory [NAME ...]`, or `make bench-memory`.

For each model two fresh processes: one runs the largest input alone, one many random shapes and then the largest. Printed is
what each holds at its end, in MB, and the second over the first, for us and for onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.models.catalog import CASES, SYMBOLIC, Unavailable
from sardonyx import benchmarking
from sardonyx.benchmarking import OURS

PEER: Final = "onnxruntime"
COUNT: Final = 200  # shapes
FEW: Final = 60  # where inputs are large

Feeds = Mapping[str, Any]
Vary = Callable[[np.random.Generator, Feeds], list[dict[str, Any]]]


def _pictures(name: str, step: int, most: int) -> Vary:
    """Any height and width that are multiples of a step."""

    def vary(rng: np.random.Generator, _: Feeds) -> list[dict[str, Any]]:
        sides = rng.integers(2, most // step + 1, (COUNT, 2)) * step
        return [{name: rng.random((1, 3, int(height), int(width)), np.float32)} for height, width in sides]

    return vary


def _lines(rng: np.random.Generator, _: Feeds) -> list[dict[str, Any]]:
    """Lines of text, of any width."""
    return [{"x": rng.random((1, 3, 48, 8 * int(width)), np.float32)} for width in rng.integers(8, 121, COUNT)]


def _texts(rng: np.random.Generator, feeds: Feeds) -> list[dict[str, Any]]:
    """A few texts at once, cut to any length."""
    sizes = zip(rng.integers(1, 5, COUNT), rng.integers(4, 129, COUNT))
    return [{name: np.repeat(value[:, :length], batch, axis=0) for name, value in feeds.items()} for batch, length in sizes]


def _pasts(rng: np.random.Generator, feeds: Feeds) -> list[dict[str, Any]]:
    """A decoder whose past grows."""
    lengths = np.sort(rng.integers(1, 200, FEW))

    def past(value: Any, length: int) -> Any:
        return np.repeat(value[:, :, :, :1], length, axis=3)

    return [
        {name: past(value, int(length)) if name.startswith("past_") else value for name, value in feeds.items()}
        for length in lengths
    ]


VARIED: Final[dict[str, Vary]] = {
    "ppocr_det": _pictures("x", 32, 384),
    "ppocr_rec": _lines,
    "unet_any": _pictures("image", 16, 320),
    "minilm_l6": _texts,
    "gpt2_decode": _pasts,
}


def varied(name: str, feeds: Feeds) -> list[dict[str, Any]]:
    """Inputs of a model in many random shapes, always the same ones."""
    return VARIED[name](np.random.default_rng(1), feeds)


def _row(name: str, folder: Path, threads: int) -> list[str]:
    case = CASES[name] if name in CASES else SYMBOLIC[name]
    try:
        model, feeds = case.prepare(folder)
    except Unavailable as missing:
        return [case.title, str(missing), "", "", ""]
    many = varied(name, feeds)
    cells = [case.title, str(len(many))]
    for engine in (OURS, PEER):
        if not benchmarking.is_installed(engine):
            cells.append("")
            continue
        after, alone = benchmarking.shapes_memory(engine, model, many, threads)
        cells.append(f"{alone / 1e6:.0f}, {after / 1e6:.0f}: {after / alone:.2f}")
    return cells


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(VARIED)} (default: all)")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"), help="where exported models are kept")
    parser.add_argument("--threads", type=int, default=2, help="for every engine (default 2)")
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.names if name not in VARIED]
    if unknown:
        parser.error(f"no model is called {unknown[0]}; there are: {', '.join(VARIED)}")
    print("| model | shapes | Sardonyx: largest alone, after all, ratio | onnxruntime |\n|---|---|---|---|", flush=True)
    for name in settings.names or VARIED:
        print(f"| {' | '.join(_row(name, settings.cache, settings.threads))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
