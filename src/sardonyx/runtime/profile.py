"""A trace of what a session did, as a file that Perfetto and chrome://tracing open.

[
{"cat" : "Session","pid" :1,"tid" :1,"dur" :72,"ts" :1,"ph" : "X","name" :"model_loading_uri","args" : {}},
{"cat" : "Node", ... "name" :"conv1_kernel_time","args" : {"op_name" : "Conv", "provider" : ..., "output_size" : "96"}}
]

A kernel's event tells more: "kernel", "nodes" (all that are fused in it), "bytes_read", "bytes_written", "gflops_per_second".
Times are microseconds since the profiler started; the layout, one event a line, is ONNX Runtime's.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from sardonyx import dtypes, errors
from sardonyx.runtime.node_timing import NodeTiming


class Profiler:
    """Collects events until `finish` writes them; several threads may record at once."""

    def __init__(self, prefix: str) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        self.path = f"{prefix}_{stamp}_{int(now * 1000) % 1000:03}.json"
        self.start_ns = time.perf_counter_ns()
        self._pid = os.getpid()
        self._lines: list[str] = []
        self._count = 0
        self._finished = False

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record how long the body took."""
        start = time.perf_counter_ns()
        yield
        self._record("Session", name, start, time.perf_counter_ns(), {})

    def on_node(self, timing: NodeTiming) -> None:
        """Record one node."""
        self._count += 1
        args = {
            "op_name": timing.op_type,
            "provider": timing.provider,
            "node_index": str(self._count - 1),
            "input_type_shape": _describe(timing.inputs),
            "output_type_shape": _describe(timing.outputs),
            "activation_size": str(_nbytes(timing.inputs)),
            "output_size": str(_nbytes(timing.outputs)),
            **timing.facts,
        }
        self._record("Node", f"{timing.name or timing.op_type}_kernel_time", timing.start_ns, timing.end_ns, args)

    def _record(self, category: str, name: str, start: int, end: int, args: dict[str, Any]) -> None:
        if self._finished:
            return
        identifiers = f'"pid" :{self._pid},"tid" :{threading.get_native_id()}'
        when = f'"dur" :{(end - start) // 1000},"ts" :{(start - self.start_ns) // 1000}'
        text = f'{{"cat" : "{category}",{identifiers},{when},"ph" : "X","name" :{json.dumps(name)},"args" : {json.dumps(args)}}}'
        self._lines.append(text)

    def finish(self) -> str:
        """Write the file once and return its name; later calls return an empty name."""
        if self._finished or os.getpid() != self._pid:  # a forked child leaves the file to its parent
            return ""
        self._finished = True
        try:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write("[\n" + ",\n".join(self._lines) + "\n]\n")
        except OSError as error:
            raise errors.Fail(f"the profile cannot be written to {self.path!r}: {error}") from error
        return self.path


def _arrays(values: Sequence[Any]) -> Iterator[np.ndarray[Any, Any]]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays(value)


def _describe(values: Sequence[Any]) -> list[dict[str, list[int]]]:
    return [{dtypes.from_numpy(array.dtype).ort: list(array.shape)} for array in _arrays(values)]


def _nbytes(values: Sequence[Any]) -> int:
    return sum(array.nbytes for array in _arrays(values))
