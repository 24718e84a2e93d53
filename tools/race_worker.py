"""One side of a race (`tools/race_checkouts.py`): a process that imports one checkout of Sardonyx and measures what it is told.

    python tools/race_worker.py '{"source": "src", "model": "m.onnx", "feeds": "f.npz", "threads": 2, "runs": 3}'

With `runs` it opens the model, runs it so often, prints what that took as one line of JSON and ends. Without, it opens the model,
answers a line on its input, the seconds of a turn, with a line on its output, and is idle before it answers.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

PAUSE = 0.003  # seconds between two looks at whether the process is idle
QUIET = 0.2  # share of a core below which it is
PATIENCE = 0.5  # seconds after which it counts as idle in any case
FEWEST_RUNS = 2  # of a turn, if the model is slow


def peak_bytes() -> int:
    """The most memory this process has had. VmHWM begins anew with the program; ru_maxrss may be the parent's."""
    try:
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def settle() -> None:
    """Wait until no thread of this process works or spins."""
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        used, start = time.process_time(), time.perf_counter()
        time.sleep(PAUSE)
        if time.process_time() - used < QUIET * (time.perf_counter() - start):
            return


def digest(outputs: Any) -> str:
    """What a run answered, in a few characters: equal answers have equal ones."""
    found = hashlib.sha256()
    for output in outputs:
        found.update(f"{getattr(output, 'dtype', type(output))}{getattr(output, 'shape', '')}".encode())
        found.update(output.tobytes() if hasattr(output, "tobytes") else repr(output).encode())
    return found.hexdigest()[:16]


def time_slice(session: Any, feeds: Any, seconds: float) -> dict[str, Any]:
    """Run for so long; the first run, in which threads wake up, does not count."""
    session.run(None, feeds)
    times: list[float] = []
    clock = time.perf_counter
    cpu = time.process_time()
    before = clock()
    end = before + seconds
    while len(times) < FEWEST_RUNS or before < end:
        session.run(None, feeds)
        after = clock()
        times.append(after - before)
        before = after
    cpu = (time.process_time() - cpu) / len(times)
    settle()
    return {"times": times, "cpu": cpu}


def main() -> None:
    """Open, then measure."""
    request = json.loads(sys.argv[1])
    import numpy as np  # both sides need it for the feeds

    with np.load(request["feeds"]) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    clocks = time.perf_counter(), time.process_time()
    import sardonyx

    if Path(request["source"]).resolve() not in Path(sardonyx.__file__).resolve().parents:
        sys.exit(f"another Sardonyx was imported than that of {request['source']}: {sardonyx.__file__}")
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    options.log_severity_level = 3
    session = sardonyx.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
    opened = {"wall": time.perf_counter() - clocks[0], "cpu": time.process_time() - clocks[1], "opened_peak": peak_bytes()}
    answer = digest(session.run(None, feeds))
    for _ in range(request.get("runs", 1) - 1):
        session.run(None, feeds)
    print(json.dumps({**opened, "answer": answer, "peak": peak_bytes()}), flush=True)
    if "runs" not in request:
        settle()
        for line in sys.stdin:
            print(json.dumps(time_slice(session, feeds, float(line))), flush=True)


if __name__ == "__main__":
    main()
