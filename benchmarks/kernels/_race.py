"""Side by side in one process: how long calls take, and sessions of both engines that run in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import onnxruntime as ort

import sardonyx as sx


def timed(call: Callable[[], object]) -> float:
    """Seconds a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def session(module: Any, content: bytes, threads: int = 1) -> Any:
    """A session of ours or of onnxruntime."""
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    return module.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def race(content: bytes, feeds: Mapping[str, Any], seconds: float = 1.0) -> tuple[float, float]:
    """The best times of both, ours first, run in turn on one thread."""
    ours, theirs = (session(module, content) for module in (sx, ort))
    for _ in range(3):
        ours.run(None, feeds)
        theirs.run(None, feeds)
    best_ours = best_theirs = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or best_theirs == float("inf"):
        best_ours = min(best_ours, timed(lambda: ours.run(None, feeds)))
        best_theirs = min(best_theirs, timed(lambda: theirs.run(None, feeds)))
    return best_ours, best_theirs
