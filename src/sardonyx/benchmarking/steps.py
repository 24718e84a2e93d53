"""Where the time of a run goes, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sardonyx.compile.compiler import compile_model
from sardonyx.compile.native_model import NativeModel
from sardonyx.compile_options import CompileOptions
from sardonyx.formats.loading import load
from sardonyx.options import SessionOptions
from sardonyx.program.steps import HostNodeStep, KernelStep
from sardonyx.records import dataclass
from sardonyx.runtime.node_timing import NodeTiming
from sardonyx.runtime.runs import RunControl


@dataclass(frozen=True, slots=True)
class StepTime:
    """The time all steps of one label take in a run: of each step the shortest of some runs."""

    label: str  # of a kernel its operators joined by `+`, of a host step the node
    operator: str
    host: bool  # computed by Python
    calls: int
    seconds: float


def step_times(model: str | Path, feeds: Mapping[str, Any], threads: int = 0, runs: int = 5) -> list[StepTime]:
    """Run a model with every step watched; slowest first. What bodies of control flow do belongs to the node that holds them."""
    options = SessionOptions()
    options.intra_op_num_threads = threads
    program = compile_model(load(model), CompileOptions.of(options))
    fetches = tuple(port.name for port in program.outputs)
    at_host: dict[str, str] = {}
    native: set[str] = set()
    if isinstance(program, NativeModel):
        for step in program.main.lowered.steps:
            if isinstance(step, HostNodeStep):
                at_host[step.node.label] = step.node.op_type
            elif isinstance(step, KernelStep):
                native.add(step.label)
    program.run(feeds, fetches)  # the first run pays for memory that has never been touched
    best: dict[tuple[str, int], float] = {}  # by label and which of the steps of that label
    for _ in range(runs):
        met: Counter[str] = Counter()

        def note(timing: NodeTiming, met: Counter[str] = met) -> None:
            key = (timing.label, met[timing.label])
            met[timing.label] += 1
            seconds = (timing.end_ns - timing.start_ns) / 1e9
            best[key] = min(seconds, best.get(key, seconds))

        program.run(feeds, fetches, RunControl(on_node=note))
    calls = Counter(label for label, _ in best if label in at_host or label in native)
    times = [
        StepTime(
            label,
            at_host.get(label, label),
            label in at_host,
            count,
            sum(seconds for (each, _), seconds in best.items() if each == label),
        )
        for label, count in calls.items()
    ]
    return sorted(times, key=lambda step: -step.seconds)
