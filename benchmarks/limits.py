"""How near each model is to what the machine can do: `python -m benchmarks.limits [NAME ...]`.

    | model | GFLOP | at the peak | Sardonyx | share | ratio | ratio at the peak |

*GFLOP* are the multiplications and additions of products, convolutions, attention and recurrent layers as they are written in the
model, *at the peak* is the time they take if all cores do nothing else. Times and ratios are those that `make bench` has kept.
A share above 1 is Winograd's: it does with fewer.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import RESULTS
from benchmarks.kernels.peak import multiply_add_peak
from benchmarks.models.catalog import CASES
from benchmarks.one import PEER
from benchmarks.report import time_text
from sardonyx.compile.compiler import compile_model
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.loading import load
from sardonyx.options import SessionOptions
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.runs import RunControl


def operations(model: Path, feeds: Mapping[str, Any]) -> float:
    """Floating-point operations of a run, as its kernels count them."""
    program = compile_model(load(model), CompileOptions.of(SessionOptions()))
    total = 0.0

    def note(timing: NodeTiming) -> None:
        nonlocal total
        total += float(timing.facts.get("gflops_per_second", 0.0)) * max(timing.end_ns - timing.start_ns, 1)

    program.run(feeds, tuple(port.name for port in program.outputs), RunControl(on_node=note))
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each model that has been measured and has products."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models, * and ? allowed (default: all)")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"), help="where exported models are kept")
    parser.add_argument("--json", type=Path, default=RESULTS, help="the results of `make bench`")
    settings = parser.parse_args(arguments)
    results = json.loads(settings.json.read_text("utf-8"))
    peak = multiply_add_peak() * min(results["threads"], len(os.sched_getaffinity(0)))
    print(f"Peak of {results['threads']} cores: {peak / 1e9:.0f} GFLOP/s", end="\n\n")
    print("| model | GFLOP | at the peak | Sardonyx | share | ratio | ratio at the peak | goal |")
    print("|---|---|---|---|---|---|---|---|")
    for name, record in results["models"].items():
        engines = record.get("engines", {})
        timings = [engines.get(engine, {}).get("timing") for engine in ("sardonyx", PEER)]
        asked = not settings.names or any(fnmatch.fnmatch(name, one) for one in settings.names)
        if not asked or name not in CASES or not all(timings):
            continue
        ours, theirs = (timing["best"] for timing in timings)
        count = operations(*CASES[name].prepare(settings.cache))
        if not count:
            continue
        least = count / peak
        columns = [
            record["title"],
            f"{count / 1e9:.3g}",
            time_text(least),
            time_text(ours),
            f"{least / ours:.2f}",
            f"{theirs / ours:.2f}",
            f"{theirs / least:.2f}",
            f"{record['goal']:g}",
        ]
        print(f"| {' | '.join(columns)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
