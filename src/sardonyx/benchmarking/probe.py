"""Runs in a process of its own, as text: opens a model with one engine, runs it, prints what that took as JSON.

    python -c PROBE_TEXT '{"engine": "onnxruntime", "model": "m.onnx", "feeds": "f.pickle", "threads": 2, "runs": 10, "more": 0}'

It imports nothing but the engine and what the feeds are made of, so that the memory it reports is the engine's.
"""

from __future__ import annotations

import importlib
import json
import sys
import time


def resident_peak() -> int:
    """The most memory this process has had, in bytes. VmHWM begins anew with the program; ru_maxrss may be the parent's."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def resident_now() -> int:
    """The memory this process has, in bytes; 0 where the system does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def main() -> None:
    """Open, run, report."""
    request = json.loads(sys.argv[1])
    import pickle  # the feeds were written by the process that started this one

    file = open(request["feeds"], "rb")  # noqa: SIM115 - read from as it goes on: only one set of feeds is in memory
    feeds = pickle.load(file)
    base = resident_peak()
    start = time.perf_counter()
    engine = importlib.import_module(request["engine"])
    open_model, options = engine.InferenceSession, engine.SessionOptions()  # an engine may import what these need only now
    imported = time.perf_counter()
    options.intra_op_num_threads = request["threads"]
    options.log_severity_level = 3
    session = open_model(request["model"], options, providers=["CPUExecutionProvider"])
    opened = time.perf_counter()
    opened_peak = resident_peak()
    session.run(None, feeds)
    first = time.perf_counter()
    after_first = resident_now()
    for _ in range(request["runs"] - 1):
        session.run(None, feeds)
    for _ in range(request["more"]):
        feeds = pickle.load(file)
        session.run(None, feeds)
    report = {
        "import": imported - start,
        "create": opened - imported,
        "first_run": first - opened,
        "total": first - start,
        "base": base,
        "opened_peak": opened_peak,
        "peak": resident_peak(),
        "after_first": after_first,
        "at_end": resident_now(),
    }
    print(json.dumps(report))


main()
