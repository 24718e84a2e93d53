"""Where the time of a run goes, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sardonyx.compiler import compile_model
from sardonyx.formats.onnx import load
from sardonyx.lower.steps import HostNodeStep
from sardonyx.native_model import NativeModel
from sardonyx.options import SessionOptions
from sardonyx.runtime.executor import NodeTiming, RunControl


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time all steps of one label take in a run: the shortest of some runs."""

    label: str  # of a kernel its operators joined by `+`, of a host step the node
    operator: str
    host: bool  # computed by Python
    calls: int
    seconds: float


def step_times(model: str | Path, feeds: Mapping[str, Any], threads: int = 0, runs: int = 3) -> list[StepTime]:
    """Run a model with every step watched; slowest first. What bodies of control flow do belongs to the node that holds them."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    program = compile_model(load(model), options.compile_options())
    fetches = tuple(port.name for port in program.outputs)
    at_host: dict[str, str] = {}
    native: set[str] = set()
    if isinstance(program, NativeModel):
        for step in program.main.lowered.steps:
            if isinstance(step, HostNodeStep):
                at_host[step.node.label] = step.node.op_type
            else:
                native.add(step.label)
    program.run(feeds, fetches)  # the first run pays for memory that has never been touched
    best: dict[str, tuple[float, int]] = {}
    for _ in range(runs):
        spent: dict[str, tuple[float, int]] = {}

        def note(timing: NodeTiming, spent: dict[str, tuple[float, int]] = spent) -> None:
            seconds, calls = spent.get(timing.label, (0.0, 0))
            spent[timing.label] = (seconds + (timing.end_ns - timing.start_ns) / 1e9, calls + 1)

        program.run(feeds, fetches, RunControl(on_node=note))
        for label, (seconds, calls) in spent.items():
            best[label] = (min(seconds, best.get(label, (seconds, 0))[0]), calls)
    times = [
        StepTime(label, at_host.get(label, label), label in at_host, calls, seconds)
        for label, (seconds, calls) in best.items()
        if label in at_host or label in native
    ]
    return sorted(times, key=lambda step: -step.seconds)
