"""Opening models cold, warm and compiled, against onnxruntime's session creation: `python -m benchmarks.opening [NAME|FILE ...]`.

Every opening is a fresh process; those of the two engines take turns. Cold ones begin with an empty cache, warm ones with the
saved program, compiled ones open a bundle. Measured is the creation of the session (without the import), by the clock and by
processor time, best of some attempts, the process's peak of memory and what of its memory is its own at the end (anonymous pages;
pages of mapped files are shared with whoever maps them, too). On a machine that others use, processor time is the one to compare.
Our modules are compiled to bytecode first, as those of an installed package are.

    --process    the whole process instead: import, opening and first run
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any, Final

import numpy as np

import sardonyx

from .models.catalog import CASES, Unavailable

_PROGRAM: Final = """
import json, sys, time
begin = time.perf_counter(), time.process_time()
engine, path, feeds, whole = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "whole"
import numpy
if engine == "onnxruntime":
    import onnxruntime as module
else:
    import sardonyx as module
if not whole:
    begin = time.perf_counter(), time.process_time()
session = module.InferenceSession(path, providers=["CPUExecutionProvider"])
if whole:
    with numpy.load(feeds) as file:
        session.run(None, {name: file[name] for name in file.files})
end = time.perf_counter(), time.process_time()
def status(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) / 1024
with open("/proc/self/smaps_rollup") as file:
    own = sum(int(line.split()[1]) for line in file if line.startswith("Anonymous")) / 1024
print(json.dumps([end[0] - begin[0], end[1] - begin[1], status("VmHWM"), own]))
"""

Best = list[float]  # seconds, processor seconds, MB at the peak, MB of its own


def _open(engine: str, model: Path, feeds: Path, cache: str, whole: bool) -> Best:
    environment = {**os.environ, "SARDONYX_CACHE_DIR": cache}
    command = [sys.executable, "-c", _PROGRAM, engine, str(model), str(feeds), "whole" if whole else ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: Best = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(model: Path, feeds: dict[str, Any], attempts: int, kinds: Sequence[str], whole: bool) -> dict[str, Best]:
    """The best of some attempts: of onnxruntime, and of each kind of opening."""
    found: dict[str, Best] = {}
    with tempfile.TemporaryDirectory() as folder:
        arrays, bundle = Path(folder) / "feeds.npz", Path(folder) / "model.sdx"
        np.savez(arrays, **feeds)
        warm = str(Path(folder) / "warm")
        if "warm" in kinds:
            _open("sardonyx", model, arrays, warm, True)
        if "compiled" in kinds:
            sardonyx.compile_bundle(model, bundle)
        for attempt in range(attempts):
            for kind in ("onnxruntime", *kinds):
                if kind == "onnxruntime":
                    one = _open(kind, model, arrays, "", whole)
                else:
                    cache = warm if kind == "warm" else "" if kind == "compiled" else str(Path(folder) / f"cold{attempt}")
                    one = _open("sardonyx", bundle if kind == "compiled" else model, arrays, cache, whole)
                found[kind] = [min(pair) for pair in zip(found.get(kind, one), one)]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="opening models cold, warm and compiled, against onnxruntime")
    parser.add_argument("models", nargs="*", help="names of benchmark models, or .onnx files; default: all benchmark models")
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=("cold", "warm", "compiled"), default=["cold", "warm"])
    parser.add_argument("--process", action="store_true", help="measure whole processes: import, opening and first run")
    parser.add_argument("--cache", type=Path, default=Path(".bench-cache"))
    args = parser.parse_args()
    compileall.compile_dir(Path(sardonyx.__file__).parent, quiet=1)
    print(f"load {os.getloadavg()[0]:.1f}; seconds by the clock / of the processor, MB (its own); ratio of processor times")
    print(f"{'model':18s}" + "".join(f"{kind:>39s}" for kind in ("onnxruntime", *args.kinds)))
    logs: dict[str, list[float]] = {kind: [] for kind in args.kinds}
    for name in args.models or CASES:
        try:
            if name in CASES:
                model, feeds = CASES[name].prepare(args.cache)
            else:
                model = Path(name)
                feeds = sardonyx.random_inputs(sardonyx.InferenceSession(model).get_inputs()) if args.process else {}
        except Unavailable as error:
            print(f"{name:18s} {error}")
            continue
        found = measure(model, feeds, args.attempts, args.kinds, args.process)
        path = Path(name)
        line = f"{path.parent.name if path.name == 'model.onnx' else path.stem:18s}"
        for kind, (clock, processor, peak, own) in found.items():
            ratio = processor / found["onnxruntime"][1]
            line += f"{clock:9.3f} /{processor:7.3f}{peak:6.0f} MB ({own:4.0f})" + (f"{ratio:6.2f}" if kind in logs else " " * 6)
            if kind in logs:
                logs[kind].append(log(ratio))
        print(line, flush=True)
    for kind, each in logs.items():
        print(f"{kind}: {exp(sum(each) / len(each)):.2f} times onnxruntime's processor time, geometric mean of {len(each)}")


if __name__ == "__main__":
    main()
