"""Compares all models with onnxruntime: `python -m benchmarks [NAME ...]`, or `make bench`.

Every model is measured in a process of its own. The results go to a JSON file (models that are not measured this time keep what
they had), and from there into tables, a chart, the page docs/benchmarks.md and README.md. With `--target x86-64-v3` the models
are compiled for less than the machine has (or for all of it, where it has no AVX-512 as that of the table of all models has),
compared with the NumPy definitions as well (unless `--no-reference` says otherwise), and have a file and a table of their own.
So has the comparison with engines other than onnxruntime (`--peers openvino,torch.compile`, or `make bench-peers`).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.chart import ratio_chart
from benchmarks.models.catalog import CASES
from benchmarks.one import PEER, make_parser
from benchmarks.report import (
    geometric_mean,
    host_lines,
    page_with,
    page_with_peers,
    page_with_target,
    peer_lines,
    ratios,
    readme_with,
    summary_lines,
    table_lines,
    target_lines,
)
from sardonyx import benchmarking

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results.json"
PAGE = ROOT / "docs/benchmarks.md"
README = ROOT / "README.md"
CHART = ROOT / "docs/benchmarks.svg"
PATIENCE = 1800  # seconds for one model


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the files, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, parents=[make_parser()])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models, * and ? allowed (default: all)")
    parser.add_argument("--list", action="store_true", help="list the models")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where results are kept")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write table and host steps to this file, too")
    parser.add_argument("--target", default="", help="compile for less than the machine has: x86-64-v3, x86-64-v2")
    parser.add_argument(
        "--no-page", dest="page", action="store_false", help="leave docs/benchmarks.md, its chart and README.md alone"
    )
    settings = parser.parse_args(arguments)
    if settings.list:
        print("\n".join(f"{case.name:20} {case.kind:33} {case.title}" for case in CASES.values()))
        return 0
    chosen = [name for name in CASES if not settings.names or any(fnmatch.fnmatch(name, one) for one in settings.names)]
    if not chosen:
        parser.error(f"no model is called {' or '.join(settings.names)}; --list shows them")
    others = PEER not in settings.peers.split(",")
    part = settings.target or ("peers" if others else "")
    settings.json = settings.json or (RESULTS.with_stem(f"results-{part}") if part else RESULTS)
    results: dict[str, Any] = json.loads(settings.json.read_text("utf-8")) if settings.json.exists() else {"models": {}}
    results["machine"] = benchmarking.machine_facts()
    results["threads"] = settings.threads
    results["target"] = settings.target
    for name in chosen:
        start = time.perf_counter()
        record = _measure(name, settings)
        results["models"][name] = record
        kept = results["models"]
        results["models"] = {each: {**kept[each], **case.facts()} for each, case in CASES.items() if each in kept}
        write_whole(settings.json, json.dumps(results, indent=1) + "\n")
        shown = ", ".join(f"{ratio['best']:.2f}" for ratio in (record.get("ratio") or {}).values())
        outcome = shown or str(record.get("error") or record.get("engines", {}))[:200]
        print(f"{name:20} {outcome}   ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    if settings.target:
        full = json.loads(RESULTS.read_text("utf-8"))
        print("\n".join(target_lines(results, full)))
        if settings.page:
            write_whole(PAGE, page_with_target(PAGE.read_text("utf-8"), results, full))
        return 0 if geometric_mean(ratios(results)) else 1
    if others:
        print("\n".join(peer_lines(results)))
        if settings.page:
            write_whole(PAGE, page_with_peers(PAGE.read_text("utf-8"), results))
        return 0 if any(record.get("ratio") for record in results["models"].values()) else 1
    table = [*table_lines(results), "", *summary_lines(results)]
    print("\n".join(table))
    if settings.markdown:
        write_whole(settings.markdown, "\n".join([*table, "", *host_lines(results)]) + "\n")
    if settings.page:
        write_whole(CHART, ratio_chart(results))
        write_whole(PAGE, page_with(PAGE.read_text("utf-8"), results))
        write_whole(README, readme_with(README.read_text("utf-8"), results))
    return 0 if geometric_mean(ratios(results)) else 1


def _measure(name: str, settings: argparse.Namespace) -> dict[str, Any]:
    case = CASES[name]
    switches = [f"--no-{part}" for part in ("fresh", "scaling", "steps") if not getattr(settings, part)]
    options = ["--cache", settings.cache, "--peers", settings.peers, "--threads", settings.threads, "--seconds", settings.seconds]
    if settings.target if settings.reference is None else settings.reference:
        switches.append("--reference")
    command = [sys.executable, "-m", "benchmarks.one", *map(str, options), *switches, name]
    environment = {**os.environ, "SARDONYX_TARGET": settings.target} if settings.target else None
    failed = case.facts()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT, env=environment)
    except subprocess.TimeoutExpired:
        return {**failed, "error": f"not done after {PATIENCE} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {**failed, "error": f"exit code {done.returncode}: {last}"[:300]}
    record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, "utf-8")
    os.replace(beside, path)


if __name__ == "__main__":
    sys.exit(main())
